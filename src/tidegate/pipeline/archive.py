"""Archives: releases that every sink has confirmed move out of the log into files of their own.

The log keeps all rows, so its chain and its account stay whole: only the releases of a row leave, and their digest stays.
An archive is a file with the same rows, checked and on disk before the log forgets anything. Where a sink is new, or has
lost its file, archives and log are read as one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from tidegate.core.commit import Row, checked
from tidegate.core.errors import LogDamaged
from tidegate.core.log import Log
from tidegate.errors import InvalidParameter
from tidegate.pipeline.logs import LogReader, told
from tidegate.pipeline.numbered_releases import State
from tidegate.pipeline.side_tables import SideTables
from tidegate.sinks.file_writing import sync_path, unused_name

ENDING = ".releases"
LEAST = 1000  # steps that stay in the log at least, if nothing else is said
TABLE = (
    "CREATE TABLE log (number INTEGER PRIMARY KEY, kind INTEGER, first INTEGER, last INTEGER, charges BLOB, "
    "releases BLOB, releases_digest BLOB, secret_digest BLOB, head BLOB)"
)


class Archives:
    """The archives of a log.

    Parameters
    ----------
    log, side_tables
        What is archived; the side tables say how far.
    folder
        Where archives are; None if none was named.
    keep
        How many of the last steps stay in the log; by default 1,000, and always a window.
    """

    def __init__(
        self, log: Log | LogReader, side_tables: SideTables, folder: Path | None, keep: int | None = None
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise InvalidParameter("archives", str(folder), "a folder that exists", "make it")
        self._log, self._side_tables, self.folder = log, side_tables, folder
        self.keep = LEAST if keep is None else keep
        noted = side_tables.note("archived") or {"commit": 0, "step": 0, "readers": {}}
        self.commit: int = noted["commit"]  # the first one whose releases are in the log
        self.step: int = noted["step"]
        self.readers: Mapping[str, State] = noted["readers"]  # as they stand before that commit

    def due(self, step: int) -> bool:
        """Whether so many steps have come together that it is time; a function of public numbers."""
        return self.folder is not None and step - self.step >= 2 * self.keep

    def move(
        self, may_go: Callable[[Row], bool], states: Callable[[], dict[str, State]], step: int, least: int
    ) -> Path | None:
        """Move releases of old steps into an archive.

        Parameters
        ----------
        may_go
            Whether every sink has the releases of a commit; asked of each in order.
        states
            Where the readers stand after the last commit that was asked about.
        step
            The last step that was committed.
        least
            How many steps stay at least.
        """
        if self.folder is None:
            raise InvalidParameter("archives", None, "a folder", "name one as archives in [run]")
        last, rows, after = step - max(self.keep, least), [], None
        for row in self.charged(self.commit):
            if row.last > last or not may_go(row):
                break
            rows.append(row)
            after = states()
        if after is None or not any(row.releases for row in rows):
            return None
        path = self._write(rows)
        self.commit, self.step, self.readers = rows[-1].number + 1, rows[-1].last, after
        # the note comes first: a crash between the two leaves releases in both places, which does no harm
        self._side_tables.put_note("archived", {"commit": self.commit, "step": self.step, "readers": after})
        assert isinstance(self._log, Log)
        self._log.forget_releases(self.commit)
        return path

    def _write(self, rows: list[Row]) -> Path:
        """A file with some rows, on disk before it has its name."""
        assert self.folder is not None
        path = self.folder / f"{self._stream}-{rows[0].number:012d}-{rows[-1].number:012d}{ENDING}"
        fresh = unused_name(path)
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with told(path), closing(sqlite3.connect(fresh)) as database, database:
                database.execute(TABLE)
                database.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            if list(read_archive(fresh)) != rows:
                raise LogDamaged(f"{path} was not written as it should be; nothing was removed from the log.")
            fresh.replace(path)
            sync_path(self.folder)
        finally:
            fresh.unlink(missing_ok=True)
        return path

    def charged(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, compared with their hashes; their releases may be in archives."""
        return checked(self._log, self._log.rows(number))

    def checked(self, number: int = 0) -> Iterator[Row]:
        """As `rows`, each compared with its hash."""
        return checked(self._log, self.rows(number))

    def rows(self, number: int = 0) -> Iterator[Row]:
        """All rows from a number on, with their releases wherever these are; also while others are being archived."""
        content: dict[int, Row] = {}
        known: list[tuple[range, Path]] = []
        lost = False  # whether the last row was in no archive
        for row in self._log.rows(number):
            if row.releases is not None or self.folder is None:
                yield row
                continue
            if row.number not in content:
                found = _with_commit(known, row.number)
                if found is None and not lost:  # it may have been archived since
                    known = self._ranges()
                    found = _with_commit(known, row.number)
                content = {} if found is None else {each.number: each for each in read_archive(found)}
                lost = found is None
            yield whole(row, content.get(row.number))

    @cached_property
    def _stream(self) -> str:
        """The beginning of its archives' names: several logs may share a folder."""
        return next(iter(self._log.rows())).head.hex()[:12]

    def _ranges(self) -> list[tuple[range, Path]]:
        """The commits that each archive has."""
        assert self.folder is not None
        found = []
        for path in sorted(self.folder.glob(f"{self._stream}-*{ENDING}")):
            first, last = (int(edge) for edge in path.name.removesuffix(ENDING).split("-")[1:])
            found.append((range(first, last + 1), path))
        return found


def _with_commit(archives: Iterable[tuple[range, Path]], number: int) -> Path | None:
    return next((path for numbers, path in archives if number in numbers), None)


def read_archive(path: Path) -> Iterator[Row]:
    """The rows of an archive, in order."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        yield from map(Row._make, database.execute("SELECT * FROM log ORDER BY number"))
    except sqlite3.DatabaseError as error:
        raise LogDamaged(
            f"{path} is no archive that can be read ({error}); restore it from a backup."
        ) from None
    finally:
        database.close()


def whole(row: Row, archived: Row | None) -> Row:
    """A row of the log with the releases that an archive has of it; they must have the digest that the log has."""
    if archived is None or archived.releases is None or archived.head != row.head:
        return row
    if sha256(archived.releases).digest() != row.releases_digest:
        raise LogDamaged(
            f"an archive has other releases of commit {row.number} than the log; restore it from a backup."
        )
    return row._replace(releases=archived.releases)
