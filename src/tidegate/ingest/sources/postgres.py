"""A table in PostgreSQL, read in the order of a growing key; a row that is committed late is read when it is there."""

from __future__ import annotations

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
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ingest.sources.text import as_it_is
from tidegate.servers.postgres import ServerAway, ServerRefuses, Session, TableAddress, quoted

ROWS = 200_000  # read at once
PAGE = 64 * 2**20  # bytes of them, whatever their fields hold
FIELD = 65_536  # bytes of a field; a row with a longer one is no event
MANY = 2_000_000  # keys that may still be followed by smaller ones, before they are looked through
ANSWER = 300.0  # seconds that the server may take for one answer
SETTLE = 10.0  # seconds, by default, from the drawing of a key to the first row of its transaction
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
_SEQUENCE = """SELECT s.seqrelid, s.seqincrement > 0 AND NOT s.seqcycle, pg_is_in_recovery(),
has_sequence_privilege(s.seqrelid, 'SELECT') OR has_sequence_privilege(s.seqrelid, 'USAGE'), s.seqcache
FROM pg_sequence s WHERE s.seqrelid = pg_get_serial_sequence(%s, %s)::regclass"""
_CHOOSERS = """SELECT EXISTS (
SELECT FROM pg_partition_tree(%(table)s) p JOIN pg_class c ON c.oid = p.relid, aclexplode(c.relacl) a
WHERE a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
UNION ALL
SELECT FROM pg_partition_tree(%(table)s) p JOIN pg_class c ON c.oid = p.relid
JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = %(key)s, aclexplode(t.attacl) a
WHERE a.privilege_type = 'INSERT' AND a.grantee <> c.relowner)"""
_SHORT = frozenset(
    ["smallint", "integer", "bigint", "real", "double precision", "boolean", "date", "uuid"]
    + [f"{kind} {zone} time zone" for kind in ("time", "timestamp") for zone in ("with", "without")]
)  # types of which no field can be long
Keys = npt.NDArray[np.int64]


class Settling:
    """Up to which key no further row can appear.

    Keys are drawn before their rows are committed, and transactions end in any order: a row with a smaller key than
    others that were read may still come. So the key that was drawn last is marked, and after `settle` seconds, in which
    whoever had drawn a smaller one has begun to write, the next transaction's number is noted. When all transactions
    before that one have ended, which the server knows, every row up to the marked key is there, however long a
    transaction was open. What was drawn the sequence says, and not a row: anybody may write a large key into one.

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

    def look(self, oldest: int, following: int, drawn: int | None, now: float) -> None:
        """Take a look at the server: the oldest open transaction, the next one, the key that was drawn last."""
        if self.mark is not None:
            key, since, noted = self.mark
            if noted is not None and noted > following:
                noted, since = None, now  # another server, whose numbers start again
            if noted is None and now - since >= self.settle:
                noted = following
            self.mark = key, since, noted
            if noted is not None and oldest >= noted:
                self.settled, self.mark = key, None
        if self.mark is None and drawn is not None:
            self.mark = drawn, now, None

    def reach(self, key: int | None) -> None:
        """Everything up to a key was read; as far as that has settled it need not be read again."""
        if key is not None and self.settled is not None:
            found = min(key, self.settled)
            self.floor = found if self.floor is None else max(self.floor, found)

    @property
    def position(self) -> Position:
        """To resume from here."""
        return {"floor": self.floor, "mark": list(self.mark) if self.mark else None}


@dataclass
class _Read:
    """The key up to which was read, and all that were read above the floor, in order."""

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

    def up_to(self, key: int) -> _Read:
        """The same where there are no others up to a key."""
        return _Read(key if self.reached is None else max(key, self.reached), self.keys)

    def above(self, floor: int | None) -> _Read:
        """The same without what has settled."""
        return self if floor is None else _Read(self.reached, self.keys[self.keys > floor])


class TableSource(EventSource):
    """Rows of a table that only ever gets more of them.

    Each row counts once, by its key: rows that are changed after they were read are not read again. A finite
    input is what one snapshot of the database shows; a followed one is asked for more rows, and for smaller keys among
    those that may still come, until the end. Nobody's key hides another row: a key that the table's sequence has not
    drawn is not read before it has. A row with a field of more than 64 KiB is left out or, in a finite input, refuses it.

    Parameters
    ----------
    url
        "postgresql://reader@host/database?table=events&key=id"; `key` is a column of whole numbers, unique and, where the
        table is followed, drawn from a sequence of its own. By default it is called "id".
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
        settle: float = SETTLE,
        rows: int = ROWS,
    ) -> None:
        self.address = TableAddress(url, ("key",))
        super().__init__(f"the {self.address.shown}", columns)
        self.key = self.address.more.get("key", "id")
        self.follow = self.lenient = follow
        if not 0 <= settle < 86_400:
            raise InvalidParameter("settle", settle, "seconds between 0 and a day", "write settle = 10")
        self.settle = settle
        self.rows = self._most = rows
        self._sequence: int | None = None  # from which keys are drawn
        self._drawn: int | None = None  # before the snapshot of a finite input
        self._long = "false"  # the condition under which a row is no event
        self._looked_for_long = False
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
                    self._drawn = self._last_drawn(session)  # which no snapshot holds back
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
        self._check_sequence(session, number, kind)
        kinds = {name: columns[name][1] for name in self.columns}
        long = [
            f"octet_length({quoted(name)}::text) > {FIELD}" for name in kinds if kinds[name] not in _SHORT
        ]
        self._long = " OR ".join(long) or "false"
        self._moments = frozenset(name for name in kinds if kinds[name] == "timestamp with time zone")
        self._shapes = {name: _shape(name, kinds[name]) for name in self.columns}

    def _check_sequence(self, session: Session, table: int, kind: str) -> None:
        """Find what draws the keys, so that no sender decides up to which key there can be rows."""
        found = session.row(_SEQUENCE, [self.address.quoted, self.key])
        self._sequence = None if found is None or not found[1] or found[2] or not found[3] else found[0]
        if not self.follow:
            return
        if found is None or not found[1]:
            raise InvalidParameter(
                "key",
                self.key,
                "drawn from a growing sequence of its own in a table that is followed, because a sender who chooses keys "
                "could hide the rows of others",
                "make it GENERATED ALWAYS AS IDENTITY or bigserial, or name another with &key= in the location",
            )
        if (
            found[4] > 1 and self.settle <= SETTLE
        ):  # a session keeps what it has drawn for as long as it lasts
            raise InvalidParameter(
                "key",
                self.key,
                f"drawn one by one where settle is at most {SETTLE:g} seconds: its sequence gives each session "
                f"{found[4]} keys at once, whose rows may come when larger keys have settled",
                "set the sequence to CACHE 1, or write a settle above the longest time that a session keeps keys",
            )
        if found[2]:
            raise SourceUnavailable(
                f"{self.name} is on a replica, which does not know the keys that were drawn; follow it on the primary "
                "server."
            )
        if not found[3]:
            raise SourceUnavailable(
                f"the user of {self.name} may not read the sequence of {self.key!r}; grant it SELECT on that, too."
            )
        if kind == "p" and session.row(_CHOOSERS, {"table": table, "key": self.key})[0]:
            raise SourceUnavailable(
                f"{self.name} has partitions, among which no index keeps its key unique, and others than its owner may "
                "write keys; grant them INSERT on the other columns only."
            )

    def _page(self, condition: str, columns: Sequence[str]) -> tuple[Keys, pl.DataFrame, bool]:
        """Rows under a condition in the order of their keys, the keys, and whether there are no more.

        A page has a limited number of rows and of bytes; when the bytes cut it short, the next one asks for fewer rows.
        """
        key = quoted(self.key)
        wanted, most = ", ".join([key, *(self._shapes[name] for name in columns)]), self._most
        data, rows, whole = self._open().copy(
            f"COPY (SELECT {wanted} FROM {self.address.quoted} WHERE ({condition}) AND ({self._long}) IS NOT TRUE "
            f"ORDER BY {key} LIMIT {most}) TO STDOUT",
            PAGE,
        )
        if not whole:
            self._most = max(1, rows)
        elif 2 * len(data) < PAGE:
            self._most = min(self.rows, 2 * most)
        names = [f"{number}" for number in range(len(columns) + 1)]
        if not data:
            return np.zeros(0, dtype=np.int64), self.nothing().select(columns), True
        frame = _table(data, names, self.name)
        keys = frame[names[0]].cast(pl.Int64).to_numpy()
        found = {
            name: _field(frame[number], moment=name in self._moments)
            for name, number in zip(columns, names[1:], strict=True)
        }
        return keys, pl.DataFrame(found), whole and rows < most

    def _last_drawn(self, session: Session) -> int | None:
        """The key that was drawn last, where there is a sequence that says so."""
        if self._sequence is None:
            return None
        found = session.row("SELECT pg_sequence_last_value(%s::oid::regclass)", [self._sequence])[0]
        return None if found is None else int(found)

    def _look(self, settling: Settling) -> int | None:
        """Look at what has settled; returns the key that had been drawn last before that."""
        session = self._open()
        drawn = self._last_drawn(session) if self.follow else self._drawn
        oldest, following, now = session.row(
            "SELECT pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint, "
            "extract(epoch FROM now())::float8 FROM pg_current_snapshot() AS seen"
        )
        settling.look(oldest, following, drawn, now)
        return drawn

    # reading --------------------------------------------------------------------------------------------------

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
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

    def _finite(self, settling: Settling, columns: Sequence[str]) -> Iterator[EventBatch]:
        """One snapshot, from the first key that has not settled."""
        self._look(settling)
        self._refuse_long()
        reached, last = settling.floor, False
        if reached is not None and not self._any():
            raise InputChanged(
                f"{self.name} has no rows, though some were read; give the input that the position belongs to."
            )
        while not last:
            keys, frame, last = self._page(self._after(reached), columns)
            if not len(keys):
                return
            before, reached = settling.position, int(keys[-1])
            settling.reach(reached)
            yield EventBatch(frame, before, settling.position)

    def _any(self, condition: str = "true") -> bool:
        """Whether there is a row under a condition."""
        found = self._open().row(f"SELECT EXISTS (SELECT FROM {self.address.quoted} WHERE {condition})")
        return bool(found[0])

    def _refuse_long(self) -> None:
        """Refuse a finite input with a row that is no event, once for all passes over its snapshot."""
        if not self._looked_for_long and self._any(self._long):
            raise UnreadableInput(
                f"a field of {self.name} is longer than {FIELD:,} bytes; shorten it, or follow the table, where such "
                "rows are left out."
            )
        self._looked_for_long = True

    def _follow(self, settling: Settling, columns: Sequence[str], patience: Patience) -> Iterator[EventBatch]:
        """Ask for more rows, again and again; while the server is away nothing closes."""
        read = _Read(settling.floor)
        while True:
            before, begun = settling.position, time.monotonic()
            found = self._turn(settling, read, columns)
            if found is None:
                yield EventBatch(self.nothing(), before, before, caught_up=False)
                time.sleep(RETRY)
                continue
            frame, caught_up = found
            yield EventBatch(frame, before, settling.position, caught_up)
            if caught_up and not len(frame):  # no more than a fifth of the time is spent with looking
                time.sleep(max(0.0, min(patience(), 0.05), min(4 * (time.monotonic() - begun), 1.0)))

    def _turn(
        self, settling: Settling, read: _Read, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, bool] | None:
        """A page of new keys, and if it is the last, smaller keys that have come since; None without a server.

        What is noted as read has been delivered: a turn that breaks off has noted nothing.
        """
        try:
            drawn = self._look(settling)
            if drawn is None:  # no key was drawn, and so there are no rows
                self._away = False
                return self.nothing().select(columns), True
            keys, frame, last = self._page(
                f"{self._after(read.reached)} AND {quoted(self.key)} <= {drawn}", columns
            )
            now = read.with_keys(keys)
            now = now.up_to(drawn) if last else now
            if (last or len(now.keys) > MANY) and now.reached is not None:
                late = self._late(settling.floor, now)
                if len(late):
                    keys, more, _ = self._page(self._among(late[: self._most]), columns)
                    frame, now = pl.concat([frame, more]), now.with_keys(keys)
                if len(late) and len(keys) < len(late):
                    last = False
                else:
                    settling.reach(now.reached)
                    now = now.above(settling.floor)
        except ServerAway:
            self.close()
            self._away = True
            return None
        self._away = False
        read.reached, read.keys = now.reached, now.keys
        return frame, last

    def _after(self, key: int | None) -> str:
        return "true" if key is None else f"{quoted(self.key)} > {key}"

    def _among(self, keys: Keys) -> str:
        return f"{quoted(self.key)} = ANY ('{{{','.join(map(str, keys.tolist()))}}}'::bigint[])"

    def _late(self, floor: int | None, read: _Read) -> Keys:
        """Keys that are there and were not when their neighbours were read."""
        key = quoted(self.key)
        between = f"{self._after(floor)} AND {key} <= {read.reached} AND ({self._long}) IS NOT TRUE"
        data, _, _ = self._open().copy(
            f"COPY (SELECT {key} FROM {self.address.quoted} WHERE {between} ORDER BY {key}) TO STDOUT"
        )
        if not data:
            return np.zeros(0, dtype=np.int64)
        there: Keys = _table(data, ["0"], self.name)["0"].cast(pl.Int64).to_numpy()
        if not len(read.keys):
            return there
        at = np.searchsorted(read.keys, there)
        found: Keys = there[read.keys[np.minimum(at, len(read.keys) - 1)] != there]
        return found

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
    found = attempt(
        lambda: pl.read_csv(**as_it_is(data, len(names), "\t"), quote_char=None, null_values="\\N"),
        UnreadableInput(f"{where} cannot be read; check its encoding."),
    )
    found.columns = list(names)
    return found


def _field(series: pl.Series, *, moment: bool) -> pl.Series:
    """A column as it was, without escapes; a moment says that it is one of UTC."""
    if moment:
        return series + "Z"
    escaped = series.str.contains("\\", literal=True).fill_null(False).arg_true()
    return series.scatter(escaped, [_ESCAPE.sub(_unescaped, text) for text in series[escaped].to_list()])


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
