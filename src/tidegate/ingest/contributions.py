"""Contribution bounding: what turns events of people into counts of known sensitivity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.ingest.bounding import bounded

# Steps are computed in 64-bit integers; a clock that ends beyond them would wrap around.
_LATEST = 2**62
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """Counts of units per step and column, where one unit counts at most ``most`` times in a step.

    A unit that is seen many times, or in many columns, within one step is kept in the first ``most`` distinct
    columns of that step, ordered by time and, at equal times, by column. The rule looks at the unit's own
    events only, and not at the order in which events arrive, so adding or removing one unit changes nothing
    about what is kept of the others.

    Parameters
    ----------
    start : int
        Time at which step 0 begins. Public.
    length : int
        Length of a step, in the unit of the times. Public.
    steps : int
        Number of steps. Public: it must not depend on the events.
    columns : int
        Number of columns of the counts.
    most : int
        Largest number of columns in which one unit counts in one step.

    Privacy
    -------
    All events of one unit within a step change the counts of that step by at most ``max_change = most`` in L1
    when the unit is added or removed. Events before the start, after the last step or in a column that does
    not exist are left out without a word: an error, or a number of them, would say something about people.

    Error
    -----
    Time O(n log n) and memory O(n) in the number of events, whatever `most` and the units are.

    Examples
    --------
    Unit 7 moves from column 0 to column 1 within the first hour and counts where it was seen first.

    >>> hourly = Contributions(start=0, length=3600, steps=2, columns=2)
    >>> hourly.count(units=[7, 7, 8, 7], columns=[1, 0, 1, 1], times=[900, 60, 30, 4000])
    array([[1, 1],
           [0, 1]])
    >>> hourly.max_change
    1
    """

    start: int
    length: int
    steps: int
    columns: int
    most: int = 1

    def __post_init__(self) -> None:
        """Refuse a clock or a bound that cannot be kept."""
        whole("start", self.start, least=-_LATEST, most=_LATEST)
        whole("length", self.length, most=_LATEST)
        whole("steps", self.steps, least=0)
        whole("columns", self.columns)
        whole("most", self.most)
        if self.start + self.steps * self.length > _LATEST:
            raise InvalidParameter(
                "steps", self.steps, f"such that the clock ends by {_LATEST}", "use fewer or shorter steps"
            )

    @property
    def max_change(self) -> int:
        """Largest L1 change of one step's counts when one unit is added or removed (Δ)."""
        return min(self.most, self.columns)

    def count(
        self, units: npt.ArrayLike, columns: npt.ArrayLike, times: npt.ArrayLike
    ) -> npt.NDArray[np.int64]:
        """Count distinct units per step and column, each unit at most ``most`` times a step.

        Parameters
        ----------
        units : array_like
            Who: integers or strings, one per event.
        columns : array_like of int
            Where: the column of each event.
        times : array_like of int
            When: the time of each event, in the unit of ``start`` and ``length``.

        Returns
        -------
        ndarray of int64, steps × columns
        """
        who, where, when = _parallel(units, columns, times)
        # Compare before any arithmetic, so that extreme times cannot wrap into the clock.
        inside = (when >= self.start) & (when < self.start + self.steps * self.length)
        inside &= (where >= 0) & (where < self.columns)
        unit = who[inside]
        column = where[inside].astype(np.int64)
        time = when[inside].astype(np.int64)
        if unit.dtype.kind not in "iu":
            unit = np.unique(unit, return_inverse=True)[1]

        step = (time - self.start) // self.length
        order = np.argsort(step, kind="stable")
        counts = np.zeros((self.steps, self.columns), dtype=np.int64)
        step, column = step[order], column[order]
        events = step, time[order], unit[order].astype(np.int64), column.astype(np.int32), _NOTHING
        kept = bounded(*events, self.most, True, self.columns)
        np.add.at(counts, (step[kept], column[kept]), 1)
        return counts


def _parallel(*arrays: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Units, columns and times as arrays of one length, with integers where integers are due."""
    who, where, when = (np.asarray(array) for array in arrays)
    if not who.ndim == where.ndim == when.ndim == 1 or not len(who) == len(where) == len(when):
        raise InvalidInput(
            "units, columns and times must be three sequences of one length; pass one entry per event."
        )
    if who.dtype.kind not in "iuUST" and len(who):
        raise InvalidInput(
            f"units have type {who.dtype}, but must be integers or strings; convert them first."
        )
    for name, array in (("columns", where), ("times", when)):
        if array.dtype.kind not in "iu" and len(array):
            raise InvalidInput(f"{name} have type {array.dtype}, but must be integers; convert them first.")
    return who, where, when
