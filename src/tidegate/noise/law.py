"""How the noise of a measured value is distributed, and what follows from it: intervals around releases."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.exact import proper

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """Discrete noise on a public grid.

    Parameters
    ----------
    kind
        "laplace" or "gaussian".
    grid
        The resolution of values, in their own unit.
    rounded
        By how much a value may have been rounded before it got noise: intervals are wider by that on both sides.

    Examples
    --------
    >>> Law("laplace", 1.0).radius(np.array([10.0, 24.0]), 0.9).tolist()
    [23.0, 55.0]
    """

    kind: str
    grid: float
    rounded: float = 0.0

    def variance(self, scale: Values) -> Values:
        """The variance of noise that releases show this scale of."""
        return (1.0 if self.kind == "gaussian" else 2.0) * scale * scale

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval around a value that holds the truth with this probability, or more.

        NaN where the scale is 0, because nothing was measured.
        """
        proper("confidence", confidence, "write for example 0.9")
        number = np.asarray(scale, dtype=np.float64) / self.grid
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == "gaussian":
                steps = np.ceil(NormalDist().inv_cdf(0.5 + confidence / 2) * number)
            else:  # P(|X| > k) = 2·q^(k+1)/(1 + q) ≤ 1 − confidence, as in `discrete_laplace.radius`
                rest = np.log1p(np.exp(-1.0 / number)) - np.log(2.0) + np.log1p(-confidence)
                steps = np.maximum(0.0, np.ceil(-number * rest) - 1)
        found: Values = np.where(number > 0, steps * self.grid + self.rounded, np.nan)
        return found


def spread_radius(deviation: npt.ArrayLike, confidence: float) -> Values:
    """Half the width of an interval from a standard deviation alone: the larger of a Gaussian's and a Laplace's.

    A sum of independent draws of Laplace noise, few or many, large or small, lies between the two.

    Examples
    --------
    >>> spread_radius(np.array([1.0]), 0.9).round(2).tolist(), spread_radius(1.0, 0.99).round(2).tolist()
    ([1.64], 3.26)
    """
    proper("confidence", confidence, "write for example 0.9")
    gaussian, laplace = NormalDist().inv_cdf(0.5 + confidence / 2), -math.log1p(-confidence) / math.sqrt(2)
    return np.asarray(deviation, dtype=np.float64) * max(gaussian, laplace)


@dataclass(frozen=True)
class SpreadLaw:
    """Noise that releases show the standard deviation of: a sum of several draws, which steps share.

    Parameters
    ----------
    kind
        "laplace" or "gaussian": what is added up.
    grid
        The resolution of values, in their own unit.
    factor
        How many times the scale of a release this standard deviation is.
    rounded
        As in :class:`Law`.

    Examples
    --------
    >>> SpreadLaw("gaussian", 0.1).radius([10.0], 0.95).round(1).tolist()
    [19.6]
    """

    kind: str
    grid: float
    factor: float = 1.0
    rounded: float = 0.0

    def variance(self, scale: Values) -> Values:
        """The variance of noise that releases show this scale of."""
        return (self.factor * scale) ** 2

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval around a value that holds the truth with this probability, or more.

        NaN where the scale is 0, because nothing was measured.
        """
        deviation = np.asarray(scale, dtype=np.float64) * self.factor
        found = spread_radius(deviation, confidence)
        if self.kind == "gaussian":
            found = NormalDist().inv_cdf(0.5 + confidence / 2) * deviation
        return np.where(deviation > 0, np.ceil(found / self.grid) * self.grid + self.rounded, np.nan)


class Radius(Protocol):
    """A law of noise on the integers."""

    def largest_radius(self, probability: float) -> int:
        """The least r with P(|z| ≤ r) ≥ probability at every step."""


@dataclass(frozen=True)
class SharedLaw:
    """Noise that steps share, on a public grid: of each value by itself.

    Intervals are those of the step at which noise is largest, so that they hold at every step. Noise that slides is
    largest at the end of its first window; later its intervals hold more often than they say.

    Parameters
    ----------
    noise
        The law, whose scale is its own.
    grid
        The resolution of values, in their own unit.
    rounded
        As in :class:`Law`.
    """

    noise: Radius
    grid: float
    rounded: float = 0.0
    _known: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def variance(self, scale: Values) -> Values:
        """The variance of noise that releases show this scale of: that of Laplace noise."""
        return 2.0 * scale * scale

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval around a value that holds the truth with this probability, or more.

        NaN where the scale is 0, because nothing was measured.
        """
        half = self._known.get(confidence)
        if half is None:
            proper("confidence", confidence, "write for example 0.9")
            half = self._known[confidence] = self.noise.largest_radius(confidence) * self.grid + self.rounded
        return np.where(np.asarray(scale, dtype=np.float64) > 0, half, np.nan)


AnyLaw = Law | SharedLaw | SpreadLaw
