"""Arrays on their way into kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.ingest import kernels

_LEAST = -(2**63)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written, as all arrays of polars are: a kernel is compiled for one kind only."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def never_decreases(values: npt.NDArray[np.int64], previous: int = _LEAST) -> bool:
    """Whether each value is at least the one before, starting from the previous one."""
    return bool(kernels.in_order(frozen(values), previous))
