"""Compiled checks and conversions of pushed values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels.grid import half_up


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


@kernel
def add_noise(matrix: Any, noise: Any, grid: float) -> Any:
    """(values + noise) · grid as floats, in one pass that reuses the noise's memory."""
    result = noise.view(np.float64)
    for step in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            result[step, column] = (matrix[step, column] + noise[step, column]) * grid
    return result


@kernel
def hold(matrix: Any, noise: Any, measured: Any, last: Any, grid: float, values: Any) -> Any:
    """Write the last measurement · grid into every row; rows `measured` are new ones. Returns the last of them."""
    last = last.copy()
    count = 0
    for step in range(matrix.shape[0]):
        if count < measured.size and measured[count] == step:
            for column in range(last.size):
                last[column] = matrix[step, column] + noise[count, column]
            count += 1
        for column in range(last.size):
            values[step, column] = last[column] * grid
    return last
