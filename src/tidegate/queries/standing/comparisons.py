"""Columns compared with each other: the largest ones, and one as a part of another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tidegate.errors import InvalidParameter
from tidegate.queries.standing.operator import Known, Meaning, Operator, Row, Values
from tidegate.queries.standing.windows import Window

BOTH = (
    1.302  # an interval at 95 % is so much wider than one at 90 %, of Laplace noise; of Gaussian noise less
)


class Top(Operator):
    """The columns with the largest values, and between which ranks each of them really is.

    Whoever is listed was chosen because noise was kind to it. So the intervals hold for all columns at once, at 90 %:
    each is made as wide as 1 − 0.1/d asks for d columns of Laplace noise, which is more than lighter tails need. `best`
    and `worst` are the ranks that a column can have if every interval is right.

    Parameters
    ----------
    meaning, columns
        As for every operator; the columns that are compared.
    count
        How many are listed.
    window
        Over which values are added up before they are compared, if not of the step alone.
    """

    extras: ClassVar[tuple[str, ...]] = ("rank", "best", "worst")

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, count: int, window: Window | None = None
    ) -> None:
        super().__init__(meaning, columns)
        self.count = count
        self.window = window
        self._wider = 1 + math.log10(len(self.chosen))

    def push(self, known: Known) -> Iterator[Row]:
        """The list at the next step, the largest first; equal ones in the order of their columns."""
        values, radius = (known.values, known.radius) if self.window is None else self.window.follow(known)
        found, low, high = (part[self.chosen] for part in self.meaning.read(values, radius * self._wider))
        there = ~np.isnan(found)
        order = np.argsort(np.where(there, -found, np.inf), kind="stable")
        for rank, at in enumerate(order[: self.count].tolist(), 1):
            if not there[at]:
                return
            best, worst = self._ranks(at, low, high, int(there.sum()))
            label = self.meaning.labels[self.chosen[at]]
            yield Row(
                known.step, label, float(found[at]), float(low[at]), float(high[at]), (rank, best, worst)
            )

    def _ranks(self, at: int, low: Values, high: Values, count: int) -> tuple[int, int]:
        if np.isnan(low).any():
            return 1, count  # without intervals nothing is known of the ranks
        above = int((low > high[at]).sum())
        below = int((high < low[at]).sum())
        return above + 1, len(low) - below

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        if self.window is not None:
            self.window.revise(known)


class Ratio(Operator):
    """One column divided by another, of the step or of the last steps.

    Its interval is that of all quotients where both numbers are in intervals at 95 %; there is none where the divisor
    may be 0.

    Parameters
    ----------
    meaning
        As for every operator.
    of, by
        The column that is divided, and the one that it is divided by.
    window
        Over which both are added up before, if not of the step alone.
    """

    def __init__(self, meaning: Meaning, *, of: str, by: str, window: Window | None = None) -> None:
        super().__init__(meaning, (of, by))
        if of == by:
            raise InvalidParameter("by", by, "another column than of", "name the one to divide by")
        self.window = window
        self._label = f"{of} / {by}"

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        values, radius = (known.values, known.radius) if self.window is None else self.window.follow(known)
        found, low, high = (part[self.chosen] for part in self.meaning.read(values, radius * BOTH))
        yield Row(known.step, self._label, *quotient(found, low, high))

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        if self.window is not None:
            self.window.revise(known)


def quotient(found: Values, low: Values, high: Values) -> tuple[float, float, float]:
    """The first number over the second, with all that it can be; NaN where that is anything.

    Examples
    --------
    >>> quotient(np.array([6.0, 3.0]), np.array([4.0, 2.0]), np.array([8.0, 4.0]))
    (2.0, 1.0, 4.0)
    """
    nothing = float("nan")
    value = float(found[0] / found[1]) if found[1] else nothing
    if not (low[1] > 0 or high[1] < 0) or math.isnan(float(low[0])):
        return value, nothing, nothing
    ends = [float(a / b) for a in (low[0], high[0]) for b in (low[1], high[1])]
    return value, min(ends), max(ends)
