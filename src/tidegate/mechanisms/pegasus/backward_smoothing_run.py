"""BackwardSmoothing on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.mechanisms.mechanism import Matrix, Run, State
from tidegate.noise import laplace
from tidegate.releases import Measured, Releases

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing


class BackwardSmoothingRun(Run):
    """BackwardSmoothing at work."""

    mechanism: BackwardSmoothing

    def _begin(self, state: State | None) -> None:
        self._charge = self.ledger.units // self.mechanism.units
        nothing = np.zeros((0, self._columns), dtype=np.int64)
        self._last: Matrix = (state or {}).get("last", nothing)  # the noisy values of the last k steps

    def _state(self) -> State:
        return {"last": self._last}

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps, back = len(matrix), self.mechanism.back
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        noisy = matrix + laplace(self.source, "backward", first_step, self.mechanism.scale, matrix.shape)
        known = np.concatenate([self._last, noisy])
        sums = np.concatenate([np.zeros((1, self._columns), dtype=np.int64), np.cumsum(known, axis=0)])
        ends = len(self._last) + 1 + np.arange(steps)
        begins = np.maximum(ends - back - 1, 0)
        counts = (ends - begins)[:, np.newaxis]
        values = (sums[ends] - sums[begins]) / counts * self._grid  # whole numbers: differences are exact
        self._last = known[max(0, len(known) - back) :].copy() if back else known[:0]
        numbers = np.arange(first_step, first_step + steps, dtype=np.int64)
        measured = Measured(
            noisy * np.float64(self._grid),
            np.repeat(numbers[:, np.newaxis], self._columns, axis=1),
            np.broadcast_to(np.int64(1), matrix.shape),
        )
        return self._all_fresh(first_step, values, self.mechanism.scale * self._grid, units, measured)
