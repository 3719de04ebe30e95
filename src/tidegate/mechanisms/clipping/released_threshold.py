"""What a Threshold releases: a value that may be used, and published, as often as one likes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ReleasedThreshold:
    """A threshold that was paid for: it may be used, and published, as often as one likes.

    Attributes
    ----------
    value
        In the values' unit; between one grid unit and the bound.
    grid_units
        The same in grid units.
    sample
        From how many observations it comes.
    """

    value: Fraction
    grid_units: int
    sample: int

    def merge_above(self, counts: npt.ArrayLike, edges: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """A histogram whose bins beyond the threshold are one bin; edges are the bins' lower ends, ascending.

        Examples
        --------
        >>> ReleasedThreshold(Fraction(25), 25, 100).merge_above([5, 4, 3, 2, 1], [0, 10, 20, 30, 40])
        array([5, 4, 3, 3])
        """
        given, lower = np.asarray(counts), np.asarray(edges, dtype=np.float64)
        kept = max(1, int(np.searchsorted(lower, float(self.value), side="right")))
        if kept >= len(given):
            return given.copy()
        return np.append(given[:kept], given[kept:].sum())
