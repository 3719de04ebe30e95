"""Where commits are kept: the interface of every log, and the log in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple, NoReturn

from tidegate.core.commit import HEAD_BYTES, NO_HEAD, Commit, Row, Written, row_of, secret_of
from tidegate.core.errors import Fenced, LogMismatch
from tidegate.core.turns import Turns
from tidegate.noise.entropy import fresh_bytes

FENCED = "another writer has moved the head of this log; close this session and open the log again."
DROPPED = (
    "this log in memory has dropped commits, and their charges with them, so it cannot be opened again; keep all of them "
    "with MemoryLog(), or use a file."
)
FORGOTTEN = Written(b"", b"")  # in place of releases that were dropped; the row has all the rest

Head = bytes | Commit
"""The head of a log: its hash, or in memory the commit that has it, which nobody has hashed yet."""


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
    def append(self, expected: Head, commit: Commit) -> Head:
        """Write a commit if the head is the expected one, and return the new head; else raise `Fenced`.

        When it returns, the commit is durable. When it raises anything else, it may or may not have been made.
        """

    def hashed(self, head: Head) -> bytes:
        """The hash of a head that `append` has returned."""
        assert isinstance(head, bytes)
        return head

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

    def take_over(self) -> None:  # noqa: B027  a file is locked by whoever drives its stream
        """Refuse the commits of whoever has opened the log before."""

    def close(self) -> None:  # noqa: B027  nothing to close in memory
        """Let go of files and connections."""


class MemoryLog(Log):
    """The log of a session that need not survive its process. It has the same bytes as a file.

    A commit is kept as it was given, in a form that nobody changes. It is encoded, salted and hashed when somebody looks
    at it, once: a session that nobody looks at pays nothing for it.

    Parameters
    ----------
    steps
        How many of the last steps it keeps the commits of, at least; None: all. A session that makes its own log gives a
        window: nobody else can open that log, so nobody needs more, and its memory is bounded. A log that has dropped
        commits has forgotten charges, and cannot be opened again.
    """

    durable = False

    def __init__(self, steps: int | None = None) -> None:
        super().__init__()
        self._steps = steps
        self._room = 0  # commits, before the old ones are dropped
        self._commits: dict[int, Commit] = {}  # by number, without gaps; only the last one has its secret
        self._seen: dict[int, Row] = {}  # rows that somebody has looked at, and those before them

    def hashed(self, head: Head) -> bytes:
        """The hash of a head, which may be a commit."""
        return self._row(head).head if isinstance(head, Commit) else head

    def load(self) -> Loaded | None:
        """The last commit; refused where earlier ones were dropped, and their charges with them."""
        self._turns.check_process()
        if self._commits and 0 not in self._commits:
            raise LogMismatch(DROPPED)
        while True:
            commits = list(self._commits.values())[-1:]
            if not commits:
                return None
            secret = commits[0].secret
            if secret is not None:  # else another thread has just made a commit
                row = self._row(commits[0])
                return Loaded(row, secret_of(secret), True)

    def append(self, expected: Head, commit: Commit) -> Head:
        """Compare and swap: the dictionary takes one commit per number."""
        before = self._commits.get(commit.number - 1)
        if before is not expected and (NO_HEAD if before is None else self._row(before).head) != expected:
            raise Fenced(FENCED)
        if self._commits.setdefault(commit.number, commit) is not commit:
            raise Fenced(FENCED)
        if before is not None:
            before.secret = None
        if self._steps is not None and len(self._commits) > self._room:
            self._drop(commit.last - self._steps)
        return commit

    def _drop(self, step: int) -> None:
        """Forget the commits that end at a step or before it, but for the last one."""
        commits = list(self._commits.values())[:-1]
        for commit in commits[: bisect_right(commits, step, key=_last)]:
            self._commits.pop(commit.number, None)
            self._seen.pop(commit.number - 1, None)  # its own head stands before the next one
        self._room = 2 * len(self._commits)  # so that commits are listed once

    def _row(self, commit: Commit) -> Row:
        """The row of a commit, from the last one before it that somebody has seen.

        Where commits were dropped before anybody looked, fresh random bytes stand for the head that they have led to.
        Where a secret was overwritten before anybody looked, they stand for its digest: nobody can tell, because its
        salt is gone as well.
        """
        waiting, number = [commit], commit.number
        while number not in self._seen and (before := self._commits.get(number - 1)) is not None:
            waiting.append(before)
            number -= 1
        for each in reversed(waiting):
            row = self._seen.get(each.number)
            if row is None:
                known = self._seen.get(each.number - 1)
                head = known.head if known else fresh_bytes(HEAD_BYTES) if each.number else NO_HEAD
                secret = each.secret  # once: another thread may overwrite it
                digest = fresh_bytes(HEAD_BYTES) if secret is None else sha256(secret_of(secret)).digest()
                row = self._seen.setdefault(each.number, row_of(head, each, digest))  # the first one stays
        assert row is not None
        return row

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on."""
        commits = list(self._commits.values())
        return map(self._row, commits[max(0, number - commits[0].number) :] if commits else ())

    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of commits that end at or after a step."""
        commits = list(self._commits.values())
        return map(self._row, commits[bisect_left(commits, step, key=_last) :])  # steps only grow

    def has_head(self, head: bytes) -> bool:
        """Whether a commit has this head."""
        return any(row.head == head for row in self.rows())

    def forget_releases(self, number: int) -> None:
        """Drop releases before a number."""
        with self._turns.one():
            for row in self.rows():
                if row.number < number:
                    self._seen[row.number] = row._replace(releases=None)
                    self._commits[row.number].content = FORGOTTEN


def _last(commit: Commit) -> int:
    return commit.last
