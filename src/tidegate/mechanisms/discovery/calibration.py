"""Noise and thresholds of a selection: the smallest threshold for an (ε, δ), from the exact discrete Gaussian.

docs/proofs/discovery.md derives the condition on which it rests.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tidegate.composition.gaussian import WIDEST, gaussian_delta, tail
from tidegate.errors import InvalidParameter
from tidegate.exact import show

PER_ONE = 64  # σ is a multiple of one over it, rounded up, so that the last digits of a machine do not matter
FINE = (
    16  # up to so many categories of a unit every case is looked at by itself, above them in as many groups
)
WIDER = 24  # how many σ are tried, each a hundredth larger than the one before


class Selection(NamedTuple):
    """How categories are tested.

    Attributes
    ----------
    sigma
        σ of the discrete Gaussian noise on the number of units of each category.
    threshold
        A category opens where its noisy number is at least this.
    """

    sigma: float
    threshold: int

    def chance(self, units: int) -> float:
        """The probability with which a category with so many units passes the test.

        Examples
        --------
        >>> round(Selection(8.625, 45).chance(45), 2), round(Selection(8.625, 45).chance(30), 2)
        (0.52, 0.05)
        """
        missing = self.threshold - units
        return tail(self.sigma, missing) if missing > 0 else 1.0 - tail(self.sigma, 1 - missing)


def loss(sigma: float, threshold: int, epsilon: float, delta: float, categories: int, epochs: int) -> float:
    """A δ for which selections of all epochs of a window are (ε, δ)-private, for a δ that is claimed; rounded up.

    Parameters
    ----------
    sigma, threshold
        Of the test.
    epsilon, delta
        The ε of all epochs together, and the δ that is claimed for them.
    categories
        In how many categories a unit counts in an epoch.
    epochs
        The most epochs that a window meets.
    """
    lone, left = tail(sigma, threshold - 1), epsilon - 2 * delta
    earlier = categories * (epochs - 1) * lone
    return min(
        1.0,
        earlier
        + max(
            most * lone + _changed(sigma, least, left, categories, epochs)
            for least, most in _cases(categories)
        ),
    )


def _cases(categories: int) -> list[tuple[int, int]]:
    """Groups (least, most) of how many categories of a unit nobody else has."""
    width = -(-categories // FINE)
    return [(0, 0), *((low + 1, min(low + width, categories)) for low in range(0, categories, width))]


@lru_cache(maxsize=4096)
def _changed(sigma: float, alone: int, epsilon: float, categories: int, epochs: int) -> float:
    """What the counts lose that change by 1 and that both streams have."""
    return gaussian_delta(2 * categories * epochs - alone, sigma, epsilon)


@lru_cache(maxsize=256)
def calibrate(epsilon: Fraction, delta: Fraction, categories: int, epochs: int) -> Selection:
    """The smallest threshold, and a noise that allows it.

    Parameters
    ----------
    epsilon, delta
        What the selections of all epochs of a window may lose together.
    categories, epochs
        As for `loss`.

    Examples
    --------
    >>> calibrate(Fraction(1), Fraction("1e-6"), 1, 2)
    Selection(sigma=8.546875, threshold=45)
    """
    claimed = min(float(delta) * (1 - 2.0**-50), 0.5)  # not above δ, whatever the conversion has rounded
    given = float(epsilon) * (1 - 2.0**-50)
    count = 2 * categories * epochs
    least = _least_sigma(given, claimed, count, epsilon)
    best: Selection | None = None
    for wider in range(WIDER):
        sigma = math.ceil(least * (1 + wider / 100) * PER_ONE) / PER_ONE
        found = _least_threshold(sigma, given, claimed, categories, epochs)
        if best is not None and (found is None or found > best.threshold):
            break  # noise is too large by now
        if found is not None and (best is None or found < best.threshold):
            best = Selection(sigma, found)
    if best is None:
        raise too_small(epsilon)
    return best


def _least_sigma(epsilon: float, delta: float, count: int, said: Fraction) -> float:
    """The least σ, nearly, with which the changed counts alone lose no more than δ."""
    most = WIDEST / math.sqrt(count)
    low, high = 1.0, 1.0
    while gaussian_delta(count, high, epsilon - 2 * delta) > delta:
        low, high = high, 2 * high
        if high > most:
            raise too_small(said)
    while high - low > high / 2**12:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if gaussian_delta(count, middle, epsilon - 2 * delta) > delta else (low, middle)
        )
    return high


def _least_threshold(sigma: float, epsilon: float, delta: float, categories: int, epochs: int) -> int | None:
    """The least threshold that this σ allows; None where its noise alone loses as much as δ."""

    def fits(threshold: int) -> bool:
        return loss(sigma, threshold, epsilon, delta, categories, epochs) <= delta

    low, high = 1, max(2, math.ceil(sigma))
    while not fits(high):
        low, high = high, 2 * high
        if high > 60 * sigma + 60:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def too_small(epsilon: Fraction) -> InvalidParameter:
    """Why no test can be made with a budget."""
    return InvalidParameter(
        "epsilon",
        show(epsilon),
        "large enough that categories can be tested",
        "raise epsilon or delta, or count units in fewer categories",
    )
