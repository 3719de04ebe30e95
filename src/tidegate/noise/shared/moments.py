"""Variance, mean absolute value and quantiles of noise shared by steps, to floating-point accuracy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from tidegate.exact import proper

Floats = npt.NDArray[np.float64]

# Up to this scale integers are summed one by one; beyond, sums are integrals, to a relative error below scale^-2.
MOST_SUMMED_SCALE = 2.0**10
MOST_SUMMED_COLUMNS = 32
# What is left out of a sum or an integral has a weight below exp(−40).
_DEPTH = 40.0


@cache
def _quadrature() -> tuple[Floats, Floats]:
    """Nodes and weights of an integral over [−1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(256)
    return nodes, weights


def _binomial(values: Floats, below: int) -> Floats:
    """C(values, below), 0 where the value is a whole number smaller than that."""
    found = np.ones_like(values)
    for i in range(below):
        found = found * (values - i) / (i + 1)
    return np.where(values < below, 0.0, found)


def _points(columns: int, radii: Floats, raised: int = 0) -> Floats:
    """Σ_i 2^i·C(columns, i)·C(radii, i + raised): `lattice.points`, or its sum over all smaller radii."""
    terms = (2.0**i * math.comb(columns, i) * _binomial(radii, i + raised) for i in range(columns + 1))
    return np.asarray(sum(terms))


class Moments(ABC):
    """Expectations of symmetric integer noise with a known tail."""

    scale: float

    @abstractmethod
    def beyond(self, radius: int) -> float:
        """P(|z| > radius) for a radius ≥ 0."""

    @abstractmethod
    def variance(self) -> float:
        """E z²."""

    @abstractmethod
    def expected_absolute(self) -> float:
        """E |z|."""

    def radius(self, probability: float) -> int:
        """The least r ≥ 0 with P(|z| ≤ r) ≥ probability."""
        proper("probability", probability, "write for example 0.95")
        outside = 1.0 - probability
        low, high = -1, 1
        while self.beyond(high) > outside:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.beyond(middle) > outside else (low, middle)
        return high


@dataclass(frozen=True)
class CubeMoments(Moments):
    """Of one value in a group of the cube, P(z) ∝ exp(−max over steps of Σ over columns |z|/scale).

    Given the radius j a step is uniform in a ball of `points`(columns, j) integer points; the sums over that
    ball are closed forms in binomial coefficients.

    Examples
    --------
    >>> moments = CubeMoments(columns=1, length=8, scale=24.0)
    >>> round(moments.variance() / 24**2, 3), round(moments.expected_absolute() / 24, 3)
    (30.0, 4.5)
    >>> moments.radius(0.9)
    211
    """

    columns: int
    length: int
    scale: float

    @property
    def _dimensions(self) -> int:
        return self.columns * self.length

    @property
    def _summed(self) -> bool:
        return self.scale <= MOST_SUMMED_SCALE and self.columns <= MOST_SUMMED_COLUMNS

    @cached_property
    def _radii(self) -> tuple[Floats, Floats, Floats]:
        """(radii, their probabilities, points of their balls)."""
        middle = self._dimensions + 1
        spread = math.sqrt(2 * _DEPTH * middle)
        first = max(0, math.floor(self.scale * (middle - 1 - spread) - 2 * self.columns))
        last = math.ceil(self.scale * (middle + spread + _DEPTH)) + 2 * self.columns
        radii = np.arange(first, last + 1, dtype=np.float64)
        balls = _points(self.columns, radii)
        logs = self.length * np.log(balls) - radii / self.scale
        weights = np.exp(logs - logs.max())
        return radii, weights / weights.sum(), balls

    def variance(self) -> float:
        """E z²."""
        d, n = self.columns, self._dimensions
        if not self._summed:
            return 2 * (n + 1) * (n + 2) / ((d + 1) * (d + 2)) * self.scale**2
        radii, weights, balls = self._radii
        # Σ x²·C(j − x, i) over x = 1, …, j is 2·C(j + 1, i + 3) + C(j + 1, i + 2).
        squares = 4 * _points(d - 1, radii + 1, 3) + 2 * _points(d - 1, radii + 1, 2)
        return float(np.sum(weights * squares / balls))

    def expected_absolute(self) -> float:
        """E |z|."""
        if not self._summed:
            return (self._dimensions + 1) / (self.columns + 1) * self.scale
        radii, weights, balls = self._radii
        # The L1 norm of a point is the number of smaller balls that it is not in.
        return float(np.sum(weights * (radii - _points(self.columns, radii, 1) / balls))) / self.columns

    def beyond(self, radius: int) -> float:
        """P(|z| > radius)."""
        d, n = self.columns, self._dimensions
        if self._summed:
            radii, weights, balls = self._radii
            outside = np.where(radii > radius, 2 * _points(d - 1, radii - radius, 1), 0.0)
            return float(np.sum(weights * outside / balls))
        from scipy.special import gammaincc, gammaln  # slow to import, needed here only

        x = (radius + 0.5) / self.scale
        if d == 1:
            return float(gammaincc(n + 1, x) - x / n * gammaincc(n, x))
        spread = math.sqrt(2 * _DEPTH * (n + 1))
        first, last = max(x, n - spread), n + 1 + spread + _DEPTH
        if first >= last:
            return 0.0
        nodes, weights = _quadrature()
        r = first + (last - first) * (nodes + 1) / 2
        density = np.exp(n * np.log(r) - r - gammaln(n + 1)) * (1 - x / r) ** d
        return float(np.sum(weights * density)) * (last - first) / 2


@dataclass(frozen=True)
class RoundedGammaMoments(Moments):
    """Of a mixture of sums of exponential variables, with a sign, rounded to the integers.

    ``shares[i]`` is the probability of a sum of i + 1 of them.

    Examples
    --------
    >>> laplace = RoundedGammaMoments((1.0,), 24.0)
    >>> round(laplace.variance() / 24**2, 3), laplace.radius(0.9)
    (2.0, 55)
    """

    shares: tuple[float, ...]
    scale: float

    def _tail(self, at: Floats) -> Floats:
        """P(|z| > r) of the rounded value."""
        from scipy.special import gammaincc  # slow to import, needed here only

        x = (at + 0.5) / self.scale
        found = np.zeros_like(x)
        for i, share in enumerate(self.shares):
            found += share * gammaincc(i + 1, x)
        return found

    def _sum(self, power: int) -> float:
        most = len(self.shares)
        last = math.ceil(self.scale * (most + math.sqrt(2 * _DEPTH * most) + _DEPTH)) + 2
        at = np.arange(last, dtype=np.float64)
        return float(np.sum(((at + 1) ** power - at**power) * self._tail(at)))

    def variance(self) -> float:
        """E z²."""
        if self.scale <= MOST_SUMMED_SCALE:
            return self._sum(2)
        return sum(share * (i + 1) * (i + 2) for i, share in enumerate(self.shares)) * self.scale**2 + 1 / 12

    def expected_absolute(self) -> float:
        """E |z|."""
        if self.scale <= MOST_SUMMED_SCALE:
            return self._sum(1)
        return sum(share * (i + 1) for i, share in enumerate(self.shares)) * self.scale

    def beyond(self, radius: int) -> float:
        """P(|z| > radius)."""
        return float(self._tail(np.array([float(radius)]))[0])
