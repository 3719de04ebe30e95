"""What Budget Distribution and Budget Absorption share: column groups that are compared with their last publication.

The budget rule of each, and its loop over steps, stand in a file of its own; M_1 and M_2 of the paper are here.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.core.account import Account
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.parallel_account import ParallelAccount
from tidegate.core.rows import Draws, RowNoise
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import float_up, one_of, whole
from tidegate.mechanisms.losses import Floats, noise_losses, policy_change
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.sharing import SharingMechanism
from tidegate.mechanisms.w_event import column_groups, pan_private
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN, Dissimilarity
from tidegate.mechanisms.w_event.dissimilarity import L1 as SUMMED
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED, INTRUSION, SINGLE
from tidegate.noise import Law, laplace
from tidegate.noise.law import AnyLaw, SpreadLaw
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Releases

FRESH, APPROXIMATED, NULLIFIED, PARTIAL = 1, 2, 3, 5  # as in `releases.Status`
L1, LARGEST, GIVEN = 0, 1, 2  # which dissimilarity; GIVEN: the caller has computed the scores
MOST = 2**61  # of a score, so that sums stay within 64 bits; cutting it off does not raise its sensitivity
FURTHEST = 2**54  # of a published value, in grid units
WIDEST = 2.0**55  # of a publication's scale; one with less budget is skipped
LONGEST_SHARED = 2**12  # steps of a window whose tests share noise: units fit beside those of publications
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
    unit_scale: float  # the noise scale of a publication that spends one unit; n units: unit_scale/n
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
                # parts, because vector instructions need places that surely count from the beginning
                now, before, piece = row[start:stop], last[start:stop], np.int64(0)
                for column in range(now.size):
                    piece += abs(now[column] - before[column])
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
class Publishing(SharingMechanism):
    """Publish a step only if it differs enough from the last publication; the common part.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity
        "l1" (the paper's, summed over the columns), "largest", or a :class:`Dissimilarity` of your own.
    groups
        None: all columns are published together. A number: so many groups of columns, formed by the
        root mean square of past releases and re-formed every `regroup_every` steps. A tuple of tuples of column
        numbers: these groups, for ever. For moving units all groups share one account, which is charged
        the largest spend of any group; for fixed units each group has an account of its own with the whole
        budget, and the groups stay as they are, because re-forming them must not forget what a column has spent.
    regroup_every
        After how many steps groups are formed anew; by default every w steps.
    shift
        Give the dissimilarity only ε/d a step and the rest to publications; allowed where d > 2w.
    pan_private
        None; "single": the state may be seen once, unannounced; "announced": it may be seen any number of times, and
        each intrusion is announced to the run. Not together with groups, shift or a dissimilarity of one's own.
    step_columns
        The number of columns of the whole step, where this is the instance of one group of them: a replaced unit may
        leave one group for another, so each counts with what it can change in all. By default `columns`.
    noise
        Of the dissimilarities: "auto" for the best law that the tests of a window can share (docs/mechanisms/noise.md),
        "laplace" for noise of its own at each, as in the paper, "cube" or "semiorder" for this law. Publications have
        Laplace noise.
    """

    dissimilarity: str | Dissimilarity = "l1"
    groups: int | tuple[tuple[int, ...], ...] | None = None
    regroup_every: int | None = None
    shift: bool = False
    pan_private: str | None = None
    step_columns: int | None = None

    plain: ClassVar[bool] = True
    holds: ClassVar[bool] = True
    needs_room: ClassVar[bool] = True  # a refusal would tell what it decided on raw data
    columns_apart: ClassVar[bool] = False  # they are published together
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, Event)

    def validate(self) -> None:
        """Check dissimilarity, groups and shift."""
        put = object.__setattr__
        if isinstance(self.dissimilarity, str):
            one_of("dissimilarity", self.dissimilarity, BUILT_IN, f"write {SUMMED.name!r}")
            put(self, "dissimilarity", BUILT_IN[self.dissimilarity])
        self._validate_groups()
        if self.step_columns is not None:
            put(self, "step_columns", whole("step_columns", self.step_columns, least=self.columns))
        if self.independent and (self.shift or self.regroup_every is not None):
            raise InvalidParameter(
                "regroup_every" if self.regroup_every is not None else "shift",
                self.regroup_every or self.shift,
                "absent where groups have budgets of their own",
                "leave it out, or declare that units move",
            )
        if self.shift and self.columns <= 2 * self.window:
            raise InvalidParameter(
                "shift",
                True,
                f"False where the number of columns ({self.columns}) is not above 2w ({2 * self.window})",
                "leave it out: there is no budget to be gained",
            )
        if self.pan_private not in (None, SINGLE, ANNOUNCED):
            raise InvalidParameter(
                "pan_private", self.pan_private, "'single', 'announced' or None", "leave it out"
            )
        if self.pan_private and self.rounding != "refuse":
            raise InvalidParameter(
                "rounding",
                self.rounding,
                "'refuse' with pan_private",
                "round each contribution to the grid before it arrives: rounding each of them here would add up",
            )
        if self.pan_private and (self.groups is not None or self.shift or self.measure is not SUMMED):
            raise InvalidParameter(
                "pan_private",
                self.pan_private,
                "None with groups, shift or another dissimilarity",
                "choose one of them: their noised state has not been worked out together",
            )
        if self.units >= 2**50 or self.score_scale > 2**50 or self.unit_scale > 2**55:
            raise InvalidParameter(
                "window",
                self.window,
                f"small enough for {self.columns} columns to count its budget",
                "shorten the window",
            )

    def _validate_groups(self) -> None:
        put = object.__setattr__
        if self.groups is None or isinstance(self.groups, int):
            if self.groups is not None:
                put(self, "groups", whole("groups", self.groups, most=self.columns))
            if self.regroup_every is not None:
                put(self, "regroup_every", whole("regroup_every", self.regroup_every))
            return
        groups = tuple(tuple(int(column) for column in group) for group in self.groups)
        put(self, "groups", groups)
        if sorted(column for group in groups for column in group) != list(range(self.columns)) or not all(
            groups
        ):
            raise InvalidParameter(
                "groups",
                f"{len(groups)} groups",
                f"a partition of the columns 0 to {self.columns - 1}",
                "put every column into exactly one group",
            )
        if self.regroup_every is not None:
            raise InvalidParameter(
                "regroup_every",
                self.regroup_every,
                "absent where the groups are given",
                "give a number of groups",
            )

    @property
    def window(self) -> int:
        """The w of the policy."""
        length = self.policy.window
        assert length is not None
        return length

    @cached_property
    def sensitivity(self) -> int:
        """By how many grid units one unit can change one whole step, in L1."""
        rounded = self.rounding == "nearest"
        return self.policy.grid_sensitivity(
            self.step_columns or self.columns, Fraction(self.grid), rounded=rounded
        )

    @property
    def measure(self) -> Dissimilarity:
        """The dissimilarity, built in or given."""
        assert isinstance(self.dissimilarity, Dissimilarity)
        return self.dissimilarity

    @cached_property
    def group_count(self) -> int:
        """How many groups of columns decide for themselves."""
        if self.groups is None:
            return 1
        return self.groups if isinstance(self.groups, int) else len(self.groups)

    @cached_property
    def independent(self) -> bool:
        """Whether groups run by themselves, each with the full budget: sound for fixed units only."""
        return self.group_count > 1 and self.policy.mobility == "fixed"

    @property
    @abstractmethod
    def separate_unit_split(self) -> tuple[int, int, int]:
        """`unit_split` where every test is charged for itself."""

    @cached_property
    def unit_split(self) -> tuple[int, int, int]:
        """(units of the whole budget, of one dissimilarity test, of all publications in a window)."""
        total, test, pool = self.separate_unit_split
        if self.sharing is None:
            return total, test, pool
        finer = (self.sharing.group_part * total).denominator  # so that a group of tests costs whole units
        return total * finer, 0, pool * finer

    # the tests, which are what is measured at every step and may share noise

    @property
    def may_share(self) -> bool:
        """Where tests are on one account, and their units can be counted."""
        apart = self.independent or self.pan_private is not None
        return not apart and self.window <= LONGEST_SHARED

    @property
    def measured_columns(self) -> int:
        """One dissimilarity for each group of columns."""
        return self.group_count

    @property
    def measured_change(self) -> int:
        """By how much one unit changes the dissimilarities of a step together."""
        return self.measure.sensitivity * self.sensitivity

    @property
    def measuring_part(self) -> Fraction:
        """What the tests of a window cost."""
        total, test, _ = self.separate_unit_split
        return Fraction(self.window * test, total)

    @property
    def reserve(self) -> int:
        """Units charged to every step for an intrusion that nobody notices."""
        return 0

    @property
    def units(self) -> int:
        """Into how many exact units the whole budget is divided."""
        return self.unit_split[0]

    @cached_property
    def law(self) -> AnyLaw | None:
        """That of the publications; pan-private ones have two draws, one from before the first event."""
        grid = float(Fraction(self.grid))
        return SpreadLaw("laplace", grid, 2.0) if self.pan_private else Law("laplace", grid)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted; who may look into the state, where anybody may."""
        intruders = {
            SINGLE: "an intruder sees the run's state at most once, between two events",
            ANNOUNCED: "every look of an intruder into the run's state is announced before the next event",
        }
        more = (intruders[self.pan_private],) if self.pan_private else ()
        return super().assumptions + more

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost: its test and, where it was published, its noise."""
        together = self.pan_private or self.independent or self.shares_noise
        lost = None if together else noise_losses(self, releases)
        return None if lost is None else lost + policy_change(self) / self.score_scale

    @cached_property
    def score_scale(self) -> float:
        """The noise scale of one dissimilarity in grid units, of Laplace noise with its variance where it is shared."""
        if self.sharing is not None:
            return self.sharing.laplace_scale
        total, test, _ = self.separate_unit_split
        return float_up(self.measure.sensitivity * self.sensitivity * total / (test * self._epsilon))

    @cached_property
    def unit_scale(self) -> float:
        """The noise scale of a publication that spends one unit, in grid units; with k units it is this over k."""
        return self.noise_scale(self.units)

    @property
    def _epsilon(self) -> Fraction:
        return self.policy.budget.total

    def initial_groups(self) -> npt.NDArray[np.int64]:
        """The group of each column before anything was released; empty where all columns are one group."""
        if self.group_count == 1:
            return np.zeros(0, dtype=np.int64)
        group_of = np.zeros(self.columns, dtype=np.int64)
        if isinstance(self.groups, int):
            group_of[:] = np.arange(self.columns) * self.groups // self.columns
        elif self.groups is not None:
            for group, columns in enumerate(self.groups):
                group_of[list(columns)] = group
        return group_of

    # what a session asks -----------------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> list[tuple[Integers, Any]]:
        """Column groups that have budgets of their own, and what runs on them; empty where units move."""
        return column_groups.instances(self) if self.independent else []

    def account(self) -> Account:
        """One account; for units that stay in their column group, one for each."""
        limit, horizon = (self.units, self.window), self.policy.horizon
        return ParallelAccount([limit] * len(self.parts), horizon) if self.parts else Account(*limit, horizon)

    def begin(self, first: int) -> Any:
        """Nothing was published."""
        if self.pan_private:
            return pan_private.begin(self, first)
        return tuple(one.begin_one(first) for _, one in self.parts) if self.parts else self.begin_one(first)

    @abstractmethod
    def begin_one(self, first: int) -> Any:
        """The same for columns that have one account."""

    # pan-private ones ask for these step by step

    @abstractmethod
    def offered(self, state: Any, step: int) -> int:
        """Units that a publication at this step would cost; −1: the step is nullified."""

    @abstractmethod
    def note(self, state: Any, step: int, amount: int) -> None:
        """Remember what a step has published; 0: nothing."""

    @cached_property
    def fixed_units(self) -> int:
        """What every step costs: its test, and what is kept for an intrusion that nobody notices."""
        return self.unit_split[1] + self.reserve

    @cached_property
    def grid_step(self) -> float:
        """The grid as a number."""
        return float(Fraction(self.grid))

    def hears(self, name: str) -> bool:
        """Of intrusions, where they are announced; where one is allowed for that nobody notices, of none."""
        return name == INTRUSION and self.pan_private == ANNOUNCED

    def event(self, state: Any, name: str, step: int, noise: Draws) -> Charges | None:
        """An announced intrusion costs what a publication of the open step costs, once for each step."""
        if not self.hears(name):
            raise InvalidInput(f"event {name!r} is unknown; only pan_private='announced' knows 'intrusion'.")
        units = pan_private.intruded(self, state, noise)
        return Charges(step, np.array([units], dtype=np.int64)) if units else None

    @property
    def noise_in_state(self) -> bool:
        """What tests share; and the cells of an open step, where there are any."""
        return self.sharing is not None or self.pan_private is not None

    @cached_property
    def regroups_every(self) -> int:
        """After how many steps column groups are formed anew; 0: never."""
        formed = isinstance(self.groups, int) and self.group_count > 1
        return (self.regroup_every or self.window) if formed else 0

    def constants(self, group_of: Integers) -> Constants:
        """What the loop knows of the configuration."""
        _, test, pool = self.unit_split
        name, sizes = self.measure.name, np.bincount(group_of, minlength=self.group_count)
        return Constants(
            self.window,
            test,
            pool // self.window,
            pool,
            self.unit_scale,
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
            return column_groups.public(self.parts, state, first, count)
        return Charges(first, np.full(count, self.fixed_units, dtype=np.int64))

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps; column groups change between them, at public times."""
        if self.pan_private:
            return pan_private.advance(self, state, rows, first, noise)
        if self.parts:
            groups = range(len(self.parts))
            draws = noise.bound(state, lambda: [noise.part(f"group {group}: ") for group in groups])
            return column_groups.advance(self.parts, state, rows, first, draws)
        output, spans, every = empty_output(len(rows), self.columns), [NO_SPANS], self.regroups_every
        length = 1 if self.steady_constants.measure == GIVEN else len(rows)
        start = 0
        while start < len(rows):
            step, stop = first + start, min(len(rows), start + length)
            if every:
                stop = min(stop, start + every - (step - 1) % every)
            part = output if stop - start == len(rows) else output.part(slice(start, stop))
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

    @abstractmethod
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

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """With and without the shift where it is allowed, and with groups where there are columns enough."""
        found: list[Mechanism] = [cls(policy, columns=columns)]
        if columns > 2 * (policy.window or 1):
            found.append(cls(policy, columns=columns, shift=True))
        if columns >= 20 and policy.mobility == "moving":
            found.append(cls(policy, columns=columns, groups=5))
        return found
