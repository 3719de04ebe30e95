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
