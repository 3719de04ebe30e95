"""Values beyond a public bound saturate, so that no refusal depends on what somebody recorded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, show

LARGEST = 2**53  # in grid units: beyond it a float64 can no longer tell neighbouring integers apart


def read_clamp(clamp: ExactLike, grid: Fraction) -> Fraction:
    """A public bound: a multiple of the grid, small enough to be counted in."""
    bound = positive("clamp", clamp)
    if (bound / grid).denominator != 1 or bound / grid > LARGEST:
        raise InvalidParameter(
            "clamp",
            show(bound),
            f"a multiple of the grid of {show(grid)}, and at most {LARGEST} times it",
            f'write for example clamp="{show(1000 * grid)}"',
        )
    return bound


def saturated(values: Any, bound: Fraction, grid: Fraction) -> Any:
    """The values cut to [−bound, bound] and rounded to the grid; what is no number counts as 0.

    Cutting and rounding move no two values further apart than a grid unit, and two that lie on the grid not at all.
    Shapes, and what is not numeric at all, stay as they are: they are the caller's mistake, whatever the data.

    Examples
    --------
    >>> saturated([3, 10**30, float("nan"), float("-inf")], Fraction(100), Fraction(1)).tolist()
    [3.0, 100.0, 0.0, -100.0]
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":  # whole numbers beyond 64 bits
            array = _whole(array)
    except (ValueError, TypeError, OverflowError):
        return values
    if array.dtype.kind not in "buif":
        return values
    most = int(bound / grid)
    if array.dtype.kind == "f":
        limit = float(bound)
        units = np.floor(np.clip(np.nan_to_num(array, nan=0.0), -limit, limit) * grid.denominator + 0.5)
        return np.clip(units, -most, most) / grid.denominator
    if array.dtype.kind == "b":
        return array
    beyond, held = most // grid.denominator, np.iinfo(array.dtype)
    return np.clip(array, max(-beyond, held.min), min(beyond, held.max))


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if not all(isinstance(each, int | float) for each in array.ravel()):
        raise TypeError
    cut = [each if each != each else max(-LARGEST, min(LARGEST, each)) for each in array.ravel()]
    return np.array(cut, dtype=np.float64).reshape(array.shape)
