"""Forecasts of the steps to come, made from releases only, with intervals from how far earlier ones were off."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from tidegate.queries.forecast import LEAST, forecast
from tidegate.queries.standing.operator import Known, Meaning, Operator, Row, Values

ERRORS = 400  # of earlier predictions, that are remembered
ENOUGH = 20  # of them, before there is an interval
CONFIDENCE = 0.9
SLOWEST = 0.25  # how much of a phase's profile the newest value is at least
STEADY = 1 / 24  # the same of the level


class Forecast(Operator):
    """The next steps of every column, made anew every so many steps.

    An interval is as wide as nine of ten earlier predictions were off from what was then released. So it holds for
    releases to come, with their noise, as far as the past tells; for the truth behind them it is a little too wide. A
    later word on an earlier step changes no forecast.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    ahead
        How many steps are forecast.
    every
        After how many steps a new forecast is made.
    """

    extras: ClassVar[tuple[str, ...]] = ("ahead",)

    def __init__(self, meaning: Meaning, columns: Sequence[str] = (), *, ahead: int, every: int) -> None:
        super().__init__(meaning, columns)
        self.ahead = ahead
        self.every = every

    def push(self, known: Known) -> Iterator[Row]:
        """Learn from the next step, and forecast if it is time."""
        self._learn(known)
        if known.step % self.every:
            return
        for ahead, (values, radius) in enumerate(self._predict(known.step), 1):
            for row in self._rows(known.step + ahead, values, radius):
                yield row._replace(more=(ahead,))

    def revise(self, known: Known) -> None:
        """Nothing: a forecast is made from the first word on each step."""

    @abstractmethod
    def _learn(self, known: Known) -> None:
        """Take in a step."""

    @abstractmethod
    def _predict(self, step: int) -> Iterator[tuple[Values, Values]]:
        """Vectors and radii of the next steps."""


class SeasonalForecast(Forecast):
    """The profile of the day or of the week, or the level, whichever has predicted a column best of late.

    Parameters
    ----------
    meaning, columns, ahead, every
        As for every forecast.
    periods
        Public periods in steps: days and weeks.

    Error
    -----
    Time O(d) and memory O(d·(400 + sum of the periods)) a step.

    Examples
    --------
    >>> daily = SeasonalForecast(Meaning(("a",)), ahead=2, every=8, periods=(4,))
    >>> nothing = np.full(1, np.nan)
    >>> for step in range(1, 9):
    ...     rows = list(daily.push(Known(step, np.array([float(step % 4)]), nothing, nothing)))
    >>> [row.value for row in rows]
    [1.0, 2.0]
    """

    def __init__(
        self,
        meaning: Meaning,
        columns: Sequence[str] = (),
        *,
        ahead: int,
        every: int,
        periods: Sequence[int] = (),
    ) -> None:
        super().__init__(meaning, columns, ahead=ahead, every=every)
        self.periods = (1, *periods)  # a period of one step is the level
        self._profiles: list[Values] = []
        self._seen: list[Values] = []
        self._errors = np.zeros((0, 0, 0))  # predictors × remembered × columns
        self._filled = np.zeros((0, 0), dtype=np.int64)

    def _learn(self, known: Known) -> None:
        width = len(known.values)
        if not self._profiles:
            self._profiles = [np.full((period, width), np.nan) for period in self.periods]
            self._seen = [np.zeros((period, width)) for period in self.periods]
            self._errors = np.full((len(self.periods), ERRORS, width), np.nan)
            self._filled = np.zeros((len(self.periods), width), dtype=np.int64)
        there = ~np.isnan(known.values)
        for number, period in enumerate(self.periods):
            phase = known.step % period
            profile, seen = self._profiles[number][phase], self._seen[number][phase]
            predicted = there & ~np.isnan(profile)
            columns = np.flatnonzero(predicted)
            error = np.abs(known.values - profile)
            self._errors[number, self._filled[number, columns] % ERRORS, columns] = error[columns]
            self._filled[number, columns] += 1
            seen += there
            gain = np.maximum(1 / np.maximum(seen, 1), STEADY if period == 1 else SLOWEST)
            moved = np.where(predicted, profile + gain * (known.values - profile), known.values)
            profile[there] = moved[there]

    def _predict(self, step: int) -> Iterator[tuple[Values, Values]]:
        width = self._errors.shape[2]
        off = np.full((len(self.periods), width), np.inf)
        half = np.full((len(self.periods), width), np.nan)
        for number in range(len(self.periods)):
            for column in range(width):
                errors = self._errors[number, : self._filled[number, column], column]
                if len(errors):
                    off[number, column] = errors.mean()
                if len(errors) >= ENOUGH:
                    half[number, column] = np.quantile(errors, CONFIDENCE, method="higher")
        best = np.argmin(off, axis=0)
        every = np.arange(width)
        for ahead in range(1, self.ahead + 1):
            at = [
                profile[(step + ahead) % period]
                for profile, period in zip(self._profiles, self.periods, strict=True)
            ]
            values = np.array(at)[best, every]
            # a phase that was never seen is predicted by the level
            lacking = np.isnan(values)
            yield np.where(lacking, at[0], values), np.where(lacking, half[0], half[best, every])


class ArmaForecast(Forecast):
    """An ARMA(1, 1) model of the last steps, as in the OptStream paper.

    Parameters
    ----------
    meaning, columns, ahead, every
        As for every forecast.
    train
        On how many of the last steps the model is trained; before there are so many, on those that there are.
    """

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, ahead: int, every: int, train: int
    ) -> None:
        super().__init__(meaning, columns, ahead=ahead, every=every)
        self._recent: deque[Values] = deque(maxlen=max(train, LEAST))
        self._waiting: dict[int, Values] = {}
        self._errors: deque[Values] = deque(maxlen=ERRORS)

    def _learn(self, known: Known) -> None:
        last = self._recent[-1] if self._recent else np.zeros(len(known.values))
        values = np.where(np.isnan(known.values), last, known.values)
        self._recent.append(values)
        earlier = self._waiting.pop(known.step, None)
        if earlier is not None:
            self._errors.append(np.abs(values - earlier))

    def _predict(self, step: int) -> Iterator[tuple[Values, Values]]:
        if len(self._recent) < LEAST:
            return
        coming = forecast(np.array(self._recent), self.ahead)
        radius = np.full(coming.shape[1], np.nan)
        if len(self._errors) >= ENOUGH:
            radius = np.quantile(np.array(self._errors), CONFIDENCE, axis=0, method="higher")
        self._waiting = {step + at: values for at, values in enumerate(coming, 1)}
        for values in coming:
            yield values, radius
