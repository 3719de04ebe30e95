"""A connection to PostgreSQL that is used like one to SQLite, so that both kinds of ledgers share their code."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerError, port_of
from tidegate.ledger import base, replay
from tidegate.servers.postgres import SCHEMES, Watchdog

ANSWER = 30.0  # seconds that a server may take for one statement, all of which are short
# What the two databases spell differently.
_SPELT = {
    replay._PLAIN: "SELECT count(*), coalesce(sum((kind = 'step' AND last = first AND parts = '' AND detail IS NULL)"
    "::int), 0), min(scope), max(scope), string_agg(first::text, ',' ORDER BY row), "
    "string_agg(units::text, ',' ORDER BY row), string_agg(hash, ''::bytea ORDER BY row) "
    "FROM charges WHERE row BETWEEN %s AND %s",
    base.HAS_TABLES: "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() "
    "AND tablename IN ('base', 'archive', 'place')",
    "BEGIN": "BEGIN ISOLATION LEVEL REPEATABLE READ",  # one consistent view, as in a file
}
_LEASED = "BEGIN; SELECT worker FROM lease FOR UPDATE"


def is_url(target: object) -> bool:
    """Whether a ledger's target is a database rather than a file."""
    return isinstance(target, str) and target.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


class Place:
    """Where a stream's ledger is: a database, and a schema in it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.schema = parts.fragment or "tidegate"
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self.schema) or self.schema.startswith(
            ("pg_", "information_schema")
        ):
            raise InvalidParameter(
                "ledger",
                f"{parts.scheme}://…#…",  # a # in a password puts its end here
                "a URL that ends in # and a name of small letters, digits and _, and a # in a password written as %23",
                "write for example postgresql://host/database#campus",
            )
        self.address = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
        port = port_of("ledger", parts)
        host = f"{parts.hostname or ''}{f':{port}' if port else ''}"
        self.shown = f"{parts.scheme}://{host}{parts.path}#{self.schema}"

    @property
    def key(self) -> int:
        """The number of the advisory lock."""
        digest = hashlib.sha256(f"tidegate ledger {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)


class Connection:
    """A connection that is used like one to SQLite: `execute` with question marks, every failure one sentence."""

    def __init__(self, place: Place) -> None:
        try:
            self._psycopg = importlib.import_module("psycopg")
        except ImportError:
            raise LedgerError(
                'a ledger in PostgreSQL needs the extra "postgres"; install tidegate[postgres].'
            ) from None
        self.place = place
        self._spelt: dict[str, str] = dict(_SPELT)
        with self.told():
            self._connection = self._psycopg.connect(place.address, autocommit=True, connect_timeout=10)
        self._watchdog = Watchdog(self._connection.fileno(), ANSWER)
        # a worker that has vanished without a word loses its session, and with it the lease, within half a minute
        for setting, value in (
            ("synchronous_commit", "on"),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
            ("search_path", f'"{place.schema}"'),  # it may be a word of SQL
        ):
            self.execute(f"SET {setting} TO {value}")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn every failure of the database into one sentence."""
        errors = self._psycopg.errors
        where = self.place.shown
        try:
            yield
        except self._psycopg.Error as error:
            if isinstance(error, errors.DiskFull):
                sentence = (
                    f"the disk of the ledger {where} is full; nothing was charged since the last commit; free "
                    "some space."
                )
            elif isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
                sentence = (
                    f"the ledger {where} cannot be written; give this user the right to, or use another."
                )
            elif isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
                raise LedgerCorrupt(
                    f"the ledger {where} lacks a table or a column; restore it from a backup."
                ) from None
            elif isinstance(error, self._psycopg.OperationalError):
                sentence = (
                    f"the database of the ledger {where} cannot be reached; nothing that was not committed has left; "
                    "start again when it is back."
                )
            else:
                sentence = (
                    f"the ledger {where} cannot be used ({type(error).__name__}); nothing was charged; "
                    "check the database and try again."
                )
        else:
            return
        raise LedgerError(sentence)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement that is written with question marks."""
        text = self._spelt.get(statement)
        if text is None:
            text = self._spelt[statement] = statement.replace("?", "%s")
        with self.told(), self._watchdog:
            return self._connection.execute(text, values or None)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        for row in rows:
            self.execute(statement, row)

    def leased(self) -> Any:
        """Begin a transaction and lock the lease: the number of the worker that may write."""
        with self.told(), self._watchdog:
            cursor = self._connection.execute(_LEASED)
            cursor.nextset()
            return cursor.fetchone()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, sound or failed."""
        if self._connection.closed:
            return False
        return int(self._connection.info.transaction_status) != 0

    def close(self) -> None:
        """End the session, and with it the lease."""
        self._watchdog.close()
        self._connection.close()
