"""A table in PostgreSQL, read in the order of a growing key; a row that is committed late is read when it is there."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidParameter, MissingPart
from tidegate.ingest.errors import InputChanged, MissingColumn, SourceUnavailable, UnreadableInput, attempt
from tidegate.ingest.sources.source import Batch, Patience, Position, Source, no_patience
from tidegate.servers.postgres import ServerAway, ServerRefuses, Session, TableAddress, quoted

ROWS = 200_000  # read at once
MANY = 2_000_000  # keys that may still be followed by smaller ones, before they are looked through
ANSWER = 300.0  # seconds that the server may take for one answer
RETRY = 1.0  # seconds between two attempts at a server that is away
_OLDEST = 130_000  # the first version with snapshots of 64 bits
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KIND = """SELECT c.oid, c.relkind, current_setting('server_version_num')::int, current_setting('server_encoding')
FROM pg_class c WHERE c.oid = to_regclass(%s)"""
_COLUMNS = """SELECT attname, attnum, format_type(atttypid, NULL), attnotnull FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"""
_UNIQUE = """SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = %s AND indisvalid AND indkey[0] = %s
AND (%s OR indisunique AND indnkeyatts = 1 AND indpred IS NULL))"""
Keys = npt.NDArray[np.int64]


class Settling:
    """Up to which key no further row can appear.

    Keys are drawn before their rows are committed, and transactions end in any order: a row with a smaller key than
    others that were read may still come. So the largest key is marked, and after `settle` seconds, in which whoever had
    drawn a smaller one has begun to write, the next transaction's number is noted. When all transactions before that
    one have ended, which the server knows, every row up to the marked key is there, however long a transaction was open.

    Parameters
    ----------
    settle
        Seconds from the drawing of a key to the first row that its transaction writes, at most.
    floor
        Up to which key everything was read and has settled.
    mark
        A key, when it was marked, and the number of a transaction once it was noted.
    """

    def __init__(self, settle: float, floor: int | None, mark: Sequence[Any] | None) -> None:
        self.settle = settle
        self.floor = floor
        self.mark: tuple[int, float, int | None] | None = tuple(mark) if mark else None
        self.settled: int | None = None

    def look(self, oldest: int, following: int, largest: int | None, now: float) -> None:
        """Take a look at the server: the oldest open transaction, the next one, the largest key."""
        if self.mark is not None:
            key, since, noted = self.mark
            if noted is not None and noted > following:
                noted, since = None, now  # another server, which counts anew
            if noted is None and now - since >= self.settle:
                noted = following
            self.mark = key, since, noted
            if noted is not None and oldest >= noted:
                self.settled, self.mark = key, None
        if self.mark is None and largest is not None:
            self.mark = largest, now, None

    def reach(self, key: int | None) -> None:
        """Everything up to a key was read; as far as that has settled it need not be read again."""
        if key is not None and self.settled is not None:
            found = min(key, self.settled)
            self.floor = found if self.floor is None else max(self.floor, found)

    @property
    def position(self) -> Position:
        """To go on from here."""
        return {"floor": self.floor, "mark": list(self.mark) if self.mark else None}


@dataclass
class _Read:
    """The largest key that was read, and all above the floor, in order."""

    reached: int | None
    keys: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def with_keys(self, more: Keys) -> _Read:
        """The same with further keys, in order."""
        if not len(more):
            return self
        last = int(more[-1])
        keys = np.concatenate([self.keys, more])
        if self.reached is not None and more[0] < self.reached:
            keys.sort()
        return _Read(last if self.reached is None else max(last, self.reached), keys)

    def above(self, floor: int | None) -> _Read:
        """The same without what has settled."""
        return self if floor is None else _Read(self.reached, self.keys[self.keys > floor])


class TableSource(Source):
    """Rows of a table that only ever gets more of them.

    Each row counts once, by its key: rows that are changed after they were read are not read again. A finite
    input is what one snapshot of the database shows; a followed one is asked for more rows, and for smaller keys among
    those that may still come, until the end.

    Parameters
    ----------
    url
        "postgresql://reader@host/database?table=events&key=id"; `key` is a column of whole numbers, unique, that is
        drawn from a sequence. By default it is called "id".
    columns
        The needed columns.
    follow
        Whether more rows arrive. Then it is lenient.
    settle
        Seconds from the drawing of a key to the first row that its transaction writes, at most.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str],
        *,
        follow: bool = False,
        settle: float = 10.0,
        rows: int = ROWS,
    ) -> None:
        self.address = TableAddress(url, ("key",))
        super().__init__(f"the {self.address.shown}", columns)
        self.key = self.address.more.get("key", "id")
        self.follow = self.lenient = follow
        if not 0 <= settle < 86_400:
            raise InvalidParameter("settle", settle, "seconds between 0 and a day", "write settle = 10")
        self.settle = settle
        self.rows = rows
        self._session: Session | None = None
        self._shapes: dict[str, str] = {}  # how each column is asked for
        self._moments: frozenset[str] = frozenset()  # columns of times with a zone
        self._away = False

    @property
    def status(self) -> str:
        """One line for people: connected, or waiting for what."""
        return f"{'waiting for' if self._away else 'connected to'} the database at {self.address.server}"

    # the server -----------------------------------------------------------------------------------------------

    def _open(self) -> Session:
        if self._session is None:
            session = Session(self.address, ANSWER)
            try:
                for setting in ("DateStyle TO ISO", "TimeZone TO 'UTC'", "extra_float_digits TO 1"):
                    session.execute(f"SET {setting}")
                self._check(session)
                if not self.follow:  # all of it is read in one snapshot, however often
                    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session

    def check(self) -> None:
        """Refuse a table that could not be read."""
        try:
            self._open()
        except (ServerAway, ServerRefuses, MissingPart) as error:
            raise SourceUnavailable(str(error)) from None
        finally:
            self.close()

    def _check(self, session: Session) -> None:
        """Refuse what is no table with this key and these columns."""
        found = session.row(_KIND, [self.address.quoted])
        if found is None:
            raise SourceUnavailable(f"there is no {self.address.shown}; correct the location.")
        number, kind, version, encoding = found
        if kind not in ("r", "p"):
            raise SourceUnavailable(
                f"{self.name} is a view, in which no key is known to be unique; name the table behind it."
            )
        if version < _OLDEST or encoding == "SQL_ASCII":
            raise SourceUnavailable(
                f"{self.name} needs PostgreSQL 13 or newer and a database with an encoding other than SQL_ASCII; "
                "move it there."
            )
        columns = {row[0]: row[1:] for row in session.execute(_COLUMNS, [number])}
        for name in (self.key, *self.columns):
            if name not in columns:
                raise MissingColumn(f"{self.name} has no column {name!r}; declare one that it has.")
        place, type_, filled = columns[self.key]
        unique = session.row(_UNIQUE, [number, place, kind == "p"])[0]
        if type_ not in ("smallint", "integer", "bigint") or not filled or not unique:
            raise InvalidParameter(
                "key",
                self.key,
                "a column of whole numbers that is not null and has a unique index of its own",
                "make it the primary key, or name another with &key= in the location",
            )
        kinds = {name: columns[name][1] for name in self.columns}
        self._moments = frozenset(name for name in kinds if kinds[name] == "timestamp with time zone")
        self._shapes = {name: _shape(name, kinds[name]) for name in self.columns}

    def _copy(self, statement: str) -> bytes:
        """What COPY sends: a line for each row, with every tab and line break of a field written as an escape."""
        return self._open().copy(f"COPY ({statement}) TO STDOUT")

    def _page(
        self, condition: str, columns: Sequence[str], most: int | None = None
    ) -> tuple[Keys, pl.DataFrame]:
        """Rows under a condition in the order of their keys, and the keys."""
        key = quoted(self.key)
        wanted = ", ".join([key, *(self._shapes[name] for name in columns)])
        limit = "" if most is None else f" LIMIT {most}"
        data = self._copy(
            f"SELECT {wanted} FROM {self.address.quoted} WHERE {condition} ORDER BY {key}{limit}"
        )
        names = [f"{number}" for number in range(len(columns) + 1)]
        if not data:
            return np.zeros(0, dtype=np.int64), self.nothing().select(columns)
        frame = _table(data, names, self.name)
        keys = frame[names[0]].cast(pl.Int64).to_numpy()
        found = {
            name: _field(frame[number], moment=name in self._moments)
            for name, number in zip(columns, names[1:], strict=True)
        }
        return keys, pl.DataFrame(found)

    def _look(self, settling: Settling) -> None:
        found = self._open().row(
            "SELECT pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint, "
            f"(SELECT max({quoted(self.key)}) FROM {self.address.quoted}), extract(epoch FROM now())::float8 "
            "FROM pg_current_snapshot() AS seen"
        )
        settling.look(*found)

    # reading --------------------------------------------------------------------------------------------------

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[Batch]:
        """Read pages of rows."""
        columns = self.columns if columns is None else columns
        known = position or {}
        settling = Settling(self.settle, known.get("floor"), known.get("mark"))
        try:
            if self.follow:
                yield from self._follow(settling, columns, patience)
            else:
                yield from self._finite(settling, columns)
        except (ServerAway, ServerRefuses, MissingPart) as error:
            sentence = str(error)
        else:
            return
        self.close()
        raise SourceUnavailable(sentence)

    def _finite(self, settling: Settling, columns: Sequence[str]) -> Iterator[Batch]:
        """One snapshot, from the first key that has not settled."""
        self._look(settling)
        reached = settling.floor
        if reached is not None and settling.mark is None:
            raise InputChanged(
                f"{self.name} has no rows, though some were read; give the input that the position belongs to."
            )
        while True:
            keys, frame = self._page(self._after(reached), columns, self.rows)
            if not len(keys):
                return
            before, reached = settling.position, int(keys[-1])
            settling.reach(reached)
            yield Batch(frame, before, settling.position)

    def _follow(self, settling: Settling, columns: Sequence[str], patience: Patience) -> Iterator[Batch]:
        """Ask for more rows, again and again; while the server is away nothing closes."""
        read = _Read(settling.floor)
        while True:
            before, begun = settling.position, time.monotonic()
            found = self._turn(settling, read, columns)
            if found is None:
                yield Batch(self.nothing(), before, before, caught_up=False)
                time.sleep(RETRY)
                continue
            frame, caught_up = found
            yield Batch(frame, before, settling.position, caught_up)
            if caught_up and not len(frame):  # no more than a fifth of the time is spent with looking
                time.sleep(max(0.0, min(patience(), 0.05), min(4 * (time.monotonic() - begun), 1.0)))

    def _turn(
        self, settling: Settling, read: _Read, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, bool] | None:
        """A page of new keys, and if it is the last, smaller keys that have come since; None without a server.

        What is noted as read has been handed out: a turn that breaks off has noted nothing.
        """
        try:
            self._look(settling)
            keys, frame = self._page(self._after(read.reached), columns, self.rows)
            now = read.with_keys(keys)
            caught_up = len(keys) < self.rows
            if (caught_up or len(now.keys) > MANY) and now.reached is not None:
                late = self._late(settling.floor, now)
                if len(late):
                    frame = pl.concat([frame, *self._those(late, columns)])
                    now = now.with_keys(late)
                settling.reach(now.reached)
                now = now.above(settling.floor)
        except ServerAway:
            self.close()
            self._away = True
            return None
        self._away = False
        read.reached, read.keys = now.reached, now.keys
        return frame, caught_up

    def _after(self, key: int | None) -> str:
        return "true" if key is None else f"{quoted(self.key)} > {key}"

    def _late(self, floor: int | None, read: _Read) -> Keys:
        """Keys that are there and were not when their neighbours were read."""
        key = quoted(self.key)
        between = f"{self._after(floor)} AND {key} <= {read.reached}"
        data = self._copy(f"SELECT {key} FROM {self.address.quoted} WHERE {between} ORDER BY {key}")
        if not data:
            return np.zeros(0, dtype=np.int64)
        there: Keys = _table(data, ["0"], self.name)["0"].cast(pl.Int64).to_numpy()
        at = np.searchsorted(read.keys, there)
        found: Keys = there[read.keys[np.minimum(at, len(read.keys) - 1)] != there]
        return found

    def _those(self, keys: Keys, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        for at in range(0, len(keys), self.rows):
            listed = ",".join(map(str, keys[at : at + self.rows].tolist()))
            yield self._page(f"{quoted(self.key)} = ANY ('{{{listed}}}'::bigint[])", columns)[1]

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _shape(name: str, kind: str) -> str:
    """How a column is asked for, so that its text reads like that of a file."""
    if kind == "timestamp with time zone":
        return f"{quoted(name)} AT TIME ZONE 'UTC'"
    return f"{quoted(name)}::text" if kind == "boolean" else quoted(name)


def _table(data: bytes, names: Sequence[str], where: str) -> pl.DataFrame:
    """Lines of COPY as text columns; nothing in a field ends it, because there are no quotes."""
    return attempt(
        lambda: pl.read_csv(
            io.BytesIO(data),
            has_header=False,
            separator="\t",
            quote_char=None,
            null_values="\\N",
            schema=dict.fromkeys(names, pl.String),
        ),
        UnreadableInput(f"{where} cannot be read; check its encoding."),
    )


def _field(series: pl.Series, *, moment: bool) -> pl.Series:
    """A column as it was, without escapes; a moment says that it is one of UTC."""
    if moment:
        return series + "Z"
    escaped = series.str.contains("\\", literal=True).fill_null(False)
    if not escaped.any():
        return series
    plain = [None if text is None else _ESCAPE.sub(_unescaped, text) for text in series.to_list()]
    return pl.Series(plain, dtype=pl.String)


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
