"""The base of a ledger whose first rows were archived: the account and the hash that its other rows go on from.

The rows of old steps are needed by no window any more. An archive keeps them, and the ledger keeps the account that they
add up to. A row of kind `prune` names that account in the chain of hashes, so that whoever has kept a head of the ledger
since then would notice another base; and the archive, which ends after the base, proves that it is right.

That row is published. So it leaves out the links of releases, which the base keeps for itself: a link is a hash over the
state of a run and its place in the input as well, by which a guess about raw data could be checked.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import LedgerError, TidegateError
from tidegate.ledger.account import Account
from tidegate.ledger.kernels import Integers
from tidegate.ledger.rows import account_from, decode_text, encode_text

TABLE = (
    'CREATE TABLE IF NOT EXISTS base ("only" {integer} PRIMARY KEY CHECK ("only" = 1), row {integer} NOT NULL, '
    "hash {bytes} NOT NULL, account {bytes} NOT NULL, facts TEXT NOT NULL, at {integer} NOT NULL)"
)
ARCHIVE = 'CREATE TABLE archive ("only" {integer} PRIMARY KEY CHECK ("only" = 1))'
# whether there are tables; PostgreSQL spells it differently
HAS_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('base', 'archive', 'place')"
_PUT = (
    'INSERT INTO base VALUES (1, ?, ?, ?, ?, ?) ON CONFLICT ("only") DO UPDATE SET row = excluded.row, '
    "hash = excluded.hash, account = excluded.account, facts = excluded.facts, at = excluded.at"
)


class BadBaseError(TidegateError):
    """Why a base cannot be believed."""


class Base(NamedTuple):
    """What the rows that are left go on from.

    Parameters
    ----------
    row, hash
        The last row that was archived, and its hash.
    account
        What all rows up to it add up to, as bytes.
    facts
        Up to which step they were charged, and whatever else is remembered of them.
    at
        The row that names this base in the chain.
    """

    row: int
    hash: bytes
    account: bytes
    facts: dict[str, Any]
    at: int

    @property
    def step(self) -> int:
        """The last step that the archived rows have charged."""
        return int(self.facts["step"])

    def named(self) -> Integers:
        """What the row that names it says."""
        return base_name(self.row, self.hash, self.account, self.facts)

    def restore(self, account: Account) -> None:
        """Set an account to what the archived rows add up to."""
        try:
            account.restore(account_from(self.account))
            account.recall(self.facts.get("history", {}))
        except (LedgerError, ValueError, KeyError, TypeError, zlib.error, struct.error):
            raise _damaged() from None

    def put(self, connection: Any) -> None:
        """Write it down; only inside of a transaction."""
        facts = json.dumps(self.facts, sort_keys=True)
        connection.execute(_PUT, (self.row, self.hash, self.account, facts, self.at))


def base_name(row: int, digest: bytes, account: bytes, facts: Mapping[str, Any]) -> Integers:
    """How the chain names a base."""
    guard = hashlib.sha256(account).hexdigest()
    return encode_text({"row": row, "hash": digest.hex(), "account": guard, "facts": _unlinked(facts)})


def _unlinked(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts without the links of releases, those of all parts."""
    found = {name: fact for name, fact in facts.items() if name != "link"}
    if "parts" in found:
        found["parts"] = {number: _unlinked(part) for number, part in found["parts"].items()}
    return found


def read_base(connection: Any) -> Base | None:
    """The base of a ledger, if its first rows were archived, after a look at the row that names it."""
    if ("base",) not in {tuple(found) for found in connection.execute(HAS_TABLES)}:
        return None
    found = connection.execute("SELECT row, hash, account, facts, at FROM base").fetchone()
    if found is None:
        return None
    try:
        row, digest, account, facts, at = found
        base = Base(int(row), bytes(digest), bytes(account), dict(json.loads(facts)), int(at))
        base.step  # noqa: B018  it must have one
        named = connection.execute("SELECT kind, detail FROM charges WHERE row = ?", (at,)).fetchone()
        if named is None or named[0] != "prune":
            raise _damaged()
        said = decode_text(bytes(named[1]))
        said["facts"] = _unlinked(said["facts"])  # rows of version 0.2.0 have the links as well
        if said != decode_text_of(base.named()):
            raise _damaged()
    except (ValueError, TypeError, KeyError):
        raise _damaged() from None
    return base


def decode_text_of(numbers: Integers) -> dict[str, Any]:
    """The facts that `encode_text` has put into numbers."""
    found: dict[str, Any] = json.loads(bytes(numbers.astype(np.uint8)))
    return found


def is_archive(connection: Any) -> bool:
    """Whether a ledger is an archive, to which nothing is added."""
    return ("archive",) in {tuple(found) for found in connection.execute(HAS_TABLES)}


def _damaged() -> BadBaseError:
    return BadBaseError(
        "the account that its archived rows add up to is not the one that the chain names; restore a backup."
    )
