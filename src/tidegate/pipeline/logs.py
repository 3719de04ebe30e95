"""Logs by their location: a file, or a database by URL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tidegate.core.commit import Row
from tidegate.core.errors import LogDamaged, LogMismatch
from tidegate.core.log import Log
from tidegate.core.postgres_log import Address, Connection, PostgresLog, is_url
from tidegate.core.sqlite_log import APPLICATION, BLOCK, COLUMNS, SQLiteLog
from tidegate.errors import check_scheme
from tidegate.pipeline.errors import LogUnavailable
from tidegate.servers.postgres import SCHEMES

EARLIER = 0x54494445  # what SQLite knows the ledgers of version 0 by


def open_log(location: str) -> Log:
    """The log at a location, open for writing; it is made if it is not there."""
    if is_url(location):
        return PostgresLog(location)
    check_scheme("log", location, SCHEMES)
    path = Path(location)
    refuse_earlier(path)
    try:
        return SQLiteLog(path)
    except (OSError, sqlite3.OperationalError) as error:
        raise _unusable(path, error) from None


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


@contextmanager
def reading(location: str) -> Iterator[LogReader]:
    """The rows of a log that is there, which is only read: also while its stream runs."""
    if is_url(location):
        if not log_exists(location):
            raise LogMismatch(f"there is no log at {Address(location).shown}; check its name behind #.")
        with closing(PostgresLog(location)) as log:
            yield LogReader(location, log)
    else:
        yield LogReader(location)


class LogReader:
    """The rows of a log.

    Parameters
    ----------
    location
        A file; or a database, of which `log` is open.
    """

    def __init__(self, location: str, log: Log | None = None) -> None:
        self.location, self._log = location, log
        self.path = None if log is not None else Path(location)
        self.shown = log.shown if isinstance(log, PostgresLog) else location

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, in order."""
        if self._log is not None:
            return self._log.rows(number)
        assert self.path is not None
        return rows_of(self.path, number)


def rows_of(path: Path, number: int = 0) -> Iterator[Row]:
    """The rows of a log's file, which is only read, a block at a time."""
    if not path.is_file():
        raise LogMismatch(f"there is no log {path}; check its name.")
    refuse_earlier(path)
    wanted = f"SELECT {COLUMNS} FROM log WHERE number >= ? ORDER BY number LIMIT {BLOCK}"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise LogDamaged(f"{path} is no log of version 1; name another file.")
            while block := database.execute(wanted, (number,)).fetchall():
                yield from map(Row._make, block)
                number = block[-1][0] + 1
    except sqlite3.OperationalError as error:
        raise _unusable(path, error) from None
    except sqlite3.DatabaseError as error:
        raise LogDamaged(f"{path} is no log that can be read ({error}); restore a backup.") from None


def refuse_earlier(path: Path) -> None:
    """Refuse a ledger of version 0, and say from which step on a new log may read the same stream."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except OSError:
        return
    if int.from_bytes(header[68:72], "big") != EARLIER:
        return
    window, step = None, 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            meta = dict(database.execute("SELECT name, value FROM meta"))
            window = int(meta["window"]) or None
            step = int(database.execute("SELECT step FROM head").fetchone()[0])
    except (sqlite3.Error, ValueError, TypeError, KeyError):
        pass  # what it was is clear in any case
    if window is None:
        after = "at user level its budget does not return, so both budgets add up"
    else:
        after = (
            f"a new log may read the same stream from step {step + int(window)} on, else both budgets add up"
        )
    raise LogMismatch(
        f"{path} is a ledger of version 0, which is not continued; name a new file as log in [protect]: {after}."
    )


def _unusable(path: Path, error: Exception) -> LogUnavailable:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return LogUnavailable(
        f"the log {path} cannot be used ({reason}); check its folder, its rights and the disk."
    )
