"""Times of events: numbers, text or timestamps, all as microseconds of UTC."""

from __future__ import annotations

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
            return self._number_texts(text, text)
        if self.format not in FORMATS:
            return self._pattern(text)
        if self.format == "iso":
            return self._iso(text)
        # a date has a hyphen after its first sign, and a number has none there
        dated = (text.str.find("-", literal=True) > 0).fill_null(False)
        numbers = text.set(dated, None)
        found = self._number_texts(numbers, numbers.set(~_matches(numbers, _NUMBER), None))
        return _else(found, self._iso(text.set(~dated, None)))

    def _number_texts(self, wholes: pl.Series, reals: pl.Series) -> pl.Series:
        """Whole numbers exactly, and others as floats: each as it is written."""
        found = self._whole(wholes.cast(pl.Int64, strict=False))
        return _else(found, self._real(_left(reals, found).cast(pl.Float64, strict=False)))

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
        zulu = (text.str.ends_with("Z") | text.str.ends_with("z")).fill_null(False)
        found = _local(text.set(~zulu, None).str.head(-1)).to_physical()
        rest = text.set(zulu, None)
        # a date alone ends like an offset (2026-03-02 has "-02" but no minutes) and is not matched by it
        offset = _matches(rest, _OFFSET)
        shifted = rest.set(~offset, None)
        moved = _local(shifted.str.replace(_OFFSET, "")).to_physical() - _shift(shifted) * 60_000_000
        return _else(_else(found, moved), self._zoned(_local(rest.set(offset, None))))

    def _zoned(self, moments: pl.Series) -> pl.Series:
        """Microseconds of UTC of local times."""
        if self.zone == "UTC":
            return moments.to_physical()
        # years that no clock has overflow where an hour is added or taken away; they stay outside of every clock
        year = moments.dt.year()
        odd = ((year < 1) | (year > 9999)).fill_null(False)
        usual = moments.set(odd, None)
        found = self._moment(usual)
        hour = 3_600_000_000
        skipped = (_left(usual, found).to_physical() - hour).cast(pl.Datetime("us"))
        found = _else(found, self._moment(skipped) + hour)
        return found.zip_with(~odd, moments.to_physical())

    def _moment(self, moments: pl.Series) -> pl.Series:
        local = moments.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null")
        return local.to_physical()


def _matches(text: pl.Series, pattern: str) -> pl.Series:
    return text.str.contains(pattern).fill_null(False)


def _left(series: pl.Series, found: pl.Series) -> pl.Series:
    """Those that were not yet read."""
    return series.set(found.is_not_null(), None)


def _else(found: pl.Series, other: pl.Series) -> pl.Series:
    """What was read, and where nothing was the other."""
    return found.zip_with(found.is_not_null(), other)


def _local(text: pl.Series) -> pl.Series:
    """Dates and times without a zone."""
    found = text.str.to_datetime(_FULL, time_unit="us", strict=False)
    rest = _left(text, found).str.replace(" ", "T", literal=True).str.replace(",", ".", literal=True)
    for pattern in (_FULL, "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        found = _else(found, _left(rest, found).str.to_datetime(pattern, time_unit="us", strict=False))
    return found


def _shift(text: pl.Series) -> pl.Series:
    """The minutes of the offset at the end of each text."""
    zones = text.str.extract(f"({_OFFSET[:-1]})$", 1)
    hours, minutes = (
        part.cast(pl.Int64, strict=False) for part in (zones.str.slice(1, 2), zones.str.slice(-2))
    )
    total = hours * 60 + minutes
    return total.zip_with(zones.str.starts_with("+").fill_null(False), -total)
