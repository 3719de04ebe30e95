"""ClippedRecords: learn where single values end, clip each of them there, then release sums by any mechanism.

What is pushed are no columns but records, as counts and sums in public bins (`clipping/record_reader.py`): neighbours
of its steps are those of the records behind them. So it stands beside the catalogue and not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.core.account import Account
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import HasAccount, Matrix, Output, Resumes
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, show, whole
from tidegate.intervals import Fold
from tidegate.intervals.fold import Intervals
from tidegate.intervals.fold import State as FoldState
from tidegate.mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate.mechanisms.clipping.nested import Nested
from tidegate.mechanisms.clipping.record_reader import RecordReader
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import laplace, laplace_one, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.noise.law import AnyLaw
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Releases, Status
from tidegate.structures.clamping import LARGEST
from tidegate.structures.grid import nearest_units
from tidegate.structures.hierarchy import Hierarchy
from tidegate.structures.value_bins import ValueBins

ROOM = 3  # values left above the threshold at least, in noise scales of the test
COUNTING = Fraction(1, 20)  # of ε for how many records the sample has
FIRST = Fraction(1, 5)  # of ε for the sums of the sample, where running sums need them
FEW = 50  # at most one in so many values is clipped for the sake of less noise
SAMPLE = 4  # a sample of fewer records than this times the room teaches nothing
SURE = 2  # scales of noise that the number of records has to be above that: else noise would pass for records
BIAS = 2  # how much worse noise may be than what clipping loses, on the whole
HORIZON = 10  # for running sums without an end: the length that a threshold is chosen for, in samples

# positions in `State.numbers`: steps that were pushed up to step m, the step at which the threshold was learned, the clip
# in grid units, and the first step of the mechanism; 0 where there is none yet
PUSHED, LEARNED, CLIP, BEGAN = 0, 1, 2, 3


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # see the positions below
    sample: (
        Any  # SECRET: counts, and for running sums also sums, of the sample's values in bins; 0 after step m
    )
    first: Any  # the released sums of the sample, and their variance
    released: Nested  # the mechanism that releases


class Reading(Protocol):
    """What is made of clipped values: their sums, or sums and counts for means, or those of all nodes of a hierarchy."""

    def measured(self, sums: Matrix, counts: Matrix, clip: int) -> Matrix:
        """What the mechanism is given, in grid units, of sums of clipped values and their numbers (steps × columns)."""

    def max_change(self, clip: int, adjacency: str) -> Fraction:
        """By how much one unit can change a step of it where values are clipped at so many grid units."""

    def describe(self) -> Any:
        """Identify it exactly, as JSON."""


@dataclass(frozen=True)
class Sums:
    """Plain sums of the values of at most `most` records of a unit in a step."""

    most: int = 1
    grid: ExactLike = 1

    def measured(self, sums: Matrix, counts: Matrix, clip: int) -> Matrix:
        """The sums."""
        return sums

    def max_change(self, clip: int, adjacency: str) -> Fraction:
        """A clip for each record."""
        return self.most * clip * Fraction(self.grid)

    def describe(self) -> Any:
        """Their name."""
        return "sums"


@dataclass(frozen=True, kw_only=True)
class ClippedRecords(Mechanism):
    """Learn a threshold from the records of the first steps, clip every later value at it, and release by any mechanism.

    Noise that is scaled to the largest value that could ever come drowns values that hardly ever come near it. Here the
    first `learn` steps buy a threshold that nearly all of their records stay below; from then on each single value is
    clipped at it, before anything is added up, and a mechanism for that sensitivity releases the sums. Releases have
    `clip`, where values are clipped.

    Parameters
    ----------
    policy
        `Event` or `WEvent` with ε alone; ``max_change`` is what one unit changes where values reach the bound.
    build
        Makes the mechanism for a policy: ``build(policy)``. Its ``max_change`` is that of the learnt threshold.
    bins
        :class:`~tidegate.structures.value_bins.ValueBins`; a step is pushed as a vector of them.
    learn
        The number m of steps from which the threshold is learnt. They release nothing and are "silent". Steps that are
        passed over are not in the sample.
    most
        The most records of one unit in one step.
    reading
        What is made of clipped values; sums by default.

    Privacy
    -------
    Unit and neighbours are the policy's: at most `most` records of a unit in each step that differs, added, removed
    or replaced, in one step (`Event`) or in those of one window (`WEvent`). Each of the first m steps loses ε/w through
    the number of records, the threshold (sparse vector on how many records exceed each public candidate, sensitivity
    `most` for each step that differs) and, where running sums are released, the sums of the sample. A later step loses
    what the mechanism charges. The threshold is an end of a public bin, and Δ follows from it. Under `WEvent` a mechanism
    that does not charge every step the same begins w steps after the sample, with silence in between. Proof:
    docs/proofs/clipped_records.md. The state holds the sample's records in bins until step m, then what the mechanism
    keeps: guard it like data. Refused under `User`, who may own the whole sample.

    Departure from the paper: it clips what is released at a step, and here each single value before any is added up.

    Error
    -----
    That of the mechanism at max_change = most·τ, and what clipping loses, Σ max(0, x − τ), which is in no interval. Time
    and memory of a step grow with the number of bins.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> from tidegate.mechanisms import BinaryTree
    >>> bins = ValueBins(1440)
    >>> policy = Event(epsilon="2", max_change=1440)
    >>> mechanism = ClippedRecords(policy, build=lambda policy: BinaryTree(policy, horizon=200), bins=bins, learn=50)
    >>> releases = Session(mechanism).push_batch(bins.of_steps([[30, 31, 29]] * 200))
    >>> releases.values.shape, int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    ((200, 1), 150, True)

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019.
    """

    columns: int = field(init=False)
    build: Callable[[Policy], Mechanism]
    bins: ValueBins
    learn: int
    most: int = 1
    reading: Reading | None = None

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    keeps_raw_values: ClassVar[bool] = True  # the sample, until the threshold is learnt; see Privacy
    needs_room: ClassVar[bool] = True  # who is refused after learning would have to learn, and pay, again

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.bins.width)
        super().__post_init__()

    def validate(self) -> None:
        """Check the sample, and that the mechanism can be made for the bound and for the smallest threshold."""
        put = object.__setattr__
        put(self, "learn", whole("learn", self.learn, most=2**31))
        put(self, "most", whole("most", self.most, most=10_000))
        if self.reading is None:
            put(self, "reading", Sums(self.most, self.grid))
        if self.policy.mobility == "fixed":
            raise InvalidParameter(
                "mobility",
                "fixed",
                '"moving" where values are in bins, which a unit does not stay in',
                "drop it",
            )
        if self.policy.horizon is not None and self.policy.horizon <= self.learn:
            raise InvalidParameter(
                "learn", self.learn, f"below the {self.policy.horizon} steps of the stream", "learn less long"
            )
        needed = self.made.max_change(self.bins.bound, self.policy.adjacency)
        if Fraction(self.policy.max_change) < needed:
            raise InvalidParameter(
                "max_change",
                show(Fraction(self.policy.max_change)),
                f"at least {show(needed)}, which one unit can change in one step",
                f'write max_change="{show(needed)}"',
            )
        if self.clamp is not None or self.rounding != "refuse":
            raise InvalidParameter("clamp", self.clamp, "left out: bins have a bound", "leave it out")
        for released in self.extremes:
            account = released.account() if isinstance(released, HasAccount) else None
            if account is not None and type(account) is not Account:
                name = type(released).__name__
                raise InvalidParameter(
                    "build", name, "a mechanism with units per window", "choose another one"
                )
            if Fraction(released.grid) != Fraction(self.grid):
                raise InvalidParameter(
                    "build", f"grid {released.grid}", f"the grid of the records, {self.grid}", "write it"
                )

    @property
    def made(self) -> Reading:
        """What is made of clipped values."""
        assert self.reading is not None
        return self.reading

    @cached_property
    def bounded(self) -> Mechanism:
        """The mechanism for values that reach the bound: what is public of it before anything is learnt."""
        return self.build(self.policy)

    def at(self, clip: int) -> Mechanism:
        """The mechanism for values that are clipped at so many grid units; made once."""
        if clip not in self._made_at:
            change = self.made.max_change(clip, self.policy.adjacency)
            self._made_at[clip] = self.build(replace(self.policy, max_change=change))
        return self._made_at[clip]

    @cached_property
    def _made_at(self) -> dict[int, Mechanism]:
        return {}

    @cached_property
    def extremes(self) -> tuple[Mechanism, Mechanism]:
        """The mechanisms for the largest and the smallest clip: which law of noise can be drawn depends on its scale."""
        return self.bounded, self.at(int(self.bins.ends[0]))

    def fitting(self, clip: int, units: int) -> int:
        """The smallest candidate from a clip on whose mechanism has charges and spans that the session was promised."""
        for end in (clip, *(int(end) for end in self.bins.ends if end > clip)):
            released = self.at(end)
            promised = (
                released.most_spans <= self.most_spans and released.noise_in_state <= self.noise_in_state
            )
            if promised and units % released.units == 0 and released.shares_noise <= self.shares_noise:
                return end
        return self.bins.bound

    # the sample ------------------------------------------------------------------------------------------------

    @property
    def sums_of_sample(self) -> bool:
        """Whether the sums of the sample are needed: only running sums hold them."""
        return self.bounded.statistic == "sums"

    @property
    def epsilons(self) -> tuple[Fraction, Fraction, Fraction]:
        """ε of the number of records, of the threshold, and of the sums of the sample."""
        total = self.policy.budget.total
        count, sums = COUNTING * total, FIRST * total if self.sums_of_sample else Fraction(0)
        return count, total - count - sums, sums

    @property
    def changed(self) -> int:
        """How many records of the sample may differ between neighbours."""
        return self.policy.steps_charged * self.most

    @cached_property
    def scales(self) -> tuple[float, float, float]:
        """Noise scales of the number of records, of the threshold's start and of each of its tests; rounded up."""
        count, found, _ = self.epsilons
        tests = 2 if self.changed == 1 else 4  # one record moves all counts in the same direction
        return (
            float_up(self.changed / count),
            float_up(2 * self.changed / found),
            float_up(tests * self.changed / found),
        )

    def first_scale(self, clip: int) -> float:
        """The noise scale of the sums of the sample, where values are clipped at so many grid units; rounded up."""
        return float_up(Fraction(self.at(clip).sensitivity * self.policy.steps_charged) / self.epsilons[2])

    @property
    def room(self) -> int:
        """How many records of the sample are left above the threshold at least, so that noise does not decide."""
        return math.ceil(ROOM * self.scales[1])

    @property
    def records_needed(self) -> int:
        """How many records the sample has to have, as far as noise lets see; with fewer the bound stays. Public."""
        return math.ceil(SAMPLE * self.room + SURE * self.scales[0])

    @cached_property
    def wanted(self) -> float:
        """How many records of the sample should be above: then a little more noise and a little less loss are equal."""
        bounded, bound = self.bounded, self.bins.bound * float(Fraction(self.grid))
        if self.sums_of_sample:
            end = getattr(bounded, "horizon", None) or self.policy.horizon or HORIZON * self.learn
            error = bounded.expected_error(end)
            steps = 1 / max(1, end - self.learn)
        else:
            error, steps = bounded.noise_error, float(bounded.columns)
        if error is None:
            error = float(self.policy.step_sensitivity(bounded.columns)) * float(
                self.policy.steps_charged / self.policy.budget.total
            )
        return BIAS * error / bound * self.learn * steps

    def clip_of(self, above: Integers, source: Any, step: int) -> int:
        """The clip, from how many records exceed each candidate; draws noise, for steps that were charged."""
        count, start, tests = self.scales
        records = int(above[0]) + laplace_one(source, "records", step, 0, count)
        allowed = max(self.room, math.floor(min(self.wanted, records / FEW)))
        begin = laplace_one(source, "clip start", step, 0, start)
        noise = laplace(source, "clip test", step, tests, (len(self.bins.ends),))
        passed = np.flatnonzero(above[1:] + noise <= allowed + begin)
        if records < self.records_needed:
            return self.bins.bound
        found = float(self.bins.ends[int(passed[0]) if len(passed) else -1])
        if 0 < self.wanted < allowed:  # what a light tail has further above
            found *= max(1.0, math.log(self.wanted / records) / math.log(allowed / records))
        return self.bins.end_above(found)

    # what it says of itself ------------------------------------------------------------------------------------

    @property
    def units(self) -> int:
        """Such that a step of the sample and every charge of the mechanism are whole."""
        return math.lcm(*(released.units for released in self.extremes), self.policy.steps_charged)

    @property
    def outputs(self) -> int:
        """As many as the mechanism releases."""
        return self.bounded.outputs

    @property
    def statistic(self) -> str:  # type: ignore[override]  # that of the mechanism
        """As for the mechanism."""
        return self.bounded.statistic

    @property
    def forest(self) -> Hierarchy | None:
        """As for the mechanism."""
        return self.bounded.forest

    @property
    def revises(self) -> bool:
        """As for the mechanism."""
        return self.bounded.revises

    @property
    def shares_noise(self) -> bool:
        """As for the mechanism, with some clip."""
        return any(released.shares_noise for released in self.extremes)

    @cached_property
    def law(self) -> AnyLaw | None:
        """As for the mechanism."""
        return self.bounded.law

    @property
    def waits(self) -> int:
        """The last step before the mechanism begins: windows of later ones hold nothing of the sample."""
        even = all(  # counters, and noise of every step's own, charge each step the same
            released.statistic != "steps" or (isinstance(released, Uniform) and not released.shares_noise)
            for released in self.extremes
        )
        return self.learn + (0 if even else self.policy.steps_charged - 1)

    def ideal(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What would be released of exact steps without noise, were values clipped nowhere but at the bound."""
        ticks = Fraction(self.grid).denominator
        vectors = nearest_units(steps * ticks)
        bound = self.bins.bound
        measured = self.made.measured(self.bins.clipped(vectors, bound), self.bins.totals(vectors), bound)
        return self.bounded.ideal(measured / ticks)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON."""
        found = {
            "mechanism": type(self).__name__,
            "policy": self.policy.describe(),
            "grid": show(Fraction(self.grid)),
            "bins": self.bins.describe(),
            "learn": self.learn,
            "most": self.most,
            "reading": self.made.describe(),
            "released by": self.bounded.describe(),
        }
        return found if self.clamp is None else {**found, "clamp": show(Fraction(self.clamp))}

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def more(self) -> tuple[str, ...]:
        """The clip, and what the mechanism releases besides."""
        return ("clip", *self.bounded.more)

    @property
    def revised(self) -> tuple[str, ...]:
        """As for the mechanism."""
        return self.bounded.revised

    @cached_property
    def most_spans(self) -> int:
        """As for the mechanism, with some clip."""
        return max(released.most_spans for released in self.extremes)

    @cached_property
    def noise_in_state(self) -> bool:
        """As for the mechanism, with some clip."""
        return any(released.noise_in_state for released in self.extremes)

    def reader(self) -> RecordReader:
        """Reads counts and sums in bins."""
        return RecordReader(self.bins, self.learn, self.learn if self.sums_of_sample else 1)

    def begin(self, first: int) -> State:
        """An empty sample, of a public size."""
        cells = self.bins.width if self.sums_of_sample else len(self.bins.ends)
        return State(
            np.zeros(4, dtype=np.int64),
            np.zeros(cells, dtype=np.int64),
            np.zeros(self.outputs + 1),
            Nested(self.at, self.bins.bound, first),
        )

    def _parts(self, state: State, first: int, count: int) -> tuple[int, int]:
        """How many of the next steps are in the sample, and how many are silent: it, and those that wait after it."""
        learning = min(count, self.learn - int(state.numbers[PUSHED]))
        learned = int(state.numbers[LEARNED]) or first + learning - 1
        if state.numbers[PUSHED] + learning < self.learn:
            return learning, count
        waiting = learned + self.waits - self.learn - first + 1
        return learning, min(count, max(learning, waiting))

    def _units(self, learning: int, count: int) -> Integers:
        """What the sample costs: each of its steps as much as any step of a window may."""
        units = np.zeros(count, dtype=np.int64)
        units[:learning] = self.units // self.policy.steps_charged
        return units

    def _times(self, released: Any) -> int:
        """How many units are one of the mechanism's."""
        return self.units // int(released.units)

    def public(self, state: State, first: int, count: int) -> Charges:
        """The sample, and what the mechanism says; while no clip is learned, what it says with the bound."""
        learning, silent = self._parts(state, first, count)
        if silent == count:
            return Charges(first, self._units(learning, count))
        released = state.released.mechanism
        own = released.public(state.released.state, first + silent, count - silent)
        times, spans = self._times(released), own.spans.copy()
        spans[:, 4] *= times
        units = np.concatenate([self._units(learning, silent), own.units * times])
        return Charges(first, units, spans)

    def resume(self, state: State, step: int, recent: Integers) -> None:
        """Let the mechanism fill what follows from its own charges."""
        released, began = state.released.mechanism, int(state.numbers[BEGAN])
        if not began or not isinstance(released, Resumes):
            return
        steps = np.arange(step - len(recent) + 1, step + 1)
        own = np.where(steps >= began, recent // self._times(released), 0)
        released.resume(state.released.state, step, own)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Take steps into the sample, learn the clip, wait, then release."""
        count = len(rows)
        learning, silent = self._parts(state, first, count)
        clips = np.full(count, state.numbers[CLIP])
        if learning:
            self._collect(state, rows[:learning])
            if state.numbers[PUSHED] == self.learn:
                self._learn(state, first + learning - 1, noise.source)
                clips[learning - 1 :] = state.numbers[CLIP]
        output = self._release(state, rows[silent:], first + silent, noise)
        output = output.after_silence(silent)
        output.units[:silent] = self._units(learning, silent)
        return output._replace(more=(clips, *output.more))

    def _collect(self, state: State, rows: Matrix) -> None:
        added = rows if self.sums_of_sample else self.bins.apart(rows)[0].sum(axis=1)
        state.sample[:] += added.sum(axis=0)  # the reader bounds how many records there are
        state.numbers[PUSHED] += len(rows)

    def _learn(self, state: State, step: int, source: Source) -> None:
        """Draw the threshold, and where they are needed the sums of the sample; then forget it."""
        bins, sample = self.bins, state.sample
        if self.sums_of_sample:
            sample = bins.apart(state.sample[np.newaxis])[0].sum(axis=(0, 1))
        above = np.append(sample.sum(), sample.sum() - np.cumsum(sample))
        clip = self.fitting(self.clip_of(above, source, step), self.units)
        state.numbers[LEARNED], state.numbers[CLIP] = step, clip
        if self.sums_of_sample:
            total = self._measured(state.sample[np.newaxis], clip)[0]
            scale, grid = self.first_scale(clip), float(Fraction(self.grid))
            drawn = laplace(source, "sums of the sample", step, scale, total.shape)
            state.first[:-1] = (total + drawn) * grid
            state.first[-1] = variance_laplace(scale) * grid**2
        state.sample[:] = 0
        state.released.begin(clip, step + 1)

    def _measured(self, vectors: Matrix, clip: int) -> Matrix:
        """What the mechanism is given, each number cut at the same public bound."""
        found = self.made.measured(self.bins.clipped(vectors, clip), self.bins.totals(vectors), clip)
        return np.ascontiguousarray(np.clip(found, -LARGEST, LARGEST))

    def _release(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps by the mechanism; without any, nothing but arrays of the right form."""
        nested = state.released
        if len(rows) and not state.numbers[BEGAN]:
            state.numbers[BEGAN] = first
            nested.begin(nested.clip, first)
        measured = self._measured(rows, nested.clip)
        found: Output = nested.mechanism.advance(nested.state, measured, first, noise)
        times, spans = self._times(nested.mechanism), found.spans.copy()
        spans[:, 4] *= times
        if self.sums_of_sample:
            found = found._replace(
                values=found.values + state.first[:-1],
                scale=np.sqrt(found.scale**2 + state.first[-1]),
            )
        return found._replace(units=found.units * times, spans=spans)

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """As for the mechanism."""
        finish = getattr(state.released.mechanism, "finish", None)
        if finish is None or not state.numbers[BEGAN]:
            return None
        found: Output | None = finish(state.released.state, last, noise)
        return None if found is None else found._replace(more=(np.zeros(0, dtype=np.int64), *found.more))

    def attach(self, releases: Releases, more: Any, revised: Any) -> ClippedReleases:
        """Releases with the clip and with what the mechanism releases besides, for readers."""
        clips, *own = more
        clip = int(clips[-1]) if len(clips) else 0
        released: Any = self.at(clip) if clip else self.bounded
        found, unit, times = releases, releases.unit, self._times(released)
        if hasattr(released, "attach"):
            charged = releases.units.copy()
            releases.units, releases.unit = releases.units // times, unit * times  # in the mechanism's units
            found = released.attach(releases, own, revised)
            found.units, found.unit = found.units * times, unit
            silent = found.status == int(Status.SILENT)
            found.units[silent] = charged[silent]
        return ClippedReleases.with_clip(found, clips, float(Fraction(self.grid)))

    def intervals(self) -> Fold | None:
        """As for the mechanism with the clip that was learned."""
        bounded = self.bounded.intervals()
        return None if bounded is None else AtClip(bounded, self)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Running sums, noise of every step's own, and decisions of which each unit has two records."""
        from tidegate.mechanisms.counters.binary_tree import BinaryTree
        from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution

        bins = ValueBins(50)
        three = WEvent(epsilon="4", window=3, max_change=50)
        return [
            cls(
                Event(epsilon="4", max_change=50),
                build=lambda policy: BinaryTree(policy, horizon=4000),
                bins=bins,
                learn=7,
            ),
            cls(three, build=lambda policy: Uniform(policy, noise="laplace"), bins=bins, learn=7),
            cls(replace(three, max_change=100), build=BudgetDistribution, bins=bins, learn=5, most=2),
        ]


class AtClip(Fold):
    """What the mechanism for the released clip says of errors; before there is one, nothing is released.

    Parameters
    ----------
    bounded
        What the mechanism for the bound says: wider, and used where releases do not say their clip.
    mechanism
        Whose clips they are.
    """

    def __init__(self, bounded: Fold, mechanism: ClippedRecords) -> None:
        super().__init__(bounded.columns, bounded.law, bounded.released, bounded.rows)
        self.says_more = bounded.says_more
        self._bounded, self._mechanism = bounded, mechanism

    def _fold(self, releases: Releases) -> Fold:
        clips = getattr(releases, "clip", np.zeros(0))
        if not len(clips) or not np.isfinite(clips[-1]):
            return self._bounded
        units = round(Fraction(float(clips[-1])) / Fraction(self._mechanism.grid))
        found = self._mechanism.at(units).intervals()
        return self._bounded if found is None or found.rows != self.rows else found

    def advance(self, state: FoldState, releases: Releases) -> tuple[FoldState, Intervals]:
        """By the mechanism for the clip of these releases."""
        return self._fold(releases).advance(state, releases)

    def attach(self, state: FoldState, releases: Releases) -> FoldState:
        """By the mechanism for the clip of these releases, and so its better values of earlier steps."""
        return self._fold(releases).attach(state, releases)
