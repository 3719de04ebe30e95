"""Standard input."""

from __future__ import annotations

import os
import select
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from tidegate.ingest.errors import EmptyInput
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import LONGEST_LINE, PIECE, TextSource, dialect, too_long_a_header

NAME = "standard input"


class PipeSource(EventSource):
    """Standard input as CSV or JSON lines.

    Until its end: it is copied to a nameless temporary file first, because nothing may be released before all of it
    has arrived, and a run that starts again is given the same input again. With `follow` lines are taken as
    they come and cannot be read twice: a durable stream stores what belongs to open steps.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        format: str = "csv",
        separator: str = ",",
        follow: bool = False,
        descriptor: int | None = None,
    ) -> None:
        super().__init__(NAME, columns)
        self.format = format
        self.separator = separator
        self.follow = self.lenient = follow
        self.repeatable = not follow
        self.descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._copy: IO[bytes] | None = None

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read pieces of whole lines."""
        if self.follow:
            yield from self._live(patience)
            return
        if self._copy is None:
            self._copy = tempfile.TemporaryFile(prefix="tidegate-")  # noqa: SIM115  closed by close()
            with os.fdopen(os.dup(self.descriptor), "rb") as stream:
                shutil.copyfileobj(stream, self._copy, PIECE)
            self._copy.flush()
        path = f"/dev/fd/{self._copy.fileno()}"
        file = TextSource(
            path,
            self.columns,
            format=self.format,
            separator=self.separator,
            name=NAME,
        )
        yield from file.batches(position, columns=columns)

    def _live(self, patience: Patience) -> Iterator[EventBatch]:
        reader = dialect(self.format, NAME, self.columns, self.separator)
        rest, begun, ended = b"", False, False
        while not ended:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, patience()))
            if ready:
                data = os.read(self.descriptor, 2**20)
                ended = not data
                rest += data
            if not begun and (b"\n" in rest or (ended and rest)):
                line, _, after = rest.partition(b"\n")
                rest = after if self.format == "csv" and reader.header(line) else rest
                begun = True
            if not begun and len(rest) > LONGEST_LINE:
                raise too_long_a_header(NAME)
            end = (len(rest) if ended else rest.rfind(b"\n") + 1) if begun else 0
            frame = reader.parse_each(rest[:end], self.columns) if rest[:end].strip() else self.nothing()
            rest = rest[end:] if len(rest) - end <= LONGEST_LINE else b""
            more = bool(ready) and not ended and bool(select.select([self.descriptor], [], [], 0)[0])
            yield EventBatch(frame, {}, {}, caught_up=not more)
        if not begun:
            raise EmptyInput(f"{NAME} is empty; it needs at least a header or one record.")

    def close(self) -> None:
        """Let go of the copy, which has no name and vanishes."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
