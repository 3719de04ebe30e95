"""Replaying a durable ledger row by row: the proof that no window was overspent, or the first bad row."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import warnings
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.errors import LedgerCorrupt, TidegateError
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Account
from tidegate.ledger.base import BadBaseError, read_base
from tidegate.ledger.batch import whole_groups
from tidegate.ledger.divided import ROWS, DividedAccount, rule_of
from tidegate.ledger.divided import told as told_by_shares
from tidegate.ledger.events import Verdict
from tidegate.ledger.file import FORMAT, connect, read_meta, stored_policy, told
from tidegate.ledger.kernels import Integers
from tidegate.ledger.rows import (
    Row,
    account_bytes,
    chained,
    decode_arrays,
    decode_batch,
    decode_text,
    genesis,
    plain_hashes,
)
from tidegate.ledger.rules import Rule
from tidegate.ledger.secrets_rule import SecretsAccount
from tidegate.ledger.secrets_rule import told as told_by_rule

CHUNK = 20_000
_COLUMNS = "kind, first, last, units, scope, parts, detail"
# A chunk of plain rows as three long values: reading row by row would cost more than hashing does.
_PLAIN = (
    "SELECT count(*), total(kind = 'step' AND last = first AND parts = '' AND detail IS NULL), min(scope), "
    "max(scope), group_concat(first), group_concat(units), CAST(group_concat(hash, '') AS BLOB) "
    "FROM charges WHERE row BETWEEN ? AND ?"
)
# what reading raises where damage has made anything of what was stored
DAMAGE = (struct.error, zlib.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
NO_GROUPS, NO_EXTENDED = np.zeros((0, 3), dtype=np.int64), np.zeros((0, 4), dtype=np.int64)
_FULL = f"SELECT row, hash, {_COLUMNS} FROM charges WHERE row BETWEEN ? AND ? ORDER BY row"


class BadRowError(TidegateError):
    """Why the account cannot be believed from a certain row on."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def place_row(account: Account, rule: Rule, row: Row) -> bool:
    """Charge a recorded row to an account: whether that was allowed."""
    if row.kind in ("mark", "prune", "learnt"):
        return True
    if row.kind == "format":
        return np.array_equal(decode_batch(row.detail or b""), [FORMAT])
    if row.kind == "amend":
        return place_amendment(account, row)
    if isinstance(account, DividedAccount) and account.queries:
        return place_in_query(account, rule, row)
    return place_charge(account, rule, row)


def place_in_query(account: DividedAccount, rule: Rule, row: Row) -> bool:
    """Charge a recorded row to its query, or give that query the units that the row says: whether it was allowed."""
    query = account.query_of(row.scope)
    if query is None:
        return False
    if row.kind == "query":
        facts = decode_text(row.detail or b"")
        if "units" in facts:
            account.refine(query.name, int(facts["units"]))
        if "delta_units" in facts and account.delta is not None:
            account.delta.refine(query.name, int(facts["delta_units"]))
        return True
    if row.kind == "delta":
        part = None if account.delta is None else account.delta.queries.get(query.name)
        horizon = rule.policy.horizon
        if part is None or row.first <= part.since or row.last < row.first or row.units < 0:
            return False
        query.account.state[ROWS] += 1
        within = horizon is None or row.last <= horizon
        return within and part.account.place_group(row.first, row.last, row.units) is None
    allowed = _earliest(row) > query.since and place_charge(query.account, rule_of(query, rule), row)
    query.account.state[ROWS] += allowed
    return allowed


def _earliest(row: Row) -> int:
    """The first step that a row is about: that of a group which reaches on is the group's."""
    if row.kind == "extend":
        return int(min(row.first, *decode_batch(row.detail or b"").tolist()))
    if row.kind == "groups":
        return min(row.first, int(decode_arrays(row.detail or b"")[2][:, 0].min(initial=row.first)))
    return row.first


def place_charge(account: Account, rule: Rule, row: Row) -> bool:
    """Charge a recorded row to an account: whether that was allowed."""
    horizon = rule.policy.horizon
    if row.first < 1 or row.last < row.first or (horizon is not None and row.last > horizon):
        return False
    if row.kind == "batch":
        units = decode_batch(row.detail or b"")
        if len(units) != row.last - row.first + 1 or int(units.min(initial=0)) < 0:
            return False
        return account.place_batch(row.first, rule.costs(units)) is None
    if row.kind == "groups":
        return place_mixed(account, rule, row)
    charge = row.charge()
    if row.kind in ("span", "group"):
        if row.kind == "span" and charge.first < account[k.LAST]:
            return False
        return account.place_group(charge.first, charge.last, rule.cost(charge.units)) is None
    if row.kind == "extend":
        (first,) = decode_batch(row.detail or b"").tolist()
        group = (first, charge.first - 1, rule.cost(charge.units))
        return account.place_extension(group, charge.last) is None
    if row.kind != "step":
        return False
    if rule.adds or rule.schedule != "public":
        return account.place(charge.first, sum(rule.cost(size) for size in charge.sizes)) is None
    return all(account.place(charge.first, size) is None for size in [0, *charge.sizes])


def place_mixed(account: Account, rule: Rule, row: Row) -> bool:
    """Charge a recorded batch with groups to an account: whether that was allowed."""
    units, groups, extended = decode_arrays(row.detail or b"")
    if len(units) != row.last - row.first + 1 or int(units.min(initial=0)) < 0:
        return False
    groups = whole_groups(groups, 3, row.first, row.last)
    extended = whole_groups(extended, 4, row.first, row.last)
    horizon = rule.policy.horizon
    last = int(max(groups[:, 1].max(initial=0), extended[:, 3].max(initial=0)))
    if horizon is not None and last > horizon:
        return False
    groups[:, 2], extended[:, 2] = rule.costs(groups[:, 2]), rule.costs(extended[:, 2])
    return account.place_mixed(row.first, rule.costs(units), groups, extended) is None


def place_amendment(account: Account, row: Row) -> bool:
    """Change the specifications of an account as a row records: whether that was allowed."""
    change = decode_text(row.detail or b"")
    if change["now"] != account.last:
        return False
    if isinstance(account, SecretsAccount):
        account.amend(change)
        return True
    if isinstance(account, DividedAccount):
        shares = {name: Fraction(share) for name, share in change["shares"].items()}
        deltas = change.get("deltas")
        if deltas is not None:
            deltas = {name: Fraction(share) for name, share in deltas.items()}
        units, of_delta = change.get("units"), change.get("delta_units")
        account.divide(shares, Fraction(change["budget"]), change["now"], deltas, units, of_delta)
        return True
    return False


def place_plain(account: Account, rule: Rule, steps: Integers, units: Integers) -> int:
    """Charge plain rows to an account: the index of the first refused one, or -1."""
    compiled = account.plain and (rule.adds or rule.schedule != "public")
    costs, index = rule.costs(units), 0
    while index < len(steps):
        if compiled:
            index = int(k.account_place_many(account.entries, account.state, steps, costs, index))
            if index == len(steps):
                break
        # no room, a late charge, or an overspent window: the general path tells which
        if int(steps[index]) < 1 or account.place(int(steps[index]), int(costs[index])) is not None:
            return index
        index += 1
    return -1


def whole_numbers(text: str) -> Integers:
    """Numbers between commas; fewer of them when one is not whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy stops, and says so, at what is no number
        numbers: Integers = np.fromstring(text, dtype=np.int64, sep=",")
    return numbers


class Replay:
    """Walks through the rows of a ledger, checking numbers, hashes and windows."""

    def __init__(
        self, connection: sqlite3.Connection, rule: Rule, account: Account, row: int, digest: bytes
    ) -> None:
        self.connection = connection
        self.rule = rule
        self.account = account
        self.row = row  # the last row done
        self.digest = digest  # its hash
        self.marked = False
        self.archived = 0  # rows before this ledger's own

    def to(self, end: int) -> None:
        """Replay up to and including row `end`."""
        while self.row < end:
            first, last = self.row + 1, min(end, self.row + CHUNK)
            found = self.connection.execute(_PLAIN, (first, last)).fetchone()
            count, plain, scope, other, firsts, units, stored = found
            if count == plain == last - first + 1 and scope == other and len(stored) == 32 * count:
                steps, amounts = whole_numbers(firsts), whole_numbers(units)
                if len(steps) == len(amounts) == count:
                    self._plain(steps, amounts, scope, stored)
                    self.row, self.digest = last, stored[-32:]
                    continue
            self._one_by_one(first, last)

    def _plain(self, steps: Integers, units: Integers, scope: str, stored: bytes) -> None:
        wrong = plain_hashes(self.digest, steps, units, scope, stored)
        sound = int(wrong[0]) if len(wrong) else len(steps)
        negative = np.flatnonzero(units[:sound] < 0)
        refused = (
            int(negative[0]) if len(negative) else self._place_plain(steps[:sound], units[:sound], scope)
        )
        if refused >= 0:
            raise self._overspent(self.row + 1 + refused, int(steps[refused]))
        if len(wrong):
            raise self._edited(self.row + 1 + sound)

    def _place_plain(self, steps: Integers, units: Integers, scope: str) -> int:
        """Charge plain rows of one scope to whom they belong: the index of the first refused one, or -1."""
        account, rule = self.account, self.rule
        if not isinstance(account, DividedAccount) or not account.queries:
            return place_plain(account, rule, steps, units)
        query = account.query_of(scope)
        early = np.flatnonzero(steps <= (2**62 if query is None else query.since))
        if query is None or len(early):
            return int(early[0]) if len(early) else -1
        query.account.state[ROWS] += len(steps)
        return place_plain(query.account, rule_of(query, rule), steps, units)

    def _one_by_one(self, first: int, last: int) -> None:
        for number, stored, *columns in self.connection.execute(_FULL, (first, last)):
            if number != self.row + 1:
                raise BadRowError(
                    self.row + 1, f"row {self.row + 1} is missing; restore the file from a backup."
                )
            try:
                row = Row(*columns)
                digest = chained(self.digest, row.message())
            except DAMAGE:
                raise self._edited(number) from None
            if digest != stored:
                raise self._edited(number)
            try:
                allowed = place_row(self.account, self.rule, row)
            except (TidegateError, *DAMAGE):
                allowed = False
            if not allowed:
                raise self._overspent(number, row.first)
            self.marked = self.marked or row.kind == "mark"
            self.row, self.digest = number, digest
        if self.row < last:
            raise BadRowError(self.row + 1, f"row {self.row + 1} is missing; restore the file from a backup.")

    def _edited(self, row: int) -> BadRowError:
        return BadRowError(
            row,
            f"row {row} was edited, or does not follow row {row - 1}: its hash is not that of its content; "
            "restore the file from a backup.",
        )

    def _overspent(self, row: int, step: int) -> BadRowError:
        return BadRowError(
            row,
            f"row {row} charges step {step} more than a window may spend; the promise is broken there.",
        )


def begin_replay(
    connection: sqlite3.Connection, rule: Rule, account: Account, meta: dict[str, str]
) -> Replay:
    """Stand before the first row that there is, with the account that archived ones add up to."""
    try:
        base = read_base(connection)
        if base is None:
            return Replay(connection, rule, account, 0, genesis(meta))
        base.restore(account)
    except BadBaseError as error:
        raise BadRowError(0, str(error)) from None
    found = Replay(connection, rule, account, base.row, base.hash)
    found.archived, found.marked = base.row, bool(base.facts.get("marked"))
    return found


def verify_connection(connection: sqlite3.Connection, path: Path) -> Verdict:
    """Replay a whole ledger from its first row; every problem is in the verdict."""
    rule: Rule | None = None
    account: Account | None = None
    replay: Replay | None = None
    problem, bad_row, meta = "", None, {}
    try:
        with told(path):
            connection.execute("BEGIN")  # one consistent view, also while a writer goes on
            try:
                meta = read_meta(connection, path)
                rule = _rule(meta)
                account = rule.account()
                replay = begin_replay(connection, rule, account, meta)
                _verify(replay)
                _check_pages(connection)
            finally:
                connection.execute("ROLLBACK")
    except BadRowError as error:
        problem, bad_row = str(error), error.row
    except TidegateError as error:
        problem = str(error)
    except DAMAGE:
        problem = "something in the ledger is damaged, so that nobody can read it; restore it from a backup."
    if rule is None or account is None or replay is None:
        return Verdict(False, 0, 0, Fraction(0), (0, 0), "", None, problem=problem)
    marked = replay.marked or meta.get("marked") == "1"
    return verdict_on(
        rule, account, replay.row, replay.digest, problem, bad_row, marked=marked, archived=replay.archived
    )


def verdict_on(
    rule: Rule,
    account: Account,
    rows: int,
    digest: bytes,
    problem: str,
    bad_row: int | None = None,
    **more: Any,
) -> Verdict:
    """What an account says of itself, at a row; further fields as for `Verdict`."""
    window, end = rule.policy.window, account[k.WORST_END]
    found = Verdict(
        ok=not problem,
        rows=rows,
        steps=account.steps,
        spent=account[k.WORST] * rule.unit,
        place=(1 if window is None else max(1, end - window + 1), end),
        budget=rule.limit,
        window=window,
        head=digest.hex(),
        problem=problem,
        bad_row=bad_row,
        **more,
    )
    return told_by_shares(told_by_rule(found, account), account)


def _rule(meta: dict[str, str]) -> Rule:
    return Rule(stored_policy(meta), int(meta["units"]), meta["schedule"])  # type: ignore[arg-type]


def _verify(replay: Replay) -> None:
    connection = replay.connection
    heads = connection.execute("SELECT rows, step, hash FROM head").fetchall()
    if len(heads) != 1:
        raise BadRowError(0, "the head of the ledger is missing; restore the file from a backup.")
    rows, step, digest = heads[0]
    last = connection.execute("SELECT max(row) FROM charges").fetchone()[0] or 0
    checkpoint = connection.execute("SELECT row, hash, account, digest FROM checkpoint").fetchone()
    if checkpoint is not None and replay.row <= checkpoint[0] <= last:
        replay.to(checkpoint[0])
        kept = account_bytes(replay.account)
        if (
            checkpoint[1] != replay.digest
            or checkpoint[2] != kept
            or checkpoint[3] != checkpoint_digest(*checkpoint[:3])
        ):
            raise BadRowError(
                checkpoint[0],
                f"the checkpoint after row {checkpoint[0]} is not what the rows add up to; "
                "restore the file from a backup.",
            )
    replay.to(last)
    if last < rows:
        raise BadRowError(
            last + 1,
            f"row {last + 1} is missing: the head counts {rows} rows; restore a backup.",
        )
    if (rows, step, digest) != (replay.row, replay.account.last, replay.digest):
        raise BadRowError(
            last,
            f"the head of the ledger does not belong to its last row, {last}; restore a backup.",
        )


def _check_pages(connection: sqlite3.Connection) -> None:
    """Refuse a file of which any page is damaged, whatever stands there; a server sees to its own."""
    if not isinstance(connection, sqlite3.Connection):
        return
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found is None or found[0] != "ok":
        raise LedgerCorrupt("a page of the ledger's file is damaged; restore it from a backup.")


def units_between(connection: sqlite3.Connection, rule: Rule, first: int, last: int) -> int:
    """What all rows charged to the steps first to last, groups that meet them included."""
    total = 0
    # groups of a batch may reach further than its steps do
    wanted = f"SELECT {_COLUMNS} FROM charges WHERE first <= ? AND (last >= ? OR kind = 'groups')"
    for columns in connection.execute(wanted, (last, first)):
        row = Row(*columns)
        if row.kind in ("batch", "groups"):
            units, groups, extended = (
                decode_arrays(row.detail or b"")
                if row.kind == "groups"
                else (decode_batch(row.detail or b""), NO_GROUPS, NO_EXTENDED)
            )
            inside = rule.costs(units)[max(0, first - row.first) : max(0, last - row.first + 1)]
            met = groups[(groups[:, 0] <= last) & (groups[:, 1] >= first), 2]
            entered = extended[(extended[:, 1] < first) & (extended[:, 3] >= first), 2]
            total += sum(int(rule.costs(part).sum()) for part in (met, entered)) + int(inside.sum())
        elif row.kind == "extend":  # counted already where the group had met these steps before
            total += rule.cost(row.units) if row.first <= first else 0
        elif row.kind not in ("mark", "format", "amend", "query", "delta", "prune", "learnt"):
            total += sum(rule.cost(size) for size in row.charge().sizes)
    return total


def checkpoint_digest(row: int, digest: bytes, account: bytes) -> bytes:
    """Guards a checkpoint against damage."""
    return hashlib.sha256(json.dumps([row, digest.hex()]).encode() + account).digest()


def verify_file(path: str | Path) -> Verdict:
    """Check the ledger in a file, without its program, its policy or a lock; the verdict names damage.

    A file that is no ledger at all raises `LedgerError`.

    Parameters
    ----------
    path
        The file of the ledger.

    Examples
    --------
    >>> import tempfile, tidegate as tg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with tg.open(tg.mechanisms.Uniform(tg.Event(epsilon="1")), f"{folder}/s.ledger") as run:
    ...         release = run.push(7)
    ...     verify_file(f"{folder}/s.ledger").ok
    True
    """
    where = Path(path).resolve()
    with told(where):
        connection = connect(where, read_only=True)
    try:
        return verify_connection(connection, where)
    finally:
        connection.close()
