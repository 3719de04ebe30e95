"""What all durable ledgers share: hash-chained rows, a checkpoint, and transactions that the caller may join."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from typing import Any

import numpy as np

from tidegate import process
from tidegate.errors import LedgerCorrupt, LedgerError, LedgerMismatch, SnapshotError, TidegateError
from tidegate.exact import whole
from tidegate.ledger import file
from tidegate.ledger.base import TABLE, BadBaseError, Base, base_name, is_archive, read_base
from tidegate.ledger.events import Charge, Verdict
from tidegate.ledger.kernels import Integers
from tidegate.ledger.ledger import Ledger
from tidegate.ledger.places import Kept, Remembered, settled
from tidegate.ledger.replay import (
    BadRowError,
    Replay,
    begin_replay,
    checkpoint_digest,
    units_between,
    verdict_on,
    verify_connection,
)
from tidegate.ledger.rows import (
    NEW_KINDS,
    Row,
    account_bytes,
    account_from,
    chained,
    decode_batch,
    decode_text,
    genesis,
    row_of,
)
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule
from tidegate.ledger.secrets_rule import amendment_of
from tidegate.noise.entropy import fresh_name

CHECKPOINT_ROWS = (
    50_000  # rows between checkpoints, or an eighth of a long window: what opening may have to replay
)
_CHECKPOINT = (
    'INSERT INTO checkpoint VALUES (1, ?, ?, ?, ?) ON CONFLICT ("only") DO UPDATE SET '
    "row = excluded.row, hash = excluded.hash, account = excluded.account, digest = excluded.digest"
)
_INSERT = "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class DurableLedger(Ledger):
    """A ledger in a database: every charge is safe before it is granted.

    Attributes
    ----------
    where
        Where the database is, for messages; never with a password.
    connection
        The one connection: what the caller executes on it inside of `transaction()` is committed together with
        the charges.
    types
        How the database calls whole numbers and bytes in a table of the caller's own.
    """

    durable = True

    where: Any
    connection: Any
    read_only: bool
    types: Mapping[str, str]
    fingerprint: str
    name: str  # drawn at random when the ledger was made; empty for those of version 0.1
    identity: str  # digits that no other ledger has, unless both were begun by version 0.1 for the same
    _digest: bytes  # the hash of the last row
    _checkpoint_row: int
    _format: int  # of the rows, so far
    _kept: Kept
    archive: bool  # whether it is an archive, which is only read

    def told(self) -> AbstractContextManager[None]:
        """Every failure of the database as one sentence."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Begin a transaction."""
        raise NotImplementedError

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise LedgerError(
                f"the ledger {self.where} was opened read-only; open it for writing to charge it."
            )

    # where secret states are kept

    @property
    def place(self) -> str:
        """A number that is drawn anew wherever this ledger finds itself at another place than before."""
        return self._kept.nonce

    def _kept_here(self, name: str) -> bool:
        """Whether a state was kept at this place; those of earlier versions do not say where they were kept."""
        _, sign, nonce = name.rpartition("@")
        return nonce == self._kept.nonce if sign else self._kept.first

    def _here(self) -> str:
        """What the system calls the place of this database: no copy of it has the same."""
        raise NotImplementedError

    def _remembered(self) -> Remembered | None:
        """What lies beside the database and is not copied with it; None where nothing can."""
        return None

    def _remember(self, remembered: Remembered) -> None:
        """Put it there, on disk."""

    def _settle(self) -> None:
        """Find out whether this is the database that secret states were kept in, or a copy of it or an older one."""
        self._kept = settled(
            self.connection, self.types, self._rows, self._here(), self._remembered(), self._remember
        )

    def _let_go(self) -> None:
        """Give up the connection, and whatever else keeps others out."""
        self.connection.close()

    # opening

    def _take_up(
        self,
        policy: LedgerPolicy | None,
        meta: Mapping[str, str],
        wanted: Mapping[str, str] | None,
        fingerprint: str | None,
    ) -> None:
        """Compare what is there with what is wanted, and go on from it."""
        if wanted is not None:
            self._compare(meta, wanted, fingerprint is not None)
        try:
            stored = policy or file.stored_policy(meta)
            units, schedule = int(meta["units"]), _schedule(meta)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise LedgerCorrupt(
                f"the ledger {self.where} is damaged: nobody can read what it is for; restore it from a backup."
            ) from None
        Ledger.__init__(self, stored, units, schedule)
        self.fingerprint = meta.get("fingerprint", "")
        self.name = meta.get("stream", "")
        self.identity = genesis(meta).hex()[:32]
        self.marked = meta.get("marked") == "1"
        self._format = int(meta["format"])
        self._pending: list[tuple[Any, ...]] = []  # the rows of the present transaction
        self._load(meta)
        if self.archive and not self.read_only:
            raise LedgerMismatch(
                f"{self.where} is an archive of a ledger, to which nothing is added; give the ledger itself."
            )
        self._kept = Kept("", "", first=False)
        if not self.read_only:
            self._settle()

    def _compare(self, meta: Mapping[str, str], wanted: Mapping[str, str], fingerprint: bool) -> None:
        """Refuse a file that was opened for something else."""
        for name in ("policy", "budget", "window", "horizon", "units", "schedule"):
            if meta[name] != wanted[name]:
                raise LedgerMismatch(
                    f"the ledger {self.where} was opened for {name} {meta[name]} and is given "
                    f"{wanted[name]}; use the same as before, or a new file."
                )
        if fingerprint and meta.get("fingerprint") != wanted["fingerprint"]:
            raise LedgerMismatch(
                f"the ledger {self.where} belongs to another mechanism or configuration; "
                "use the same as before, or a new file."
            )

    def _load(self, meta: Mapping[str, str]) -> None:
        """Take the account up where the file left it: the checkpoint, and the rows after it."""
        database = self.connection
        database.execute("BEGIN")
        try:
            head = database.execute("SELECT rows, step, hash FROM head").fetchone()
            rows = database.execute("SELECT max(row) FROM charges").fetchone()[0] or 0
            self.archive = is_archive(database)
            base = read_base(database)
            replay = Replay(database, self.rule, self._account, 0, genesis(meta))
            replay.row, replay.digest = self._load_checkpoint(replay.digest, base)
            self._checkpoint_row = replay.row
            self._load_amendments(replay.row, base)
            replay.to(rows)
            if head is None or tuple(head) != (rows, self._account.last, replay.digest):
                raise BadRowError(rows, f"the head of the ledger does not belong to its last row, {rows}.")
            marks = database.execute("SELECT row FROM charges WHERE kind = 'mark' LIMIT 1").fetchone()
            self.marked = self.marked or marks is not None
            self._format = self._format_of_rows(rows)
            if base is not None:
                self.marked = self.marked or bool(base.facts.get("marked"))
                self._format = max(self._format, int(base.facts.get("format", 0)))
        except (BadRowError, BadBaseError) as error:
            raise LedgerCorrupt(f"the ledger {self.where} is damaged: {error}") from None
        finally:
            database.execute("ROLLBACK")
        self._rows, self._digest = replay.row, replay.digest

    def _load_checkpoint(self, start: bytes, base: Base | None) -> tuple[int, bytes]:
        """Restore the account from a sound checkpoint, or from the base; the row it stands at and that row's hash."""
        found = self._sound_checkpoint()
        if found is not None:
            return found
        if base is None:
            return 0, start
        base.restore(self._account)
        return base.row, base.hash

    def _sound_checkpoint(self) -> tuple[int, bytes] | None:
        """Restore the account from a checkpoint whose row is there; None where none can be believed."""
        found = self.connection.execute("SELECT row, hash, account, digest FROM checkpoint").fetchone()
        if found is None:
            return None
        row, digest, account, guard = found
        stored = self.connection.execute("SELECT hash FROM charges WHERE row = ?", (row,)).fetchone()
        if stored is None or stored[0] != digest or guard != checkpoint_digest(row, digest, account):
            return None
        try:
            self._account.restore(account_from(account))
        except (SnapshotError, ValueError, zlib.error):
            return None
        return int(row), bytes(digest)

    def _format_of_rows(self, rows: int) -> int:
        """The newest format that the rows say."""
        if self._format == file.FORMAT or not rows:
            return self._format
        found = self.connection.execute("SELECT 1 FROM charges WHERE kind = 'format' LIMIT 1").fetchone()
        return self._format if found is None else file.FORMAT

    def _load_amendments(self, row: int, base: Base | None) -> None:
        """Changes of Swellfish specifications up to the checkpoint, which keeps only charges."""
        if self._account.plain:
            return
        if base is not None:
            self._account.recall(base.facts["history"])
        wanted = "SELECT detail FROM charges WHERE kind = 'amend' AND row <= ? ORDER BY row"
        for (detail,) in self.connection.execute(wanted, (row,)):
            self._account.amend(amendment_of(decode_batch(detail)))  # type: ignore[attr-defined]

    @property
    def position(self) -> str:
        """The hash of the last row, which stands for all rows before it."""
        return self._digest.hex()

    # charging

    def _charging(self, first: int) -> AbstractContextManager[None]:
        """A charge is on disk before its method returns."""
        return self.transaction()

    def mark(self) -> None:
        """Record, in the chain, that test entropy was used."""
        if not self.marked:
            with self.transaction():
                step = max(self.step, 1)
                self._record("mark", Charge(step, step, 0, "test entropy"))
                self.marked = True

    def learnt(self, step: int, facts: Mapping[str, str]) -> None:
        """Write down what was learnt; on disk before this returns. See `Ledger.learnt`."""
        with self.transaction():
            super().learnt(step, facts)

    def _record(self, kind: str, charge: Charge, detail: Integers | bytes | None = None) -> None:
        if self._format < file.FORMAT and (kind in NEW_KINDS or (kind == "amend" and self._account.plain)):
            self._upgrade()
        self._insert(row_of(kind, charge, detail))

    def _upgrade(self) -> None:
        """Say in the chain of a ledger of format 1 that rows follow which it did not know."""
        step = max(self.step, 1)
        self._insert(row_of("format", Charge(step, step), np.array([file.FORMAT], dtype=np.int64)))
        self._format = file.FORMAT

    def _insert(self, row: Row) -> None:
        digest = chained(self._digest, row.message())
        with self.told():
            values = (self._rows + 1, *row, digest)
            self.connection.execute(_INSERT, values)
        self._pending.append(values)
        self._rows, self._digest = self._rows + 1, digest

    @contextmanager
    def transaction(self, *, unseen: bool = False) -> Iterator[None]:
        """Commit all charges inside, and the caller's writes through `connection`, together or not at all.

        An exception rolls the database and the account back; only what a run has released inside stays paid, if it may
        have been seen. Transactions nest; the outermost commits. See `Ledger.transaction`.
        """
        if not self._owned():
            self._depth = 0  # whatever an interruption may have left there
        with self._lock:
            self._check()
            before, rows, digest = self._account.mark(), self._rows, self._digest
            marked, version = self.marked, self._format
            outer, seen = self._depth, self._seen  # an interruption may leave other numbers there
            self._unseen = self._unseen if outer else unseen
            begun = False
            try:
                self._depth = outer + 1
                if not outer:
                    self._pending.clear()
                    self._begin()
                    begun = True
                yield
                if not outer:
                    self._finish(rows)
            except BaseException:
                if begun and not self.connection.in_transaction and self._committed(rows):
                    raise  # interrupted after the commit: what is on disk stays charged
                with self._section:  # what a handler would charge meanwhile would be taken back as well
                    if self._stays_paid(seen) and (outer or self._paid_again(rows)):
                        raise
                    self._undo(rows, outer)
                    self._account.undo(before)
                    self._digest, self.marked, self._format = digest, marked, version
                    self._take_back(rows)
                raise
            finally:
                self._depth = outer

    def _paid_again(self, rows: int) -> bool:
        """Roll back what the caller has written, but commit the charges; False where the database cannot."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._begin()
            with self.told():
                for values in self._pending:
                    self.connection.execute(_INSERT, values)
            self._finish(rows)
        except Exception:  # the first error is the one to raise; runs hear that their charges are gone
            return False
        return True

    def _undo(self, rows: int, outer: int) -> None:
        """Take the rows after so many out of the database, with the whole transaction or out of one that goes on."""
        if self.connection.in_transaction:
            if not outer:
                self.connection.execute("ROLLBACK")
            elif self._rows > rows:
                with self.told():
                    self.connection.execute("DELETE FROM charges WHERE row > ?", (rows,))
                self._pending[:] = [values for values in self._pending if values[0] <= rows]

    def _committed(self, rows: int) -> bool:
        """Whether a transaction that is over, though it failed, was committed; else the database has rolled it back."""
        if self._rows == rows:
            return False
        try:
            head = self.connection.execute("SELECT rows, hash FROM head").fetchone()
        except Exception:  # whatever it was: nobody knows what is on disk
            self._closed = "in doubt, since its database failed while charges were committed"
            return False
        return tuple(head) == (self._rows, self._digest)

    def _finish(self, rows: int) -> None:
        with self.told():
            if self._rows != rows:
                head = (self._rows, self.step, self._digest)
                self.connection.execute("UPDATE head SET rows = ?, step = ?, hash = ?", head)
                if self._rows - self._checkpoint_row >= max(CHECKPOINT_ROWS, len(self._account.rows()) // 8):
                    self._write_checkpoint()
            self.connection.execute("COMMIT")

    def _write_checkpoint(self) -> None:
        account = account_bytes(self._account)
        values = (self._rows, self._digest, account, checkpoint_digest(self._rows, self._digest, account))
        self.connection.execute(_CHECKPOINT, values)
        self._checkpoint_row = self._rows

    # reading and closing

    def spent(self, first: int | None = None, last: int | None = None) -> Fraction:
        """What the steps first to last were charged, however long ago."""
        account = self._account
        if first is None or last is None or self.shares or first >= account.kept_from:
            return super().spent(first, last)
        with self._lock:
            self._check()
            steps = whole("first", first), whole("last", last, least=0)
            with self.told():
                base = self.base()
                if base is not None and steps[0] <= base.step:
                    raise LedgerError(
                        f"what steps up to {base.step} were charged is in an archive of the ledger {self.where}; "
                        "ask that, or for later steps."
                    )
                return units_between(self.connection, self.rule, *steps) * self.unit

    @property
    def head(self) -> tuple[int, str]:
        """The number of the last row, and its hash."""
        with self._lock:
            return self._rows, self._digest.hex()

    def hash_of(self, row: int) -> str | None:
        """The hash of a row; None if there is no such row."""
        with self._lock:
            self._check()
            with self.told():
                found = self.connection.execute("SELECT hash FROM charges WHERE row = ?", (row,)).fetchone()
                base = self.base() if found is None else None
            if base is not None and base.row == row:
                return base.hash.hex()
            return None if found is None else bytes(found[0]).hex()

    @property
    def restored(self) -> bool:
        """Whether it is a copy that was put back and has been compared with no head, nor with the output's receipt."""
        return False

    def compared(self) -> None:
        """Forget that it was put back: a receipt has shown that it is the newest."""

    def base(self) -> Base | None:
        """What the rows go on from, where the first of them were archived."""
        try:
            return read_base(self.connection)
        except BadBaseError as error:
            raise LedgerCorrupt(f"the ledger {self.where} is damaged: {error}") from None

    def prune(self, row: int, facts: Mapping[str, Any]) -> None:
        """Forget the rows up to one, which an archive has, and keep the account that they add up to.

        Parameters
        ----------
        row
            The last of them.
        facts
            What else is remembered about what they were charged for, ready for JSON.
        """
        with self.transaction(), self.told():
            account = self.rule.account()
            meta = file.read_meta(self.connection, self.where)
            try:
                replay = begin_replay(self.connection, self.rule, account, meta)
                replay.to(row)
            except BadRowError as error:
                raise LedgerCorrupt(f"the ledger {self.where} is damaged: {error}") from None
            known = {**facts, "step": account.last, "marked": self.marked, "format": self._format}
            known["history"] = account.history()
            known["learnt"] = self._learnt_until(row)
            content = account_bytes(account)
            self._check_goes_on(Base(row, replay.digest, content, known, 0))
            self.connection.execute(TABLE.format(**self.types))
            step = max(self.step, 1)
            self._record("prune", Charge(step, step), base_name(row, replay.digest, content, known))
            Base(row, replay.digest, content, known, self._rows).put(self.connection)
            self.connection.execute("DELETE FROM charges WHERE row <= ?", (row,))
            self._write_checkpoint()

    def _check_goes_on(self, base: Base) -> None:
        """Refuse a base from which the rows after it do not lead to the present account."""
        account = self.rule.account()
        base.restore(account)
        Replay(self.connection, self.rule, account, base.row, base.hash).to(self._rows)
        if account_bytes(account) != account_bytes(self._account):
            raise LedgerError(
                f"the ledger {self.where} is not pruned at row {base.row}: an amendment of version 0.2 after it counts "
                "charges from before it; prune again when that is older than the steps that are kept."
            )

    def _learnt_until(self, row: int) -> dict[str, Any]:
        """What was learnt last, by scope, in rows up to one or in archives before them."""
        base = self.base()
        found = {} if base is None else dict(base.facts.get("learnt", {}))
        wanted = "SELECT scope, detail FROM charges WHERE kind = 'learnt' AND row <= ? ORDER BY row"
        for scope, detail in self.connection.execute(wanted, (row,)):
            found[scope] = decode_text(bytes(detail))
        return found

    def last_learnt(self, scope: str) -> dict[str, Any] | None:
        """What was learnt last under a scope; None where nothing was."""
        with self._lock:
            self._check()
            with self.told():
                found: dict[str, Any] | None = self._learnt_until(self._rows).get(scope)
                return found

    def last_row(self, query: str) -> tuple[int, bytes] | None:
        """The last charge of a query and its hash."""
        wanted = (
            "SELECT row, hash FROM charges WHERE (scope = ? OR substr(scope, 1, ?) = ?) "
            "AND kind NOT IN ('query', 'learnt') ORDER BY row DESC LIMIT 1"
        )
        values = (query, len(query) + 1, f"{query}:")
        found = self.connection.execute(wanted, values).fetchone()
        return None if found is None else (int(found[0]), bytes(found[1]))

    def verify(self) -> Verdict:
        """Replay the whole account from the first row; the verdict names the first bad row, if any."""
        owned = self._owned()
        with self._lock:
            self._check()
            if owned and self._depth:
                raise LedgerError("a transaction is open on this ledger; verify after it.")
            return verify_connection(self.connection, self.where)

    def taken_up(self) -> Verdict:
        """The verdict of a ledger that was just opened: its last checkpoint holds, and all rows after it."""
        with self._lock:
            self._check()
            base = self.base()
            archived = 0 if base is None else base.row
            before = self._checkpoint_row if self._checkpoint_row > archived else 0
            return verdict_on(
                self.rule,
                self._account,
                self._rows,
                self._digest,
                "",
                marked=self.marked,
                archived=archived,
                before=before,
            )

    def close(self) -> None:
        """Write a checkpoint and let the database go; further use is refused."""
        with self._lock:
            if self._closed:
                return
            if self._epoch is not process.epoch:
                file.abandon(self.connection)
                return
            self._closed = "closed"
            try:
                if not self.read_only and self._rows - self._checkpoint_row >= 1000:
                    with self.told():
                        self._begin()
                        self._write_checkpoint()
                        self.connection.execute("COMMIT")
            except TidegateError:
                pass  # a checkpoint only saves time; the rows are safe
            finally:
                self._let_go()

    def discard(self) -> None:
        """Close a ledger on which no stream has begun; its place is free again where it has one of its own."""
        self.close()


def _schedule(meta: Mapping[str, str]) -> Schedule:
    return "public" if meta["schedule"] == "public" else "adaptive"


def begun(meta: Mapping[str, str]) -> dict[str, str]:
    """What identifies a new ledger: what it is for, and a name that no other ledger has."""
    return {**meta, "stream": fresh_name()}


def meta_of(
    policy: LedgerPolicy | None, units: int | None, schedule: Schedule, fingerprint: str | None, marked: bool
) -> dict[str, str] | None:
    """What identifies a ledger, as text, hashed before the first row; None where policy or units are not given."""
    if policy is None or units is None:
        return None
    rule = Rule(policy, units, schedule)
    return {
        "format": str(file.FORMAT),
        "policy": json.dumps(policy.describe(), sort_keys=True, ensure_ascii=False),
        "budget": file.budget_text(policy.budget),
        "window": str(policy.window or 0),
        "horizon": str(policy.horizon or 0),
        "units": str(rule.units),
        "unit": str(rule.unit),
        "schedule": rule.schedule,
        "fingerprint": fingerprint or "",
        "marked": "1" if marked else "0",
    }
