"""Factorization: running and decayed sums as B·(C·x + z), with Gaussian noise z that cancels in later sums."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.counters.tree import every_step
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.counters import factorization as configured
from tidegate.mechanisms.counters import toeplitz
from tidegate.mechanisms.counters.kernels import factorization as loop
from tidegate.mechanisms.counters.tree_run import refuse_beyond
from tidegate.noise import gaussian
from tidegate.noise.entropy import Source
from tidegate.queries.decayed import Exponential

CELLS = 1 << 15  # measurements that a batch handles at once
STREAM = "factorization"
OWN, STEP = 0, 1  # positions in the numbers of a state: steps that were measured, and the last of them


class BltState(NamedTuple):
    """All that a BLT carries from step to step: a few buffers on either side of the noise."""

    numbers: Any
    whole: Any  # SECRET: discounted sums of raw values, the whole part
    part: Any  # SECRET: and 31 binary places
    buffers: Any  # the same of the estimates
    previous: Any  # the last estimate
    last: Any  # the last sum
    impulse: Any  # what a single noise has become: public, for the standard deviation
    memory: Any


class BandState(NamedTuple):
    """All that bands carry from step to step."""

    numbers: Any
    history: Any  # SECRET: the last raw steps, one less than there are bands
    estimates: Any  # what measurements say of the last steps
    last: Any  # the last sum, where sums are carried on


@dataclass(frozen=True)
class Factorization(configured.Factorization):
    """Sums with correlated noise; :class:`tidegate.mechanisms.Factorization` has parameters and privacy.

    A step that is passed over adds nothing to a running sum and is not measured. Where sums decay it is measured as an
    empty one.
    """

    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False  # the noise of a step is in what the step releases

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> BltState | BandState:
        """Nothing was measured."""
        d, numbers = self.columns, np.array([0, first - 1])
        if self.method != "blt":
            bands, depth = len(self.coefficients), max(len(self.coefficients), len(self._weights))
            history = np.zeros((bands - 1, d), dtype=np.int64)
            return BandState(numbers, history, np.zeros((depth - 1, d)), np.zeros(d))
        k = self.buffers
        exact = (np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64))
        return BltState(numbers, *exact, np.zeros((d, k)), np.zeros(d), np.zeros(d), np.zeros(k), np.zeros(3))

    def public(self, state: BltState | BandState, first: int, count: int) -> Charges:
        """Every step costs the same, and `horizon` of them can be measured."""
        if count:
            refuse_beyond(self.length, int(state.numbers[OWN]) + self._passed(state, first), count)
        return Charges(first, np.ones(count, dtype=np.int64))

    def _passed(self, state: BltState | BandState, first: int) -> int:
        """How many empty steps are measured before `first`."""
        decays = self.decay is not None and state.numbers[OWN] > 0
        return first - 1 - int(state.numbers[STEP]) if decays else 0

    def advance(self, state: BltState | BandState, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure exactly, then recover; a block of steps at a time."""
        count, passed = len(rows), self._passed(state, first) if len(rows) else 0
        given = np.concatenate([np.zeros((passed, self.columns), dtype=np.int64), rows]) if passed else rows
        values, deviations = np.empty(given.shape), np.empty(len(given))
        length = max(1, CELLS // self.columns)
        for start in range(0, len(given), length):
            part = slice(start, start + length)
            step = first - passed + start
            self._block(state, given[part], step, noise.source, values[part], deviations[part])
        if count:
            state.numbers[STEP] = first + count - 1
        values *= float(Fraction(self.grid))
        return every_step(first, values[passed:], deviations[passed:])

    # the two methods ---------------------------------------------------------------------------------------------

    def _block(
        self,
        state: BltState | BandState,
        rows: Matrix,
        first: int,
        source: Source,
        values: Floats,
        deviations: Floats,
    ) -> None:
        """Measure and recover some steps, in grid units; deviations in the unit of the values."""
        noise = gaussian(source, STREAM, first, self.sigma, rows.shape)
        limited = loop.clamp(rows, self.limit)
        if isinstance(state, BltState):
            self._blt(state, limited, noise, values, deviations)
        else:
            self._bands(state, limited, noise, values, deviations)
        state.numbers[OWN] += len(rows)

    def _blt(self, state: BltState, rows: Matrix, noise: Matrix, values: Floats, deviations: Floats) -> None:
        blt, measured, own = self.buffered, np.empty(rows.shape), int(state.numbers[OWN]) + 1
        decay, output = np.array(blt.decay), np.array(blt.output)
        theta, omega = 1.0 - blt.gap, blt.omega
        loop.measure_blt(rows, decay, output, self.places, state.whole, state.part, noise, measured)
        loop.recover_blt(measured, theta, omega, state.buffers, state.previous, state.last, values)
        unit = self.noise_deviation
        loop.deviations_blt(own, theta, omega, state.impulse, state.memory, unit, deviations)

    def _bands(
        self, state: BandState, rows: Matrix, noise: Matrix, values: Floats, deviations: Floats
    ) -> None:
        steps, own, measured = len(rows), int(state.numbers[OWN]), np.empty(rows.shape)
        history, unit = np.concatenate([state.history, rows]), 2.0**-toeplitz.PLACES
        loop.measure_toeplitz(history, steps, self.coefficients, noise, unit, measured)
        state.history[:] = history[steps:]
        estimates = np.concatenate([state.estimates, np.empty(rows.shape)])
        inverse, fade = self.coefficients * unit, 1.0
        if isinstance(self.decay, Exponential):
            fade = float(self.decay.factor)
        loop.recover_toeplitz(measured, inverse, estimates, fade, self._weights, state.last, values)
        state.estimates[:] = estimates[steps:]
        deviations[:] = self._spread[own : own + steps]

    @cached_property
    def _weights(self) -> Floats:
        """Of each age in a decayed sum; empty where the last sum is carried on."""
        if self.decay is None or isinstance(self.decay, Exponential):
            return np.zeros(0)
        return np.asarray(self.decay.by_age(self.length), dtype=np.float64)

    @cached_property
    def _spread(self) -> Floats:
        """The standard deviation of every step's sum, for bands."""
        spread: Floats = np.sqrt(np.cumsum(self.response(self.length) ** 2)) * self.noise_deviation
        return spread

    def intervals(self) -> Fold:
        """Every value is the truth and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
