"""The columns of the input, and how a batch of it becomes rows of (time, unit, column, value)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import DuplicateHeader, MissingColumn, MixedTypes
from tidegate.ingest.times import TimeReader


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Which columns of the input say when, who, where and how much.

    Parameters
    ----------
    time
        The column of the event's time.
    unit
        The column that names the protected unit (a person, a device, a household). None means that every
        record is a unit of its own: then one record is protected, and not a person with several.
    column
        The column of the category, or of the series in long pre-aggregated input.
    value
        The column of the number to be summed, averaged or sorted into intervals.
    time_format
        See :class:`TimeReader`.

    Examples
    --------
    >>> Schema(time="when", unit="device").needed
    ('when', 'device')
    """

    time: str
    unit: str | None = None
    column: str | None = None
    value: str | None = None
    time_format: str = "auto"

    def __post_init__(self) -> None:
        TimeReader(self.time_format)
        for name in ("time", "unit", "column", "value"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or not given):
                raise InvalidParameter(
                    name, given, "the name of a column of the input", f'write {name}="{name}"'
                )

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read; all others never leave the file."""
        named = (self.time, self.unit, self.column, self.value)
        return tuple(dict.fromkeys(name for name in named if name is not None))


def check_header(header: Sequence[str], needed: Sequence[str], where: str) -> None:
    """Refuse a header that names a column twice or lacks one that is needed."""
    present = set(header)
    if len(present) != len(header):
        seen: set[str] = set()
        for position, name in enumerate(header):
            if name in seen:
                raise DuplicateHeader(
                    f"{where} names column {position + 1} like an earlier one; rename one of the two."
                )
            seen.add(name)
    for name in needed:
        if name not in present:
            # where a header is missing, its names are a record: only what is the declared name but for its case is shown
            near = next((each for each in header if each.strip().lower() == name.lower()), None)
            remedy = "declare one that it has" if near is None else f"write {near!r}, as it does"
            raise MissingColumn(f"{where} has no column {name!r}; {remedy}.")


class UnitReader:
    """Reads one stream's unit ids; it remembers whether their column is of numbers or of text, and refuses a change."""

    def __init__(self) -> None:
        self.kind: str | None = None

    def read(self, series: pl.Series) -> pl.Series:
        """The ids as Int64 or String; a missing id stays null."""
        kind = series.dtype
        if kind == pl.Null:
            return series.cast(pl.String if self.kind == "text" else pl.Int64)
        _check_units(kind)
        found = "text"
        if kind.is_integer():
            found = "numbers of 64 bits without a sign" if kind == pl.UInt64 else "numbers"
        if self.kind is not None and self.kind != found:
            raise MixedTypes(
                f"the column of units is {self.kind} in one place and {found} in another; make it one of the two."
            )
        self.kind = found
        if found == "text":
            return series.cast(pl.String)
        return series.reinterpret(signed=True) if kind == pl.UInt64 else series.cast(pl.Int64)


class TextUnits(UnitReader):
    """Reads ids as text whatever they were, so that no batch decides how another is read."""

    def read(self, series: pl.Series) -> pl.Series:
        """The ids as String."""
        _check_units(series.dtype)
        return series.cast(pl.String)


def _check_units(kind: pl.DataType) -> None:
    """Refuse a column whose type names nobody."""
    if not kind.is_integer() and not isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null):
        raise MixedTypes(
            f"the column of units has type {kind}, but must be whole numbers or text; convert it first."
        )


def unit_codes(series: pl.Series) -> Any:
    """Whole numbers that are equal exactly where the ids are: text goes through an exact dictionary.

    A hash would not do: two units that collide would be bounded as one, and one could push out the other.
    """
    if series.dtype == pl.Int64:
        return series.to_numpy()
    return series.cast(pl.Categorical(pl.Categories.random())).to_physical().cast(pl.Int64).to_numpy()
