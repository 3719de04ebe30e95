"""What the pipeline keeps beside the commits, in the log's own file or database: the account needs nothing of it.

- How far each sink has got, and where the readers of releases stand: hints that make a start faster; it works without
  them.
- Marks: where a reader stood after so many releases, so that old ones are found without reading all before them.
- Which readings are missing: public, and written before the commit of their steps.
- Units and categories of an open epoch, where categories are found: its last step tests them together. They are written
  before the commit of their steps, and removed when the epoch is over.
- Rows of open steps that their source cannot repeat: written before a broker may forget them. Rows of steps that were
  committed are ignored, so they need not vanish in the same transaction.

In PostgreSQL, whoever writes here first compares the log's head and its driver, and locks their row until the transaction
ends. So a worker is refused, and changes nothing, as soon as another one has taken over the stream (`Log.take_over`).

Rows of the tables in `CHECKED` have a checksum over table, key and values. It is compared at every read, and a damaged
row is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, Protocol

import numpy as np

from tidegate import process
from tidegate.core.errors import Fenced, LogDamaged
from tidegate.core.log import FENCED, Log
from tidegate.core.postgres_log import Address, Connection, PostgresLog
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.errors import TidegateError
from tidegate.ingest.sources.source import Arrivals
from tidegate.pipeline.logs import LogReader, told
from tidegate.pipeline.numbered_releases import Mask, State

AMENDING = "amending"
PRIVATE = ("spooled", "arrivals", "occurrences")  # tables with records, which a backup without secrets lacks
TABLES = """
CREATE TABLE IF NOT EXISTS {notes} (
    log {integer}, name TEXT, value TEXT NOT NULL, checksum {bytes} NOT NULL, PRIMARY KEY (log, name)
);
CREATE TABLE IF NOT EXISTS {sinks} (
    log {integer}, name TEXT, number {integer} NOT NULL, position TEXT NOT NULL, checksum {bytes} NOT NULL,
    PRIMARY KEY (log, name)
);
CREATE TABLE IF NOT EXISTS {marks} (
    log {integer}, scope {integer}, number {integer}, step {integer} NOT NULL, state TEXT NOT NULL,
    checksum {bytes} NOT NULL, PRIMARY KEY (log, scope, number)
);
CREATE TABLE IF NOT EXISTS {gaps} (
    log {integer}, query TEXT, first {integer}, last {integer}, mask {bytes}, checksum {bytes} NOT NULL,
    PRIMARY KEY (log, query, last)
);
CREATE TABLE IF NOT EXISTS {spooled} (
    number {counted}, log {integer} NOT NULL, step {integer} NOT NULL, content {bytes} NOT NULL
);
CREATE INDEX IF NOT EXISTS spooled_step ON {spooled} (log, step);
CREATE TABLE IF NOT EXISTS {arrivals} (
    log {integer}, number {integer}, content {bytes} NOT NULL, PRIMARY KEY (log, number)
);
CREATE TABLE IF NOT EXISTS {occurrences} (
    number {counted}, log {integer} NOT NULL, query TEXT NOT NULL, step {integer} NOT NULL, content {bytes} NOT NULL
);
CREATE INDEX IF NOT EXISTS occurrences_step ON {occurrences} (log, query, step)
"""
CHECKED = {  # the columns of rows with a checksum, which is over these in this order
    "notes": "name, value",
    "sinks": "name, number, position",
    "marks": "scope, number, step, state",
    "gaps": "query, first, last, mask",
}
NAMES = ("notes", "sinks", "marks", "gaps", "spooled", "arrivals", "occurrences")
SQLITE_WORDS = {
    **{name: name for name in NAMES},
    "integer": "INTEGER",
    "bytes": "BLOB",
    "counted": "INTEGER PRIMARY KEY",
}
POSTGRES_WORDS = {
    **{name: f"tidegate.{name}" for name in NAMES},
    "integer": "BIGINT",
    "bytes": "BYTEA",
    "counted": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


# of a worker that is stopped in the middle the server ends the transaction, so that others may commit
HOLD_HEAD = (
    "SELECT set_config('idle_in_transaction_session_timeout', '10s', true) FROM tidegate.logs "
    "WHERE id = ? AND head = ? AND driver IS NOT DISTINCT FROM ? FOR SHARE"
)


def checksum(table: str, log: int, values: Sequence[Any]) -> bytes:
    """By which a damaged row is recognised."""
    content = json.dumps([table, log, *values], default=lambda content: [content.hex()])
    return blake2b(content.encode(), digest_size=16).digest()


class Mark(NamedTuple):
    """Where the reader of a scope stood after `number` releases; `step` is the last step they cover."""

    number: int
    step: int
    state: State


class Database(Protocol):
    """Where the tables are."""

    dialect: Mapping[str, str]

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of one statement, with ? in the place of values."""

    def transaction(self) -> Any:
        """Everything inside is on disk together, or not at all."""

    def close(self) -> None:
        """Close the connection."""


class SQLiteDatabase:
    """Tables in the file of a log, or in memory."""

    dialect: Mapping[str, str] = SQLITE_WORDS

    def __init__(self, place: str) -> None:
        self._lock, self._place = RLock(), Path(place)
        self._database = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        for setting in ("secure_delete = ON", "synchronous = FULL", "journal_size_limit = 0"):
            self.run(f"PRAGMA {setting}")
        for statement in TABLES.format_map(SQLITE_WORDS).split(";"):
            self.run(statement)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of one statement."""
        with told(self._place):
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits, or rolls back."""
        with self._lock, told(self._place), self._database:
            self.run("BEGIN IMMEDIATE")
            yield

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class ReadDatabase:
    """Tables in the file of a log that is only read."""

    dialect: Mapping[str, str] = SQLITE_WORDS

    def __init__(self, log: LogReader) -> None:
        self._log = log

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of one statement."""
        return self._log.run(statement, values)

    def transaction(self) -> Any:
        """Refused: nothing can be written here."""
        raise TypeError("a log that is only read has no transactions; open the stream.")

    def close(self) -> None:
        """Nothing to do: the file is closed by whoever opened the log."""


class PostgresDatabase:
    """Tables in the database of a log, on a connection of their own."""

    dialect: Mapping[str, str] = POSTGRES_WORDS

    def __init__(self, url: str, *, make: bool = True) -> None:
        self._lock = RLock()
        self._connection = Connection(Address(url))
        found = self._connection.all(
            "SELECT to_regclass('tidegate.arrivals')::text, to_regclass('tidegate.occurrences')::text"
        )
        self._there = found[0][0] is not None
        if make and found[0][1] is None:  # the last table that is made
            self._there = True
            with self.transaction():
                self._connection.all("SELECT pg_advisory_xact_lock(127970252481395)", again=False)
                for statement in TABLES.format_map(POSTGRES_WORDS).split(";"):
                    self._connection.all(statement, again=False)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of one statement."""
        with self._lock:
            return self._connection.all(statement.replace("?", "%s"), values) if self._there else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits, or rolls back."""
        with self._lock:
            self._connection.all("BEGIN", again=False)
            try:
                yield
            except BaseException:
                with suppress(TidegateError):  # without a connection there is no transaction either
                    self._connection.all("ROLLBACK", again=False)
                raise
            self._connection.all("COMMIT", again=False)

    def close(self) -> None:
        """End the session with the server."""
        self._connection.close()


class SideTables:
    """The pipeline's tables beside a log. `ingest.Intake` also uses them to store rows of open steps.

    Parameters
    ----------
    log
        An open log: a file, a database, one in memory, or one that is only read.
    location
        Where it was opened; needed for a database.
    head
        The head that the writer knows; needed by writers, if another one may drive the stream from another machine.
    """

    def __init__(
        self, log: Log | LogReader, location: str = "", head: Callable[[], bytes] | None = None
    ) -> None:
        self._log = 0  # the number of the log in its database
        # a file is locked by who drives its stream
        self._writer = (head, log) if head is not None and isinstance(log, PostgresLog) else None
        self._gaps_checked = False  # whether all gaps were compared with their checksums
        self._database: Database
        if isinstance(log, LogReader) and log.path is not None:
            self._database = ReadDatabase(log)
        elif isinstance(log, PostgresLog | LogReader):
            self._database = PostgresDatabase(location, make=isinstance(log, PostgresLog))
            found = self._database.run("SELECT id FROM tidegate.logs WHERE name = ?", (log.name,))
            self._log = int(found[0][0])
        else:
            self._database = SQLiteDatabase(str(log.path) if isinstance(log, SQLiteLog) else ":memory:")

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """A statement about this log, whose number is the first value."""
        return self._database.run(statement.format_map(self._database.dialect), (self._log, *values))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction, which is refused where another writer has moved the head, or has taken over."""
        with self._database.transaction():
            if self._writer is not None:
                head, log = self._writer
                if not self._run(HOLD_HEAD, (head(), log.driver)):
                    raise Fenced(FENCED)
            yield

    def _rows(self, table: str, condition: str = "", values: Sequence[Any] = ()) -> list[Any]:
        """Rows of a table, each as it was written."""
        found = self._run(
            f"SELECT {CHECKED[table]}, checksum FROM {{{table}}} WHERE log = ? {condition}", values
        )
        for *row, known in found:
            if known != checksum(table, self._log, row):
                raise LogDamaged(
                    f"a row of the table {table} beside the log is not as it was written; restore a backup."
                )
        return [row[:-1] for row in found]

    def _put(self, table: str, values: Sequence[Any], conflict: str = "") -> None:
        """Insert a row with its checksum."""
        places = ", ".join("?" * (len(values) + 2))
        self._run(
            f"INSERT INTO {{{table}}} VALUES ({places}) {conflict}",
            (*values, checksum(table, self._log, values)),
        )

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def remove_log(self, head: bytes) -> None:
        """Remove a log from its PostgreSQL database, with all that is kept beside it, if its head is still this one."""
        with self._database.transaction():
            found = self._run("DELETE FROM tidegate.logs WHERE id = ? AND head = ? RETURNING id", (head,))
            if found:
                self._run("DELETE FROM tidegate.commits WHERE log = ?")
                for name in NAMES:
                    self._run(f"DELETE FROM {{{name}}} WHERE log = ?")

    # notes and sinks ---------------------------------------------------------------------------------------------

    def note(self, name: str) -> Any:
        """What was noted under a name; None where nothing was."""
        found = dict(self._rows("notes"))  # reads all rows: one with a damaged name would not be found
        return json.loads(found[name]) if name in found else None

    def put_note(self, name: str, value: Any) -> None:
        """Note something; None forgets it."""
        with self._writing():
            self._note(name, value)

    def _note(self, name: str, value: Any) -> None:
        if value is None:
            self._run("DELETE FROM {notes} WHERE log = ? AND name = ?", (name,))
        else:
            self._put(
                "notes",
                (name, json.dumps(value)),
                "ON CONFLICT (log, name) DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
            )

    def sinks(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Of every sink that there ever was: the last release that it has for sure, and what it needs to resume."""
        return {name: (number, json.loads(position)) for name, number, position in self._rows("sinks")}

    def checkpoint(
        self,
        sinks: Mapping[str, tuple[int, Mapping[str, Any]]],
        readers: Any,
        marks: Mapping[int, Iterable[Mark]] | None = None,
    ) -> None:
        """Note how far sinks and readers have got, together, and the marks of each scope."""
        with self._writing():
            for name, (number, position) in sinks.items():
                self._put(
                    "sinks",
                    (name, number, json.dumps(position)),
                    "ON CONFLICT (log, name) DO UPDATE SET number = excluded.number, "
                    "position = excluded.position, checksum = excluded.checksum",
                )
            for scope, found in (marks or {}).items():
                for number, step, state in found:
                    values = (scope, number, step, json.dumps(state))
                    self._put("marks", values, "ON CONFLICT (log, scope, number) DO NOTHING")
            if readers is not None:
                self._note("readers", readers)

    def last_mark(self, scope: int) -> int:
        """The number of the last mark of a scope; 0 where there is none."""
        found = self._rows("marks", "AND scope = ? ORDER BY number DESC LIMIT 1", (scope,))
        return int(found[0][1]) if found else 0

    def mark(self, scope: int, *, number: int | None = None, step: int | None = None) -> Mark | None:
        """The last mark at or before release `number`; or, if `step` is given, the last one before that step."""
        limit, value = ("number <= ?", number) if step is None else ("step < ?", step)
        found = self._rows("marks", f"AND scope = ? AND {limit} ORDER BY number DESC LIMIT 1", (scope, value))
        return Mark(found[0][1], found[0][2], json.loads(found[0][3])) if found else None

    # missing readings --------------------------------------------------------------------------------------------

    def put_gaps(self, query: str, first: int, missing: Mask | None) -> None:
        """Note which cells of some steps have no reading, before these are committed; None: all have one."""
        self._check_gaps()
        with self._writing():
            # a start after a crash may find other readings, and cut the same steps in another way
            self._run("DELETE FROM {gaps} WHERE log = ? AND query = ? AND last >= ?", (query, first))
            if missing is not None:
                facts = (query, first, first + len(missing) - 1, np.packbits(missing).tobytes())
                self._put("gaps", facts)

    def _check_gaps(self) -> None:
        """Compare all rows once: one with a damaged query or step would not be found, or would be replaced."""
        if not self._gaps_checked:
            self._rows("gaps")
            self._gaps_checked = True

    def gaps(self, query: str, first: int, last: int, columns: int) -> Mask | None:
        """Which cells of some steps have no reading."""
        self._check_gaps()
        found = None
        for _, begin, end, bits in self._rows(
            "gaps", "AND query = ? AND last >= ? AND first <= ?", (query, first, last)
        ):
            size = (end - begin + 1) * columns
            mask = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=size).reshape(-1, columns)
            low, high = max(begin, first), min(end, last)
            found = np.zeros((last - first + 1, columns), dtype=np.bool_) if found is None else found
            found[low - first : high - first + 1] = mask[low - begin : high - begin + 1]
        return found

    # what an open epoch has ---------------------------------------------------------------------------------------

    def put_occurrences(self, query: str, first: int, entries: Sequence[tuple[int, bytes]]) -> None:
        """Replace all entries from step `first` on by these; each entry belongs to one step."""
        with self._writing():
            # a start after a crash may find other records of the steps that were not committed
            self._run("DELETE FROM {occurrences} WHERE log = ? AND query = ? AND step >= ?", (query, first))
            for step, content in entries:
                self._run(
                    "INSERT INTO {occurrences} (log, query, step, content) VALUES (?, ?, ?, ?)",
                    (query, step, content),
                )

    def occurrences(self, query: str, first: int, last: int) -> list[bytes]:
        """The entries of some steps, in the order of the steps."""
        found = self._run(
            "SELECT content FROM {occurrences} WHERE log = ? AND query = ? AND step BETWEEN ? AND ? "
            "ORDER BY step, number",
            (query, first, last),
        )
        return [bytes(content) for (content,) in found]

    def remove_ended_queries(self, queries: Container[str]) -> None:
        """Remove the records of queries that find no categories any more, after an amendment."""
        found = {query for (query,) in self._run("SELECT DISTINCT query FROM {occurrences} WHERE log = ?")}
        if ended := [query for query in found if query not in queries]:
            with self._writing():
                for query in ended:
                    self._run("DELETE FROM {occurrences} WHERE log = ? AND query = ?", (query,))

    def forget_occurrences(self, query: str, before: int) -> None:
        """Remove the records of steps before one: their epoch is over."""
        if self._run(
            "SELECT 1 FROM {occurrences} WHERE log = ? AND query = ? AND step < ? LIMIT 1", (query, before)
        ):
            with self._writing():
                self._run(
                    "DELETE FROM {occurrences} WHERE log = ? AND query = ? AND step < ?", (query, before)
                )

    # rows that a source cannot repeat ----------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """A name for the stream at its broker: the same at every start, and nobody else's."""
        if self.note("client") is None:
            self.put_note("client", process.secret(8).hex())
        return str(self.note("client"))

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """All rows, in the order in which they came."""
        yield from self._run("SELECT step, content FROM {spooled} WHERE log = ? ORDER BY number")

    def arrivals(self) -> Iterator[Arrivals]:
        """Messages that may come a second time."""
        for number, content in self._run(
            "SELECT number, content FROM {arrivals} WHERE log = ? ORDER BY number"
        ):
            yield Arrivals(number, content, 0)

    def keep(self, entries: Sequence[tuple[int, bytes]], arrivals: Arrivals | None) -> None:
        """Store rows, and which messages they came in; on disk when this returns."""
        with self._writing():
            self._insert(entries)
            if arrivals is not None:
                self._run("INSERT INTO {arrivals} VALUES (?, ?, ?)", (arrivals.number, arrivals.content))
                self._run("DELETE FROM {arrivals} WHERE log = ? AND number <= ?", (arrivals.expired,))

    def mark_for_removal(self, head: bytes) -> None:
        """Note that an amendment is to follow this head, after which the stored rows are not those of its queries."""
        self.put_note(AMENDING, head.hex())

    def remove_marked(self, head: bytes, *, refused: bool = False) -> None:
        """Remove the stored rows if the amendment was committed: the head has moved since they were marked."""
        before = self.note(AMENDING)
        if before is not None:
            if before != head.hex() and not refused:
                self.replace_all(())
            self.put_note(AMENDING, None)

    def replace_all(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """Store these rows instead of all others."""
        with self._writing():
            self._run("DELETE FROM {spooled} WHERE log = ?")
            self._insert(entries)

    def forget(self, step: int) -> None:
        """Remove the rows of steps that were committed."""
        if self._run("SELECT 1 FROM {spooled} WHERE log = ? AND step <= ? LIMIT 1", (step,)):
            with self._writing():
                self._run("DELETE FROM {spooled} WHERE log = ? AND step <= ?", (step,))

    def _insert(self, entries: Sequence[tuple[int, bytes]]) -> None:
        for step, content in entries:
            self._run("INSERT INTO {spooled} (log, step, content) VALUES (?, ?, ?)", (step, content))
