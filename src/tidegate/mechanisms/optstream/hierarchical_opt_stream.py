"""HierarchicalOptStream: OptStream on every node of a hierarchy, released so that parts add up to their whole.

All nodes have the same sample times. Adaptive ones follow the roots: one sparse vector for all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate.core.charges import Integers
from tidegate.core.mechanism import Floats, Matrix
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, positive
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.feature_fit import (
    TOLERANCE,
    nonnegative_leaves,
    nonnegative_together,
    norm_of,
    reconcile,
)
from tidegate.mechanisms.optstream.feature_trees import equal_parts, whole_period
from tidegate.mechanisms.optstream.opt_stream import OptStream, Sampler, State
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.policy import WEvent
from tidegate.structures.hierarchy import Hierarchy, columns_of
from tidegate.structures.kernels.hierarchy import sum_up


class Nodes(NamedTuple):
    """The hierarchy as the solver wants it: leaves by column, then inner nodes, children before parents."""

    leaves: Any  # the node of each column, as the hierarchy numbers them
    parents: Any  # of each node, as the hierarchy numbers them
    above: Any  # of each leaf: which inner node is above it; −1: none
    inner: Any  # the same of each inner node
    roots: Any  # which nodes are roots


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
    samples, times, adaptive, threshold, features, split, reconstruction, weights, nonnegative, causal
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
    private for units that move; :class:`PerLeafOptStream` is for units that stay in one leaf.

    Error
    -----
    At the leaves about that of :class:`OptStream` with the leaves' part of the budget, less what the sums
    tell. Time O(n·w) a period for n leaves; where values would be negative O(n²·w) for each round of the
    optimisation.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> tree = Hierarchy.from_parents({"France": None, "north": "France", "south": "France"})
    >>> mechanism = HierarchicalOptStream(WEvent(epsilon="1", window=12), hierarchy=tree, samples=3)
    >>> final = Session(mechanism).push_batch(np.full((24, 2), 500)).final.values
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
        put(self, "columns", columns_of(self.hierarchy, self.columns))
        height = self.forest.height
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
        """The part of the budget of each node, in the solver's order; those on a path to a leaf add up to at most 1."""
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

    # nodes are measured in place of columns ------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> Nodes:
        """Where the nodes stand."""
        forest, order, leaves = self.forest, self.order, len(self.forest.leaves)
        place = {int(node): at - leaves for at, node in enumerate(order)}
        above = [place[parent] if (parent := forest.parents[int(node)]) >= 0 else -1 for node in order]
        return Nodes(
            np.array(forest.leaves, dtype=np.int64),
            np.array(forest.parents, dtype=np.int64),
            np.array(above[:leaves], dtype=np.int64),
            np.array(above[leaves:], dtype=np.int64),
            np.array([forest.parents[int(node)] < 0 for node in order]),
        )

    @cached_property
    def precisions(self) -> Floats:
        """How precise a sample of each node is, compared with one that has the whole budget."""
        return np.array([float(share) for share in self.node_shares]) ** 2

    def _sampler(self) -> Sampler:
        return Sampler(self, int(self.nodes.roots.sum()))

    def _measured(self, rows: Matrix) -> Matrix:
        """All nodes of each step."""
        found = np.empty((len(rows), self.outputs), dtype=np.int64)
        sum_up(rows, self.nodes.leaves, self.nodes.parents, found)
        return found[:, self.order]

    def _watched(self, measured: Matrix) -> Matrix:
        return np.ascontiguousarray(measured[:, self.nodes.roots])

    def _leaves(self, noisy: Matrix) -> Floats:
        """The leaves that fit measurements of all nodes best, one row each."""
        return self.reconciled(noisy.astype(np.float64), nonnegative=False)

    def reconciled(self, known: Floats, nonnegative: bool) -> Floats:
        """The leaves (rows × leaves) that fit estimates of all nodes best."""
        columns, leaves = self.columns, np.empty((len(known), self.columns))
        nodes, inner, variances = self.nodes, self.precisions[columns:], self._leaf_variances
        reconcile(known, columns, nodes.above, nodes.inner, inner, variances, nonnegative, leaves)
        return leaves

    @cached_property
    def _leaf_variances(self) -> Floats:
        return np.array([float(share) for share in self.node_shares[: self.columns]]) ** -2

    def _nodes(self, values: Floats) -> Floats:
        """Every node as the sum of its leaves."""
        nodes: Floats = self.forest.sum(values)
        return nodes

    def _optimise(
        self, state: State, known: Floats, curve: Reconstruction, variances: Floats, precisions: Floats
    ) -> Floats:
        """Fit leaves, nodes and features together.

        Level weights are the same for samples and features, so leaves can be estimated first and curves fitted to each
        of them. Only where a value comes out negative all leaves must be optimised together.
        """
        fitted = self._fitted(known, curve, variances, precisions, self._leaves(state.sums), False)
        if not self.nonnegative or not (fitted < 0).any():
            return fitted
        length = len(fitted)
        if not self.tree.nested:
            norm = norm_of(self.tree.until(length).members, variances, precisions)
            return nonnegative_leaves(fitted, self.coupling, norm, TOLERANCE)
        found, tree = np.empty_like(fitted), (self.tree.node_of[:length], self.tree.parents)
        nonnegative_together(fitted, self.coupling, *tree, precisions, variances, TOLERANCE, found)
        return found

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        ragged = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])
        day = (equal_parts(12, 3), whole_period(12))
        return [
            cls(WEvent(epsilon="1", window=12), hierarchy=Hierarchy.balanced(4), samples=3, features=day),
            cls(WEvent(epsilon="3", window=5), hierarchy=ragged, samples=2, causal="last period"),
            cls(
                WEvent(epsilon="99", window=12),
                hierarchy=ragged,
                samples=5,
                adaptive=True,
                threshold=90,
                levels=(1, 2, 3, 4),
            ),
        ]
