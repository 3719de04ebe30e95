"""Events as bytes: the rows of each step for themselves, in columns, so that many small pieces are read as one."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Columns = tuple[tuple[str, str], ...]  # names and kinds
_MOMENT, _TEXT = "moment", "text"
_SIZE = struct.Struct("<I")
_NULL = 2**32 - 1  # the length of a text that is missing
_FEW = 64  # rows for which plain loops are faster
_UTC = pl.Datetime("us", "UTC")


def encoded(
    frame: pl.DataFrame, steps: npt.NDArray[np.int64]
) -> tuple[Columns, list[tuple[int, int, bytes]]]:
    """The columns of a batch, and for each of its steps how many rows it has and what is in them."""
    columns = tuple((name, _TEXT if frame[name].dtype == pl.String else _MOMENT) for name in frame.columns)
    if not len(steps):
        return columns, []
    if int(steps.min()) != int(steps.max()):
        order = np.argsort(steps, kind="stable")
        frame, steps = frame[order], steps[order]
    edges = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    makers = [
        _text(frame[name], edges) if kind == _TEXT else _moments(frame[name], edges) for name, kind in columns
    ]
    return columns, [
        (int(steps[begin]), end - begin, b"".join(parts))
        for begin, end, parts in zip(edges, edges[1:], zip(*makers, strict=True), strict=False)
    ]


def _moments(series: pl.Series, edges: list[int]) -> Iterator[bytes]:
    values = series.to_physical().to_numpy().astype("<i8")
    for begin, end in itertools.pairwise(edges):
        yield values[begin:end].tobytes()


def _text(series: pl.Series, edges: list[int]) -> Iterator[bytes]:
    if len(series) <= _FEW:
        texts = [None if text is None else text.encode() for text in series.to_list()]
        content = b"".join(text for text in texts if text)
        sizes = np.array([_NULL if text is None else len(text) for text in texts], dtype="<u4")
    else:
        content = (series.str.join("").item() or "").encode()
        sizes = series.str.len_bytes().cast(pl.UInt32).fill_null(_NULL).to_numpy().astype("<u4")
    there = np.where(sizes == _NULL, 0, sizes).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(there)])[edges].tolist()
    for begin, end, low, high in zip(edges, edges[1:], ends, ends[1:], strict=False):
        yield _SIZE.pack(high - low) + sizes[begin:end].tobytes() + content[low:high]


def decoded(columns: Columns, pieces: Sequence[tuple[int, bytes]]) -> pl.DataFrame:
    """The events of some pieces, each with its number of rows."""
    lengths: list[list[bytes]] = [[] for _ in columns]
    contents: list[list[bytes]] = [[] for _ in columns]
    for rows, content in pieces:
        at = 0
        for number, (_, kind) in enumerate(columns):
            if kind == _MOMENT:
                contents[number].append(content[at : at + 8 * rows])
                at += 8 * rows
            else:
                (size,) = _SIZE.unpack_from(content, at)
                at += _SIZE.size
                lengths[number].append(content[at : at + 4 * rows])
                at += 4 * rows
                contents[number].append(content[at : at + size])
                at += size
    found = {}
    for number, (name, kind) in enumerate(columns):
        content = b"".join(contents[number])
        if kind == _MOMENT:
            found[name] = pl.Series(np.frombuffer(content, "<i8"), dtype=pl.Int64).cast(_UTC)
        else:
            found[name] = _texts(np.frombuffer(b"".join(lengths[number]), "<u4"), content)
    return pl.DataFrame(found)


def _texts(sizes: npt.NDArray[np.uint32], content: bytes) -> pl.Series:
    there = sizes != _NULL
    lengths = np.where(there, sizes, 0).astype(np.int64)
    where = pl.DataFrame({"at": np.cumsum(lengths) - lengths, "length": lengths, "there": there})
    text = pl.lit(content, dtype=pl.Binary).bin.slice(pl.col("at"), pl.col("length")).cast(pl.String)
    return where.select(pl.when("there").then(text).otherwise(None)).to_series()
