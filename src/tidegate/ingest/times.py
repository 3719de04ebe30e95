"""Times of events: numbers, text or timestamps, all as microseconds of UTC."""

from __future__ import annotations

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import BadTimes, MixedTimes, NotNumeric, attempt

FORMATS = ("auto", "iso", "seconds", "milliseconds", "microseconds", "nanoseconds")
_PER_MICROSECOND = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_NUMBER = r"^[+-]?\d+(?:\.\d*)?$"
_NOTHING = r"^\b$"
_FULL = "%Y-%m-%dT%H:%M:%S%.f"
_OFFSET = r"(?:[Zz]|[+-]\d{2}:?\d{2})$"


class TimeReader:
    """Reads one stream's times; it remembers whether they carry a time zone, and refuses a change.

    Parameters
    ----------
    format
        "auto": timestamps as they are, numbers as seconds since 1970, text as ISO 8601. Or "iso", "seconds",
        "milliseconds", "microseconds", "nanoseconds", or a pattern such as "%d.%m.%Y %H:%M".
    zone
        The time zone of times that carry none. In the hour that is repeated when summer time ends the earlier
        one is meant; a time in the hour that is skipped is read as if the clocks had not yet changed.

    Times that carry an offset may carry different ones: each is an exact moment.
    """

    def __init__(self, format: str = "auto", zone: str = "UTC") -> None:
        if format not in FORMATS and "%" not in format:
            raise InvalidParameter(
                "time_format",
                format,
                "one of " + ", ".join(FORMATS) + ", or a pattern",
                'write for example time_format="%d.%m.%Y %H:%M"',
            )
        self.format = format
        self.zone = zone
        self.aware: bool | None = None

    def read(self, series: pl.Series) -> pl.Series:
        """Microseconds since 1970 as Int64; a missing time stays null."""
        kind = series.dtype
        if kind == pl.Null:
            return series.cast(pl.Int64)
        if isinstance(kind, pl.String):
            return self._text(series)
        if kind.is_integer() or kind.is_float() or kind.is_decimal():
            return self._numbers(series)
        if isinstance(kind, pl.Datetime):
            return self._moments(series.dt.cast_time_unit("us"))
        if kind == pl.Date:
            return self._moments(series.cast(pl.Datetime("us")))
        raise BadTimes(
            f"the column of times has type {kind}; declare a column of timestamps, numbers or ISO 8601 text."
        )

    def _numbers(self, series: pl.Series) -> pl.Series:
        unit = "seconds" if self.format == "auto" else self.format
        refusal = NotNumeric(
            f'the times are numbers, which time_format="{self.format}" does not read; declare their unit.'
        )
        if unit not in FORMATS[2:]:
            raise refusal
        if series.dtype.is_integer():
            whole = attempt(lambda: series.cast(pl.Int64, strict=False), refusal)
            if unit == "nanoseconds":
                return whole // 1000
            factor = _PER_MICROSECOND[unit]
            # whatever would overflow lies outside of every clock
            limit = 2**62 // factor
            return whole.clip(-limit, limit) * factor
        scale = 0.001 if unit == "nanoseconds" else float(_PER_MICROSECOND[unit])
        scaled = attempt(lambda: series.cast(pl.Float64) * scale, refusal)
        return scaled.fill_nan(None).clip(-(2.0**62), 2.0**62).floor().cast(pl.Int64)

    def _text(self, series: pl.Series) -> pl.Series:
        text = series.str.strip_chars()
        refusal = BadTimes(
            f'the column of times holds text that time_format="{self.format}" cannot read; '
            'declare its pattern in [source], for example time_format = "%d.%m.%Y %H:%M"; a time that is '
            "missing must be an empty field."
        )
        unit = self.format
        if (
            unit == "auto"
            and text.drop_nulls().head(1).str.contains(_NUMBER).all()
            and text.null_count() < len(text)
        ):
            unit = "seconds"
        if unit in FORMATS[2:]:
            number = attempt(
                lambda: text.cast(
                    pl.Float64 if text.str.contains(".", literal=True).any() else pl.Int64, strict=False
                ),
                refusal,
            )
            if number.null_count() != text.null_count():
                raise NotNumeric(
                    f"the column of times holds text that is no number of {unit}; correct time_format."
                )
            return self._numbers(number)
        if self.format not in FORMATS:
            aware = "%z" in self.format or "%Z" in self.format or "%+" in self.format
            moments = attempt(
                lambda: text.str.to_datetime(
                    self.format,
                    time_unit="us",
                    time_zone="UTC" if aware else None,
                    strict=False,
                    ambiguous="earliest",
                ),
                refusal,
            )
        else:
            moments = self._iso(text, refusal)
        if moments.null_count() != text.null_count():
            raise refusal
        return self._moments(moments)

    def _iso(self, text: pl.Series, refusal: BadTimes) -> pl.Series:
        if text.str.ends_with("Z").all():  # the usual case, without regular expressions
            return self._naive(text.str.strip_suffix("Z")).dt.replace_time_zone("UTC")
        offset = attempt(lambda: text.str.contains(_OFFSET), refusal)
        # a date alone ends like an offset (2026-03-02 has "-02" but no minutes) and is not matched by it
        aware = int(offset.sum() or 0)
        if 0 < aware < len(text) - text.null_count():
            raise _mixed()
        if aware:
            zones = text.str.extract(r"([Zz]|[+-]\d{2}:?\d{2})$", 1)
            local = self._naive(text.str.replace(_OFFSET, ""))
            sign = pl.when(pl.col("z").str.starts_with("-")).then(-1).otherwise(1)
            minutes = sign * (
                pl.col("z").str.slice(1, 2).cast(pl.Int64, strict=False) * 60
                + pl.col("z").str.slice(-2).cast(pl.Int64, strict=False)
            )
            plain = pl.col("z").str.len_chars() == 1
            shift = pl.select(z=zones).select(pl.when(plain).then(0).otherwise(minutes)).to_series()
            return (
                (local.cast(pl.Int64) - shift * 60_000_000)
                .cast(pl.Datetime("us"))
                .dt.replace_time_zone("UTC")
            )
        return self._naive(text)

    @staticmethod
    def _naive(text: pl.Series) -> pl.Series:
        """Each text by the first pattern that reads it: what others hold never decides about one of them."""
        found = text.str.to_datetime(_FULL, time_unit="us", strict=False)
        if found.null_count() == text.null_count():
            return found
        full = text.str.replace(" ", "T", literal=True).str.replace(",", ".", literal=True)
        for pattern in (_FULL, "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
            if found.null_count() == text.null_count():
                break
            shorter = full.str.to_datetime(pattern, time_unit="us", strict=False)
            found = found.zip_with(found.is_not_null(), shorter)
        return found

    def _moments(self, moments: pl.Series) -> pl.Series:
        kind = moments.dtype
        assert isinstance(kind, pl.Datetime)
        aware = kind.time_zone is not None
        if moments.null_count() < len(moments):
            if self.aware is not None and self.aware != aware:
                raise _mixed()
            self.aware = aware
        if not aware and self.zone != "UTC":
            # years that no clock has overflow where an hour is added or taken away
            year = moments.dt.year()
            moments = moments.set((year < 1) | (year > 9999), None)
            local = moments.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null")
            if local.null_count() > moments.null_count():
                hour = pl.duration(hours=1)
                before = (
                    pl.select(t=moments)
                    .select(
                        (pl.col("t") - hour).dt.replace_time_zone(
                            self.zone, ambiguous="earliest", non_existent="null"
                        )
                        + hour
                    )
                    .to_series()
                )
                local = local.zip_with(local.is_not_null(), before)
            moments = local
        return moments.to_physical()


class EachTime(TimeReader):
    """Reads each time for itself, as if it were the only one; what cannot be read is missing.

    For input that anybody can write to: neither the first time nor any other decides how the rest are read.
    """

    def read(self, series: pl.Series) -> pl.Series:
        """Microseconds since 1970 as Int64; a time that cannot be read is null."""
        if not isinstance(series.dtype, pl.String):
            return TimeReader(self.format, self.zone).read(series)
        text = series.str.strip_chars()
        if self.format in FORMATS[2:]:
            return self._number(text)
        if self.format not in FORMATS:
            zone = "UTC" if any(mark in self.format for mark in ("%z", "%Z", "%+")) else None
            return self._only(
                text.str.to_datetime(
                    self.format, time_unit="us", time_zone=zone, strict=False, ambiguous="earliest"
                )
            )
        number = text.str.contains(_NUMBER if self.format == "auto" else _NOTHING)
        aware = text.str.contains(_OFFSET) & ~number
        nothing = pl.Series([None] * len(text), dtype=pl.Int64)
        found = nothing if self.format == "iso" else self._number(text.set(~number, None))
        for chosen in (aware, ~aware & ~number):
            if chosen.any():
                part = text.set(~chosen, None)
                read = self._only(self._iso(part, BadTimes("")))
                found = found.zip_with(found.is_not_null(), read)
        return found

    def _only(self, moments: pl.Series) -> pl.Series:
        return TimeReader(self.format, self.zone)._moments(moments)

    def _number(self, text: pl.Series) -> pl.Series:
        whole = self._numbers(text.cast(pl.Int64, strict=False))
        if whole.null_count() == text.null_count():
            return whole
        real = self._numbers(text.cast(pl.Float64, strict=False))
        return whole.zip_with(whole.is_not_null(), real)


def _mixed() -> MixedTimes:
    return MixedTimes(
        "times with and without a time zone are mixed in one stream; write all of them with an offset or "
        "none."
    )
