"""Unit counts and sliding-window sums from releases."""

from __future__ import annotations

from tidegate.queries.history import Followed
from tidegate.queries.query import Aggregate, Answers, Question


class UnitCounts(Question):
    """The count of each step, smoothed in another way than the mechanism did, or summed to aggregates.

    Parameters
    ----------
    columns, smoother, aggregate
        As for :class:`Question`.

    Examples
    --------
    >>> import numpy as np, tidegate as tg
    >>> run = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1"), columns=3))
    >>> releases = run.push_batch(np.full((50, 3), 9))
    >>> UnitCounts(columns=3, smoother="average", aggregate=[(0, 1), (2,)]).push_batch(releases).shape
    (50, 2)
    """

    def __init__(self, columns: int, smoother: str = "median", aggregate: Aggregate | None = None) -> None:
        super().__init__(columns, 1, smoother, aggregate)

    def _answer(self, followed: Followed) -> Answers:
        return followed.latest


class WindowSum(Question):
    """The sum over the last `window` steps (fewer at the beginning): the Window Sum Smoother.

    Every step of the window is estimated from all measurements of its group so far, also later ones. With
    ``smoother="released"`` the released values are added up as they are.

    Parameters
    ----------
    columns, window, smoother, aggregate
        As for :class:`Question`.

    Examples
    --------
    >>> import numpy as np, tidegate as tg
    >>> run = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="1")))
    >>> releases = run.push_batch(np.full(50, 9))
    >>> WindowSum(columns=1, window=12).push_batch(releases).shape
    (50, 1)
    """

    def __init__(
        self, columns: int, window: int, smoother: str = "median", aggregate: Aggregate | None = None
    ) -> None:
        super().__init__(columns, window, smoother, aggregate)

    def _answer(self, followed: Followed) -> Answers:
        return followed.sums
