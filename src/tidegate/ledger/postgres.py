"""A durable ledger in PostgreSQL, for streams whose workers come and go; exactly one of them drives a stream.

The rows, hashes and checks are those of the ledger in a file. Each stream has a schema of its own in the database,
named by the fragment of the URL: ``postgresql://user@host/database#campus``.

The lease has two parts. A worker holds an advisory lock of its session, so that a second one is refused at once
and a dead one's lease ends with its session (the server looks for a silent worker every few seconds). And every
opening raises a number that each transaction compares while it locks it: a worker that was taken for dead, or
whose lock a connection pool has lost, cannot commit any more.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tidegate import process
from tidegate.errors import (
    InvalidParameter,
    LedgerBusy,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
    TidegateError,
)
from tidegate.ledger import file, replay
from tidegate.ledger.durable import DurableLedger, meta_of
from tidegate.ledger.events import Verdict
from tidegate.ledger.rows import genesis
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule

SCHEMES = ("postgresql", "postgres")
PATIENCE = 10.0  # seconds to wait for the session of a worker that has just died
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE charges (row BIGINT PRIMARY KEY, kind TEXT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
                      units BIGINT NOT NULL, scope TEXT NOT NULL, parts TEXT NOT NULL, detail BYTEA,
                      hash BYTEA NOT NULL);
CREATE INDEX marks ON charges (row) WHERE kind IN ('mark', 'amend');
CREATE TABLE head ("only" INTEGER PRIMARY KEY CHECK ("only" = 1), rows BIGINT NOT NULL, step BIGINT NOT NULL,
                   hash BYTEA NOT NULL);
CREATE TABLE checkpoint ("only" INTEGER PRIMARY KEY CHECK ("only" = 1), row BIGINT NOT NULL, hash BYTEA NOT NULL,
                         account BYTEA NOT NULL, digest BYTEA NOT NULL);
CREATE TABLE lease ("only" INTEGER PRIMARY KEY CHECK ("only" = 1), worker BIGINT NOT NULL);
INSERT INTO lease VALUES (1, 0)
"""
# What the two databases spell differently.
_SPELT = {
    replay._PLAIN: "SELECT count(*), coalesce(sum((kind = 'step' AND last = first AND parts = '' AND detail IS NULL)"
    "::int), 0), min(scope), max(scope), string_agg(first::text, ',' ORDER BY row), "
    "string_agg(units::text, ',' ORDER BY row), string_agg(hash, ''::bytea ORDER BY row) "
    "FROM charges WHERE row BETWEEN %s AND %s",
    "BEGIN": "BEGIN ISOLATION LEVEL REPEATABLE READ",  # one consistent view, as in a file
}
_LEASED = "BEGIN; SELECT worker FROM lease FOR UPDATE"


def is_url(target: object) -> bool:
    """Whether a ledger's target is a database rather than a file."""
    return isinstance(target, str) and target.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


class Place:
    """Where a stream's ledger is: a database, and a schema in it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.schema = parts.fragment or "tidegate"
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self.schema) or self.schema.startswith("pg_"):
            raise InvalidParameter(
                "ledger",
                f"#{self.schema}",
                "a URL that ends in # and a name of small letters, digits and _",
                "write for example postgresql://host/database#campus",
            )
        self.address = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        self.shown = f"{parts.scheme}://{host}{parts.path}#{self.schema}"

    @property
    def key(self) -> int:
        """The number of the advisory lock."""
        digest = hashlib.sha256(f"tidegate ledger {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


class Connection:
    """A connection that is used like one to SQLite: `execute` with question marks, every failure one sentence."""

    def __init__(self, place: Place) -> None:
        try:
            self._psycopg = importlib.import_module("psycopg")
        except ImportError:
            raise LedgerError(
                'a ledger in PostgreSQL needs the extra "postgres"; install tidegate[postgres].'
            ) from None
        self.place = place
        self._spelt: dict[str, str] = dict(_SPELT)
        with self.told():
            self._connection = self._psycopg.connect(place.address, autocommit=True, connect_timeout=10)
        # a worker that has vanished without a word loses its session, and with it the lease, within half a minute
        for setting, value in (
            ("synchronous_commit", "on"),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            ("search_path", place.schema),
        ):
            self.execute(f"SET {setting} TO {value}")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn every failure of the database into one sentence."""
        errors = self._psycopg.errors
        where = self.place.shown
        try:
            yield
        except self._psycopg.Error as error:
            if isinstance(error, errors.DiskFull):
                sentence = f"the disk of the ledger {where} is full; nothing was charged; free some space."
            elif isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
                sentence = (
                    f"the ledger {where} cannot be written; give this user the right to, or use another."
                )
            elif isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
                raise LedgerCorrupt(
                    f"the ledger {where} lacks a table or a column; restore it from a backup."
                ) from None
            elif isinstance(error, self._psycopg.OperationalError):
                sentence = (
                    f"the database of the ledger {where} cannot be reached; nothing that was not committed has left; "
                    "start again when it is back."
                )
            else:
                sentence = (
                    f"the ledger {where} cannot be used ({type(error).__name__}); nothing was charged; "
                    "check the database and try again."
                )
        else:
            return
        raise LedgerError(sentence)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement that is written with question marks."""
        text = self._spelt.get(statement)
        if text is None:
            text = self._spelt[statement] = statement.replace("?", "%s")
        with self.told():
            return self._connection.execute(text, values or None)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        for row in rows:
            self.execute(statement, row)

    def leased(self) -> Any:
        """Begin a transaction and lock the lease: the number of the worker that may write."""
        with self.told():
            cursor = self._connection.execute(_LEASED)
            cursor.nextset()
            return cursor.fetchone()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, sound or failed."""
        if self._connection.closed:
            return False
        return int(self._connection.info.transaction_status) != 0

    def close(self) -> None:
        """End the session, and with it the lease."""
        self._connection.close()


class PostgresLedger(DurableLedger):
    """The whole account in a schema of a PostgreSQL database.

    Parameters
    ----------
    url
        "postgresql://user@host/database#name"; the name is the schema, made if there is none.
    policy, units, schedule, fingerprint, read_only
        As for `SQLiteLedger`.

    One worker at a time drives a ledger, by a lease that ends with its session. Each charge is committed
    (synchronous_commit=on) before the call returns.
    """

    types = {"integer": "BIGINT", "bytes": "BYTEA"}  # noqa: RUF012  read only

    def __init__(
        self,
        url: str,
        policy: LedgerPolicy | None = None,
        units: int | None = None,
        schedule: Schedule = "adaptive",
        *,
        fingerprint: str | None = None,
        marked: bool = False,
        read_only: bool = False,
    ) -> None:
        place = Place(url)
        self.where, self.read_only, self._depth, self._worker = place.shown, read_only, 0, 0
        wanted = None
        if policy is not None and units is not None:
            wanted = meta_of(Rule(policy, units, schedule), fingerprint or "", marked)
        self.connection = Connection(place)
        try:
            if not read_only:
                self._take_lease(place)
                self._create(place, wanted)
                worker = self.connection.execute("UPDATE lease SET worker = worker + 1 RETURNING worker")
                self._worker = worker.fetchone()[0]
            elif not _exists(self.connection, place):
                raise LedgerError(
                    f"there is no ledger at {self.where}; check the database and the name after #."
                )
            meta = file.read_meta(self.connection, self.where)
            self._take_up(policy, meta, wanted, fingerprint)
        except BaseException:
            self.connection.close()
            raise

    def told(self) -> AbstractContextManager[None]:
        """Nothing to add: the connection tells every failure itself."""
        return nullcontext()

    def _take_lease(self, place: Place) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.connection.execute("SELECT pg_try_advisory_lock(?)", (place.key,)).fetchone()[0]:
            if time.monotonic() > deadline:
                raise LedgerBusy(f"another worker drives the ledger {self.where}; stop it, or let it go on.")
            time.sleep(0.05)
        if self.connection.execute("SHOW fsync").fetchone()[0] != "on":
            raise LedgerError(
                f"the server of the ledger {self.where} runs with fsync off, so nothing it commits is safe; "
                "switch it on."
            )

    def _create(self, place: Place, wanted: dict[str, str] | None) -> None:
        """Make all tables in one transaction, where there are none."""
        if _exists(self.connection, place):
            return
        if wanted is None:
            raise LedgerError(f"there is no ledger at {self.where}; give a policy and units to create one.")
        self.connection.execute("BEGIN")
        try:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {place.schema}")
            for statement in _TABLES.split(";\n"):
                self.connection.execute(statement)
            self.connection.executemany("INSERT INTO meta VALUES (?, ?)", list(wanted.items()))
            self.connection.execute("INSERT INTO head VALUES (1, 0, 0, ?)", (genesis(wanted),))
            self.connection.execute("COMMIT")
        except TidegateError:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def _begin(self) -> None:
        if self.read_only:
            raise LedgerError(
                f"the ledger {self.where} was opened read-only; open it for writing to charge it."
            )
        if self.connection.leased() != (self._worker,):
            raise LedgerBusy(
                f"another worker has taken over the ledger {self.where}; nothing was charged; let it go on."
            )

    def close(self) -> None:
        """Write a checkpoint, end the session and give up the lease; further use is refused."""
        with self._lock:
            if self._closed:
                return
            if self._epoch is not process.epoch():
                file.abandon(self.connection)
                return
            self._closed = "closed"
            try:
                if not self.read_only and self._rows - self._checkpoint_row >= 1000:
                    self._begin()
                    self._write_checkpoint()
                    self.connection.execute("COMMIT")
            except TidegateError:
                pass  # a checkpoint only saves time; the rows are safe
            finally:
                self.connection.close()


def _exists(connection: Connection, place: Place) -> bool:
    found = connection.execute("SELECT to_regclass(?)::text", (f"{place.schema}.head",)).fetchone()
    return found[0] is not None


def verify_url(url: str) -> Verdict:
    """Check the ledger at a URL, without its program, its policy or the lease; damage is told in the verdict."""
    place = Place(url)
    connection: Any = Connection(place)
    try:
        if not _exists(connection, place):
            raise LedgerMismatch(
                f"there is no ledger at {place.shown}; check the database and the name after #."
            )
        where: Any = place.shown
        return replay.verify_connection(connection, where)
    finally:
        connection.close()
