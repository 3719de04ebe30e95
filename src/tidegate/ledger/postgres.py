"""A durable ledger in PostgreSQL, for streams whose workers come and go; exactly one of them drives a stream.

The rows, hashes and checks are those of the ledger in a file. Each stream has a schema of its own in the database,
named by the fragment of the URL: ``postgresql://user@host/database#campus``.

The lease has two parts. A worker holds an advisory lock of its session, so that a second one is refused at once
and a dead one's lease ends with its session (the server looks for a silent worker every few seconds). And every
opening raises a number that each transaction compares while it locks it: a worker that was taken for dead, or
whose lock a connection pool has lost, cannot commit any more.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tidegate.errors import (
    LedgerBusy,
    LedgerError,
    LedgerMismatch,
    TidegateError,
)
from tidegate.ledger import file, replay
from tidegate.ledger.durable import DurableLedger, begun, meta_of
from tidegate.ledger.events import Verdict
from tidegate.ledger.postgres_connection import Connection, Place, is_url
from tidegate.ledger.rows import genesis
from tidegate.ledger.rules import LedgerPolicy, Schedule

__all__ = ["Place", "PostgresLedger", "is_url", "replication", "verify_url"]

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
        wanted = meta_of(policy, units, schedule, fingerprint, marked)
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
        if self.connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
            raise LedgerError(
                f"the server of the ledger {self.where} is a replica, or still recovers, and takes no charges; name the "
                "primary server, or promote this one and compare it with a head first."
            )
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
        wanted = begun(wanted)
        self.connection.execute("BEGIN")
        try:
            self.connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{place.schema}"')
            for statement in _TABLES.split(";\n"):
                self.connection.execute(statement)
            self.connection.executemany("INSERT INTO meta VALUES (?, ?)", list(wanted.items()))
            self.connection.execute("INSERT INTO head VALUES (1, 0, 0, ?)", (genesis(wanted),))
            self.connection.execute("COMMIT")
        except TidegateError:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def _here(self) -> str:
        # a schema that was dumped and put back has other numbers, and a database that was made from it as a template
        found = self.connection.execute(
            "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text, "
            "'head'::regclass::oid::text, has_function_privilege('pg_control_system()', 'execute')"
        ).fetchone()
        server = ""
        if found[2]:  # as everywhere by default
            server = self.connection.execute(
                "SELECT system_identifier::text FROM pg_control_system()"
            ).fetchone()[0]
        return ".".join((server, *found[:2]))

    def _begin(self) -> None:
        self._refuse_read_only()
        if self.connection.leased() != (self._worker,):
            raise LedgerBusy(
                f"another worker has taken over the ledger {self.where}; nothing was charged; let it go on."
            )


def replication(url: str) -> str:
    """What a failover of a ledger's server could forget, in words; empty where it has no replicas, or waits for them."""
    connection = Connection(Place(url))
    try:
        replicas = int(connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone()[0])
        waits = connection.execute("SHOW synchronous_standby_names").fetchone()[0] != ""
    finally:
        connection.close()
    if waits or not replicas:
        return ""
    return (
        f"its server has {replicas} {'replica' if replicas == 1 else 'replicas'} and commits do not wait for one, so "
        "that a failover may forget charges; set synchronous_standby_names"
    )


def _exists(connection: Connection, place: Place) -> bool:
    found = connection.execute("SELECT to_regclass(?)::text", (f'"{place.schema}".head',)).fetchone()
    return found[0] is not None


def verify_url(url: str) -> Verdict:
    """Check the ledger at a URL, without its program, its policy or the lease; the verdict names damage."""
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
