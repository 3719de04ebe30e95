"""Pushed values: checked, and put on the grid, before anything else happens. Refused here, nothing was touched."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate import frames
from tidegate.compiled import lean
from tidegate.errors import InvalidInput
from tidegate.exact import show
from tidegate.structures.clamping import LARGEST, as_floats, most_units, saturated
from tidegate.structures.kernels.grid import most_extreme, round_to_grid

Matrix = npt.NDArray[np.int64]

MISSING = np.iinfo(np.int64).min  # what stands for a reading that is missing; no value is so small


@lean
def copy_values(values: Any, units: Any) -> Any:
    """Copy whole numbers; the largest absolute value, where the smallest int64 counts as the largest there is."""
    low = np.int64(0)
    high = np.int64(0)
    for at in range(values.size):
        value = values[at]
        units[at] = value
        low = min(low, value)
        high = max(high, value)
    return max(high, -max(low, np.int64(-9223372036854775807)))


class Reader(Protocol):
    """What a session reads pushed values with."""

    def row(self, values: Any) -> Matrix:
        """One step, as a matrix of one row."""

    def rows(self, values: Any) -> Matrix:
        """Several steps."""


class ValueReader:
    """Values of any numeric form as whole grid units, steps × columns.

    Parameters
    ----------
    columns
        How many a step has.
    grid
        The public resolution, one over a whole number.
    rounding
        "refuse": values must lie on the grid. "nearest": they are rounded to it.
    clamp
        A public bound: values beyond it are cut, and what is no number counts as 0. None: such values are refused.
    missing
        Whether NaN is a reading that is missing, written as `MISSING`.

    Examples
    --------
    >>> ValueReader(2, Fraction(1, 2)).row([3, 0.5]).tolist()
    [[6, 1]]
    """

    def __init__(
        self,
        columns: int,
        grid: Fraction = Fraction(1),
        rounding: str = "refuse",
        clamp: Fraction | None = None,
        missing: bool = False,
    ) -> None:
        self.columns, self.rounding, self.clamp, self.missing = columns, rounding, clamp, missing
        self.names: tuple[str, ...] | None = None  # of the columns, where the session was given them
        self._per_one, self._most = grid.denominator, most_units(grid)
        self._counts = columns == 1 and grid == 1 and clamp is None  # whole numbers are what they are

    def row(self, values: Any) -> Matrix:
        """One step, as a matrix of one row."""
        given = values if isinstance(values, np.ndarray | list) else self._in_order(values, True)
        array = self._numbers(given)
        if array.ndim == 0 and self.columns == 1:
            array = array.reshape(1)
        if array.shape != (self.columns,):
            raise InvalidInput(
                f"a step has {self.columns} columns and this one has the shape {array.shape}; push {self.columns} values."
            )
        return self._on_grid(array[np.newaxis])

    def one(self, values: Any) -> Any:
        """One step as whole numbers, and where it has one column as a plain one."""
        if type(values) is int and self._counts and -LARGEST <= values <= LARGEST:
            return values
        row = self.row(values)[0]
        return row.item() if self.columns == 1 else row

    def rows(self, values: Any) -> Matrix:
        """Several steps."""
        given = values if isinstance(values, np.ndarray | list) else self._in_order(values)
        array = self._numbers(given)
        if array.ndim == 1 and self.columns == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] != self.columns:
            raise InvalidInput(
                f"a batch is an array of steps × {self.columns} columns and this one has the shape {array.shape}; "
                "reshape it."
            )
        return self._on_grid(array)

    def _in_order(self, values: Any, one: bool = False) -> Any:
        """Values whose columns have names, in the order of the session's; all others as they are.

        Names are never learnt from what is pushed: data would decide how later data are read.
        """
        given = frames.names_of(values, one)
        if given is None:
            return values
        if self.names is None:
            raise InvalidInput(
                "the columns that were pushed have names and those of this session have none; open it with names=[…], in "
                "the order of its columns, or push an array in that order."
            )
        return frames.in_order(values, given, self.names)

    def _numbers(self, values: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(values)
            array = as_floats(array) if self.clamp is not None else array
        except (ValueError, OverflowError):
            array = np.empty(0, dtype=object)
        if array.dtype.kind not in "buif":
            raise InvalidInput(
                "values must be numbers in a regular array; convert them before they are pushed."
            )
        return array

    def _on_grid(self, array: npt.NDArray[Any]) -> Matrix:
        if self.missing and array.dtype.kind == "f" and (gaps := np.isnan(array)).any():
            units = self._on_grid(np.where(gaps, 0.0, array))
            units[gaps] = MISSING
            return units
        if self.clamp is not None:
            return saturated(array, self.clamp, Fraction(1, self._per_one))
        if array.dtype.kind in "bui":
            if array.dtype == np.uint64 and array.size and int(array.max()) > LARGEST:
                raise _beyond(LARGEST)
            units = np.empty(array.shape, dtype=np.int64)  # a copy: whoever pushed may change theirs
            if array.dtype == np.int64 and array.flags.c_contiguous:
                most = copy_values(array.ravel(), units.ravel())
            else:
                units[...] = array
                most = most_extreme(units.ravel())
            if most > LARGEST // self._per_one:
                raise _beyond(LARGEST)
            return units if self._per_one == 1 else units * self._per_one
        flat = np.ascontiguousarray(array, dtype=np.float64).ravel()
        units, exactly, finite = round_to_grid(flat, self._per_one, float(self._most))
        if not finite:
            raise InvalidInput(
                f"a value is NaN, infinite or beyond {self._most} grid units; fill gaps from public or released values, "
                "or choose a coarser grid."
            )
        if not exactly and self.rounding == "refuse":
            raise InvalidInput(
                f"a value does not lie on the grid of {show(Fraction(1, self._per_one))}; round each contribution to the "
                'grid before summing, or declare rounding="nearest", which raises the sensitivity.'
            )
        matrix: Matrix = units.reshape(array.shape)
        return matrix


def _beyond(most: int) -> InvalidInput:
    return InvalidInput(
        f"a value lies beyond ±{most} grid units, the range in which integers are exact; choose a coarser grid."
    )
