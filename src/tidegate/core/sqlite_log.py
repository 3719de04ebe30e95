"""A log in one SQLite file.

The last commit's secret stands in a row of its own that every commit overwrites; `secure_delete` and a write-ahead log
that is written over after a few commits remove what was there before. Who reads has a connection of their own, so
nothing is seen before it is committed. A secret belongs to the file that it was written in (`place.py`): in a copy it is
not used, because two copies with the same noise to come would reveal the difference of their data. So the file is
readable by its owner alone.
"""

from __future__ import annotations

import os
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tidegate.core.commit import NO_HEAD, Commit, Row, row_and_secret
from tidegate.core.errors import Fenced, LogDamaged, LogMismatch
from tidegate.core.log import FENCED, Head, Loaded, Log
from tidegate.core.place import PRIVATE, Place

APPLICATION = 0x74673130  # "tg10": what `file` and SQLite know a log by
TABLES = """
CREATE TABLE log (
    number INTEGER PRIMARY KEY, kind INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    charges BLOB NOT NULL, releases BLOB, releases_digest BLOB NOT NULL, secret_digest BLOB NOT NULL, head BLOB NOT NULL
);
CREATE INDEX log_head ON log (head);
CREATE TABLE now (
    one INTEGER PRIMARY KEY CHECK (one = 1), head BLOB NOT NULL, device INTEGER, inode INTEGER, secret BLOB
);
"""
COLUMNS = "number, kind, first, last, charges, releases, releases_digest, secret_digest, log.head"
# Commits after which the write-ahead log begins again, over what it had. So it has the secrets of twice as many at most:
# those since then, and those before that are not overwritten yet.
BEGINS_AGAIN_AFTER = 4
WAL_HEADER, FRAME_HEADER = 32, 24  # bytes, of the write-ahead log and of each of its pages
BLOCK = 256  # rows that are read at once, so that no reading keeps the write-ahead log from being emptied
MOVED = (
    "{} or its write-ahead log was moved, replaced, removed or linked while it was written, so that another writer would "
    "not see what is committed; put it back, and open it again."
)
NO_WAL = (
    "{} cannot have a write-ahead log (its journal_mode stays {!r}), without which a file that was replaced while it is "
    "written is not noticed; put it on a local disk."
)


class SQLiteLog(Log):
    """A log on disk, for one writer at a time.

    Parameters
    ----------
    path
        The file; it is made if it is not there.
    """

    durable = True

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self.path = Path(path)
        self._commits = 0
        # as SQLite knows it, also in another working directory
        self._real = Path(os.path.realpath(self.path))
        with suppress(FileExistsError):
            os.close(os.open(self._real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
        # One that is there is not opened and closed: that would end the locks which SQLite holds on it in this process.
        if self._real.stat().st_nlink > 1:
            raise LogMismatch(
                f"{self.path} has a second name (a hard link), under which another writer would not be noticed; remove "
                "that name."
            )
        self._place = Place(self._real)
        self._here = False  # whether the last commit was made in this place
        self._wal = Path(f"{self._real}-wal")
        self._writer = sqlite3.connect(self._real, isolation_level=None, check_same_thread=False)
        self._reader = sqlite3.connect(self._real, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except sqlite3.OperationalError:  # locked, full, or not to be written: the file may well be whole
            self.close()
            raise
        except sqlite3.DatabaseError as error:
            self.close()
            raise LogDamaged(f"{self.path} is no log that can be read: {error}; restore a backup.") from None
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        run = self._writer.execute
        run("PRAGMA secure_delete = ON")
        (mode,) = run("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":  # without it nobody notices that another file has its name
            raise LogMismatch(NO_WAL.format(self.path, mode))
        run("PRAGMA synchronous = FULL")
        run("PRAGMA fullfsync = ON")  # macOS answers before the disk has it; elsewhere no difference
        self._page = run("PRAGMA page_size").fetchone()[0]
        with self._writer:  # commits, or rolls back
            run("BEGIN IMMEDIATE")
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
        self._empty()
        self._files = self._found()

    def _found(self) -> tuple[tuple[int, int, int], ...]:
        """Device, inode and names of the files that have the log's names now; nothing where one is missing."""
        try:
            found = (self._real.stat(), self._wal.stat())
        except FileNotFoundError:
            return ()
        return tuple((each.st_dev, each.st_ino, each.st_nlink) for each in found)

    def _empty(self) -> None:
        """Move the write-ahead log into the file, and cut it: old secrets go with it."""
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _begin_again(self) -> None:
        """Move the write-ahead log into the file, and write over it from now on, which costs less than to cut it.

        If it is longer than what was just moved, nobody would write over the rest soon: then it is cut.
        """
        ((busy, pages, _),) = self._writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        if busy or self._wal.stat().st_size > WAL_HEADER + pages * (FRAME_HEADER + self._page):
            self._empty()

    def load(self) -> Loaded | None:
        """The last commit."""
        with self._turns.one():
            noted = self._place.read()  # before the log, which is never behind it
            return self._loaded(noted)

    def _loaded(self, noted: int) -> Loaded | None:
        """The last commit, where a number stands beside the log."""
        self._here = False
        found = self._reader.execute(  # one statement: another writer commits before it or after it
            f"SELECT now.head, device, inode, secret, {COLUMNS} FROM now LEFT JOIN log "
            "ON number = (SELECT max(number) FROM log)"
        ).fetchall()
        if len(found) != 1:
            raise LogDamaged(f"{self.path} has no head; restore a backup.")
        head, device, inode, secret, *columns = found[0]
        if head == NO_HEAD and columns[0] is None:
            return None
        row = Row(*columns)
        if row.head != head or not isinstance(secret, bytes | None):
            raise LogDamaged(f"the last commit of {self.path} is not there; restore a backup.")
        self._here = (device, inode) == self._place.name and row.number >= noted
        if self._here and row.number > noted:  # whoever made this commit was killed before it was noted
            self._place.note(row.number)
        return Loaded(row, secret, self._here)

    def append(self, expected: Head, commit: Commit) -> bytes:
        """Compare and swap in one transaction."""
        row, secret = row_and_secret(self.hashed(expected), commit)
        run = self._writer.execute
        with self._turns.one():
            if not self._here:
                self._place.renew()
            with self._writer:  # commits, or rolls back
                run("BEGIN IMMEDIATE")
                swapped = run(
                    "UPDATE now SET head = ?, device = ?, inode = ?, secret = ? WHERE one = 1 AND head = ?",
                    (row.head, *self._place.name, secret, expected),
                )
                if swapped.rowcount != 1:
                    raise Fenced(FENCED)
                if not self._here:
                    self._place.store()
                run("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            self._here = True
            self._place.note(row.number)
            if self._found() != self._files:
                raise LogMismatch(MOVED.format(self.path))
            self._commits += 1
            if self._commits % BEGINS_AGAIN_AFTER == 0:
                self._begin_again()
        return row.head

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, a block at a time."""
        query = f"SELECT {COLUMNS} FROM log WHERE number >= ? ORDER BY number LIMIT {BLOCK}"
        while block := self._reader.execute(query, (number,)).fetchall():
            yield from map(Row._make, block)
            number = block[-1][0] + 1

    def rows_since(self, step: int) -> Iterator[Row]:
        """The rows of commits that end at or after a step."""
        (count,) = self._reader.execute("SELECT coalesce(max(number) + 1, 0) FROM log").fetchone()
        # steps only grow, and numbers have no gaps: the primary key is index enough
        return self.rows(bisect_left(range(count), step, key=self._last_step))

    def _last_step(self, number: int) -> int:
        found = self._reader.execute("SELECT last FROM log WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise LogDamaged(f"commit {number} of {self.path} is not there; restore a backup.")
        return int(found[0])

    def has_head(self, head: bytes) -> bool:
        """Whether a commit has this head."""
        return bool(self._reader.execute("SELECT 1 FROM log WHERE head = ?", (head,)).fetchall())

    def forget_releases(self, number: int) -> None:
        """Drop releases before a number."""
        with self._turns.one():
            self._writer.execute(
                "UPDATE log SET releases = NULL WHERE number < ? AND releases IS NOT NULL", (number,)
            )

    def close(self) -> None:
        """Close the file."""
        if not self._turns.forked:
            with self._turns.one():
                self._reader.close()
                self._writer.close()  # the last connection empties the write-ahead log
                self._place.close()
