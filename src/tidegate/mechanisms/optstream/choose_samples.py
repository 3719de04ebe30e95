"""How many samples, where, and which features: by the predicted error, without looking at the protected data.

The error of a released step has two parts. What the curve through noiseless samples misses is computed on a
public profile, or bounded by a public bound of the slope. What noise adds follows from the public scales,
because reconstruction and post-processing are linear but for the sign. Their mean absolute sum is that of a
Laplace distribution around an offset, |e| + β·exp(−|e|/β), with 2β² the variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import erf

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive
from tidegate.mechanisms.optstream.feature_fit import fit_features
from tidegate.mechanisms.optstream.sampling_times import BestTimes, equally_spaced, read_profile
from tidegate.noise import variance_laplace

if TYPE_CHECKING:
    from tidegate.mechanisms.optstream.opt_stream import OptStream

Floats = npt.NDArray[np.float64]
CANDIDATES = 64  # numbers of samples that are compared


def sample_numbers(w: int, least: int = 1) -> list[int]:
    """Numbers of samples worth comparing: all of them, or evenly spread by ratio where w is large.

    Examples
    --------
    >>> sample_numbers(5), len(sample_numbers(1440)) <= 64
    ([1, 2, 3, 4, 5], True)
    """
    if w - least < CANDIDATES:
        return list(range(least, w + 1))
    return sorted({round(k) for k in np.geomspace(least, w, CANDIDATES)})


def absolute_error(offset: Floats, variance: Floats, *, normal: bool = False) -> Floats:
    """E|offset + Z| for a Laplace distributed Z of the given variance, or a normal one: a sum of many draws.

    Examples
    --------
    >>> absolute_error(np.array([0.0, 100.0]), np.array([2.0, 2.0])).round(3)
    array([  1., 100.])
    """
    if normal:
        spread = np.sqrt(2 * np.maximum(variance, 1e-300))
        ratio = offset / spread
        return np.asarray(offset * erf(ratio) + spread * np.exp(-(ratio**2)) / np.sqrt(np.pi))
    spread = np.sqrt(np.maximum(variance, 1e-300) / 2)
    return np.asarray(np.abs(offset) + spread * np.exp(-np.abs(offset) / spread))


class Prediction:
    """The predicted error of an OptStream with public sample times."""

    def __init__(self, mechanism: OptStream) -> None:
        if mechanism.chooses:
            raise InvalidParameter(
                "adaptive",
                True,
                "False for a predicted error",
                "choose public times, or measure on public data",
            )
        self.mechanism = mechanism
        self.w = mechanism.window
        self.times = np.array(mechanism.sample_times, dtype=np.int64)

    def _answers(self, known: Floats, sums: Floats) -> Floats:
        """The curves through known points (periods × points × columns), fitted to sums, of whatever sign."""
        curve, variances, precisions = self.mechanism.weights_at(tuple(self.times.tolist()), self.w)
        return fit_features(self.mechanism.tree, curve, variances, precisions, known, sums, False)

    def noise_variance(self) -> Floats:
        """The variance of each step of a period, from noise alone, in grid units."""
        mechanism = self.mechanism
        curve, _, _ = self.mechanism.weights_at(tuple(self.times.tolist()), self.w)
        points, sums = curve.points, mechanism.sum_count
        scale = mechanism.sample_variance * mechanism.estimate_variance
        if not sums:
            return np.asarray((curve.matrix**2).sum(axis=1) * scale)
        inputs = np.zeros((points + sums, points, 1))
        inputs[:points, :, 0] = np.eye(points)
        wanted = np.zeros((points + sums, sums, 1))
        wanted[points:, :, 0] = np.eye(sums)
        squares = self._answers(inputs, wanted)[:, :, 0] ** 2
        return np.asarray(
            squares[:points].sum(axis=0) * scale + squares[points:].sum(axis=0) * self._sum_variance()
        )

    def _sum_variance(self) -> float:
        return variance_laplace(self.mechanism.sum_scale) * self.mechanism.estimate_variance

    def offsets(self, profile: Floats) -> Floats:
        """What the curves through noiseless measurements miss of a profile (periods × w × columns), in its unit."""
        mechanism, w = self.mechanism, self.w
        values = profile.reshape(-1, w, profile.shape[1])
        known = np.empty((len(values), len(self.times) + 1, values.shape[2]))
        known[:, 1:] = values[:, self.times - 1]
        known[1:, 0] = values[:-1, -1]
        known[0, 0] = values[0, -1]  # before the first period its own last step stands in
        sums = np.zeros((len(values), mechanism.sum_count, values.shape[2]))
        for labels in mechanism.tree.labels:
            for step, part in enumerate(labels):
                sums[:, part] += values[:, step]
        return self._answers(known, sums) - values

    def error(self, profile: npt.ArrayLike) -> float:
        """The mean absolute error on streams like the profile."""
        values = read_profile(profile, self.w)
        variance = self.noise_variance() * float(Fraction(self.mechanism.grid)) ** 2
        offsets = self.offsets(values)
        normal = self.mechanism.shares_noise  # noise that is shared has no sharp peak
        return float(absolute_error(offsets, variance[np.newaxis, :, np.newaxis], normal=normal).mean())

    def error_bound(self, slope: ExactLike) -> float:
        """A bound of the mean absolute error on streams that change by at most `slope` a step (Theorem 11, corrected).

        Between two samples m steps apart a stream strays from their line by at most 2·slope·j·(m − j)/m after
        j steps.
        """
        knots = np.concatenate([[0], self.times])
        steps = np.arange(1, self.w + 1)
        segment = np.searchsorted(knots, steps, side="left") - 1
        width = (knots[segment + 1] - knots[segment]).astype(np.float64)
        after = steps - knots[segment]
        offsets = 2 * float(positive("slope", slope)) * after * (width - after) / width
        variance = self.noise_variance() * float(Fraction(self.mechanism.grid)) ** 2
        return float(absolute_error(offsets, variance, normal=self.mechanism.shares_noise).mean())


def best_for_profile(
    mechanism: OptStream,
    profile: npt.ArrayLike,
    candidates: Iterable[Sequence[Sequence[Sequence[int]]]] = ((),),
    samples: Iterable[int] | None = None,
) -> OptStream:
    """The configuration with the least predicted error on a public profile.

    Compared are numbers of samples, equally spaced ones and those at the best times of the profile, and the given
    lists of features.
    """
    w = mechanism.window
    values = read_profile(profile, w)
    numbers = sample_numbers(w) if samples is None else sorted(set(samples))
    best_times = BestTimes(values, w, max(numbers))
    found: tuple[float, OptStream] | None = None
    for features in candidates:
        for k in numbers:
            for times in {equally_spaced(w, k), best_times.of(k)}:
                candidate = replace(mechanism, samples=None, times=times, features=features)
                error = Prediction(candidate).error(values)
                if found is None or error < found[0]:
                    found = (error, candidate)
    assert found is not None
    return found[1]


def best_for_slope(mechanism: OptStream, slope: ExactLike) -> OptStream:
    """The number of equally spaced samples with the least bound of the error for streams of bounded slope."""
    candidates = [replace(mechanism, samples=k, times=None) for k in sample_numbers(mechanism.window)]
    return min(candidates, key=lambda candidate: Prediction(candidate).error_bound(slope))
