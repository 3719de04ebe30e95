"""How the noise of a measured value is distributed, and what follows from it: intervals around releases."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter

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

    Examples
    --------
    >>> Law("laplace", 1.0).radius(np.array([10.0, 24.0]), 0.9).tolist()
    [23.0, 55.0]
    """

    kind: str
    grid: float

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval around a value that holds the truth with this probability, or more.

        NaN where the scale is 0, because nothing was measured.
        """
        if not 0.0 < confidence < 1.0:
            raise InvalidParameter("confidence", confidence, "above 0 and below 1", "write for example 0.9")
        number = np.asarray(scale, dtype=np.float64) / self.grid
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == "gaussian":
                steps = np.ceil(NormalDist().inv_cdf(0.5 + confidence / 2) * number)
            else:  # P(|X| > k) = 2·q^(k+1)/(1 + q) ≤ 1 − confidence, as in `discrete_laplace.radius`
                rest = np.log1p(np.exp(-1.0 / number)) - np.log(2.0) + np.log1p(-confidence)
                steps = np.maximum(0.0, np.ceil(-number * rest) - 1)
        found: Values = np.where(number > 0, steps * self.grid, np.nan)
        return found


class Radius(Protocol):
    """A law of noise on the integers."""

    def radius(self, probability: float) -> int:
        """The least r with P(|z| ≤ r) ≥ probability."""


@dataclass(frozen=True)
class SharedLaw:
    """Noise that steps share, on a public grid: of each value by itself.

    Parameters
    ----------
    noise
        The law, whose scale is its own.
    grid
        The resolution of values, in their own unit.
    """

    noise: Radius
    grid: float
    _known: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def radius(self, scale: npt.ArrayLike, confidence: float) -> Values:
        """Half the width of the interval around a value that holds the truth with this probability, or more.

        NaN where the scale is 0, because nothing was measured.
        """
        half = self._known.get(confidence)
        if half is None:
            if not 0.0 < confidence < 1.0:
                raise InvalidParameter(
                    "confidence", confidence, "above 0 and below 1", "write for example 0.9"
                )
            half = self._known[confidence] = self.noise.radius(confidence) * self.grid
        return np.where(np.asarray(scale, dtype=np.float64) > 0, half, np.nan)
