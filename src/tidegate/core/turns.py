"""Who may write: one process, one of its threads at a time, and nothing that interrupts it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.core.errors import Fenced, SessionClosed

FORKED = "this session or log belongs to another process; open the log in this one."
REENTERED = "a push is under way in this thread; a signal handler or a finaliser must not push."


class Turns:
    """The turns of the writers of one object, in the process that made it."""

    __slots__ = ("_process", "busy", "lock")

    def __init__(self) -> None:
        self._process = os.getpid()
        self.lock = threading.RLock()  # a handler gets it as well, and is refused
        self.busy = False

    @property
    def forked(self) -> bool:
        """Whether this is another process: what it has in memory is a copy."""
        return self._process != os.getpid()

    def check_process(self) -> None:
        """Refuse a process that was forked."""
        if self._process != os.getpid():
            raise Fenced(FORKED)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for the other threads; refuse a fork, and what interrupts a turn of its own thread."""
        self.check_process()  # before the lock, which a fork may hold for ever
        with self.lock:
            if self.busy:
                raise SessionClosed(REENTERED)
            try:
                self.busy = True
                yield
            finally:
                self.busy = False
