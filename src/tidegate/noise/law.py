"""How the noise of a measured value is distributed, and what follows from it: intervals around releases."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

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
