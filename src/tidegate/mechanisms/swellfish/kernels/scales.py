"""Compiled filling of missing readings: sequential, since a gap is filled from the release before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels.grid import half_up


@kernel
def fill_gaps(
    matrix: Any, noise: Any, gaps: Any, silent: Any, hold: Any, held: bool, grid: float,
    first: int, source: int, values: Any, sources: Any,
) -> None:  # fmt: skip
    """Write released values: reading + noise, or what fills the gap + noise; `silent` steps repeat the fill alone.

    With `held`, a gap is filled with the last released value, rounded to the grid; else `hold` stays as it is.
    """
    for step in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            if silent[step]:
                values[step, column] = hold[column]
                continue
            reading = matrix[step, column]
            if gaps[step, column]:
                reading = np.int64(half_up(hold[column] / grid))
            values[step, column] = (reading + noise[step, column]) * grid
            if held:
                hold[column] = values[step, column]
        if not silent[step]:
            source = first + step
        sources[step] = source
