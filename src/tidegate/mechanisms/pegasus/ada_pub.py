"""AdaPub (Wang et al. 2019): measure like columns together, and average like steps by a threshold that adapts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import ExactLike, float_up, positive, whole
from tidegate.mechanisms.losses import Floats, policy_change
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.pegasus.grouper import (
    LONGEST,
    MOST,
    NOISY,
    OPEN,
    RAW,
    SIZE,
    START,
    SUM,
    THRESHOLD,
    OpenGroups,
    close_group,
)
from tidegate.mechanisms.pegasus.parameters import share
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import expected_absolute_laplace, laplace
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Measured, Releases, Status
from tidegate.structures.kernels.ordered import deviation, insert, median

PROPORTIONAL, INTEGRAL = 0.9, 0.1  # how the error of a prediction, and the mean of those before, count
FURTHEST = 2**54  # of a measurement, in grid units
CEILING = 2.0**60  # of a threshold
CELL = 0.25  # noise scales that a cell of releases is wide
SETTLED = 8  # steps after which a column of a cluster may be measured with others
MIXED = 0x9E3779B97F4A7C15 >> 1  # spreads cells over the table


class State(NamedTuple):
    """All that is carried from step to step."""

    clusters: OpenGroups  # SECRET: raw counts, and noisy thresholds
    last: Any  # what was last released of each column, in grid units
    errors: Any  # of each column: the sum of the errors since its cluster began


class Rule(NamedTuple):
    """What is public and stays as it is."""

    scale: float  # of a measurement's noise, in grid units
    cell: float  # the width of a cell of releases
    unit: float  # the highest threshold
    longest: int  # a cluster of so many steps is closed
    bound: int  # of a count, for the clusters
    together: bool  # whether columns are measured together
    grid: float


class Work(NamedTuple):
    """Room that a step needs."""

    table: Any  # the first column of each cell, by the cell's hash; −1: none
    cells: Any  # of each column
    pivots: Any  # the column that it is measured with
    sums: Any  # of the columns that are measured together, by their pivot
    sizes: Any


@lean
def assign_pivots(last: Any, memory: Any, rule: Any, work: Any) -> None:
    """DimParti: settled columns whose last releases are in one cell have one pivot; all others have their own."""
    table, mask = work.table, work.table.size - 1
    table[:] = -1
    for column in range(last.size):
        work.pivots[column] = column
        if not rule.together or memory[column, SIZE] < SETTLED:
            continue
        cell = np.int64(np.floor(last[column] / rule.cell))
        work.cells[column] = cell
        slot = (cell * MIXED >> 20) & mask
        while table[slot] >= 0 and work.cells[table[slot]] != cell:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = column
        work.pivots[column] = table[slot]


@lean
def measure(row: Any, noise: Any, work: Any) -> None:
    """The noisy mean of the columns of each pivot, rounded to the grid, into `work.sums`."""
    sums, sizes, pivots = work.sums, work.sizes, work.pivots
    sums[:], sizes[:] = 0, 0
    for column in range(row.size):
        pivot = pivots[column]
        sums[pivot] = min(max(sums[pivot] + row[column], -FURTHEST), FURTHEST)
        sizes[pivot] += 1
    for column in range(row.size):
        if sizes[column] > 0:
            noisy = min(max(sums[column] + noise[column], -FURTHEST), FURTHEST)
            sums[column] = (2 * noisy + sizes[column]) // (2 * sizes[column])


@lean
def publish_clusters(
    first_step: int,
    rule: Any,
    rows: Any,
    noise: Any,
    tests: Any,
    thresholds: Any,
    clusters: Any,
    last: Any,
    errors: Any,
    work: Any,
    values: Any,
    noisy: Any,
    groups: Any,
) -> None:
    """Partition, measure, cluster and smooth, one step after the other."""
    rule, work = Rule(*rule), Work(*work)
    memories, moments, nodes, pool, path = clusters
    for index in range(rows.shape[0]):
        assign_pivots(last, memories, rule, work)
        measure(rows[index], noise[index], work)
        for column in range(rows.shape[1]):
            memory, measured = memories[column], work.sums[work.pivots[column]]
            noisy[index, column] = measured * rule.grid
            error = abs(last[column] - measured) / rule.scale
            count = min(max(rows[index, column], -rule.bound), rule.bound)
            memory[RAW] = insert(nodes, pool, path, memory[RAW], count, 1)
            memory[SUM] += count
            memory[SIZE] += 1
            if memory[OPEN] == 0:
                memory[OPEN], memory[START] = 1, first_step + index
                errors[column], error = 0.0, 0.0  # there was no prediction
                memory[THRESHOLD] = thresholds[index, column]
            else:
                felt = PROPORTIONAL * error + INTEGRAL * errors[column] / (memory[SIZE] - 1)
                limit = np.int64(min(max(rule.unit / max(felt * felt, 1.0), 1.0), CEILING))
                score = min(deviation(nodes, memory[RAW], memory[SIZE], memory[SUM]), MOST)
                if score + tests[index, column] >= limit + memory[THRESHOLD]:
                    close_group(nodes, pool, path, memory, moments[column])  # this step is a closed cluster
                    last[column] = measured
                    values[index, column] = noisy[index, column]
                    groups[index, column] = first_step + index
                    continue
            errors[column] += error
            memory[NOISY] = insert(nodes, pool, path, memory[NOISY], measured, 1)
            last[column] = median(nodes, memory[NOISY])
            values[index, column] = last[column] * rule.grid
            groups[index, column] = memory[START]
            if memory[SIZE] >= rule.longest:
                close_group(nodes, pool, path, memory, moments[column])


@dataclass(frozen=True)
class AdaPub(Mechanism):
    """Measure columns of similar releases together, and let steps alike share their measurements.

    At each step, columns whose last releases lie in one cell, a quarter of the noise wide, are measured as one sum, and
    share it equally (the paper's DimParti). Then each column's cluster of steps is extended by the new one as long as a
    noisy test says that its counts deviate little from their mean, and the release is the median of the cluster's
    measurements (AdaCluster). The threshold of a test follows the errors of predictions: it falls where measurements are
    further from the last release than noise explains, so that a change ends the cluster.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    perturber_share
        The part of the budget that pays for measurements; the tests have the rest.
    threshold_factor
        The highest threshold, in units of Δ/ε_c, ε_c being what the tests of a step have.
    partition
        Whether columns are measured together.
    longest_group
        A cluster of so many steps is closed, which is public and free. At most 2^20.

    Privacy
    -------
    Unit and neighbours: the policy's. Each step has an equal part of ε (ε/w under w-event), of which ε_p pays for its
    measurements, and ε_c for its clusters. Sums of disjoint columns change by at most Δ together: noise of scale Δ/ε_p
    on each. Which columns are summed follows from earlier releases. A cluster is one run of the sparse vector technique,
    with ρ ~ Lap(4Δ/ε_c) and ν ~ Lap(8Δ/ε_c), as in :class:`PeGaSus`; its thresholds follow from measurements
    (docs/proofs/ada_pub.md).
    Departures from the paper, whose algorithm is not private as printed: its tests have noise of scale 2w/ε_c and no
    noisy threshold, although a count is part of every later test of its cluster, without end. Errors of predictions are
    in units of the noise, and the threshold falls with them; the paper's rises with relative errors, to max(1, δ²/ε),
    which is small beside the noise of the tests. Cells are of public width, and pivots are not drawn at random. A column
    is measured with others only after eight steps of its cluster, or columns that were once alike would never part.

    The state holds raw counts of open clusters, as that of :class:`PeGaSus`. Guard a commit log like the stream.

    Error
    -----
    Δ/ε_p at a step that is measured by itself, 1/p of it where p equal columns are measured together, and about 1/√n of
    it in a cluster of n equal steps; where columns or steps differ, also how far. No release shows that of columns which
    are measured together, so there are no intervals. Time O(d log n) a step, memory O(dn).

    Examples
    --------
    >>> mechanism = AdaPub(WEvent(epsilon="1", window=8), columns=20)
    >>> mechanism.scale, mechanism.grouping.threshold_scale, mechanism.grouping.question_scale
    (10.0, 160.0, 320.0)
    >>> from tidegate.core.session import Session
    >>> Session(mechanism).push_batch(np.full((100, 20), 5)).values.shape
    (100, 20)

    References
    ----------
    Wang, Yang, Ren, Zhao, Lam: Adaptive differentially private data stream publishing in spatio-temporal monitoring of
    IoT. IPCCC 2019.
    """

    perturber_share: ExactLike = "0.8"
    threshold_factor: ExactLike = 40
    partition: bool = True
    longest_group: int = 2**16

    more: ClassVar[tuple[str, ...]] = ("noisy", "groups")  # measurements, and first steps of clusters
    noise_in_state: ClassVar[bool] = True  # an open cluster has a noisy threshold
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    keeps_raw_values: ClassVar[bool] = True  # the open clusters' counts; see Privacy

    def validate(self) -> None:
        """Read the split, the threshold and the cap."""
        put = object.__setattr__
        put(self, "perturber_share", share("perturber_share", self.perturber_share))
        put(self, "threshold_factor", positive("threshold_factor", self.threshold_factor))
        put(self, "longest_group", whole("longest_group", self.longest_group, most=LONGEST))
        self.refuse_wide_noise(max(self.scale, self.grouping.question_scale))

    @property
    def step_epsilon(self) -> Fraction:
        """The budget of one step."""
        return self.policy.budget.total / self.policy.steps_charged

    @cached_property
    def scale(self) -> float:
        """The noise scale of a measurement in grid units, rounded up."""
        return float_up(self.sensitivity / (Fraction(self.perturber_share) * self.step_epsilon))

    @cached_property
    def grouping(self) -> SparseVector:
        """One cluster is one run of this: its questions are deviations, of sensitivity 2Δ."""
        return SparseVector((1 - Fraction(self.perturber_share)) * self.step_epsilon, 2 * self.sensitivity)

    @property
    def noise_error(self) -> float:
        """The mean absolute error of a column that is measured by itself."""
        return expected_absolute_laplace(self.scale) * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> Floats:
        """What each step lost: its noise, and the test of its cluster."""
        change = policy_change(self)
        tests = 2 * change / self.grouping.threshold_scale + 4 * change / self.grouping.question_scale
        noise = change * float(Fraction(self.grid)) / np.where(releases.scale > 0, releases.scale, np.inf)
        return np.asarray(noise + tests)

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """No cluster is open."""
        return State(OpenGroups(self.columns), np.zeros(self.columns), np.zeros(self.columns))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, whatever the data are."""
        return Charges(first, np.ones(count, dtype=np.int64))

    @cached_property
    def rule(self) -> Rule:
        """What the loop knows of the configuration."""
        longest = int(self.longest_group)
        factor = Fraction(self.threshold_factor) * self.sensitivity / Fraction(self.grouping.epsilon)
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        return Rule(
            self.scale,
            max(CELL * self.scale, 1.0),
            float(factor),
            longest,
            2**60 // longest,
            self.partition,
            float(Fraction(self.grid)),
        )

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release every step."""
        count, columns = rows.shape
        clusters, last, errors = state
        clusters.reserve(count)
        drawn = laplace(noise.source, "perturber", first, self.scale, rows.shape)
        tests = laplace(noise.source, "test", first, self.grouping.question_scale, rows.shape)
        thresholds = laplace(noise.source, "threshold", first, self.grouping.threshold_scale, rows.shape)
        room = np.zeros((4, columns), dtype=np.int64)
        work = Work(np.zeros(1 << (2 * columns).bit_length(), dtype=np.int64), *room)
        sets = clusters.sets
        kept = (clusters.memory, clusters.moments, sets.nodes, sets.pool, sets.path)
        values, noisy, groups = np.empty(rows.shape), np.empty(rows.shape), np.empty_like(rows)
        drawn_rows = (rows, drawn, tests, thresholds)
        publish_clusters(first, self.rule[:], *drawn_rows, kept, last, errors, work[:], values, noisy, groups)
        return Output(
            values,
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
            np.full(count, self.scale * float(Fraction(self.grid))),
            np.ones(count, dtype=np.int64),
            more=(noisy, groups),
        )

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what they were smoothed from: columns measured together have one measurement."""
        noisy, begun = more
        releases.measured = Measured(noisy, begun, np.ones_like(begun))
        return releases

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Shorter and longer clusters."""
        return [cls(policy, columns=columns, threshold_factor=factor) for factor in (10, 40, 160)]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="10", window=6), columns=6),
            cls(WEvent(epsilon="10", window=6), columns=2, perturber_share="1/2", threshold_factor=5),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=3, longest_group=7),
            cls(WEvent(epsilon="3", window=2, max_change="0.5"), grid="0.25", partition=False),
            cls(User(epsilon="900", horizon=9000), columns=2),
        ]
