"""Compiled arithmetic of measurements that are released as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


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
