"""Text in whole lines, parsed a piece at a time: CSV and JSON lines, from files, pipes or messages."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
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
from tidegate.ingest.sources.file_positions import known_again, moved, place, same_file
from tidegate.ingest.sources.rotation import PACKERS, Rotation
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience

PIECE = 16 * 2**20  # bytes that are parsed at once
LONGEST_LINE = 64 * 2**20
MOST_COLUMNS = 100_000
SEPARATORS = (",", ";", "\t", "|")
_BOM = b"\xef\xbb\xbf"
# Polars unpacks whatever begins like gzip, zlib or zstd, to any size, and such a beginning may also be text
PACKED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")


def too_many_columns(name: str) -> TooManyColumns:
    """The refusal of an input that could fill the memory with names."""
    return TooManyColumns(f"{name} has more than {MOST_COLUMNS} columns; keep those that are needed.")


def too_long_a_header(name: str) -> TooManyColumns:
    """The same where not even the first line ends."""
    return TooManyColumns(
        f"the first line of {name} is longer than {LONGEST_LINE} bytes; keep fewer columns."
    )


def as_it_is(piece: bytes, width: int, separator: str) -> dict[str, Any]:
    """Arguments by which Polars reads lines of CSV as text, the first like all others.

    Behind a header of our own it looks for no archive to unpack, and for no byte-order mark to leave out.
    """
    names = [f"column_{index + 1}" for index in range(width)]
    return {
        "source": io.BytesIO(separator.join(names).encode() + b"\n" + piece),
        "has_header": True,
        "separator": separator,
        "schema": dict.fromkeys(names, pl.String),
    }


class Dialect(ABC):
    """How lines become records.

    Privacy
    -------
    What a line becomes depends on that line alone. Otherwise whoever writes one record could make the records of
    others vanish: a quote that is never closed swallows all that follows.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.columns = tuple(columns)

    @abstractmethod
    def header(self, line: bytes) -> bool:
        """Look at the first line; say whether it is a header and no record."""

    @abstractmethod
    def parse(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns; one that cannot be read refuses all."""

    @abstractmethod
    def parse_each(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns, each for itself; those that cannot be read are left out."""

    def _refused(self, piece: bytes, what: str) -> UnreadableInput | NotUtf8:
        try:
            piece.decode()
        except UnicodeDecodeError:
            return NotUtf8(
                f"{self.name} is not UTF-8 text; convert it first, for example with iconv -f ISO-8859-1 -t UTF-8."
            )
        return UnreadableInput(
            f"{self.name} cannot be read as {what}; check it with another tool and correct it."
        )


class CsvDialect(Dialect):
    """Comma-separated values with a header; every field is text until ingest reads it.

    A quoted field ends in the line in which it begins.
    """

    def __init__(self, name: str, columns: Sequence[str], separator: str = ",") -> None:
        super().__init__(name, columns)
        if not isinstance(separator, str) or len(separator.encode()) != 1 or separator in '"\n\r':
            raise InvalidParameter("separator", separator, "one character", 'write for example separator=";"')
        self.separator = separator
        self.names: list[str] = []
        one = re.escape(separator.encode())
        field = rb'(?:"(?:[^"]|"")*+"|[^"' + one + rb"]*+)"
        self._line = re.compile(field + rb"(?:" + one + field + rb")*+\r?")

    def header(self, line: bytes) -> bool:
        """Read the names of the columns."""
        if line.count(self.separator.encode()) >= MOST_COLUMNS:
            raise too_many_columns(self.name)
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
        self._check_quotes(piece)
        wanted = [(self.names.index(name), name) for name in columns]
        order = sorted(wanted)

        def read() -> pl.DataFrame:
            return pl.read_csv(
                **as_it_is(piece, len(self.names), self.separator),
                columns=[index for index, _ in order],
                raise_if_empty=False,
            )

        frame = attempt(read, lambda: self._refused(piece, "CSV"))
        frame.columns = [name for _, name in order]
        return frame.select(columns)

    def parse_each(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Lines with a quote in the middle of a field, or too many fields, are left out like those that are no text."""
        lines = (self._complete(line) for line in piece.split(b"\n"))
        return self.parse(b"\n".join(line for line in lines if line), columns)

    def _complete(self, line: bytes) -> bytes:
        """A line with all its fields, those that it lacks as empty ones; nothing if it cannot be read."""
        # of the first line of a piece one would be left out, of others not
        while line.startswith(codecs.BOM_UTF8):
            line = line.removeprefix(codecs.BOM_UTF8)
        outside = line
        if b'"' in line:
            if not self._line.fullmatch(line):
                return b""
            outside = b"".join(line.split(b'"')[::2])
        separator = self.separator.encode()
        lacking = len(self.names) - 1 - outside.count(separator)
        if lacking < 0 or not line or not _is_text(line):
            return b""
        return line.rstrip(b"\r") + separator * lacking if lacking else line

    def _check_quotes(self, piece: bytes) -> None:
        """Refuse a line with an odd number of quotes; after an even number its end is the end of a record."""
        if b'"' not in piece:
            return
        content = np.frombuffer(piece, dtype=np.uint8)
        quotes, ends = np.flatnonzero(content == ord('"')), np.flatnonzero(content == ord("\n"))
        if len(quotes) % 2 or (np.searchsorted(quotes, ends) % 2).any():
            raise UnreadableInput(
                f"a line of {self.name} opens a quote and does not close it; a field must not hold a line break: correct "
                "it, or write the file as Parquet or JSON lines."
            )


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
            raise too_many_columns(self.name)
        return False

    def parse(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Whole lines as text columns."""
        schema = dict.fromkeys(columns, pl.String)
        if piece.startswith(PACKED):
            raise self._refused(piece, "JSON lines")
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

    def parse_each(self, piece: bytes, columns: Sequence[str]) -> pl.DataFrame:
        """Lines that are no object are left out."""
        return self.table([record for line in piece.split(b"\n") for record in records(line)], columns)

    @staticmethod
    def table(found: Sequence[dict[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
        """Objects as text columns; whatever is neither text, number nor truth value is missing."""
        cells = {name: _texts([record.get(name) for record in found]) for name in columns}
        return pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String))


def records(content: bytes) -> list[dict[str, Any]]:
    """The objects of a line or a message: one, those of an array, or none if it cannot be read."""
    try:
        found = _decoded(content.decode())
    except (ValueError, RecursionError):
        return []
    if type(found) is dict:
        return [found]
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def message_records(payload: bytes) -> list[dict[str, Any]]:
    """The objects of a message: one, those of an array, or one a line."""
    found = records(payload)
    if not found and b"\n" in payload.strip():
        return [record for line in payload.split(b"\n") for record in records(line)]
    return found


def _number(text: str) -> str:
    """A number with a fraction or an exponent as the reader of whole files writes it."""
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < 2**63 else repr(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN and infinities are no JSON


_decoder = json.JSONDecoder(parse_int=str, parse_float=_number, parse_constant=_refuse_constant)


def _decoded(text: str) -> Any:
    """What JSON says; blanks are looked for only where there are some, as they take a fifth of the time."""
    try:
        found, end = _decoder.scan_once(text, 0)  # type: ignore[attr-defined]
    except StopIteration:  # it begins with none of JSON's signs
        end = -1
    return found if end == len(text) else _decoder.decode(text)


def _texts(values: list[Any]) -> list[str | None]:
    """Values as text, each for itself; all at once where all of them are text that everybody can read."""
    if set(map(type, values)) == {str} and _encodes("".join(values)):
        return values
    return [_text_of(value) for value in values]


def _text_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) and _encodes(value) else None


def _encodes(text: str) -> bool:
    """Whether text has no lone surrogates, which JSON can write and nothing else can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(line: bytes) -> bool:
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def separator_of(line: bytes) -> str:
    """What separates the names of a header: the most frequent of comma, semicolon, tab and bar."""
    return max(SEPARATORS, key=lambda one: line.count(one.encode()))


def dialect(format: str, name: str, columns: Sequence[str], separator: str = ",") -> Dialect:
    """The dialect of a format."""
    if format == "jsonl":
        return JsonDialect(name, columns)
    return CsvDialect(name, columns, separator)


class TextSource(EventSource):
    """A CSV or JSON lines file; with `follow`, one that grows.

    Positions are byte offsets of whole lines, with what shows which file they belong to. A followed file may be
    rotated: renamed, with a new one under its name, or emptied. What its writer had still put into the old file is
    read before the new one is begun, at a start as well if the old one is still in the same folder; files that had
    the name in between and were renamed as well (``.1``, ``-20260301``) are read in the order of their last changes,
    also where the old one is gone.

    Parameters
    ----------
    path
        The file.
    columns
        The needed columns.
    format, separator
        "csv", with this separator, or "jsonl".
    follow
        Whether the file grows. Then it is lenient.
    lenient
        Whether a line that cannot be read is left out, or refuses the input.
    """

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str],
        *,
        format: str = "csv",
        separator: str = ",",
        follow: bool = False,
        lenient: bool = False,
        piece: int = PIECE,
        name: str | None = None,
    ) -> None:
        self.path = Path(path)
        super().__init__(name or repr(self.path.name), columns)
        self.format = format
        self.separator = separator
        self.follow = follow
        self.lenient = lenient or follow
        self.piece = piece
        self._end = 0
        self.dialect = self._dialect()  # refuses wrong parameters at once

    def _dialect(self) -> Dialect:
        return dialect(self.format, self.name, self.columns, self.separator)

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read pieces of whole lines."""
        columns = self.columns if columns is None else columns
        if self.follow:
            yield from self._followed(position or None, columns, patience)
        with _open(self.path, self.name) as file:
            yield from self._finite(file, position or None, columns)

    # a finite file ------------------------------------------------------------------------------------------

    def _finite(
        self, file: io.BufferedReader, position: Position | None, columns: Sequence[str]
    ) -> Iterator[EventBatch]:
        reader = self.dialect = self._dialect()
        line = file.readline(LONGEST_LINE)
        if not line:
            raise EmptyInput(f"{self.name} is empty; it needs at least a header or one record.")
        offset = self._begin(line, reader)
        if position is not None:
            if not known_again(file, position):
                raise _changed(self.name)
            offset = position["offset"]
        # what is read again is what was checked, though more may have come
        self._end = self._end or os.fstat(file.fileno()).st_size
        file.seek(offset)
        before, rest, data = place(file, offset), b"", b"?"
        while data:
            data = file.read(max(0, min(self.piece, self._end - file.tell())))
            rest += data
            end = rest.rfind(b"\n") + 1 if data else len(rest)
            if end == 0 and len(rest) > LONGEST_LINE:
                raise UnreadableInput(
                    f"a line of {self.name} is longer than {LONGEST_LINE} bytes; check the file."
                )
            whole = rest[:end]
            offset, rest = offset + end, rest[end:]
            if whole and not whole.isspace():
                after = place(file, offset)
                yield EventBatch(self._parse(reader, whole, columns), before, after)
                before = after

    def _begin(self, line: bytes, reader: Dialect) -> int:
        """Read the first line; return where the records begin."""
        bom = len(_BOM) if line.startswith(_BOM) else 0
        if len(line) >= LONGEST_LINE:
            raise too_long_a_header(self.name)
        if not line.strip() and self.format == "csv":
            raise EmptyInput(f"the first line of {self.name} is empty; it must name the columns.")
        if self.lenient and self.format == "jsonl":  # a record like the others
            return bom
        return len(line) if reader.header(line[bom:]) else bom

    def _parse(self, reader: Dialect, lines: bytes, columns: Sequence[str]) -> pl.DataFrame:
        return reader.parse_each(lines, columns) if self.lenient else reader.parse(lines, columns)

    # a file that grows --------------------------------------------------------------------------------------

    def _followed(
        self, position: Position | None, columns: Sequence[str], patience: Patience
    ) -> Iterator[EventBatch]:
        """Read the file of a position, those that were rotated after it, and then the present one."""
        rotation = Rotation(self.path, position, header=self.format == "csv")
        file, known = self._first_file(position, rotation)
        while True:
            with file:
                here = yield from self._follow(file, known, rotation, columns, patience)
                copy = None if known_again(file, here) else rotation.copy_of(here)
                if copy is None:
                    rotation.finish(file, here)
            file, known = (self._next(rotation), None) if copy is None else (_open(copy, self.name), here)

    def _first_file(
        self, position: Position | None, rotation: Rotation
    ) -> tuple[io.BufferedReader, Position | None]:
        """The file to begin with, and where in it: its beginning, or the position."""
        if position is None:
            file = _open(self.path, self.name)
            rotation.skip(file)  # what was rotated before the stream began is none of its own
            return file, None
        own = self._file_of(position, rotation)
        if "finished" not in position:  # an earlier version did not tell which files it had read
            rotation.skip(own, until=None if own is None else os.fstat(own.fileno()).st_mtime_ns)
        if own is not None:
            return own, position
        if position.get("head", True) and not rotation.packed(position):
            self.tell(
                f"the file that was read last as {self.name} is gone or was emptied; what was written to it after that "
                "may be lost, so keep rotated files for longer."
            )
        return self._next(rotation), None

    def _file_of(self, position: Position, rotation: Rotation) -> io.BufferedReader | None:
        """The file that a position belongs to, under whatever name; None if it is gone, or nothing of it was read."""
        if not position.get("head", True):
            return None
        for path in (moved(self.path, position), self.path, rotation.copy_of(position)):
            if path is None or not path.exists():
                continue
            file = _open(path, self.name)
            if known_again(file, position):
                return file
            file.close()
        return None

    def _next(self, rotation: Rotation) -> io.BufferedReader:
        """The first of the files that were not read; the present one comes last."""
        while True:
            # opened before it is looked for others: it may be renamed at any moment
            present = _open_if_there(self.path)
            unread = rotation.unread(present)
            if not unread:
                return present or _open(self.path, self.name)
            if present is not None:
                present.close()
            status, path = unread[0]
            file = _open_if_there(self._readable(path))
            if file is not None and os.path.samestat(os.fstat(file.fileno()), status):
                return file
            if file is not None:
                file.close()  # another one got its name meanwhile

    def _is_last(self, file: io.BufferedReader, rotation: Rotation) -> bool:
        """Whether no other file is to be read after one, as far as there are any."""
        if same_file(self.path, file):
            return True
        try:
            empty = self.path.stat().st_size == 0
        except OSError:
            empty = True
        return empty and not rotation.unread(file)

    def _readable(self, path: Path) -> Path:
        """A file that was rotated before it was read, unless it has been packed since."""
        if path.suffix.lower() in PACKERS:
            raise SourceUnavailable(
                f"{path.name!r} was packed before it was read as {self.name}; unpack it beside the others, "
                "with its time, or move it away to continue without it."
            )
        return path

    def _follow(
        self,
        file: io.BufferedReader,
        position: Position | None,
        rotation: Rotation,
        columns: Sequence[str],
        patience: Patience,
    ) -> Generator[EventBatch, None, Position]:
        """Read a file until another one is under its name, or it starts again; returns where it was left."""
        reader = self.dialect = self._dialect()
        line, whole_line = yield from self._first_line(file, rotation, patience)
        if not whole_line:
            return rotation.place(file, len(line), len(line))
        begin = self._begin(line, reader)
        here = position or rotation.place(file, begin, begin)
        offset: int = here["offset"]
        file.seek(offset)
        rest = b""
        while known_again(file, here):
            current = self._is_last(file, rotation)
            data = file.read(self.piece)
            rest += data
            end = rest.rfind(b"\n") + 1
            if not data and not current:
                end = len(rest)  # its writer has left it
            elif end == 0 and len(rest) > LONGEST_LINE:
                end, rest = len(rest), b"\n" * len(rest)  # left out
            whole, rest, offset = rest[:end], rest[end:], offset + end
            before, here = here, rotation.place(file, offset, begin) if end else here
            if whole and not whole.isspace():
                caught_up = current and file.tell() >= os.fstat(file.fileno()).st_size
                yield EventBatch(self._parse(reader, whole, columns), before, here, caught_up)
            if not data and not current:
                return here
            if not data:
                yield EventBatch(self.nothing(), here, here)
                _pause(patience())
        return here

    def _first_line(
        self, file: io.BufferedReader, rotation: Rotation, patience: Patience
    ) -> Generator[EventBatch, None, tuple[bytes, bool]]:
        """Wait for the first line, and say whether it came before another file took the place of this one."""
        while True:
            current = self._is_last(file, rotation)
            file.seek(0)
            line = file.readline(LONGEST_LINE)
            if line.endswith(b"\n") or len(line) >= LONGEST_LINE:
                return line, True
            if not current:
                return line, False
            here = rotation.place(file, 0, 0)
            yield EventBatch(self.nothing(), here, here)
            _pause(patience())


def _open(path: Path, name: str) -> io.BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise SourceUnavailable(
        f"{name} cannot be opened: {reason}; put it there, make it readable, or name another in location of [source]."
    )


def _open_if_there(path: Path) -> io.BufferedReader | None:
    """An open file; None where there is none."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError:
        return _open(path, repr(path.name))  # refuses it in words


def _pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(min(seconds, 0.05))


def _changed(name: str) -> InputChanged:
    return InputChanged(
        f"{name} is shorter than what has been read of it, or another file; give the input that the committed "
        "position belongs to."
    )
