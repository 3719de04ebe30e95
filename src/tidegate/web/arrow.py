"""What an Arrow batch says of itself, checked before anything of it is read.

A few kilobytes can announce terabytes: buffers that are compressed once more, rows of a column that has no bytes, text to
which a million rows point, or a batch that the footer names a thousand times. So the headers are read here, and sizes are
added up, before the library that makes columns of them sees a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"ARROW1"
MOST_LOOKS = 1_000_000  # columns of all record batches together
_CONTINUED = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3  # kinds of messages
_NULL, _BINARY, _UTF8, _LARGE_BINARY, _LARGE_UTF8, _BINARY_VIEW, _UTF8_VIEW = 1, 4, 5, 19, 20, 23, 24
_INT, _FLOAT, _BOOL, _DECIMAL, _DATE, _TIMESTAMP = 2, 3, 6, 7, 8, 10
USABLE = (_NULL, _INT, _FLOAT, _UTF8, _BOOL, _DECIMAL, _DATE, _TIMESTAMP, _LARGE_UTF8, _UTF8_VIEW)
# how many buffers a column of each type has; nested types are not here
_BUFFERS = {_NULL: 0, **dict.fromkeys((2, 3, 6, 7, 8, 9, 10, 11, 15, 18), 2)}
_BUFFERS |= {_BINARY: 3, _UTF8: 3, _LARGE_BINARY: 3, _LARGE_UTF8: 3, _BINARY_VIEW: 2, _UTF8_VIEW: 2}


class Refusal(Exception):
    """A batch that must not be read, for this reason."""


class Excess(Refusal):
    """A batch that says of itself that it is too large."""


@dataclass(frozen=True)
class Column:
    """A column as the schema has it.

    Parameters
    ----------
    name
        Its name.
    kind
        The number of its type.
    dictionary
        The id of the dictionary that its numbers point to, if any.
    """

    name: str
    kind: int
    dictionary: int | None


class _Table:
    """A table of a FlatBuffer: its fields lie where a table of offsets before it says."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at
        self._offsets = at - _number(data, "<i", at)
        self._size = _number(data, "<H", self._offsets)

    def _place(self, field: int) -> int:
        """Where a field is; 0 where it is absent."""
        entry = 4 + 2 * field
        offset = _number(self.data, "<H", self._offsets + entry) if entry + 2 <= self._size else 0
        return self.at + offset if offset else 0

    def number(self, field: int, layout: str) -> int:
        place = self._place(field)
        return _number(self.data, layout, place) if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return _Table(self.data, place + _number(self.data, "<I", place)) if place else None

    def array(self, field: int, kind: Any) -> npt.NDArray[Any]:
        """A vector of plain values."""
        place = self._place(field)
        if not place:
            return np.zeros(0, dtype=kind)
        place += _number(self.data, "<I", place)
        return np.frombuffer(self.data, kind, _number(self.data, "<I", place), place + 4)

    def tables(self, field: int) -> list[_Table]:
        """A vector of tables."""
        place = self._place(field)
        if not place:
            return []
        begin = place + _number(self.data, "<I", place) + 4
        places = range(begin, begin + 4 * len(self.array(field, "<u4")), 4)
        return [_Table(self.data, each + _number(self.data, "<I", each)) for each in places]


_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
_BLOCK = np.dtype([("offset", "<i8"), ("header", "<i4"), ("gap", "<i4"), ("body", "<i8")])


@dataclass(frozen=True)
class _Message:
    """A header and where the buffers that it names begin."""

    header: _Table
    kind: int
    body: memoryview


class Outline:
    """The columns and sizes of an Arrow file or stream, without its values.

    Parameters
    ----------
    content
        All of its bytes.

    Raises
    ------
    Refusal
        If it is packed once more, or nested.
    ValueError, struct.error
        If it is damaged; other errors of damage are the reader's.
    """

    def __init__(self, content: bytes) -> None:
        data = memoryview(content)
        if content.startswith(MAGIC):
            schema, self._messages = _file(data)
        else:
            schema, self._messages = _stream(data)
        fields = schema.tables(1)
        self.columns = [_column(each) for each in fields]
        if len(self._messages) * (1 + len(fields)) > MOST_LOOKS:
            raise Excess("a batch must not have so many record batches; write fewer and larger ones.")

    def check(self, most_rows: int, most_bytes: int) -> None:
        """Refuse what would take more than so many rows, or bytes of buffers or of text."""
        longest: dict[int, int] = {}  # entry of each dictionary
        kinds = {each.dictionary: each for each in self.columns if each.dictionary is not None}
        if any(each.kind != kinds[each.dictionary].kind for each in self.columns if each.dictionary in kinds):
            raise ValueError
        rows = size = 0
        for message in self._messages:
            found, columns, number = message.header, self.columns, None
            if message.kind == _DICTIONARY:
                number = found.number(0, "<q")
                records, entries = found.table(1), kinds.get(number)
                if records is None or entries is None:
                    raise ValueError
                found, columns = records, [Column("", entries.kind, None)]
            count, buffers = found.number(0, "<q"), found.array(2, _BUFFER)
            if found.table(3) is not None:
                raise Refusal(
                    "an Arrow batch must not be packed inside; write it without compression, and pack the body with "
                    "gzip or zstd."
                )
            nodes = found.array(1, _NODE)["length"]
            if count < 0 or (buffers["length"] < 0).any() or (buffers["offset"] < 0).any():
                raise ValueError
            rows += count
            if rows > most_rows:
                raise Excess(f"a batch must not have more than {most_rows} records here; send several.")
            if (nodes != count).any():
                raise ValueError
            size += int(buffers["length"].astype("f8").sum())
            for column, own in _apart(columns, buffers, found.array(4, "<i8")):
                if column.dictionary is not None:
                    size += count * longest.get(column.dictionary, 0)
                elif number is not None:
                    longest[number] = max(longest.get(number, 0), _longest(message.body, column.kind, own))
                elif column.kind in (_BINARY_VIEW, _UTF8_VIEW):
                    size += int(_views(message.body, own).sum())
            if size > most_bytes:
                raise Excess(
                    f"a batch must not be larger than {most_bytes} bytes when it is unpacked; send several."
                )


def _number(data: memoryview, layout: str, at: int) -> int:
    if at < 0:  # Python would count from the end
        raise ValueError
    found: int = struct.unpack_from(layout, data, at)[0]
    return found


def _root(data: memoryview) -> _Table:
    return _Table(data, _number(data, "<I", 0))


def _header(data: memoryview, at: int) -> tuple[memoryview, int] | None:
    """The header of a message, and where it ends; None after the last one."""
    if at + 4 > len(data):
        return None
    length, begin = _number(data, "<I", at), at + 4
    if length == _CONTINUED:
        length, begin = _number(data, "<I", at + 4), at + 8
    if not length:
        return None
    if begin + length > len(data):
        raise ValueError
    return data[begin : begin + length], begin + length


def _stream(data: memoryview) -> tuple[_Table, list[_Message]]:
    found: list[_Message] = []
    schema, at = None, 0
    while (part := _header(data, at)) is not None:
        message = _root(part[0])
        header, kind, size = message.table(2), message.number(1, "<B"), message.number(3, "<q")
        if header is None or size < 0:
            raise ValueError
        at = part[1] + size
        if schema is None and kind == _SCHEMA:
            schema = header
        elif kind in (_DICTIONARY, _RECORDS) and schema is not None:
            found.append(_Message(header, kind, data[part[1] : at]))
        else:
            raise ValueError
        if len(found) > MOST_LOOKS:
            break
    if schema is None:
        raise ValueError
    return schema, found


def _file(data: memoryview) -> tuple[_Table, list[_Message]]:
    if bytes(data[-len(MAGIC) :]) != MAGIC:
        raise ValueError
    end = len(data) - len(MAGIC) - 4
    size = _number(data, "<i", end)
    if not 0 < size <= end:
        raise ValueError
    footer = _root(data[end - size : end])
    schema = footer.table(1)
    blocks = [footer.array(field, _BLOCK) for field in (2, 3)]
    if schema is None:
        raise ValueError
    if sum(map(len, blocks)) > MOST_LOOKS // 10:
        raise Excess("a batch must not have so many record batches; write fewer and larger ones.")
    found = []
    for kind, each in zip((_DICTIONARY, _RECORDS), blocks, strict=True):
        for block in each.tolist():
            part = _header(data, block[0])
            message = None if part is None else _root(part[0])
            header = None if message is None else message.table(2)
            if message is None or header is None or message.number(1, "<B") != kind:
                raise ValueError
            begin = block[0] + block[1]
            if min(begin, block[3]) < 0:
                raise ValueError
            found.append(_Message(header, kind, data[begin : begin + block[3]]))
    return schema, found


def _column(field: _Table) -> Column:
    kind, encoded, name = field.number(2, "<B"), field.table(4), field.array(0, "u1").tobytes()
    if kind not in _BUFFERS or field.tables(5):
        raise Refusal(
            "a column is nested or has a type that cannot be used; send text, numbers or timestamps."
        )
    return Column(name.decode(), kind, None if encoded is None else encoded.number(0, "<q"))


def _apart(
    columns: Sequence[Column], buffers: npt.NDArray[Any], more: npt.NDArray[Any]
) -> Iterator[tuple[Column, npt.NDArray[Any]]]:
    """Each column with its buffers."""
    at, views = 0, iter(more.tolist())
    for column in columns:
        own = 2 if column.dictionary is not None else _BUFFERS[column.kind]
        if column.dictionary is None and column.kind in (_BINARY_VIEW, _UTF8_VIEW):
            own += max(0, next(views, 0))
        if at + own > len(buffers):
            raise ValueError
        yield column, buffers[at : at + own]
        at += own
    if at != len(buffers):
        raise ValueError


def _content(body: memoryview, buffer: Any, kind: str) -> npt.NDArray[Any]:
    begin, length = int(buffer["offset"]), int(buffer["length"])
    if begin + length > len(body):
        raise ValueError
    item = np.dtype(kind).itemsize
    return np.frombuffer(body[begin : begin + length - length % item], dtype=kind)


def _views(body: memoryview, buffers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """How long each text is; several may be the same bytes."""
    found = _content(body, buffers[1], "<u4")
    return found[: len(found) // 4 * 4 : 4].astype("u8")


def _longest(body: memoryview, kind: int, buffers: npt.NDArray[Any]) -> int:
    """The longest entry of a dictionary, in bytes."""
    if kind in (_BINARY_VIEW, _UTF8_VIEW):
        lengths = _views(body, buffers)
    elif _BUFFERS[kind] == 3:
        large = kind in (_LARGE_BINARY, _LARGE_UTF8)
        lengths = np.diff(_content(body, buffers[1], "<i8" if large else "<i4").astype("i8"))
    else:
        return 32  # a number, of whatever type
    return int(lengths.max(initial=0))
