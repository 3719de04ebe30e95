"""Logs by their location: a file, or a database by URL."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tidegate.core.commit import AMENDED, OPENED, Row, checked
from tidegate.core.errors import LogDamaged, LogMismatch
from tidegate.core.log import Log
from tidegate.core.postgres_log import Address, Connection, PostgresLog, is_url
from tidegate.core.scope import Book
from tidegate.core.sqlite_log import APPLICATION, BLOCK, COLUMNS, SQLiteLog
from tidegate.errors import check_scheme
from tidegate.pipeline.errors import LogUnavailable
from tidegate.servers.postgres import SCHEMES

ROWS = f"SELECT {COLUMNS} FROM log WHERE number >= ? ORDER BY number LIMIT {BLOCK}"
BOOKS = (OPENED, AMENDED)
EARLIER = 0x54494445  # what SQLite knows the ledgers of version 0 by


def open_log(location: str) -> Log:
    """The log at a location, open for writing; it is made if it is not there."""
    if is_url(location):
        refuse_earlier_in_database(location)
        return PostgresLog(location)
    check_scheme("log", location, SCHEMES)
    path = Path(location)
    refuse_earlier(path)
    try:
        return SQLiteLog(path)
    except (OSError, sqlite3.OperationalError) as error:
        raise unusable(path, error) from None


def log_exists(location: str) -> bool:
    """Whether there is a log with at least one commit."""
    if not is_url(location):
        path = Path(location)
        return path.is_file() and path.stat().st_size > 0
    address = Address(location)
    with closing(Connection(address)) as connection:
        if connection.all("SELECT to_regclass('tidegate.logs')::text")[0][0] is None:
            return False
        found = connection.all("SELECT number FROM tidegate.logs WHERE name = %s", (address.name,))
        return bool(found) and found[0][0] >= 0


class LogReader:
    """A log that is there, only read: also while its stream runs. Nobody is fenced, and no secret is read.

    Parameters
    ----------
    location
        A file, or "postgresql://user@host/database#name".
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self.path: Path | None = None
        self._log: PostgresLog | None = None
        if is_url(location):
            if not log_exists(location):
                raise LogMismatch(f"there is no log at {Address(location).shown}; check its name behind #.")
            self._log = PostgresLog(location)
            self.shown = self._log.shown
        else:
            check_scheme("log", location, SCHEMES)
            self.path, self.shown = Path(location), location
            self._database = connect_reading(self.path)

    @property
    def name(self) -> str | None:
        """Its name in a database."""
        return None if self._log is None else self._log.name

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, in order, a block at a time."""
        if self._log is not None:
            yield from self._log.rows(number)
            return
        assert self.path is not None
        with told(self.path):
            while block := self._database.execute(ROWS, (number,)).fetchall():
                yield from map(Row._make, block)
                number = block[-1][0] + 1

    def books(self) -> list[tuple[int, Book]]:
        """(commit, book) of the beginning and of every amendment."""
        if self._log is not None:
            numbers = [row.number for row in self._log.rows() if row.kind in BOOKS]
        else:
            found = self.run(f"SELECT number FROM log WHERE kind IN {BOOKS} ORDER BY number")
            numbers = [number for (number,) in found]
        rows = (next(checked(self, self.rows(number))) for number in numbers)
        return [(row.number, Book.decoded(row.charges)) for row in rows]

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """What a statement finds in a file, in the tables beside the commits; nothing where these are not there."""
        assert self.path is not None
        try:
            with told(self.path):
                return self._database.execute(statement, values).fetchall()
        except NoTable:
            return []

    def close(self) -> None:
        """Close the file or the connection."""
        if self._log is not None:
            self._log.close()
        else:
            self._database.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NoTable(Exception):
    """A file lacks a table of the pipeline; raised and caught here."""


def rows_of(path: Path, number: int = 0) -> Iterator[Row]:
    """The rows of a log's file, which is only read."""
    with LogReader(str(path)) as reader:
        yield from reader.rows(number)


def connect_reading(path: Path) -> sqlite3.Connection:
    """A connection that only reads a log's file, and leaves no files beside it that it did not find.

    SQLite makes `-wal` and `-shm` for whoever reads, and removes them only for a connection that may write. So this one
    may write, where its user may, and refuses every change. A write-ahead log that has something belongs to a writer,
    alive or killed: it is read, and left to the next writer.
    """
    if not path.is_file():
        raise LogMismatch(f"there is no log {path}; check its name.")
    refuse_earlier(path)
    beside = path.with_name(f"{path.name}-wal")
    held = beside.stat().st_size if beside.exists() else -1
    folder = os.access(path.absolute().parent, os.W_OK)
    mode = "rw" if held <= 0 and folder and os.access(path, os.W_OK) else "ro"
    if held < 0 and not folder:
        mode += "&immutable=1"  # nobody can be writing here, and SQLite could not make its files
    with told(path):
        database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            database.execute("PRAGMA query_only = ON")
            if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise LogDamaged(f"{path} is no log of version 1; name another file.")
        except BaseException:
            database.close()
            raise
    return database


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Failures of SQLite as sentences."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such table") and "log" not in str(error):
            raise NoTable from None
        if "Could not decode" in str(error):
            raise LogDamaged(f"{path} has text that is none ({error}); restore a backup.") from None
        raise unusable(path, error) from None
    except sqlite3.DatabaseError as error:
        raise LogDamaged(f"{path} is no log that can be read ({error}); restore a backup.") from None


def refuse_earlier(path: Path) -> None:
    """Refuse a ledger of version 0, and say from which step on a new log may read the same stream."""
    if not path.is_file():
        return
    try:  # through SQLite: to close a file of one's own ends the locks that it holds on a log in this process
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as database:
            known = database.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.Error:
        return
    if known != EARLIER:
        return
    window, step = None, 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            meta = dict(database.execute("SELECT name, value FROM meta"))
            window = int(meta["window"]) or None
            step = int(database.execute("SELECT step FROM head").fetchone()[0])
    except (sqlite3.Error, ValueError, TypeError, KeyError):
        pass  # what it was is clear in any case
    raise _earlier(str(path), window, step)


def refuse_earlier_in_database(url: str) -> None:
    """The same of a ledger in PostgreSQL, which had a schema of its own."""
    address = Address(url)
    with closing(Connection(address)) as connection:
        schema = f'"{address.name}"'
        found = connection.all("SELECT to_regclass(%s)::text", (f"{schema}.checkpoint",))
        if found[0][0] is None:
            return
        window = connection.all(f"SELECT value FROM {schema}.meta WHERE name = 'window'")
        step = connection.all(f"SELECT step FROM {schema}.head")
    raise _earlier(
        address.shown, int(window[0][0]) or None if window else None, int(step[0][0]) if step else 0
    )


def _earlier(shown: str, window: int | None, step: int) -> LogMismatch:
    if window is None:
        after = "at user level its budget does not return, so both budgets add up"
    else:
        after = f"a new log may read the same stream from step {step + window} on, else both budgets add up"
    return LogMismatch(
        f"{shown} is a ledger of version 0, which is not continued; name a new one as ledger in [protect]: {after}."
    )


def replication(url: str) -> str:
    """What a failover of a log's server could forget, in words; empty where it has no replicas, or waits for them."""
    with closing(Connection(Address(url))) as connection:
        replicas = int(connection.all("SELECT count(*) FROM pg_stat_replication")[0][0])
        waits = connection.all("SHOW synchronous_standby_names")[0][0] != ""
    if waits or not replicas:
        return ""
    return (
        f"its server has {replicas} {'replica' if replicas == 1 else 'replicas'} and commits do not wait for one, so "
        "that a failover may forget charges; set synchronous_standby_names"
    )


def unusable(path: Path, error: Exception) -> LogUnavailable:
    """A failure of a file as one sentence."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return LogUnavailable(
        f"the log {path} cannot be used ({reason}); check its folder, its rights and the disk."
    )
