"""An account that others can check: its rows and a signed head as they are published, and the check of both.

Rows say which steps were charged how much, and nothing else; each is hashed with the one before. Whoever keeps a head
can tell later that an account goes on from it, because a row that was changed, dropped or put in changes every hash
after it. The same holds for the transcript, a hash over everything that was released: a stream that was begun anew has
the same charges, but not the same noise. The signature says who published the head, so that nobody can deny an
earlier one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import ArrayLike

from tidegate.errors import LedgerCorrupt, LedgerError
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.events import Verdict
from tidegate.ledger.file import create
from tidegate.ledger.replay import verify_file
from tidegate.ledger.rows import genesis

PAGE = 10_000  # rows
_WHAT = b"tidegate account\0"
_SIGNED = ("stream", "genesis", "rows", "step", "head", "number", "transcript", "time")
_RELEASE = struct.Struct("<qqq")


@dataclass(frozen=True)
class Transcript:
    """A running hash over releases in the order in which they left.

    Parameters
    ----------
    number
        How many releases.
    digest
        SHA-256 over the digest before and the last one's number, step, revision and values.

    Examples
    --------
    >>> one = Transcript().after(1, [1, 2], [0, 0], [[3.0], [4.0]])
    >>> two = Transcript().after(1, [1], [0], [[3.0]]).after(2, [2], [0], [[4.0]])
    >>> one == two, one.number
    (True, 2)
    """

    number: int = 0
    digest: bytes = bytes(32)

    def after(self, first: int, steps: ArrayLike, revisions: ArrayLike, values: ArrayLike) -> Transcript:
        """The transcript with more releases; those that it has already must be left out."""
        matrix = np.asarray(values, dtype="<f8")
        # what JSON cannot tell apart is the same: signs of zero, and all that is no number
        rows = np.where(np.isfinite(matrix), matrix, np.nan) + 0.0
        digest, number = self.digest, first - 1
        pairs = zip(np.asarray(steps).tolist(), np.asarray(revisions).tolist(), rows, strict=True)
        for number, (step, revision, row) in enumerate(pairs, start=first):
            head = digest + _RELEASE.pack(number, step, revision)
            digest = hashlib.sha256(head + row.tobytes()).digest()
        return Transcript(number, digest)


def signing_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file for its owner only; made if there is none."""
    try:
        if not path.exists():
            made = Ed25519PrivateKey.generate().private_bytes_raw()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64encode(made) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(path.read_bytes(), validate=False))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no key"
        raise LedgerError(f"the key {path} cannot be used ({reason}); restore it, or move it away.") from None


def public_text(key: Ed25519PrivateKey) -> str:
    """The public half of a key, as it is published."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def published_head(
    ledger: DurableLedger,
    stream: str,
    time: str,
    key: Ed25519PrivateKey,
    transcript: Transcript,
    since: int = 0,
) -> dict[str, Any]:
    """What an account is for and where it stands, signed; an amended stream began anew after the step `since`."""
    with ledger.told():
        meta = dict(ledger.connection.execute("SELECT name, value FROM meta"))
        rows, step, head = ledger.connection.execute("SELECT rows, step, hash FROM head").fetchone()
    found: dict[str, Any] = {
        "stream": stream,
        "genesis": genesis(meta).hex(),
        "rows": rows,
        "step": step,
        "head": bytes(head).hex(),
        "number": transcript.number,
        "transcript": transcript.digest.hex(),
        "time": time,
        **({"since": since} if since else {}),
    }
    signature = base64.b64encode(key.sign(_message(found))).decode()
    return {**found, "meta": meta, "key": public_text(key), "signature": signature}


def published_rows(ledger: DurableLedger, after: int, most: int = PAGE) -> list[list[Any]]:
    """Rows after a number, each as a list ready for JSON."""
    wanted = (
        "SELECT row, kind, first, last, units, scope, parts, detail, hash FROM charges "
        "WHERE row > ? ORDER BY row LIMIT ?"
    )
    with ledger.told():
        return [
            [
                *row[:7],
                None if row[7] is None else base64.b64encode(bytes(row[7])).decode(),
                bytes(row[8]).hex(),
            ]
            for row in ledger.connection.execute(wanted, (after, most))
        ]


def _message(head: Mapping[str, Any]) -> bytes:
    chosen = {name: head[name] for name in (*_SIGNED, *(("since",) if "since" in head else ()))}
    return _WHAT + json.dumps(chosen, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Seen:
    """A head that was seen before.

    Parameters
    ----------
    rows, head
        How many rows there were, and the hash of the last.
    genesis, key
        What the account is for, and who has signed it.
    number, transcript
        How many releases there were, and the hash over them.
    since
        After which step they began, where the stream was amended.
    """

    rows: int
    head: str
    genesis: str
    key: str
    number: int
    transcript: str
    since: int = 0


def check_published(
    head: Mapping[str, Any],
    rows: Iterable[list[Any]],
    releases: Iterable[list[Any]],
    seen: Iterable[Seen] = (),
) -> tuple[Verdict, Seen]:
    """Recompute a published account, and compare it with heads that were seen before.

    Parameters
    ----------
    head
        As :func:`published_head` made it.
    rows
        All rows up to it, in order.
    releases
        All releases up to it, in order: number, step, revision and values of each.
    seen
        Earlier heads of the same account.

    Returns
    -------
    tuple
        The verdict over every window, and what to remember of this head.

    Raises
    ------
    LedgerCorrupt
        Where the signature is wrong, the rows do not lead to the head, or an earlier head is not on the way.
    """
    try:
        now = Seen(
            int(head["rows"]),
            str(head["head"]),
            str(head["genesis"]),
            str(head["key"]),
            int(head["number"]),
            str(head["transcript"]),
            int(head.get("since", 0)),
        )
        _check_signature(head)
        if genesis(head["meta"]).hex() != now.genesis:
            raise LedgerCorrupt("what the account is for does not belong to its signed head.")
        before = list(seen)
        earlier = _earlier(now, before)
        verdict, hashes, amended = _replayed(head, rows, {*earlier, now.rows})
        if now.since and now.since not in amended:
            raise LedgerCorrupt(
                f"releases begin anew after step {now.since}, and the account has no amendment there."
            )
        # releases that began anew with an amendment are others than those before it
        same = {each.number: each.transcript for each in before if each.since == now.since}
        _check_transcript(now, releases, same)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise LedgerCorrupt("what is published is no account; ask whoever publishes it.") from None
    if verdict.ok and (verdict.rows != now.rows or verdict.head != now.head):
        raise LedgerCorrupt("the published rows do not lead to the signed head.")
    for number, digest in earlier.items():
        if hashes.get(number, "") != digest:
            raise LedgerCorrupt(
                f"the account was rolled back or rewritten: row {number} is not the one that was seen before."
            )
    return verdict, now


def _check_signature(head: Mapping[str, Any]) -> None:
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(head["key"], validate=True))
        public.verify(base64.b64decode(head["signature"], validate=True), _message(head))
    except InvalidSignature:
        raise LedgerCorrupt("the head is not signed by the key that is published with it.") from None


def _check_transcript(now: Seen, releases: Iterable[list[Any]], earlier: Mapping[int, str]) -> None:
    """Recompute the hash over all releases, and compare it at every number that was seen before."""
    found = Transcript()
    for number, step, revision, values in releases:
        if number != found.number + 1:
            raise LedgerCorrupt(f"release {found.number + 1} is missing from what is published.")
        row = [float("nan") if value is None else value for value in values]
        found = found.after(number, [step], [revision], [row])
        if number in earlier and found.digest.hex() != earlier[number]:
            raise LedgerCorrupt(
                f"releases were changed, or made anew: the first {number} are not those that were seen before."
            )
    if (found.number, found.digest.hex()) != (now.number, now.transcript):
        raise LedgerCorrupt("the published releases do not lead to the signed transcript.")


def _earlier(now: Seen, seen: list[Seen]) -> dict[int, str]:
    """Which rows must have which hashes, from heads that were seen before."""
    for each in seen:
        if each.key != now.key:
            raise LedgerCorrupt(
                "the key has changed since an earlier check; ask whoever publishes the account why."
            )
        if each.genesis != now.genesis:
            raise LedgerCorrupt(
                "the account is for something else than at an earlier check: another was begun."
            )
        fewer = each.since > now.since or (each.since == now.since and each.number > now.number)
        if each.rows > now.rows or fewer:
            raise LedgerCorrupt(
                f"the account was rolled back: {each.rows} rows and {each.number} releases were seen before, "
                f"and {now.rows} and {now.number} are published now."
            )
    return {each.rows: each.head for each in seen if each.rows}


def _replayed(
    head: Mapping[str, Any], rows: Iterable[list[Any]], wanted: set[int]
) -> tuple[Verdict, dict[int, str], set[int]]:
    """The verdict on a ledger with these rows, the hashes of some of them, and the steps of amendments."""
    hashes: dict[int, str] = {}
    amended: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "copy.ledger"
        create(path, dict(head["meta"]))
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("BEGIN")
            for row in rows:
                detail = None if row[7] is None else base64.b64decode(row[7], validate=True)
                digest = bytes.fromhex(row[8])
                connection.execute(
                    "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row[:7], detail, digest)
                )
                if row[0] in wanted:
                    hashes[row[0]] = row[8]
                if row[1] == "amend":
                    amended.add(int(row[2]))
            last = (head["rows"], head["step"], bytes.fromhex(head["head"]))
            connection.execute("UPDATE head SET rows = ?, step = ?, hash = ?", last)
            connection.execute("COMMIT")
        except sqlite3.Error:
            raise LedgerCorrupt("the published rows are not those of a ledger.") from None
        finally:
            connection.close()
        return verify_file(path), hashes, amended
