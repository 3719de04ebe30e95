"""Durations and time zones as configurations and policies write them: one reading of each, one sentence of refusal."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.errors import InvalidParameter
from tidegate.exact import whole

DAY = 86_400
LONGEST = 2**33  # seconds
CALENDAR_WORDS = (
    'write "24h", or "calendar day", "calendar week" or "calendar month" for those of a time zone'
)
_DURATION = re.compile(r"(?P<number>\d+)\s*(?P<unit>s|sec|seconds?|min|minutes?|h|hours?|d|days?|w|weeks?)")
_CALENDAR = re.compile(r"(\d+\s*)?(d|days?|w|weeks?|months?|daily|weekly|monthly)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": DAY, "w": 7 * DAY}


def seconds(
    name: str,
    value: int | str,
    least: int = 1,
    most: int = LONGEST,
    *,
    zone: str = "UTC",
    remedy: str = 'write it in hours, such as "24h"',
) -> int:
    """A duration in seconds, from whole seconds or from words such as "90s", "15 min", "1h", "2 days".

    A day has 24 hours. In a zone that changes its clocks some days have 23 or 25, so days and weeks are refused there.

    Examples
    --------
    >>> seconds("length", "15min"), seconds("length", "1 day"), seconds("length", 30)
    (900, 86400, 30)
    >>> seconds("length", "1d", zone="Europe/Berlin")
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: length='1d' is refused: length must be a number of seconds, minutes or
    hours, because days of Europe/Berlin differ in length; write it in hours, such as "24h".
    """
    if isinstance(value, str):
        text = value.strip()
        found = _DURATION.fullmatch(text)
        if found is not None and (found["unit"][0] not in "dw" or not changes_clocks(zone)):
            return whole(name, int(found["number"]) * _SECONDS[found["unit"][0]], least=least, most=most)
        hours = "a number of seconds, minutes or hours"
        if found is not None:
            raise InvalidParameter(name, value, f"{hours}, because days of {zone} differ in length", remedy)
        if _CALENDAR.fullmatch(text):
            raise InvalidParameter(
                name, value, f"{hours}, because days and months differ in length", CALENDAR_WORDS
            )
        raise InvalidParameter(name, value, hours, 'write for example "90s", "15min" or "1h"')
    return whole(name, value, least=least, most=most)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of a name such as "Europe/Berlin"."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidParameter(
            "zone", name, "an IANA time zone", 'write for example zone="Europe/Berlin" or zone="UTC"'
        ) from None


@lru_cache(maxsize=64)
def changes_clocks(zone: str) -> bool:
    """Whether the clocks of a zone have ever been changed since 1970, or will be as far as zones are listed.

    Examples
    --------
    >>> changes_clocks("Europe/Berlin"), changes_clocks("UTC"), changes_clocks("Asia/Kolkata")
    (True, False, False)
    """
    there = zone_of(zone)
    months = (datetime.datetime(year, month, 15) for year in range(1970, 2038) for month in range(1, 13))
    return len({there.utcoffset(moment) for moment in months}) > 1
