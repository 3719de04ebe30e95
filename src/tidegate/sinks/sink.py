"""The shape of every sink: it takes releases in order, and says how far it can resume from after a crash."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import earlier_name

Position = dict[str, Any]


class Sink(ABC):
    """A place for releases.

    A release is committed before a sink sees it, and may be handed over again after a crash. Handing it over
    twice must leave the same bytes as handing it over once; where that cannot be (a pipe, a broker) the second
    copy is byte-identical and carries the same id.

    Parameters
    ----------
    name
        How messages and the store call it.
    path
        The file or folder that it writes, if it does.

    Attributes
    ----------
    vouched
        Whether it is known that what the path holds came from this stream's ledger.
    whole
        What to do if releases are to be archived, where it is made from all of them; empty where it only grows.
    """

    whole: ClassVar[str] = ""

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.path = path
        self.vouched = False
        self.remembers: Position = {}  # what the store keeps about it besides its position
        self._aside: Path | None = None  # what was there before this start

    def occupied(self) -> bool:
        """Whether something stands where releases will go."""
        path = self.path
        if path is None or not path.exists():
            return False
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0

    def refuse_occupied(self) -> None:  # noqa: B027  most sinks compare what is there with what must be
        """Refuse what stands there when nothing was ever released."""

    def set_aside(self) -> Path | None:
        """Give what stands there another name, so that nothing that was published is overwritten."""
        if self.path is None or not self.occupied():
            return None
        try:
            self._aside = self.path.rename(earlier_name(self.path))
        except OSError as error:
            raise SinkError(
                f"{self.path} cannot be renamed ({error.strerror}); move it away yourself."
            ) from None
        return self._aside

    def put_back(self) -> None:
        """Give what was set aside its name again, after `abandon`: the stream has not begun."""
        if (
            self._aside is not None
            and self.path is not None
            and (self.path.is_dir() or not self.path.exists())
        ):
            with suppress(OSError):  # a folder that is not empty is no folder of this start
                self._aside.rename(self.path)

    def _foreign(self) -> SinkError:
        """What stands there was not written by this stream, or not from this ledger."""
        remedy = (
            "put the newest ledger back if this one is an older copy; if it is the newest, move the file away, and it is "
            "written again from the store, or name another location in [sink]"
            if self.vouched
            else "put back the ledger that it was released from if that was lost or is an older copy, or name another "
            "location in [sink], or begin a new stream with --new-stream, whose budget adds to the one of that file"
        )
        return SinkError(f"{self.path} holds something else than this stream has released; {remedy}.")

    def _goes_on(self) -> SinkError:
        """The file begins with all releases of the ledger, and has more."""
        return SinkError(
            f"{self.path} has more than this ledger knows to be released: the ledger is an older copy that lacks "
            "the latest charges, or rows were added to the file; restore the newest ledger, or remove from the file "
            "what was added. Without the file the same steps would be released twice."
        )

    def _not_written(self, error: OSError) -> SinkError:
        """The disk takes nothing."""
        return not_written(self.path, error)

    def resume(self, number: int, position: Position | None) -> int:
        """Prepare to continue after the number that `sync` last vouched for; returns the number to continue after.

        A smaller number asks for earlier releases again, for example because a file is gone.
        """
        return number

    @abstractmethod
    def write(self, chunk: Chunk) -> None:
        """Take releases.

        Raises
        ------
        SinkUnavailable
            When it cannot now; the same releases come again later.
        SinkError
            When it cannot at all.
        """

    def settled(self) -> None:  # noqa: B027  most sinks have nothing to check
        """Everything that was committed before this start has been handed over."""

    def sync(self) -> Position:
        """Make sure that everything taken is safe; returns what `resume` needs."""
        return {}

    def finish(self, everything: Iterable[Chunk]) -> None:  # noqa: B027  most sinks write as they go
        """The stream has ended, or pauses: write what can only be written as a whole."""

    def abandon(self) -> None:  # noqa: B027  most sinks have made nothing yet
        """Take back what `resume` has made: the stream has not begun."""

    def close(self) -> None:  # noqa: B027  most sinks hold nothing open
        """Let go of files and connections."""


class FileSink(Sink):
    """A place that is a file, or a folder of them."""

    path: Path

    def __init__(self, path: str | Path, kind: str = "file") -> None:
        super().__init__(f"{kind} {Path(path).resolve()}", Path(path))


def not_written(path: Path | None, error: Exception) -> SinkError:
    """A refusal when the disk takes nothing."""
    reason = getattr(error, "strerror", None)
    if not reason:  # a library's own words may be long, and only the system's reason is worth a sentence
        found = re.search(r"No space left on device|File too large|Permission denied|quota", str(error))
        reason = found[0] if found else type(error).__name__
    return SinkError(
        f"{path} cannot be written ({reason}); nothing is lost: what was committed is sent at the next start."
    )


def write_out(data: bytes) -> None:
    """Write to standard output, and flush."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # a replaced standard output that takes text only
        sys.stdout.write(data.decode())
    else:
        stream.write(data)
    sys.stdout.flush()
