"""What stands at the end of a stream: sinks and how far each has got, and somebody who looks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.runtime.chunks import Chunk
from tidegate.runtime.errors import SinkError
from tidegate.runtime.receipts import Receipt
from tidegate.runtime.sinks import Sink


class Watcher(Protocol):
    """Somebody who looks at a stream: a live view, or nobody."""

    def released(self, chunk: Chunk) -> None:
        """Releases were committed and handed to the sinks."""

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached; "" when it can again."""


class Nobody:
    """Looks at nothing."""

    def released(self, chunk: Chunk) -> None:
        """Nothing."""

    def waiting(self, sentence: str) -> None:
        """Nothing."""


class Readers(Sink):
    """Those who read the store itself, through a service: they get releases as soon as these are committed."""

    def __init__(self) -> None:
        super().__init__("the service's readers")

    def write(self, chunk: Chunk) -> None:
        """Nothing to hand over; the receipt knows an instant after the store does."""


@dataclass
class Outlet:
    """A sink and how far it has got."""

    sink: Sink
    sent: int  # the number of the last release it took
    recorded: int  # up to here the store knows that it has everything
    safe: tuple[int, dict[str, Any]] | None = None  # what the next commit may record
    waits: bool = False
    receipt: Receipt | None = None

    def begin_anew(self) -> None:
        """Set aside what an earlier stream has left, and remember that stream."""
        self.sink.set_aside()
        if self.receipt is not None:
            self.receipt.begin_anew()

    def take_back(self) -> None:
        """Let everything be as it was before this start: nothing was released."""
        self.sink.abandon()
        with suppress(SinkError):  # why the start was refused matters more
            self.sink.put_back()
        if self.receipt is not None:
            self.receipt.take_back()
