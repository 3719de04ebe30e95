"""SlidingWindowTree at work on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import Matrix, Run, State
from tidegate.releases import Releases
from tidegate.structures.clamping import summable

if TYPE_CHECKING:
    from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree

CELLS = 1 << 16


class SlidingWindowTreeRun(Run):
    """SlidingWindowTree at work."""

    mechanism: SlidingWindowTree

    def _begin(self, state: State | None) -> None:
        mechanism, columns = self.mechanism, self._columns
        self._draw = mechanism.own_noise.draw
        self._charge = self.ledger.units // mechanism.units
        fresh: State = {
            "sums": np.zeros((mechanism.levels, columns), dtype=np.int64),
            "nodes": np.zeros((int(mechanism.offsets[-1]), columns)),
            "prefix": np.zeros((mechanism.window, columns)),
            "suffix": np.zeros((mechanism.window, columns)),
        }
        self._tree = {**fresh, **(state or {})}

    def _state(self) -> State:
        return self._tree

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        from tidegate.mechanisms.counters import sliding_window_tree as trees

        mechanism, steps = self.mechanism, len(matrix)
        own = first_step - self.origin  # nodes and blocks are counted from the first step of this run
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        values = np.empty(matrix.shape)
        length = max(1, CELLS // self._columns)
        blocks = tuple(self._tree[name] for name in trees.Blocks._fields)
        averages = mechanism.estimator == "honaker"
        shape = (mechanism.window, mechanism.offsets, mechanism.node_variances, averages, self._grid)
        for start in range(0, steps, length):
            rows = summable(matrix[start : start + length], mechanism.window)
            noise, starts = self._noise(own + start, len(rows))
            piece = values[start : start + length]
            trees.slide(rows, own + start, shape, noise, starts, blocks, piece)
        at = own - 1 + np.arange(steps)
        scale = mechanism.deviations[at % mechanism.window]
        young = at < mechanism.window
        scale[young] = mechanism.first_deviations[at[young]]
        return self._all_fresh(first_step, values, scale, units)

    def _noise(self, step: int, steps: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """The noise of all nodes that begin in these steps, level after level, and where each level's begins."""
        mechanism = self.mechanism
        drawn, starts = [], [0]
        for level in range(mechanism.levels):
            first, last = self._begun(level, step - 1), self._begun(level, step + steps - 1)
            shape = (last - first, self._columns)
            if last > first:
                drawn.append(self._draw(self.source, f"level {level}", first + 1, mechanism.scale, shape))
            starts.append(starts[-1] + last - first)
        if not drawn:
            return np.zeros((0, self._columns), dtype=np.int64), np.array(starts[:-1], dtype=np.int64)
        return np.concatenate(drawn), np.array(starts[:-1], dtype=np.int64)

    def _begun(self, level: int, step: int) -> int:
        """How many nodes of a level have begun by the end of a step."""
        blocks, inside = divmod(step, self.mechanism.window)
        return blocks * -(-self.mechanism.window >> level) + -(-inside >> level)
