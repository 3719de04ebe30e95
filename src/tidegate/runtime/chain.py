"""The chain of releases: each commit is hashed with the one before it and with the charges that it was made from.

A bit that flips in a stored release would be published as a wrong number when a sink is written anew, and the account
of charges could not tell. So each commit has a link: SHA-256 over the link before, the number of its last release, the
last row of the ledger and its hash, what was released, and a digest of the state and position that it led to. Links
are checked whenever releases are read again, when the state is taken up, and by `verify`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidegate.errors import LedgerCorrupt

TABLE = (
    "CREATE TABLE IF NOT EXISTS {links} (number {integer} PRIMARY KEY, rows {integer} NOT NULL, "
    "state {bytes} NOT NULL, hash {bytes} NOT NULL)"
)
# the last link, as part of a statement
LAST_LINK = (
    ", (SELECT number FROM {links} ORDER BY number DESC LIMIT 1), "
    "(SELECT state FROM {links} ORDER BY number DESC LIMIT 1)"
)
_NUMBERS = struct.Struct("<qq")
_PAGE = 1000  # links that are checked at once
Execute = Callable[..., Any]


class Link(NamedTuple):
    """One commit: the last release of it, the ledger's last row, the digest of the state, and the hash of all."""

    number: int
    rows: int
    state: bytes
    hash: bytes


class Anchor(NamedTuple):
    """Where the chain goes on after an archive: the last archived release, its link, and where the chain began."""

    number: int
    hash: bytes
    start: int


def first_link(identity: str, number: int) -> Link:
    """What stands before the first link; releases up to `number` are those of a version that had none."""
    text = f"tidegate releases {identity} after {number}"
    return Link(number, 0, b"", hashlib.sha256(text.encode()).digest())


def linked(before: bytes, number: int, rows: int, head: bytes, content: bytes, state: bytes) -> Link:
    """The link of a commit, given the hash of the one before."""
    digest = hashlib.sha256(before + _NUMBERS.pack(number, rows) + head + state)
    digest.update(content)
    return Link(number, rows, state, digest.digest())


def state_digest(step: int, position: str | None, state: bytes | None) -> bytes:
    """A digest of where a commit has led to."""
    position_text = b"\0" if position is None else position.encode()
    digest = hashlib.sha256(_NUMBERS.pack(step, len(position_text)) + position_text)
    digest.update(b"\0" if state is None else state)
    return digest.digest()


class Chain:
    """The links of a store.

    Parameters
    ----------
    execute
        Runs a statement on the store's database; {links} and {releases} stand for the store's tables.
    identity
        The ledger's.
    named
        Whether the ledger was made by a version that chains all releases.
    anchor
        The link that the first ones here go on from, where earlier ones were archived.
    """

    def __init__(self, execute: Execute, identity: str, *, named: bool, anchor: Anchor | None = None) -> None:
        self._execute = execute
        self._identity = identity
        self._named = named
        self._anchor = anchor
        self.start = self._start()  # releases up to this number are not chained; None where there is no chain

    def begin(self, number: int) -> None:
        """Begin the chain after a release, unless it was begun before; only inside of a transaction."""
        self.check_begun(number)
        if self.start is None:
            self._put(first_link(self._identity, number))
            self.start = number

    def check_begun(self, number: int) -> None:
        """Refuse a store that has lost its chain."""
        if self.start is None and self._named and number:
            raise self._damaged()

    def _start(self) -> int | None:
        try:
            found = self._execute(
                "SELECT number, rows, state, hash FROM {links} ORDER BY number LIMIT 1"
            ).fetchone()
        except LedgerCorrupt:  # no such table
            return None
        if found is None:
            return None
        link = _link(found)
        if self._anchor is not None:
            if (link.number, link.hash) != (self._anchor.number, self._anchor.hash):
                raise self._damaged()
            return self._anchor.start
        if link.hash != first_link(self._identity, link.number).hash or (self._named and link.number):
            raise self._damaged()
        return link.number

    def _put(self, link: Link) -> None:
        self._execute(
            "INSERT INTO {links} VALUES (?, ?, ?, ?) ON CONFLICT (number) "
            "DO UPDATE SET rows = excluded.rows, state = excluded.state, hash = excluded.hash",
            tuple(link),
        )

    def add(self, number: int, head: tuple[int, str], content: bytes, state: bytes) -> None:
        """Link a commit; one without releases replaces the link of the one before it."""
        before = self._before(number)
        if before is None:  # nothing was released yet, so there is nothing to link to
            self._put(first_link(self._identity, number)._replace(state=state))
            return
        rows, digest = head
        self._put(linked(before, number, rows, bytes.fromhex(digest) if rows else b"", content, state))

    def _before(self, number: int) -> bytes | None:
        wanted = "SELECT hash FROM {links} WHERE number < ? ORDER BY number DESC LIMIT 1"
        found = self._execute(wanted, (number,)).fetchone()
        return None if found is None else stored_bytes(found[0])

    def link_at(self, number: int) -> Link:
        """The link of the commit that ended with a release."""
        wanted = "SELECT number, rows, state, hash FROM {links} WHERE number = ?"
        found = self._execute(wanted, (number,)).fetchone()
        if found is None:
            raise self._damaged(number)
        return _link(found)

    def check(self, number: int, content: bytes) -> None:
        """Refuse a stored release that is not the one that was committed."""
        if self.start is None or number <= self.start:
            return
        wanted = "SELECT number, rows, state, hash FROM {links} WHERE number = ?"
        found, before = self._execute(wanted, (number,)).fetchone(), self._before(number)
        if found is None or before is None:
            raise self._damaged(number)
        link = _link(found)
        if link != linked(before, number, link.rows, self._head(link.rows), content, link.state):
            raise self._damaged(number)

    def check_state(self, number: int, digest: bytes, last: int, state: bytes) -> None:
        """Refuse a state or a position that is not the one of the last link."""
        if last != number or stored_bytes(state) not in (
            b"",
            digest,
        ):  # nothing is known of it where the chain begins
            raise self._damaged(number)

    def _head(self, rows: int) -> bytes:
        if rows == 0:  # the identity stands for it, in the first link
            return b""
        found = self._execute("SELECT hash FROM charges WHERE row = ?", (rows,)).fetchone()
        return b"" if found is None else stored_bytes(found[0])

    def verify(self) -> None:
        """Refuse the first stored release that is not the one that was committed, or lacks its link."""
        if self.start is None:
            return
        after, before = (self.start if self._anchor is None else self._anchor.number), b""
        links = self._page("number, rows, state, hash", "links", after - 1)
        while links:
            last = _link(links[-1]).number
            stored = dict(self._page("number, content", "releases", after, last))
            for found in links:
                link = _link(found)
                if not before:  # where the chain begins
                    before = link.hash
                    continue
                content = stored.pop(link.number, None)
                head = self._head(link.rows)
                if content is None or link != linked(
                    before, link.number, link.rows, head, stored_bytes(content), link.state
                ):
                    raise self._damaged(link.number)
                before = link.hash
            if stored:
                raise self._damaged(min(stored))
            after = last
            links = self._page("number, rows, state, hash", "links", after)
        beyond = self._page("number", "releases", after)
        if beyond:
            raise self._damaged(beyond[0][0])

    def _page(self, columns: str, table: str, after: int, last: int = 2**62) -> list[Any]:
        wanted = f"SELECT {columns} FROM {{{table}}} WHERE number > ? AND number <= ? ORDER BY number LIMIT {_PAGE}"
        return list(self._execute(wanted, (after, last)))

    def _damaged(self, number: int | None = None) -> LedgerCorrupt:
        place = "a stored release" if not number else f"what was stored up to release {number}"
        return LedgerCorrupt(
            f"{place} is not what was committed: its hash is another; restore the ledger from a backup that is not "
            "older than the last release."
        )


def _link(found: Sequence[Any]) -> Link:
    number, rows, state, digest = found
    if not isinstance(number, int) or not isinstance(rows, int):
        raise LedgerCorrupt("a stored hash is damaged; restore the ledger from a backup.")
    return Link(number, rows, stored_bytes(state), stored_bytes(digest))


def stored_bytes(value: Any) -> bytes:
    """Bytes from a database; damage may have made anything of them."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise LedgerCorrupt("something stored is damaged; restore the ledger from a backup.")
    return bytes(value)
