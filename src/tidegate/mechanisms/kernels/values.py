"""A compiled loop over measurements that are released until the next one."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel


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
