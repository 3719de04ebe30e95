"""Copies of a ledger's file: made while its stream goes on, and put back only where nothing spent is forgotten.

A plain copy of a live file lacks whatever SQLite still holds in its log, and one that is put back beside the log of
another file is damaged by it. So a copy is made through SQLite, in one consistent view, checked from its first row, and
has its name only when it is complete and on disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerError, LedgerMismatch
from tidegate.ledger import SQLiteLedger, Verdict
from tidegate.ledger.file import PRIVATE, connect, mark_restored, sync, told
from tidegate.ledger.postgres import Place, is_url
from tidegate.runtime.files import unused_name
from tidegate.runtime.heads import Head, check_head, head_of
from tidegate.runtime.store import verify_target

_BESIDE = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Copied:
    """A copy that was made and checked.

    Parameters
    ----------
    path
        Where it is.
    head
        The row that it ends at.
    verdict
        On all of its charges and releases.
    made
        Whether it was made now; else the folder had this one already.
    """

    path: Path
    head: Head
    verdict: Verdict
    made: bool = True


def back_up(
    ledger: str, place: Path, *, prepare: Callable[[sqlite3.Connection], None] | None = None
) -> Copied:
    """Copy a ledger, also while its stream goes on; the copy is checked before it has its name.

    Parameters
    ----------
    ledger
        Its file.
    place
        A new file, or a folder, in which copies are named by the last row that they have.
    prepare
        What is done to the copy before it is checked.
    """
    refuse_database(ledger)
    source = Path(ledger).resolve()
    return named_copy(source, place, lambda fresh: _copy(source, fresh, prepare))


def named_copy(source: Path, place: Path, copy: Callable[[Path], None]) -> Copied:
    """Let a copy be made in an empty file, and give it its name when it has been checked.

    Parameters
    ----------
    source
        What is copied, by which copies in a folder are named.
    place
        As for `back_up`.
    copy
        Writes it into a file.
    """
    folder = place if place.is_dir() else place.parent
    if not place.is_dir():
        _refuse_taken(place)
    with _unfinished(folder / source.name) as fresh:
        copy(fresh)
        verdict, head = _checked(fresh, source)
        final = place
        if place.is_dir():
            final, there = _place_in(place, f"{source.stem}.{head.rows:012d}", fresh)
            if there:
                return Copied(final, head, verdict, made=False)
        _name(fresh, final)
    return Copied(final, head, verdict)


def restore(copy: Path, place: Path, heads: Sequence[Head] = ()) -> Copied:
    """Put a copy in the place of a ledger that is lost, if it has every row that somebody remembers.

    Parameters
    ----------
    copy
        As `back_up` made it; it stays as it is.
    place
        The ledger's file, where there must be none.
    heads
        What is remembered outside, such as the receipt of the output.
    """
    refuse_database(str(place))
    _refuse_taken(place)
    with _unfinished(place) as fresh:
        _copy(copy.resolve(), fresh, None if heads else mark_restored)
        verdict, head = _checked(fresh, copy)
        with SQLiteLedger(copy, read_only=True) as ledger:
            if ledger.archive:
                raise LedgerMismatch(
                    f"{copy} is an archive, which lacks the state that a stream goes on from; restore a backup."
                )
            for each in heads:
                check_head(ledger, each)
        _name(fresh, place)
    return Copied(place, head, verdict)


def refuse_database(ledger: str) -> None:
    """Refuse a ledger in PostgreSQL, whose copies are made by its own tools."""
    if is_url(ledger):
        name = Place(ledger).schema
        raise LedgerError(
            f"a ledger in PostgreSQL is copied by the tools of its server: dump it with pg_dump --schema={name}, put it "
            "back with psql, and compare it with `tidegate ledger verify --head` before a stream goes on with it."
        )


def _refuse_taken(place: Path) -> None:
    """Refuse a place where a ledger is, or what a lost one has left: its log would be applied to another file."""
    for ending in _BESIDE:
        beside = Path(f"{place}{ending}")
        if beside.exists() or beside.is_symlink():
            raise InvalidParameter(
                "file", str(beside), "a name that nothing has yet", "move it away, or name another place"
            )
    if not place.parent.is_dir():
        raise InvalidParameter("file", str(place), "a file in a folder that exists", "make the folder")


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A new file beside another, for its owner only, which is gone when the block is left."""
    fresh = unused_name(path)
    with told(path):
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    try:
        yield fresh
    finally:
        for ending in _BESIDE:
            Path(f"{fresh}{ending}").unlink(missing_ok=True)


def _copy(source: Path, fresh: Path, prepare: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Copy a database in one consistent view of it; writers go on meanwhile."""
    with told(source):
        reader = connect(source, read_only=True)
    try:
        with told(fresh):
            writer = sqlite3.connect(fresh, isolation_level=None)
            try:
                reader.backup(writer)
                writer.execute("PRAGMA journal_mode=DELETE")  # one file, that needs no log beside it
                writer.execute("PRAGMA synchronous=FULL")
                if prepare is not None:
                    prepare(writer)
            finally:
                writer.close()
            sync(fresh)
    finally:
        reader.close()


def _checked(fresh: Path, source: Path) -> tuple[Verdict, Head]:
    """The verdict on a copy and the row that it ends at; a damaged one is refused."""
    verdict = verify_target(fresh)
    if not verdict.ok:
        raise LedgerCorrupt(f"{source} does not hold, and no copy of it was made: {verdict.problem}")
    with SQLiteLedger(fresh, read_only=True) as ledger:
        return verdict, head_of(ledger)


def _name(fresh: Path, place: Path) -> None:
    """Give a complete copy its name, never one that is taken."""
    with told(place):
        try:
            os.link(fresh, place)
        except FileExistsError:
            _refuse_taken(place)
        except OSError:  # a file system without links
            _refuse_taken(place)
            fresh.rename(place)
        sync(place.parent)


def _place_in(folder: Path, stem: str, fresh: Path) -> tuple[Path, bool]:
    """A copy's name in a folder, and whether it is there: not that of another stream, nor an archive for a backup."""
    with SQLiteLedger(fresh, read_only=True) as ledger:
        identity, archive, (rows, digest) = ledger.identity, ledger.archive, ledger.head
    for again in count(1):
        path = folder / (f"{stem}.ledger" if again == 1 else f"{stem}.{again}.ledger")
        if not path.exists():
            return path, False
        with SQLiteLedger(path, read_only=True) as there:
            if (there.identity, there.archive) == (identity, archive):
                check_head(there, Head(rows, digest))
                return path, True
    raise AssertionError  # one of so many names is free
