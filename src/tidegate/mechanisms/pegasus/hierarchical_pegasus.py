"""HierarchicalPeGaSus: PeGaSus on every node of a forest, small branches pruned (Chen et al. 2017, section 5).

At each step: sum up, prune, then measure, group and smooth what is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import Draws
from tidegate.exact import ExactLike, exact, float_up, one_of
from tidegate.intervals import Fold, Pruned
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.pegasus import grouper
from tidegate.mechanisms.pegasus import parameters as pegasus_parameters
from tidegate.mechanisms.pegasus.grouper import BLOCK, SMOOTHERS, OpenGroups
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import Law, laplace
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Measured, Releases, Status
from tidegate.structures.hierarchy import Hierarchy, columns_of
from tidegate.structures.kernels.hierarchy import sum_up

PRUNINGS = ("counts", "privtree", "none")
LN2 = Fraction(6_931_472, 10_000_000)  # a little above ln 2

# how a node takes part in a step
PRUNED = 0
PASSES = 1  # measured, and so are its children
ENDS = 2  # measured, the last one on its paths: a leaf, or its children are pruned

COUNTS = 0
PRIVTREE = 1


class State(NamedTuple):
    """All that is carried from step to step."""

    groups: OpenGroups  # SECRET: of each node


class Forest(NamedTuple):
    """The hierarchy as arrays."""

    leaves: Any  # the node of each column
    parents: Any
    levels: Any
    is_leaf: Any


@kernel
def prune(
    counts: Any,
    noise: Any,
    parents: Any,
    levels: Any,
    is_leaf: Any,
    method: int,
    limit: int,
    decay: int,
    part: Any,
) -> None:
    """Decide how each node takes part. `limit` is β and `decay` PrivTree's δ, both public, in grid units."""
    for index in range(counts.shape[0]):
        for node in range(parents.size):
            parent = parents[node]
            if parent >= 0 and part[index, parent] != PASSES:
                part[index, node] = PRUNED
            elif is_leaf[node]:
                part[index, node] = ENDS
            else:
                score = counts[index, node]
                if method == PRIVTREE:
                    score = max(score - (levels[node] - 1) * decay, limit - decay)
                    passes = score + noise[index, node] > limit
                else:
                    passes = score + noise[index, node] >= limit
                part[index, node] = PASSES if passes else ENDS


@kernel
def look_up(
    part: Any,
    scales_of: Any,
    weights_of: Any,
    grid: float,
    shown: Any,
    scales: Any,
    weights: Any,
    scale: Any,
    status: Any,
) -> None:
    """The noise scale and the weight of each node, by (how it takes part, node), and what a step says of itself.

    `shown` is the status of a step in which every node is measured, and of one in which some are pruned.
    """
    for index in range(part.shape[0]):
        largest = 0.0
        pruned = False
        for node in range(part.shape[1]):
            kind = part[index, node]
            scales[index, node] = scales_of[kind, node]
            weights[index, node] = weights_of[kind, node]
            if kind == PRUNED:
                pruned = True
            else:
                largest = max(largest, scales_of[kind, node])
        scale[index] = largest * grid
        status[index] = shown[1] if pruned else shown[0]


@kernel
def measure(part: Any, counts: Any, grid: float, measured: Any, noisy: Any) -> None:
    """Add the counts to the noise in `measured`, nothing where a node is pruned; `noisy` is the same in values."""
    for index in range(part.shape[0]):
        for node in range(part.shape[1]):
            total = 0 if part[index, node] == PRUNED else measured[index, node] + counts[index, node]
            measured[index, node] = total
            noisy[index, node] = total * grid


@dataclass(frozen=True)
class HierarchicalPeGaSus(Mechanism):
    """Release every node of a hierarchy, and spend nothing on branches in which there is nothing.

    At each step the hierarchy is walked from its roots. Where a noisy test says that a node's count is
    small, the nodes below it are pruned: they are 0 at this step, and the budget of their levels goes to
    the node itself. Every node that is not pruned is measured, grouped and smoothed as in :class:`PeGaSus`;
    groups skip the steps at which their node was pruned, and measurements are weighed by their precision.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the number of columns is that of the hierarchy's leaves.
    hierarchy
        A :class:`tidegate.queries.Hierarchy`, links child → parent, or nested names of the columns such as
        "building/floor/room/ap". Releases have a column for each node, in the order of its names.
    pruning
        "counts": a node's noisy count is compared with the public `prune_below`. "privtree": the test of
        PrivTree, whose noise does not grow with the height. "none": nothing is pruned.
    prune_below
        β: branches with a smaller count are pruned. By default four times the noise scale of one level's
        Perturber. Public.
    pruning_share
        The part of the budget that tests for pruning spend, where there are any.
    perturber_share
        The part of what remains that the Perturbers spend; the Groupers have the rest.
    threshold, threshold_factor, smoother, longest_group
        As for :class:`PeGaSus`, with a level's budget for grouping.

    Privacy
    -------
    Unit and neighbours: the policy's. One unit changes the nodes of each level by at most Δ together, so
    what is spent along a path from a root to a leaf adds up and nothing else does (paper, Theorem 5.1).
    Every level has 1/h of ε_p + ε_g; the node at which a path ends, by pruning or because a leaf stands
    higher than others, spends what is left for its path (also what is left of ε_pr, a departure from the
    paper that makes every path spend exactly ε). Which nodes end their paths is decided by private tests,
    before anything else of the step is drawn.

    Departure: the printed PRUNE is unsound for h ≥ 4. "counts" adds a single Lap((h−1)Δ/ε_pr) to the count
    and compares with a noiseless threshold; a leaf is not tested. "privtree" tests max(c − (level−1)·δ, β −
    δ) + Lap(3Δ/ε_pr) > β with δ ≥ ln 2 · 3Δ/ε_pr, on counts from which negative ones are left out. Proofs
    in docs/proofs/hierarchical_pegasus.md. The paper tests c + Lap(2Δ/ε_pr) < β + Lap(2Δ/ε_pr).

    The state holds the raw counts of open groups, see :class:`PeGaSus`.

    Error
    -----
    Without pruning that of :class:`PeGaSus` with ε/h; a pruned branch has the error of its true counts.
    Time O(log n) a node and step, memory O(n) for open groups of n different counts.

    Examples
    --------
    >>> campus = Hierarchy.from_names(["library/1/a", "library/1/b", "library/2/c", "gym/hall"])
    >>> mechanism = HierarchicalPeGaSus(Event(epsilon="1"), hierarchy=campus)
    >>> from tidegate.core.session import Session
    >>> Session(mechanism).push_batch(np.zeros((20, 4), dtype=np.int64)).values.shape
    (20, 8)

    References
    ----------
    Chen, Machanavajjhala, Hay, Miklau: PeGaSus: Data-adaptive differentially private stream processing. CCS
    2017. Zhang, Xiao, Xie: PrivTree: A differentially private algorithm for hierarchical decompositions.
    SIGMOD 2016.
    """

    hierarchy: Hierarchy | Mapping[str, str | None] | Sequence[str] | None = None
    pruning: str = "counts"
    prune_below: ExactLike | None = None
    pruning_share: ExactLike = "0.2"
    perturber_share: ExactLike = "0.8"
    threshold: ExactLike | None = None
    threshold_factor: ExactLike = 5
    smoother: str = "median"
    longest_group: int = 2**16

    # released besides: measurements, first steps of groups, and how precise measurements are; 0 where pruned
    more: ClassVar[tuple[str, ...]] = ("noisy", "groups", "weights")
    noise_in_state: ClassVar[bool] = True  # an open group has a noisy threshold
    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    keeps_raw_values: ClassVar[bool] = True  # the open groups' counts; see Privacy

    def validate(self) -> None:
        """Check the hierarchy and the public parameters."""
        put = object.__setattr__
        if isinstance(self.hierarchy, Mapping):
            put(self, "hierarchy", Hierarchy.from_parents(self.hierarchy))
        elif isinstance(self.hierarchy, list | tuple):
            put(self, "hierarchy", Hierarchy.from_names(self.hierarchy))
        put(self, "columns", columns_of(self.hierarchy, self.columns))
        one_of("pruning", self.pruning, PRUNINGS)
        put(self, "pruning_share", pegasus_parameters.share("pruning_share", self.pruning_share))
        if self.prune_below is not None:
            put(self, "prune_below", exact("prune_below", self.prune_below))
        pegasus_parameters.check(self)
        widest = max(
            float(self.scales.max()), self.grouping.question_scale, self.limit, abs(self.prune_limit)
        )
        self.refuse_wide_noise(max(widest, self.prune_scale))

    # how the budget is shared ----------------------------------------------------------------------------------

    @property
    def forest(self) -> Hierarchy:
        """The hierarchy."""
        assert isinstance(self.hierarchy, Hierarchy)
        return self.hierarchy

    @property
    def outputs(self) -> int:
        """The columns of a release: one for each node."""
        return len(self.forest.names)

    @property
    def units(self) -> int:
        """One unit per step."""
        return self.policy.steps_charged

    @property
    def smoothing(self) -> str:
        """The smoother."""
        return self.smoother

    @property
    def prunes(self) -> bool:
        """Whether there is anything to prune, and it is asked for."""
        return self.pruning != "none" and self.forest.height > 1

    @cached_property
    def budgets_of_step(self) -> tuple[Fraction, Fraction, Fraction]:
        """(ε_pr, ε_p, ε_g) of one step."""
        total = self.policy.budget.total / self.policy.steps_charged
        pruning = Fraction(self.pruning_share) * total if self.prunes else Fraction(0)
        perturbing = Fraction(self.perturber_share) * (total - pruning)
        return pruning, perturbing, total - pruning - perturbing

    def spends(self, node: int, ends: bool) -> tuple[Fraction, Fraction, Fraction]:
        """(test, Perturber, Grouper) of one node at one step, if its paths go on below it or end there."""
        _, perturbing, grouping = self.budgets_of_step
        height, level = self.forest.height, self.forest.levels[node]
        leaf = bool(self.forest.is_leaf[node])
        tested = Fraction(0) if leaf or not self.prunes else self._test_epsilon
        if not ends:
            return tested, perturbing / height, grouping / height
        left = (perturbing + grouping) * (height - level + 1) / height - grouping / height
        if self.prunes and self._test_adds:  # tests that this path will not make
            left += (height - 1 - (level - 1 if leaf else level)) * self._test_epsilon
        return tested, left, grouping / height

    @property
    def _test_adds(self) -> bool:
        """Whether the tests on a path add up; those of PrivTree do not."""
        return self.pruning == "counts"

    @cached_property
    def _test_epsilon(self) -> Fraction:
        """What one test spends; for tests that do not add up, what all of a path spend, counted at its root."""
        return self.budgets_of_step[0] / (self.forest.height - 1) if self._test_adds else Fraction(0)

    # scales and public limits ----------------------------------------------------------------------------------

    @cached_property
    def prune_scale(self) -> float:
        """The noise scale of a test for pruning in grid units; rounded up."""
        if not self.prunes:
            return 1.0
        factor = 3 if self.pruning == "privtree" else self.forest.height - 1
        return float_up(factor * self.sensitivity / self.budgets_of_step[0])

    @cached_property
    def prune_decay(self) -> int:
        """PrivTree's δ in grid units: at least ln 2 · its scale."""
        return math.ceil(Fraction(self.prune_scale) * LN2)

    @cached_property
    def prune_limit(self) -> int:
        """β in grid units, rounded up."""
        if self.prune_below is None:
            return math.ceil(4 * self.sensitivity * self.forest.height / self.budgets_of_step[1])
        return math.ceil(Fraction(self.prune_below) / Fraction(self.grid))

    @cached_property
    def grouping(self) -> SparseVector:
        """One group of one node is one run of this."""
        return SparseVector(self.budgets_of_step[2] / self.forest.height, 2 * self.sensitivity)

    @cached_property
    def limit(self) -> int:
        """The threshold θ in grid units; rounded up."""
        return pegasus_parameters.limit(self)

    @cached_property
    def scales(self) -> npt.NDArray[np.float64]:
        """The Perturber's noise scale by (how a node takes part, node), in grid units; rounded up."""
        found = np.ones((3, self.outputs))
        for node in range(self.outputs):
            for part, ends in ((PASSES, False), (ENDS, True)):
                found[part, node] = float_up(self.sensitivity / self.spends(node, ends)[1])
        return found

    @cached_property
    def weights(self) -> npt.NDArray[np.int64]:
        """How precise a measurement is, by (how a node takes part, node): 0 where it is pruned."""
        found = np.zeros((3, self.outputs), dtype=np.int64)
        least = self.scales[1:].max()
        found[1:] = np.maximum(np.rint(16 * least / self.scales[1:]), 1)
        return found

    # what everybody uses ---------------------------------------------------------------------------------------

    # what a session asks -----------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> Forest:
        """Where the nodes stand."""
        forest = self.forest
        leaves, parents, levels = (
            np.array(part, dtype=np.int64) for part in (forest.leaves, forest.parents, forest.levels)
        )
        return Forest(leaves, parents, levels, forest.is_leaf)

    def begin(self, first: int) -> State:
        """No group is open."""
        return State(OpenGroups(self.outputs))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs one unit, whatever is pruned."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release all nodes at every step."""
        count, nodes = len(rows), self.outputs
        output, noisy = empty_output(count, nodes), np.empty((count, nodes))
        begun, weights = (np.empty((count, nodes), dtype=np.int64) for _ in range(2))
        output.source[:], output.units[:] = np.arange(first, first + count), 1
        state.groups.reserve(count)
        length = max(1, BLOCK // nodes)
        for start in range(0, count, length):
            part = slice(start, start + length)
            more = (noisy[part], begun[part], weights[part])
            self._release(state.groups, rows[part], first + start, noise.source, output.part(part), *more)
        return output._replace(more=(noisy, begun, weights))

    def _release(
        self,
        groups: OpenGroups,
        rows: Matrix,
        step: int,
        source: Source,
        out: Output,
        noisy: Any,
        begun: Any,
        weights: Any,
    ) -> None:
        grid, grouping, longest = float(Fraction(self.grid)), self.grouping, int(self.longest_group)
        counts = self._summed(rows)
        shape = counts.shape
        part = self._pruned(rows, counts, step, source)
        # what is left of a path's budget belongs to the node at which it ends
        scales, shown = np.empty(shape), (int(Status.FRESH), int(Status.PRUNED))
        look_up(part, self.scales, self.weights, grid, shown, scales, weights, out.scale, out.status)
        measured = laplace(source, "perturber", step, scales, shape)
        measure(part, counts, grid, measured, noisy)
        tests = laplace(source, "test", step, grouping.question_scale, shape)
        thresholds = laplace(source, "threshold", step, grouping.threshold_scale, shape)
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        rule = grouper.Rule(self.limit, longest, 2**60 // longest, SMOOTHERS[self.smoothing], grid)
        taken = grouper.Counts(counts, measured, weights, tests, thresholds)
        sets = (groups.sets.nodes, groups.sets.pool, groups.sets.path)
        grouper.group_and_smooth(
            step, rule[:], taken[:], groups.memory, groups.moments, sets, out.values, begun
        )

    def _summed(self, rows: Matrix) -> Matrix:
        """The counts of all nodes."""
        counts = np.empty((len(rows), self.outputs), dtype=np.int64)
        sum_up(rows, self.nodes.leaves, self.nodes.parents, counts)
        return counts

    def _pruned(self, rows: Matrix, counts: Matrix, step: int, source: Source) -> Any:
        """How each node takes part in each step."""
        part = np.empty(counts.shape, dtype=np.int8)
        if not self.prunes:
            part[:] = np.where(self.nodes.is_leaf, ENDS, PASSES)
            return part
        tree = self.pruning == "privtree"
        # the proof of PrivTree needs counts that do not grow on the way down
        tested = self._summed(np.maximum(rows, 0)) if tree else counts
        noise = laplace(source, "pruning", step, self.prune_scale, counts.shape)
        _, parents, levels, is_leaf = self.nodes
        method = PRIVTREE if tree else COUNTS
        prune(tested, noise, parents, levels, is_leaf, method, self.prune_limit, self.prune_decay, part)
        return part

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what they were smoothed from, for readers."""
        releases.measured = Measured(*more)
        return releases

    def intervals(self) -> Fold:
        """Less noise in larger groups, and what smoothing a group has flattened; tests bound what was pruned."""
        grid = float(Fraction(self.grid))
        scales = np.where(self.weights[1:] > 0, self.scales[1:] * grid, 0.0)[[PASSES - 1, ENDS - 1]]
        decay = self.prune_decay if self.pruning == "privtree" else 0
        most = (self.prune_limit + (self.forest.height - 1) * decay) * grid
        left = pegasus_parameters.noise_left(self.smoothing, shared=self.shares_noise)
        weights = self.weights[PASSES]
        return Pruned(
            self.outputs, Law("laplace", grid), left, weights, scales, most, self.prune_scale * grid
        )

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        ragged = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])
        return [
            cls(Event(epsilon="5"), hierarchy=Hierarchy.balanced(8)),
            cls(Event(epsilon="5"), hierarchy=ragged, pruning="privtree", prune_below=30),
            cls(
                WEvent(epsilon="20", window=3),
                hierarchy=ragged,
                prune_below=60,
                smoother="average",
                longest_group=9,
            ),
            cls(User(epsilon="3000", horizon=9000), hierarchy=Hierarchy.balanced(3, 3), pruning="none"),
            cls(Event(epsilon="2", adjacency="replace"), hierarchy=Hierarchy.from_parents({"one": None})),
        ]
