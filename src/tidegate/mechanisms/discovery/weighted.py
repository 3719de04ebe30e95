"""Weighted tests: a unit with j categories in an epoch counts 1/√j in each, so one with few categories counts more.

docs/proofs/discovery.md derives noise and threshold.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from tidegate.composition.gaussian import normal_delta, normal_tail
from tidegate.mechanisms.discovery.calibration import too_small

PARTS = 64  # how many divisions of δ between noise and threshold are tried


class WeightedTests(NamedTuple):
    """How categories are tested.

    Attributes
    ----------
    sigma
        σ of the discrete Gaussian noise on the sum of weights of each category, in units of 2^−places.
    threshold
        A category opens where its noisy sum is at least this many whole weights.
    categories, places
        The most categories of a unit, and binary places of weights.
    """

    sigma: float
    threshold: int
    categories: int
    places: int

    @property
    def weights(self) -> tuple[int, ...]:
        """What a unit with 1, 2, 3, … categories counts in each of them, in units of 2^−places; rounded down.

        Examples
        --------
        >>> WeightedTests(1.0, 1, 4, 10).weights
        (1024, 724, 591, 512)
        """
        return tuple(math.isqrt(4**self.places // many) for many in range(1, self.categories + 1))

    @property
    def lone(self) -> float:
        """An upper bound on the chance that any category of an epoch passes that one unit alone has."""
        limit = self.threshold << self.places
        return max(
            many * self._passes(limit - weight) for many, weight in enumerate(self.weights, 1)
        ) + self.categories * self._passes(limit)

    def _passes(self, limit: int) -> float:
        """The chance that noise is at least a limit; rounded up."""
        return normal_tail((limit - 0.5) / self.sigma * (1 - 2.0**-40)) * math.exp(1 / (24 * self.sigma**2))

    def loss(self, epsilon: float, epochs: int) -> float:
        """A δ for which the sums of all epochs of a window are (ε, δ)-private; rounded up."""
        square = 2 * epochs * 4**self.places
        moved = 2 * epochs * max(many * weight for many, weight in enumerate(self.weights, 1))
        uneven = moved / (2 * self.sigma**2)  # of losses, at two points of one cell of the lattice
        factor = math.exp(2 * epochs * self.categories / (24 * self.sigma**2))
        shift = math.sqrt(square) / self.sigma * (1 + 2.0**-40)
        return factor * normal_delta(shift, epsilon - uneven * (1 + 2.0**-40))


@lru_cache(maxsize=64)
def calibrate_weighted(
    epsilon: Fraction, delta: Fraction, categories: int, epochs: int, places: int
) -> WeightedTests:
    """The smallest threshold, and the smallest noise that allows it.

    Parameters
    ----------
    epsilon, delta
        What the tests of all epochs of a window may lose together.
    categories, epochs
        The most categories of a unit in an epoch, and the most epochs that a window meets.
    places
        Binary places of weights.

    Examples
    --------
    >>> calibrate_weighted(Fraction(1), Fraction("1e-6"), 4, 2, 20).threshold
    48
    """
    claimed = min(float(delta) * (1 - 2.0**-50), 0.5)
    given = float(epsilon) * (1 - 2.0**-50)
    best: WeightedTests | None = None
    for part in range(1, PARTS):
        made = _divided(WeightedTests(1.0, 1, categories, places), given, claimed, part / PARTS, epochs)
        if made is not None and (best is None or made[1::-1] < best[1::-1]):
            best = made
    if best is None:
        raise too_small(epsilon)
    return best


def _divided(
    tests: WeightedTests, epsilon: float, delta: float, part: float, epochs: int
) -> WeightedTests | None:
    """Tests where the noise has a part of δ, and the threshold the rest; None where the noise is too large to draw."""
    low = high = float(1 << tests.places)
    while tests._replace(sigma=high).loss(epsilon, epochs) > delta * part:
        low, high = high, 2 * high
        if high > 2.0**40:
            return None
    while high - low > high / 2**12:
        middle = (low + high) / 2
        fits = tests._replace(sigma=middle).loss(epsilon, epochs) <= delta * part
        low, high = (low, middle) if fits else (middle, high)
    lone = (delta - delta * part) / epochs
    sigma = math.ceil(high * 64) / 64
    guess = 1 - sigma / (1 << tests.places) * NormalDist().inv_cdf(lone / 2)
    found = tests._replace(sigma=sigma, threshold=max(2, math.floor(guess) - 1))
    while found.lone > lone:
        found = found._replace(threshold=found.threshold + 1)
    return found
