"""ClippedRecords: learn where single values end, clip each of them there, then release sums by any mechanism.

It stands beside the catalogue and not in it: what it is pushed are values in bins and no plain columns, so neighbours
of its steps are those of the records behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, show, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Run, State
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.run import Pushed
from tidegate.noise import install, laplace, laplace_one, variance_laplace
from tidegate.noise.law import AnyLaw
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import ClassDeviations, Radii, Release, Releases, Status, Values
from tidegate.structures.grid import nearest_units
from tidegate.structures.hierarchy import Hierarchy
from tidegate.structures.value_bins import ValueBins

Integers = npt.NDArray[np.int64]
ROOM = 3  # values left above the threshold at least, in noise scales of the test
COUNTING = Fraction(1, 20)  # of ε for how many records the sample has
FIRST = Fraction(1, 5)  # of ε for the sums of the sample, where running sums need them
FEW = 50  # at most one in so many values is clipped for the sake of less noise
SAMPLE = 4  # a sample of fewer records than this times the room teaches nothing
SURE = 2  # scales of noise that the number of records has to be above that: else noise would pass for records
BIAS = 2  # how much worse noise may be than what clipping loses, on the whole
MOST_SUM = 1 << 53  # sums of the sample stay where they are exact
HORIZON = 10  # for running sums without an end: the length that a threshold is chosen for, in samples


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
    clipped at it, before anything is added up, and a mechanism for that sensitivity releases the sums.

    Parameters
    ----------
    policy
        `Event` or `WEvent` with ε alone; ``max_change`` is what one unit changes where values reach the bound.
    build
        Makes the mechanism for a policy: ``build(policy)``. Its ``max_change`` is that of the learnt threshold.
    bins
        :class:`~tidegate.structures.value_bins.ValueBins`; a step is pushed as a vector of them.
    learn
        The number m of steps from which the threshold is learnt. They release nothing and are "silent".
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
    >>> from tidegate.mechanisms import BinaryTree
    >>> bins = ValueBins(1440)
    >>> policy = Event(epsilon="1", max_change=1440)
    >>> mechanism = ClippedRecords(policy, build=lambda policy: BinaryTree(policy, horizon=200), bins=bins, learn=50)
    >>> run = mechanism.start()
    >>> releases = run.push_batch(bins.of_steps([[30, 31, 29]] * 200))
    >>> releases.values.shape, int(releases.fresh.sum()), run.clip < 1440
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
        self.at(int(self.bins.ends[0]))

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
        """The mechanism for values that are clipped at so many grid units."""
        change = self.made.max_change(clip, self.policy.adjacency)
        return self.build(replace(self.policy, max_change=change))

    @cached_property
    def extremes(self) -> tuple[Mechanism, Mechanism]:
        """The mechanisms for the largest and the smallest clip: which law of noise can be drawn depends on its scale."""
        return self.bounded, self.at(int(self.bins.ends[0]))

    def fitting(self, clip: int, units: int) -> int:
        """The smallest candidate from a clip on whose mechanism has charges that are whole units of the ledger."""
        for end in (clip, *(int(end) for end in self.bins.ends if end > clip)):
            released = self.at(end)
            if units % released.units == 0 and released.shares_noise <= self.shares_noise:
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

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Running sums, noise of every step's own, and decisions of which each unit has two records."""
        from tidegate.mechanisms.counters.binary_tree import BinaryTree
        from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution

        bins = ValueBins(50)
        three = WEvent(epsilon="4", w=3, max_change=50)
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

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> ClippedRecordsRun:
        """Begin, or go on with, a run."""
        return ClippedRecordsRun(self, ledger, state)


class ClippedRecordsRun(Run):
    """Learning, then a mechanism at work on clipped values.

    Attributes
    ----------
    clip
        Where values are clipped, in their unit, once it is learnt; None before. Public.
    """

    mechanism: ClippedRecords

    def _begin(self, state: State | None) -> None:
        saved, mechanism = state or {}, self.mechanism
        self._limit = int(saved.get("limit", 0))
        cells = mechanism.bins.width if mechanism.sums_of_sample else len(mechanism.bins.ends)
        self._sample: Integers = saved.get("sample", np.zeros(cells, dtype=np.int64)).copy()
        self._first: Values = saved.get("first", np.zeros(mechanism.outputs))
        self._first_variance = float(saved.get("first_variance", 0.0))
        self._inner: Run | None = None
        if "inner_origin" in saved:
            own = {name[6:]: value for name, value in saved.items() if name.startswith("inner.")}
            self._go_on_from(int(saved["inner_origin"]), bool(saved["inner_alone"]), own)

    def _state(self) -> State:
        state: State = {"limit": self._limit, "first": self._first, "first_variance": self._first_variance}
        if not self._limit:
            return {**state, "sample": self._sample}
        if self._inner is None:
            return state
        own = {f"inner.{name}": value for name, value in self._inner._whole_state().items()}
        return {**state, "inner_origin": self._inner.origin, "inner_alone": self._inner.alone, **own}

    @property
    def clip(self) -> float | None:
        """Where values are clipped, once it is learnt."""
        return self._limit * self._grid if self._limit else None

    @property
    def limit(self) -> int:
        """The same in grid units; 0 before it is known."""
        return self._limit

    def _started(self) -> Run:
        """A run of the mechanism on this ledger. It is part of this run, and nobody else hears of it."""
        released = self.mechanism.at(self._limit)
        self.ledger.admit(released.policy)

        def start() -> Run:
            with install(self.source):
                return released.start(self.ledger)

        run = copy_context().run(start)
        self.ledger.leave(run)
        run._part_of = self
        run.alone = self.alone  # what this run has charged before is nobody else's
        return run

    def _go_on_from(self, origin: int, alone: bool, state: State) -> None:
        """Go on with what a snapshot was made in the middle of."""
        run = self._started()
        run.step, run.origin, run.charges = self.step, origin, self.ledger.rows
        run.alone = alone and self.alone
        run._resumed = True
        run._begin_from(state)
        self._inner = run

    def push(self, values: Pushed, step: int | None = None, *, grid_units: bool = False) -> Release:
        """Release the next step; its noise has the law of the mechanism for what was learnt."""
        release = super().push(values, step, grid_units=grid_units)
        release.law = self._law
        return release

    def push_batch(self, matrix: npt.ArrayLike, *, grid_units: bool = False) -> Releases:
        """Release many steps at once."""
        releases = super().push_batch(matrix, grid_units=grid_units)
        releases.law = self._law
        return releases

    @property
    def _law(self) -> AnyLaw | None:
        return (self.mechanism if self._inner is None else self._inner.mechanism).law

    # pushing ---------------------------------------------------------------------------------------------------

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        own, mechanism = first_step - self.origin, self.mechanism
        ends = [mechanism.learn, mechanism.waits, own + len(matrix) - 1]
        parts, begin = [], 0
        for number, end in enumerate(ends):
            stop = min(end - own + 1, len(matrix))
            if stop <= begin:
                continue
            rows, step = matrix[begin:stop], first_step + begin
            parts.append((self._learn, self._wait, self._release)[number](rows, step))
            begin = stop
        return joined(parts) if parts else self._silent(0, first_step, np.zeros(0, dtype=np.int64))

    def _learn(self, rows: Matrix, step: int) -> Releases:
        """Take steps into the sample; the last of them buys the threshold."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        units = np.full(len(rows), self.ledger.units // mechanism.policy.steps_charged, dtype=np.int64)
        self.ledger.charge_batch(step, units, scope="learn")
        counts, _ = bins.apart(rows)
        added = rows if mechanism.sums_of_sample else counts.sum(axis=1)
        for each in added:  # nothing wraps around, and what is cut moves no further than what is not
            np.minimum(self._sample + np.minimum(each, MOST_SUM), MOST_SUM, out=self._sample)
        last = step + len(rows) - 1
        if last - self.origin == mechanism.learn:
            self._settle(last)
        return self._silent(len(rows), step, units)

    def _settle(self, step: int) -> None:
        """Draw the threshold, and where they are needed the sums of the sample; then forget it."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        sample = self._sample
        if mechanism.sums_of_sample:
            sample = bins.apart(self._sample[np.newaxis])[0].sum(axis=(0, 1))
        above = np.append(sample.sum(), sample.sum() - np.cumsum(sample))
        self._limit = mechanism.fitting(mechanism.clip_of(above, self.source, step), self.ledger.units)
        if mechanism.sums_of_sample:
            whole_sample = self._sample[np.newaxis]
            sums = bins.clipped(whole_sample, self._limit)
            total = mechanism.made.measured(sums, bins.totals(whole_sample), self._limit)[0]
            scale = mechanism.first_scale(self._limit)
            noise = laplace(self.source, "sums of the sample", step, scale, total.shape)
            self._first = (total + noise) * self._grid
            self._first_variance = variance_laplace(scale) * self._grid**2
        self._sample = np.zeros_like(self._sample)
        self.ledger.learnt(step, {"clip": show(self._limit * Fraction(mechanism.grid))})

    def _wait(self, rows: Matrix, step: int) -> Releases:
        """Let the charges of the sample leave the windows."""
        nothing = np.zeros(len(rows), dtype=np.int64)
        self.ledger.charge_batch(step, nothing)
        return self._silent(len(rows), step, nothing)

    def _silent(self, count: int, step: int, units: Integers) -> Releases:
        values = np.full((count, self.mechanism.outputs), np.nan)
        status = np.full(count, np.int8(Status.SILENT))
        return Releases(step, values, status, None, np.zeros(count), units, self.ledger.unit)

    def _release(self, rows: Matrix, step: int) -> Releases:
        """Release steps by the mechanism."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        if self._inner is None:
            self._inner = self._started().begin_at(step)
        measured = mechanism.made.measured(bins.clipped(rows, self._limit), bins.totals(rows), self._limit)
        self._inner.alone = self._inner.alone and self.alone  # others may have charged since
        same = self._inner._per_one == self._per_one
        values = measured if same else measured / self._per_one
        found = self._inner.push_batch(np.ascontiguousarray(values), grid_units=same)
        if mechanism.sums_of_sample:
            found.values = found.values + self._first
            found.scale = np.sqrt(found.scale**2 + self._first_variance)
        return found

    def flush(self) -> Releases | None:
        """As for the mechanism."""
        return None if self._inner is None else self._inner.flush()


def joined(parts: list[Releases]) -> Releases:
    """Releases of consecutive steps as one; what smoothed values were made from stays with single parts."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    revised = [part.revised for part in parts if part.revised is not None]
    deviation = None
    if last.deviation is not None:
        columns = last.values.shape[1]
        by_column = [_deviations(part, columns) for part in parts]
        deviation = ClassDeviations(np.concatenate(by_column), [(0, np.arange(columns))])
    whole = Releases(
        parts[0].first_step,
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate([part.units for part in parts]),
        last.unit,
        max(part.delay for part in parts),
        revised=revised[-1] if revised else None,
        deviation=deviation,
    )
    if (radii := last.radii) is not None:  # the parts before it say nothing
        silent = np.full((len(whole) - len(last), last.values.shape[1]), np.nan)
        whole.radii = Radii(lambda confidence: np.concatenate([silent, radii(confidence)]))
    return whole


def _deviations(part: Releases, columns: int) -> Values:
    """The standard deviation of each value; of Laplace noise where there is nothing else."""
    if part.deviation is not None:
        return part.deviation
    return np.broadcast_to(math.sqrt(2) * part.scale[:, np.newaxis], (len(part), columns))
