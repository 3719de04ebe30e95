"""Errors as the papers measure them, in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
BLOCK = 32_768  # cells


def cut_errors(released: npt.NDArray[np.float64], truth: npt.NDArray[Any]) -> tuple[float, float]:
    """(mean absolute, mean relative) error of values cut at 0, in one pass over blocks that stay in the cache.

    Relative is |released − true| over max(true, floor). The floor keeps cells that are nearly empty from deciding all:
    0.1 % of the mean step's total, the sanity bound of the w-event paper's line of work, and never below 1.

    Examples
    --------
    >>> cut_errors(np.array([[-3.0, 5.0]]), np.array([[0, 4]]))
    (0.5, 0.125)
    """
    floor = max(1.0, 0.001 * float(truth.sum()) / len(truth))
    absolute = relative = 0.0
    rows = max(1, BLOCK // max(1, truth.shape[1]))
    for first in range(0, len(truth), rows):
        true = truth[first : first + rows].astype(np.float64)
        wrong = np.maximum(released[first : first + rows], 0.0)
        wrong -= true
        np.abs(wrong, out=wrong)
        absolute += float(wrong.sum())
        wrong /= np.maximum(true, floor, out=true)
        relative += float(wrong.sum())
    return absolute / truth.size, relative / truth.size


def interval_of_mean(samples: npt.ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the mean of runs, by Student's distribution.

    Examples
    --------
    >>> low, high = interval_of_mean([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-0.48, 4.48)
    """
    from scipy.stats import t

    values = np.asarray(samples, float)
    mean = float(values.mean())
    if values.size < 2:
        return mean, mean
    half = float(t.ppf(0.5 + level / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return mean - half, mean + half
