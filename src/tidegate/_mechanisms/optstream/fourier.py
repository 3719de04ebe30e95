"""Fourier: measure the lowest frequencies of every period, and release the curve that they make.

Before its period ends, a step shows the curve of the last period.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tidegate._mechanisms.optstream.periods import Periods, Revised
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import Curves, Fold
from tidegate.mechanisms.optstream import fourier as configured
from tidegate.mechanisms.optstream.fourier import ONE, real_fourier
from tidegate.noise import laplace, variance_laplace
from tidegate.noise.law import Law

# positions in `State.numbers`
CURVE_END = 0  # the last step of the period whose curve is shown; 0: there is none
TORN = 1  # whether steps of this period were not seen, so that it gets no curve
LAST = 2  # the last step that was released, or may not be released any more
NUMBERS = 3


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any
    sums: Any  # SECRET: of each coefficient its noise, and what has arrived since the period began
    curve: Any  # of the last period that was seen as a whole


@dataclass(frozen=True)
class Fourier(Periods, configured.Fourier):
    """Measure K coefficients of every period; :class:`tidegate.mechanisms.Fourier` has parameters and privacy."""

    def validate(self) -> None:
        """Refuse the printed transform, which is not private; then check the parameters."""
        if self.calibration != "sound":
            raise InvalidParameter(
                "calibration", self.calibration, "'sound': printed scales are not private", "leave it out"
            )
        super().validate()

    most_spans = 3  # periods that meet a window, and one more
    noise_in_state = True  # sums begin with their noise

    def begin(self, first: int) -> State:
        """Nothing was measured; a period that has begun before `first` gets no curve."""
        numbers = np.zeros(NUMBERS, dtype=np.int64)
        numbers[TORN], numbers[LAST] = int((first - 1) % self.window > 0), first - 1
        return State(
            numbers,
            np.zeros((self.sum_count, self.columns), dtype=np.int64),
            np.zeros((self.window, self.columns)),
        )

    @cached_property
    def period_charges(self) -> tuple[int, Integers]:
        """What a period costs as a whole, and what each of its steps costs."""
        return self.charges()

    def public(self, state: State, first: int, count: int) -> Charges:
        """Steps and periods cost the same, whatever the data are."""
        return self.charged(first, count, *self.period_charges)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Add steps to the noisy coefficients, and show the curve of the period before."""
        count, w, numbers = len(rows), self.window, state.numbers
        charges, finals = self.public(state, first, count), []
        values, source = np.zeros((count, self.columns)), np.zeros(count, dtype=np.int64)
        bound = 2**60 // ONE // w  # coefficients stay below 2^60
        start = 0
        while start < count:
            period, position = divmod(first + start - 1, w)
            part = slice(start, min(count, start + w - position))
            end = position + part.stop - start
            if position == 0:
                cells = (1, state.sums.size)
                drawn = laplace(noise.source, "sums", period, self.sum_scales, cells)
                state.sums[:], numbers[TORN] = drawn.reshape(state.sums.shape), 0
            elif numbers[LAST] != first + start - 1:  # steps were passed over
                state.sums[:], numbers[TORN] = 0, 1
            if not numbers[TORN]:
                state.sums[:] += self.rows[:, position:end] @ np.clip(rows[part], -bound, bound)
            if numbers[CURVE_END]:
                shown = state.curve[position:end]
                values[part] = np.maximum(shown, 0.0) if self.nonnegative else shown
                source[part] = numbers[CURVE_END]
            numbers[LAST] = first + part.stop - 1
            if end == w and not numbers[TORN]:
                curve = self._curve(state, w)
                finals.append(self._final(state, curve))
                state.curve[:], numbers[CURVE_END] = curve, numbers[LAST]
            start = part.stop
        nothing = np.zeros(count, dtype=np.bool_)  # is a sample
        return Output(
            values * float(Fraction(self.grid)),
            self.status_of(nothing, first),
            source,
            np.where(source > 0, self.shown_scale, 0.0),
            charges.units,
            charges.spans,
            revised=tuple(self.together(finals)),
        )

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """The curve of a period that the end of the stream cuts short."""
        length = int(state.numbers[LAST]) % self.window
        if not length or state.numbers[TORN]:
            return None
        return self.at_the_end(self._final(state, self._curve(state, length)))

    def _curve(self, state: State, length: int) -> Floats:
        """The first steps of the curve that the coefficients make, in grid units."""
        measured = state.sums / ONE
        if length < self.window and state.numbers[CURVE_END]:
            # what a period that was cut short lacks, the one before lends
            measured = measured + self._basis[:, length:] @ state.curve[length:]
        values: Floats = np.einsum("kt,pkc->ptc", self._basis[:, :length], measured[np.newaxis])[0]
        return np.maximum(values, 0.0) if self.nonnegative else values

    @cached_property
    def _basis(self) -> Floats:
        return real_fourier(self.window, self.sum_count)

    def _final(self, state: State, curve: Floats) -> Revised:
        """Final values as they are released."""
        length = len(curve)
        first, nothing = int(state.numbers[LAST]) - length + 1, np.zeros(length, dtype=np.bool_)
        return self.final(first, curve * float(Fraction(self.grid)), nothing, self.period_charges[1])

    def intervals(self) -> Fold:
        """The noise of the coefficients, frequencies that are not measured, and periods that differ."""
        scales = np.broadcast_to(self.sum_scales, self.sum_count * self.columns)[:: self.columns]
        grid = float(Fraction(self.grid))
        variances = np.array([variance_laplace(float(scale)) for scale in scales]) * (grid / ONE) ** 2
        return Curves(self.outputs, Law("laplace", grid), self._basis, variances)
