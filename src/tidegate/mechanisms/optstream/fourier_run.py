"""Fourier at work on a ledger."""

from __future__ import annotations

import numpy as np

from tidegate.mechanisms.mechanism import Matrix
from tidegate.mechanisms.optstream.fourier import ONE, Fourier, real_fourier
from tidegate.mechanisms.optstream.period_blocks_run import Floats, Integers
from tidegate.mechanisms.optstream.periods_run import PeriodicRun


class FourierRun(PeriodicRun):
    """Fourier at work."""

    mechanism: Fourier

    def _prepare(self) -> None:
        self._bound = 2**60 // ONE // self._w  # of values: coefficients stay below 2^60
        self._basis = real_fourier(self._w, self.mechanism.sum_count)

    def _add_to_sums(self, measured: Matrix, position: int, sums: Integers) -> None:
        rows = np.clip(measured, -self._bound, self._bound)
        sums += self.mechanism.rows[:, position : position + len(rows)] @ rows

    def _add_periods_to_sums(self, measured: Matrix, sums: Integers) -> None:
        rows = np.clip(measured, -self._bound, self._bound).reshape(len(sums), self._w, -1)
        sums += self.mechanism.rows @ rows

    def _finish(self, known: Floats, times: Integers, sums: Integers, length: int) -> Floats:
        measured = sums / ONE
        if length < self._w and self._memory["has_curve"]:
            # what a period that was cut short lacks, the one before lends
            measured = measured + self._basis[:, length:] @ self._memory["curve"][length:]
        values = np.einsum("kt,pkc->ptc", self._basis[:, :length], measured)
        return np.asarray(np.maximum(values, 0.0) if self.mechanism.nonnegative else values)
