"""A ledger in PostgreSQL as a file: the same rows and hashes, so that an archive is checked without a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.ledger import SQLiteLedger, base
from tidegate.ledger.file import APPLICATION, SCHEMA, sync, told
from tidegate.ledger.postgres import PostgresLedger
from tidegate.runtime import kept
from tidegate.runtime.chain import TABLE as LINKS
from tidegate.runtime.parts import TABLES as PARTS
from tidegate.runtime.parts import parts_of
from tidegate.runtime.store import TABLES, Part

PAGE = 1000  # rows that are fetched at once
# tables, and the column by which large ones are read in pages; rows of open steps stay where they are
_COPIED = {"meta": "", "charges": "row", "head": "", "checkpoint": "", "identity": ""}
_OF_A_PART = {"stream": "", "releases": "number", "revisions": "", "sinks": "", "links": "number"}


def export(ledger: PostgresLedger, fresh: Path) -> None:
    """Write a ledger that nobody else drives, without rows of open steps, into an empty file, and on disk."""
    words, parts = dict(SQLiteLedger.types), parts_of(ledger)
    with told(fresh):
        writer = sqlite3.connect(fresh, isolation_level=None)
        try:
            writer.execute("PRAGMA secure_delete=ON")
            writer.execute(f"PRAGMA application_id={APPLICATION}")
            writer.execute("PRAGMA synchronous=FULL")
            writer.executescript(SCHEMA)
            writer.execute("BEGIN")
            copied = dict(_COPIED)
            for table in kept.TABLES:
                writer.execute(table.format_map(words))
            for part in parts or [Part()]:
                for table in (*TABLES, LINKS):
                    writer.execute(table.format_map({**words, **part.tables}))
                copied |= {part.tables[name]: key for name, key in _OF_A_PART.items()}
            more = PARTS if parts else {}
            if ledger.base() is not None:
                more = {**more, "base": base.TABLE}
            for name, table in more.items():
                writer.execute(table.format_map(words))
                copied[name] = ""
            for table, key in copied.items():
                _fill(writer, ledger, table, key)
            writer.execute("COMMIT")
        finally:
            writer.close()
        sync(fresh)


def _fill(writer: sqlite3.Connection, ledger: PostgresLedger, table: str, key: str) -> None:
    """Copy all rows of a table."""
    names = [found[1] for found in writer.execute(f"PRAGMA table_info({table})")]
    marks = ", ".join("?" * len(names))
    for rows in _pages(ledger, table, ", ".join(f'"{name}"' for name in names), names, key):
        writer.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _pages(
    ledger: PostgresLedger, table: str, columns: str, names: list[str], key: str
) -> Iterator[list[tuple[Any, ...]]]:
    if not key:
        yield [tuple(row) for row in ledger.connection.execute(f"SELECT {columns} FROM {table}").fetchall()]
        return
    after, at = -1, names.index(key)
    while True:
        wanted = f"SELECT {columns} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {PAGE}"
        rows = [tuple(row) for row in ledger.connection.execute(wanted, (after,)).fetchall()]
        if not rows:
            return
        yield rows
        after = rows[-1][at]
