"""Sums and means over the last steps, or since a day, a week or a month of the calendar began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from tidegate.queries.standing.operator import (
    Adding,
    Known,
    Meaning,
    Row,
    Total,
    Values,
    difference,
)


class Window(Adding):
    """The sum or the mean of the last steps; of fewer at the beginning of the stream.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    length
        How many steps.
    mean
        Whether the sum is divided by the number of steps that have a value.

    Examples
    --------
    >>> import numpy as np
    >>> window = Window(Meaning(("a",)), (), length=2)
    >>> nothing = np.full(1, np.nan)
    >>> [next(window.push(Known(t, np.array([v]), nothing))).value for t, v in ((1, 3.0), (2, 4.0), (3, 5.0))]
    [3.0, 7.0, 9.0]
    """

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, length: int, mean: bool = False
    ) -> None:
        super().__init__(
            meaning, columns, length + meaning.sums
        )  # of running sums one before the window as well
        self.length = length
        self.mean = mean
        self._steps = 0

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        yield from self._rows(known.step, *self.follow(known))

    def follow(self, known: Known) -> tuple[Values, Values]:
        """The sum or mean after the next step, with its radius."""
        self._steps += 1
        gone = self._recent.put(known)
        if self.meaning.sums:
            values, radius = difference(known, self._recent.back(self.length))
            count = min(self._steps, self.length)
            return (values / count, radius / count) if self.mean else (values, radius)
        if self._total is None:
            self._total = Total(len(known.values), slides=True)
        if gone is not None:
            self._total.forget(gone)
        self._total.add(known)
        return averaged(self._total) if self.mean else (self._total.values.copy(), self._total.radius())

    @property
    def full(self) -> bool:
        """Whether so many steps have passed."""
        return self._steps >= self.length


class CalendarWindow(Adding):
    """The sum or the mean since a day, a week or a month of the calendar began.

    At the last step of a day it is that of the whole day. `part` says how much of it has passed.

    Parameters
    ----------
    meaning, columns, mean
        As for :class:`Window`.
    period
        The first and the last step of the period that a step belongs to: from the public clock.
    """

    extras: ClassVar[tuple[str, ...]] = ("part",)

    def __init__(
        self,
        meaning: Meaning,
        columns: Sequence[str] = (),
        *,
        period: Callable[[int], tuple[int, int]],
        mean: bool = False,
    ) -> None:
        super().__init__(meaning, columns, 2**31)
        self.period = period
        self.mean = mean
        self._first = 0
        self._before: Known | None = None  # the running sum when the period began

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        first, last = self.period(known.step)
        if self._total is None or first != self._first:
            self._before = self._recent.back(0) if len(self._recent) else None
            self._first, self._total = first, Total(len(known.values))
            self._recent.clear()
        self._recent.put(known)
        self._total.add(known)
        passed = known.step - first + 1
        if self.meaning.sums:
            values, radius = difference(known, self._before)
            if self.mean:
                values, radius = values / passed, radius / passed
        else:
            values, radius = (
                averaged(self._total) if self.mean else (self._total.values.copy(), self._total.radius())
            )
        part = round(passed / (last - first + 1), 6)
        for row in self._rows(known.step, values, radius):
            yield row._replace(more=(part,))


def averaged(total: Total) -> tuple[Values, Values]:
    """A sum and its radius over the number of steps that have a value; NaN where none has."""
    count = total.count.astype(float)
    count[count == 0] = float("nan")
    return total.values / count, total.radius() / count
