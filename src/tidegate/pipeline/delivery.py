"""Sinks and how far each has got.

States of a sink: it takes releases (`waits` is False), or it cannot be reached and is tried again (`waits` is True). It
never misses a release: `sent` is the number of the last one that it took, `confirmed` of the last one that it has for
sure, and the next start continues after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.pipeline.receipts import Receipt
from tidegate.sinks import Sink
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError, SinkUnavailable

ReadAfter = Callable[[int], Iterator[Chunk]]


class Observer(Protocol):
    """Who watches a query: a live view, a status file."""

    def released(self, chunk: Chunk) -> None:
        """Releases were committed and given to the sinks."""

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached; "" when it can again."""


class NullObserver:
    """Watches nothing."""

    def released(self, chunk: Chunk) -> None:
        """Nothing."""

    def waiting(self, sentence: str) -> None:
        """Nothing."""


@dataclass
class SinkState:
    """A sink of one query.

    Parameters
    ----------
    sink
        Where releases go.
    receipt
        What remembers the log; None for answers, which are made from releases.
    """

    sink: Sink
    receipt: Receipt | None = None
    sent: int = 0
    confirmed: int = 0
    waits: bool = False

    def send(self, chunk: Chunk, read_after: ReadAfter, observer: Observer) -> None:
        """Give it committed releases, and before them whatever it lacks.

        Parameters
        ----------
        chunk
            The newest releases; without any, only what it lacks is sent.
        read_after
            Reads committed releases after a number, in order.
        observer
            Who hears that it cannot be reached.
        """
        try:
            if len(chunk) and self.sent == chunk.first - 1:
                self.sink.write(chunk)
                self.sent = chunk.last
            elif self.sent < chunk.last:
                for part in read_after(self.sent):
                    self.sink.write(part)
                    self.sent = part.last
        except SinkUnavailable as error:
            if not self.waits:
                self.waits = True
                observer.waiting(str(error))
        else:
            if self.waits:
                self.waits = False
                observer.waiting("")

    def confirm(self) -> tuple[int, dict[str, Any]] | None:
        """Let it make sure of what it took: the number, and what it needs to resume after it; None if nothing is new."""
        if self.sent <= self.confirmed or self.waits:
            return None
        position = {**self.sink.sync(), **self.sink.remembers}
        if self.receipt is not None:
            self.receipt.sync()
        self.confirmed = self.sent
        return self.sent, position

    def archive_previous_output(self) -> None:
        """Rename what an earlier stream has left, and remember that stream."""
        self.sink.set_aside()
        if self.receipt is not None:
            self.receipt.begin_new_stream()

    def on_rollback(self) -> None:
        """Undo all of that: nothing was released."""
        self.sink.abandon()
        with suppress(SinkError):  # why the start was refused matters more
            self.sink.put_back()
        if self.receipt is not None:
            self.receipt.on_rollback()

    def close(self) -> None:
        """Close files and connections."""
        self.sink.close()
        if self.receipt is not None:
            self.receipt.close()
