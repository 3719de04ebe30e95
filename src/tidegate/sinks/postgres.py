"""A table in PostgreSQL: one row for each step, column and revision, written exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidParameter, MissingPart
from tidegate.servers.postgres import EXAMPLE, ServerAway, ServerRefuses, Session, TableAddress
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import AnotherStream, SinkError, SinkUnavailable
from tidegate.sinks.layout import Layout
from tidegate.sinks.sink import Position, Sink

AT_ONCE = 20_000  # rows of one transaction
ANSWER = 10.0  # seconds that the server may take before the stream continues without it
BOOK, NEWEST = "_stream", "_newest"  # endings of the tables beside the one with releases
_LONGEST = 63 - len("_earlier_999") - len(NEWEST)  # PostgreSQL cuts longer names off

_TABLE = """CREATE TABLE {table} (
    time timestamptz NOT NULL,
    step bigint NOT NULL,
    revision integer NOT NULL,
    query text NOT NULL,
    "column" text NOT NULL,
    value double precision,
    low double precision,
    high double precision,
    status text NOT NULL,
    scale double precision,
    spent text NOT NULL,
    PRIMARY KEY (query, "column", step, revision)
)"""
_INDEX = "CREATE INDEX ON {table} (time)"
# a condition on the time reaches the table itself, so that a chart of a day does not read years
_VIEW = """CREATE VIEW {newest} AS SELECT * FROM {table} AS row WHERE NOT EXISTS (
    SELECT FROM {table} AS later WHERE later.query = row.query AND later."column" = row."column"
    AND later.step = row.step AND later.revision > row.revision
)"""
# who writes, and up to which release: changes in the same transaction as the rows
_BOOK = """CREATE TABLE {book} (
    query text PRIMARY KEY, stream text NOT NULL, number bigint NOT NULL, worker bigint NOT NULL
)"""
_PARTS = "split_part(query, '.', 1) = %s"  # rows of the book about any part of a query
_UPSERT = """INSERT INTO {table}
(query, time, step, revision, "column", value, low, high, status, scale, spent)
SELECT %s, * FROM unnest(%s::timestamptz[], %s::bigint[], %s::integer[], %s::text[], %s::double precision[],
    %s::double precision[], %s::double precision[], %s::text[], %s::double precision[], %s::text[])
ON CONFLICT (query, "column", step, revision) DO UPDATE SET time = EXCLUDED.time, value = EXCLUDED.value,
    low = EXCLUDED.low, high = EXCLUDED.high, status = EXCLUDED.status, scale = EXCLUDED.scale,
    spent = EXCLUDED.spent"""
_FIELDS = 10  # of a row, in the order of the table's


class PostgresSink(Sink):
    """Writes releases to a table, with a view of the newest revisions beside it.

    Rows and the number of the last release are committed together, so that a start after a crash continues exactly
    after what is there, whether or not the word of the last commit has reached this program. Each start takes the
    table over: a program that was wrongly taken for dead is refused with its next write.

    Parameters
    ----------
    url
        "postgresql://user@host/database?table=released", with "&query=name" for one of several queries; see
        :class:`tidegate.servers.postgres.TableAddress`.
    layout
        How a release reads. A table is always long: columns are values of one of its columns.
    """

    def __init__(self, url: str, layout: Layout) -> None:
        self.address = TableAddress(url, ("query",))
        query = self.address.more.get("query", "")
        if len(self.address.table) > _LONGEST or self.address.table != self.address.table.lower():
            raise InvalidParameter(
                "table", self.address.table, f"at most {_LONGEST} small letters, digits and _", EXAMPLE
            )
        super().__init__(self.address.shown + (f", query {query}" if query else ""))
        self._layout = replace(layout, form="long", revised=True)
        self._query = query
        # no name of a query has a point; after an amendment the numbers of releases begin with 1 again
        self._part = f"{query}.from-{layout.since + 1}" if layout.since else query
        self._session: Session | None = None
        self._number = 0  # the last release that the table has
        self._worker = 0
        self._made = False
        self._set_aside = ""  # the name that this start has given to what was there

    # the tables -----------------------------------------------------------------------------------------------

    def _sql(self, statement: str) -> str:
        address = self.address
        return statement.format(table=address.quoted, newest=address.named(NEWEST), book=address.named(BOOK))

    def _there(self, session: Session, ending: str = "") -> bool:
        found = session.row("SELECT to_regclass(%s) IS NOT NULL", [self.address.named(ending)])
        return bool(found[0])

    def _open(self) -> Session:
        if self._session is None:
            self._session = Session(self.address, ANSWER)
            self._session.execute("SET synchronous_commit TO on")
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    @contextmanager
    def _starting(self) -> Iterator[Session]:
        """A session before anything is released: what fails here refuses the start."""
        try:
            yield self._open()
        except (ServerAway, ServerRefuses, MissingPart) as error:
            sentence = str(error)
        else:
            return
        self._close()
        raise SinkError(sentence)

    def occupied(self) -> bool:
        """Whether the table has rows of another stream, or rows of steps that this one has not released yet."""
        with self._starting() as session:
            return self._has_rows(session, self._layout.since) or self._taken(session)

    def _has_rows(self, session: Session, after: int = 0) -> bool:
        """Whether the table has rows of the query, of steps after one."""
        if not self._there(session):
            return False
        wanted = self._sql("SELECT EXISTS (SELECT FROM {table} WHERE query = %s AND step > %s)")
        return bool(session.row(wanted, [self._query, after])[0])

    def _taken(self, session: Session) -> bool:
        """Whether another stream is in the book for the query."""
        if not self._there(session, BOOK):
            return False
        wanted = f"SELECT EXISTS (SELECT FROM {{book}} WHERE {_PARTS} AND stream <> %s)"
        return bool(session.row(self._sql(wanted), [self._query, self._layout.stream])[0])

    def refuse_occupied(self) -> None:
        """Refuse a table that has rows before this stream has released anything."""
        if self.occupied():
            raise self._foreign()

    def set_aside(self) -> Path | None:
        """Rename the table, its view and its book, so that nothing that was published is overwritten."""
        with self._starting() as session:
            number = 1
            while self._there(session, f"_earlier_{number}"):
                number += 1
            aside = f"_earlier_{number}"
            self._rename(session, "", aside)
            if self._there(session, aside):  # else another query of the stream has set it aside
                self._set_aside = aside
        return None

    def put_back(self) -> None:
        """Give the tables their names again, unless there are others."""
        if self._set_aside:
            with self._starting() as session:
                if not self._there(session):
                    self._rename(session, self._set_aside, "")
            self._set_aside = ""

    def _rename(self, session: Session, before: str, after: str) -> None:
        """Let the tables and the view have another ending."""
        with session.transaction():
            for kind, ending in (("TABLE", ""), ("VIEW", NEWEST), ("TABLE", BOOK)):
                if self._there(session, before + ending):
                    name = f'"{self.address.table}{after}{ending}"'
                    session.execute(f"ALTER {kind} {self.address.named(before + ending)} RENAME TO {name}")

    def resume(self, number: int, position: Position | None) -> int:
        """Make the tables if there are none, take them over, and continue after the last release that they have."""
        with self._starting() as session, session.transaction():
            if not self._there(session):
                for statement in (_TABLE, _INDEX):
                    session.execute(self._sql(statement))
                self._made = True
            if not self._there(session, BOOK):
                if self._has_rows(session):
                    raise self._foreign()
                session.execute(self._sql(_BOOK))
            if not self._there(session, NEWEST):
                session.execute(self._sql(_VIEW))
            session.execute(
                self._sql("INSERT INTO {book} VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING"),
                [self._part, self._layout.stream],
            )
            if self._taken(session):
                raise self._foreign()
            if self._made:  # a table that was dropped is written again, with the rows of all queries
                session.execute(self._sql("UPDATE {book} SET number = 0"))
            session.execute(
                self._sql(f"UPDATE {{book}} SET worker = worker + 1 WHERE {_PARTS}"), [self._query]
            )
            self._number, self._worker = session.row(
                self._sql("SELECT number, worker FROM {book} WHERE query = %s"), [self._part]
            )
        return self._number

    def abandon(self) -> None:
        """Drop the tables that this start has made."""
        if self._made and self._session is not None:
            with self._starting() as session, session.transaction():
                for kind, ending in (("VIEW", NEWEST), ("TABLE", BOOK), ("TABLE", "")):
                    session.execute(f"DROP {kind} IF EXISTS {self.address.named(ending)}")

    # releases -------------------------------------------------------------------------------------------------

    def write(self, chunk: Chunk) -> None:
        """Commit the rows of releases that the table lacks."""
        size = max(1, AT_ONCE // max(1, len(self._layout.labels)))
        try:
            fresh = chunk.after(self._number)
            while len(fresh):
                self._commit(fresh[:size])
                fresh = fresh.after(self._number)
        except ServerAway:
            self._close()
            sentence = f"waiting for the database at {self.address.server}; releases are kept and sent when it answers."
        except ServerRefuses as error:
            raise SinkError(str(error)) from None
        else:
            return
        raise SinkUnavailable(sentence)

    def _commit(self, part: Chunk) -> None:
        """One transaction: rows, and the number of the last of their releases."""
        session = self._open()
        with session.transaction():
            found = session.row(
                self._sql("SELECT number, worker FROM {book} WHERE query = %s AND stream = %s FOR UPDATE"),
                [self._part, self._layout.stream],
            )
            if found is None or found[1] != self._worker:
                raise SinkError(
                    f"{self.name} was taken over by another program, or was emptied; nothing is lost: stop the other one "
                    "and start this one again."
                )
            self._number = found[0]  # the commit of a connection that broke may have been made
            part = part.after(self._number)
            if len(part):
                columns = list(zip(*self._layout.rows(part), strict=True))[:_FIELDS]
                session.execute(self._sql(_UPSERT), [self._query, *(_plain(column) for column in columns)])
                session.execute(
                    self._sql("UPDATE {book} SET number = %s WHERE query = %s"), [part.last, self._part]
                )
        self._number = max(self._number, part.last)

    def close(self) -> None:
        """End the session."""
        self._close()

    def _foreign(self) -> SinkError:
        return AnotherStream(
            f"{self.name} has rows of another stream than this one; put back the ledger that it was released from if "
            "that was lost, name another table in [sink], or begin a new stream with --new-stream, whose budget adds to "
            "the one of those rows."
        )


def _plain(column: tuple[Any, ...]) -> list[Any]:
    """One column of rows, all of one type: whole numbers among values become floats."""
    if any(isinstance(value, float) or value is None for value in column):
        return [None if value is None else float(value) for value in column]
    return list(column)
