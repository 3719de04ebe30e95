"""Recompute a log: every hash, every account, every silent step. A second reading, from rows that may be public."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from tidegate.core import arrays
from tidegate.core.account import Account
from tidegate.core.charges import SPAN_FIELDS, Charges
from tidegate.core.commit import FINISHED, HALTED, NO_HEAD, OPENED, PUSHED, RESTARTED, Row, head_of
from tidegate.core.errors import AccountRefused, LogDamaged
from tidegate.core.session import charges_of
from tidegate.errors import InvalidParameter

KINDS = (OPENED, PUSHED, HALTED, RESTARTED, FINISHED)


class Verification(NamedTuple):
    """What was found.

    Attributes
    ----------
    ok
        Whether everything agrees.
    reason
        A sentence, where it does not.
    commits, step
        How many commits were read, and the last step.
    head
        The hash of the last one that agrees.
    """

    ok: bool
    reason: str
    commits: int
    step: int
    head: bytes


class Damaged(Exception):
    """A row does not agree; raised and caught here."""


def verify(rows: Iterable[Row]) -> Verification:
    """Read the rows of a log from its beginning.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate._mechanisms.plain.uniform import Uniform
    >>> from tidegate.core.log import MemoryLog
    >>> from tidegate.core.session import Session
    >>> log = MemoryLog()
    >>> _ = Session(Uniform(tg.WEvent(epsilon="1", w=3)), log).push_batch([5, 0, 7, 2])
    >>> verify(log.rows())[:4]
    (True, '', 2, 4)
    """
    head, step, count = NO_HEAD, 0, 0
    accounts: list[Account] = []
    silent: list[float] = []  # of each query: the last step that must not be charged
    finished = False
    for row in rows:
        try:
            _check_chain(row, head, count, finished)
            if row.kind == OPENED:
                accounts = _accounts(row)
                silent = [0] * len(accounts)
            elif row.kind in (PUSHED, HALTED):
                _check_charges(row, accounts, step, silent)
            elif (row.first, row.last) != (step + 1, step) or (row.kind == FINISHED and row.charges):
                raise Damaged("charges steps although it only notes an event")
            if row.kind == HALTED:
                silent = [row.last + _steps(account) - 1 for account in accounts]
                for account in accounts:
                    account.end_spans()
            elif row.kind == RESTARTED:
                silent = _restarted(row, accounts, silent)
        except (Damaged, LogDamaged, AccountRefused, InvalidParameter) as error:
            return Verification(False, f"commit {count}: {error}", count, step, head)
        head, step, count = row.head, row.last if row.kind != OPENED else 0, count + 1
        finished = row.kind == FINISHED
    if not count:
        return Verification(False, "the log is empty.", 0, 0, head)
    return Verification(True, "", count, step, head)


def _check_chain(row: Row, head: bytes, count: int, finished: bool) -> None:
    if row.number != count or row.kind not in KINDS or (row.kind == OPENED) != (count == 0):
        raise Damaged("the commit is not the next one of this log")
    if finished:
        raise Damaged("the stream was finished before")
    try:
        expected = head_of(head, row[:4], row.charges, row.releases_digest, row.secret_digest)
        kept = row.releases is None or sha256(row.releases).digest() == row.releases_digest
    except (TypeError, struct.error):
        raise Damaged("the row is not one that Tidegate has written") from None
    if expected != row.head or not kept:
        raise Damaged("the hash is not that of its content")


def _accounts(row: Row) -> list[Account]:
    """An account for each query of the description."""
    try:
        described = json.loads(row.charges)["accounts"].values()
        return [Account(one["units"], one["window"], one["horizon"]) for one in described]
    except (ValueError, KeyError, TypeError):
        raise Damaged("the description of the queries cannot be read") from None


def _check_charges(row: Row, accounts: list[Account], step: int, silent: list[float]) -> None:
    found = charges_of(row)
    if len(found) != len(accounts) or row.first <= step:
        raise Damaged("the charges are not those of the queries, or of steps that are over")
    for account, quiet, (units, spans) in zip(accounts, silent, found, strict=True):
        if units.shape != (row.last - row.first + 1,) or spans.shape[1:] != (SPAN_FIELDS,):
            raise Damaged("the charges do not have one number per step")
        charges = Charges(row.first, units, spans)
        # after a halt or a restart nothing is charged, and no span begins, until its windows have passed
        hushed = int(min(max(0, quiet - row.first + 1), len(units)))
        if units[:hushed].any() or (hushed and (spans[spans[:, 4] > 0, 2] < row.first + hushed).any()):
            raise Damaged("charges a step that must be silent")
        if row.kind == HALTED:
            whole = account.fill(row.first + hushed, row.last).after_silence(hushed)
            if any(not np.array_equal(*pair) for pair in zip(charges[1:], whole[1:], strict=True)):
                raise Damaged("the halt does not charge all that was left")
        account.apply(account.check(charges))


def _steps(account: Account) -> float:
    return math.inf if account.window is None else account.window


def _restarted(row: Row, accounts: list[Account], silent: list[float]) -> list[float]:
    """Until when each query is silent now; those that begin anew have no spans any more."""
    found = arrays.decode(row.charges)
    if len(found) != 1 or found[0].dtype != np.int64 or found[0].shape != (len(accounts),):
        raise Damaged("the restart does not name a step for each query")
    told = [float(last) for last in found[0].tolist()]
    for account, last, before in zip(accounts, told, silent, strict=True):
        if last == before:
            continue
        if last != row.last + _steps(account) - 1:
            raise Damaged("the restart does not wait until its windows have passed")
        account.end_spans()
    return told
