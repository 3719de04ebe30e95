"""Recompute a log: every hash, account, scope and silent step. A second reading, from rows that may be public."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from fractions import Fraction
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from tidegate.core import arrays
from tidegate.core.account import Account
from tidegate.core.charges import FIRST, UNITS, Charges
from tidegate.core.commit import (
    AMENDED,
    EVENT,
    FINISHED,
    HALTED,
    NO_HEAD,
    OPENED,
    PUSHED,
    RESTARTED,
    Row,
    head_of,
)
from tidegate.core.errors import AccountRefused, LogDamaged, LogMismatch
from tidegate.core.parallel_account import PARTED, ParallelAccount
from tidegate.core.scope import Book, Scope, amended, begun
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.session import charges_of
from tidegate.errors import InvalidParameter
from tidegate.policy.swellfish import policy_from

KINDS = {
    OPENED: "opened",
    PUSHED: "pushed",
    HALTED: "halted",
    RESTARTED: "restarted",
    FINISHED: "finished",
    EVENT: "events",
    AMENDED: "amended",
}


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
    checked
        How many commits of each kind were recomputed, and of how many scopes the account.
    counts
        What they contain: charged steps, spans, and commits whose releases are there.
    private
        Whether the noise was fresh, as the log says. With fixed noise nothing is protected.
    """

    ok: bool
    reason: str
    commits: int
    step: int
    head: bytes
    checked: dict[str, int]
    counts: Counts
    private: bool

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {what}" for what, count in self.checked.items() if count)
        found = f"every hash, account, share and silent step of {self.commits} commits agrees ({counted})"
        return f"{found}; the last step is {self.step}." if self.ok else self.reason


class Counts(NamedTuple):
    """What the commits of a log contain.

    Attributes
    ----------
    steps
        Steps that were charged at least one unit, counted for every query.
    spans
        Spans that were begun.
    releases, dropped
        Commits whose releases are there, and those that were dropped after every sink had them.
    """

    steps: int = 0
    spans: int = 0
    releases: int = 0
    dropped: int = 0


class Damaged(Exception):
    """A row does not agree; raised and caught here."""


class Reading(NamedTuple):
    """A scope that is alive, as its rows say."""

    scope: Scope
    account: Account
    silent: float  # the last step that must not be charged


def verify(rows: Iterable[Row]) -> Verification:
    """Read the rows of a log from its beginning.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> from tidegate.core.log import MemoryLog
    >>> from tidegate.core.session import Session
    >>> log = MemoryLog()
    >>> _ = Session(Uniform(tg.WEvent(epsilon="1", window=3)), log).push_batch([5, 0, 7, 2])
    >>> print(verify(log.rows()))
    every hash, account, share and silent step of 2 commits agrees (1 opened, 1 pushed, 1 scopes); the last step is 4.
    """
    head, count, reader = NO_HEAD, 0, Reader()
    for row in rows:
        try:
            _check_chain(row, head, count, reader.finished)
            reader.read(row)
        except (Damaged, LogDamaged, LogMismatch, AccountRefused, InvalidParameter) as error:
            return reader.found(f"commit {count}: {error}", count, head)
        head, count = row.head, count + 1
    return reader.found("" if count else "the log is empty.", count, head)


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


class Reader:
    """Where a log stands after some of its rows."""

    def __init__(self) -> None:
        self.alive: dict[int, Reading] = {}
        self.book: Book
        self.step, self.finished = 0, False
        self.checked: dict[str, int] = {**dict.fromkeys(KINDS.values(), 0), "scopes": 0}
        self.counts, self.private = Counts(), True

    def found(self, reason: str, commits: int, head: bytes) -> Verification:
        """What there is to say after so many commits."""
        return Verification(
            not reason, reason, commits, self.step, head, self.checked, self.counts, self.private
        )

    def read(self, row: Row) -> None:
        """One more."""
        if row.kind in (PUSHED, HALTED):
            self._read_charges(row)
        elif (row.first, row.last) != (self.step + 1, self.step):
            raise Damaged("charges steps although it only notes an event")
        if row.kind in (OPENED, AMENDED):
            self._read_book(row)
        elif row.kind == EVENT:
            self._read_event(row)
        elif row.kind == RESTARTED:
            self._read_restart(row)
        self.step, self.finished = row.last, row.kind == FINISHED
        self.checked[KINDS[row.kind]] += 1
        if row.kind in (PUSHED, FINISHED):
            which = "dropped" if row.releases is None else "releases"
            self.counts = self.counts._replace(**{which: getattr(self.counts, which) + 1})

    def _read_book(self, row: Row) -> None:
        """Every scope that it begins, and when, follows from what was there before."""
        book = Book.decoded(row.charges)
        try:
            if row.kind == OPENED:
                expected = begun(book.description)
            else:
                steps = {each.scope.name: each.account.step for each in self.alive.values()}
                read = {
                    each.scope.name: each.account.step + bool(getattr(each.account, "event_units", 0))
                    for each in self.alive.values()
                }
                expected = amended(self.book, book.description, self.step, steps, read)
            self._check_policies(book)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise Damaged("the description of the queries cannot be read") from None
        if book != expected:
            raise Damaged("the scopes do not follow from what was described before")
        alive = {}
        for scope in book.alive:
            if scope.number in self.alive:
                alive[scope.number] = self.alive[scope.number]
                continue
            account = self._account(book.description["queries"][scope.name]["account"])
            named = [each for each in self.alive.values() if each.scope.name == scope.name]
            account.step = named[0].account.step if named else self.step
            alive[scope.number] = Reading(scope, account, scope.first - 1)
            self.checked["scopes"] += 1
        self.book, self.alive = book, alive
        self.private = self.private and book.description.get("private") is True

    def _account(self, described: Any) -> Account:
        """A new account of a description."""
        try:
            return account_from(described)
        except (ValueError, KeyError, TypeError):
            raise Damaged("the description of the queries cannot be read") from None

    def _check_policies(self, book: Book) -> None:
        """Each query says that it runs with its amount of the budget, and has the windows of the log."""
        for scope in book.alive:
            described = book.description["queries"][scope.name]
            policy = described["mechanism"].get("policy", {})
            for kind, amount in zip(
                ("epsilon", "rho", "delta"), (scope.amount[0], *scope.amount), strict=True
            ):
                if policy.get(kind) is not None and Fraction(policy[kind]) != amount:
                    raise Damaged(f"the query {scope.name!r} runs with another budget than its share")
            if (
                "kind" not in described["account"]
                and described["account"]["window"] != book.description["window"]
            ):
                raise Damaged(f"the query {scope.name!r} has other windows than the log")

    def _read_charges(self, row: Row) -> None:
        found = charges_of(row)
        if len({scope for scope, _ in found}) != len(found) or not self.alive.keys() >= {
            each for each, _ in found
        }:
            raise Damaged("the charges are not those of the queries")
        first = max(self.step + 1, min((charges.first for _, charges in found), default=0))
        last = max([self.step, *(charges.last for _, charges in found)])
        if (row.first, row.last) != (first, last):
            raise Damaged("the steps of the commit are not those of its charges")
        for scope, charges in found:
            self._check_charges(row.kind, self.alive[scope], charges)
        if row.kind == HALTED:
            for scope, each in self.alive.items():
                each.account.end_spans()
                silent = max(each.silent, each.account.step + _steps(each.account) - 1)
                self.alive[scope] = each._replace(silent=silent)

    def _check_charges(self, kind: int, reading: Reading, charges: Charges) -> None:
        _, account, silent = reading
        first, units, spans = charges
        # before a scope begins, and after a halt or a restart, nothing is charged, and no span begins
        hushed = int(min(max(0, silent - first + 1), len(units)))
        if units[:hushed].any() or (hushed and (spans[spans[:, UNITS] > 0, FIRST] < first + hushed).any()):
            raise Damaged("charges a step that must be silent")
        if kind == HALTED:
            whole = account.fill(first + hushed, charges.last).after_silence(hushed)
            if any(not np.array_equal(*pair) for pair in zip(charges[1:], whole[1:], strict=True)):
                raise Damaged("the halt does not charge all that was left")
        account.apply(account.check(charges))
        # rows of accounts side by side are no spans, and one that begins with these charges was not known before
        rows = [] if isinstance(account, ParallelAccount) else spans.tolist()
        begins = {(law, ordinal) for law, ordinal, since, _, cost in rows if cost and since >= first}
        counts = self.counts
        self.counts = counts._replace(
            steps=counts.steps + int(np.count_nonzero(units)), spans=counts.spans + len(begins)
        )

    def _read_event(self, row: Row) -> None:
        for scope, (first, units, spans) in charges_of(row):
            if scope not in self.alive or len(units) != 1 or units.dtype != np.int64 or len(spans):
                raise Damaged("the event does not charge the step in progress of a query")
            _, account, silent = self.alive[scope]
            if first != account.step + 1 or (first <= silent and units[0]):
                raise Damaged("the event does not charge the step in progress, or one that must be silent")
            account.check_event(int(units[0]))
            account.apply_event(int(units[0]))

    def _read_restart(self, row: Row) -> None:
        """Until when each query is silent now; those that restart have no spans any more."""
        found = arrays.decode(row.charges)
        if len(found) != 1 or found[0].dtype != np.int64 or found[0].shape != (len(self.book.alive),):
            raise Damaged("the restart does not name a step for each query")
        for scope, last in zip(self.book.alive, found[0].tolist(), strict=True):
            each = self.alive[scope.number]
            if last == each.silent:
                continue
            if last != each.account.step + _steps(each.account) - 1 or last < each.silent:
                raise Damaged("the restart does not wait until its windows have passed")
            each.account.end_spans()
            self.alive[scope.number] = each._replace(silent=last)


def _steps(account: Account) -> float:
    return math.inf if account.window is None else account.window


def account_from(described: dict[str, Any]) -> Account:
    """The account that `describe` described."""
    units, window, horizon = (described[name] for name in ("units", "window", "horizon"))
    kind = described.get("kind")
    if kind == "secrets":
        return SecretsAccount(policy_from(described["secrets"]), units)
    if kind in PARTED:
        same = [(units, window)] * described.get("parts", 0)
        return ParallelAccount(described.get("limits", same), horizon, kind)
    if kind is not None:
        raise Damaged(f"the account is of the kind {kind!r}, which is not known here")
    return Account(units, window, horizon)
