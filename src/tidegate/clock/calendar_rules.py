"""Recurring hours on a public clock: "every weekday 18:00-23:00", expanded to steps only where it is asked for.

Clock changes never shorten a hiding interval: a time that the clock shows twice begins at its first and ends
at its second showing, and a time that the clock skips begins and ends on the safe side of the gap.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.clock.durations import DAY, seconds, zone_of
from tidegate.errors import InvalidParameter
from tidegate.exact import whole

Integers = npt.NDArray[np.int64]

NEAR = 7 * DAY  # changes of the clock that one occurrence of a rule may meet together
LAST_KNOWN = (
    2037  # the year up to which zones list their changes; from then on a rule repeats that of this year
)
EPOCH = datetime.datetime(1970, 1, 1)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
GROUPS = {"day": range(7), "weekday": range(5), "workday": range(5), "weekend": range(5, 7)}
_HOURS = re.compile(r"^(?P<days>.*?)\s*(?P<begin>\d{1,2}:\d{2})\s*(?:-|–|to)\s*(?P<end>\d{1,2}:\d{2})$")


@dataclass(frozen=True)
class Clock:
    """The public clock of a stream: when its first step begins and how long a step is.

    Parameters
    ----------
    start
        When step 1 begins, as local time of the zone: "2026-01-05T00:00".
    step
        The length of a step: seconds, or a text such as "15 min".
    zone
        The time zone that people mean when they write hours.

    Examples
    --------
    >>> clock = Clock("2026-01-05T00:00", "15 min", "Europe/Berlin")
    >>> clock.step_at("2026-01-05T18:00")
    73
    """

    start: str
    step: str | int = "15 min"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.zone)
        object.__setattr__(self, "step", seconds("step", self.step, most=366 * DAY, zone=self.zone))
        local = _local("start", self.start)
        object.__setattr__(self, "start", (EPOCH + datetime.timedelta(seconds=local)).isoformat())

    @cached_property
    def origin(self) -> int:
        """When step 1 begins, in seconds since 1970 UTC."""
        local = np.array([_local("start", self.start)], dtype=np.int64)
        return int(instants(self.zone, local)[0][0])

    @property
    def length(self) -> int:
        """Seconds in a step."""
        return int(self.step)

    def step_at(self, local: str) -> int:
        """The step that contains a local time; may be below 1."""
        instant = int(instants(self.zone, np.array([_local("time", local)], dtype=np.int64))[0][0])
        return (instant - self.origin) // self.length + 1

    def interval(self, begin: str, end: str) -> tuple[int, int]:
        """The steps that a stretch of local time touches, rounded outwards."""
        times = np.array([[_local("begin", begin), _local("end", end)]], dtype=np.int64)
        first, last = self.steps_of(times)[0].tolist()
        return first, last

    def steps_of(self, local: Integers) -> Integers:
        """Stretches of local time (rows begin, end in seconds) as rows (first step, last step), outwards."""
        begins, ends = instants(self.zone, local[:, 0])[0], instants(self.zone, local[:, 1])[1]
        firsts = (begins - self.origin) // self.length + 1
        lasts = -((self.origin - ends) // self.length)
        return np.column_stack([firsts, np.maximum(lasts, firsts)])

    def local_day(self, step: int) -> int:
        """The local day (since 1970) on which a step begins."""
        moment = self.origin + (step - 1) * self.length
        return (moment + _offset(self.zone, moment)) // DAY

    def largest_shift(self) -> int:
        """By how many seconds the zone's clock moves at most within a few days, from the start on."""
        year = (EPOCH + datetime.timedelta(seconds=self.origin)).year
        changes, offsets = _changes(self.zone, year - 1, max(year, LAST_KNOWN) + 1)
        largest = 0
        for at, change in enumerate(changes.tolist()):
            if change < self.origin - NEAR:
                continue
            until = int(np.searchsorted(changes, change + NEAR, side="right"))
            largest = max(largest, int(np.ptp(offsets[at : until + 1])))
        return largest

    def describe(self) -> dict[str, Any]:
        """Identify the clock, as JSON."""
        return {"start": self.start, "step": self.length, "zone": self.zone}


@dataclass(frozen=True)
class Recurring:
    """Hours of the day on some days of the week.

    Parameters
    ----------
    days
        Days of the week, 0 for Monday.
    begin, end
        Minutes since local midnight; an end that is not after the beginning lies on the next day.

    Examples
    --------
    >>> rule = Recurring.read("every weekday 18:00-23:00")
    >>> str(rule), rule.minutes
    ('every weekday 18:00-23:00', 300)
    >>> rule.between(Clock("2026-01-05T00:00", "1 h", "Europe/Berlin"), 1, 48).tolist()
    [[19, 23], [43, 47]]
    """

    days: tuple[int, ...]
    begin: int
    end: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "days", tuple(sorted({whole("days", day, 0, 6) for day in self.days})))
        if not self.days:
            raise InvalidParameter("days", (), "at least one day of the week", 'write "every day"')
        object.__setattr__(self, "begin", whole("begin", self.begin, 0, 1439))
        object.__setattr__(self, "end", whole("end", self.end, 0, 1440))

    @classmethod
    def read(cls, text: str) -> Recurring:
        """Read "every weekday 18:00-23:00", "monday, friday 6:30-9:00", "every day 22:00-06:00"."""
        found = _HOURS.match(text.strip().lower())
        days: set[int] = set()
        for word in re.split(r"[\s,]+|\band\b", found["days"] if found else ""):
            name = word.removesuffix("s")
            if word in ("", "every", "on", "and"):
                continue
            if name in GROUPS:
                days |= set(GROUPS[name])
            elif name in DAYS:
                days.add(DAYS.index(name))
            else:
                raise InvalidParameter(
                    "hours", text, "days of the week and hours", 'write "every weekday 18:00-23:00"'
                )
        if found is None:
            raise InvalidParameter(
                "hours", text, "days of the week and hours", 'write "every weekday 18:00-23:00"'
            )
        begin, end = (_minutes(text, found[name]) for name in ("begin", "end"))
        return cls(tuple(days or range(7)), begin % 1440, end)

    @property
    def minutes(self) -> int:
        """How long one occurrence is on a day without a clock change."""
        return self.end - self.begin if self.end > self.begin else self.end + 1440 - self.begin

    @property
    def endless(self) -> bool:
        """Whether the occurrences cover all of time."""
        return self.minutes == 1440 and len(self.days) == 7

    def between(self, clock: Clock, first: int, last: int) -> Integers:
        """The occurrences that meet the steps first to last, as rows (first step, last step), each whole."""
        days = np.arange(clock.local_day(first) - 3, clock.local_day(last) + 3, dtype=np.int64)
        days = days[np.isin((days + 3) % 7, self.days)]  # the first of January 1970 was a Thursday
        begins = days * DAY + self.begin * 60
        steps = clock.steps_of(np.column_stack([begins, begins + self.minutes * 60]))
        return steps[(steps[:, 1] >= first) & (steps[:, 0] <= last)]

    def __str__(self) -> str:
        names = {"every day": range(7), "every weekday": range(5), "every weekend": range(5, 7)}
        named = next((name for name, group in names.items() if self.days == tuple(group)), "")
        days = named or "every " + ", ".join(DAYS[day] for day in self.days)
        return f"{days} {self.begin // 60:02d}:{self.begin % 60:02d}-{self.end // 60:02d}:{self.end % 60:02d}"


def instants(zone: str, local: Integers) -> tuple[Integers, Integers]:
    """Earliest and latest instants (seconds since 1970 UTC) that local times (naive seconds) may mean."""
    if not len(local):
        return local, local
    years = [(EPOCH + datetime.timedelta(seconds=int(edge))).year for edge in (local.min(), local.max())]
    changes, offsets = _changes(zone, years[0] - 1, years[1] + 1)
    before, after = offsets[:-1], offsets[1:]
    # beyond the later of the two readings a change has surely happened, before the earlier surely not
    surely = np.searchsorted(changes + np.maximum(before, after), local, side="right")
    perhaps = np.searchsorted(changes + np.minimum(before, after), local, side="right")
    one, other = offsets[surely], offsets[perhaps]
    return local - np.maximum(one, other), local - np.minimum(one, other)


@lru_cache(maxsize=64)
def _changes(zone: str, first_year: int, last_year: int) -> tuple[Integers, Integers]:
    """Instants at which the zone's offset changes, and the offsets before, between and after them."""
    found = [change for year in range(first_year, last_year + 1) for change in _year_changes(zone, year)]
    moment = int((datetime.datetime(first_year, 1, 1) - EPOCH).total_seconds())
    offsets = [_offset(zone, moment), *(offset for _, offset in found)]
    return np.array([instant for instant, _ in found], dtype=np.int64), np.array(offsets, dtype=np.int64)


@lru_cache(maxsize=4096)
def _year_changes(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    begin = int((datetime.datetime(year, 1, 1) - EPOCH).total_seconds())
    end = int((datetime.datetime(year + 1, 1, 1) - EPOCH).total_seconds())
    changes, low, offset = [], begin, _offset(zone, begin)
    for moment in range(begin + DAY, end + 1, DAY):
        then = _offset(zone, moment)
        if then != offset:
            left, right = low, moment
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (left, middle) if _offset(zone, middle) != offset else (middle, right)
            changes.append((right, then))
        low, offset = moment, then
    return tuple(changes)


def _offset(zone: str, moment: int) -> int:
    there = datetime.datetime.fromtimestamp(moment, datetime.UTC).astimezone(zone_of(zone)).utcoffset()
    assert there is not None
    return math.floor(there.total_seconds())


def _minutes(text: str, hours: str) -> int:
    hour, minute = map(int, hours.split(":"))
    if minute > 59 or hour * 60 + minute > 1440:
        raise InvalidParameter(
            "hours", text, "hours between 00:00 and 24:00", 'write "every day 18:00-23:00"'
        )
    return hour * 60 + minute


def _local(name: str, text: str) -> int:
    """Local time as naive seconds since 1970."""
    try:
        moment = datetime.datetime.fromisoformat(str(text))
        if moment.tzinfo is not None:
            raise ValueError
    except ValueError:
        raise InvalidParameter(
            name, text, "a local time without an offset", f'write for example {name}="2026-01-05T18:00"'
        ) from None
    return int((moment - EPOCH).total_seconds())
