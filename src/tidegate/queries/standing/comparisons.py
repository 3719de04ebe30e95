"""Columns compared with each other: the largest ones, and one as a part of another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tidegate.errors import InvalidParameter
from tidegate.queries.standing.operator import Known, Meaning, Operator, Row, Values
from tidegate.queries.standing.windows import Window


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
        self.window: Window | None = window

    def push(self, known: Known) -> Iterator[Row]:
        """The list at the next step, the largest first; equal ones in the order of their columns."""
        values, radius = (known.values, known.radius) if self.window is None else self.window.follow(known)
        wide = self.meaning.widened(radius, len(self.chosen))
        found, low, high = (part[self.chosen] for part in self.meaning.read(values, wide))
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
        self.window: Window | None = window
        self._label = f"{of} / {by}"

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        values, radius = (known.values, known.radius) if self.window is None else self.window.follow(known)
        found, low, high = (
            part[self.chosen] for part in self.meaning.read(values, self.meaning.widened(radius, 2))
        )
        yield Row(known.step, self._label, *quotient(found, low, high))


class Share(Operator):
    """One column of counts as a part of all chosen columns, of the step or of the last steps.

    Its interval is that of all parts where the column is in an interval at 95 % and each other one in an interval that
    makes them all hold at 95 % together. A negative count stands for none.

    Parameters
    ----------
    meaning, columns
        As for every operator: what the whole is made of.
    of
        The column that is a part of it.
    window
        Over which all are added up before, if not of the step alone.

    Examples
    --------
    >>> nothing = np.full(2, np.nan)
    >>> share = Share(Meaning(("inside", "other")), of="other")
    >>> next(share.push(Known(1, np.array([90.0, 10.0]), nothing))).value
    0.1
    """

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, of: str, window: Window | None = None
    ) -> None:
        super().__init__(meaning, columns)
        at = meaning.labels.index(of)
        self._others = [each for each in self.chosen if each != at]
        if at not in self.chosen or not self._others:
            raise InvalidParameter(
                "of", of, "one of at least two columns", "name a column, and the others beside it"
            )
        self.window: Window | None = window
        self._at, self._label = at, f"{of} / all"

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step; none where a column has no reading."""
        values, radius = (known.values, known.radius) if self.window is None else self.window.follow(known)
        found, low, high = self.meaning.read(values, self.meaning.widened(radius, 2))
        _, low_each, high_each = self.meaning.read(
            values, self.meaning.widened(radius, 2 * len(self._others))
        )
        rest = [float(np.maximum(each[self._others], 0).sum()) for each in (found, low_each, high_each)]
        own = [
            max(float(each[self._at]), 0.0) if not np.isnan(each[self._at]) else math.nan
            for each in (found, low, high)
        ]
        pairs = ((own[0], rest[0]), (own[1], rest[2]), (own[2], rest[1]))
        share, least, most = (
            part / (part + other) if part + other > 0 else math.nan for part, other in pairs
        )
        if not math.isnan(own[0] + rest[0]):
            yield Row(known.step, self._label, share, least, most)


class RatioOfTwo(Operator):
    """A column of one query divided by a column of another, of the step or of the last steps.

    Both have been released on their own. At a step each counts with what was known of it when that step was first
    released, and a step of which one of them says nothing counts in neither, so that both are about the same steps. The
    interval is that of :class:`Ratio`: whatever the noise of one has to do with that of the other, both numbers are in
    their intervals at 95 % in nine of ten cases.

    Parameters
    ----------
    meaning, beside
        What the vectors of the two queries mean: of the one that is divided, and of the one that it is divided by.
    of, by
        Their columns.
    label
        How the quotient is called.
    length
        Over how many of the last steps both are added up before, if not of the step alone.

    Examples
    --------
    >>> nothing = np.full(1, np.nan)
    >>> each = RatioOfTwo(Meaning(("euros",)), Meaning(("orders",)), of="euros", by="orders", label="euros / orders")
    >>> each.take_beside(Known(1, np.array([4.0]), nothing))
    >>> next(each.push(Known(1, np.array([10.0]), nothing))).value
    2.5
    """

    def __init__(
        self, meaning: Meaning, beside: Meaning, *, of: str, by: str, label: str, length: int | None = None
    ) -> None:
        super().__init__(meaning, (of,))
        self._sides = _Side(meaning, of, length), _Side(beside, by, length)
        self._label = label
        self._beside: Known | None = None

    def take_beside(self, known: Known) -> None:
        """Take in the first release of the next step of the other query; before that of this one."""
        self._beside = known

    def revise_beside(self, known: Known) -> None:
        """A later word on an earlier step of the other query."""
        self._sides[1].revise(known)

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step."""
        beside, self._beside = self._beside, None
        if beside is None or beside.step != known.step:
            return
        sides = self._sides
        there = sides[0].has(known) and sides[1].has(beside)
        ends = [side.follow(each, there) for side, each in zip(sides, (known, beside), strict=True)]
        yield Row(known.step, self._label, *quotient(*np.array(ends).T))

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        self._sides[0].revise(known)


class _Side:
    """One of two columns that are compared, over the steps that both have."""

    def __init__(self, meaning: Meaning, column: str, length: int | None) -> None:
        self._meaning, self._at = meaning, meaning.labels.index(column)
        self._window = None if length is None else Window(meaning, (column,), length=length)
        self._without: set[int] = set()  # of the last steps those that count in neither

    def has(self, known: Known) -> bool:
        """Whether a release says anything about the column."""
        missing = np.isnan(known.values)
        return not bool(missing[self._at] if self._meaning.direct else missing.all())

    def follow(self, known: Known, there: bool) -> tuple[float, float, float]:
        """The value after the next step, with the ends of its interval at 95 %."""
        if not there:
            known = known._replace(values=np.full(len(known.values), np.nan))
        values, radius = known.values, known.radius
        if self._window is not None:
            if not there:
                self._without.add(known.step)
            self._without.discard(known.step - self._window.length - 1)
            values, radius = self._window.follow(known)
        found, low, high = self._meaning.read(values, self._meaning.widened(radius, 2))
        return float(found[self._at]), float(low[self._at]), float(high[self._at])

    def revise(self, known: Known) -> None:
        """A later word on an earlier step, unless it counts in neither."""
        if self._window is not None and known.step not in self._without:
            self._window.revise(known)


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
