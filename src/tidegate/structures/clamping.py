"""Values beyond a public bound saturate, so that no refusal depends on what somebody recorded."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, show
from tidegate.structures.grid import nearest_units
from tidegate.structures.kernels.grid import most_extreme

LARGEST = 2**53  # in grid units: beyond it a float64 can no longer tell neighbouring integers apart
NUMBERS = (Real, Decimal, np.bool_)


def most_units(grid: Fraction) -> int:
    """The largest number of grid units that a float tells from its neighbours: u/d·d in floats, rounded, must be u.

    Dividing by d errs by 2⁻⁵³ of u and multiplying by half a spacing of floats: for u ≤ 2⁵¹ by ¼ + ⅛ of a unit together,
    which rounding takes away. Powers of two divide and multiply without an error.

    Examples
    --------
    >>> most_units(Fraction(1, 8)) == 2**53, most_units(Fraction(1, 10)) == 2**51
    (True, True)
    """
    return LARGEST if grid.denominator.bit_count() == 1 else LARGEST // 4


def read_clamp(clamp: ExactLike, grid: Fraction) -> Fraction:
    """A public bound: a multiple of the grid, small enough to be counted in."""
    bound, most = positive("clamp", clamp), most_units(grid)
    if (bound / grid).denominator != 1 or bound / grid > most:
        raise InvalidParameter(
            "clamp",
            show(bound),
            f"a multiple of the grid of {show(grid)}, and at most {most} times it",
            f'write for example clamp="{show(1000 * grid)}"',
        )
    return bound


def as_floats(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers of every type as float64, cell by cell, and NaN where one is missing; what is no number stays as it is.

    A whole number beyond 2⁵³ may become its neighbour, which is beyond every bound as well.

    Examples
    --------
    >>> as_floats(np.array([3, 10**400, Fraction(1, 2), None], dtype=object)).tolist()
    [3.0, inf, 0.5, nan]
    """
    if array.dtype.kind in "buif":
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    if array.dtype.kind != "O" or not all(_missing(each) or isinstance(each, NUMBERS) for each in array.flat):
        return array
    return np.array([_as_float(each) for each in array.flat], dtype=np.float64).reshape(array.shape)


def _missing(cell: Any) -> bool:
    return cell is None or cell is getattr(sys.modules.get("pandas"), "NA", None)


def _as_float(cell: Any) -> float:
    if _missing(cell) or cell != cell:
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def saturated(values: npt.NDArray[np.float64], bound: Fraction, grid: Fraction) -> npt.NDArray[np.int64]:
    """The values cut to [−bound, bound] and rounded, in grid units; what is no number counts as 0.

    Each cell is a function of its own value alone. Cutting and rounding move no two values further apart than a grid
    unit, and two that lie on the grid not at all.

    Examples
    --------
    >>> saturated(np.array([3, 1e30, np.nan, -np.inf, 0.25]), Fraction(100), Fraction(1, 2)).tolist()
    [6, 200, 0, -200, 1]
    """
    most = float(bound / grid)
    with np.errstate(over="ignore"):
        scaled = np.clip(np.where(np.isnan(values), 0.0, values) * grid.denominator, -most, most)
    return nearest_units(scaled)


def summable(rows: npt.NDArray[np.int64], steps: int) -> npt.NDArray[np.int64]:
    """Grid units of which so many steps add up within 62 bits: cut at a public bound, each by its own value alone.

    Examples
    --------
    >>> summable(np.array([[5], [-(2**53)]]), 4096).ravel().tolist() == [5, -(2**50)]
    True
    """
    most = 2**62 // steps
    if most >= LARGEST or most_extreme(rows.ravel()) <= most:
        return rows
    return np.clip(rows, -most, most)
