"""Forecasts of the steps to come, made from releases only, with intervals from how far earlier ones were off."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.queries.forecast import LEAST, forecast
from tidegate.queries.standing.operator import Known, Meaning, Operator, Row, Values
from tidegate.queries.standing.totals import SPREAD

ERRORS = 400  # of earlier predictions, that are remembered
RECENT = 20  # of which the last ones count by themselves: a stream that grows is further off than it was
ENOUGH = 20  # of them, before there is an interval
CONFIDENCE = 0.9
SLOWEST = 0.25  # how much of a phase's profile the newest value is at least
BESIDE = 1 - 1 / RECENT  # how much of what is known of the side of errors is left after each
SURE = 2.0  # standard errors by which that side is more than chance
VISIBLE = 0.1  # of the half-width of a value: less than that nobody can tell from what was expected
LEVELS = (1 / 24, 1 / 4)  # the same of a level that hardly moves, and of one that follows


class Forecast(Operator):
    """The next steps of every column, made again every so many steps.

    Nine of ten earlier predictions were off from what was then released by at most as much as an interval is wide, as far
    as the past tells. To that comes what releases hide: the scatter of the truth around a level, and what a release
    repeats of the error of the one before, because a forecast repeats it too. There is no interval where one of the last
    20 releases has none. A later word on an earlier step changes
    no forecast.

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
    confidence: ClassVar[float] = CONFIDENCE
    recent: ClassVar[bool] = True  # whether the last errors count by themselves

    def __init__(self, meaning: Meaning, columns: Sequence[str] = (), *, ahead: int, every: int) -> None:
        super().__init__(meaning, columns)
        self.ahead = ahead
        self.every = every
        self._known: Values | int = 0  # steps in a row of which releases have said how far off they are

    def push(self, known: Known) -> Iterator[Row]:
        """Learn from the next step, and forecast if it is time."""
        self._learn(known)
        own, shared, carry, lasting = known.made_of
        self._known = np.where(np.isinf(shared), 0, self._known + np.ones(len(known.values)))
        if known.step % self.every:
            return
        hidden = SPREAD * np.sqrt(own + shared * carry + lasting)
        hidden = np.where(np.isnan(hidden), 0.0, hidden)  # of some mechanisms nothing is known
        # nothing was measured yet, or only now and then: then nothing says what happened in between
        hidden = np.where(np.isinf(hidden) | (self._known < RECENT), np.nan, hidden)
        for ahead, (values, radius) in enumerate(self._predict(known.step), 1):
            for row in self._rows(known.step + ahead, values, np.hypot(radius, hidden)):
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
    """The profile of the day or of the week, or a level, whichever has predicted a column best of late.

    Where the last predictions of a column were too low or too high on average, by more than chance explains, the next
    ones are moved by it: a profile and a level follow a stream that grows, late.

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
    ...     rows = list(daily.push(Known(step, np.array([float(step % 4)]), nothing)))
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
        self.periods = (*(1 for _ in LEVELS), *periods)  # a period of one step is a level
        self._gains = (*LEVELS, *(SLOWEST for _ in periods))
        self._profiles: list[Values] = []
        self._seen: list[Values] = []
        # predictors × remembered × columns; the last ones are the levels, so many steps ahead
        self._errors = np.zeros((0, 0, 0))
        self._filled = np.zeros((0, 0), dtype=np.int64)
        self._sides = np.zeros(
            (3, 0, 0)
        )  # faded sums of errors with their signs, of their squares, and of ones
        self._levels: deque[Values] = deque(maxlen=ahead)  # of the last steps

    def _learn(self, known: Known) -> None:
        width = len(known.values)
        if not self._profiles:
            self._profiles = [np.full((period, width), np.nan) for period in self.periods]
            self._seen = [np.zeros((period, width)) for period in self.periods]
            count = len(self.periods) + len(LEVELS)
            self._errors = np.full((count, ERRORS, width), np.nan)
            self._filled = np.zeros((count, width), dtype=np.int64)
            self._sides = np.zeros((3, count, width))
        there = ~np.isnan(known.values)
        if len(self._levels) == self.ahead:
            for number, level in enumerate(self._levels[0], len(self.periods)):
                self._remember(number, known.values, level)
        for number, period in enumerate(self.periods):
            phase = known.step % period
            profile, seen = self._profiles[number][phase], self._seen[number][phase]
            predicted = there & ~np.isnan(profile)
            self._remember(number, known.values, profile)
            seen += there
            gain = np.maximum(1 / np.maximum(seen, 1), self._gains[number])
            moved = np.where(predicted, profile + gain * (known.values - profile), known.values)
            profile[there] = moved[there]
        self._levels.append(np.array([profile[0] for profile in self._profiles[: len(LEVELS)]]))

    def _remember(self, number: int, values: Values, predicted: Values) -> None:
        error = values - predicted
        columns = np.flatnonzero(~np.isnan(error))
        self._errors[number, self._filled[number, columns] % ERRORS, columns] = np.abs(error[columns])
        self._filled[number, columns] += 1
        self._sides[:, number, columns] *= BESIDE
        self._sides[:, number, columns] += [error[columns], error[columns] ** 2, np.ones(len(columns))]

    def _beside(self, which: npt.NDArray[np.intp]) -> Values:
        """How far predictions were too low of late, as far as it is no chance; for a number of a predictor per column."""
        total, squares, count = self._sides[:, which, np.arange(len(which))]
        mean = total / np.maximum(count, 1.0)
        variance = np.maximum(squares / np.maximum(count, 1.0) - mean**2, 0.0) / np.maximum(count, 1.0)
        known = 1 - SURE**2 * variance / np.maximum(mean**2, np.finfo(float).tiny)
        return np.where(count >= ENOUGH / 4, mean * np.maximum(known, 0.0), 0.0)

    def _predict(self, step: int) -> Iterator[tuple[Values, Values]]:
        every = np.arange(self._errors.shape[2])
        count = len(self.periods)
        filled = np.minimum(self._filled[:count], ERRORS)
        total = np.nansum(self._errors[:count], axis=1)
        off = np.divide(total, filled, out=np.full(total.shape, np.inf), where=filled > 0)
        best = np.argmin(off, axis=0)
        level = np.minimum(best, len(LEVELS)) % len(LEVELS)  # of a profile, where it is lacking: the first
        near, other, far = (
            self._half(self._errors[which, :, every].T, self._filled[which, every])
            for which in (level, best, count + level)
        )
        moved, moved_other, moved_far = (self._beside(which) for which in (level, best, count + level))
        for ahead in range(1, self.ahead + 1):
            # a level that walks is off by a variance that grows step by step
            part = (ahead - 1) / max(self.ahead - 1, 1)
            walked = np.sqrt(near**2 + np.fmax(far**2 - near**2, 0.0) * part)
            at = [
                profile[(step + ahead) % period]
                for profile, period in zip(self._profiles, self.periods, strict=True)
            ]
            values = np.array(at)[best, every]
            # a phase that was never seen is predicted by the level
            lacking = np.isnan(values)
            levelled = lacking | (best < len(LEVELS))
            beside = np.where(levelled, moved + (moved_far - moved) * part, moved_other)
            yield np.where(lacking, at[0], values) + beside, np.where(levelled, walked, other)

    def _half(self, errors: Values, filled: npt.NDArray[np.int64]) -> Values:
        """How far predictions were off at most, but for a few: of all that are remembered, or of the last ones."""
        found = _quantile(errors, np.minimum(filled, ERRORS), self.confidence)
        if not self.recent:
            return found
        last = (filled[np.newaxis] - 1 - np.arange(RECENT)[:, np.newaxis]) % ERRORS
        recent = np.take_along_axis(errors, last, axis=0)
        recent[np.arange(RECENT)[:, np.newaxis] >= filled[np.newaxis]] = np.nan
        return np.fmax(found, _quantile(recent, np.minimum(filled, RECENT), self.confidence))


def _quantile(errors: Values, filled: npt.NDArray[np.int64], confidence: float) -> Values:
    """For each column the error below which so large a part of them lies; the largest where they are too few for that.

    Parameters
    ----------
    errors
        Remembered × columns; NaN where nothing is remembered yet.
    filled
        How many of each column are.
    confidence
        The part. One of n + 1 errors that may change places is the next, so it is taken of n + 1.
    """
    rank = np.minimum(np.ceil(confidence * (filled + 1) - 1e-9), filled).astype(np.int64)
    found = np.sort(errors, axis=0)[np.maximum(rank - 1, 0), np.arange(errors.shape[1])]
    return np.where(filled >= ENOUGH, found, np.nan)


class Unexpected(SeasonalForecast):
    """Whether the value of a step is below or above what was expected of it before it was released.

    Expected is the forecast from the step before, in the interval that holds 99 of 100 of its earlier errors: those of
    the last 400 steps, or the largest as long as there are fewer than 99. Releases are compared with releases, so the
    noise is in that interval. A value outside of it by less than a tenth of its own half-width raises no alarm. An alarm
    is certain where the whole interval of the value is outside of it.

    Parameters
    ----------
    meaning, columns, periods
        As for every forecast.
    below, above
        On which sides there are alarms.

    Examples
    --------
    >>> odd = Unexpected(Meaning(("a",)))
    >>> nothing = np.full(1, np.nan)
    >>> for step, value in enumerate([10.0, 11.0] * 20 + [30.0], 1):
    ...     rows = list(odd.push(Known(step, np.array([value]), np.full(1, 2.0))))
    >>> rows[0].value, rows[0].more[:3]
    (30.0, (True, True, 'above'))
    """

    extras: ClassVar[tuple[str, ...]] = (
        "alarm",
        "certain",
        "direction",
        "expected",
        "expected_low",
        "expected_high",
    )
    confidence: ClassVar[float] = 0.99
    recent: ClassVar[bool] = False

    def __init__(
        self,
        meaning: Meaning,
        columns: Sequence[str] = (),
        *,
        periods: Sequence[int] = (),
        below: bool = True,
        above: bool = True,
    ) -> None:
        super().__init__(meaning, columns, ahead=1, every=1, periods=periods)
        self.below, self.above = below, above

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step, once there are enough earlier forecasts to say what is usual."""
        if self._profiles:
            values, radius = next(self._predict(known.step - 1))
            expected = zip(*self.meaning.read(values, radius), strict=True)
            ends = list(expected)
            for at, row in zip(self.chosen, self._rows(known.step, known.values, known.radius), strict=True):
                middle, low, high = map(float, ends[at])
                if np.isfinite((row.value, low, high)).all():
                    yield row._replace(more=self._judged(row, middle, low, high))
        self._learn(known)

    def _judged(self, row: Row, middle: float, low: float, high: float) -> tuple[object, ...]:
        seen = VISIBLE * float(np.nan_to_num(row.high - row.low)) / 2
        above, below = self.above and row.value > high + seen, self.below and row.value < low - seen
        certain = (above and row.low > high) or (below and row.high < low)
        direction = "above" if above else "below" if below else ""
        return above or below, certain, direction, *(float(f"{each:.6g}") for each in (middle, low, high))


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
