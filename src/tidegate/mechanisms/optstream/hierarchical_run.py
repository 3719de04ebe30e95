"""HierarchicalOptStream at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import Matrix
from tidegate.mechanisms.optstream import feature_fit as solver
from tidegate.mechanisms.optstream.feature_fit import TOLERANCE, nonnegative_leaves, norm_of
from tidegate.mechanisms.optstream.opt_stream_run import OptStreamRun
from tidegate.mechanisms.optstream.period_blocks_run import Floats, Integers
from tidegate.structures.kernels.hierarchy import sum_up

if TYPE_CHECKING:
    from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream


class HierarchicalOptStreamRun(OptStreamRun):
    """HierarchicalOptStream at work, with samples of all nodes at the same times."""

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
            False,
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
                if not self._tree.nested:
                    norm = norm_of(self._tree.until(length).members, variances, precisions)
                    final[period] = nonnegative_leaves(best, self._coupling, norm, TOLERANCE)
                    continue
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
