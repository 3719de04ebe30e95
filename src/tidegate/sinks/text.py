"""CSV and JSON lines, in a file that only ever grows, or on standard output."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.sink import FileSink, Position, Sink, write_out


class TextFileSink(FileSink):
    """Appends to a file.

    After a crash the file may lack the end of what was committed, or end within a line. What has to be in it is
    known, so the bytes that are there are compared with those that must be, and only the missing ones are
    written: nothing is ever rewritten under a reader, and the file is the same as without the crash.

    Parameters
    ----------
    path
        The file.
    header
        Its first bytes.
    lines
        Turns releases into bytes.
    """

    def __init__(self, path: str | Path, header: bytes, lines: Callable[[Chunk], bytes]) -> None:
        super().__init__(path)
        self._header = header
        self._lines = lines
        self._file: BinaryIO | None = None
        self._comparing = True
        self._offset = 0
        self._made = False

    def resume(self, number: int, position: Position | None) -> int:
        """Open the file at the last byte that is known to be safe, or at its beginning if it is shorter."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SinkError(
                    f"{self.path} is not a regular file, so what it has received cannot be checked; write to a file, "
                    'or to "-" for standard output.'
                )
            self._made = os.fstat(descriptor).st_size == 0
            offset = int((position or {}).get("offset", 0))
            if offset == 0 or os.fstat(descriptor).st_size < offset:
                number, self._offset = 0, 0
                self._append(self._header)
            else:
                self._offset = offset
            return number
        except OSError as error:
            raise self._not_written(error) from None

    def write(self, chunk: Chunk) -> None:
        """Append what is not there yet."""
        try:
            self._append(self._lines(chunk))
        except OSError as error:
            raise self._not_written(error) from None

    def settled(self) -> None:
        """Refuse a file that holds more than was ever released."""
        assert self._file is not None
        if self._comparing:
            self._comparing = False
            self._cut_zeros(self._offset)
            if os.fstat(self._file.fileno()).st_size > self._offset:
                raise self._goes_on() if self.vouched else self._foreign()

    def sync(self) -> Position:
        """Everything is on disk, up to this offset."""
        assert self._file is not None
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._not_written(error) from None
        return {"offset": self._offset}

    def abandon(self) -> None:
        """Take back a file with nothing but its header; a link stays, with nothing behind it."""
        if not self._made or self._file is None:
            return
        if self.path.is_symlink():
            self._file.truncate(0)
        elif self.path.is_file():
            self.path.unlink()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, data: bytes) -> None:
        """Make the file continue with these bytes."""
        file = self._file
        assert file is not None
        file.seek(self._offset)
        if self._comparing:
            there = self._read(len(data))
            if not data.startswith(there):
                same = next(index for index, byte in enumerate(there) if byte != data[index])
                self._cut_zeros(self._offset + same)
                file.seek(self._offset)
                there = self._read(len(data))
                if not data.startswith(there):
                    raise self._foreign()
        else:
            there = b""
        self._write_on(data[len(there) :])
        self._offset += len(data)

    def _write_on(self, data: bytes) -> None:
        """Write all of it here, in as many pieces as the system takes."""
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _read(self, size: int) -> bytes:
        """As many bytes as there are, up to a size."""
        assert self._file is not None
        parts = []
        while size and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _cut_zeros(self, offset: int) -> None:
        """Some file systems leave zeros at the end after a loss of power; they were never written."""
        file = self._file
        assert file is not None
        file.seek(offset)
        while part := file.read(2**16):
            if part.strip(b"\0"):
                return
        file.truncate(offset)


class StandardOutputSink(Sink):
    """Writes lines to standard output. After a crash the last ones may come again, byte for byte the same."""

    def __init__(self, header: bytes, lines: Callable[[Chunk], bytes]) -> None:
        super().__init__("standard output")
        self._header = header
        self._lines = lines

    def resume(self, number: int, position: Position | None) -> int:
        """Every start begins with the header, since it may go to another place."""
        write_out(self._header)
        return number

    def write(self, chunk: Chunk) -> None:
        """Write and flush."""
        write_out(self._lines(chunk))
