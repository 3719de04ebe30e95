"""A quantile by the sparse vector technique: pure differential privacy, no smoothness, no δ."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
LARGEST = 1 << 44  # of an unknown bound, in grid units: noise scaled to it still fits


def candidates(bound: int, per_doubling: int) -> Integers:
    """A geometric public grid of whole numbers 1, 2, …, bound, `per_doubling` to a factor of two where it is fine.

    Examples
    --------
    >>> candidates(100, 2)
    array([  1,   2,   3,   4,   6,   8,  11,  16,  23,  32,  45,  64,  91, 100])
    """
    count = math.ceil(math.log2(bound) * per_doubling) + 1 if bound > 1 else 1
    powers = np.floor(2.0 ** (np.arange(count) / per_doubling) + 0.5).astype(np.int64)
    return np.unique(np.append(powers[powers < bound], bound))


def first_above(values: Integers, grid: Integers, rank: int, start_noise: int, noise: Integers) -> int:
    """The position of the first candidate v with #{values ≤ v} + noise ≥ rank + start_noise, or the last one."""
    counts = np.searchsorted(np.sort(values), grid, side="right")
    passed = np.flatnonzero(counts + noise >= rank + start_noise)
    return int(passed[0]) if len(passed) else len(grid) - 1
