"""Backups of a log's file: made while its stream runs, restored only where nothing that was spent is forgotten.

A plain copy of a file that is written lacks what SQLite has in its write-ahead log. So a backup is made through SQLite,
in one consistent view, without secrets: no state, no position, no records. It is verified from its first row, and has its
name only when it is complete and on disk. A stream that is restored from it has silent steps: every query begins anew
when no window contains a step of before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tidegate.core.errors import LogDamaged
from tidegate.core.sqlite_log import PRIVATE
from tidegate.core.verify import Verification, verify
from tidegate.errors import InvalidParameter
from tidegate.pipeline import spool
from tidegate.pipeline.archive import ENDING, read_archive, sync_path, whole
from tidegate.pipeline.heads import Head, check_heads
from tidegate.pipeline.logs import rows_of
from tidegate.runtime.files import unused_name

SIDES = ("", "-wal", "-shm", "-journal")


def verify_file(path: Path, archives: Path | None = None) -> Verification:
    """Recompute a log, and with a folder of archives also the releases that were moved there."""
    archived = {}
    for file in sorted(archives.glob(f"*{ENDING}")) if archives is not None else ():
        archived.update({row.head: row for row in read_archive(file)})  # of other logs, too
    return verify(
        row if row.releases is not None else whole(row, archived.get(row.head)) for row in rows_of(path)
    )


# copies ----------------------------------------------------------------------------------------------------------


def back_up(log: Path, place: Path, *, secrets: bool = False) -> Verification:
    """Copy a log, also while its stream runs.

    Parameters
    ----------
    log
        Its file.
    place
        A new file.
    secrets
        Whether state, position and spooled records are in it. Noise to come is not used from a copy in any case, and
        whoever reads the file reads raw counts.
    """
    return _copied(log, place, restored=False, secrets=secrets)


def restore(copy: Path, place: Path, heads: Sequence[Head] = ()) -> Verification:
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


def _copied(source: Path, place: Path, *, restored: bool, secrets: bool) -> Verification:
    for ending in SIDES:  # a write-ahead log that a lost file has left would be applied to the new one
        beside = place.with_name(place.name + ending)
        if beside.exists() or beside.is_symlink():
            raise InvalidParameter("file", str(beside), "a name that nothing has yet", "move it away")
    fresh = unused_name(place)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as reader,
            closing(sqlite3.connect(fresh, isolation_level=None)) as writer,
        ):
            reader.backup(writer)
            writer.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            writer.execute("PRAGMA secure_delete = ON")
            if not secrets:
                _strip(writer)
            if restored:
                writer.execute("INSERT OR REPLACE INTO notes VALUES (0, 'restored', 'true')")
        found = verify_file(fresh)
        if not found.ok:
            raise LogDamaged(f"{source} does not verify, and no copy of it was made: {found.reason}")
        sync_path(fresh)
        os.link(fresh, place)  # never over a file that has the name
        sync_path(place.parent)
    except sqlite3.DatabaseError as error:
        raise LogDamaged(f"{source} is no log that can be copied ({error}); restore a backup.") from None
    finally:
        for ending in SIDES:
            fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
    return found


def _strip(database: sqlite3.Connection) -> None:
    """Remove what must not be in a backup: state, position, and records."""
    database.execute("UPDATE now SET secret = NULL, device = NULL, inode = NULL")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables & set(spool.PRIVATE):
        database.execute(f"DELETE FROM {table}")
    if "notes" in tables:
        database.execute("DELETE FROM notes WHERE name = 'begin'")
    else:
        database.execute(spool.TABLES.format_map(spool.LITE).split(";")[0])
    database.execute("VACUUM")
