"""The intake: batches of a source in, vectors of closed steps out, each with the position to commit."""

from __future__ import annotations

import time as _time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl

from tidegate.clock.steps import MOVED, PublicClock, Steps
from tidegate.errors import InvalidParameter
from tidegate.exact import one_of
from tidegate.ingest.active_units import longest_over, spread
from tidegate.ingest.aggregate import Matrix
from tidegate.ingest.arrays import never_decreases
from tidegate.ingest.blocks import Cutter, StepBlock, block_steps
from tidegate.ingest.checkpoint import Checkpoint, packed, unpacked
from tidegate.ingest.combined_query import (
    CombinedQuery,
    fill,
    needed,
    numeric,
    occurrences,
    read_rows,
    step_vectors,
)
from tidegate.ingest.errors import TimeGoesBackwards
from tidegate.ingest.pending_rows import PendingRows
from tidegate.ingest.query import Query
from tidegate.ingest.schema import Schema, TextUnits, UnitReader
from tidegate.ingest.sources.source import EventBatch, EventSource, Position
from tidegate.ingest.step_buckets import StepBuckets
from tidegate.ingest.times import TimeReader

_FEW_ROWS = 2**16  # that may be stored before it is looked whether all of them are needed
_LONGEST_WAIT = 0.25  # seconds after which a live source is asked again


class Intake:
    r"""Turns a source into blocks of closed steps; iterate over it once.

    Parameters
    ----------
    source
        Where records come from.
    schema, steps, query
        Which columns they have, the public clock, and what is counted; the blocks of several queries hold the columns
        of all side by side, and `CombinedQuery.apart` takes them apart.
    position
        The position of the last block that was committed; by default the beginning.
    follow
        False: the input is finite, and its steps close when all of it has been read and checked. True: steps
        close by the public clock.
    order
        "any": a finite input that is out of order is sorted on disk. "time": it is refused.
    clock
        Public time in seconds since 1970.
    folder
        Where temporary files go.
    once
        With `follow`: end as soon as everything that had arrived was read and the steps that had closed were delivered.

    A source that cannot be read twice (a broker, followed standard input) hands its records over to the `keeper`, which
    a durable stream sets: they are on disk before the source may forget them. Without one they are in memory only, and
    lost when the process dies.

    Privacy
    -------
    Records outside of the clock, late, from the future, without a unit, or beyond the bound of their unit
    are left out and counted in `dropped`, which is for the curator's eyes in a debugger: it is in no
    position, message or log. A finite input is read once to check it before the first step is delivered, so
    that a bad record refuses the whole input and does not cut a stream of releases short at a place that
    depends on it. Blocks end at public steps: how records are ordered, and in which pieces a source reads them, decides
    nothing that is seen.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "events.csv"
    >>> _ = file.write_text("time,device,place\n60,a,hall\n90,b,hall\n4000,a,yard\n")

    >>> schema = Schema(time="time", unit="device", column="place")
    >>> source = open_source(file, schema.needed)
    >>> steps = Steps(start="1970-01-01T00:00", length="1h", count=2)
    >>> intake = Intake(source, schema, steps, Query(aggregate="count", columns=Columns(("hall", "yard"))))
    >>> [block.units.tolist() for block in intake]
    [[[2, 0], [0, 1]]]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        source: EventSource,
        schema: Schema,
        steps: Steps,
        query: Query | CombinedQuery,
        *,
        position: Position | None = None,
        follow: bool = False,
        order: str = "any",
        clock: Callable[[], float] | None = None,
        folder: str | Path | None = None,
        once: bool = False,
    ) -> None:
        query.check_schema(schema)
        one_of("order", order, ("any", "time"), "write order='any'")
        if not follow and steps.count is None:
            raise InvalidParameter(
                "count",
                None,
                "given for a finite input, because the last event must not decide where the stream ends",
                "write how many steps there are, for example count=168",
            )
        self.source, self.schema, self.steps, self.query = source, schema, steps, query
        self.follow, self.order, self.folder = follow, order, folder
        self.clock = clock or PublicClock()
        self.next_step: int = 1 + (position["step"] if position else 0)
        self._from: Position | None = position["source"] if position else None
        self._times = TimeReader(schema.time_format, steps.zone)
        self._units = UnitReader()
        self.keeper: Checkpoint | None = None  # set by whoever commits the steps
        self.began: Callable[[Position], None] | None = None  # hears where a live source begins
        self._over = longest_over(query)
        self._kept_rows = 0
        self._cutter = Cutter(block_steps(query.width, follow=follow), self._end)
        self._stopped = False
        self._rehearsed = False
        self._once = once
        self._set_by = 0.0  # what was last said of the system's clock
        self.dropped = 0
        self.counted = False  # whether any record was; a function of raw records, for the owner alone

    def __iter__(self) -> Iterator[StepBlock]:
        for block in self._live() if self.follow else self._finite():
            yield block
            if self._stopped:
                return

    def commit(self, position: Position) -> None:
        """Tell the source that everything up to a block's position is safe."""
        if position["source"] is not None and self.source.repeatable:
            self.source.commit(position["source"])

    def stop(self) -> None:
        """End soon, between two blocks; open steps stay open. Safe to call from a signal handler."""
        self._stopped = True

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()

    # finite input -------------------------------------------------------------------------------------------

    def _finite(self) -> Iterator[StepBlock]:
        if self.next_step > self._last:
            return
        ordered = self._check()
        if self.query.aggregate == "given" and not self._rehearsed:
            for _ in self._rehearsal():
                pass
        if ordered and self._over == 1:
            yield from self._ordered()
        elif self.order == "time" and not ordered:
            raise TimeGoesBackwards(
                f'the times of {self.source.name} go backwards; sort it by time, or write order="any" to '
                "have it sorted."
            )
        else:
            yield from self._unordered()

    def _rehearsal(self) -> Intake:
        """The same from here, to find missing and repeated readings before the first step is delivered."""
        position = {"step": self.next_step - 1, "source": self._from}
        other = Intake(
            self.source,
            self.schema,
            self.steps,
            self.query,
            position=position,
            order=self.order,
            clock=self.clock,
            folder=self.folder,
        )
        other._rehearsed = True
        return other

    @property
    def _last(self) -> int:
        assert self.steps.count is not None
        return self.steps.count

    def _check(self) -> bool:
        """Read everything once, refuse what cannot be read, and say whether steps come in order."""
        times, units = TimeReader(self.schema.time_format, self.steps.zone), UnitReader()
        wanted: tuple[str, ...] | None = None
        typed = self.source.typed
        if typed:  # one batch tells the types of all columns; of the rest the times are enough
            for batch in self.source.batches(self._from):
                read_rows(self.query, batch.frame, self.schema, times, units)
                # numbers that are written as text are looked at one by one: any of them may be none
                typed = not any(
                    batch.frame[name].dtype == pl.String for name in numeric(self.query, self.schema)
                )
                break
            wanted = (self.schema.time,) if typed else None
        latest, reached, by_time, ordered = -(2**63), 0, True, True
        for batch in self.source.batches(self._from, columns=wanted):
            if typed:
                moments = times.read(batch.frame[self.schema.time])
            else:
                moments = read_rows(self.query, batch.frame, self.schema, times, units)["time"]
            if not ordered:
                continue
            found = moments.drop_nulls().to_numpy()
            if not len(found):
                continue
            if by_time and never_decreases(found, latest):
                latest = int(found[-1])
                continue
            if by_time:  # from here on steps are compared: within a step any order will do
                by_time = False
                reached = int(self.steps.numbers(np.array([latest], dtype=np.int64))[0])
            numbers = self.steps.numbers(found)
            numbers = numbers[numbers >= self.next_step]
            if len(numbers):
                ordered = never_decreases(numbers, reached)
                reached = int(numbers[-1])
            if not ordered and typed:
                break
        return ordered

    def _ordered(self) -> Iterator[StepBlock]:
        """Steps below the last one seen are complete, because the whole input is known to be in order."""
        held: list[tuple[pl.DataFrame, Matrix]] = []
        for batch in self.source.batches(self._from):
            rows, numbers = self._accept(batch)
            if not len(numbers):
                continue
            if not held:  # before the first record steps are empty
                yield from self._blocks([], int(numbers[0]) - 1, batch.before)
            current = int(numbers[-1])
            if self.next_step < current:  # whatever is held belongs to the next step
                cut = int(np.searchsorted(numbers, current))
                held.append((rows[:cut], numbers[:cut]))
                yield from self._blocks(held, current - 1, batch.before)
                held, rows, numbers = [], rows[cut:], numbers[cut:]
            held.append((rows, numbers))
        yield from self._blocks(held, self._last, self._from)

    def _unordered(self) -> Iterator[StepBlock]:
        buckets = StepBuckets(self.next_step, self._last, self.folder)
        try:
            for batch in self.source.batches(self._from):
                buckets.add(*self._accept(batch))
            for start in buckets.buckets():
                end = min(start + buckets.width - 1, self._last)
                found = buckets.take(start)
                yield from self._blocks([found] if found else [], end, self._from)
        finally:
            buckets.close()

    # live input ---------------------------------------------------------------------------------------------

    def _live(self) -> Iterator[StepBlock]:
        held = PendingRows(lambda rows, numbers: needed(self.query, rows, numbers))
        self._restore(held)
        after: Position | None = self._from
        batches = self.source.batches(self._from, patience=self._patience)
        now = self.clock()
        for batch in batches:
            self._watch_clock()
            self._take(held, batch)
            after = batch.after
            if batch.caught_up:
                # as of before the batch was read: whatever had arrived by then is in
                yield from self._close(held, now, self._end, after)
                if self._once:
                    return
            if self._stopped or self.next_step > self._end:
                return
            now = self.clock()
        if self._once:
            yield from self._close(held, now, self._end, after)
            return
        # the input has ended: the step in which it did is the last
        end = min(self.steps.closed_by(self.clock() + self._lateness) + 1, self._end)
        while self.next_step <= end and not self._stopped:
            yield from self._close(held, self.clock(), end, after)
            _time.sleep(self._patience())

    def _take(self, held: PendingRows, batch: EventBatch) -> None:
        """Hold the rows of a batch that count, and keep them safe where the source cannot deliver them again."""
        self._remember(batch.before)
        rows, numbers = self._accept(batch, furthest=self._furthest())
        rows, numbers = held.add(rows, numbers, batch.before)
        if not self.source.repeatable:
            self._store(held, rows, numbers, batch)

    def _watch_clock(self) -> None:
        """Say so, once, when the system's clock was set: here, because every stream that is followed passes by."""
        by = float(getattr(self.clock, "set_by", 0.0))
        if abs(by - self._set_by) <= MOVED:
            return
        self._set_by = by
        if by:
            direction = "forward" if by > 0 else "back"
            self.source.tell(
                f"the system's clock was set {direction} by {abs(by):,.0f} s; the steps of this stream continue by the "
                "clock of its start, so start it again if the new time is right."
            )
        else:
            self.source.tell("the system's clock is again that of this stream.")

    def _remember(self, beginning: Position) -> None:
        """Have it kept where the source begins: a start before the first commit must begin there and not elsewhere."""
        if self._from is None and beginning and self.source.repeatable:
            self._from = beginning
            if self.began is not None:
                self.began({"step": self.next_step - 1, "source": beginning})

    def _restore(self, held: PendingRows) -> None:
        """Hold again what was stored before this start."""
        if self.keeper is None:
            self.source.begin("", ())
            return
        for step, content in self.keeper.entries():
            if step >= self.next_step:
                rows = unpacked(content)
                held.add(rows, np.full(len(rows), step, dtype=np.int64), {})
                self._kept_rows += len(rows)
        if not self.source.repeatable:
            self.source.begin(self.keeper.identity, self.keeper.arrivals())

    def _store(self, held: PendingRows, rows: pl.DataFrame, numbers: Matrix, batch: EventBatch) -> None:
        """Put the rows of a batch away; from then on the source may forget them."""
        if self.keeper is not None and len(numbers):
            self.keeper.keep(list(packed(rows, numbers)), batch.arrivals)
            self._kept_rows += len(rows)
            if self._kept_rows > max(_FEW_ROWS, 4 * len(held)):  # most of them make no difference any more
                entries = [entry for piece in held.pieces() for entry in packed(*piece)]
                self.keeper.replace_all(entries)
                self._kept_rows = len(held)
        self.source.commit(batch.after)

    @property
    def _lateness(self) -> int:
        assert isinstance(self.steps.lateness, int)
        return self.steps.lateness

    @property
    def _end(self) -> int:
        return 2**62 if self.steps.count is None else self.steps.count

    def _furthest(self) -> int:
        """The last step of which records are taken now."""
        return self.steps.furthest(self.clock())

    def _patience(self) -> float:
        """Until the next step closes, but not longer than a quarter of a second."""
        return min(max(self._due() - self.clock(), 0.001), _LONGEST_WAIT)

    def _due(self) -> float:
        """When the next step closes."""
        return self.steps.boundary(self.next_step + 1) / 1e6 + self._lateness

    def _close(self, held: PendingRows, now: float, end: int, after: Position | None) -> Iterator[StepBlock]:
        """The steps that are closed by a moment, but none beyond the last one."""
        last = min(self.steps.closed_by(now), end)
        if last >= self.next_step:
            closed, position = held.close(last, after)
            yield from self._blocks(closed, last, position)

    # both ---------------------------------------------------------------------------------------------------

    def _accept(self, batch: EventBatch, furthest: int | None = None) -> tuple[pl.DataFrame, Matrix]:
        """The rows of a batch that count, and their steps."""
        total = len(batch.frame)
        if not total:
            return pl.DataFrame(), np.zeros(0, dtype=np.int64)
        rows = self._rows(batch.frame)
        numbers = self.steps.numbers(rows["time"].to_numpy())
        counts = numbers + self._over > self.next_step
        if furthest is not None:
            counts &= numbers <= furthest
        rows, numbers = rows.filter(counts), numbers[counts]
        self.dropped += total - len(rows)
        if self._over > 1:
            return spread(self.query, rows, numbers, self.next_step, self._end)
        return rows, numbers

    def _rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        if not self.source.lenient:
            return read_rows(self.query, frame, self.schema, self._times, self._units)
        # where anybody can write, nothing is remembered from one record to the next, and a bad one is left out
        each = TimeReader(self.schema.time_format, self.steps.zone, lenient=True)
        return read_rows(self.query, frame, self.schema, each, TextUnits(), lenient=True)

    def _blocks(
        self, held: list[tuple[pl.DataFrame, Matrix]], last: int, source: Position | None
    ) -> Iterator[StepBlock]:
        """The blocks that are complete with all steps up to the last."""
        for piece in self._vectors(held, self.next_step, last):
            self.next_step = piece.last_step + 1
            for block in self._cutter.add(piece):
                # Of a finite input in order, only the first of these steps has rows in batches before the present one.
                # Of a followed input any of them may, so that before the last step all are read again.
                safe = self._from if self.follow and block.last_step < last else source
                yield replace(block, position={"step": block.last_step, "source": safe})
        self._from = source

    def _vectors(self, held: list[tuple[pl.DataFrame, Matrix]], first: int, last: int) -> Iterator[StepBlock]:
        """The vectors of some steps, without the position that they are committed with."""
        held = [(rows, numbers) for rows, numbers in held if len(numbers)]
        rows = pl.concat([rows for rows, _ in held], rechunk=True) if held else pl.DataFrame()
        numbers = np.concatenate([numbers for _, numbers in held]) if held else np.zeros(0, dtype=np.int64)
        if not never_decreases(numbers):
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows[order], numbers[order]
        most = block_steps(self.query.width, follow=False)
        while first <= last:
            end = min(first + most - 1, last)
            low, high = np.searchsorted(numbers, [first, end + 1])
            units, missing = step_vectors(
                self.query,
                rows[int(low) : int(high)],
                numbers[low:high],
                first,
                end - first + 1,
                finite=not self.follow,
            )
            self.counted |= bool(high > low) and _any_counts(rows[int(low) : int(high)], units)
            missing = fill(self.query, units, missing, first)
            records = occurrences(self.query, rows[int(low) : int(high)], numbers[low:high])
            grid = Fraction(self.query.grid) if isinstance(self.query, Query) else Fraction(1)
            yield StepBlock(first, units, grid, {}, missing, records=records)
            first = end + 1


def _any_counts(rows: pl.DataFrame, units: Matrix) -> bool:
    """Whether any of these rows is in a column; a sum may be 0 although there are some."""
    return bool(units.any()) or ("column" in rows.columns and bool((rows["column"] >= 0).any()))
