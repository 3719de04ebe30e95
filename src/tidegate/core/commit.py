"""One entry of the log: charges and releases in the open, state and position behind a salted commitment.

head = SHA-256(version ‖ previous head ‖ number, kind, first and last step ‖ digest of charges ‖ digest of releases ‖
digest of salt, state and position). The salt is 32 fresh bytes per commit. Without it the digest of a state with few
possible values, say a radius, could be found by trying them all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple, Protocol

from tidegate.core.errors import LogDamaged
from tidegate.noise.entropy import fresh_bytes

VERSION = b"tidegate log 1\n"
HEAD_BYTES = 32
NO_HEAD = bytes(HEAD_BYTES)
SALT_BYTES = 32
NUMBERS = struct.Struct("<qqqq")
LENGTH = struct.Struct("<q")
POSITION_BLOCK = 256  # a position is stored in so many bytes, or a multiple

# kinds of commits
OPENED, PUSHED, HALTED, RESTARTED, FINISHED, EVENT, AMENDED = 0, 1, 2, 3, 4, 5, 6


class Written(NamedTuple):
    """The public part of a commit, as bytes.

    Attributes
    ----------
    charges, releases
        Encoded by `arrays.encode`. A restart has the last silent step of each query in place of charges, and a
        description has JSON.
    """

    charges: bytes
    releases: bytes

    def encoded(self) -> Written:
        """Itself."""
        return self


class Content(Protocol):
    """The public part of a commit, in any form. Nobody changes it after the commit."""

    def encoded(self) -> Written:
        """The same as bytes."""


class Secret(Protocol):
    """The states of all queries, in any form that nobody changes any more."""

    def encoded_state(self) -> bytes:
        """The same as bytes."""


class Commit:
    """What one transaction writes.

    Attributes
    ----------
    number, kind
        Its place in the log, and why it was written.
    first, last
        The steps that it charges; last = first − 1 where there are none.
    content
        Charges and releases. A log in memory keeps them as they are, and makes bytes of them when somebody looks.
    secret
        Position and state, and what `secret_of` has made of them; None: a later commit has overwritten it. The state is
        empty behind a halt and at the end of a stream: nothing goes on from there.
    """

    __slots__ = ("content", "first", "kind", "last", "number", "secret")

    def __init__(
        self, number: int, kind: int, first: int, last: int, content: Content, position: bytes, state: Secret
    ) -> None:
        self.number, self.kind, self.first, self.last, self.content = number, kind, first, last, content
        self.secret: dict[str, Any] | None = {"position": position, "state": state}


class Row(NamedTuple):
    """What stays of a commit for ever, and may be published; `releases` are there until every sink has confirmed."""

    number: int
    kind: int
    first: int
    last: int
    charges: bytes
    releases: bytes | None
    releases_digest: bytes
    secret_digest: bytes
    head: bytes


def secret_of(secret: dict[str, Any]) -> bytes:
    """Salt, position and state of a commit: made once, also where two threads, or a handler, ask for it."""
    found: bytes | None = secret.get("sealed")
    if found is None:
        made = sealed(fresh_bytes(SALT_BYTES), secret["position"], secret["state"].encoded_state())
        found = secret.setdefault("sealed", made)
    return found


def row_and_secret(previous: bytes, commit: Commit) -> tuple[Row, bytes]:
    """The row of a commit behind a head, and its secret."""
    assert commit.secret is not None
    secret = secret_of(commit.secret)
    return row_of(previous, commit, sha256(secret).digest()), secret


def row_of(previous: bytes, commit: Commit, secret: bytes) -> Row:
    """The row of a commit behind a head, where the digest of its secret is known."""
    charges, written = commit.content.encoded()
    numbers, releases = (commit.number, commit.kind, commit.first, commit.last), sha256(written).digest()
    head = head_of(previous, numbers, charges, releases, secret)
    return Row(*numbers, charges, written, releases, secret, head)


def head_of(
    previous: bytes, numbers: tuple[int, ...], charges: bytes, releases: bytes, secret: bytes
) -> bytes:
    """The next head, from the digests of what is not public for ever."""
    content = VERSION + previous + NUMBERS.pack(*numbers) + sha256(charges).digest() + releases + secret
    return sha256(content).digest()


class HasRows(Protocol):
    """A log, or who only reads one."""

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, in order."""


def checked(log: HasRows, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of a log that follow each other, each compared with its hash, as is the one before the first."""
    head = None
    for row in rows:
        head = _head_before(log, row.number) if head is None else head
        check_row(row, head)
        head = row.head
        yield row


def _head_before(log: HasRows, number: int) -> bytes:
    """The head of the commit before a number, whose own hash is compared: where a window begins is found by its steps."""
    head, first = NO_HEAD, max(0, number - 2)
    for row in islice(log.rows(first), number - first):
        if row.number == 0 or row.number > first:
            check_row(row, head)
        head = row.head
    return head


def check_row(row: Row, previous: bytes) -> None:
    """Refuse a row that does not have the hash of its content and of the head before it."""
    try:
        expected = head_of(previous, row[:4], row.charges, row.releases_digest, row.secret_digest)
        kept = row.releases is None or sha256(row.releases).digest() == row.releases_digest
    except (TypeError, struct.error):
        raise LogDamaged(
            f"commit {row.number} is not one that Tidegate has written; restore a backup."
        ) from None
    if expected != row.head or not kept:
        raise LogDamaged(f"the hash of commit {row.number} is not that of its content; restore a backup.")


def sealed(salt: bytes, position: bytes, state: bytes) -> bytes:
    """Salt, position and state as one secret, whose size tells the position's to a multiple of a block."""
    padding = bytes(_room(len(position)) - len(position))
    return salt + LENGTH.pack(len(position)) + position + padding + state


def _room(length: int) -> int:
    """The bytes that a position takes; one that is missing takes as many as a short one."""
    return max(1, -(-length // POSITION_BLOCK)) * POSITION_BLOCK


def unsealed(secret: bytes, digest: bytes) -> tuple[bytes, bytes]:
    """(position, state) of the secret that has this digest."""
    if sha256(secret).digest() != digest:
        raise LogDamaged("the log's state is not the one of its last commit; restore a backup.")
    begin = SALT_BYTES + LENGTH.size
    length = LENGTH.unpack_from(secret, SALT_BYTES)[0]
    return secret[begin : begin + length], secret[begin + _room(length) :]
