"""What stands at the end of a stream: sinks and how far each has got, and somebody who looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.runtime.chunks import Chunk
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


@dataclass
class Outlet:
    """A sink and how far it has got."""

    sink: Sink
    sent: int  # the number of the last release it took
    recorded: int  # up to here the store knows that it has everything
    safe: tuple[int, dict[str, Any]] | None = None  # what the next commit may record
    waits: bool = False
