"""Keeping what a source cannot deliver again: rows of open steps as bytes, and who stores them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from tidegate.ingest.aggregate import CATEGORY, RECORDS, Matrix
from tidegate.ingest.sources.source import Arrivals

_HEAD = struct.Struct("<BI")  # which columns there are, and how many rows
_VALUE, _UNIT, _RECORDS, _CATEGORY = 1, 2, 4, 8
_NO_TEXT = 2**32 - 1  # in the place of the length of a text that is not there
_MOST_ROWS = 2**18  # of one entry, so that none is too large for a database


class Checkpoint(Protocol):
    """Puts rows of open steps away, so that a source may forget them: they are on disk when a call returns.

    The rows of a step vanish in the transaction that commits the step.
    """

    @property
    def identity(self) -> str:
        """A name for the stream: the same at every start, and nobody else's."""

    def entries(self) -> Iterable[tuple[int, bytes]]:
        """Everything that was stored: steps and rows, in the order in which they came."""

    def arrivals(self) -> Iterable[Arrivals]:
        """What the source wants to know again."""

    def keep(self, entries: Sequence[tuple[int, bytes]], arrivals: Arrivals | None) -> None:
        """Store rows, together with the arrivals of the messages that they came in."""

    def replace_all(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Store these rows instead of all that were stored before."""


def packed(rows: pl.DataFrame, numbers: Matrix) -> Iterator[tuple[int, bytes]]:
    """Rows as entries, each of one step."""
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    for step in np.unique(numbers).tolist():
        low, high = (int(edge) for edge in np.searchsorted(numbers, [step, step + 1]))
        for begin in range(low, high, _MOST_ROWS):
            yield step, _packed(rows[begin : min(begin + _MOST_ROWS, high)])


def _packed(rows: pl.DataFrame) -> bytes:
    flags = _VALUE * ("value" in rows.columns) | _UNIT * ("unit" in rows.columns)
    flags |= _RECORDS * (RECORDS in rows.columns) | _CATEGORY * (CATEGORY in rows.columns)
    parts = [_HEAD.pack(flags, len(rows)), _bytes(rows["time"], "<i8"), _bytes(rows["column"], "<i4")]
    if flags & _VALUE:
        parts.append(_bytes(rows["value"], "<i8"))
    if flags & _RECORDS:
        parts.append(_bytes(rows[RECORDS], "<i8"))
    if flags & _UNIT:
        parts += _texts(rows["unit"].cast(pl.String))
    if flags & _CATEGORY:
        parts += _texts(rows[CATEGORY])
    return b"".join(parts)


def unpacked(content: bytes) -> pl.DataFrame:
    """The rows of an entry."""
    flags, count = _HEAD.unpack_from(content)
    at = _HEAD.size

    def column(kind: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        nonlocal at
        found = np.frombuffer(content, dtype=kind, count=count, offset=at)
        at += found.nbytes
        return found

    parts: dict[str, pl.Series] = {"time": pl.Series(column("<i8"), dtype=pl.Int64)}
    places = pl.Series(column("<i4"), dtype=pl.Int32)
    if flags & _VALUE:
        parts["value"] = pl.Series(column("<i8"), dtype=pl.Int64)
    if flags & _RECORDS:
        parts[RECORDS] = pl.Series(column("<i8"), dtype=pl.Int64)
    for name, flag in (("unit", _UNIT), (CATEGORY, _CATEGORY)):
        if flags & flag:
            sizes = column("<u4").astype(np.int64)
            there = sizes != _NO_TEXT
            ends = np.cumsum(np.where(there, sizes, 0)).tolist()
            begins = [0, *ends[:-1]]
            texts = [
                content[at + begin : at + end].decode() if known else None
                for begin, end, known in zip(begins, ends, there.tolist(), strict=True)
            ]
            parts[name] = pl.Series(texts, dtype=pl.String)
            at += ends[-1] if ends else 0
    return pl.DataFrame({**parts, "column": places}).select(_in_order(flags))


def _in_order(flags: int) -> list[str]:
    """The columns as ingest orders them."""
    wanted = {
        "time": True,
        "unit": flags & _UNIT,
        "value": flags & _VALUE,
        "column": True,
        CATEGORY: flags & _CATEGORY,
        RECORDS: flags & _RECORDS,
    }
    return [name for name, there in wanted.items() if there]


def _texts(series: pl.Series) -> list[bytes]:
    """The lengths of texts, then the texts; one that is not there has a length that no text has."""
    texts = [None if text is None else text.encode() for text in series.to_list()]
    sizes = [_NO_TEXT if text is None else len(text) for text in texts]
    return [np.array(sizes, dtype="<u4").tobytes(), *(text for text in texts if text is not None)]


def _bytes(series: pl.Series, kind: str) -> bytes:
    return series.to_numpy().astype(kind).tobytes()
