"""Times of events: numbers, text or timestamps, all as microseconds of UTC."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import polars as pl

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest.errors import BadTimes, NotNumeric, attempt, refuse

FORMATS = ("auto", "iso", "seconds", "milliseconds", "microseconds", "nanoseconds")
UNITS = FORMATS[2:]
_PER_MICROSECOND = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_NUMBER = r"^[+-]?\d+(?:\.\d*)?$"
_FULL = "%Y-%m-%dT%H:%M:%S%.f"
_OFFSET = r"[+-]\d{2}:?\d{2}$"


class TimeReader:
    """Reads times, each for itself: no time decides how another one is read.

    Parameters
    ----------
    format
        "auto": timestamps as they are, numbers as seconds since 1970, text as ISO 8601. Or "iso", "seconds",
        "milliseconds", "microseconds", "nanoseconds", or a pattern such as "%d.%m.%Y %H:%M".
    zone
        The time zone of times that carry none. In the hour that is repeated when summer time ends the earlier
        one is meant; a time in the hour that is skipped is read as if the clocks had not yet changed.
    lenient
        Whether a time that cannot be read is missing, or refuses the input.

    A time with an offset is an exact moment; offsets may differ, and times without one may stand beside them.
    """

    def __init__(self, format: str = "auto", zone: str = "UTC", *, lenient: bool = False) -> None:
        if format not in FORMATS and "%" not in format:
            raise InvalidParameter(
                "time_format",
                format,
                "one of " + ", ".join(FORMATS) + ", or a pattern",
                'write for example time_format="%d.%m.%Y %H:%M"',
            )
        self.format = format
        self.zone = zone
        self.lenient = lenient

    def read(self, series: pl.Series) -> pl.Series:
        """Microseconds since 1970 as Int64; a missing time stays null."""
        kind, refusal = series.dtype, self._refusal()
        if kind == pl.Null:
            return series.cast(pl.Int64)
        if isinstance(kind, pl.String):
            found = attempt(lambda: self._texts(series.str.strip_chars()), refusal)
            if not self.lenient:
                refuse(found.is_null() & series.is_not_null(), refusal)
            return found
        if kind.is_integer() or kind.is_float() or kind.is_decimal():
            return self._typed_numbers(series, whole=kind.is_integer())
        if isinstance(kind, pl.Datetime):
            moments = series.dt.cast_time_unit("us")
            return moments.to_physical() if kind.time_zone is not None else self._zoned(moments)
        if kind == pl.Date:
            return self._zoned(series.cast(pl.Datetime("us")))
        raise BadTimes(
            f"the column of times has type {kind}; declare a column of timestamps, numbers or ISO 8601 text."
        )

    def _refusal(self) -> InvalidInput:
        if self.format in UNITS:
            return NotNumeric(
                f"the column of times holds text that is no number of {self.format}; correct time_format."
            )
        return BadTimes(
            f'the column of times holds text that time_format="{self.format}" cannot read; '
            'declare its pattern in [source], for example time_format = "%d.%m.%Y %H:%M"; a time that is '
            "missing must be an empty field."
        )

    # numbers ------------------------------------------------------------------------------------------------

    def _typed_numbers(self, series: pl.Series, *, whole: bool) -> pl.Series:
        refusal = NotNumeric(
            f'the times are numbers, which time_format="{self.format}" does not read; declare their unit.'
        )
        if self.format != "auto" and self.format not in UNITS:
            raise refusal
        if whole:
            return attempt(lambda: self._whole(series.cast(pl.Int64, strict=False)), refusal)
        return attempt(lambda: self._real(series.cast(pl.Float64)), refusal)

    @property
    def _unit(self) -> str:
        return "seconds" if self.format == "auto" else self.format

    def _whole(self, numbers: pl.Series) -> pl.Series:
        """Microseconds of whole numbers of the unit, exactly."""
        if self._unit == "nanoseconds":
            return numbers // 1000
        factor = _PER_MICROSECOND[self._unit]
        # whatever would overflow lies outside of every clock
        limit = 2**62 // factor
        return numbers.clip(-limit, limit) * factor

    def _real(self, numbers: pl.Series) -> pl.Series:
        """Microseconds of numbers with a fraction."""
        scale = 0.001 if self._unit == "nanoseconds" else float(_PER_MICROSECOND[self._unit])
        scaled = (numbers * scale).fill_nan(None).clip(-(2.0**62), 2.0**62)
        return scaled.floor().cast(pl.Int64)

    # text ---------------------------------------------------------------------------------------------------

    def _texts(self, text: pl.Series) -> pl.Series:
        """Microseconds of each text, by the first way that reads it; what was read is not looked at again."""
        if self.format in UNITS:
            return self._number_texts(text)
        if self.format not in FORMATS:
            return self._pattern(text)
        if self.format == "iso":
            return self._iso(text)
        # a date has a hyphen after its first sign, and a number has none there
        dated = text.str.find("-", literal=True) > 0
        return _either(text, dated, self._iso, self._number_texts)

    def _number_texts(self, text: pl.Series) -> pl.Series:
        """Whole numbers exactly, and others as floats: each as it is written."""
        found = self._whole(text.cast(pl.Int64, strict=False))
        return _else(found, text, self._real_texts)

    def _real_texts(self, text: pl.Series) -> pl.Series:
        if self.format == "auto":
            text = text.set(~text.str.contains(_NUMBER), None)
        return self._real(text.cast(pl.Float64, strict=False))

    def _pattern(self, text: pl.Series) -> pl.Series:
        aware = any(mark in self.format for mark in ("%z", "%Z", "%+"))
        moments = text.str.to_datetime(
            self.format,
            time_unit="us",
            time_zone="UTC" if aware else None,
            strict=False,
            ambiguous="earliest",
        )
        return moments.to_physical() if aware else self._zoned(moments)

    def _iso(self, text: pl.Series) -> pl.Series:
        zulu = text.str.ends_with("Z") | text.str.ends_with("z")
        return _either(text, zulu, lambda some: _local(some.str.head(-1)).to_physical(), self._other_iso)

    def _other_iso(self, text: pl.Series) -> pl.Series:
        # a date alone ends like an offset (2026-03-02 has "-02" but no minutes) and is not matched by it
        offset = text.str.contains(_OFFSET)
        return _either(text, offset, _shifted, lambda some: self._zoned(_local(some)))

    def _zoned(self, moments: pl.Series) -> pl.Series:
        """Microseconds of UTC of local times."""
        if self.zone == "UTC":
            return moments.to_physical()
        # years that no clock has overflow where an hour is added or taken away; they stay outside of every clock
        year = moments.dt.year()
        odd = (year < 1) | (year > 9999)
        return _either(moments, odd, pl.Series.to_physical, self._usual)

    def _usual(self, moments: pl.Series) -> pl.Series:
        hour = datetime.timedelta(hours=1)
        return _else(
            self._moment(moments), moments, lambda skipped: self._moment(skipped - hour) + 3_600_000_000
        )

    def _moment(self, moments: pl.Series) -> pl.Series:
        local = moments.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null")
        return local.to_physical()


Way = Callable[[pl.Series], pl.Series]


def _either(series: pl.Series, chosen: pl.Series, way: Way, other: Way) -> pl.Series:
    """Microseconds of those that are chosen by one way, and of the rest by the other."""
    rest = (~chosen).fill_null(True)
    found = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(series))
    for mask, read in ((~rest, way), (rest, other)):
        at = mask.arg_true()
        found = found.scatter(at, read(series.gather(at)))
    return found


def _else(found: pl.Series, series: pl.Series, way: Way) -> pl.Series:
    """What was found, and where nothing was, what another way finds."""
    at = (found.is_null() & series.is_not_null()).arg_true()
    return found.scatter(at, way(series.gather(at)))


def _local(text: pl.Series) -> pl.Series:
    """Dates and times without a zone."""
    found = text.str.to_datetime(_FULL, time_unit="us", strict=False)
    return _else(found, text, _written_otherwise)


def _written_otherwise(text: pl.Series) -> pl.Series:
    """The same with a blank instead of the T, a comma instead of the point, or without seconds, or hours."""
    full = text.str.replace(" ", "T", literal=True).str.replace(",", ".", literal=True)
    found = full.str.to_datetime(_FULL, time_unit="us", strict=False)
    for pattern in ("%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        found = _else(
            found,
            full,
            lambda some, way=pattern: some.str.to_datetime(way, time_unit="us", strict=False),  # type: ignore[misc]
        )
    return found


def _shifted(text: pl.Series) -> pl.Series:
    """Microseconds of times with an offset."""
    zones = text.str.extract(f"({_OFFSET[:-1]})$", 1)
    hours, minutes = (
        part.cast(pl.Int64, strict=False) for part in (zones.str.slice(1, 2), zones.str.slice(-2))
    )
    total = (hours * 60 + minutes) * 60_000_000
    shift = total.zip_with(zones.str.starts_with("+"), -total)
    return _local(text.str.replace(_OFFSET, "")).to_physical() - shift
