"""One entry of the log: charges and releases in the open, state and position behind a salted commitment.

head = SHA-256(version ‖ previous head ‖ number, kind, first and last step ‖ digest of charges ‖ digest of releases ‖
digest of salt, state and position). The salt is 32 fresh bytes per commit. Without it the digest of a state with few
possible values, say a radius, could be found by trying them all.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import NamedTuple

from tidegate.core.errors import LogDamaged

VERSION = b"tidegate log 1\n"
NO_HEAD = bytes(32)
SALT_BYTES = 32
NUMBERS = struct.Struct("<qqqq")
LENGTH = struct.Struct("<q")
POSITION_BLOCK = 256  # a position is stored in so many bytes, or a multiple

# kinds of commits
OPENED, PUSHED, HALTED, RESTARTED, FINISHED, EVENT, AMENDED = 0, 1, 2, 3, 4, 5, 6


class Commit(NamedTuple):
    """What one transaction writes.

    Attributes
    ----------
    number, kind
        Its place in the log, and why it was written.
    first, last
        The steps that it charges; last = first − 1 where there are none.
    charges, releases
        Public, encoded by `arrays.encode`. A restart has the last silent step of each query in place of charges.
    secret
        Salt, position and state. Only the last commit of a log keeps it. The state is empty behind a halt and at the
        end of a stream: nothing goes on from there.
    """

    number: int
    kind: int
    first: int
    last: int
    charges: bytes
    releases: bytes
    secret: bytes


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


def row_of(previous: bytes, commit: Commit) -> Row:
    """The row of a commit behind a head."""
    releases, secret = sha256(commit.releases).digest(), sha256(commit.secret).digest()
    head = head_of(previous, commit[:4], commit.charges, releases, secret)
    return Row(*commit[:4], commit.charges, commit.releases, releases, secret, head)


def head_of(
    previous: bytes, numbers: tuple[int, ...], charges: bytes, releases: bytes, secret: bytes
) -> bytes:
    """The next head, from the digests of what is not public for ever."""
    content = VERSION + previous + NUMBERS.pack(*numbers) + sha256(charges).digest() + releases + secret
    return sha256(content).digest()


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
