"""Rows of open steps that their source cannot hand out again, in the ledger's own database.

They are on disk before a broker hears that it may forget them, and vanish in the transaction that commits their step:
so each counts once, whenever the process dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate import process
from tidegate.ingest.sources.source import Arrivals
from tidegate.ledger.durable import DurableLedger

TABLES = (
    "CREATE TABLE IF NOT EXISTS kept (number {integer} PRIMARY KEY, step {integer} NOT NULL, content {bytes} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS kept_steps ON kept (step)",
    # messages that may come a second time, under the number of the last of them
    "CREATE TABLE IF NOT EXISTS arrivals (number {integer} PRIMARY KEY, content {bytes} NOT NULL)",
    # a name that no other stream has
    "CREATE TABLE IF NOT EXISTS identity (id {integer} PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL)",
)


class Kept:
    """The keeper of a stream, as ingest wants one.

    Parameters
    ----------
    ledger
        Whose database it is.
    """

    def __init__(self, ledger: DurableLedger) -> None:
        self._ledger = ledger
        self._last: int | None = None  # the number of the last entry

    @property
    def identity(self) -> str:
        """A name for the stream: the same at every start, and nobody else's."""
        with self._ledger.transaction():
            found = self._ledger.connection.execute("SELECT name FROM identity").fetchone()
            if found is None:
                found = (process.secret(8).hex(),)
                self._ledger.connection.execute("INSERT INTO identity VALUES (1, ?)", found)
        return str(found[0])

    @property
    def in_use(self) -> bool:
        """Whether a source was begun that cannot be read again: what it has handed out is nowhere else."""
        with self._ledger.told():
            return self._ledger.connection.execute("SELECT name FROM identity").fetchone() is not None

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Everything that was put away, in the order in which it came."""
        with self._ledger.told():
            found = self._ledger.connection.execute(
                "SELECT step, content FROM kept ORDER BY number"
            ).fetchall()
        for step, content in found:
            yield step, bytes(content)

    def arrivals(self) -> Iterator[Arrivals]:
        """Messages that may come a second time."""
        with self._ledger.told():
            found = self._ledger.connection.execute(
                "SELECT number, content FROM arrivals ORDER BY number"
            ).fetchall()
        for number, content in found:
            yield Arrivals(number, bytes(content), 0)

    def keep(self, entries: Sequence[tuple[int, bytes]], arrivals: Arrivals | None) -> None:
        """Put rows away, and with them which messages they came in; on disk when this returns."""
        database = self._ledger.connection
        with self._ledger.transaction(), self._ledger.told():
            self._insert(entries)
            if arrivals is not None:
                database.execute("INSERT INTO arrivals VALUES (?, ?)", (arrivals.number, arrivals.content))
                database.execute("DELETE FROM arrivals WHERE number <= ?", (arrivals.expired,))

    def exchange(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Put these rows in the place of everything that was put away before."""
        with self._ledger.transaction(), self._ledger.told():
            self._ledger.connection.execute("DELETE FROM kept")
            self._insert(entries)

    def forget(self, step: int) -> None:
        """Remove the rows of all steps up to one; only inside of the transaction that commits it."""
        self._ledger.connection.execute("DELETE FROM kept WHERE step <= ?", (step,))

    def _insert(self, entries: Sequence[tuple[int, bytes]]) -> None:
        database = self._ledger.connection
        if self._last is None:
            self._last = database.execute("SELECT coalesce(max(number), 0) FROM kept").fetchone()[0]
        rows = [(self._last + number, *entry) for number, entry in enumerate(entries, 1)]
        database.executemany("INSERT INTO kept VALUES (?, ?, ?)", rows)
        self._last += len(rows)
