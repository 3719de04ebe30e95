"""A log that others can check: its rows and a signed head as they are published, and the check of both.

Rows say which steps were charged how much. Of releases, state and position they have digests only, the last two salted.
Each row is hashed with the one before. Whoever keeps a head can tell later that a log continues from it, because a row
that was changed, dropped or inserted changes every hash after it. The same holds for the transcript, a hash over
everything that was released: a second stream has the same charges, but not the same noise. The signature
says who published the head, so that nobody can deny an earlier one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import ArrayLike

from tidegate.core.commit import AMENDED, OPENED, Row
from tidegate.core.errors import LogDamaged
from tidegate.core.scope import Book, Scope
from tidegate.core.verify import Verification, verify
from tidegate.pipeline.errors import LogUnavailable

PAGE = 10_000  # rows
COLUMNS = ("commit", "kind", "first", "last", "charges", "releases_digest", "secret_digest", "head")
_WHAT = b"tidegate log\0"
_SIGNED = ("stream", "log", "scope", "commits", "step", "head", "number", "transcript", "time")
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
        raise LogUnavailable(
            f"the key {path} cannot be used ({reason}); restore it, or move it away."
        ) from None


def public_text(key: Ed25519PrivateKey) -> str:
    """The public half of a key, as it is published."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def published_head(
    log: str,
    last: Row,
    scope: Scope,
    transcript: Transcript,
    *,
    stream: str,
    time: str,
    key: Ed25519PrivateKey,
) -> dict[str, Any]:
    """Where a log and the releases of one of its queries stand, signed.

    Parameters
    ----------
    log
        The hash of its first commit.
    last
        Its last row; read after the releases of the transcript were committed.
    scope
        The query's: its releases are counted from 1 again when an amendment begins another scope.
    transcript
        Over all releases of the scope.
    stream, time, key
        The name and the moment that are signed, and by whom.
    """
    found: dict[str, Any] = {
        "stream": stream,
        "log": log,
        "scope": scope.number,
        "commits": last.number + 1,
        "step": last.last,
        "head": last.head.hex(),
        "number": transcript.number,
        "transcript": transcript.digest.hex(),
        "time": time,
    }
    signature = base64.b64encode(key.sign(_message(found))).decode()
    return {**found, "key": public_text(key), "signature": signature}


def published_rows(rows: Iterable[Row], most: int = PAGE) -> list[list[Any]]:
    """Some rows, each as a list ready for JSON, in the order of `COLUMNS`."""
    return [
        [
            *row[:4],
            base64.b64encode(row.charges).decode(),
            row.releases_digest.hex(),
            row.secret_digest.hex(),
            row.head.hex(),
        ]
        for row in islice(rows, most)
    ]


def _message(head: Mapping[str, Any]) -> bytes:
    chosen = {name: head[name] for name in _SIGNED}
    return _WHAT + json.dumps(chosen, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Seen:
    """A head that was seen before.

    Parameters
    ----------
    commits, head
        How many commits there were, and the hash of the last.
    log, key
        The hash of the first commit, and who has signed.
    scope, number, transcript
        Of which scope how many releases there were, and the hash over them.
    """

    commits: int
    head: str
    log: str
    key: str
    scope: int
    number: int
    transcript: str


def check_published(
    head: Mapping[str, Any],
    rows: Iterable[list[Any]],
    releases: Iterable[list[Any]],
    seen: Iterable[Seen] = (),
) -> tuple[Verification, Seen]:
    """Recompute a published log, and compare it with heads that were seen before.

    Parameters
    ----------
    head
        As :func:`published_head` made it.
    rows
        All rows up to it, in order, as :func:`published_rows` made them.
    releases
        All releases up to it, in order: number, step, revision and values of each.
    seen
        Earlier heads of the same log.

    Returns
    -------
    tuple
        What was found in every window, and what to remember of this head.

    Raises
    ------
    LogDamaged
        Where the signature is wrong, the rows do not lead to the head, or an earlier head is not on the way.
    """
    try:
        now = Seen(
            int(head["commits"]),
            str(head["head"]),
            str(head["log"]),
            str(head["key"]),
            int(head["scope"]),
            int(head["number"]),
            str(head["transcript"]),
        )
        _check_signature(head)
        before = list(seen)
        earlier = _earlier(now, before)
        reading = _Reading({*earlier, now.commits, 1})
        found = verify(reading.read(rows))
        if found.ok:
            _check_rows(now, reading, found)
            same = {each.number: each.transcript for each in before if each.scope == now.scope}
            _check_transcript(now, releases, same)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError):
        raise LogDamaged("what is published is no log; ask whoever publishes it.") from None
    for count, digest in earlier.items():
        if reading.heads.get(count, "") != digest:
            raise LogDamaged(
                f"the log was rolled back or rewritten: commit {count - 1} is not the one that was seen before."
            )
    return found, now


class _Reading:
    """Published rows as those of a log; remembers some hashes on the way, and the scopes that are alive."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self.heads: dict[int, str] = {}  # by the number of commits up to there
        self.scopes: set[int] = set()

    def read(self, rows: Iterable[list[Any]]) -> Iterator[Row]:
        for number, kind, first, last, charges, releases, secret, head in rows:
            content = base64.b64decode(charges, validate=True)
            digests = (bytes.fromhex(releases), bytes.fromhex(secret), bytes.fromhex(head))
            row = Row(int(number), int(kind), int(first), int(last), content, None, *digests)
            if row.number + 1 in self._wanted:
                self.heads[row.number + 1] = head
            if row.kind in (OPENED, AMENDED):
                self.scopes = {scope.number for scope in Book.decoded(content).alive}
            yield row


def _check_rows(now: Seen, reading: _Reading, found: Verification) -> None:
    if found.commits != now.commits or found.head.hex() != now.head:
        raise LogDamaged("the published rows do not lead to the signed head.")
    if reading.heads.get(1) != now.log:
        raise LogDamaged("the published rows are those of another log than the signed head.")
    if now.scope not in reading.scopes:
        raise LogDamaged(f"scope {now.scope}, whose releases are signed, is not alive in the published rows.")


def _check_signature(head: Mapping[str, Any]) -> None:
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(head["key"], validate=True))
        public.verify(base64.b64decode(head["signature"], validate=True), _message(head))
    except InvalidSignature:
        raise LogDamaged("the head is not signed by the key that is published with it.") from None


def _check_transcript(now: Seen, releases: Iterable[list[Any]], earlier: Mapping[int, str]) -> None:
    """Recompute the hash over all releases, and compare it at every number that was seen before."""
    found = Transcript()
    for number, step, revision, values in releases:
        if number != found.number + 1:
            raise LogDamaged(f"release {found.number + 1} is missing from what is published.")
        row = [float("nan") if value is None else value for value in values]
        found = found.after(number, [step], [revision], [row])
        if number in earlier and found.digest.hex() != earlier[number]:
            raise LogDamaged(
                f"releases were changed, or made again: the first {number} are not those that were seen before."
            )
    if (found.number, found.digest.hex()) != (now.number, now.transcript):
        raise LogDamaged("the published releases do not lead to the signed transcript.")


def _earlier(now: Seen, seen: list[Seen]) -> dict[int, str]:
    """After how many commits there must be which hash, from heads that were seen before."""
    for each in seen:
        if each.key != now.key:
            raise LogDamaged("the key has changed since an earlier check; ask whoever publishes the log why.")
        if each.log != now.log:
            raise LogDamaged("another log was published at an earlier check: a new stream was begun.")
        fewer = each.scope == now.scope and each.number > now.number
        if each.commits > now.commits or fewer:
            raise LogDamaged(
                f"the log was rolled back: {each.commits} commits and {each.number} releases were seen before, "
                f"and {now.commits} and {now.number} are published now."
            )
    return {each.commits: each.head for each in seen if each.commits}
