"""One process at a time drives a stream: a second one would write to the same outputs before it is fenced.

The log itself needs no lock: its head is compared and swapped. A lock that is lost costs no privacy.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tidegate.pipeline.errors import LogBusy

ENDING = ".lock"


class StreamLock:
    """A file beside a log, locked while a process drives its stream; gone afterwards.

    Parameters
    ----------
    beside
        The log's file; of a log in a database the configuration.
    needed
        Whether a folder that cannot be written is refused; it is where the log itself is there.
    """

    def __init__(self, beside: Path, *, needed: bool = True) -> None:
        self._path = beside.absolute().with_name(beside.name + ENDING)
        self._descriptor = -1
        while self._descriptor < 0:
            try:
                found = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError:
                if needed:
                    raise
                return
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(found)
                raise LogBusy(
                    f"another process drives the stream of {beside}; stop it, or wait until it has ended."
                ) from None
            if self._named(found):
                self._descriptor = found
            else:  # whoever had it before has just removed it
                os.close(found)

    def _named(self, descriptor: int) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def release(self) -> None:
        """Let others drive it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1
