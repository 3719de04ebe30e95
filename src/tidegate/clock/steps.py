"""Steps: event time cut into numbered intervals by public configuration alone."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.clock.durations import CALENDAR_WORDS, seconds, zone_of
from tidegate.errors import InvalidParameter
from tidegate.exact import whole

Times = npt.NDArray[np.int64]

MICROSECONDS = 1_000_000
DAY, WEEK, MONTH = "calendar day", "calendar week", "calendar month"
CALENDAR = (DAY, WEEK, MONTH)
AHEAD = 60  # seconds, or the lateness if that is longer: how far a record may be ahead of the clock
MOVED = 2.0  # seconds by which the system's clock may be corrected without a word
_LATEST = 2**62  # microseconds: arithmetic on times must not wrap around
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The public clock of a stream: step t covers [start + (t − 1)·length, start + t·length), t = 1, 2, ….

    Steps are counted in seconds of UTC from the start, so a change to or from summer time neither lengthens
    nor shortens one. The exception is declared: with length "calendar day", "calendar week" or "calendar month" a
    step is one of the time zone, from midnight to midnight, and its hours are as many as it has; that schedule is
    as public as the other. Weeks begin on the weekday of the start, months on their first day.

    Parameters
    ----------
    start
        When step 1 begins: "2026-03-02T00:00" in the time zone, or with an offset. For calendar steps, a date.
    length
        Seconds, or "90s", "15min", "1h", or "calendar day", "calendar week", "calendar month"; "1 day" is 24 hours, and
        is refused in a zone where days differ in length.
    zone
        The IANA time zone of the start and of event times that carry none.
    lateness
        How long after its end a step waits for events when the stream is followed live.
    count
        How many steps the stream has; None means endless. Never taken from the data.

    Privacy
    -------
    Nothing here depends on the events. A step closes when the public clock passes its end plus the lateness,
    or, for a finite input, when the input is complete; never because an event with a later time has arrived.

    Examples
    --------
    >>> steps = Steps(start="2026-03-29T00:00", length="1h", zone="Europe/Berlin", count=24)
    >>> print(steps.begin(1), steps.begin(4))
    2026-03-28 23:00:00+00:00 2026-03-29 02:00:00+00:00
    """

    start: str | datetime.datetime
    length: int | str
    zone: str = "UTC"
    lateness: int | str = 0
    count: int | None = None
    origin: int = field(init=False, repr=False)  # microseconds since 1970, UTC

    def __post_init__(self) -> None:
        put = object.__setattr__
        zone = zone_of(self.zone)
        begin = self.start
        if not isinstance(begin, datetime.datetime):
            try:
                begin = datetime.datetime.fromisoformat(str(begin))
            except ValueError:
                raise InvalidParameter(
                    "start",
                    self.start,
                    "a date or a time in ISO 8601",
                    'write for example start="2026-03-02T00:00"',
                ) from None
        if begin.tzinfo is None:
            begin = begin.replace(tzinfo=zone)
            if begin.astimezone(datetime.UTC).astimezone(zone).replace(tzinfo=None) != begin.replace(
                tzinfo=None
            ):
                raise InvalidParameter(
                    "start",
                    str(self.start),
                    f"a time that exists in {self.zone}",
                    "that hour is skipped when summer time begins; write the start with an offset",
                )
        put(self, "start", begin.isoformat())
        put(self, "origin", (begin - _EPOCH) // datetime.timedelta(microseconds=1))
        if self.length in CALENDAR:
            local = begin.astimezone(zone)
            if (local.hour, local.minute, local.second, local.microsecond) != (0, 0, 0, 0):
                raise InvalidParameter(
                    "start", str(self.start), f"midnight in {self.zone} for a {self.length}", "write a date"
                )
            if self.length == MONTH and local.day != 1:
                raise InvalidParameter(
                    "start",
                    str(self.start),
                    "the first day of a month for calendar months",
                    f'write start = "{local:%Y-%m}-01"',
                )
        else:
            put(self, "length", seconds("length", self.length, zone=self.zone, remedy=CALENDAR_WORDS))
        put(self, "lateness", seconds("lateness", self.lateness, least=0, zone=self.zone))
        if self.count is not None:
            put(self, "count", whole("count", self.count))
            if not self.calendar and self.origin + self.count * self._microseconds > _LATEST:
                raise InvalidParameter(
                    "count", self.count, "such that the last step can be computed", "use fewer steps"
                )
            if self.calendar and self.count > 1_000_000:
                raise InvalidParameter("count", self.count, "at most a million", "use fewer steps")

    @property
    def calendar(self) -> bool:
        """Whether steps are days, weeks or months of the time zone."""
        return self.length in CALENDAR

    @property
    def _microseconds(self) -> int:
        assert isinstance(self.length, int)
        return self.length * MICROSECONDS

    @cached_property
    def _begins(self) -> Times:
        """Begins of the calendar steps, of the whole stream or of two hundred years and more."""
        zone = zone_of(self.zone)
        day = _EPOCH + datetime.timedelta(microseconds=self.origin)
        first = day.astimezone(zone).date()
        begins = []
        for number in range((self.count or 73_050) + 1):
            try:
                midnight = datetime.datetime.combine(self._later(first, number), datetime.time(), zone)
            except (OverflowError, ValueError):  # after the year 9999
                break
            begins.append((midnight - _EPOCH) // datetime.timedelta(microseconds=1))
        return np.array(begins, dtype=np.int64)

    def _later(self, first: datetime.date, number: int) -> datetime.date:
        """The first day of a calendar step, counted from 0."""
        if self.length == MONTH:
            months = first.year * 12 + first.month - 1 + number
            return datetime.date(months // 12, months % 12 + 1, 1)
        return first + datetime.timedelta(days=number * (7 if self.length == WEEK else 1))

    def window(self, name: str, value: int | str) -> int:
        """So many consecutive steps: a number of them, or a duration such as "1 day" that they divide."""
        if not isinstance(value, str):
            return whole(name, value)
        days = {DAY: 1, WEEK: 7}.get(str(self.length))
        if self.length == MONTH:
            raise InvalidParameter(
                name, value, "a number of steps, because months differ in length", f"write {name} = 12"
            )
        if days is not None:  # days of the calendar, whatever their length
            length, elapsed = days * 86_400, seconds(name, value)
        else:
            assert isinstance(self.length, int)
            longest = 'write it in hours: "25h" covers the longest day'
            length, elapsed = self.length, seconds(name, value, zone=self.zone, remedy=longest)
        if elapsed % length:
            raise InvalidParameter(
                name,
                value,
                "a whole number of steps",
                f"write {name} = {-(-elapsed // length)}, a number of steps",
            )
        return elapsed // length

    def boundary(self, step: int) -> int:
        """When a step begins, in microseconds since 1970."""
        if self.calendar:
            begins = self._begins
            return int(begins[step - 1]) if step - 1 < len(begins) else _LATEST
        return self.origin + (step - 1) * self._microseconds

    @property
    def end(self) -> int:
        """When the last step ends, in microseconds since 1970; of an endless stream, a moment that is never reached."""
        return _LATEST if self.count is None else self.boundary(self.count + 1)

    def begin(self, step: int) -> datetime.datetime:
        """When a step begins."""
        return _EPOCH + datetime.timedelta(microseconds=self.boundary(step))

    def numbers(self, times: Times) -> Times:
        """The step of each time (microseconds since 1970); 0 for times before the start or after the end."""
        if self.calendar:
            found = np.searchsorted(self._begins, times, side="right").astype(np.int64)
            found[found == len(self._begins)] = 0
            return found
        outside = (times < self.origin) | (
            times >= self.end
        )  # compared before any arithmetic, which could wrap
        found = (np.where(outside, self.origin, times) - self.origin) // self._microseconds + 1
        found[outside] = 0
        return found

    def closed_by(self, now: float) -> int:
        """The last step that has closed at a time of the public clock (seconds since 1970); 0 for none."""
        assert isinstance(self.lateness, int)
        return max(0, self.begun_by(now - self.lateness) - 1)

    def furthest(self, now: float) -> int:
        """The last step of which records are taken at a time of the public clock; 0 for none.

        Clocks differ: a record may be ahead of the public clock by :data:`AHEAD` seconds, or by the lateness if that is
        longer. Of a step that has begun by then all records are taken, and wait for their step to close.
        """
        assert isinstance(self.lateness, int)
        return self.begun_by(now + max(self.lateness, AHEAD))

    def begun_by(self, now: float) -> int:
        """The last step that has begun at a time, in seconds since 1970; one more than there are where all are over."""
        moment = int(now * MICROSECONDS)
        if moment < self.origin:
            return 0
        if self.calendar:
            begun = int(np.searchsorted(self._begins, moment, side="right"))
        else:
            begun = (moment - self.origin) // self._microseconds + 1
        return begun if self.count is None else min(begun, self.count + 1)

    def takes(self, moment: float, now: float) -> bool:
        """Whether a record of a moment counts that arrives at a time of the public clock, both in seconds since 1970."""
        number = int(self.numbers(np.array([int(moment * MICROSECONDS)], dtype=np.int64))[0])
        return self.closed_by(now) < number <= self.furthest(now)

    def describe(self) -> dict[str, Any]:
        """Identify the clock exactly, as JSON (the lateness is no part of what a step is)."""
        return {"origin": self.origin, "length": self.length, "zone": self.zone if self.calendar else "UTC"}


class PublicClock:
    """Wall-clock time that jumps neither way while a process runs.

    It is read once and then advanced by a clock that nobody sets, so that a correction of the system's time,
    which would close steps early, has no effect until the next start. :attr:`set_by` has its size.

    Examples
    --------
    >>> clock = PublicClock()
    >>> earlier = clock()
    >>> earlier <= clock()
    True
    """

    def __init__(self) -> None:
        self._tick = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._offset = time.time() - time.clock_gettime(self._tick)

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self._offset + time.clock_gettime(self._tick)

    @property
    def set_by(self) -> float:
        """By how many seconds the system's clock was set since the start; 0 for small corrections."""
        by = time.time() - self()
        return by if abs(by) > MOVED else 0.0
