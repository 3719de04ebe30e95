"""What Budget Distribution and Budget Absorption share: column groups that are compared with their last publication.

The budget rule of each, and its loop over steps, stand in a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.w_event import fixed_groups, pan_private
from tidegate.compiled import lean
from tidegate.core.account import Account
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.parallel_account import ParallelAccount
from tidegate.core.rows import Draws, RowNoise
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.intervals import Fold, Held
from tidegate.mechanisms.w_event import publishing as configured
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN
from tidegate.noise import laplace
from tidegate.noise.laws import SharedLaw, exact_units, most_live

FRESH, APPROXIMATED, NULLIFIED, PARTIAL = 1, 2, 3, 5  # as in `releases.Status`
L1, LARGEST, GIVEN = 0, 1, 2  # which dissimilarity; GIVEN: the caller has computed the scores
MOST = 2**61  # of a score, so that sums stay within 64 bits; cutting it off does not raise its sensitivity
FURTHEST = 2**54  # of a published value, in grid units
WIDEST = 2.0**55  # of a publication's scale; one with less budget is skipped
TESTS = "dissimilarity"  # the stream of the tests' noise


class Published(NamedTuple):
    """What was published; all of it is released."""

    last: Any  # o_l: what was last published of each column, in grid units
    source: Any  # of each column group: the step of its last publication
    scales: Any  # and its noise scale, in the unit of the values
    group_of: Any  # the group of each column
    squares: Any  # of each column: squared releases since groups were formed; empty where they stay
    since: Any  # the last step before they were formed


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    window: int  # w
    test: int  # units of one test; 0 where spans pay for tests
    share: int  # Budget Absorption: units of one share, ε/(2w)
    pool: int  # Budget Distribution: units that the publications of a window share
    whole: float  # a publication of n units has noise of the scale whole/n
    grid: float
    measure: int  # which dissimilarity
    expected: Any  # of each column group: the score that noise of scale 1 causes by itself


class Work(NamedTuple):
    """Room that a step needs."""

    chosen: Any  # of each column group: whether it is published
    scores: Any  # and its dissimilarity


@lean
def choose(row: Any, tests: Any, limit: float, constants: Any, published: Any, work: Any) -> Any:
    """M_1: how many column groups differ from their last publication by more than noise of scale `limit` would."""
    scores, last, group_of = work.scores, published.last, published.group_of
    if constants.measure != GIVEN:
        scores[:] = 0
    if constants.measure == L1:
        for start in range(0, row.size, 64):  # 64 differences below 2^55 cannot leave 64 bits
            stop = min(start + 64, row.size)
            if scores.size == 1:
                piece = np.int64(0)
                for column in range(start, stop):
                    piece += abs(row[column] - last[column])
                scores[0] = min(scores[0] + piece, MOST)
            else:
                for column in range(start, stop):
                    group = group_of[column]
                    scores[group] = min(scores[group] + abs(row[column] - last[column]), MOST)
    elif constants.measure == LARGEST:
        for column in range(row.size):
            group = group_of[column]
            scores[group] = max(scores[group], abs(row[column] - last[column]))
    chosen = 0
    for group in range(scores.size):
        work.chosen[group] = scores[group] + tests[group] > constants.expected[group] * limit
        chosen += work.chosen[group]
    return chosen


@lean
def publish(row: Any, noise: Any, step: int, scale: float, constants: Any, published: Any, work: Any) -> None:
    """M_2: overwrite what was last published of the chosen column groups."""
    last, source = published.last, published.source
    if source.size == 1:
        for column in range(row.size):
            last[column] = min(max(row[column] + noise[column], -FURTHEST), FURTHEST)
    else:
        _publish_groups(row, noise, step, constants, published, work)
    for group in range(source.size):
        if work.chosen[group]:
            source[group], published.scales[group] = step, scale * constants.grid


@lean
def _publish_groups(row: Any, noise: Any, step: int, constants: Any, published: Any, work: Any) -> None:
    """Overwrite the columns of the chosen groups, where there are several."""
    last, source, group_of = published.last, published.source, published.group_of
    for column in range(row.size):
        group = group_of[column]
        if work.chosen[group]:
            if published.squares.size:  # how large the value was that is now replaced, for each step it stood
                stood = step - max(source[group], published.since[0])
                published.squares[column] += (last[column] * constants.grid) ** 2 * stood
            last[column] = min(max(row[column] + noise[column], -FURTHEST), FURTHEST)


@lean
def write(
    out: Any, index: int, chosen: int, skipped: int, units: int, constants: Any, published: Any
) -> None:
    """What the step releases: the last publication; `skipped` is the status of a step that publishes nothing."""
    source, scales, groups = published.source, published.scales, published.source.size
    out.status[index] = FRESH if chosen == groups else PARTIAL if chosen else skipped
    out.source[index], out.scale[index] = source[0], scales[0]
    for group in range(1, groups):
        out.source[index] = max(out.source[index], source[group])
        out.scale[index] = max(out.scale[index], scales[group])
    if chosen or index == 0:
        for column in range(published.last.size):
            out.values[index, column] = published.last[column] * constants.grid
    else:  # as before: a copy costs less than to convert it again
        for column in range(published.last.size):
            out.values[index, column] = out.values[index - 1, column]
    out.units[index] = units


@dataclass(frozen=True)
class Publishing(configured.Publishing):
    """The part that is not about budgets."""

    more: ClassVar[tuple[str, ...]] = ()

    def validate(self) -> None:
        """Refuse the printed calibration: no account can hold it."""
        super().validate()
        if self.calibration != "sound":
            raise InvalidParameter("calibration", self.calibration, "'sound'", "leave it out")

    @cached_property
    def parts(self) -> list[tuple[Integers, Any]]:
        """Column groups that have budgets of their own, and what runs on them; empty where units move."""
        return fixed_groups.instances(self) if self.independent else []

    def account(self) -> Account:
        """One account; for units that stay in their column group, one for each."""
        limits = self.units, self.window, self.policy.horizon
        return ParallelAccount(*limits, len(self.parts)) if self.parts else Account(*limits)

    def begin(self, first: int) -> Any:
        """Nothing was published."""
        if self.pan_private:
            return pan_private.begin(self, first)
        return tuple(one.begin_one(first) for _, one in self.parts) if self.parts else self.begin_one(first)

    def begin_one(self, first: int) -> Any:
        """The same for columns that have one account."""
        raise NotImplementedError

    # pan-private ones ask for these step by step

    def offered(self, state: Any, step: int) -> int:
        """Units that a publication at this step would cost; −1: the step is nullified."""
        raise NotImplementedError

    def note(self, state: Any, step: int, amount: int) -> None:
        """Remember what a step has published; 0: nothing."""
        raise NotImplementedError

    @cached_property
    def fixed_units(self) -> int:
        """What every step costs: its test, and what is kept for an intrusion that nobody notices."""
        return self.shares[1] + self.reserve

    @cached_property
    def grid_step(self) -> float:
        """The grid as a number."""
        return float(Fraction(self.grid))

    def event(self, state: Any, name: str, step: int, noise: Draws) -> Charges | None:
        """An announced intrusion costs what a publication of the open step costs, once for each step."""
        if name != "intrusion" or not self.pan_private:
            raise InvalidInput(f"event {name!r} is unknown; a pan-private mechanism knows 'intrusion'.")
        units = pan_private.intruded(self, state, noise)
        return Charges(step, np.array([units], dtype=np.int64)) if units else None

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
        """What tests share; and the cells of an open step, where there are any."""
        return self.shared is not None or self.pan_private is not None

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
            pool,
            self.whole_scale,
            float(Fraction(self.grid)),
            list(BUILT_IN).index(name) if name in BUILT_IN else GIVEN,
            np.array([self.measure.expected(int(size)) for size in sizes]),
        )

    @cached_property
    def steady_constants(self) -> Constants:
        """The same where column groups stay."""
        return self.constants(self.nothing_published(1).group_of)

    def nothing_published(self, first: int) -> Published:
        """Before the first publication every release is 0."""
        groups = self.group_count
        return Published(
            np.zeros(self.columns, dtype=np.int64),
            np.zeros(groups, dtype=np.int64),
            np.zeros(groups),
            self.initial_groups() if groups > 1 else np.zeros(self.columns, dtype=np.int64),
            np.zeros(self.columns if self.regroups_every else 0),
            np.array([first - 1]),
        )

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every step is tested, whatever the data are."""
        if self.pan_private:
            pan_private.check_step(state, first)
        if self.parts:
            return fixed_groups.public(self.parts, state, first, count)
        return Charges(first, np.full(count, self.fixed_units, dtype=np.int64))

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps; column groups change between them, at public times."""
        if self.pan_private:
            return pan_private.advance(self, state, rows, first, noise)
        if self.parts:
            groups = range(len(self.parts))
            draws = noise.bound(state, lambda: [noise.part(f"group {group}: ") for group in groups])
            return fixed_groups.advance(self.parts, state, rows, first, draws)
        output, spans, every = empty_output(len(rows), self.columns), [NO_SPANS], self.regroups_every
        length = len(rows) if self.measure.name in BUILT_IN else 1
        start = 0
        while start < len(rows):
            step, stop = first + start, min(len(rows), start + length)
            if every:
                stop = min(stop, start + every - (step - 1) % every)
            part = output.part(slice(start, stop))
            spans.append(self._release(state, rows[start:stop], step, noise, part))
            if every and (first + stop - 1) % every == 0:
                self._regroup(state.published, first + stop - 1)
            start = stop
        return output._replace(spans=np.concatenate(spans))

    def _release(self, state: Any, rows: Matrix, first: int, noise: Draws, out: Output) -> Integers:
        """Steps between which no column group changes; the spans that they cost."""
        count, groups, published = len(rows), self.group_count, state.published
        if self.shared is not None:
            steps = np.arange(first, first + count)
            tests, spans = self.shared.measure(state.tests, noise.source, TESTS, first, steps)
        else:
            tests, spans = laplace(noise.source, TESTS, first, self.score_scale, (count, groups)), NO_SPANS
        constants = self.constants(published.group_of) if self.regroups_every else self.steady_constants
        work = Work(np.zeros(groups, dtype=np.bool_), np.zeros(groups, dtype=np.int64))
        if constants.measure == GIVEN:
            for group in range(groups):
                columns = published.group_of == group
                found = int(self.measure.score(rows[0, columns], published.last[columns]))
                work.scores[group] = max(0, min(found, MOST))
        self.run(rows, first, constants, tests, noise.rows(publication=self.columns), state, work, out)
        return spans

    def run(
        self,
        rows: Matrix,
        first: int,
        constants: Constants,
        tests: Integers,
        noise: RowNoise,
        state: Any,
        work: Work,
        out: Output,
    ) -> None:
        """Call the algorithm's loop until all steps are released."""
        raise NotImplementedError

    def _regroup(self, published: Published, step: int) -> None:
        """Column groups of equal size by the root mean square of the releases since the last time."""
        last, source, scales, group_of, squares, since = published
        stood = step - np.maximum(source[group_of], since[0])
        totals = squares + (last * float(Fraction(self.grid))) ** 2 * stood
        oldest, widest = source[group_of], scales[group_of]
        group_of[np.argsort(totals, kind="stable")] = (
            np.arange(self.columns) * self.group_count // self.columns
        )
        for group in range(self.group_count):  # a mixed group is as old, and as noisy, as its worst column
            members = group_of == group
            source[group], scales[group] = oldest[members].max(), widest[members].max()
        squares[:], since[0] = 0, step

    def intervals(self) -> Fold:
        """Values stay until the next measurement."""
        assert self.law is not None
        return Held(self.outputs, replace(self.law, rounded=self.rounded_by), self.law)
