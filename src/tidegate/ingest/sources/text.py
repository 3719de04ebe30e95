"""Text in whole lines, parsed a piece at a time: CSV and JSON lines, from files, pipes or messages."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import (
    EmptyInput,
    InputChanged,
    MissingColumn,
    NotUtf8,
    SourceUnavailable,
    TooManyColumns,
    UnreadableInput,
    attempt,
)
from tidegate.ingest.schema import check_header
from tidegate.ingest.sources.source import Batch, Patience, Position, Source, no_patience

PIECE = 16 * 2**20  # bytes that are parsed at once
LONGEST_LINE = 64 * 2**20
MOST_COLUMNS = 100_000
SEPARATORS = (",", ";", "\t", "|")
_BOM = b"\xef\xbb\xbf"


class Dialect(ABC):
    """How lines become records."""

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.columns = tuple(columns)

    @abstractmethod
    def header(self, line: bytes) -> bool:
        """Look at the first line; say whether it is a header and no record."""

    @abstractmethod
    def parse(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns."""

    def last_break(self, piece: bytes) -> int:
        """Where the last whole record of a piece ends; 0 if none does."""
        return piece.rfind(b"\n") + 1

    def _refused(self, piece: bytes, what: str) -> UnreadableInput | NotUtf8:
        try:
            piece.decode()
        except UnicodeDecodeError:
            return NotUtf8(f"{self.name} is not UTF-8 text; convert it first.")
        return UnreadableInput(
            f"{self.name} cannot be read as {what}; check it with another tool and correct it."
        )


class CsvDialect(Dialect):
    """Comma-separated values with a header; every field is text until ingest reads it."""

    def __init__(self, name: str, columns: Sequence[str], separator: str = ",") -> None:
        super().__init__(name, columns)
        if not isinstance(separator, str) or len(separator.encode()) != 1 or separator in '"\n\r':
            raise InvalidParameter("separator", separator, "one character", 'write for example separator=";"')
        self.separator = separator
        self.names: list[str] = []

    def header(self, line: bytes) -> bool:
        """Read the names of the columns."""
        if line.count(self.separator.encode()) >= MOST_COLUMNS:
            raise TooManyColumns(
                f"{self.name} has more than {MOST_COLUMNS} columns; keep those that are needed."
            )
        refusal = self._refused(line, "CSV")
        rows = attempt(
            lambda: next(csv.reader([line.decode().rstrip("\r\n")], delimiter=self.separator), []), refusal
        )
        self.names = [name.strip() for name in rows]
        if not any(self.names):
            raise EmptyInput(f"the first line of {self.name} is empty; it must name the columns.")
        other = separator_of(line)
        if len(self.names) == 1 and other != self.separator and other.encode() in line:
            raise MissingColumn(
                f"{self.name} has one column only when it is cut at {self.separator!r}; write "
                f"separator = {json.dumps(other)} in [source]."
            )
        check_header(self.names, self.columns, self.name)
        return True

    def parse(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns."""
        wanted = [(self.names.index(name), name) for name in columns]
        order = sorted(wanted)

        def read() -> pl.DataFrame:
            return pl.read_csv(
                io.BytesIO(piece),
                has_header=False,
                schema={f"column_{index + 1}": pl.String for index in range(len(self.names))},
                columns=[index for index, _ in order],
                separator=self.separator,
                raise_if_empty=False,
            )

        frame = attempt(read, lambda: self._refused(piece, "CSV"))
        frame.columns = [name for _, name in order]
        return frame.select(columns)

    def last_break(self, piece: bytes) -> int:
        """A line break inside of quotes ends no record."""
        end = piece.rfind(b"\n") + 1
        quotes = piece.count(b'"', 0, end)
        while end and quotes % 2:
            before = piece.rfind(b"\n", 0, end - 1) + 1
            quotes -= piece.count(b'"', before, end)
            end = before
        return end


class JsonDialect(Dialect):
    """JSON lines: one object a line; numbers and words become text until ingest reads them."""

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        super().__init__(name, columns)
        self.unseen = set(columns)

    def header(self, line: bytes) -> bool:
        """A first line that is no object refuses the whole input."""
        refusal = self._refused(line, "JSON lines")
        found = attempt(lambda: json.loads(line), refusal)
        if not isinstance(found, dict):
            raise refusal
        if len(found) > MOST_COLUMNS:
            raise TooManyColumns(
                f"{self.name} has more than {MOST_COLUMNS} columns; keep those that are needed."
            )
        return False

    def parse(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns."""
        schema = dict.fromkeys(columns, pl.String)
        frame = attempt(
            lambda: pl.read_ndjson(io.BytesIO(piece), schema=schema),
            lambda: self._refused(piece, "JSON lines"),
        )
        frame = frame.select(columns)
        for name in list(self.unseen):
            if name in frame.columns:
                if len(frame) and frame[name].null_count() == len(frame):
                    raise MissingColumn(f"{self.name} has no column {name!r}; declare one that it has.")
                self.unseen.discard(name)
        return frame


def separator_of(line: bytes) -> str:
    """What separates the names of a header: the most frequent of comma, semicolon, tab and bar."""
    return max(SEPARATORS, key=lambda one: line.count(one.encode()))


def dialect(format: str, name: str, columns: Sequence[str], separator: str = ",") -> Dialect:
    """The dialect of a format."""
    return JsonDialect(name, columns) if format == "jsonl" else CsvDialect(name, columns, separator)


class TextSource(Source):
    """A CSV or JSON lines file; with `follow`, one that grows.

    Positions are byte offsets of whole lines.
    """

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str],
        *,
        format: str = "csv",
        separator: str = ",",
        follow: bool = False,
        piece: int = PIECE,
        name: str | None = None,
    ) -> None:
        self.path = Path(path)
        super().__init__(name or repr(self.path.name), columns)
        self.format = format
        self.separator = separator
        self.follow = follow
        self.piece = piece
        self._end = 0
        self.dialect = dialect(format, self.name, columns, separator)  # refuses wrong parameters at once

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[Batch]:
        """Read pieces of whole lines."""
        columns = self.columns if columns is None else columns
        reader = self.dialect = dialect(self.format, self.name, self.columns, self.separator)
        with _open(self.path, self.name) as file:
            begin = yield from self._begin(file, reader, patience)
            offset: int = (position or {}).get("offset", begin)
            size = os.fstat(file.fileno()).st_size
            if size < offset:
                raise _changed(self.name)
            self._end = self._end or size  # what is read again is what was checked, though more may have come
            file.seek(offset)
            rest = b""
            while True:
                room = self.piece if self.follow else self._end - file.tell()
                data = file.read(max(0, min(self.piece, room)))
                if not data and self.follow:
                    if os.fstat(file.fileno()).st_size < offset:
                        raise _changed(self.name)
                    here = {"offset": offset}
                    yield Batch(self.nothing(), here, here)
                    _pause(patience())
                    continue
                rest += data
                end = len(rest) if not data else reader.last_break(rest)
                if end == 0 and len(rest) > LONGEST_LINE:
                    raise UnreadableInput(
                        f"a line of {self.name} is longer than {LONGEST_LINE} bytes; check the file."
                    )
                records = rest[:end]
                if records and not records.isspace():
                    frame = reader.parse(records, columns)
                    caught_up = not self.follow or file.tell() >= os.fstat(file.fileno()).st_size
                    yield Batch(frame, {"offset": offset}, {"offset": offset + end}, caught_up)
                offset += end
                rest = rest[end:]
                if not data:
                    return

    def _begin(
        self, file: io.BufferedReader, reader: Dialect, patience: Patience
    ) -> Generator[Batch, None, int]:
        """Read the header; return where the records begin."""
        while True:
            file.seek(0)
            line = file.readline(LONGEST_LINE)
            if line.endswith(b"\n") or (line and not self.follow):
                break
            if not self.follow:
                raise EmptyInput(f"{self.name} is empty; it needs at least a header or one record.")
            yield Batch(self.nothing(), {}, {})
            _pause(patience())
        bom = len(_BOM) if line.startswith(_BOM) else 0
        if len(line) >= LONGEST_LINE:
            raise TooManyColumns(
                f"the first line of {self.name} is longer than {LONGEST_LINE} bytes; keep fewer columns."
            )
        if not line.strip() and self.format == "csv":
            raise EmptyInput(f"the first line of {self.name} is empty; it must name the columns.")
        return len(line) if reader.header(line[bom:]) else bom


def _open(path: Path, name: str) -> io.BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise SourceUnavailable(f"{name} cannot be opened: {reason}.")


def _pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(min(seconds, 0.05))


def _changed(name: str) -> InputChanged:
    return InputChanged(
        f"{name} is shorter than what has been read of it; give the input that the committed position "
        "belongs to."
    )
