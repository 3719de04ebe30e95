"""Logs in a PostgreSQL database, and commits that several of them share.

A database has any number of logs, known by name: ``postgresql://user@host/database#campus``. A commit is one statement,
which compares the head of a log, replaces it and writes the row; the server has it on disk before it answers. So there is
no transaction that is left open, and nobody sees half of one. Logs of one `Group` share a connection, and pushes of
several threads that wait for it share a statement.

A secret belongs to the table that it was written in, known by the server's identifier and timeline and by the numbers of
database, table and log: in a copy, and after a failover or a recovery to an earlier time, it is not used. Columns are not
compressed, so that the size of what is written depends on shapes alone. PostgreSQL keeps old versions of rows, with old
secrets, until it reuses their place, and in its own write-ahead log: whoever reads the server's files reads them.
"""

from __future__ import annotations

import importlib
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, get_ident
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tidegate.core.commit import NO_HEAD, Commit, Row, row_and_secret
from tidegate.core.errors import Fenced, LogDamaged, LogMismatch, SessionClosed
from tidegate.core.log import FENCED, Head, Loaded, Log
from tidegate.core.turns import REENTERED, Turns
from tidegate.errors import InvalidParameter, MissingPart, TidegateError, port_of
from tidegate.noise.entropy import fresh_bytes
from tidegate.servers.postgres import SCHEMES, ServerAway, ServerRefuses, Watchdog

ANSWER = 30.0  # seconds that a server may take for one statement, all of which are short
BLOCK = 256  # rows that are read at once
MOST = 256  # commits that share a statement
LOCK = 0x7467_6C6F_6773  # "tglogs": the advisory lock of whoever makes the tables
VERSION = "tidegate logs 1"
TABLES = f"""
CREATE SCHEMA IF NOT EXISTS tidegate;
CREATE TABLE tidegate.logs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, head BYTEA NOT NULL,
    number BIGINT NOT NULL, place TEXT, secret BYTEA, driver BYTEA
) WITH (fillfactor = 50);
CREATE TABLE tidegate.commits (
    log BIGINT NOT NULL, number BIGINT NOT NULL, kind BIGINT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
    charges BYTEA NOT NULL, releases BYTEA, releases_digest BYTEA NOT NULL, secret_digest BYTEA NOT NULL,
    head BYTEA NOT NULL, PRIMARY KEY (log, number)
);
CREATE INDEX commits_last ON tidegate.commits (log, last, number);
CREATE INDEX commits_head ON tidegate.commits (head);
ALTER TABLE tidegate.logs ALTER COLUMN secret SET STORAGE EXTERNAL;
ALTER TABLE tidegate.commits ALTER COLUMN charges SET STORAGE EXTERNAL, ALTER COLUMN releases SET STORAGE EXTERNAL;
COMMENT ON TABLE tidegate.logs IS '{VERSION}';
"""
COLUMNS = "c.number, kind, first, last, charges, releases, releases_digest, secret_digest, c.head"
PLACE = (
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text, "
    "'tidegate.logs'::regclass::oid::text, has_function_privilege('pg_control_system()', 'execute')"
)
DRIVER = "SELECT 1 FROM pg_attribute WHERE attrelid = 'tidegate.logs'::regclass AND attname = 'driver'"
# of the server's write-ahead log: another one begins where a replica takes over, and after a recovery to an earlier time
TIMELINE = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"
ONE = """
WITH swapped AS (
    UPDATE tidegate.logs SET head = %b, number = %s, place = %s, secret = %b WHERE id = %s AND head = %b
        AND driver IS NOT DISTINCT FROM %b::bytea RETURNING id
)
INSERT INTO tidegate.commits SELECT id, %s, %s, %s, %s, %b, %b, %b, %b, %b FROM swapped RETURNING log
"""
MANY = """
WITH given AS (
    SELECT * FROM unnest(%s::bigint[], %b::bytea[], %b::bytea[], %s::text[], %b::bytea[], %s::bigint[], %s::bigint[],
        %s::bigint[], %s::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[])
    AS g (id, expected, driver, place, secret, number, kind, first, last, charges, releases, releases_digest,
        secret_digest, head)
), swapped AS (
    UPDATE tidegate.logs AS l SET head = g.head, number = g.number, place = g.place, secret = g.secret
    FROM given AS g WHERE l.id = g.id AND l.head = g.expected
        AND l.driver IS NOT DISTINCT FROM g.driver RETURNING l.id
)
INSERT INTO tidegate.commits
SELECT id, number, kind, first, last, charges, releases, releases_digest, secret_digest, head
FROM given JOIN swapped USING (id) RETURNING log
"""


def is_url(target: object) -> bool:
    """Whether a log's target is a database rather than a file."""
    return isinstance(target, str) and target.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


class Address:
    """Where logs are, without a secret in what is shown."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        port = port_of("log", parts)
        host = f"{parts.hostname or ''}{f':{port}' if port else ''}"
        self.name = parts.fragment or "tidegate"
        check_name(self.name, parts.scheme)
        self.address = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
        self.shown = f"{parts.scheme}://{host}{parts.path}"


def check_name(name: str, scheme: str = "postgresql") -> None:
    """Refuse a name that is none, without showing it: the end of a password may stand in its place."""
    if not re.fullmatch(r"[a-z_][a-z0-9_.-]{0,62}", name):
        raise InvalidParameter(
            "log",
            f"{scheme}://…#…",
            "a URL that ends in # and a name of small letters, digits, _, . and -, and a # in a password written as %23",
            "write for example postgresql://host/database#campus",
        )


class Connection:
    """A connection that answers in time or ends; its failures are one sentence each. It is made again when it is lost."""

    def __init__(self, address: Address) -> None:
        try:
            self._psycopg = importlib.import_module("psycopg")
        except ImportError:
            raise MissingPart(
                'a log in PostgreSQL needs the extra "postgres"; install tidegate[postgres].'
            ) from None
        self._address, self._process = address, os.getpid()
        self._connection: Any = None
        self._watchdog: Watchdog | None = None

    def _connect(self) -> None:
        self.close()
        self._connection = self._psycopg.connect(
            self._address.address,
            autocommit=True,
            connect_timeout=10,
            application_name="tidegate",
            client_encoding="UTF8",
        )
        self._watchdog = Watchdog(self._connection.fileno(), ANSWER)
        for setting, value in (
            ("synchronous_commit", "on"),
            ("default_transaction_isolation", "'read committed'"),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ):
            self._connection.execute(f"SET {setting} TO {value}")

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn every failure of the database into one sentence, without what it says about the data."""
        where, known = self._address.shown, self._psycopg.errors
        try:
            yield
        except self._psycopg.Error as error:
            found: TidegateError
            if isinstance(error, known.DiskFull):
                found = ServerRefuses(f"the disk of the logs at {where} is full; free some space.")
            elif isinstance(error, known.ReadOnlySqlTransaction | known.InsufficientPrivilege):
                found = ServerRefuses(
                    f"the logs at {where} cannot be written; give this user the right to, or name the primary server."
                )
            elif isinstance(error, known.UndefinedTable | known.UndefinedColumn):
                found = LogDamaged(f"the logs at {where} lack a table or a column; restore a backup.")
            elif (
                isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError) or self.lost
            ):
                found = ServerAway(
                    f"the database of the logs at {where} cannot be reached; open the log again when it is back."
                )
            else:
                found = ServerRefuses(
                    f"the logs at {where} cannot be used ({type(error).__name__}); check the database."
                )
        else:
            return
        raise found

    @property
    def lost(self) -> bool:
        """Whether there is no connection, or it is gone."""
        connection = self._connection
        return connection is None or connection.closed or connection.broken

    def all(self, statement: str, values: Sequence[Any] = (), *, again: bool = True) -> list[Any]:
        """The rows of one statement, which is a transaction of its own."""
        with self._described():
            if self.lost:
                self._connect()
            assert self._watchdog is not None
            with self._watchdog:
                found = self._connection.execute(statement, values or None, prepare=again, binary=True)
                return [] if found.description is None else list(found.fetchall())

    def run(self, script: str) -> None:
        """Several statements in one transaction."""
        with self._described():
            if self.lost:
                self._connect()
            assert self._watchdog is not None
            with self._watchdog, self._connection.transaction():
                self._connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                if (
                    self._connection.execute("SELECT to_regclass('tidegate.logs')::text").fetchone()[0]
                    is None
                ):
                    self._connection.execute(script)

    def close(self) -> None:
        """End the session with the server."""
        if self._watchdog is not None:
            self._watchdog.close()
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()

    def __del__(self) -> None:
        if getattr(self, "_process", 0) == os.getpid():  # a child must not end the session of its parent
            self.close()


class Request:
    """One commit that waits to be written."""

    __slots__ = ("done", "error", "given", "log", "row", "woken")

    def __init__(self, log: PostgresLog, place: str, expected: bytes, row: Row, secret: bytes) -> None:
        self.log, self.row, self.given = log.number, row, (log.number, expected, log.driver, place, secret)
        self.done = False
        self.error: TidegateError | None = None
        self.woken = Event()

    def end(self, error: TidegateError | None) -> None:
        """It was written, or not."""
        self.error, self.done = error, True
        self.woken.set()


class Group:
    """The logs of one database: they share a connection, and their commits share a statement where several wait.

    Each log keeps its own head. One that is fenced does not keep the others from being written.

    Parameters
    ----------
    url
        The database; a name behind # is not used.
    """

    def __init__(self, url: str) -> None:
        self.address = Address(url)
        self._turns, self._reading = Turns(), Turns()
        self._waiting: deque[Request] = deque()
        self._leading, self._leader = Lock(), 0  # whether a thread writes what waits, and which
        self._writer, self._reader = Connection(self.address), Connection(self.address)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        ask, where = self._reader.all, self.address.shown
        if ask("SELECT pg_is_in_recovery()")[0][0]:
            raise LogMismatch(
                f"the server at {where} is a replica and takes no commits; name the primary server."
            )
        if ask("SELECT current_setting('fsync')")[0][0] != "on":
            raise LogMismatch(
                f"the server at {where} runs with fsync off, so nothing is durable; switch it on."
            )
        if ask("SELECT to_regclass('tidegate.logs')::text")[0][0] is None:
            self._writer.run(TABLES)
        if not ask(DRIVER):  # tables of an earlier version
            self._writer.all("ALTER TABLE tidegate.logs ADD COLUMN IF NOT EXISTS driver BYTEA")
        if ask("SELECT obj_description('tidegate.logs'::regclass)")[0][0] != VERSION:
            raise LogMismatch(
                f"the schema tidegate at {where} has no logs of version 1; use another database."
            )
        database, table, allowed = ask(PLACE)[0]
        server = ask("SELECT system_identifier::text FROM pg_control_system()")[0][0] if allowed else ""
        self.place = f"{server}.{database}.{table}"

    def log(self, name: str) -> PostgresLog:
        """One of them, by name; it is made if it is not there."""
        check_name(name)
        return PostgresLog(f"{self.address.address}#{name}", self)

    def read(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Rows, on a connection of their own."""
        with self._reading.one():
            return self._reader.all(statement, values)

    def make(self, name: str) -> int:
        """The number of a log, which is made if it is not there."""
        known = "SELECT id FROM tidegate.logs WHERE name = %s"
        if not self.read(known, (name,)):
            new = "INSERT INTO tidegate.logs (name, head, number) VALUES (%s, %b, -1) ON CONFLICT DO NOTHING"
            self.write(new, (name, NO_HEAD))
        return int(self.read(known, (name,))[0][0])

    def write(self, statement: str, values: Sequence[Any]) -> None:
        """A statement that is no commit."""
        with self._turns.one():
            self._writer.all(statement, values)

    def append(self, request: Request) -> None:
        """Write a commit, with all others that wait: one thread writes for all, the others wait to be woken."""
        if self._leader == get_ident():
            raise SessionClosed(REENTERED)
        self._waiting.append(request)
        try:
            self._wait(request)
        finally:  # also after an interrupt: the next one must not wait for this thread
            with suppress(ValueError):
                self._waiting.remove(request)
            with suppress(IndexError):
                self._waiting[0].woken.set()  # the next one to write
        if request.error is not None:
            raise request.error

    def _wait(self, request: Request) -> None:
        """Until it is written, by this thread or another one."""
        while not request.done:
            if not self._leading.acquire(blocking=False):
                request.woken.wait()
                request.woken.clear()
                continue
            try:
                self._leader = get_ident()
                while not request.done:  # whoever had the turn before may have written it
                    self._write_waiting()
            finally:
                self._leader = 0
                self._leading.release()

    def _write_waiting(self) -> None:
        """Write what waits, one commit of each log. It stays in the queue, where its own thread removes it."""
        first: dict[int, Request] = {}
        for request in self._waiting.copy():
            if not request.done and len(first) < MOST:
                first.setdefault(request.log, request)
        self.append_many(list(first.values()))

    def append_many(self, requests: Sequence[Request]) -> None:
        """Write commits of several logs in one statement; each has its error afterwards, or None."""
        with self._turns.one():
            self._write(sorted(requests, key=lambda request: request.log))

    def _write(self, requests: Sequence[Request]) -> None:
        try:
            try:
                self._send(requests)
            except TidegateError:
                if len(requests) == 1 or self._writer.lost:
                    raise
                for request in requests:  # the server has refused all of them for one: nothing was written
                    self._write([request])
        except TidegateError as error:
            for request in requests:
                request.end(type(error)(str(error)))
        finally:
            for request in requests:
                if not request.done:  # an interrupt: it may have been written
                    request.end(ServerAway("a commit was interrupted; open the log again."))

    def _send(self, requests: Sequence[Request]) -> None:
        if len(requests) == 1:
            (one,) = requests
            (number, *rest, head), (log, expected, driver, place, secret) = one.row, one.given
            values = [head, number, place, secret, log, expected, driver, number, *rest, head]
            found = self._writer.all(ONE, values)
        else:
            columns = zip(*((*each.given, *each.row) for each in requests), strict=True)
            found = self._writer.all(MANY, [list(column) for column in columns])
        written = {log for (log,) in found}
        for request in requests:
            request.end(None if request.log in written else Fenced(FENCED))

    def close(self) -> None:
        """End both connections."""
        if not self._turns.forked:
            self._writer.close()
            self._reader.close()


class PostgresLog(Log):
    """A log in a database.

    Parameters
    ----------
    url
        "postgresql://user@host/database#name"; the log is made if it is not there.
    group
        The logs that it shares a connection with; by default it has its own.
    """

    durable = True

    def __init__(self, url: str, group: Group | None = None) -> None:
        super().__init__()
        self.name = Address(url).name
        self._alone = group is None
        self._group = group or Group(url)
        self.shown = f"{self._group.address.shown}#{self.name}"
        try:
            self.number = self._group.make(self.name)
        except BaseException:
            self.close()
            raise
        self._place = ""  # known when the last commit is read
        self.driver: bytes | None = None  # who drives its stream: known when the last commit is read
        self._drives = False

    def take_over(self) -> None:
        """Refuse whoever has opened the log before."""
        self.driver, self._drives = fresh_bytes(16), True
        self._group.write("UPDATE tidegate.logs SET driver = %b WHERE id = %s", (self.driver, self.number))

    def load(self) -> Loaded | None:
        """The last commit."""
        self._turns.check_process()
        found = self._group.read(
            f"SELECT {TIMELINE}, driver, l.head, l.number, place, secret, {COLUMNS} FROM tidegate.logs AS l "
            "LEFT JOIN tidegate.commits AS c ON c.log = l.id "
            "AND c.number = (SELECT max(number) FROM tidegate.commits WHERE log = l.id) WHERE l.id = %s",
            (self.number,),
        )
        if len(found) != 1:
            raise LogDamaged(f"the log {self.shown} has no head; restore a backup.")
        timeline, driver, head, number, place, secret, *columns = found[0]
        self.driver = self.driver if self._drives else driver
        self._place = f"{self._group.place}.{self.number}.{timeline}"
        if head == NO_HEAD and number < 0 and columns[0] is None:
            return None
        row = Row(*columns)
        if (row.head, row.number) != (head, number) or not isinstance(secret, bytes | None):
            raise LogDamaged(f"the last commit of {self.shown} is not there; restore a backup.")
        return Loaded(row, secret, place == self._place)

    def append(self, expected: Head, commit: Commit) -> bytes:
        """Compare and swap in one statement."""
        request = self.request(expected, commit)
        with self._turns.one():
            self._group.append(request)
        return request.row.head

    def request(self, expected: Head, commit: Commit) -> Request:
        """A commit for `Group.append_many`."""
        head = self.hashed(expected)
        return Request(self, self._place, head, *row_and_secret(head, commit))

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, a block at a time."""
        condition = "WHERE log = %s AND number >= %s ORDER BY number"
        query = f"SELECT {COLUMNS} FROM tidegate.commits AS c {condition} LIMIT {BLOCK}"
        while block := self._group.read(query, (self.number, number)):
            yield from map(Row._make, block)
            number = block[-1][0] + 1

    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of commits that end at or after a step."""
        found = self._group.read(
            "SELECT number FROM tidegate.commits WHERE log = %s AND last >= %s ORDER BY last, number LIMIT 1",
            (self.number, step),
        )
        return self.rows(found[0][0]) if found else iter(())

    def has_head(self, head: bytes) -> bool:
        """Whether a commit has this head."""
        query = "SELECT 1 FROM tidegate.commits WHERE head = %b AND log = %s"
        return bool(self._group.read(query, (head, self.number)))

    def forget_releases(self, number: int) -> None:
        """Drop releases before a number."""
        self._group.write(
            "UPDATE tidegate.commits SET releases = NULL WHERE log = %s AND number < %s AND releases IS NOT NULL",
            (self.number, number),
        )

    def close(self) -> None:
        """End the connections, if nobody shares them."""
        if self._alone:
            self._group.close()
