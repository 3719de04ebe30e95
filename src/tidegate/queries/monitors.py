"""Monitors: alarms that are raised from releases, at no further budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.queries.history import Followed, Values
from tidegate.queries.query import Aggregate, Answers, Question
from tidegate.releases import Release, Releases


class _Alarm(Question):
    """An alarm at a threshold."""

    def __init__(
        self,
        columns: int,
        window: int,
        threshold: float,
        smoother: str = "median",
        aggregate: Aggregate | None = None,
    ) -> None:
        super().__init__(columns, window, smoother, aggregate)
        self.threshold = float(threshold)


class Jump(_Alarm):
    """Alarm where the count differs by at least `threshold` from that `window` − 1 steps ago: a jump or drop.

    The earlier count is estimated with its group as of now. There is no alarm before `window` steps have
    passed.

    Parameters
    ----------
    columns, window, smoother, aggregate
        As for :class:`Question`.
    threshold
        From which difference on there is an alarm.

    Examples
    --------
    >>> import numpy as np, tidegate as tg
    >>> run = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="5")))
    >>> releases = run.push_batch(np.repeat([10, 500], 30))
    >>> alarms = Jump(columns=1, window=5, threshold=200).push_batch(releases)
    >>> bool(alarms[31, 0]), bool(alarms[20, 0])
    (True, False)
    """

    def _answer(self, followed: Followed) -> Answers:
        return np.abs(followed.latest - followed.oldest) >= self.threshold  # NaN compares as False


class LowSignal(_Alarm):
    """Alarm where the sum over the last `window` steps is below `threshold`, once there are so many steps.

    Parameters
    ----------
    columns, window, smoother, aggregate
        As for :class:`Question`.
    threshold
        Below which sum there is an alarm.

    Examples
    --------
    >>> import numpy as np, tidegate as tg
    >>> run = tg.open(tg.mechanisms.PeGaSus(tg.Event(epsilon="5")))
    >>> releases = run.push_batch(np.repeat([500, 0], 30))
    >>> alarms = LowSignal(columns=1, window=5, threshold=250).push_batch(releases)
    >>> bool(alarms[20, 0]), bool(alarms[50, 0])
    (False, True)
    """

    def _answer(self, followed: Followed) -> Answers:
        return (followed.sums < self.threshold) & ~np.isnan(followed.oldest)


class Monitor(Question):
    """A monitor of your own: alarm where B(f(the last w counts)) is true, for each column or aggregate.

    If f or B raises, the monitor has failed: from then on it answers False and calls them no more, `failure`
    says at which step and why, and the stream continues.

    Parameters
    ----------
    columns, window, smoother, aggregate
        As for every :class:`Question`.
    measure
        f: takes the estimates of the last `window` counts (oldest first) and returns a number.
    alarm
        B: takes that number and returns whether to raise an alarm.

    Examples
    --------
    >>> monitor = Monitor(columns=1, window=3, measure=np.ptp, alarm=lambda spread: spread > 10)
    >>> monitor.failure is None
    True
    """

    goes_on = True

    def __init__(
        self,
        columns: int,
        window: int,
        measure: Callable[[Values], Any],
        alarm: Callable[[Any], Any],
        smoother: str = "median",
        aggregate: Aggregate | None = None,
    ) -> None:
        super().__init__(columns, window, smoother, aggregate)
        self.measure = measure
        self.alarm = alarm
        self.failure = None

    def push(self, release: Release) -> Answers:
        """The alarms after the next step."""
        self.history.push(release)
        return self._alarms()

    def push_batch(self, releases: Releases) -> Answers:
        """The alarms after each of the next steps; f and B are called once a step and column."""
        width = self.columns if self._sum_of is None else len(self._sum_of)
        alarms = np.zeros((len(releases), width), dtype=np.bool_)
        for index, release in enumerate(releases):
            alarms[index] = self.push(release)
        return alarms

    def _answer(self, followed: Followed) -> Answers:
        raise NotImplementedError

    def _alarms(self) -> npt.NDArray[np.bool_]:
        width = self.columns if self._sum_of is None else len(self._sum_of)
        alarms = np.zeros(width, dtype=np.bool_)
        if self.failure is None:
            recent = self.summed(self.history.recent())
            if len(recent) == self.window:
                try:
                    for column in range(width):
                        alarms[column] = bool(self.alarm(self.measure(recent[:, column].copy())))
                except Exception as error:  # a user's function may raise anything; the stream continues
                    reason = f"{type(error).__name__}: {error}"
                    self.failure = f"the monitor failed at step {self.history.step}: {reason}"
                    alarms[:] = False
        return alarms
