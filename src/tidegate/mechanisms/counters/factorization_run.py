"""The factorisation mechanism at work: charge, draw, measure exactly, recover."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.counters import toeplitz
from tidegate.mechanisms.counters.tree import refuse_beyond
from tidegate.mechanisms.counters.tree_run import CounterRun
from tidegate.mechanisms.mechanism import Matrix, State
from tidegate.noise import gaussian
from tidegate.queries.decayed import Exponential
from tidegate.releases import Values

if TYPE_CHECKING:
    from tidegate.mechanisms.counters.factorization import Factorization

CELLS = 1 << 15  # measurements that a batch handles at once


class FactorizationRun(CounterRun):
    """What both kinds of factors share."""

    mechanism: Factorization

    def _within_horizon(self, steps: int) -> None:
        refuse_beyond(self.mechanism.length, self.step - self.origin, steps)
        super()._within_horizon(steps)

    def _answers(self, matrix: Matrix, first_step: int) -> tuple[Values, Values]:
        from tidegate.mechanisms.counters import factorization as loop

        values = np.empty(matrix.shape)
        deviations = np.empty(len(matrix))
        block = max(1, CELLS // self._columns)
        for start in range(0, len(matrix), block):
            rows = matrix[start : start + block]
            noise = gaussian(
                self.source, "factorization", first_step + start, self.mechanism.sigma, rows.shape
            )
            rows = loop.clamp(rows, self.mechanism.limit)
            self._answer(rows, noise, first_step + start, values[start : start + block])
            deviations[start : start + block] = self._deviations(first_step - self.origin + start, len(rows))
        values *= self._grid
        return values, deviations

    @abstractmethod
    def _answer(self, rows: Matrix, noise: Matrix, first_step: int, values: Values) -> None:
        """Measure and recover, in grid units."""

    @abstractmethod
    def _deviations(self, first_step: int, steps: int) -> Values:
        """Standard deviations of the answers, in the values' unit; `first_step` counts the run's own steps."""


class BltRun(FactorizationRun):
    """A BLT at work: a few buffers on either side."""

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        gap, omega = mechanism.buffered.gap, mechanism.buffered.omega
        self._theta, self._omega = 1.0 - gap, omega
        self._decay = mechanism.coefficients[: len(gap)].copy()
        self._output = mechanism.coefficients[len(gap) :].copy()
        shape = (self._columns, len(gap))
        saved = state or {}
        self._whole: npt.NDArray[np.int64] = saved.get("whole", np.zeros(shape, dtype=np.int64))
        self._part: npt.NDArray[np.int64] = saved.get("part", np.zeros(shape, dtype=np.int64))
        self._buffers: Values = saved.get("buffers", np.zeros(shape))
        self._previous: Values = saved.get("previous", np.zeros(self._columns))
        self._last: Values = saved.get("last", np.zeros(self._columns))
        self._impulse: Values = saved.get("impulse", np.zeros(len(gap)))
        self._memory: Values = saved.get("memory", np.zeros(3))

    def _state(self) -> State:
        return {
            "whole": self._whole,
            "part": self._part,
            "buffers": self._buffers,
            "previous": self._previous,
            "last": self._last,
            "impulse": self._impulse,
            "memory": self._memory,
        }

    def _answer(self, rows: Matrix, noise: Matrix, first_step: int, values: Values) -> None:
        from tidegate.mechanisms.counters import factorization as loop

        measured = np.empty(rows.shape)
        places = self.mechanism.places
        loop.measure_blt(rows, self._decay, self._output, places, self._whole, self._part, noise, measured)
        loop.recover_blt(
            measured, self._theta, self._omega, self._buffers, self._previous, self._last, values
        )

    def _deviations(self, first_step: int, steps: int) -> Values:
        from tidegate.mechanisms.counters import factorization as loop

        deviations = np.empty(steps)
        unit = self.mechanism.noise_deviation
        loop.deviations_blt(
            first_step, self._theta, self._omega, self._impulse, self._memory, unit, deviations
        )
        return deviations


class ToeplitzRun(FactorizationRun):
    """Bands at work: the last steps are remembered."""

    def _begin(self, state: State | None) -> None:
        mechanism, saved = self.mechanism, state or {}
        bands, decay = len(mechanism.coefficients), mechanism.decay
        self._inverse = mechanism.coefficients * 2.0**-toeplitz.PLACES
        self._fade = float(decay.factor) if isinstance(decay, Exponential) else 1.0
        finite = decay is not None and not isinstance(decay, Exponential)
        self._weights: Values = (
            decay.by_age(mechanism.length) if decay is not None and finite else np.zeros(0)
        )
        shape = (bands - 1, self._columns)
        depth = (max(bands, len(self._weights)) - 1, self._columns)
        self._history: Matrix = saved.get("history", np.zeros(shape, dtype=np.int64))
        self._estimates: Values = saved.get("estimates", np.zeros(depth))
        self._last: Values = saved.get("last", np.zeros(self._columns))
        response = mechanism.response(mechanism.length)
        self._spread = np.sqrt(np.cumsum(response**2)) * mechanism.noise_deviation

    def _state(self) -> State:
        return {"history": self._history, "estimates": self._estimates, "last": self._last}

    def _answer(self, rows: Matrix, noise: Matrix, first_step: int, values: Values) -> None:
        from tidegate.mechanisms.counters import factorization as loop

        steps = len(rows)
        history = np.concatenate([self._history, rows])
        measured = np.empty(rows.shape)
        unit = 2.0**-toeplitz.PLACES
        loop.measure_toeplitz(history, steps, self.mechanism.coefficients, noise, unit, measured)
        self._history = history[steps:].copy()
        estimates = np.concatenate([self._estimates, np.empty(rows.shape)])
        loop.recover_toeplitz(
            measured, self._inverse, estimates, self._fade, self._weights, self._last, values
        )
        self._estimates = estimates[steps:].copy()

    def _deviations(self, first_step: int, steps: int) -> Values:
        return self._spread[first_step - 1 : first_step - 1 + steps]
