"""Uniform on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Row, State
from tidegate.mechanisms.shared_noise import SharedNoise, SharingRun
from tidegate.noise import add_laplace, laplace, laplace_one
from tidegate.releases import Release, Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.plain.uniform import Uniform

FRESH = Status.FRESH  # named once: to look it up takes as long as a call


class UniformRun(SharingRun):
    """Uniform at work."""

    mechanism: Uniform

    def _begin(self, state: State | None) -> None:
        self._draw = self.mechanism.own_noise.draw
        self._single = self._draw is laplace and self._columns == 1
        self._shown_scale = self.mechanism.shown_scale
        self._begin_measuring("uniform", state, np.zeros(self._columns, dtype=np.int64))

    def _state(self) -> State:
        if self._noise is None:
            return {}
        return {
            "noise": self._noise.numbers(),
            "last": np.atleast_1d(self._last),
            "measured": self._measured_at,
        }

    def _push(self, row: Row) -> Release:
        if self._noise is not None:
            return self._push_shared(row, self._noise)
        step, scale = self.step, self.mechanism.scale
        self.ledger.charge(step, self._charge)
        if self._single:  # the quick way for scalar streams
            noise = laplace_one(self.source, "uniform", step, 0, scale)
            values = np.array(((row.item() + noise) * self._grid,))
        else:
            drawn = self._draw(self.source, "uniform", step, scale, (self._columns,))
            values = np.multiply(row + drawn, self._grid, dtype=np.float64)
        return Release(step, values, FRESH, step, self._shown_scale, self._charge, self.ledger.unit)

    def _push_shared(self, row: Row, noise: SharedNoise) -> Release:
        step, grid = self.step, self._grid
        units = noise.pay(step)
        if units < 0:
            scale = self._shown_scale if self._measured_at else 0.0
            values = np.multiply(np.atleast_1d(self._last), grid, dtype=np.float64)
            return Release(step, values, Status.APPROXIMATED, self._measured_at, scale, 0, self.ledger.unit)
        if self._single:
            self._last = last = row.item() + noise.draw_one(step)
            values = np.array((last * grid,))
        else:
            self._last = row + noise.draw(step)
            values = np.multiply(self._last, grid, dtype=np.float64)
        self._measured_at = step
        return Release(step, values, FRESH, step, self._shown_scale, units, self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._noise is not None:
            return self._push_batch_shared(matrix, first_step, self._noise)
        self.ledger.charge_batch(first_step, np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, first_step)

    def _push_batch_shared(self, matrix: Matrix, first_step: int, noise: SharedNoise) -> Releases:
        if not noise.steady:
            return self._push_one_by_one(matrix, noise)
        steps = len(matrix)
        units = noise.pay_all(first_step, steps, first_step, steps)
        drawn = noise.draw_all(first_step, steps)
        if steps:
            self._last, self._measured_at = matrix[-1] + drawn[-1], first_step + steps - 1
        return self._all_fresh(first_step, add_noise(matrix, drawn, self._grid), self._shown_scale, units)

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        if self._noise is not None:
            return self._repeat_shared(matrix, length, charge, self._noise)
        charge(np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, 1)  # one step is as good as another: nothing begins afresh

    def _repeat_shared(self, matrix: Matrix, length: int, charge: ChargeAll, noise: SharedNoise) -> Releases:
        """Blocks whose steps share noise: each is one group, and the next one begins afresh."""
        units = self._charge_blocks(len(matrix), length, length, charge)
        drawn, _ = noise.law.draw(self.source, "uniform", 1, noise.law.start(), len(matrix))
        return self._all_fresh(1, add_noise(matrix, drawn, self._grid), self._shown_scale, units)

    def _measured(self, matrix: Matrix, first_step: int) -> Releases:
        """Every step with noise, when it is paid for."""
        if self._draw is laplace:
            values = add_laplace(self.source, "uniform", first_step, self.mechanism.scale, matrix, self._grid)
        else:
            noise = self._draw(self.source, "uniform", first_step, self.mechanism.scale, matrix.shape)
            values = add_noise(matrix, noise, self._grid)
        units = np.broadcast_to(np.int64(self._charge), len(matrix))
        return self._all_fresh(first_step, values, self._shown_scale, units)
