"""Fourier: measure the lowest frequencies of every period, and release the curve that they make.

Before its period ends, a step shows the curve of the last period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import float_up, sqrt_up, whole
from tidegate.intervals import Curves, Fold
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.choose_samples import absolute_error, sample_numbers
from tidegate.mechanisms.optstream.periods import Periodic, Revised
from tidegate.mechanisms.optstream.sampling_times import read_profile
from tidegate.noise import laplace, variance_laplace
from tidegate.noise.law import Law
from tidegate.policy import Policy, WEvent

ONE = 1 << 16  # the rows of the transform are whole multiples of 2^-16
ROUNDED = Fraction(51, 100)  # rounding an entry to such a multiple moves it by less than this many of them
PARTS = 2**20  # units of a step, where steps are charged by what they contribute


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


def real_fourier(w: int, coefficients: int) -> Floats:
    """The first rows of the orthonormal real discrete Fourier transform, lowest frequency first (rows × w).

    Examples
    --------
    >>> rows = real_fourier(6, 6)
    >>> bool(np.allclose(rows @ rows.T, np.eye(6)))
    True
    """
    rows = np.empty((coefficients, w))
    angle = 2 * np.pi * np.arange(w) / w
    for number in range(coefficients):
        frequency = (number + 1) // 2
        wave = np.sin if number and number % 2 == 0 else np.cos
        single = number == 0 or 2 * frequency == w
        rows[number] = wave(frequency * angle) * np.sqrt((1 if single else 2) / w)
    return rows


@dataclass(frozen=True)
class Fourier(Periodic):
    """Measure the K lowest frequencies of each period of w steps, and release the curve they make.

    A baseline for streams that are smooth and periodic. Before its period ends, a step shows the curve of the
    last period.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the period is the policy's w.
    coefficients
        K, the real numbers that are measured: the mean, then a cosine and a sine for each frequency. By default a
        fifth of w. Public.
    nonnegative
        Whether the stream is known not to be negative: then no release is. A configuration file derives it from its
        query.

    Privacy
    -------
    Unit and neighbours: the policy's. The transform has orthonormal rows, rounded to multiples of 2^-16 so that
    coefficients are exact integers on that grid. A change of a of a period's steps by at most Δ each moves
    the coefficients by at most √(K·c·a)·Δ in L1, c the number of columns a unit may be in (1 for fixed units,
    else all), and by at most Σⱼ|φⱼ(t)|·Δ for each step. A window meets one period or two. The smaller of two
    scales is used: √(2Kcw)Δ/ε, charged as ε/4 once to the period and ε/2w to each step; or the sum of the
    rows' L1 norms times Δ/ε, charged to each step by its part. Proof: docs/proofs/fourier.md.

    Departure: the printed transform is not normalised, and noise of scale √K·Δ/ε on its K complex coefficients, 2K − 1
    real numbers, is too small by far. Values beyond 2^44/w grid units are clipped. A period that was not seen from its
    beginning, or of which steps were passed over, is torn: it has no curve. Coefficients of the open period begin as
    noise; a state and the period's release differ by what arrived in between, so protect the state like data.

    Error
    -----
    About 1.6·K·√c·Δ/ε from noise, and what higher frequencies would add. Time O(K·w) a period, memory O(K).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = Fourier(WEvent(epsilon="1", window=48), coefficients=9)
    >>> round(mechanism.scale, 2)
    29.4
    >>> releases = Session(mechanism).push_batch(np.full((100, 1), 5000))
    >>> releases.revised.values.shape
    (96, 1)

    References
    ----------
    Rastogi, Nath: Differentially private aggregation of distributed time-series. SIGMOD 2010.
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019.
    """

    coefficients: int | None = None
    nonnegative: bool = False

    columns_independent: ClassVar[bool] = True

    def validate(self) -> None:
        """Check the number of coefficients and the size of the noise."""
        given = max(1, self.window // 5) if self.coefficients is None else self.coefficients
        object.__setattr__(self, "coefficients", whole("coefficients", given, most=self.window))
        widest = math.inf if self.window > 2**24 else float(np.max(self.sum_scales))
        self.refuse_wide_noise(widest / ONE, bits=36)

    @property
    def sum_count(self) -> int:
        """The real numbers that are measured: K."""
        assert self.coefficients is not None
        return self.coefficients

    @cached_property
    def rows(self) -> Integers:
        """The transform, in multiples of 2^-16."""
        scaled = np.rint(real_fourier(self.window, self.sum_count) * ONE)
        return np.asarray(scaled, dtype=np.int64)

    @cached_property
    def _together(self) -> Fraction:
        """The scale from the L2 norm of a whole period, in multiples of 2^-16 grid units."""
        count, w = self.sum_count, self.window
        columns = 1 if self.policy.mobility == "fixed" else self.columns
        # the operator norm of the rounded rows
        norm = ONE + ROUNDED * Fraction(sqrt_up(Fraction(count * w)))
        return Fraction(sqrt_up(Fraction(2 * count * columns * w))) * norm * self._change

    @property
    def _change(self) -> Fraction:
        return Fraction(self.sensitivity) / self._epsilon

    @cached_property
    def _parts(self) -> Integers:
        """What each step is charged where steps pay for what they contribute; at most PARTS·w together."""
        each = np.abs(self.rows).sum(axis=0)
        whole_budget, total = PARTS * self.window, int(each.sum())
        return np.array([max(1, whole_budget * int(part) // total) for part in each], dtype=np.int64)

    @cached_property
    def _apart(self) -> Fraction:
        """The scale from the contributions of single steps, in multiples of 2^-16 grid units."""
        each = np.abs(self.rows).sum(axis=0)
        budget = PARTS * self.window
        if int(self._parts.sum()) > budget:
            return self._together + 1
        return (
            max(Fraction(int(part) * budget, int(paid)) for part, paid in zip(each, self._parts, strict=True))
            * self._change
        )

    @property
    def charges_period(self) -> bool:
        """Whether a part of the budget is charged once to each period."""
        return self._together <= self._apart

    @cached_property
    def units(self) -> int:
        """As many as make every charge a whole number of them."""
        return 4 * self.window if self.charges_period else PARTS * self.window

    def charges(self, times: Sequence[int] = ()) -> tuple[int, Integers]:
        """The units of a period, and those of each of its steps."""
        if self.charges_period:
            return self.window, np.full(self.window, 2, dtype=np.int64)
        return 0, self._parts

    @cached_property
    def sum_scales(self) -> float | Floats:
        """The noise scale of a coefficient in multiples of 2^-16 grid units; rounded up."""
        return float_up(min(self._together, self._apart))

    @property
    def scale(self) -> float:
        """The noise scale of a coefficient in grid units."""
        return float(np.max(self.sum_scales)) / ONE

    @property
    def shown_scale(self) -> float:
        """The noise scale of a coefficient in the values' unit."""
        return self.scale * float(Fraction(self.grid))

    def predicted_error(self, profile: npt.ArrayLike) -> float:
        """The mean absolute error of final values to expect on streams like a public profile (T × d, whole periods)."""
        values = read_profile(profile, self.window).reshape(-1, self.window, self.columns)
        rows = real_fourier(self.window, self.sum_count)
        offsets = np.einsum("kt,ks,psc->ptc", rows, rows, values) - values
        unit = float(Fraction(self.grid)) / ONE
        scales = np.broadcast_to(self.sum_scales, self.sum_count * self.columns)[:: self.columns]
        variance = np.array([variance_laplace(float(scale)) for scale in scales]) @ rows**2 * unit**2
        return float(absolute_error(offsets, variance[np.newaxis, :, np.newaxis], normal=True).mean())

    @classmethod
    def from_profile(cls, policy: WEvent, profile: npt.ArrayLike, **options: Any) -> Self:
        """The number of coefficients with the least predicted error on public data or earlier releases."""
        first = cls(policy, **options)
        candidates = [replace(first, coefficients=count) for count in sample_numbers(first.window)]
        return min(candidates, key=lambda candidate: candidate.predicted_error(profile))

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def most_spans(self) -> int:
        """Periods that meet a window, and one more."""
        return 3

    @property
    def noise_in_state(self) -> bool:
        """Sums begin with their noise."""
        return True

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

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """From the mean alone to half of the coefficients."""
        w = policy.steps_charged
        counts = sorted({min(w, count) for count in (1, 3, 5, 9, 17)} | {max(1, w // 2)})
        return [cls(policy, columns=columns, coefficients=count, nonnegative=True) for count in counts]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="1", window=12), coefficients=5, nonnegative=True),
            cls(WEvent(epsilon="1", window=12, mobility="fixed"), columns=3, coefficients=12),
            cls(WEvent(epsilon="1", window=7, adjacency="replace"), columns=2, coefficients=2, grid="0.5"),
            cls(WEvent(epsilon="1", window=1)),
        ]
