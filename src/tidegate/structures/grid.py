"""Numbers that are counted in units of a public grid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.structures.kernels.grid import all_half_up


def nearest_units(scaled: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The whole grid units nearest to finite numbers that are measured in them, halves upwards.

    Examples
    --------
    >>> nearest_units([-1.5, -0.5, 0.49999999999999994, 0.5, 1.5]).tolist()
    [-1, 0, 0, 1, 2]
    """
    given = np.ascontiguousarray(scaled, dtype=np.float64)
    units: npt.NDArray[np.int64] = all_half_up(given.ravel()).reshape(given.shape)
    return units
