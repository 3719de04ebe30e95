"""Values of single records: cut to public bounds, counted in units of a public grid, and read back as sums or means."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.structures.grid import nearest_units

Floats = npt.NDArray[np.float64]

# an interval at 95 % is so much wider than one at 90 %, of Laplace noise; of Gaussian noise less
BOTH = 1.302


@dataclass(frozen=True)
class ClippedValues:
    """How values of records are added up, for sums or for means.

    A mean is the quotient of a sum and a count. The sum is that of deviations from the public middle of the clip, and
    each record adds a public weight to the count: so both share the noise.

    Parameters
    ----------
    low, high
        The clip of one value, in grid units.
    ticks
        Grid units in 1.
    sum_share
        For means: the part of the budget that the sum has. None for sums.

    Examples
    --------
    >>> values = ClippedValues(0, 10, 1, Fraction(1, 2))
    >>> values.bounds, values.count_weight, values.change("add-remove")
    ((-5, 5), 5, 10)
    >>> values.of_records(np.array([-7.0, 4.6, 99.0])).tolist()
    [-5, 0, 5]
    """

    low: int
    high: int
    ticks: int
    sum_share: Fraction | None = None

    @property
    def centre(self) -> int:
        """What is subtracted from each value: the middle of the clip for means, and nothing for sums."""
        return 0 if self.sum_share is None else (self.low + self.high) // 2

    @property
    def bounds(self) -> tuple[int, int]:
        """Bounds of what one record adds to a sum."""
        return self.low - self.centre, self.high - self.centre

    @property
    def count_weight(self) -> int:
        """What one record adds to the count of a mean: this is how sum and count share the budget. 0 for sums."""
        if self.sum_share is None:
            return 0
        largest = max(abs(bound) for bound in self.bounds)
        return max(1, round(largest * (1 - self.sum_share) / self.sum_share))

    def change(self, adjacency: str) -> int:
        """By how much one record can change a step in L1, in grid units; for "replace" the largest gain or loss."""
        low, high = self.bounds
        largest = max(high, 0) + max(-low, 0) if adjacency == "replace" else max(abs(low), abs(high))
        return largest + self.count_weight

    def of_records(self, values: Floats) -> npt.NDArray[np.int64]:
        """What records with these values add to a sum: rounded to the grid, and cut in whole numbers."""
        low, high = self.bounds
        cut = np.clip(values, self.low / self.ticks, self.high / self.ticks)
        return np.clip(nearest_units(cut * self.ticks) - self.centre, low, high)

    def means(self, values: Floats) -> Floats:
        """Means and counts, of sums and weighted counts: the first and the second half of the last axis."""
        half = values.shape[-1] // 2
        counts = values[..., half:] * (self.ticks / self.count_weight)
        found = self.centre / self.ticks + values[..., :half] / np.maximum(counts, 1.0)
        return np.concatenate([np.clip(found, *self._limits), counts], axis=-1)

    def bounds_of_means(self, values: Floats, radius: Floats) -> tuple[Floats, Floats]:
        """The smallest and the largest quotient where both sum and count lie in intervals at 95 %.

        Parameters
        ----------
        values, radius
            Sums and weighted counts, and half the widths of their intervals at 90 %.
        """
        half, middle = values.shape[-1] // 2, self.centre / self.ticks
        weight = self.ticks / self.count_weight
        sums, counts = values[..., :half], values[..., half:] * weight
        around = radius[..., half:] * weight
        least = sums - BOTH * radius[..., :half]
        most = sums + BOTH * radius[..., :half]
        few, many = np.maximum(counts - BOTH * around, 1.0), np.maximum(counts + BOTH * around, 1.0)
        means = (
            np.clip(middle + np.minimum(least / few, least / many), *self._limits),
            np.clip(middle + np.maximum(most / few, most / many), *self._limits),
        )
        numbers = np.maximum(counts - around, np.minimum(counts, 0.0)), np.maximum(counts + around, 0.0)
        below, above = (np.concatenate(pair, axis=-1) for pair in zip(means, numbers, strict=True))
        return below, above

    @property
    def _limits(self) -> tuple[float, float]:
        return self.low / self.ticks, self.high / self.ticks
