"""The one rule by which numbers are rounded to a grid: to the nearest unit, halves upwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def half_up(value: Any) -> Any:
    """floor(value + ½), exactly: value + ½ may be no float. Never half to even, which moves 0.5 and 1.5 two apart."""
    below = np.floor(value)
    return below + 1.0 if value - below >= 0.5 else below


@kernel
def all_half_up(values: Any) -> Any:
    """The same of an array, as whole numbers."""
    rounded = np.empty(values.size, dtype=np.int64)
    for at in range(values.size):
        rounded[at] = np.int64(half_up(values[at]))
    return rounded


@kernel
def most_extreme(values: Any) -> Any:
    """The largest absolute value; the smallest int64 counts as the largest there is."""
    low = np.int64(0)
    high = np.int64(0)
    for value in values:
        low = min(low, value)
        high = max(high, value)
    return max(high, -max(low, np.int64(-9223372036854775807)))


@kernel
def round_to_grid(values: Any, denominator: int, largest: float) -> Any:
    """Round to whole grid units, halves upwards; say whether all lay on the grid, and whether all were usable."""
    rounded = np.zeros(values.size, dtype=np.int64)
    exactly = True
    usable = True
    for at in range(values.size):
        scaled = values[at] * denominator
        nearest = half_up(scaled)
        if not (-largest <= nearest <= largest):  # also true of NaN
            usable = False
            continue
        rounded[at] = np.int64(nearest)
        # a decimal such as 0.07 on a grid of 0.01 is on the grid if no float is nearer to the grid point
        exactly = exactly and values[at] == nearest / denominator
    return rounded, exactly, usable
