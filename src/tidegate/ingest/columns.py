"""Columns: a public list or a grid of intervals. Data never make a new one."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, show
from tidegate.ingest.errors import MixedTypes, NotNumeric, TooManyColumns, attempt, refuse

MOST = 1_000_000
OTHER = "other"
_WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)  # that fit into Int64
Indices = npt.NDArray[np.int32]


def _outside(value: str) -> None:
    if value not in ("drop", OTHER):
        raise InvalidParameter(
            "outside", value, "'drop' or 'other'", "write outside='other' to count them together"
        )


def _not_too_many(number: int) -> None:
    if number > MOST:
        raise TooManyColumns(
            f"the query has {number} columns and at most {MOST} can be released; group them."
        )


@dataclass(frozen=True)
class Columns:
    """A public list of categories, each a column of every step.

    Parameters
    ----------
    names
        The categories. They must be public: a list taken from the data tells who is in it.
    outside
        What becomes of an event in another category: "drop", or "other" for one more column that counts them.

    Examples
    --------
    >>> Columns(("north", "south"), outside="other").labels
    ('north', 'south', 'other')
    """

    names: tuple[str, ...]
    outside: str = "drop"

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise InvalidParameter("names", self.names, "a list of names", f"write [{self.names!r}]")
        _not_too_many(len(self.names))
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        if not self.names:
            raise InvalidParameter("names", (), "at least one category", "name the public categories")
        _outside(self.outside)
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InvalidParameter(
                "names", twice, "different from all other names", "name each category once"
            )
        if self.outside == OTHER and OTHER in self.names:
            raise InvalidParameter(
                "names", OTHER, "different from 'other', which collects the rest", "rename it"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of a step."""
        return (*self.names, OTHER) if self.outside == OTHER else self.names

    def __len__(self) -> int:
        return len(self.names) + (self.outside == OTHER)

    def indices(self, series: pl.Series) -> Indices:
        """The column of each entry, −1 for those to be dropped. A missing category is outside."""
        rest = len(self.names) if self.outside == OTHER else -1
        kind = series.dtype
        if kind.is_integer():
            return self._of_integers(series, rest)
        # an Enum is an exact dictionary of the public names; whatever is not in it becomes null
        codes = texts(series).cast(pl.Enum(list(self.names)), strict=False).to_physical()
        return codes.cast(pl.Int32).fill_null(rest).to_numpy()

    def _of_integers(self, series: pl.Series, rest: int) -> Indices:
        numbers = {}
        for index, name in enumerate(self.names):
            try:
                numbers[int(name)] = index
            except ValueError:
                continue  # a category that no whole number can be
        found = np.full(len(series), rest, dtype=np.int32)
        keys = np.array(sorted(key for key in numbers if -(2**63) <= key < 2**63), dtype=np.int64)
        if len(keys):
            where = np.array([numbers[int(key)] for key in keys], dtype=np.int32)
            wide = series.cast(pl.Int64, strict=False)
            present = wide.is_not_null().to_numpy()
            values = wide.fill_null(0).to_numpy()
            at = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
            hit = present & (keys[at] == values)
            found[hit] = where[at[hit]]
        return found

    def describe(self) -> dict[str, Any]:
        """Identify the columns exactly, as JSON."""
        return {"names": list(self.names), "outside": self.outside}


@dataclass(frozen=True)
class Discovered:
    """Categories that nobody has listed: the columns are places, and which category has one is released.

    Parameters
    ----------
    places
        The most categories that are open at once.
    categories
        In how many categories a unit counts in an epoch.
    length
        The bytes of a name.

    Examples
    --------
    >>> Discovered(2, 1, 32).labels
    ('place 1', 'place 2', 'other')
    """

    places: int
    categories: int
    length: int

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of places, and of the rest."""
        return (*(f"place {place}" for place in range(1, self.places + 1)), OTHER)

    def __len__(self) -> int:
        return self.places + 1

    def indices(self, series: pl.Series) -> Indices:
        """Where a record without a category is: nowhere. All others are placed by the mechanism alone."""
        return np.where(series.is_null().to_numpy(), np.int32(-1), np.int32(0)).astype(np.int32)

    def describe(self) -> dict[str, Any]:
        """Identify the columns exactly, as JSON."""
        return {"discover": self.places, "categories": self.categories, "length": self.length}


@dataclass(frozen=True)
class Intervals:
    """A public grid of half-open intervals [e₀, e₁), [e₁, e₂), … of a number.

    Parameters
    ----------
    edges
        Increasing exact numbers.
    outside
        "drop" or "other": what becomes of a number that is in no interval.

    Examples
    --------
    >>> Intervals(("0", "0.5", "2")).labels
    ('[0, 0.5)', '[0.5, 2)')
    """

    edges: tuple[ExactLike, ...]
    outside: str = "drop"

    def __post_init__(self) -> None:
        _not_too_many(len(self.edges))
        object.__setattr__(self, "edges", tuple(exact("edges", edge) for edge in self.edges))
        _outside(self.outside)
        increasing = all(Fraction(a) < Fraction(b) for a, b in pairwise(self.edges))
        if len(self.edges) < 2 or not increasing:
            raise InvalidParameter(
                "edges",
                tuple(map(str, self.edges)),
                "at least two increasing numbers",
                'write ["0", "10", "20"]',
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of a step."""
        shown = [show(Fraction(edge)) for edge in self.edges]
        names = tuple(f"[{low}, {high})" for low, high in pairwise(shown))
        return (*names, OTHER) if self.outside == OTHER else names

    def __len__(self) -> int:
        return len(self.edges) - 1 + (self.outside == OTHER)

    def indices(self, series: pl.Series) -> Indices:
        """The interval of each number, −1 for those to be dropped."""
        inner = len(self.edges) - 1
        rest = inner if self.outside == OTHER else -1
        column = numbers(series, "value")
        values = as_array(column)
        if column.dtype == pl.Float64:
            # the smallest float that is not below an edge decides as the exact edge would
            edges: npt.NDArray[Any] = np.array([float_up(Fraction(edge)) for edge in self.edges])
        else:
            ceilings = [min(max(math.ceil(Fraction(edge)), -(2**63)), 2**63 - 1) for edge in self.edges]
            edges = np.array(ceilings, dtype=np.int64)
        found = np.searchsorted(edges, values, side="right") - 1
        result = found.astype(np.int32)
        result[(found < 0) | (found >= inner) | column.is_null().to_numpy()] = rest
        return result

    def place(self, value: Fraction) -> int:
        """The interval of one exact number, −1 outside: the reference for :meth:`indices`."""
        at = bisect_right([Fraction(edge) for edge in self.edges], value) - 1
        return at if 0 <= at < len(self.edges) - 1 else -1

    def describe(self) -> dict[str, Any]:
        """Identify the columns exactly, as JSON."""
        return {"edges": [show(Fraction(edge)) for edge in self.edges], "outside": self.outside}


def texts(series: pl.Series) -> pl.Series:
    """A column of categories as text; truth values and whole numbers as they are written, the rest refused."""
    kind = series.dtype
    known = isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Null)
    if not known and not kind.is_integer():
        raise MixedTypes(
            f"the column of categories has type {kind}, but must be text or whole numbers; convert it first."
        )
    return series.cast(pl.String)


def numbers(series: pl.Series, name: str, *, lenient: bool = False) -> pl.Series:
    """A column of numbers as Int64 or Float64, null where one is missing; text is parsed, the rest refused.

    Which of the two it is follows from the declared type of the column, never from what is in it: whole numbers stay
    exact whatever stands beside them.

    Parameters
    ----------
    series
        The column.
    name
        What it is called in a refusal.
    lenient
        Whether text that is no number is missing, or refuses the input.
    """
    kind = series.dtype
    refusal = NotNumeric(
        f"the column {name!r} holds something that is not a number with a decimal point; correct the input or "
        "declare another column."
    )
    if kind in _WHOLE:
        return series.cast(pl.Int64)
    if isinstance(kind, pl.String):
        text = series.str.strip_chars()
        parsed = attempt(lambda: text.cast(pl.Float64, strict=False), refusal)
        if not lenient:
            refuse(parsed.is_null() & (text != ""), refusal)
        return parsed.fill_nan(None)
    if not kind.is_numeric() and kind != pl.Null:
        raise refusal
    return attempt(lambda: series.cast(pl.Float64), refusal).fill_nan(None)


def as_array(values: pl.Series) -> npt.NDArray[Any]:
    """Numbers for NumPy, 0 where one is missing: which are is asked of the column."""
    return values.fill_null(0).to_numpy()
