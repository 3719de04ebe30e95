"""Batches of events as producers send them: whole or refused, with the line and the rule, never the content."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import zstandard

from tidegate.config import Queries
from tidegate.errors import InvalidInput, TidegateError
from tidegate.ingest.combined_query import read_rows
from tidegate.ingest.errors import attempt, refuse
from tidegate.ingest.schema import UnitReader
from tidegate.ingest.sources.text import CsvDialect, JsonDialect
from tidegate.ingest.times import TimeReader
from tidegate.web import limits

NDJSON, CSV = "application/x-ndjson", "text/csv"
TYPES = (NDJSON, CSV)
MOST_SENT = 32 * 2**20  # bytes of a body as it comes
MOST_BYTES = min(128 * 2**20, limits.MEMORY // 32)  # bytes of a body when it is unpacked
# records times columns that are read of them: each takes 16 bytes, however short it is
MOST_CELLS = min(2**25, limits.MEMORY // 512)
NAME = "the batch"
_PIECE = 2**20  # bytes that are looked at together
MOST_MEMBERS = 1000  # of a packed body: each costs a look at a piece


class BadBatch(InvalidInput):
    """A batch that is refused as a whole.

    Parameters
    ----------
    rule
        What it breaks.
    line
        The first line that does, where it is known.
    """

    def __init__(self, rule: str, line: int | None = None) -> None:
        super().__init__(rule if line is None else f"line {line}: {rule}")
        self.rule, self.line = rule, line


class TooLarge(TidegateError):
    """A body that is larger than allowed."""


def unpack(body: bytes, encoding: str) -> bytes:
    """The body without its content encoding, never more than is allowed."""
    if encoding in ("", "identity"):
        found = body
    elif encoding == "gzip":
        found = attempt(lambda: _gunzip(body), lambda: _unreadable("gzip"))
    elif encoding == "zstd":
        found = attempt(lambda: _unzstd(body), lambda: _unreadable("zstd"))
    else:
        raise BadBatch("the content encoding must be gzip or zstd, or none.")
    if len(found) > MOST_BYTES:
        raise TooLarge(
            f"a batch must not be larger than {MOST_BYTES} bytes when it is unpacked; send several."
        )
    return found


def _gunzip(body: bytes) -> bytes:
    return _members(
        body, _PIECE, lambda: zlib.decompressobj(wbits=31), lambda each, *given: each.decompress(*given)
    )


def _unzstd(body: bytes) -> bytes:
    # it has no bound for what comes out, which is at most 2^15 times what goes in
    context = zstandard.ZstdDecompressor(max_window_size=2**27)
    return _members(body, 2**10, context.decompressobj, lambda each, piece, _room: each.decompress(piece))


def _members(
    body: bytes, size: int, make: Callable[[], Any], unpacked: Callable[[Any, bytes, int], bytes]
) -> bytes:
    """All members one after the other, as a file that was appended to has them; the last must come to its end."""
    parts, room, at = [], MOST_BYTES + 1, 0
    for _ in range(MOST_MEMBERS):
        unpacker = make()
        while room > 0 and at < len(body) and not unpacker.eof:
            piece = body[at : at + size]
            parts.append(unpacked(unpacker, piece, room))
            room -= len(parts[-1])
            at += len(piece) - len(unpacker.unused_data)
        if room <= 0 or (unpacker.eof and at == len(body)):
            return b"".join(parts)
        if not unpacker.eof:
            break
    raise ValueError


def _unreadable(what: str) -> Any:
    return BadBatch(f"the batch cannot be read as {what}.")


class Parser:
    """Reads the batches of one stream.

    Parameters
    ----------
    queries
        Its configuration, with one query or several.
    """

    def __init__(self, queries: Queries) -> None:
        self.queries, self.config = queries, queries.first
        self.columns = queries.counted.needed(self.config.schema)
        # a field that any of the queries cannot do without is needed
        must: set[str] = set()
        for part in queries.parts:
            needed = part.query.needed(part.schema)
            lacking = set(needed[1:]) if part.query.wide else set()
            must |= set(needed) - lacking - (set(part.query.looked_at) - set(part.schema.needed))
        self.may_lack = set(self.columns) - must
        self.most_rows = MOST_CELLS // len(self.columns)

    def parse(self, kind: str, body: bytes) -> pl.DataFrame:
        """The needed columns of a batch, with times as moments; every record has been checked."""
        if body.count(b"\n") > self.most_rows:
            raise TooLarge(f"a batch must not have more than {self.most_rows} lines here; send several.")
        frame, line = self._json(body) if kind == NDJSON else self._csv(body)
        if not len(frame):
            return self._moments(frame.head(0))
        _, typed = self._check(frame)
        if typed is not None:
            return typed
        raise self._first_bad(frame, line)

    def _first_bad(self, frame: pl.DataFrame, line: Callable[[int], int]) -> BadBatch:
        """The refusal for the first record that breaks a rule, found by halving.

        Each look is at half of what the last one was at: all of them together take as long as one look at the whole.
        """
        good, bad = 0, len(frame)  # records before `good` are fine, and one before `bad` is not
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._check(frame[good:middle])[0] is None:
                good = middle
            else:
                bad = middle
        found, _ = self._check(frame[good:bad])
        assert found is not None  # no record breaks a rule only together with others
        return BadBatch(found, line(good))

    # formats ------------------------------------------------------------------------------------------------

    def _json(self, body: bytes) -> tuple[pl.DataFrame, Callable[[int], int]]:
        def read(piece: bytes) -> pl.DataFrame:
            dialect = JsonDialect(NAME, self.columns)
            dialect.unseen.clear()
            return dialect.parse(piece, self.columns)

        try:
            frame = read(body)
        except TidegateError:
            raise BadBatch("it is no JSON object.", _first_bad_line(body, read)) from None
        return frame, lambda row: _line_of(body, row, len(frame))

    def _csv(self, body: bytes) -> tuple[pl.DataFrame, Callable[[int], int]]:
        head, _, rest = body.removeprefix(codecs.BOM_UTF8).partition(b"\n")
        dialect = CsvDialect(NAME, self.columns, self.config.source.separator)
        try:
            dialect.header(head)
        except TidegateError as error:
            raise BadBatch(str(error), 1) from None
        if _odd_quotes(rest):
            raise BadBatch("a quoted field must not hold a line break.")

        def read(piece: bytes) -> pl.DataFrame:
            return dialect.parse(piece, self.columns)

        try:
            frame = read(rest)
        except TidegateError:
            line = _first_bad_line(rest, read) + 1
            raise BadBatch("it does not have the fields of the header.", line) from None
        return frame, lambda row: _line_of(rest, row, len(frame)) + 1

    # records ------------------------------------------------------------------------------------------------

    def _check(self, frame: pl.DataFrame) -> tuple[str | None, pl.DataFrame | None]:
        """The rule that one of these records breaks, or all of them with their times as moments."""
        schema, zone = self.config.schema, self.config.steps.zone
        try:
            for name in self.columns:
                if name not in self.may_lack:
                    refuse(_missing(frame[name]), _lacking(name))
            typed = self._moments(frame)
            refuse(_missing(typed[schema.time]), _lacking(schema.time))  # a number may be none
            read_rows(self.queries.counted, typed, schema, TimeReader("auto", zone), UnitReader())
        except TidegateError as error:
            return str(error), None
        return None, typed

    def _moments(self, frame: pl.DataFrame) -> pl.DataFrame:
        schema = self.config.schema
        times = TimeReader(schema.time_format, self.config.steps.zone).read(frame[schema.time])
        return frame.with_columns(times.cast(pl.Datetime("us", "UTC")).alias(schema.time))


def _missing(field: pl.Series) -> pl.Series:
    """Which records lack a field; text of no length is none."""
    return field.is_null() | (field.str.len_bytes() == 0) if field.dtype == pl.String else field.is_null()


def _lacking(name: str) -> BadBatch:
    return BadBatch(f"the field {name!r} is missing.")


def _first_bad_line(body: bytes, read: Callable[[bytes], object]) -> int:
    """The number of the first line that cannot be read, from 1, where not all of them can; each look is half as long."""
    good, bad = 0, len(body)  # lines before `good` can be read, and one before `bad` cannot
    while True:
        middle = body.find(b"\n", (good + bad) // 2, bad) + 1
        if not 0 < middle < bad:
            middle = body.rfind(b"\n", good, max(good, bad - 1)) + 1
        if not good < middle < bad:
            return body.count(b"\n", 0, good) + 1
        piece = body[good:middle].lstrip(b"\r\n")  # a batch must not begin with an empty line, but a half may
        try:
            if piece:
                read(piece)
            good = middle
        except TidegateError:
            bad = middle


def _odd_quotes(body: bytes) -> bool:
    """Whether a quote that is opened in a line is not closed there."""
    if b'"' not in body:
        return False
    before = np.uint8(0)
    for begin in range(0, len(body), _PIECE):
        piece = np.frombuffer(body, np.uint8, min(_PIECE, len(body) - begin), begin)
        quotes = (np.cumsum(piece == ord('"'), dtype=np.uint8) & 1) ^ before
        if quotes[piece == ord("\n")].any():
            return True
        before = quotes[-1]
    return bool(before)


def _line_of(body: bytes, row: int, rows: int) -> int:
    """The number of the line of a record, from 1; lines without anything are no records."""
    if body.count(b"\n") + (not body.endswith(b"\n")) == rows:
        return row + 1
    begin = before = 0  # lines before the piece
    while begin < len(body):
        end = body.find(b"\n", begin + _PIECE) + 1 or len(body)
        lines = body[begin:end].removesuffix(b"\n").split(b"\n")
        for number, line in enumerate(lines, start=before + 1):
            row -= bool(line.strip())
            if row < 0:
                return number
        begin, before = end, before + len(lines)
    return 1
