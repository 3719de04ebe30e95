"""HierarchicalPeGaSus at work: sum up, prune, then measure, group and smooth what is left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.pegasus.grouper_run import BLOCK, GrouperRun
from tidegate.mechanisms.pegasus.kernels import pruning as loop
from tidegate.mechanisms.run import Matrix, State
from tidegate.noise import laplace
from tidegate.releases import Measured, Releases, Status
from tidegate.structures.kernels.hierarchy import sum_up

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus


class HierarchicalPeGaSusRun(GrouperRun):
    """HierarchicalPeGaSus at work."""

    mechanism: HierarchicalPeGaSus

    def _begin(self, state: State | None) -> None:
        super()._begin(state)
        mechanism, forest = self.mechanism, self.mechanism.forest
        if mechanism.calibration == "paper":
            self._charge *= math.ceil(1000 * (mechanism.guarantee.loss or 1))
        self._leaves = np.array(forest.leaves, dtype=np.int64)
        self._parents = np.array(forest.parents, dtype=np.int64)
        self._levels = np.array(forest.levels, dtype=np.int64)
        self._shown = (int(Status.FRESH), int(Status.PRUNED))
        self._method = loop.PRIVTREE if mechanism.pruning == "privtree" else loop.COUNTS

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps, nodes = len(matrix), self.mechanism.outputs
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        values, noisy = np.empty((steps, nodes)), np.empty((steps, nodes))
        groups, weights = (np.empty((steps, nodes), dtype=np.int64) for _ in range(2))
        scale, status = np.empty(steps), np.empty(steps, dtype=np.int8)
        length = max(1, BLOCK // nodes)
        with self._closing_groups():
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
        return Releases(
            first_step,
            values,
            status,
            None,
            scale,
            units,
            self.ledger.unit,
            measured=Measured(noisy, groups, weights),
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
        counts = np.empty((len(rows), mechanism.outputs), dtype=np.int64)
        sum_up(rows, self._leaves, self._parents, counts)
        part = self._prune(rows, counts, step)
        scales = np.empty(counts.shape)
        loop.look_up(
            part, mechanism.scales, mechanism.weights, self._grid, self._shown, scales, weights, scale, status
        )
        measured = laplace(self.source, "perturber", step, scales, counts.shape)
        loop.measure(part, counts, self._grid, measured, noisy)
        tests = laplace(self.source, "test", step, grouping.question_scale, counts.shape)
        thresholds = laplace(self.source, "threshold", step, grouping.threshold_scale, counts.shape)
        self._grouper.advance(step, counts, measured, weights, tests, thresholds, values, groups)

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
            sum_up(np.maximum(rows, 0), self._leaves, self._parents, tested)
        else:
            tested = counts
        limit, decay = mechanism.prune_limit, mechanism.prune_decay
        loop.prune(
            tested, noise, self._parents, self._levels, forest.is_leaf, self._method, limit, decay, part
        )
        return part
