"""Pushed records: what is read of a step are counts and sums of values in public bins, checked before anything happens.

The width of a step is public, however many records it has. `ValueBins` makes such steps of records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput
from tidegate.structures.value_bins import ValueBins

Matrix = npt.NDArray[np.int64]
MOST = 2**58  # of sums, in grid units: also weighted ones stay within 64 bits


class RecordReader:
    """Steps of `ValueBins` as they are, in grid units.

    Parameters
    ----------
    bins
        The bins.
    counted, summed
        Of how many steps at most records are counted together, and added up.

    Examples
    --------
    >>> bins = ValueBins(8)
    >>> RecordReader(bins).row(bins.of_steps([[3, 8]])[0]).sum()
    np.int64(13)
    >>> RecordReader(bins).row(np.ones(16, dtype=np.int64))
    Traceback (most recent call last):
    ...
    tidegate.errors.InvalidInput: the sums of a step are not those of so many values in their bins; ...
    """

    def __init__(self, bins: ValueBins, counted: int = 1, summed: int = 1) -> None:
        self.bins, self.columns = bins, bins.width
        self._most = min(MOST // (bins.bound * summed), MOST // counted)  # records of a step
        self._ends = bins.ends
        self._before = np.append(-1, bins.ends[:-1])  # values are above it; 0 is in the first bin

    def row(self, values: Any) -> Matrix:
        """One step, as a matrix of one row."""
        return self._read(values, (self.columns,))[np.newaxis]

    def rows(self, values: Any) -> Matrix:
        """Several steps."""
        return self._read(values, (len(values) if hasattr(values, "__len__") else 0, self.columns))

    def _read(self, values: Any, shape: tuple[int, ...]) -> Matrix:
        array = np.asarray(values)
        if array.dtype != np.int64 or array.shape != shape:
            raise InvalidInput(
                f"a step of records is a vector of {self.columns} whole numbers, counts and sums in bins; make it with "
                "ValueBins.counted or ValueBins.of_steps."
            )
        counts, sums = self.bins.apart(array.reshape(-1, self.columns))
        # sums are below the number of records times the bound, so nothing wraps around after this
        if counts.size and (
            int(counts.min()) < 0 or float(counts.sum(axis=(1, 2), dtype=np.float64).max()) > self._most
        ):
            raise InvalidInput(
                f"a step has more than {self._most} records, or less than none; choose a smaller bound or a coarser grid."
            )
        if (sums > counts * self._ends).any() or (sums < counts * (self._before + 1)).any():
            raise InvalidInput(
                "the sums of a step are not those of so many values in their bins; make it with ValueBins.counted or "
                "ValueBins.of_steps."
            )
        return array.copy()  # whoever pushed may change theirs
