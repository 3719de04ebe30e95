"""Values in public bins: from counts and sums in them follows every sum of values that are clipped at an end of a bin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole

Integers = npt.NDArray[np.int64]
MOST = 1 << 44  # the largest bound, in grid units: noise scaled to it still fits
PER_DOUBLING = 16


@dataclass(frozen=True)
class ValueBins:
    """Bins of values from 0 to a bound, each end about 4 % above the one before.

    A step is a vector that holds, for each column, how many values fell into each bin and what they add up to there.

    Parameters
    ----------
    bound
        The largest value, in grid units; what is larger counts as this.
    columns
        How many columns values fall into.
    per_doubling
        Bins to a factor of two, where whole numbers are that close to each other.

    Examples
    --------
    >>> bins = ValueBins(8)
    >>> bins.ends.tolist(), bins.width
    ([1, 2, 3, 4, 5, 6, 7, 8], 16)
    >>> vector = bins.counted([0, 0, 0], [0, 0, 0], [3, 8, 99], steps=1)
    >>> bins.clipped(vector, 4).tolist(), bins.totals(vector).tolist()
    ([[11]], [[3]])
    """

    bound: int
    columns: int = 1
    per_doubling: int = PER_DOUBLING

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "bound", whole("bound", self.bound, most=MOST))
        put(self, "columns", whole("columns", self.columns, most=2**20))
        put(self, "per_doubling", whole("per_doubling", self.per_doubling, most=4096))

    @cached_property
    def ends(self) -> Integers:
        """The upper ends of the bins, ascending; a bin holds what is above the end before it, up to its own."""
        count = int(np.ceil(np.log2(self.bound) * self.per_doubling)) + 1
        powers = np.floor(2.0 ** (np.arange(count) / self.per_doubling) + 0.5).astype(np.int64)
        return np.unique(np.append(powers[powers < self.bound], self.bound))

    @property
    def width(self) -> int:
        """How long a step's vector is."""
        return 2 * len(self.ends) * self.columns

    def counted(
        self, steps_of: npt.ArrayLike, columns_of: npt.ArrayLike, values: npt.ArrayLike, *, steps: int
    ) -> Integers:
        """The vectors of `steps` steps.

        Parameters
        ----------
        steps_of, columns_of, values
            Of each record its step and its column, from 0 (left out where negative), and its value in grid units.
        steps
            How many steps there are.
        """
        at, column = np.asarray(steps_of, dtype=np.int64), np.asarray(columns_of, dtype=np.int64)
        cut = np.clip(np.asarray(values, dtype=np.int64), 0, self.bound)
        there = column >= 0
        at, column, cut = at[there], column[there], cut[there]
        size, place = len(self.ends), np.searchsorted(self.ends, cut)
        out = np.zeros(steps * self.width, dtype=np.int64)
        cell = (at * self.columns + column) * 2 * size + place
        np.add.at(out, cell, 1)
        np.add.at(out, cell + size, cut)
        return out.reshape(steps, self.width)

    def of_steps(self, values: Sequence[Sequence[int]]) -> Integers:
        """The vectors of steps that are given as lists of values in one column."""
        lengths = [len(step) for step in values]
        flat = [value for step in values for value in step]
        return self.counted(
            np.repeat(np.arange(len(lengths)), lengths), np.zeros(sum(lengths)), flat, steps=len(lengths)
        )

    def apart(self, vectors: Integers) -> tuple[Integers, Integers]:
        """(counts, sums), each steps × columns × bins."""
        shaped = vectors.reshape(len(vectors), self.columns, 2, len(self.ends))
        return shaped[:, :, 0], shaped[:, :, 1]

    def clipped(self, vectors: Integers, clip: int) -> Integers:
        """Steps × columns: sums of values that are clipped at an end of a bin."""
        counts, sums = self.apart(vectors)
        inside = int(np.searchsorted(self.ends, clip)) + 1
        found: Integers = sums[:, :, :inside].sum(axis=2) + clip * counts[:, :, inside:].sum(axis=2)
        return found

    def totals(self, vectors: Integers) -> Integers:
        """Steps × columns: how many values there are."""
        found: Integers = self.apart(vectors)[0].sum(axis=2)
        return found

    def end_above(self, value: float) -> int:
        """The least end that is not below a value, or the bound."""
        return int(self.ends[min(int(np.searchsorted(self.ends, value)), len(self.ends) - 1)])

    def describe(self) -> dict[str, Any]:
        """Identify them exactly, as JSON."""
        return {"bound": self.bound, "columns": self.columns, "per_doubling": self.per_doubling}
