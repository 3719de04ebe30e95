"""Budget Absorption (Kellaris et al. 2014): skipped steps leave their budget to the next publication."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.w_event.dissimilarity import GIVEN, MOST, score
from tidegate.compiled import lean
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.w_event import budget_absorption as configured
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN
from tidegate.noise import laplace
from tidegate.noise.laws import SharedLaw, exact_units, most_live

FRESH, APPROXIMATED, NULLIFIED, PARTIAL = 1, 2, 3, 5  # as in `releases.Status`
FURTHEST = 2**54  # of a published value, in grid units
WIDEST = 2**55  # of a publication's scale; one with less budget is skipped
TESTS = "dissimilarity"  # the stream of their noise

# positions in `State.memory`
LATEST, TAKEN, SINCE = 0, 1, 2  # l; n_l; the last step before the column groups were formed


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the law's part."""

    memory: Any  # l and n_l: the step and the shares of the last publication
    last: Any  # o_l: what was last published of each column, in grid units
    source: Any  # of each column group: the step of its last publication
    scales: Any  # and its noise scale, in the unit of the values
    group_of: Any  # the group of each column
    squares: Any  # of each column: squared releases since groups were formed; empty where they stay
    tests: Any  # SECRET: the law that the tests share; empty for Laplace noise


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    window: int  # w
    test: int  # units of one test; 0 where spans pay for tests
    share: int  # units of one share, ε/(2w)
    whole: float  # a publication of n units has noise of the scale whole/n
    grid: float
    measure: int  # which dissimilarity
    expected: Any  # of each column group: the score that noise of scale 1 causes by itself


@lean
def shares_offered(step: int, latest: int, taken: int, window: int) -> Any:
    """Figure 4, lines 4 to 8, in whole shares: what a publication at this step would spend; 0: it is nullified."""
    waited = step - latest
    return 0 if waited <= taken - 1 else min(waited - taken + 1, window)


@lean
def absorb(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    tests: Any,
    pool: Any,
    slot: Any,
    state: Any,
    work: Any,
    out: Any,
) -> Any:
    """Figure 4 for the steps rows[begin:]; (index, what is wanted). A step writes nothing before it has its noise."""
    constants, state, out = Constants(*constants), State(*state), Output(*out)
    chosen, scores = work
    memory, last, source, scales, group_of = (
        state.memory,
        state.last,
        state.source,
        state.scales,
        state.group_of,
    )
    groups = source.size
    for index in range(begin, rows.shape[0]):
        step, row = first + index, rows[index]
        shares = shares_offered(step, memory[LATEST], memory[TAKEN], constants.window)
        amount = shares * constants.share
        considered = amount > 0 and constants.whole <= WIDEST * amount
        fresh = 0
        if considered:  # M_1: the noisy dissimilarity, against the error of a publication
            if constants.measure != GIVEN:
                score(row, last, group_of, constants.measure, scores)
            limit = np.nextafter(constants.whole / amount, np.inf)
            for group in range(groups):
                chosen[group] = scores[group] + tests[index, group] > constants.expected[group] * limit
                fresh += chosen[group]
        if fresh:  # M_2: publish the chosen groups
            scale = publication_scale(constants.whole, amount)
            wanted = draw_row(pool, slot, step, scale)
            if wanted != DONE:
                return index, wanted
            for column in range(row.size):
                group = group_of[column]
                if chosen[group]:
                    if (
                        state.squares.size
                    ):  # how large the value was that is now replaced, for each step it stood
                        stood = step - max(source[group], memory[SINCE])
                        state.squares[column] += (last[column] * constants.grid) ** 2 * stood
                    last[column] = min(max(row[column] + slot.row[column], -FURTHEST), FURTHEST)
            for group in range(groups):
                if chosen[group]:
                    source[group], scales[group] = step, scale * constants.grid
            memory[LATEST], memory[TAKEN] = step, shares
        out.status[index] = (
            FRESH if fresh == groups else PARTIAL if fresh else APPROXIMATED if shares else NULLIFIED
        )
        out.source[index], out.scale[index] = source[0], scales[0]
        for group in range(1, groups):
            out.source[index] = max(out.source[index], source[group])
            out.scale[index] = max(out.scale[index], scales[group])
        for column in range(row.size):
            out.values[index, column] = last[column] * constants.grid
        out.units[index] = constants.test + (amount if fresh else 0)
    return rows.shape[0], DONE


@dataclass(frozen=True)
class BudgetAbsorption(configured.BudgetAbsorption):
    """Give every step the same share; :class:`tidegate.mechanisms.BudgetAbsorption` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the tests of a window share; None where each has its own noise."""
        if self.sharing is None:
            return None
        units = exact_units(self.sharing.group_part, self.units)
        return SharedLaw(self.sharing.law, units, self.window, 1, self.policy.horizon)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return 0 if self.shared is None else most_live(self.shared.law, self.window, 1)

    @property
    def noise_in_state(self) -> bool:
        """Only what tests share."""
        return self.shared is not None

    @property
    def regroups_every(self) -> int:
        """After how many steps column groups are formed anew; 0: never."""
        formed = isinstance(self.groups, int) and self.group_count > 1
        return (self.regroup_every or self.window) if formed else 0

    def constants(self, group_of: Integers) -> Constants:
        """What the loop knows of the configuration."""
        _, test, pool = self.shares
        name, sizes = self.measure.name, np.bincount(group_of, minlength=self.group_count)
        return Constants(
            self.window,
            test,
            pool // self.window,
            self.whole_scale,
            float(Fraction(self.grid)),
            list(BUILT_IN).index(name) if name in BUILT_IN else GIVEN,
            np.array([self.measure.expected(int(size)) for size in sizes]),
        )

    def begin(self, first: int) -> State:
        """Nothing was published: l = 0, n_l = 1, and o_l = 0."""
        groups = self.group_count
        group_of = self.initial_groups() if groups > 1 else np.zeros(self.columns, dtype=np.int64)
        return State(
            np.array([first - 1, 1, first - 1]),
            np.zeros(self.columns, dtype=np.int64),
            np.zeros(groups, dtype=np.int64),
            np.zeros(groups),
            group_of,
            np.zeros(self.columns if self.regroups_every else 0),
            () if self.shared is None else self.shared.start(),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step is tested, whatever the data are."""
        return Charges(first, np.full(count, self.shares[1], dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps; column groups change between them, at public times."""
        output, spans = empty_output(len(rows), self.columns), []
        length = 1 if self.measure.name not in BUILT_IN else max(1, len(rows))
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + length)
            if self.regroups_every:
                stop = min(stop, start + self.regroups_every - (first + start - 1) % self.regroups_every)
            part = output.part(slice(start, stop))
            spans.append(self._release(state, rows[start:stop], first + start, noise, part))
            if self.regroups_every and (first + stop - 1) % self.regroups_every == 0:
                self._regroup(state, first + stop - 1)
            start = stop
        return output._replace(spans=np.concatenate([NO_SPANS, *spans]))

    def _release(self, state: State, rows: Matrix, first: int, noise: Draws, out: Output) -> Integers:
        """Steps between which no column group changes; the spans that they cost."""
        count, groups = len(rows), self.group_count
        if self.shared is not None:
            tests, spans = self.shared.measure(
                state.tests, noise.source, TESTS, first, np.arange(first, first + count)
            )
        else:
            tests, spans = laplace(noise.source, TESTS, first, self.score_scale, (count, groups)), NO_SPANS
        constants = self.constants(state.group_of)
        scores = np.zeros(groups, dtype=np.int64)
        if constants.measure == GIVEN:
            for group in range(groups):
                columns = state.group_of == group
                found = int(self.measure.score(rows[0, columns], state.last[columns]))
                scores[group] = max(0, min(found, MOST))
        work = (np.zeros(groups, dtype=np.bool_), scores)
        drawing = noise.rows(publication=self.columns)
        fixed = (first, constants[:], tests, drawing.pool, drawing.slots[0], (*state[:6], ()), work, out[:5])
        drawing.run_loop(lambda begin: absorb(rows, begin, *fixed), first)
        return spans

    def _regroup(self, state: State, step: int) -> None:
        """Column groups of equal size by the root mean square of the releases since the last time."""
        stood = step - np.maximum(state.source[state.group_of], state.memory[SINCE])
        squares = state.squares + (state.last * float(Fraction(self.grid))) ** 2 * stood
        source, scales = state.source[state.group_of], state.scales[state.group_of]
        state.group_of[np.argsort(squares, kind="stable")] = (
            np.arange(self.columns) * self.group_count // self.columns
        )
        for group in range(self.group_count):  # a mixed group is as old, and as noisy, as its worst column
            members = state.group_of == group
            state.source[group], state.scales[group] = source[members].max(), scales[members].max()
        state.squares[:] = 0
        state.memory[SINCE] = step
