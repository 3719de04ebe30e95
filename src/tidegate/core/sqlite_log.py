"""A log in one SQLite file.

The last commit's secret stands in a row of its own that every commit overwrites; `secure_delete` and a short
write-ahead log remove what was there before. A secret belongs to the file that it was written in, known by device and
inode: in a copy it is not used, because two copies with the same noise to come would reveal the difference of their
data.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tidegate.core.commit import NO_HEAD, Commit, Row, row_of
from tidegate.core.errors import Fenced, LogDamaged, LogMismatch
from tidegate.core.log import FENCED, Loaded, Log

APPLICATION = 0x74673130  # "tg10": what `file` and SQLite know a log by
TABLES = """
CREATE TABLE log (
    number INTEGER PRIMARY KEY, kind INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    charges BLOB NOT NULL, releases BLOB, releases_digest BLOB NOT NULL, secret_digest BLOB NOT NULL, head BLOB NOT NULL
);
CREATE INDEX log_last ON log (last);
CREATE TABLE now (
    one INTEGER PRIMARY KEY CHECK (one = 1), head BLOB NOT NULL, device INTEGER, inode INTEGER, secret BLOB
);
"""
COLUMNS = "number, kind, first, last, charges, releases, releases_digest, secret_digest, head"
WAL_PAGES = 256


class SQLiteLog(Log):
    """A log on disk, for one writer at a time.

    Parameters
    ----------
    path
        The file; it is made if it is not there.
    """

    durable = True

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise LogDamaged(f"{self.path} is no log that can be read: {error}; restore a backup.") from None
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA secure_delete = ON")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        run("PRAGMA journal_size_limit = 0")
        run("BEGIN IMMEDIATE")
        try:
            known = run("PRAGMA application_id").fetchone()[0]
            if known == 0 and not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in TABLES.split(";"):
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION}")
                run("INSERT INTO now VALUES (1, ?, NULL, NULL, NULL)", (NO_HEAD,))
            elif known != APPLICATION:
                raise LogMismatch(
                    f"{self.path} is no log of version 1; choose another path. Ledgers of version 0 are not continued."
                )
            run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise
        found = self.path.stat()
        self._file = (found.st_dev, found.st_ino)

    def load(self) -> Loaded | None:
        """The last commit."""
        query = f"SELECT {COLUMNS} FROM log ORDER BY number DESC LIMIT 1"
        found = self._connection.execute(query).fetchone()
        head, device, inode, secret = self._connection.execute(
            "SELECT head, device, inode, secret FROM now"
        ).fetchone()
        if found is None:
            return None
        row = Row(*found)
        if row.head != head:
            raise LogDamaged(f"commit {row.number} of {self.path} is not its last one; restore a backup.")
        return Loaded(row, secret, (device, inode) == self._file)

    def append(self, expected: bytes, commit: Commit) -> bytes:
        """Compare and swap in one transaction."""
        row = row_of(expected, commit)
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            swapped = run(
                "UPDATE now SET head = ?, device = ?, inode = ?, secret = ? WHERE one = 1 AND head = ?",
                (row.head, *self._file, commit.secret, expected),
            )
            if swapped.rowcount != 1:
                raise Fenced(FENCED)
            run("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise
        return row.head

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on."""
        query = f"SELECT {COLUMNS} FROM log WHERE number >= ? ORDER BY number"
        return map(Row._make, self._connection.execute(query, (number,)))

    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of commits that end at or after a step."""
        query = f"SELECT {COLUMNS} FROM log WHERE last >= ? ORDER BY number"
        return map(Row._make, self._connection.execute(query, (step,)))

    def forget_releases(self, number: int) -> None:
        """Drop releases before a number."""
        self._connection.execute(
            "UPDATE log SET releases = NULL WHERE number < ? AND releases IS NOT NULL", (number,)
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
