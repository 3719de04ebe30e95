"""Averages from released running sums; the number of observations is public."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole
from tidegate.queries.decayed import Window
from tidegate.queries.sums import LinearQuery, Values


@dataclass(frozen=True)
class RunningAverage(LinearQuery):
    """The average of all observations so far, S_t/t.

    Examples
    --------
    >>> RunningAverage().apply([4.0, 6.0, 6.0])
    array([4., 3., 2.])
    """

    def weights(self, step: int) -> Values:
        """1/t for the last sum."""
        weights = np.zeros(whole("step", step))
        weights[-1] = 1.0 / step
        return weights

    def apply(self, sums: npt.ArrayLike) -> Values:
        """The averages of all steps."""
        given = np.asarray(sums, dtype=np.float64)
        counts = np.arange(1, len(given) + 1, dtype=np.float64)
        return given / counts.reshape(-1, *([1] * (given.ndim - 1)))


@dataclass(frozen=True)
class WindowAverage(LinearQuery):
    """The average of the last `length` observations, or of all while there are fewer.

    Examples
    --------
    >>> WindowAverage(2).apply([4.0, 6.0, 7.0])
    array([4. , 3. , 1.5])
    """

    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("length", self.length))

    def weights(self, step: int) -> Values:
        """Those of the window's sum, over the number of observations in it."""
        return Window(self.length).weights(whole("step", step)) / min(step, self.length)

    def apply(self, sums: npt.ArrayLike) -> Values:
        """The averages of all steps."""
        totals = Window(self.length).apply(sums)
        counts = np.minimum(np.arange(1, len(totals) + 1), self.length).astype(np.float64)
        return totals / counts.reshape(-1, *([1] * (totals.ndim - 1)))
