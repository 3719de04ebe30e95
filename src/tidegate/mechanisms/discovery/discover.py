"""Discover: categories that nobody has listed become columns after a private test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.core.charges import NO_SPANS, Charges, Integers, Span, span_rows
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, exact, one_of, proper, show, whole
from tidegate.mechanisms.discovery.calibration import Selection, calibrate
from tidegate.mechanisms.discovery.discovered import DiscoveredReleases, Names, as_names, as_stored
from tidegate.mechanisms.discovery.early import (
    LONGEST,
    PLACES,
    EarlyTests,
    calibrate_early,
    digest_of,
    noisy_units,
)
from tidegate.mechanisms.discovery.occurrences import (
    CATEGORY,
    STEP,
    UNIT,
    VALUE,
    Collector,
    OccurrenceReader,
    Step,
    together,
)
from tidegate.mechanisms.discovery.weighted import WeightedTests, calibrate_weighted
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import gaussian
from tidegate.noise.entropy import Source
from tidegate.noise.keyed import KEY_WORDS
from tidegate.noise.law import AnyLaw
from tidegate.policy import Event, Guarantee, Policy, User, WEvent
from tidegate.releases import Releases
from tidegate.structures.category_names import OTHER, named
from tidegate.structures.clipped_values import ClippedValues

if TYPE_CHECKING:
    from tidegate.intervals import Fold

STREAM = "selection"  # of the noise of tests
NO_EPOCH = -1
NO_STEP, NO_MORE = 0, -1  # in place of the last step that was tested: none yet, or none any more
ORDINAL, FIRST = 0, 1  # positions in `State.numbers`; with early tests there are more:
LAST, KEY, DIGEST = 2, slice(3, 7), slice(7, 11)  # the last test, the key of noise, a digest of records
MOST_COLUMNS = 2**12
LONGEST_NAME = 256  # bytes
LARGEST = 2**31  # grid units that a record adds: sums of fewer than 2^32 records stay within 64 bits
ONE_UNIT = "all records in which neighbouring streams differ name one unit, within one window"
ONE_SIDED = "one of two neighbouring streams has no records of the unit at all"
SAME_RECORDS = "records of earlier steps of an epoch are given again as they were, or not at all"


class State(NamedTuple):
    """All that is carried from step to step. All but a key was released, and its size is public."""

    numbers: Any  # the present epoch, and the first of its steps that was pushed; SECRET with early tests
    names: Any  # of the columns, as bytes
    opened: Any  # at which step each column's category opened; 0 where the column is free
    units: Any  # the noisy number of units of its last test; NaN where it is free
    counts: Any  # the state of the mechanism that releases counts


class Candidates(NamedTuple):
    """The categories that a selection tests, in the order of their names."""

    names: pl.Series
    units: Integers  # how many units each of them has in the epoch; with weights in parts of one
    open: npt.NDArray[np.bool_]  # whether it has a column


@dataclass(frozen=True)
class Discover(Mechanism):
    """Count records by categories that nobody has listed; a category has a column once enough units have it.

    At the end of each public epoch the units of every category are counted, with noise. A category opens where the noisy
    number reaches a threshold: then it is a column from this step on. An open category is tested again at the end of each
    epoch, and closes where its noisy number is below a lower threshold. All other records are counted in `other`. So a
    category that nobody has never appears, and one that few units have hardly ever does.

    Parameters
    ----------
    policy
        `WEvent`, `Event` or `User`, with δ. ``max_change`` is the number of records of a unit that count in a step, a
        whole number: the first ones. For sums and means it is so many times what one record can change.
    columns
        The most categories that are open at once. If more pass, those with the largest noisy numbers are.
    epoch
        The steps E of an epoch: epochs end at the steps E, 2E, 3E, …. By default the window of `WEvent`.
    categories
        In how many categories k a unit counts in an epoch: the first ones by time.
    share
        The part of ε and δ that tests have. Counts have the rest.
    stay
        An open category stays where its noisy number is at least this part of the threshold.
    length
        The bytes of a name. Longer names are cut.
    aggregate
        "count": records. "distinct": a unit counts once per column in a step, and ``max_change`` is the number of columns
        in which it counts. "sum": values of records. "mean": sums and counts, which share the noise.
    clip
        For sums and means: the bounds (low, high) of one value, on the grid. Values are rounded to the grid.
    sum_share
        For means: the part of the counts' budget that sums have.
    weighted
        Whether a unit with j ≤ k categories in an epoch counts 1/√j in each, where it counts 1: then a larger k needs
        hardly more noise, and units with few categories count more. Not with `early`.
    released_by
        "Uniform", or "Tide" where categories have few records per step: one schedule of measurements for all columns,
        and a model in between (:class:`Tide` with Laplace noise). Its measurements use no δ.
    early
        Whether categories are tested at every step: then one opens as soon as enough units have it in the epoch so far,
        and needs two to three times as many. Every step is pushed with the records of the epoch so far.

    Privacy
    -------
    Unit and neighbours: one unit. Neighbouring streams differ in what it does in one window: at each of the steps either
    of them has its records of this step, and the other has none (``adjacency="replace"``: has others). In an epoch that
    meets the window at most 2k numbers of units differ, each by 1. Tests add discrete Gaussian noise, and lose at most
    share·(ε, δ), thresholds included (docs/proofs/discovery.md). Counts have Laplace noise of :class:`Uniform` with the
    rest. The state holds released numbers, and with `early` the secret key of an epoch's noise; records have a size that
    depends on the configuration alone. With `early` and `User` one of the streams has no records of the unit at all
    (``adjacency="replace"``: other ones). After a step that lacks earlier ones of its epoch, which `Step.since` says, the
    epoch has no more tests. It is assumed that records are given again as they were. With `early` the session halts where
    a step that has all of them has others; this depends on records, and the guarantee does not hold then.

    Error
    -----
    Counts and sums: as for :class:`Uniform` with its share of the budget. A mean is off by that of its sum, divided by
    the number of its records. `units_needed()` is the number of units with which a
    category opens with probability one half. Time O(records) per step, O(records of the epoch) at its end, and with
    `early` at every step, for a category O(E) draws and O(E²) additions; memory as much, where categories are tested.

    Examples
    --------
    >>> import tidegate as tg
    >>> policy = tg.WEvent(epsilon="4", delta="1e-6", window=2)
    >>> mechanism = Discover(policy, columns=3)
    >>> collector = mechanism.collector()
    >>> days = [[(unit, "bakery") for unit in range(200)] + [(300, "a secret")]] * 4
    >>> releases = tg.open(mechanism).push_batch([collector.step(pairs) for pairs in days])
    >>> releases.values.shape, releases.categories(3)
    ((4, 4), ('bakery', '', ''))

    References
    ----------
    Zhang, Gunter, Hu, Yuan, et al.: Differentially private stream processing at scale. PVLDB 2024, for the problem; this
    selection by epochs, its neighbours and its proof are this project's.
    """

    columns: int = 64
    epoch: int | None = None
    categories: int = 1
    share: ExactLike = "1/2"
    stay: ExactLike = "1/2"
    length: int = 32
    aggregate: str = "count"
    clip: tuple[ExactLike, ExactLike] | None = None
    sum_share: ExactLike = "1/2"
    weighted: bool = False
    released_by: str = "Uniform"
    early: bool = False

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Approximate",)
    reads_columns: ClassVar[bool] = False
    statistic: ClassVar[str] = "categories"
    keeps_raw_values: ClassVar[bool] = False
    places: ClassVar[int] = PLACES  # binary places of early and of weighted measurements

    def validate(self) -> None:
        """Check the parameters, and that noise and threshold exist."""
        put, policy = object.__setattr__, self.policy
        whole("columns", self.columns, most=MOST_COLUMNS)
        one_of(
            "aggregate", self.aggregate, ("count", "distinct", "sum", "mean"), "add up what categories hold"
        )
        if self.rounding != "refuse" or self.clamp is not None or (self.grid != 1 and not self.adds_values):
            raise InvalidParameter(
                "grid", "given", "absent where records are counted", "drop grid, rounding and clamp"
            )
        if policy.mobility == "fixed":
            raise InvalidParameter("mobility", "fixed", "moving where categories are found", "drop it")
        put(self, "sum_share", proper("sum_share", exact("sum_share", self.sum_share), 'write "1/2"'))
        one_of("released_by", self.released_by, ("Uniform", "Tide"), 'write "Uniform"')
        self._validate_clip()
        if policy.signed or self._records.denominator != 1:
            one = Fraction(self._change, Fraction(self.grid).denominator)
            raise InvalidParameter(
                "max_change",
                str(policy.max_change),
                "a number of records"
                if not self.adds_values
                else f"a whole multiple of {show(one)}, which one record can change",
                "write how many records of a unit count in a step"
                if not self.adds_values
                else f'write max_change="{show(one)}" for one record',
            )
        epoch = self.epoch if self.epoch is not None or not isinstance(policy, WEvent) else policy.window
        if epoch is None:
            raise InvalidParameter(
                "epoch",
                None,
                f"given for {type(policy).__name__}",
                "write after how many steps categories are tested",
            )
        for option in ("early", "weighted"):
            if not isinstance(getattr(self, option), bool):
                raise InvalidParameter(option, getattr(self, option), "True or False", "choose one of them")
        if self.early and self.weighted:
            raise InvalidParameter(
                "weighted",
                True,
                "absent with early, as later categories would change weights",
                "drop one of them",
            )
        put(self, "epoch", whole("epoch", epoch, most=LONGEST if self.early else 2**27))
        put(self, "categories", whole("categories", self.categories, most=2**10))
        put(self, "length", whole("length", self.length, most=LONGEST_NAME))
        put(self, "share", proper("share", exact("share", self.share), 'write for example share="1/2"'))
        stay = exact("stay", self.stay)
        if not 0 < stay <= 1:
            raise InvalidParameter("stay", self.stay, "above 0 and at most 1", 'write for example stay="1/2"')
        put(self, "stay", stay)
        self.selection  # noqa: B018  refuses a budget that is too small
        self.counts  # noqa: B018  and so does this

    def _validate_clip(self) -> None:
        if not self.adds_values:
            if self.clip is not None:
                raise InvalidParameter("clip", "given", f'absent for "{self.aggregate}"', "drop it")
            return
        if self.clip is None or isinstance(self.clip, str) or len(self.clip) != 2:
            raise InvalidParameter(
                "clip", self.clip, "the bounds of one value", 'write for example clip=("0", "100")'
            )
        grid = Fraction(self.grid)
        low, high = (Fraction(exact("clip", bound)) for bound in self.clip)
        if not low < high or (low / grid).denominator != 1 or (high / grid).denominator != 1:
            raise InvalidParameter(
                "clip",
                (show(low), show(high)),
                f"increasing and on the grid of {show(grid)}",
                "round it to the grid",
            )
        object.__setattr__(self, "clip", (low, high))
        assert self.values is not None
        if max(int(abs(low / grid)), int(abs(high / grid)), self._change) > LARGEST:
            raise InvalidParameter(
                "clip", (show(low), show(high)), f"within {LARGEST} grid units", "choose a coarser grid"
            )

    # public numbers ----------------------------------------------------------------------------------------------

    @property
    def adds_values(self) -> bool:
        """Whether values of records are added up."""
        return self.aggregate in ("sum", "mean")

    @cached_property
    def values(self) -> ClippedValues | None:
        """How values of records are added up; None where records are counted."""
        if not self.adds_values or self.clip is None:
            return None
        low, high = (int(Fraction(bound) / Fraction(self.grid)) for bound in self.clip)
        sum_share = Fraction(self.sum_share) if self.aggregate == "mean" else None
        return ClippedValues(low, high, Fraction(self.grid).denominator, sum_share)

    @property
    def _change(self) -> int:
        """By how much one record can change the values of a step, in grid units."""
        return 1 if self.values is None else self.values.change(self.policy.adjacency)

    @property
    def _records(self) -> Fraction:
        """How many records of a unit count in a step."""
        return Fraction(self.policy.max_change) / Fraction(self.grid) / self._change

    @property
    def steps_per_epoch(self) -> int:
        """E."""
        assert self.epoch is not None
        return self.epoch

    @property
    def epochs_met(self) -> int:
        """The most epochs that a window meets."""
        if self.policy.window is None:
            return -(-self.policy.steps_charged // self.steps_per_epoch)
        return (self.policy.window - 2) // self.steps_per_epoch + 2

    def _part(self, share: Fraction) -> Policy:
        """The policy with a part of its budget."""
        policy = self.policy
        assert policy.epsilon is not None
        return replace(policy, epsilon=Fraction(policy.epsilon) * share, delta=Fraction(policy.delta) * share)

    @cached_property
    def selection(self) -> Selection:
        """Noise and threshold of the test at the end of an epoch."""
        if self.early:
            return Selection(float(self.tests.deviations[-1]), self.tests.thresholds[-1])
        if self.weighted:
            return Selection(self.weighted_tests.sigma / self._one, self.weighted_tests.threshold)
        budget: Any = self._part(Fraction(self.share)).budget
        return calibrate(budget.epsilon, budget.delta, self.categories, self.epochs_met)

    @cached_property
    def tests(self) -> EarlyTests:
        """Noise and thresholds of early tests."""
        budget: Any = self._part(Fraction(self.share)).budget
        sides = 1 if self._one_sided else 2
        changes = sides * self.categories * self.epochs_met
        return calibrate_early(budget.epsilon, budget.delta, changes, self.steps_per_epoch, self.places)

    @cached_property
    def weighted_tests(self) -> WeightedTests:
        """Noise, threshold and weights of weighted tests."""
        budget: Any = self._part(Fraction(self.share)).budget
        return calibrate_weighted(budget.epsilon, budget.delta, self.categories, self.epochs_met, self.places)

    @property
    def _one(self) -> int:
        """What a unit counts that has one category alone: more than 1 where there are parts of it."""
        return 1 << self.places if self.weighted else 1

    @property
    def sigma(self) -> float:
        """σ of the noise of tests at the ends of epochs, as `Candidates.units` counts."""
        return self.weighted_tests.sigma if self.weighted else self.selection.sigma

    @property
    def lone(self) -> float:
        """An upper bound on the chance with which a category opens in an epoch that one unit alone has."""
        if self.early or self.weighted:
            return self.tests.lone if self.early else self.weighted_tests.lone
        return self.selection.chance(1)

    @property
    def _one_sided(self) -> bool:
        """Whether first occurrences of one stream alone differ: nothing moves, and nothing is let in."""
        return self.policy.window is None and self.policy.adjacency != "replace"

    @cached_property
    def staying(self) -> int:
        """The threshold of open categories."""
        part = self.selection.threshold * Fraction(self.stay)
        return -(-part.numerator // part.denominator)

    @cached_property
    def counts(self) -> Mechanism:
        """What releases the counts or sums of all columns, and of the rest."""
        policy = self._part(1 - Fraction(self.share))
        shape: dict[str, Any] = {"columns": self.outputs, "grid": self.grid, "noise": "laplace"}
        if self.released_by == "Uniform":
            return Uniform(policy, **shape)
        from tidegate.mechanisms.tide.tide import Tide  # loads the compiler

        positive = self.values is None or self.values.bounds[0] >= 0
        return Tide(replace(policy, delta=0), delay=0, nonnegative=positive, **shape)

    @property
    def outputs(self) -> int:
        """The columns, and the rest; for means the sums of all, then the counts of all."""
        return (self.columns + 1) * (2 if self.aggregate == "mean" else 1)

    @property
    def units(self) -> int:
        """Such that the counts of a step and an epoch's test both cost whole units."""
        return Fraction(self.share).denominator * self.counts.units * self.epochs_met

    @property
    def _units_of_count(self) -> int:
        """What a unit of the mechanism that releases counts is here."""
        share = Fraction(self.share)
        return (share.denominator - share.numerator) * self.epochs_met

    @property
    def _units_of_epoch(self) -> int:
        """What the test of an epoch costs, in every window that the epoch meets."""
        return Fraction(self.share).numerator * self.counts.units

    @property
    def most_spans(self) -> int:
        """The epochs that a window meets, and one that has ended."""
        return self.epochs_met + 1

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        same = (SAME_RECORDS,) if self.steps_per_epoch > 1 else ()
        sided = (ONE_SIDED,) if self.early and self._one_sided else ()
        return (*super().assumptions, ONE_UNIT, *same, *sided)

    @property
    def more(self) -> tuple[str, ...]:
        """What is open, and what counts release besides values."""
        return ("names", "opened", "units_counted", *self.counts.more)

    @property
    def law(self) -> AnyLaw | None:
        """That of a count."""
        return self.counts.law

    def intervals(self) -> Fold | None:
        """Those of counts."""
        return self.counts.intervals()

    @property
    def shares_noise(self) -> bool:
        """Early tests of one epoch share noise."""
        return self.early

    @property
    def noise_in_state(self) -> bool:
        """The key of that noise."""
        return self.early

    @property
    def guarantee(self) -> Guarantee:
        """What is proved, for one unit, with the δ of thresholds."""
        return Guarantee(
            type(self).__name__, self.policy, self.assumptions, unit=f"{self.policy.unit()}, of one unit"
        )

    def expected_error(self, first: int | None = None, last: int | None = None) -> float | None:
        """The mean absolute error of a count or a sum; for means that of the sum. None with Tide: it depends on data."""
        return self.counts.expected_error()

    @property
    def noise_error(self) -> float | None:
        """The same where every step is measured."""
        return self.counts.noise_error

    def units_needed(self, probability: float = 0.5) -> int:
        """The least number of units in an epoch with which a category opens with at least this probability.

        With weights: of units that have no other category; √j times as many of units with j categories.

        Examples
        --------
        >>> policy = WEvent(epsilon="2", delta="2e-6", window=168)
        >>> Discover(policy).units_needed()
        45
        """
        proper("probability", probability, "write for example 0.5")
        found = 1
        while self.selection.chance(found) < probability:
            found += 1
        return found

    def collector(self, after: int = 0) -> Collector:
        """What makes steps of pairs of units and categories; `after` is the session's last step."""
        return Collector(self.steps_per_epoch, after, early=self.early, values=self.values)

    # what a session asks -----------------------------------------------------------------------------------------

    def reader(self) -> OccurrenceReader:
        """Reads what a collector makes."""
        return OccurrenceReader(valued=self.adds_values)

    def begin(self, first: int) -> State:
        """No category is open."""
        numbers = np.zeros(DIGEST.stop if self.early else LAST, dtype=np.int64)
        numbers[ORDINAL] = NO_EPOCH
        return State(
            numbers,
            np.zeros((self.columns, self.length), dtype=np.int8),
            np.zeros(self.columns, dtype=np.int64),
            np.full(self.columns, np.nan),
            self.counts.begin(first),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs its counts, and every epoch its test, from the first of its steps on."""
        counted = self.counts.public(state.counts, first, count)
        return Charges(first, counted.units * self._units_of_count, self._spans(state, first, count))

    def _spans(self, state: State, first: int, count: int) -> Integers:
        """The epochs that begin with these steps, or of which these are the first that were pushed."""
        if not count:
            return NO_SPANS
        epochs = range((first - 1) // self.steps_per_epoch, (first + count - 2) // self.steps_per_epoch + 1)
        new = [each for each in epochs if each != state.numbers[ORDINAL]]
        spans = [
            Span(
                0,
                each,
                max(first, each * self.steps_per_epoch + 1),
                (each + 1) * self.steps_per_epoch,
                self._units_of_epoch,
            )
            for each in new
        ]
        return span_rows(spans, len(spans))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """At the end of an epoch test its categories; at every step release the counts of those that are open."""
        count, spans = len(rows), self._spans(state, first, len(rows))
        counts = np.zeros((count, self.outputs), dtype=np.int64)
        names = np.zeros((count, self.columns, self.length), dtype=np.int8)
        opened = np.zeros((count, self.columns), dtype=np.int64)
        units = np.full((count, self.columns), np.nan)
        for at, step in enumerate(range(first, first + count)):
            entered = self._enter(state, step)
            if self.early:
                if entered:
                    self._begin_noise(state, step, noise.source)
                self._select_early(state, rows[at], step)
            elif step % self.steps_per_epoch == 0:
                self._select(state, rows[at], step, noise.source)
            counts[at] = self._counted(state, rows[at])
            names[at], opened[at], units[at] = state.names, state.opened, state.units
        released = self.counts.advance(state.counts, counts, first, noise)
        cost = released.units * self._units_of_count
        more: tuple[npt.NDArray[Any], ...] = (names, opened, units, *released.more)
        return released._replace(units=cost, spans=spans, more=more, revised=())

    def _enter(self, state: State, step: int) -> bool:
        """Remember with which step the present epoch was begun; whether it is this one."""
        epoch = (step - 1) // self.steps_per_epoch
        entered = bool(epoch != state.numbers[ORDINAL])
        if entered:
            state.numbers[ORDINAL], state.numbers[FIRST] = epoch, step
        return entered

    def _counted(self, state: State, step: Step) -> Integers:
        """The counts or sums of open categories and of the rest, of the first records of each unit."""
        kept = self._once_a_column(state, step.now) if self.aggregate == "distinct" else step.now
        kept = first_of_each(kept, int(self._records))
        added = [pl.len().cast(pl.Int64)]
        if self.values is not None:  # clipped here: the collector is outside of the session
            sums = pl.col(VALUE).clip(*self.values.bounds).sum()
            weight = self.values.count_weight
            added = [sums, pl.len().cast(pl.Int64).alias("weight") * weight] if weight else [sums]
        by_name = kept.group_by(CATEGORY).agg(*added)
        total = by_name.select(pl.exclude(CATEGORY).sum()).row(0)
        by_name = by_name.with_columns(named(by_name[CATEGORY], self.length).alias(CATEGORY))
        found = np.zeros((len(added), self.columns + 1), dtype=np.int64)
        places = {name: at for at, name in enumerate(as_names(state.names)) if name}
        own = by_name.filter(pl.col(CATEGORY).is_in(list(places)))
        for name, *amounts in own.iter_rows():
            found[:, places[name]] += amounts  # several spellings may have one name
        found[:, -1] = np.array(total, dtype=np.int64) - found.sum(axis=1)
        return found.ravel()

    def _once_a_column(self, state: State, rows: pl.DataFrame) -> pl.DataFrame:
        """The first record of each unit in each column; in the rest it has one, whatever its categories are."""
        spellings = rows.select(pl.col(CATEGORY).unique())
        names = named(spellings[CATEGORY], self.length)
        own = names.is_in([name for name in as_names(state.names) if name])
        spellings = spellings.with_columns(pl.Series("name", names).set(~own.fill_null(value=False), OTHER))
        rows = rows.join(spellings, on=CATEGORY, how="left", maintain_order="left")
        rows = rows.select(UNIT, pl.col("name").alias(CATEGORY))
        return rows.unique(keep="first", maintain_order=True)

    # the test ----------------------------------------------------------------------------------------------------

    def _select(self, state: State, step: Step, number: int, source: Source) -> None:
        """Test the categories of an epoch that ends with this step."""
        pairs = self.pairs(step, int(state.numbers[FIRST]), number)
        tested = self.tested(pairs, [name for name in as_names(state.names) if name])
        drawn = gaussian(source, STREAM, number, self.sigma, (len(tested.units),))
        noisy = tested.units + drawn
        passed = np.flatnonzero(self.passes(tested, noisy))
        # by released numbers; the order of names decides between equal ones
        best = passed[np.argsort(-noisy[passed], kind="stable")[: self.columns]]
        shown = np.rint(noisy[best] / self._one).astype(np.int64).tolist()
        self._open(state, dict(zip(tested.names.gather(best).to_list(), shown, strict=True)), number)

    def pairs(self, step: Step, first: int, number: int) -> pl.DataFrame:
        """Units and the names of their categories in an epoch: the first k of each unit, once each."""
        own = step.earlier.filter((pl.col(STEP) >= first) & (pl.col(STEP) < number))
        kept = [STEP, UNIT, CATEGORY] if self.early else [UNIT, CATEGORY]
        own = own.sort(STEP, maintain_order=True).select(kept)
        now = step.now.select(pl.lit(number, dtype=pl.Int64).alias(STEP), UNIT, CATEGORY).select(kept)
        rows = together([each for each in (own, now) if len(each)], now)
        spellings = rows.select(pl.col(CATEGORY).unique())
        spellings = spellings.with_columns(named(spellings[CATEGORY], self.length).alias("name"))
        if not (spellings[CATEGORY] == spellings["name"]).fill_null(value=False).all():
            rows = rows.join(spellings, on=CATEGORY, how="left", maintain_order="left")
            rows = rows.drop_nulls("name").with_columns(pl.col("name").alias(CATEGORY)).select(kept)
        if self.categories > 1:
            rows = rows.unique([UNIT, CATEGORY], keep="first", maintain_order=True)
        return first_of_each(rows, self.categories, in_order=self.early)

    def tested(self, pairs: pl.DataFrame, open_names: list[str]) -> Candidates:
        """All categories that somebody has in the epoch, and all that are open, whether somebody has them or not."""
        counted = pairs.group_by(CATEGORY).len()
        if self.weighted:  # by how many units with so many categories each has
            weight = {"of": range(1, self.categories + 1), "weight": self.weighted_tests.weights}
            cells = pairs.group_by(CATEGORY, pl.len().over(UNIT).cast(pl.Int64).alias("of")).len()
            cells = cells.join(pl.DataFrame(weight, schema={"of": pl.Int64, "weight": pl.Int64}), on="of")
            counted = cells.group_by(CATEGORY).agg(
                (pl.col("len").cast(pl.Int64) * pl.col("weight")).sum().alias("len")
            )
        missing = pl.DataFrame({CATEGORY: open_names}, schema={CATEGORY: pl.String}).join(
            counted, on=CATEGORY, how="anti"
        )
        every = pl.concat(
            [counted, missing.with_columns(pl.lit(0, dtype=counted.schema["len"]).alias("len"))]
        )
        every = every.sort(CATEGORY)
        units = every["len"].to_numpy().astype(np.int64)
        return Candidates(every[CATEGORY], units, every[CATEGORY].is_in(open_names).to_numpy())

    def passes(self, tested: Candidates, noisy: Integers) -> npt.NDArray[np.bool_]:
        """Which categories are open from now on: by noisy numbers and public thresholds alone."""
        return np.asarray(noisy >= self._one * np.where(tested.open, self.staying, self.selection.threshold))

    # early tests -------------------------------------------------------------------------------------------------

    def _begin_noise(self, state: State, step: int, source: Source) -> None:
        """Draw the key of an epoch's noise."""
        words = source.words(STREAM, step, KEY_WORDS, range(KEY_WORDS), 0, 1)[0]
        state.numbers[KEY], state.numbers[LAST] = words.view(np.int64), NO_STEP

    def _select_early(self, state: State, step: Step, number: int) -> None:
        """Test the categories that somebody has had in the epoch so far; at its end those that are open as well."""
        at = (number - 1) % self.steps_per_epoch
        begin = number - at
        if not self._goes_on(state, step, number):
            state.numbers[LAST], state.numbers[DIGEST] = NO_MORE, 0
            return
        rows = self.pairs(step, int(state.numbers[FIRST]), number)
        self._check_same(state, rows, number)
        standing = {
            name: units
            for name, units in zip(as_names(state.names), state.units.tolist(), strict=True)
            if name
        }
        of_before = [
            name
            for name, opened in zip(as_names(state.names), state.opened.tolist(), strict=True)
            if 0 < opened < begin
        ]
        key = state.numbers[KEY].view(np.uint64)
        names, noisy = noisy_units(self.tests, key, rows, begin, at + 1, of_before)
        kept = {} if at == self.steps_per_epoch - 1 else standing
        limits = [self.staying if name in standing else self.tests.thresholds[at] for name in names]
        passed = np.flatnonzero(noisy >= limits).tolist()
        best = sorted((-int(noisy[each]), names[each]) for each in passed if names[each] not in kept)
        room = self.columns - len(kept)
        self._open(state, kept | {name: -less for less, name in best[:room]}, number)

    def _goes_on(self, state: State, step: Step, number: int) -> bool:
        """Whether an epoch still has tests: all its steps were given so far. By numbers of steps alone."""
        given = step.number == number and step.since <= int(state.numbers[FIRST])
        return given and int(state.numbers[LAST]) != NO_MORE

    def _check_same(self, state: State, rows: pl.DataFrame, number: int) -> None:
        """Fail where records are others than those with which noise was used; nobody who gives the same sees it."""
        last = int(state.numbers[LAST])
        earlier = digest_of(rows.filter(pl.col(STEP) <= last))
        if last != NO_STEP and not np.array_equal(earlier, state.numbers[DIGEST]):
            raise InvalidInput("records of earlier steps are not those that were given before.")
        state.numbers[LAST], state.numbers[DIGEST] = number, digest_of(rows)

    def _open(self, state: State, passed: dict[str, int], number: int) -> None:
        """Free the columns of categories that have not passed, and give free ones to those that are new."""
        for at, name in enumerate(as_names(state.names)):
            if name in passed:
                state.units[at] = passed.pop(name)
            else:
                state.names[at], state.opened[at], state.units[at] = 0, 0, np.nan
        for at, (name, units) in zip(
            np.flatnonzero(state.opened == 0).tolist(), passed.items(), strict=False
        ):
            state.names[at], state.opened[at], state.units[at] = as_stored(name, self.length), number, units

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON; a stream of an earlier version counts records."""
        described = super().describe()
        if not self.adds_values:
            del described["aggregate"], described["clip"]
        if self.aggregate != "mean":
            del described["sum_share"]
        if self.aggregate == "distinct":
            described["distinct"] = True
        for option in ("early", "weighted"):
            if not described[option]:
                del described[option]
        if self.released_by == "Uniform":
            del described["released_by"]
        return described

    def attach(self, releases: Releases, more: Any, revised: Any) -> DiscoveredReleases:
        """Releases with their categories, for readers."""
        names: Names
        names, opened, units, *of_counts = more
        if of_counts:
            spent = of_counts[0] * self._units_of_count
            nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)  # is revised
            releases = self.counts.attach(releases, (spent, *of_counts[1:]), nothing)  # type: ignore[attr-defined]
        changed = self._last_change(releases.steps, opened)
        return DiscoveredReleases.of_releases(releases, names, opened, units, changed, self.values)

    def _last_change(self, steps: Integers, opened: Integers) -> Integers:
        """The last step, up to each of some, at which categories may have opened or closed; 0 where there is none."""
        ends: Integers = steps // self.steps_per_epoch * self.steps_per_epoch
        if not self.early:
            return ends
        begun = (steps - 1) // self.steps_per_epoch * self.steps_per_epoch + 1
        found: Integers = np.maximum(np.where(begun > 1, begun, 0), opened.max(axis=1, initial=0))
        return found

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        small: dict[str, Any] = {"epsilon": "8", "delta": "1/100"}
        return [
            cls(WEvent(window=4, **small), columns=3),
            cls(
                WEvent(window=5, max_change=2, adjacency="replace", **small),
                columns=2,
                epoch=3,
                categories=2,
                length=4,
            ),
            cls(Event(**small), columns=2, epoch=2, share="1/3", stay=1),
            cls(User(horizon=600, **small), columns=3, epoch=200, share="2/3"),
            cls(WEvent(window=4, **small), columns=3, categories=2, early=True),
        ]


def first_of_each(rows: pl.DataFrame, most: int, *, in_order: bool = False) -> pl.DataFrame:
    """The first rows of each unit: a rule that looks at the unit's own rows only."""
    if most == 1:
        return rows.unique(UNIT, keep="first", maintain_order=in_order)
    return rows.filter(pl.int_range(pl.len()).over(UNIT) < most)
