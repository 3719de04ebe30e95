"""Where commits are kept: the interface of every log, and the log in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tidegate.core.commit import NO_HEAD, Commit, Row, row_of
from tidegate.core.errors import Fenced
from tidegate.core.turns import Turns

FENCED = "another writer has moved the head of this log; close this session and open the log again."


class Loaded(NamedTuple):
    """Where a log stands.

    Attributes
    ----------
    row
        The last commit's row.
    secret
        Its secret; None in a backup that was made without it.
    here
        Whether it was written in this very file: in a copy, noise to come must not be drawn from it.
    """

    row: Row
    secret: bytes | None
    here: bool


class Log(ABC):
    """An append-only record with one writer at a time: `append` compares the head, and swaps it, in one transaction."""

    durable: bool
    """Whether a commit survives the process."""

    def __init__(self) -> None:
        self._turns = Turns()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a log has one writer and cannot be copied or pickled; open it instead.")

    @abstractmethod
    def load(self) -> Loaded | None:
        """The last commit; None where there is none."""

    @abstractmethod
    def append(self, expected: bytes, commit: Commit) -> bytes:
        """Write a commit if the head is the expected one, and return the new head; else raise `Fenced`.

        When it returns, the commit is durable. When it raises anything else, it may or may not have been made.
        """

    @abstractmethod
    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, in order."""

    @abstractmethod
    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of all commits whose last step is not before a step, in order; found by an index."""

    @abstractmethod
    def has_head(self, head: bytes) -> bool:
        """Whether one of the commits has this head; found by an index."""

    @abstractmethod
    def forget_releases(self, number: int) -> None:
        """Drop the releases of all commits before a number: every sink has confirmed them."""

    def close(self) -> None:  # noqa: B027  nothing to close in memory
        """Let go of files and connections."""


class MemoryLog(Log):
    """The log of a session that need not survive its process. It stores the same bytes as a file.

    Parameters
    ----------
    steps
        How many of the last steps it keeps the commits of, at least; None: all. A session that makes its own log gives a
        window: nobody else can open that log, so nobody needs more, and its memory is bounded.
    """

    durable = False

    def __init__(self, steps: int | None = None) -> None:
        super().__init__()
        self._steps = steps
        self._room = 0  # rows, before the old ones are dropped
        self._rows: list[Row] = []  # without gaps
        self._secrets: dict[
            bytes, bytes
        ] = {}  # by head: of the last commit, and for a moment of the next one

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return self._rows[-1].head if self._rows else NO_HEAD

    def load(self) -> Loaded | None:
        """The last commit."""
        with self._turns.one():
            return Loaded(self._rows[-1], self._secrets[self.head], True) if self._rows else None

    def append(self, expected: bytes, commit: Commit) -> bytes:
        """Compare and swap."""
        with self._turns.one():
            if self.head != expected:
                raise Fenced(FENCED)
            row = row_of(expected, commit)
            self._secrets[row.head] = commit.secret
            self._rows.append(row)  # the commit: what interrupts comes before it or after it
            self._secrets = {row.head: commit.secret}
            if self._steps is not None and len(self._rows) > self._room:
                self._rows = list(self.rows_since(row.last - self._steps + 1))
                self._room = 2 * len(self._rows)  # so that rows are copied once
            return row.head

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on."""
        rows = self._rows
        return iter(rows[max(0, number - rows[0].number) :] if rows else ())

    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of commits that end at or after a step."""
        rows = self._rows
        return iter(rows[bisect_left(rows, step, key=lambda row: row.last) :])  # steps only grow

    def has_head(self, head: bytes) -> bool:
        """Whether a commit has this head."""
        return any(row.head == head for row in self._rows)

    def forget_releases(self, number: int) -> None:
        """Drop releases before a number."""
        with self._turns.one():
            self._rows = [row._replace(releases=None) if row.number < number else row for row in self._rows]
