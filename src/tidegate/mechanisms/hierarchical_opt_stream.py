"""HierarchicalOptStream: OptStream on every node of a hierarchy, released so that parts add up to their whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, positive
from tidegate.ledger import Ledger
from tidegate.mechanisms.feature_trees import equal_parts, whole_period
from tidegate.mechanisms.kernels import features as solver
from tidegate.mechanisms.kernels.hierarchy import sum_up
from tidegate.mechanisms.mechanism import Matrix, Mechanism
from tidegate.mechanisms.opt_stream import OptStream
from tidegate.mechanisms.opt_stream_run import OptStreamRun
from tidegate.mechanisms.period_blocks import Floats, Integers
from tidegate.policy import WEvent
from tidegate.queries.hierarchy import Hierarchy

TOLERANCE = 1e-12  # of the optimum under non-negativity, relative to the largest value


@dataclass(frozen=True)
class HierarchicalOptStream(OptStream):
    """Measure every node of a hierarchy at the samples of each period, and release values that add up.

    Samples and features are measured at all nodes, with a part of the budget for each level. The released
    leaves are those that fit all measurements best, nodes and features together, and every other node is
    released as the sum of its leaves.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the number of columns is that of the hierarchy's leaves.
    samples, times, adaptive, threshold, features, split, reconstruction, weights, nonnegative, causal, calibration
        As for :class:`OptStream`. All nodes share their sample times; adaptive ones follow the roots.
    hierarchy
        A :class:`tidegate.queries.Hierarchy`. The releases have a column for each node, in the order of its names.
    levels
        How the levels share the budget, from the roots down, as relative weights; equal by default. A leaf
        that stands higher than others also has what the levels below it would have.

    Privacy
    -------
    Unit and neighbours: the policy's. One unit changes the nodes of a level by at most Δ together, wherever
    it moves, so a level with the part r of the budget has noise of scale kΔ/(r·ε_P), and the levels on each
    path add up. One sparse vector looks at the roots, whose scores change by no more than a single stream's.
    All else as for :class:`OptStream`. Proof: docs/proofs/hierarchical_opt_stream.md.

    Departures: the paper divides by the number of levels and lets every node choose its own samples, which is not
    private for units that move.

    Error
    -----
    At the leaves about that of :class:`OptStream` with the leaves' part of the budget, less what the sums
    tell. Time O(n·w) a period for n leaves; where values would be negative O(n²·w) for each round of the
    optimisation.

    Examples
    --------
    >>> tree = Hierarchy.from_parents({"France": None, "north": "France", "south": "France"})
    >>> run = HierarchicalOptStream(WEvent(epsilon="1", w=12), hierarchy=tree, samples=3).start()
    >>> final = run.push_batch(np.full((24, 2), 500)).final.values
    >>> final.shape, bool(np.allclose(final[:, 0], final[:, 1] + final[:, 2], rtol=1e-12))
    ((24, 3), True)

    References
    ----------
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019, section 5.2.
    """

    hierarchy: Hierarchy | None = None
    levels: Sequence[ExactLike] | None = None

    def validate(self) -> None:
        """Check the hierarchy, then what an OptStream checks."""
        put = object.__setattr__
        if not isinstance(self.hierarchy, Hierarchy):
            raise InvalidParameter(
                "hierarchy", self.hierarchy, "a Hierarchy", "write hierarchy=Hierarchy.from_names([…])"
            )
        leaves, height = len(self.hierarchy.leaves), self.hierarchy.height
        if self.columns not in (1, leaves):
            raise InvalidParameter("columns", self.columns, f"the number of leaves, {leaves}", "leave it out")
        put(self, "columns", leaves)
        given = (1,) * height if self.levels is None else tuple(self.levels)
        if len(given) != height:
            raise InvalidParameter(
                "levels", len(given), f"{height} weights, one for each level", "leave it out"
            )
        weights = [positive("levels", weight) for weight in given]
        put(self, "levels", tuple(weight / sum(weights) for weight in weights))
        super().validate()

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
    def measured_columns(self) -> int:
        """Every node is measured."""
        return self.outputs

    @cached_property
    def order(self) -> Integers:
        """The nodes as the solver wants them: leaves by column, then inner nodes, children before parents."""
        forest = self.forest
        inner = [node for node in range(self.outputs - 1, -1, -1) if not forest.is_leaf[node]]
        return np.array([*forest.leaves, *inner], dtype=np.int64)

    @cached_property
    def node_shares(self) -> tuple[Fraction, ...]:
        """The part of the budget of each node, in the solver's order; those on a path to a leaf add up to 1."""
        forest, levels = self.forest, self.levels
        assert levels is not None
        shares = [Fraction(levels[level - 1]) for level in forest.levels]
        for leaf in forest.leaves:
            shares[leaf] += sum((Fraction(part) for part in levels[forest.levels[leaf] :]), Fraction(0))
        return tuple(shares[node] for node in self.order)

    @cached_property
    def coupling(self) -> Floats:
        """The precision of the leaves together (leaves × leaves), in units of a measurement with the whole budget."""
        forest, leaves = self.forest, self.forest.leaves
        below = np.array(
            [[node in forest.path(leaf) for leaf in leaves] for node in self.order], dtype=np.float64
        )
        squares = np.array([float(share) ** 2 for share in self.node_shares])
        return np.asarray(below.T @ (squares[:, np.newaxis] * below))

    @property
    def estimate_variance(self) -> float:
        """The mean variance of a leaf's estimate from one measurement of all nodes, in the same units."""
        return float(np.linalg.inv(self.coupling).diagonal().mean())

    def _scales(self, base: Fraction) -> Floats:
        return np.array([float_up(base / share) for share in self.node_shares])

    @cached_property
    def sample_scales(self) -> Floats:
        """The noise scale of a sample of each node, in the solver's order, in grid units; rounded up."""
        return self._scales(self.sensitivity / (self.shares[1] * self._epsilon))

    @cached_property
    def sum_scales(self) -> Floats:
        """The noise scale of the sums of each node, for sums × nodes."""
        base = self.sensitivity * len(self.features) / (self.shares[2] * self._epsilon)
        return np.tile(self._scales(base), self.sum_count)

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> HierarchicalOptStreamRun:
        """Begin, or go on with, a run."""
        return HierarchicalOptStreamRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        ragged = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])
        day = (equal_parts(12, 3), whole_period(12))
        return [
            cls(WEvent(epsilon="1", w=12), hierarchy=Hierarchy.balanced(4), samples=3, features=day),
            cls(WEvent(epsilon="3", w=5), hierarchy=ragged, samples=2, causal="last period"),
            cls(
                WEvent(epsilon="99", w=12),
                hierarchy=ragged,
                samples=5,
                adaptive=True,
                threshold=90,
                levels=(1, 2, 3, 4),
            ),
        ]


class HierarchicalOptStreamRun(OptStreamRun):
    """HierarchicalOptStream at work."""

    mechanism: HierarchicalOptStream

    def _prepare(self) -> None:
        mechanism = self.mechanism
        forest, order = mechanism.forest, mechanism.order
        self._order, self._leaf_nodes = order, np.array(forest.leaves, dtype=np.int64)
        self._forest_parents = np.array(forest.parents, dtype=np.int64)
        leaves = len(forest.leaves)
        place = {int(node): at - leaves for at, node in enumerate(order)}
        above = [place[parent] if (parent := forest.parents[int(node)]) >= 0 else -1 for node in order]
        self._node_of, self._parents = (
            np.array(part, dtype=np.int64) for part in (above[:leaves], above[leaves:])
        )
        shares = np.array([float(share) for share in mechanism.node_shares])
        self._variances, self._precisions = shares[:leaves] ** -2, shares[leaves:] ** 2
        self._coupling = mechanism.coupling
        self._roots = np.array([node < 0 for node in [forest.parents[int(n)] for n in order]])
        super()._prepare()

    @property
    def _watched_columns(self) -> int:
        return int(self._roots.sum())

    def _watch(self, rows: Matrix, measured: Matrix) -> Matrix:
        return np.ascontiguousarray(measured[:, self._roots])

    def _measure(self, rows: Matrix) -> Matrix:
        nodes = np.empty((len(rows), self.mechanism.outputs), dtype=np.int64)
        sum_up(rows, self._leaf_nodes, self._forest_parents, nodes)
        return nodes[:, self._order]

    def _leaves(self, noisy: Integers) -> Floats:
        leaves = np.empty((len(noisy), self._columns))
        solver.reconcile(
            noisy.astype(np.float64),
            self._columns,
            self._node_of,
            self._parents,
            self._precisions,
            self._variances,
            leaves,
        )
        return leaves

    def _leaf_sums(self, sums: Integers) -> Floats:
        periods, count, nodes = sums.shape
        return self._leaves(sums.reshape(periods * count, nodes)).reshape(periods, count, self._columns)

    def _finish(self, known: Floats, times: Integers, sums: Integers, length: int) -> Floats:
        # Level weights are the same for samples and features, so that leaves can be estimated first and curves fitted
        # to each of them; only where a value comes out negative all leaves must be optimised together.
        final = self._fit(known, times, sums, length, nonnegative=False)
        if self.mechanism.nonnegative:
            _, variances, precisions = self._reconstruction(tuple(times.tolist()), length)
            for period in np.flatnonzero((final < 0).any(axis=(1, 2))):
                best = final[period].copy()
                solver.nonnegative_together(
                    best,
                    self._coupling,
                    self._tree.node_of[:length],
                    self._tree.parents,
                    precisions,
                    variances,
                    TOLERANCE,
                    final[period],
                )
        return final

    def _expand(self, values: Floats) -> Floats:
        nodes: npt.NDArray[np.float64] = self.mechanism.forest.sum(values)
        return nodes
