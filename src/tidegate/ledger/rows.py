"""Rows of a durable ledger as bytes: the canonical form that is hashed, and compact batches.

Each row's hash is SHA-256 over the hash of the row before and the row's canonical form; before the first row
stands the hash of what the ledger is for. A plain row (one step, no parts) is 49 bytes and its scope.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import LedgerCorrupt
from tidegate.ledger.account import Account
from tidegate.ledger.events import Charge
from tidegate.ledger.kernels import Integers

_PLAIN = struct.Struct("<cqq")
_FULL = struct.Struct("<cqqqIIII")
_BATCH_MOST = 2**31  # steps in one row
_DIVIDED = 2**32 - 1  # in place of a number of groups
_COUNTS = struct.Struct("<III")
NEW_KINDS = frozenset(
    {"group", "extend", "groups", "query", "delta", "prune", "learnt"}
)  # what format 1 did not know


class Row(NamedTuple):
    """One row of the table `charges`, without its number and hash."""

    kind: str
    first: int
    last: int
    units: int
    scope: str
    parts: str
    detail: bytes | None

    @property
    def plain(self) -> bool:
        """Whether the row charges a single step a single amount."""
        return self.kind == "step" and self.first == self.last and not self.parts and self.detail is None

    def message(self) -> bytes:
        """The canonical form; different rows have different forms."""
        if self.plain:
            return _PLAIN.pack(b"s", self.first, self.units) + self.scope.encode()
        kind, scope, parts, detail = (
            self.kind.encode(),
            self.scope.encode(),
            self.parts.encode(),
            self.detail or b"",
        )
        lengths = len(kind), len(scope), len(parts), len(detail)
        return _FULL.pack(b"x", self.first, self.last, self.units, *lengths) + kind + scope + parts + detail

    def charge(self) -> Charge:
        """The charge that the row records."""
        if not self.parts:
            return Charge(self.first, self.last, self.units, self.scope)
        parts = json.loads(self.parts)
        groups, levels = parts.get("groups", {}), parts.get("levels", {})
        plain = self.units - max(groups.values(), default=0) - sum(levels.values())
        return Charge(self.first, self.last, plain, self.scope, groups, levels)


def row_of(kind: str, charge: Charge, detail: Integers | bytes | None) -> Row:
    """The row that records a charge."""
    parts = {name: part for name in ("groups", "levels") if (part := dict(getattr(charge, name)))}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if parts else ""
    units = charge.total if parts else charge.units
    packed = detail if detail is None or isinstance(detail, bytes) else encode_batch(detail)
    return Row(kind, charge.first, charge.last, units, charge.scope, text, packed)


def chained(previous: bytes, message: bytes) -> bytes:
    """The hash of a row, given the hash of the row before."""
    return hashlib.sha256(previous + message).digest()


def genesis(meta: Mapping[str, str]) -> bytes:
    """The hash before the first row: what the ledger is for."""
    text = json.dumps(dict(meta), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(b"tidegate ledger\0" + text.encode()).digest()


def plain_hashes(previous: bytes, firsts: Integers, units: Integers, scope: str, stored: bytes) -> Integers:
    """Indices of plain rows whose stored hash is not that of the row before and their own content."""
    count, suffix = len(firsts), scope.encode()
    width = 32 + _PLAIN.size + len(suffix)
    table = np.empty((count, width), dtype=np.uint8)
    hashes = np.frombuffer(stored, dtype=np.uint8).reshape(count, 32)
    table[0, :32] = np.frombuffer(previous, dtype=np.uint8)
    table[1:, :32] = hashes[:-1]
    table[:, 32] = ord("s")
    table[:, 33:41] = firsts.astype("<i8").view(np.uint8).reshape(count, 8)
    table[:, 41:49] = units.astype("<i8").view(np.uint8).reshape(count, 8)
    table[:, 49:] = np.frombuffer(suffix, dtype=np.uint8)
    messages, sha256 = table.tobytes(), hashlib.sha256
    found = b"".join([sha256(messages[at : at + width]).digest() for at in range(0, count * width, width)])
    if found == stored:
        return np.zeros(0, dtype=np.int64)
    computed = np.frombuffer(found, dtype=np.uint8).reshape(count, 32)
    return np.flatnonzero((computed != hashes).any(axis=1))


def encode_batch(units: Integers) -> bytes:
    """A batch's units as bytes: runs where they repeat, else the narrowest integers; then compressed."""
    starts = np.flatnonzero(np.diff(units, prepend=units[0] - 1))
    if 8 * len(starts) <= len(units) or len(units) == 1:
        runs = np.column_stack([units[starts], np.diff(np.append(starts, len(units)))])
        return b"R" + zlib.compress(runs.astype("<i8").tobytes(), 1)
    width = next(width for width in (1, 2, 4, 8) if int(units.max()) < 2 ** (8 * width - 1))
    return b"%d" % width + zlib.compress(units.astype(f"<i{width}").tobytes(), 1)


def decode_batch(packed: bytes) -> Integers:
    """The units that `encode_batch` packed."""
    try:
        kind, content = packed[:1], zlib.decompress(packed[1:])
        if kind == b"R":
            runs = np.frombuffer(content, dtype="<i8").reshape(-1, 2)
            if len(runs) and not 0 < int(runs[:, 1].min()) <= int(runs[:, 1].max()) < _BATCH_MOST:
                raise ValueError
            if int(runs[:, 1].sum()) > _BATCH_MOST:
                raise ValueError
            return np.repeat(runs[:, 0], runs[:, 1]).astype(np.int64)
        return np.frombuffer(content, dtype=f"<i{int(kind)}").astype(np.int64)
    except (zlib.error, ValueError, TypeError):
        raise LedgerCorrupt("a batch in the ledger cannot be read; restore the file from a backup.") from None


def encode_text(facts: Mapping[str, Any]) -> Integers:
    """Facts as the bytes of their JSON, one in each number."""
    text = json.dumps(dict(facts), sort_keys=True, ensure_ascii=False).encode()
    return np.frombuffer(text, dtype=np.uint8).astype(np.int64)


def decode_text(packed: bytes) -> dict[str, Any]:
    """The facts that a row with encoded text records."""
    facts: dict[str, Any] = json.loads(bytes(decode_batch(packed).astype(np.uint8)))
    return facts


def encode_arrays(units: Integers, groups: Integers, extended: Integers) -> bytes:
    """A batch with groups as bytes: the units of its steps, and its tables of groups column by column.

    Columns of steps are written as differences, which repeat where groups have one length.
    """
    columns = [np.diff(groups[:, 0], prepend=0), groups[:, 1] - groups[:, 0], groups[:, 2]]
    gained = [np.diff(extended[:, 1], prepend=0), extended[:, 1] - extended[:, 0], extended[:, 2]]
    gained.append(extended[:, 3] - extended[:, 1])
    pieces = [encode_batch(units)]
    pieces += [encode_batch(np.ascontiguousarray(column)) for column in columns if len(groups)]
    pieces += [encode_batch(np.ascontiguousarray(column)) for column in gained if len(extended)]
    lengths = np.array([len(piece) for piece in pieces], dtype="<u4").tobytes()
    return _COUNTS.pack(len(pieces), len(groups), len(extended)) + lengths + b"".join(pieces)


def decode_arrays(packed: bytes) -> tuple[Integers, Integers, Integers]:
    """The units, groups and extended groups that `encode_arrays` packed."""
    try:
        count, groups, extended = _COUNTS.unpack_from(packed)
        at = _COUNTS.size + 4 * count
        pieces = []
        for length in np.frombuffer(packed, dtype="<u4", count=count, offset=_COUNTS.size).tolist():
            pieces.append(decode_batch(packed[at : at + length]))
            at += length
        begun, gained = np.zeros((groups, 3), dtype=np.int64), np.zeros((extended, 4), dtype=np.int64)
        if groups:
            steps, lengths, begun[:, 2] = pieces[1:4]
            begun[:, 0] = np.cumsum(steps)
            begun[:, 1] = begun[:, 0] + lengths
        if extended:
            steps, lengths, gained[:, 2], further = pieces[-4:]
            gained[:, 1] = np.cumsum(steps)
            gained[:, 0] = gained[:, 1] - lengths
            gained[:, 3] = gained[:, 1] + further
        return pieces[0], begun, gained
    except (struct.error, ValueError, IndexError, OverflowError):
        raise LedgerCorrupt("a batch in the ledger cannot be read; restore the file from a backup.") from None


def account_bytes(account: Account) -> bytes:
    """An account's snapshot as bytes; equal accounts have equal bytes."""
    snapshot = account.snapshot()
    content = b"".join(snapshot[name].astype("<i8").tobytes() for name in ("numbers", "spans", "runs"))
    shape = struct.pack("<II", len(snapshot["spans"]), len(snapshot["runs"]))
    packed = shape + zlib.compress(content, 1)
    if "queries" in snapshot:
        packed = struct.pack("<II", _DIVIDED, len(packed)) + packed
        packed += zlib.compress(snapshot["queries"].tobytes(), 1)
    return packed


def account_from(packed: bytes) -> dict[str, Any]:
    """The snapshot that `account_bytes` packed."""
    spans, runs = struct.unpack("<II", packed[:8])
    if spans == _DIVIDED:
        queries = np.frombuffer(zlib.decompress(packed[8 + runs :]), dtype=np.uint8)
        return {**account_from(packed[8 : 8 + runs]), "queries": queries}
    content = np.frombuffer(zlib.decompress(packed[8:]), dtype="<i8").astype(np.int64)
    split = len(content) - 3 * (spans + runs)
    return {
        "numbers": content[:split],
        "spans": content[split : split + 3 * spans].reshape(-1, 3),
        "runs": content[split + 3 * spans :].reshape(-1, 3),
    }
