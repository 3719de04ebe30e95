"""Recompute a log: every hash, every account, every silent step. A second reading, from rows that may be public."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidegate.core.account import Account
from tidegate.core.charges import Charges
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
    finished = False
    for row in rows:
        try:
            _check_chain(row, head, count, finished)
            if row.kind == OPENED:
                accounts = _accounts(row)
            elif row.kind == PUSHED or row.kind == HALTED:
                _check_charges(row, accounts, step)
            elif row.charges or row.last != step:
                raise Damaged("charges steps although it only notes an event")
            if row.kind in (HALTED, RESTARTED):
                for account in accounts:
                    account.end_spans()
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
    if head_of(head, row[:4], row.charges, row.releases_digest, row.secret_digest) != row.head:
        raise Damaged("the hash is not that of its content")


def _accounts(row: Row) -> list[Account]:
    """An account for each query of the description."""
    try:
        described = json.loads(row.charges)["accounts"].values()
        return [Account(one["units"], one["window"], one["horizon"]) for one in described]
    except (ValueError, KeyError, TypeError):
        raise Damaged("the description of the queries cannot be read") from None


def _check_charges(row: Row, accounts: list[Account], step: int) -> None:
    found = charges_of(row)
    if len(found) != len(accounts) or row.first <= step:
        raise Damaged("the charges are not those of the queries, or of steps that are over")
    for account, (units, spans) in zip(accounts, found, strict=True):
        if len(units) != row.last - row.first + 1 or units.dtype != np.int64 or spans.shape[1:] != (5,):
            raise Damaged("the charges do not have one number per step")
        account.apply(account.check(Charges(row.first, units, spans)))
