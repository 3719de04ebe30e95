"""HierarchicalOptStream: OptStream on every node of a hierarchy, released so that parts add up to their whole.

All nodes have the same sample times. Adaptive ones follow the roots: one sparse vector for all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate._mechanisms.optstream.opt_stream import OptStream, Sampler, State
from tidegate.core.mechanism import Floats, Matrix
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.optstream import hierarchical_opt_stream as configured
from tidegate.mechanisms.optstream.feature_fit import nonnegative_leaves, norm_of
from tidegate.mechanisms.optstream.hierarchical_run import TOLERANCE
from tidegate.mechanisms.optstream.kernels import features as solver
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.structures.kernels.hierarchy import sum_up


class Nodes(NamedTuple):
    """The hierarchy as the solver wants it: leaves by column, then inner nodes, children before parents."""

    leaves: Any  # the node of each column, as the hierarchy numbers them
    parents: Any  # of each node, as the hierarchy numbers them
    above: Any  # of each leaf: which inner node is above it; −1: none
    inner: Any  # the same of each inner node
    roots: Any  # which nodes are roots


@dataclass(frozen=True)
class HierarchicalOptStream(OptStream, configured.HierarchicalOptStream):
    """Measure all nodes at each sample; :class:`tidegate.mechanisms.HierarchicalOptStream` has parameters and privacy."""

    def validate(self) -> None:
        """Samples per leaf are another mechanism: `PerLeafOptStream`."""
        if self.per_leaf:
            raise InvalidParameter(
                "per_leaf", True, "False: all nodes share their samples", "use PerLeafOptStream"
            )
        super().validate()

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
        solver.reconcile(known, columns, nodes.above, nodes.inner, inner, variances, nonnegative, leaves)
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
        solver.nonnegative_together(fitted, self.coupling, *tree, precisions, variances, TOLERANCE, found)
        return found
