"""Where the secret states of a ledger are kept: a copy of its database has them too, and must not go on with them.

A state holds noise that released steps share with steps to come. Two copies that both go on with it release values whose
difference has no noise. So each state names the place at which it was kept, by a number that the database has and that is
drawn anew wherever the database finds itself elsewhere: in another file, without the number that lies beside it, or
behind what lies there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidegate.ledger.base import HAS_TABLES
from tidegate.noise.entropy import fresh_name

_TABLE = (
    'CREATE TABLE IF NOT EXISTS place ("only" {integer} PRIMARY KEY CHECK ("only" = 1), nonce TEXT NOT NULL, '
    "here TEXT NOT NULL, began {integer} NOT NULL)"
)
_PUT = (
    'INSERT INTO place VALUES (1, ?, ?, ?) ON CONFLICT ("only") DO UPDATE SET nonce = excluded.nonce, '
    "here = excluded.here, began = excluded.began"
)
_DIGITS = 20


class Kept(NamedTuple):
    """The place of a database.

    Parameters
    ----------
    nonce
        Drawn when it was first found here.
    here
        What the system calls it: the number of a file, or of a table in a database of a server.
    first
        Whether it has been nowhere else since there are such numbers, so that states of earlier versions are its own.
    """

    nonce: str
    here: str
    first: bool


class Remembered(NamedTuple):
    """What lies beside a database.

    Parameters
    ----------
    nonce
        That of the place; empty where nothing was ever written.
    rows
        How many rows the ledger had at least; -1 while the number of the place is being written down.
    """

    nonce: str
    rows: int

    def line(self) -> bytes:
        """A line of one length, so that writing over it leaves nothing of what was there."""
        return f"{self.nonce} {self.rows:>{_DIGITS}}\n".encode()


def remembered(line: bytes) -> Remembered:
    """Read such a line; whatever else is there counts as nothing.

    Examples
    --------
    >>> remembered(Remembered("a1", 7).line())
    Remembered(nonce='a1', rows=7)
    >>> remembered(b"")
    Remembered(nonce='', rows=-1)
    """
    nonce, _, rows = line.decode("utf-8", "replace").partition("\n")[0].partition(" ")
    try:
        return Remembered(nonce, int(rows))
    except ValueError:
        return Remembered("", -1)


def settled(
    connection: Any,
    types: Mapping[str, str],
    rows: int,
    here: str,
    beside: Remembered | None,
    remember: Callable[[Remembered], None],
) -> Kept:
    """The place of a database that is opened for writing; with another number where it is not the one from before.

    Parameters
    ----------
    connection, types
        The database, and how it calls whole numbers and bytes.
    rows
        How many rows the ledger has.
    here
        What the system calls the place.
    beside
        What lies beside the database; None where nothing can.
    remember
        Puts that there, on disk.
    """
    if ("place",) not in {tuple(name) for name in connection.execute(HAS_TABLES)}:
        connection.execute(_TABLE.format(**types))
    found = connection.execute("SELECT nonce, here, began FROM place").fetchone()
    kept = None if found is None else Kept(str(found[0]), str(found[1]), bool(found[2]))
    if kept is not None and kept.here == here and _fits(kept, beside, rows):
        return kept
    # what lies beside it, complete, belongs to a ledger that had a number: this is an older copy of that one
    first = kept is None and (beside is None or beside.rows < 0)
    kept = Kept(fresh_name(), here, first)
    if beside is not None:
        remember(Remembered(kept.nonce, -1))
    connection.execute(_PUT, (kept.nonce, kept.here, int(kept.first)))
    if beside is not None:
        remember(Remembered(kept.nonce, rows))
    return kept


def _fits(kept: Kept, beside: Remembered | None, rows: int) -> bool:
    """Whether what lies beside a database is of its place, and not of a moment that it has not reached."""
    return beside is None or (beside.nonce == kept.nonce and beside.rows <= rows)
