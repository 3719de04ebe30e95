"""`Live`: single events from your program, counted in open steps, which are released when the public clock closes them.

    add(event)  → on disk, beside the log         release()  → steps that the clock has closed: count → push (the commit)

Open steps are stored as for a broker: `ingest.Intake` holds the rows that are needed, and `SideTables` keeps them in
the log's file, readable by its owner only, until the commit of their step.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import floor, isfinite
from pathlib import Path
from typing import Any, NoReturn, Self
from uuid import UUID

import numpy as np
import polars as pl

from tidegate.clock.durations import zone_of
from tidegate.clock.steps import PublicClock, Steps
from tidegate.core.errors import SessionClosed
from tidegate.core.log import Log, MemoryLog
from tidegate.core.mechanism import Mechanism
from tidegate.core.postgres_log import is_url
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.turns import Turns
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, one_of, show, whole
from tidegate.ingest.aggregate import valued
from tidegate.ingest.blocks import StepBlock
from tidegate.ingest.columns import Columns
from tidegate.ingest.combined_query import CombinedQuery, needed
from tidegate.ingest.intake import Intake
from tidegate.ingest.pending_rows import PendingRows
from tidegate.ingest.query import ALL, Query
from tidegate.ingest.schema import Schema
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.pipeline.clock_check import IN_PYTHON, check_clock
from tidegate.pipeline.errors import LogUnavailable
from tidegate.pipeline.lock import StreamLock
from tidegate.pipeline.side_tables import SideTables

FIELDS = ("time", "unit", "column", "value")
TYPES = pl.Int64, pl.String, pl.String, pl.String
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = 10**12  # seconds, beyond every clock
MISSED = "missed"  # key of a stored note: the steps that are passed over, and the first one after them
MOMENT = 1e-6  # seconds
CLOSED = "this stream is closed; open it again."
FAILED = "this stream has failed, and its last events or releases might not have been stored; open it again."

Event = tuple[Any, ...]


class Live:
    """Events are handed over one by one; releases come back when the public clock has closed their step.

    Parameters
    ----------
    mechanism
        The mechanism, or a mapping of several by name.
    log
        The path of the log, which also has the events of open steps. None: in memory, for experiments.
    steps
        The public clock.
    query
        What is counted, and how much one unit may contribute; a mapping with the same names if there are several
        mechanisms. A policy with a smaller `max_change` than that is refused.
    shares
        The fraction of the budget of each query, if there are several.
    missed
        What becomes of steps that began and closed while no program ran. "pass over": they are not released,
        and cost nothing. "release": they are counted like all others, for programs that hand over later what came
        meanwhile.
    catch_up
        The most steps that may have closed since the last release; with more, the start is refused.
    clock
        Public time in seconds since 1970.

    Attributes
    ----------
    session
        The session that releases. Do not push to it: that uses up the step, and its events are lost.

    Privacy
    -------
    The policy's. In one step at most `most` contributions of a unit are kept; which ones depends on the unit's own events
    alone. A step is released when the public clock has passed its end and the lateness, and never because of an event.
    Which steps were missed follows from the clock, the log and the times of earlier starts. Late events, those of the far
    future and those of no column are left out, and nothing shows how many. Events of open steps are raw data: they are in
    the log's file, which its owner alone may read, and are deleted when their step is committed.

    Error
    -----
    The mechanism's. An event costs a write to the disk; `add_many` writes once for many. Memory and disk hold at most
    `most` rows per unit and open step.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.ingest import Columns, Query, Steps
    >>> visits = Query(aggregate="distinct", columns=Columns(("hall", "yard")))
    >>> now = [90]
    >>> mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=24), columns=visits.width)
    >>> steps = Steps(start="1970-01-01T00:00", length="1h")
    >>> with tg.Live(mechanism, steps=steps, query=visits, clock=lambda: now[0]) as live:
    ...     live.add(60, "device 7", "hall")
    ...     print(live.release())
    ...     now[0] = 3600  # the clock closes the first hour
    ...     (release,) = live.release()
    ...     print(release.step, release.time)
    []
    1 1970-01-01 00:00:00+00:00
    """

    def __init__(
        self,
        mechanism: Mechanism | Mapping[str, Mechanism],
        log: Path | str | None = None,
        *,
        steps: Steps,
        query: Query | Mapping[str, Query],
        shares: Mapping[str, ExactLike] | None = None,
        missed: str = "pass over",
        catch_up: int = 10_000,
        clock: Callable[[], float] | None = None,
    ) -> None:
        one_of("missed", missed, ("pass over", "release"), 'write missed="pass over"')
        passes = missed == "pass over"
        self.steps, self._clock = steps, clock or PublicClock()
        self._alone = not isinstance(query, Mapping)
        if isinstance(mechanism, Mapping) == self._alone:
            raise InvalidParameter(
                "query", "given", "a mapping if the mechanisms are one", "name each query like its mechanism"
            )
        self._queries: dict[str, Query] = {"": query} if isinstance(query, Query) else dict(query)
        mechanisms = {"": mechanism} if not isinstance(mechanism, Mapping) else dict(mechanism)
        _check_queries(self._queries, mechanisms)
        self._turns, self._closed = Turns(), ""
        self._opened = ExitStack()
        with ExitStack() as opened:
            opened.push(self._opened.__exit__)
            found = self._open_log(log, max(each.policy.window or 1 for each in mechanisms.values()))
            names = {name: each.labels for name, each in self._queries.items()}
            self.session = Session(
                mechanism,
                found,
                shares=shares,
                about={
                    name: {"steps": steps.describe(), "query": each.describe()}
                    for name, each in self._queries.items()
                },
                names=names[""] if self._alone else names,
            )
            self._opened.callback(self.session.close)
            self._side_tables = SideTables(found)
            self._opened.callback(self._side_tables.close)
            now, last = self._clock(), self.session.step
            check_clock(
                steps,
                last,
                now,
                most=whole("catch_up", catch_up),
                backfill=passes and not last,
                remedies=IN_PYTHON,
            )
            self._passed = self._missed(now) if passes else []
            self._intake = _Intake(self._queries, steps, self.session.step, self._clock)
            self._intake.restore(self._side_tables)
            opened.pop_all()

    def _open_log(self, log: Path | str | None, window: int) -> Log:
        if log is None:
            return MemoryLog(window)
        if isinstance(log, str) and is_url(log):
            raise InvalidParameter(
                "log", "a database", "a file, which one program at a time can hold", "give a path"
            )
        lock = StreamLock(Path(log))
        self._opened.callback(lock.release)
        found = SQLiteLog(log)
        self._opened.callback(found.close)
        return found

    def _missed(self, now: float) -> list[tuple[int, int]]:
        """Ranges of steps that began and closed while nobody could hand over an event, by public facts alone.

        A program is expected to release a step when it closes. So the earlier one is taken to have run until the first
        step closed that it did not release, and steps that had not begun by then are missed. Events that were handed over
        decide nothing here: that would show that there were some.
        """
        last, closed, noted = self.session.step, self.steps.closed_by(now), self._side_tables.note(MISSED)
        first, ranges = last + 1, list[tuple[int, int]]()
        if noted is not None:
            ranges = [(begin, end) for begin, end in noted["ranges"] if end > last]
            first = self.steps.begun_by(_closes(self.steps, max(first, noted["next"])) - MOMENT) + 1
        if first <= closed:
            ranges.append((first, closed))
        self._side_tables.put_note(MISSED, {"next": closed + 1, "ranges": ranges})
        return ranges

    # events ------------------------------------------------------------------------------------------------------

    def add(
        self, time: datetime | float, unit: str | int | UUID, column: str | None = None, value: Any = None
    ) -> None:
        """Hand over an event; it is on disk when this returns, and counts once for each time that it is handed over.

        Parameters
        ----------
        time
            When it happened: a datetime that has a zone, or seconds since 1970.
        unit
            Whose it is: text, a whole number or a UUID. A number and the same digits are one unit.
        column
            Which column it belongs to.
        value
            The number that is added up, averaged or sorted into intervals.
        """
        event = self._read((time, unit, column, value))
        self._take([event])

    def add_many(self, events: Iterable[Event]) -> None:
        """Hand over several at once, each (time, unit, column, value): one write to the disk.

        An event that `add` would refuse is left out: it must not keep those of others from being counted.
        """
        found = []
        for event in events:
            try:
                found.append(self._read(event))
            except InvalidInput:
                continue
        self._take(found)

    def _read(self, event: Event) -> tuple[int | str | None, ...]:
        """The fields of an event as text, as in a file; refused where they cannot be converted."""
        try:
            formed = isinstance(event, tuple | list) and 2 <= len(event) <= 4
            time, unit, column, value = (*event, None, None)[:4] if formed else (None,) * 4
            fields = (_time(time), _text("unit", unit), _text("column", column), _value(value))
        except InvalidInput:
            raise
        except Exception:  # types of others, which fail in their own ways
            raise InvalidInput("an event cannot be read; convert its fields, or leave it out.") from None
        for name, field in zip(FIELDS, fields, strict=True):
            if field is None and name in self._intake.columns:
                raise InvalidInput(f"an event has no {name}; hand it over with one, or leave the event out.")
        return fields

    def _take(self, events: list[tuple[int | str | None, ...]]) -> None:
        frame = pl.DataFrame(events, schema=dict(zip(FIELDS, TYPES, strict=True)), orient="row")
        with self._turn():
            self._intake.take(frame.select(self._intake.columns))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let nobody else change anything meanwhile. After an interruption, opening again restores the last commit."""
        with self._turns.one():
            if self._closed or self.session.closed:
                raise SessionClosed(self._closed or FAILED)
            try:
                yield
            except BaseException:
                self._closed = FAILED
                raise

    # releases ----------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """When the next step closes, in seconds since 1970; infinite where none does."""
        step = self._intake.next_step
        if self.steps.count is not None and step > self.steps.count:
            return float("inf")
        return _closes(self.steps, step)

    def release(self) -> list[Any]:
        """Release all steps that the clock has closed: each one is committed before the next is counted.

        With several queries, each item maps their names to releases. What a program has not seen, because it was killed
        before it returned, is in `releases`.
        """
        found = []
        with self._turn():
            for block in self._blocks():
                found.append(self._push(block))
                self._side_tables.forget(block.last_step)
        return found

    def _blocks(self) -> Iterator[StepBlock]:
        """Steps that have closed, without those that are passed over."""
        intake, now = self._intake, self._clock()
        last = self.steps.closed_by(now)
        for begin, end in self._passed:
            yield from intake.closed(now, min(last, begin - 1))
            if last >= end >= intake.next_step:
                intake.pass_over(end)
        yield from intake.closed(now, last)

    def _push(self, block: StepBlock) -> Any:
        if self._alone:
            values: Any = block.values[0]
        else:
            parts = self._intake.combined.apart(block)
            values = {name: part.values[0] for name, part in zip(self._queries, parts, strict=True)}
        try:
            found = self.session.push(values, block.first_step, json.dumps(block.position))
        except sqlite3.OperationalError as error:  # the disk is full, say
            raise LogUnavailable(
                f"the log cannot be written ({error}); free some space, and open the stream again."
            ) from None
        return self._timed(found)

    def releases(self, since: int = 1) -> Iterator[Any]:
        """What was released from a step on, also by earlier programs: for each step what `release` has returned."""
        for found in self.session.releases(since):
            if isinstance(found, dict):
                yield self._timed({name: each[0] for name, each in found.items()})
            else:
                yield self._timed(found[0])

    def _timed(self, released: Any) -> Any:
        """Set the times at which steps began, in the zone of the steps."""
        for each in released.values() if isinstance(released, dict) else (released,):
            each.time = self._begin(each.step)
            if each.revised is not None:
                each.revised.times = list(map(self._begin, each.revised.steps.tolist()))
        return released

    def _begin(self, step: int) -> datetime:
        return self.steps.begin(step).astimezone(zone_of(self.steps.zone))

    async def follow(self) -> AsyncIterator[Any]:
        """Releases as they come, until the stream is closed or its last step was released; the loop is never blocked."""
        while not self._closed:
            for released in await asyncio.to_thread(self.release):
                yield released
            due = self.due
            if due == float("inf"):
                return
            while self._clock() < due and not self._closed:
                await asyncio.sleep(self._intake.patience)

    # the end -----------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it takes no more events: it was closed, or has failed."""
        return bool(self._closed) or self.session.closed

    def close(self) -> None:
        """Close the log. Open steps stay open, and the next start continues them."""
        if not self._turns.forked:
            with self._turns.one():
                self._closed = CLOSED
                self._opened.close()

    def __repr__(self) -> str:
        return f"<Live {self.session!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a live stream is the one writer of its log and cannot be copied or pickled; open it instead."
        )


class _Handed(EventSource):
    """Events that a program hands over: each is read independently of others, and cannot be read again."""

    repeatable, lenient = False, True

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Any = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Nothing: `_Intake.take` gets what comes."""
        return iter(())


class _Intake(Intake):
    """An intake that is given batches, and asked for the steps that have closed."""

    def __init__(
        self, queries: Mapping[str, Query], steps: Steps, last: int, clock: Callable[[], float]
    ) -> None:
        self.combined = CombinedQuery(tuple((_schema(query), query) for query in queries.values()))
        query: Query | CombinedQuery = self.combined if len(queries) > 1 else next(iter(queries.values()))
        schema = self.combined.parts[0][0]
        self.columns = [name for name in FIELDS if name in self.combined.needed(schema)]
        super().__init__(
            _Handed("events", self.columns),
            schema,
            steps,
            query,
            position={"step": last, "source": None},
            follow=True,
            clock=clock,
        )
        self._held = PendingRows(lambda rows, numbers: needed(self.query, rows, numbers))

    def restore(self, keeper: SideTables) -> None:
        """Hold what was stored before this start, and store what comes."""
        self.keeper = keeper
        keeper.forget(self.next_step - 1)
        self._restore(self._held)

    def take(self, frame: pl.DataFrame) -> None:
        """Count events."""
        self._take(self._held, EventBatch(frame, {}, {}))

    def closed(self, now: float, last: int) -> Iterator[StepBlock]:
        """The steps up to one that are closed at a moment."""
        return self._close(self._held, now, min(last, self._end), {})

    def pass_over(self, last: int) -> None:
        """Skip to the step after `last`, and drop the rows that are held of earlier ones."""
        self._held.close(last, {})
        self.next_step = last + 1

    @property
    def patience(self) -> float:
        """Seconds to sleep until the next step closes, or a little less."""
        return self._patience()


def _schema(query: Query) -> Schema:
    """Which fields of an event a query reads."""
    named = isinstance(query.columns, Columns) and query.columns != ALL
    adds = valued(query) or not isinstance(query.columns, Columns)
    return Schema(
        time="time",
        unit="unit",
        column="column" if named else None,
        value="value" if adds else None,
        time_format="microseconds",
    )


def _check_queries(queries: Mapping[str, Query], mechanisms: Mapping[str, Mechanism]) -> None:
    """Refuse queries that do not count events, or that one unit can change by more than their policy covers."""
    if set(queries) != set(mechanisms):
        raise InvalidParameter(
            "query", sorted(queries), "named like the mechanisms", "name each query like its mechanism"
        )
    for name, query in queries.items():
        mechanism, grid = mechanisms[name], Fraction(query.grid)
        other = query.learn is not None or query.requirements is not None or query.discovers
        if query.aggregate == "given" or query.over > 1 or other:
            raise InvalidParameter(
                "query", query.aggregate, "an aggregate of the events of single steps", "use a pipeline"
            )
        unknown = [field for field in query.looked_at if field not in FIELDS]
        if unknown:
            raise InvalidParameter("where", unknown[0], f"about {', '.join(FIELDS)}", "name one of them")
        query.check(mechanism.policy)
        if mechanism.columns != query.width:
            wanted = f"{query.width}, as the query has it"
            raise InvalidParameter("columns", mechanism.columns, wanted, "write columns=query.width")
        if Fraction(mechanism.grid) != grid:
            wanted = f"{show(grid)}, as the query has it"
            raise InvalidParameter("grid", show(Fraction(mechanism.grid)), wanted, "write grid=query.grid")


def _closes(steps: Steps, step: int) -> float:
    """When a step closes, in seconds since 1970."""
    assert isinstance(steps.lateness, int)
    return steps.boundary(step + 1) / 1e6 + steps.lateness


def _time(time: object) -> int | None:
    """A time in microseconds since 1970."""
    if time is None:
        return None
    if isinstance(time, datetime) and time.tzinfo is not None:
        return (time - EPOCH) // timedelta(microseconds=1)
    if _numeric(time):
        exact = _exact(time)
        return floor(max(-LATEST, min(exact, LATEST)) * 1_000_000)
    raise InvalidInput(
        "the time of an event must be seconds since 1970, or a datetime that has a zone; convert it."
    )


def _text(name: str, given: object) -> str | None:
    """A unit or a column as text."""
    if given is None:
        return None
    if isinstance(given, str | int | np.integer | UUID) and not isinstance(given, bool):
        found = str(given)
        try:
            found.encode()
        except UnicodeEncodeError:
            pass
        else:
            return found
    raise InvalidInput(f"the {name} of an event must be text, a whole number or a UUID; convert it.")


def _value(value: object) -> str | None:
    """A value as text."""
    if value is None:
        return None
    if _numeric(value):
        return str(_exact(value))
    raise InvalidInput("the value of an event must be a finite number; convert it, or leave the event out.")


def _numeric(given: object) -> bool:
    if isinstance(given, int | np.integer):
        return not isinstance(given, bool)
    return isinstance(given, float | Decimal | np.floating) and isfinite(given)


def _exact(given: Any) -> int | float | Decimal:
    """A number in a type that multiplies without overflow."""
    if isinstance(given, np.integer):
        return int(given)
    return float(given) if isinstance(given, np.floating) else given
