"""One row a step: a file, or standard output, that is written when a finite input has ended.

A mechanism that learns more about past steps releases them again. Whoever publishes a finished file wants the last
word on each step, and nothing else; the store keeps all of them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from tidegate.sinks.chunks import Chunk, joined, latest
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import replacing, unused_name
from tidegate.sinks.sink import FileSink, Position, Sink, write_out

Encode = Callable[[Chunk], bytes]
WHOLE = 'name another location with revisions = "all" in [sink], so that rows are only added'


class NewestFileSink(FileSink):
    """A file with the newest release of every step, replaced as a whole at the end of the input.

    What is replaced must be this stream's own: the file that the store remembers by its digest, or, after a crash
    between the two, the one that the committed releases make.

    Parameters
    ----------
    path
        The file.
    encode
        Turns releases into the whole content of the file.
    """

    whole = WHOLE

    def __init__(self, path: str | Path, encode: Encode) -> None:
        super().__init__(path)
        self._encode = encode
        self._digest = ""
        self._committed: list[Chunk] = []  # what was released before this start, until it has been compared
        self._comparing = True

    def refuse_occupied(self) -> None:
        """Refuse a file that is there before this stream has released anything."""
        if self.occupied():
            raise self._foreign()

    def resume(self, number: int, position: Position | None) -> int:
        """Ask for everything, to compare the file with it."""
        self._digest = str((position or {}).get("digest", ""))
        if self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode):
            raise SinkError(
                f"{self.path} is not a regular file, so it cannot be replaced as a whole; write to a file, or to "
                '"-" for standard output.'
            )
        fresh = unused_name(self.path)  # whether it can be written must be known before anything is charged
        try:
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
            fresh.unlink()
        except OSError as error:
            raise self._not_written(error) from None
        return 0

    def write(self, chunk: Chunk) -> None:
        """Nothing yet: the store keeps the releases."""
        if self._comparing:
            self._committed.append(chunk)

    def settled(self) -> None:
        """Refuse a file that this stream has not written."""
        if not self._comparing:
            return
        self._comparing = False
        chunks, self._committed = self._committed, []
        try:
            there = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._not_written(error) from None
        if there and _digest(there) != self._digest and (not chunks or there != self._content(chunks)):
            raise self._foreign()

    def finish(self, everything: Iterable[Chunk]) -> None:
        """Write the newest release of every step; the file appears under its name when it is complete."""
        content = self._content(everything)
        digest = _digest(content)
        try:
            if not (self.path.exists() and _digest(self.path.read_bytes()) == digest):
                with replacing(self.path) as file:
                    file.write(content)
        except OSError as error:
            raise self._not_written(error) from None
        self._digest = digest

    def sync(self) -> Position:
        """What the file holds."""
        return {"digest": self._digest}

    def _content(self, chunks: Iterable[Chunk]) -> bytes:
        return self._encode(latest(joined(chunks, 0)))


class NewestOutputSink(Sink):
    """Standard output with the newest release of every step of which something is new since the last start."""

    whole = WHOLE

    def __init__(self, encode: Encode) -> None:
        super().__init__("standard output")
        self._encode = encode
        self._after = 0

    def resume(self, number: int, position: Position | None) -> int:
        """Remember what was written before."""
        self._after = number
        return number

    def write(self, chunk: Chunk) -> None:
        """Nothing yet: the store keeps the releases."""

    def finish(self, everything: Iterable[Chunk]) -> None:
        """Write one row a step."""
        fresh = [chunk.after(self._after) for chunk in everything if chunk.last > self._after]
        write_out(self._encode(latest(joined(fresh, 0))))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
