"""HierarchicalPeGaSus: PeGaSus on every node of a forest of aggregations, small branches pruned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, positive, show, whole
from tidegate.ledger import Ledger
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms.grouper import LONGEST, Grouper
from tidegate.mechanisms.kernels import hierarchy as loop
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Row, Run, State
from tidegate.mechanisms.pegasus import BLOCK, LARGEST_SCALE, check_grouping, share
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import laplace
from tidegate.policy import Event, Guarantee, Policy, User, WEvent
from tidegate.queries.hierarchy import Hierarchy
from tidegate.releases import GroupedRelease, GroupedReleases, Status

PRUNINGS = ("counts", "privtree", "none")
LN2 = Fraction(6_931_472, 10_000_000)  # a little above ln 2


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
        A :class:`tidegate.queries.Hierarchy`. The releases have a column for each node, in the order of its
        names.
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
    threshold, threshold_factor, smoother, longest_group, snapshots
        As for :class:`PeGaSus`, with a level's budget for grouping.
    calibration
        "sound", or "paper" for the printed test of pruning, which is not private for four levels or more.

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
    in docs/proofs/hierarchical_pegasus.md. ``calibration="paper"`` tests c + Lap(2Δ/ε_pr) < β +
    Lap(2Δ/ε_pr), and its guarantee states what that loses.

    Memory and snapshots hold the raw counts of open groups, see :class:`PeGaSus`.

    Error
    -----
    Without pruning that of :class:`PeGaSus` with ε/h; a pruned branch has the error of its true counts.
    Time O(log n) a node and step, memory O(n) for open groups of n different counts.

    Examples
    --------
    >>> campus = Hierarchy.from_names(["library/1/a", "library/1/b", "library/2/c", "gym/hall"])
    >>> mechanism = HierarchicalPeGaSus(Event(epsilon="1"), hierarchy=campus)
    >>> run = mechanism.start()
    >>> releases = run.push_batch(np.zeros((20, 4), dtype=np.int64))
    >>> releases.values.shape, run.ledger.verify().ok
    ((20, 8), True)

    References
    ----------
    Chen, Machanavajjhala, Hay, Miklau: PeGaSus: Data-adaptive differentially private stream processing. CCS
    2017. Zhang, Xiao, Xie: PrivTree: A differentially private algorithm for hierarchical decompositions.
    SIGMOD 2016.
    """

    hierarchy: Hierarchy | None = None
    pruning: str = "counts"
    prune_below: ExactLike | None = None
    pruning_share: ExactLike = "0.2"
    perturber_share: ExactLike = "0.8"
    threshold: ExactLike | None = None
    threshold_factor: ExactLike = 5
    smoother: str = "median"
    longest_group: int = 2**16
    snapshots: str = "open"
    calibration: str = "sound"

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    keeps_raw_values: ClassVar[bool] = True  # the open groups' counts; see Privacy

    def validate(self) -> None:
        """Check the hierarchy and the public parameters."""
        put = object.__setattr__
        if not isinstance(self.hierarchy, Hierarchy):
            raise InvalidParameter(
                "hierarchy", self.hierarchy, "a Hierarchy", "write hierarchy=Hierarchy.from_names([…])"
            )
        leaves = len(self.hierarchy.leaves)
        if self.columns not in (1, leaves):
            raise InvalidParameter("columns", self.columns, f"the number of leaves, {leaves}", "leave it out")
        put(self, "columns", leaves)
        for name, allowed in (("pruning", PRUNINGS), ("calibration", ("sound", "paper"))):
            if getattr(self, name) not in allowed:
                raise InvalidParameter(
                    name, getattr(self, name), " or ".join(map(repr, allowed)), "leave it out"
                )
        if self.calibration == "paper" and self.pruning != "counts":
            raise InvalidParameter(
                "pruning", self.pruning, "'counts' in the printed calibration", "leave it out"
            )
        put(self, "perturber_share", share("perturber_share", self.perturber_share))
        put(self, "pruning_share", share("pruning_share", self.pruning_share))
        if self.threshold is not None:
            put(self, "threshold", positive("threshold", self.threshold))
        put(self, "threshold_factor", positive("threshold_factor", self.threshold_factor))
        if self.prune_below is not None:
            put(self, "prune_below", exact("prune_below", self.prune_below))
        check_grouping(self.smoother, self.longest_group, self.snapshots)
        put(self, "longest_group", whole("longest_group", self.longest_group, most=LONGEST))
        widest = max(
            float(self.scales.max()), self.grouping.question_scale, float(self.limit), abs(self.prune_limit)
        )
        if max(widest, self.prune_scale) > LARGEST_SCALE:
            raise InvalidParameter(
                "epsilon",
                show(self.policy.budget.total),
                f"large enough that noise stays below 2^50 grid units ({show(Fraction(self.grid))})",
                "raise epsilon, or choose a coarser grid",
            )

    # how the budget is shared ----------------------------------------------------------------------------------

    @property
    def forest(self) -> Hierarchy:
        """The hierarchy."""
        assert self.hierarchy is not None
        return self.hierarchy

    @property
    def outputs(self) -> int:
        """The columns of a release: one for each node."""
        return len(self.forest.names)

    @property
    def units(self) -> int:
        """One unit a step; a thousand in the printed calibration, so that its real loss can be written down."""
        return self.policy.steps_charged * (1 if self.calibration == "sound" else 1000)

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
        return self.pruning == "counts" and self.calibration == "sound"

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
        factor = (
            3 if self.pruning == "privtree" else 2 if self.calibration == "paper" else self.forest.height - 1
        )
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
        if self.threshold is None:
            return math.ceil(
                Fraction(self.threshold_factor) * self.sensitivity / Fraction(self.grouping.epsilon)
            )
        return math.ceil(Fraction(self.threshold) / Fraction(self.grid))

    @cached_property
    def scales(self) -> npt.NDArray[np.float64]:
        """The Perturber's noise scale by (how a node takes part, node), in grid units; rounded up."""
        found = np.ones((3, self.outputs))
        for node in range(self.outputs):
            for part, ends in ((loop.PASSES, False), (loop.ENDS, True)):
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

    @property
    def guarantee(self) -> Guarantee:
        """What is proved, under which assumptions."""
        if self.calibration == "sound" or not self.prunes:
            return super().guarantee
        return Guarantee(type(self).__name__, self.policy, self.assumptions, "paper", self.printed_loss())

    def printed_loss(self) -> Fraction:
        """How many times the budget the printed test of pruning loses on a path of counts 0 that all become Δ.

        With X − Y of two discrete Laplace values, q = exp(−1/scale), P(X − Y ≥ m) is for m ≥ 0 the sum of
        ((1−q)/(1+q))² · q^k · (k + (1+q²)/(1−q²)) over k ≥ m.
        """
        pruning, perturbing, grouping = self.budgets_of_step
        total = float(pruning + perturbing + grouping)
        q = math.exp(-1 / self.prune_scale)
        centre = (1 + q * q) / (1 - q * q)

        def log_tail(least: int) -> float:
            if least <= 0:
                return math.log1p(-math.exp(log_tail(1 - least)))
            inner = least + q / (1 - q) + centre
            return 2 * math.log((1 - q) / (1 + q)) + least * math.log(q) - math.log(1 - q) + math.log(inner)

        gained = log_tail(self.prune_limit - self.sensitivity) - log_tail(self.prune_limit)
        lost = max(gained * (self.forest.height - 1), float(pruning))
        return Fraction(math.floor(1000 * (1 + (lost - float(pruning)) / total)), 1000)

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> HierarchicalPeGaSusRun:
        """Begin, or go on with, a run."""
        if self.calibration == "paper" and ledger is None and state is None:
            ledger = UnenforcedLedger(self.policy, self.units)
        return HierarchicalPeGaSusRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        ragged = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])
        return [
            cls(Event(epsilon="5"), hierarchy=Hierarchy.balanced(8)),
            cls(Event(epsilon="5"), hierarchy=ragged, pruning="privtree", prune_below=30),
            cls(
                WEvent(epsilon="20", w=3),
                hierarchy=ragged,
                prune_below=60,
                smoother="average",
                longest_group=9,
            ),
            cls(User(epsilon="3000", horizon=9000), hierarchy=Hierarchy.balanced(3, 3), pruning="none"),
            cls(Event(epsilon="2", adjacency="replace"), hierarchy=Hierarchy.from_parents({"one": None})),
        ]


class HierarchicalPeGaSusRun(Run):
    """HierarchicalPeGaSus at work."""

    mechanism: HierarchicalPeGaSus

    def _begin(self, state: State | None) -> None:
        mechanism, forest = self.mechanism, self.mechanism.forest
        self._charge = self.ledger.units // mechanism.units
        if mechanism.calibration == "paper":
            self._charge *= math.ceil(1000 * (mechanism.guarantee.loss or 1))
        self._leaves = np.array(forest.leaves, dtype=np.int64)
        self._parents = np.array(forest.parents, dtype=np.int64)
        self._levels = np.array(forest.levels, dtype=np.int64)
        self._nodes = np.arange(len(forest.names))
        self._method = loop.PRIVTREE if mechanism.pruning == "privtree" else loop.COUNTS
        self._grouper = Grouper(
            mechanism.outputs, mechanism.limit, mechanism.longest_group, mechanism.smoother, self._grid
        )
        if state is not None:
            self._grouper.restore(state)

    def _state(self) -> State:
        if self.mechanism.snapshots == "closed":
            self._grouper.close()
        return self._grouper.state()

    def _push(self, row: Row) -> GroupedRelease:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> GroupedReleases:
        steps, nodes = len(matrix), self.mechanism.outputs
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        values, noisy = np.empty((steps, nodes)), np.empty((steps, nodes))
        groups, weights = (np.empty((steps, nodes), dtype=np.int64) for _ in range(2))
        scale, status = np.empty(steps), np.empty(steps, dtype=np.int8)
        length = max(1, BLOCK // nodes)
        for start in range(0, steps, length):
            block = slice(start, start + length)
            outputs = (
                values[block],
                noisy[block],
                groups[block],
                weights[block],
                scale[block],
                status[block],
            )
            self._release(matrix[block], first_step + start, *outputs)
        return GroupedReleases(
            first_step,
            values,
            status,
            None,
            scale,
            units,
            self.ledger.unit,
            noisy=noisy,
            groups=groups,
            weights=weights,
        )

    def _release(
        self,
        rows: Matrix,
        step: int,
        values: Any,
        noisy: Any,
        groups: Any,
        weights: Any,
        scale: Any,
        status: Any,
    ) -> None:
        mechanism, grouping = self.mechanism, self.mechanism.grouping
        counts = np.empty((len(rows), len(self._nodes)), dtype=np.int64)
        loop.sum_up(rows, self._leaves, self._parents, counts)
        part = self._prune(rows, counts, step)
        scales = mechanism.scales[part, self._nodes]
        measured = laplace(self.source, "perturber", step, scales, counts.shape)
        measured += counts
        measured[part == loop.PRUNED] = 0
        tests = laplace(self.source, "test", step, grouping.question_scale, counts.shape)
        thresholds = laplace(self.source, "threshold", step, grouping.threshold_scale, counts.shape)
        weights[:] = mechanism.weights[part, self._nodes]
        self._grouper.advance(step, counts, measured, weights, tests, thresholds, values, groups)
        np.multiply(measured, self._grid, out=noisy)
        scale[:] = np.where(part == loop.PRUNED, 0.0, scales).max(axis=1) * self._grid
        status[:] = np.where((part == loop.PRUNED).any(axis=1), Status.PRUNED, Status.FRESH)

    def _prune(self, rows: Matrix, counts: Matrix, step: int) -> npt.NDArray[np.int8]:
        """How each node takes part in each step."""
        mechanism, forest = self.mechanism, self.mechanism.forest
        part = np.empty(counts.shape, dtype=np.int8)
        if not mechanism.prunes:
            part[:] = np.where(forest.is_leaf, loop.ENDS, loop.PASSES)
            return part
        noise = laplace(self.source, "pruning", step, mechanism.prune_scale, counts.shape)
        if mechanism.calibration == "paper":
            noise -= laplace(self.source, "pruning threshold", step, mechanism.prune_scale, counts.shape)
        if mechanism.pruning == "privtree":  # its proof needs counts that do not grow on the way down
            tested = np.empty_like(counts)
            loop.sum_up(np.maximum(rows, 0), self._leaves, self._parents, tested)
        else:
            tested = counts
        limit, decay = mechanism.prune_limit, mechanism.prune_decay
        loop.prune(
            tested, noise, self._parents, self._levels, forest.is_leaf, self._method, limit, decay, part
        )
        return part
