"""A table in PostgreSQL: its address without a secret, and a connection that never waits for ever."""

from __future__ import annotations

import importlib
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tidegate.errors import InvalidParameter, MissingPart, TidegateError, port_of

SCHEMES = ("postgresql", "postgres")
EXAMPLE = 'write for example "postgresql://writer@localhost/campus?table=released"'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def is_table(location: str) -> bool:
    """Whether a location is a table in PostgreSQL."""
    return location.startswith(tuple(f"{scheme}:" for scheme in SCHEMES))


class TableAddress:
    """Where a table is: "postgresql://user@host:5432/database?table=schema.name", with any parameters of libpq.

    Parameters
    ----------
    url
        The address. In a configuration it holds no password: ``${NAME}`` stands for it, or libpq takes it from
        `PGPASSWORD`, ``~/.pgpass`` or the file that ``passfile=`` names, and certificates from ``sslcert=``, ``sslkey=``
        and ``sslrootcert=``.
    more
        Further parameters that are not libpq's.

    Examples
    --------
    >>> found = TableAddress("postgresql://ann@host/campus?table=open.released&sslmode=verify-full")
    >>> found.quoted, found.address
    ('"open"."released"', 'postgresql://ann@host/campus?sslmode=verify-full')
    """

    def __init__(self, url: str, more: tuple[str, ...] = ()) -> None:
        parts = urlsplit(url)
        shown = f"{parts.scheme}://…"  # a # in a password puts its end anywhere
        if not url.startswith(f"{parts.scheme}://") or "#" in url:
            raise InvalidParameter(
                "location", shown, "an address of a table in PostgreSQL without #", EXAMPLE
            )
        given = parse_qsl(parts.query, keep_blank_values=True)
        port = port_of("location", parts)
        found = dict(given)
        self.more = {name: found.pop(name) for name in more if name in found}
        names = found.pop("table", "").split(".")
        if not 1 <= len(names) <= 2 or not all(_NAME.fullmatch(name) for name in names):
            raise InvalidParameter(
                "location", shown, "an address with ?table= and a table's name, or schema.name", EXAMPLE
            )
        self.schema, self.table = names[0] if len(names) == 2 else None, names[-1]
        self.address = urlunsplit(
            (parts.scheme, parts.netloc, parts.path, urlencode(found, quote_via=quote), "")
        )
        host = f"{parts.hostname or found.get('host', 'localhost')}{f':{port}' if port else ''}"
        self.server = f"{host}{parts.path}"
        self.shown = f"table {'.'.join(names)} at {self.server}"

    def named(self, ending: str = "") -> str:
        """The table, or one that belongs to it, as SQL writes it."""
        name = quoted(self.table + ending)
        return f"{quoted(self.schema)}.{name}" if self.schema else name

    @property
    def quoted(self) -> str:
        """The table as SQL writes it."""
        return self.named()


def quoted(name: str) -> str:
    """An identifier as SQL writes it, whatever it is.

    >>> quoted('odd"name')
    '"odd""name"'
    """
    return '"' + name.replace('"', '""') + '"'


class Watchdog:
    """Ends a session whose server has not answered for a while, so that nobody waits for ever.

    A server that hangs still acknowledges packets, so no time-out of the network ends the wait. One thread looks at
    a deadline; setting and clearing it costs nothing.

    Parameters
    ----------
    descriptor
        Of the session's socket.
    seconds
        How long an answer may take.
    """

    def __init__(self, descriptor: int, seconds: float) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._seconds = seconds
        self._deadline = math.inf
        self._ended = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def __enter__(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def __exit__(self, *_: object) -> None:
        self._deadline = math.inf

    def _look(self) -> None:
        while not self._ended.wait(min(1.0, self._seconds / 2)):
            if time.monotonic() > self._deadline:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                break
        self._socket.close()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()


class ServerAway(TidegateError):
    """The server cannot be reached, or has stopped to answer."""


class ServerRefuses(TidegateError):
    """The server answers and does not let this user do what is needed."""


class Session:
    """A connection to the database of a table.

    Parameters
    ----------
    address
        The table.
    answer
        Seconds that one answer may take.
    """

    def __init__(self, address: TableAddress, answer: float) -> None:
        try:
            self._psycopg = importlib.import_module("psycopg")
        except ImportError:
            raise MissingPart(
                'a table in PostgreSQL needs the extra "postgres"; install tidegate[postgres].'
            ) from None
        self.address = address
        with self.told():
            self.connection: Any = self._psycopg.connect(
                address.address,
                autocommit=True,
                connect_timeout=max(2, int(min(answer, 10))),
                application_name="tidegate",
                client_encoding="UTF8",
            )
        self.watchdog = Watchdog(self.connection.fileno(), answer)

    @property
    def _lost(self) -> bool:
        """Whether there was a connection and it is gone: libpq says so with an error of no particular kind."""
        connection = getattr(self, "connection", None)
        return connection is not None and connection.pgconn.status != self._psycopg.pq.ConnStatus.OK

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn every failure of the database into one sentence, without what it says about the data."""
        server, table = self.address.server, self.address.table
        try:
            yield
        except self._psycopg.Error as error:
            words, known = str(error), self._psycopg.errors
            if isinstance(error, known.InsufficientPrivilege | known.ReadOnlySqlTransaction):
                found: TidegateError = ServerRefuses(
                    f"the user of {server} may not use the table {table} so; give it the right to, or name another."
                )
            elif isinstance(error, known.UndefinedTable | known.InvalidSchemaName):
                found = ServerRefuses(
                    f"{server} has no table or schema for {self.address.shown}; make it, or correct the name."
                )
            elif isinstance(error, known.UndefinedColumn | known.UndefinedFunction):
                found = ServerRefuses(
                    f"the table {table} at {server} lacks a column or has another type; correct location or table."
                )
            elif "authentication failed" in words or "no password supplied" in words:
                found = ServerRefuses(
                    f"{server} refuses the user; check the name, and the password in PGPASSWORD, ~/.pgpass or passfile."
                )
            elif "invalid URI query parameter" in words or "invalid sslmode" in words:
                found = ServerRefuses(
                    f"the address of {self.address.shown} has a parameter that PostgreSQL does not know; correct it."
                )
            elif (
                isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError) or self._lost
            ):
                found = ServerAway(
                    f"the database at {server} cannot be reached; start it, or check the address."
                )
            else:
                found = ServerRefuses(
                    f"the table {table} at {server} cannot be used ({type(error).__name__}); check the database."
                )
        else:
            return
        raise found

    def execute(self, statement: str, values: Any = None) -> Any:
        """Run one statement."""
        with self.told(), self.watchdog:
            return self.connection.execute(statement, values)

    def row(self, statement: str, values: Any = None) -> Any:
        """The first row of an answer, or None."""
        with self.told(), self.watchdog:
            return self.connection.execute(statement, values).fetchone()

    def copy(self, statement: str, most: int | None = None) -> tuple[bytes, int, bool]:
        """The lines that a COPY sends, how many they are, and whether they are all.

        They are taken from libpq itself, which is four times as quick as row by row. What comes after `most` bytes is
        taken from the connection and forgotten, line by line.
        """
        library, lines, size, whole = self.connection.pgconn, list[bytes](), 0, True
        with self.told(), self.watchdog:
            begun = library.exec_(statement.encode())
            if begun.status != self._psycopg.pq.ExecStatus.COPY_OUT:
                raise self._psycopg.errors.error_from_result(begun)
            while (found := library.get_copy_data(0))[0] > 0:
                size += found[0]
                whole = whole and (most is None or size <= most or not lines)
                if whole:
                    lines.append(bytes(found[1]))
            ended = library.get_result()
            if ended is None or ended.status != self._psycopg.pq.ExecStatus.COMMAND_OK:
                if ended is None:
                    raise self._psycopg.OperationalError("the connection is lost")
                raise self._psycopg.errors.error_from_result(ended)
            while library.get_result() is not None:
                pass
        return b"".join(lines), len(lines), whole

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything or nothing."""
        with self.told(), self.connection.transaction():
            yield

    def close(self) -> None:
        """End the session."""
        watchdog = getattr(self, "watchdog", None)
        if watchdog is not None:
            watchdog.close()
        with suppress(Exception):
            self.connection.close()
