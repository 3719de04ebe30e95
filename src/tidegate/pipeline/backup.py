"""Backups of a log's file: made while its stream runs, restored only if no charge is missing.

A plain copy of a file that is written lacks what SQLite has in its write-ahead log. So a backup is made through SQLite,
in one consistent view, without secrets: no state, no position, no records. It is verified from its first row, and has its
name only when it is complete and on disk. A stream that is restored from it has silent steps: every query starts again
when no window contains a step of before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tidegate.core.commit import Row
from tidegate.core.errors import LogDamaged
from tidegate.core.place import PRIVATE
from tidegate.core.verify import Verification, verify
from tidegate.errors import InvalidParameter
from tidegate.pipeline import side_tables
from tidegate.pipeline.archive import ENDING, read_archive, whole
from tidegate.pipeline.log_heads import Head, check_heads
from tidegate.pipeline.logs import connect_reading, rows_of
from tidegate.sinks.file_writing import sync_path, unused_name

SIDES = ("", "-wal", "-shm", "-journal")


class Copied(NamedTuple):
    """A copy that was made and verified.

    Attributes
    ----------
    path
        Where it is.
    found
        What was found when it was recomputed.
    made
        Whether it was made now; otherwise the folder had it already.
    """

    path: Path
    found: Verification
    made: bool = True

    @property
    def head(self) -> Head:
        """The commit that it ends at."""
        return Head(self.found.commits - 1, self.found.head.hex())


def verify_log(rows: Iterable[Row], archives: Iterable[Path] = ()) -> Verification:
    """Recompute a log, and with archives, or folders of them, also the releases that were moved there."""
    files = [
        file
        for place in archives
        for file in (sorted(place.glob(f"*{ENDING}")) if place.is_dir() else [place])
    ]
    return verify(_whole_rows(rows, files))


def _whole_rows(rows: Iterable[Row], files: Sequence[Path]) -> Iterator[Row]:
    """Rows with their releases, from one archive at a time; those of other logs are passed over."""
    begins = {file: next(read_archive(file), None) for file in files}
    content: dict[bytes, Row] = {}
    for row in rows:
        if row.releases is None and row.head not in content:
            begun = [file for file, first in begins.items() if first is not None and first.head == row.head]
            content = {each.head: each for each in read_archive(begun[0])} if begun else content
        yield row if row.releases is not None else whole(row, content.get(row.head))


# copies ----------------------------------------------------------------------------------------------------------


def back_up(log: Path, place: Path, *, secrets: bool = False) -> Copied:
    """Copy a log, also while its stream runs.

    Parameters
    ----------
    log
        Its file.
    place
        A new file, or a folder, in which copies are named by their last commit.
    secrets
        Whether state, position and spooled records are in it. Noise to come is not used from a copy in any case, and
        whoever reads the file reads raw counts.
    """
    return _copied(log, place, restored=False, secrets=secrets)


def restore(copy: Path, place: Path, heads: Sequence[Head] = ()) -> Copied:
    """Put a backup in the place of a log that is lost, if it has every commit that somebody remembers.

    Parameters
    ----------
    copy
        A backup; it stays as it is.
    place
        The log's file, where there must be none.
    heads
        What is remembered elsewhere. Without any, the receipts of all outputs must be there at the next start.
    """
    check_heads(rows_of(copy), heads, str(copy))
    return _copied(copy, place, restored=not heads, secrets=True)


def _copied(source: Path, place: Path, *, restored: bool, secrets: bool) -> Copied:
    if not place.is_dir():
        _refuse_taken(place)
    fresh = unused_name(place / source.name if place.is_dir() else place)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    try:
        with (
            closing(connect_reading(source)) as reader,
            closing(sqlite3.connect(fresh, isolation_level=None)) as writer,
        ):
            reader.backup(writer)
            writer.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            writer.execute("PRAGMA secure_delete = ON")
            if not secrets:
                _strip(writer)
            if restored:
                note = ("restored", "true")
                values = (0, *note, side_tables.checksum("notes", 0, note))
                writer.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?)", values)
        found = verify_log(rows_of(fresh))
        if not found.ok:
            raise LogDamaged(f"{source} does not verify, and no copy of it was made: {found.reason}")
        if place.is_dir():
            place = place / f"{source.stem}.{found.commits - 1:012d}{source.suffix}"
            if place.is_file() and verify_log(rows_of(place)).head == found.head:
                return Copied(place, found, made=False)
            _refuse_taken(place)
        sync_path(fresh)
        os.link(fresh, place)  # never over a file that has the name
        sync_path(place.parent)
    except sqlite3.DatabaseError as error:
        raise LogDamaged(f"{source} is no log that can be copied ({error}); restore a backup.") from None
    finally:
        for ending in SIDES:
            fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
    return Copied(place, found)


def _refuse_taken(place: Path) -> None:
    """Refuse a name that is taken; a write-ahead log that a lost file has left would be applied to the new one."""
    for ending in SIDES:
        beside = place.with_name(place.name + ending)
        if beside.exists() or beside.is_symlink():
            raise InvalidParameter("file", str(beside), "a name that nothing has yet", "move it away")


def _strip(database: sqlite3.Connection) -> None:
    """Remove what must not be in a backup: state, position, and records."""
    database.execute("UPDATE now SET secret = NULL, device = NULL, inode = NULL")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables & set(side_tables.PRIVATE):
        database.execute(f"DELETE FROM {table}")
    if "notes" in tables:
        database.execute("DELETE FROM notes WHERE name = 'begin'")
    else:
        database.execute(side_tables.TABLES.format_map(side_tables.SQLITE_WORDS).split(";")[0])
    database.execute("VACUUM")
