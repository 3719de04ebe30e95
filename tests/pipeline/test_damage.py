"""Damage in the tables beside a log: each start and each read refuses it, or has the output that was promised."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.pipeline.streams import readings, release, settings, shop

from tidegate.config import Queries
from tidegate.core.errors import LogDamaged
from tidegate.ingest import blocks
from tidegate.pipeline import pipeline, read_stream
from tidegate.pipeline.backup import back_up, restore
from tidegate.pipeline.side_tables import CHECKED
from tidegate.testing.entropy import fixed_entropy

LOG = "tidegate.ledger"


class Cell(NamedTuple):
    """A value in a table."""

    table: str
    row: int
    column: str
    value: Any


class Stopped:
    """A stream that was stopped in the middle, as often as one wants it."""

    def __init__(self, folder: Path, make: Callable[[Path], str]) -> None:
        self.folder, self.queries = folder, settings(folder, make(folder))
        with fixed_entropy(3):
            release(self.queries, blocks=4)
        self.saved = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        self.read = self.reading()
        self.promised = self.start()
        self.back()

    def back(self) -> None:
        """Everything as it was when the stream was stopped, in the same files."""
        for path in self.folder.iterdir():
            if path.is_file() and path.name not in self.saved:
                path.unlink()
        for name, content in self.saved.items():
            (self.folder / name).write_bytes(content)

    def start(self) -> dict[str, bytes]:
        """Release the rest; the output."""
        with fixed_entropy(3):
            release(self.queries)
        return {path.name: path.read_bytes() for path in self.folder.glob("out*.csv")}

    def reading(self) -> list[Any]:
        """What readers see, from the beginning and from the middle."""
        found: list[Any] = []
        with read_stream(self.queries) as stream:
            for released in stream.released.values():
                found += [
                    (chunk.step.tolist(), chunk.status.tolist(), repr(chunk.values.tolist()))
                    for chunk in (*released.chunks(), *released.between(10, 12))
                ]
        return found

    def cells(self) -> Iterator[Cell]:
        """All values of the first and the last row of each table."""
        with closing(sqlite3.connect(self.folder / LOG)) as database:
            for table, columns in CHECKED.items():
                names = [*columns.split(", "), "checksum"]
                rows = database.execute(f"SELECT rowid, {', '.join(names)} FROM {table}").fetchall()
                for number, *row in {rows[0], rows[-1]} if rows else ():
                    for name, value in zip(names, row, strict=True):
                        yield Cell(table, number, name, value)

    def damage(self, cell: Cell, value: Any) -> bool:
        """Put another value in the place of one; False where the table does not take it."""
        place = "CAST(? AS TEXT)" if isinstance(cell.value, str) and isinstance(value, bytes) else "?"
        with closing(sqlite3.connect(self.folder / LOG, isolation_level=None)) as database:
            try:
                database.execute(
                    f"UPDATE {cell.table} SET {cell.column} = {place} WHERE rowid = ?", (value, cell.row)
                )
            except sqlite3.IntegrityError:
                return False
        return True


def damaged(value: Any) -> Iterator[Any]:
    """A low and a high bit of a number; of text and bytes a bit at the beginning, in the middle and at the end."""
    if isinstance(value, int):
        yield from (value ^ 1, value ^ 2, value ^ (1 << 40), "x")
        return
    content = value.encode() if isinstance(value, str) else value
    for at, bit in ((0, 1), (len(content) // 2, 2), (len(content) - 1, 128)):
        flipped = bytearray(content)
        flipped[at] ^= bit
        yield bytes(flipped)
    yield 7


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits and marks in few steps."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 5)
    monkeypatch.setattr(pipeline, "SYNC_EVERY", 0.0)
    monkeypatch.setattr(pipeline, "MARK_EVERY", 4)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "make", [pytest.param(readings, marks=pytest.mark.slow), shop], ids=["readings", "shop"]
)
def test_damage_is_refused_or_changes_nothing(tmp_path: Path, make: Callable[[Path], str]) -> None:
    """Whatever value is damaged, of whatever table."""
    stopped = Stopped(tmp_path, make)
    refused: dict[str, str] = {}  # the tables, by sentence
    for cell in list(stopped.cells()):
        for value in damaged(cell.value):
            for act, wanted in ((stopped.start, stopped.promised), (stopped.reading, stopped.read)):
                stopped.back()
                if not stopped.damage(cell, value):
                    continue
                try:
                    assert act() == wanted, (cell, value)
                except LogDamaged as refusal:
                    refused[str(refusal)] = cell.table
    assert all(words.endswith("; restore a backup.") for words in refused)
    assert set(refused.values()) >= (
        {"notes", "sinks"} if make is shop else {"notes", "sinks", "marks", "gaps"}
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("column", ["name", "number", "position", "checksum"])
def test_a_start_refuses_every_damage_of_its_sinks(tmp_path: Path, column: str) -> None:
    """Also a number that is a little too small: releases would be sent twice, or not at all."""
    stopped = Stopped(tmp_path, shop)
    for cell in list(stopped.cells()):
        if (cell.table, cell.column) == ("sinks", column):
            for value in damaged(cell.value):
                stopped.back()
                assert stopped.damage(cell, value)
                with pytest.raises(LogDamaged, match="restore a backup"):
                    stopped.start()


def test_what_a_backup_notes_is_read(tmp_path: Path) -> None:
    """The note that a restored log has is one with a checksum."""
    queries: Queries = settings(tmp_path, shop(tmp_path))
    release(queries)
    copy = back_up(tmp_path / LOG, tmp_path / "copy.ledger")
    (tmp_path / LOG).unlink()
    restore(copy.path, tmp_path / LOG)
    with closing(sqlite3.connect(tmp_path / LOG)) as database:
        assert database.execute("SELECT value FROM notes WHERE name = 'restored'").fetchall() == [("true",)]
    release(queries)
