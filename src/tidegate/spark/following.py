"""A streaming DataFrame, followed: micro-batches into the spool, and closed steps into one commit.

Spark calls for every micro-batch, also for one without records, because a source that ticks is read beside the events.
Records are mapped to steps and bounded by executors and put into the spool. Which steps have closed is said by the
public clock of the driver alone, as it stood when the batch before had ended: whatever had arrived by then is in this
one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from tidegate.clock.steps import PublicClock
from tidegate.config import Queries, read_queries
from tidegate.errors import InvalidParameter
from tidegate.pipeline import Pipeline, open_pipeline
from tidegate.spark.bounding import condensed, counted, one_map
from tidegate.spark.errors import SparkFailed, SpoolLost, in_a_sentence
from tidegate.spark.native import mapped
from tidegate.spark.reading import Reading, reading_of, selected
from tidegate.spark.spool import Files, Spool
from tidegate.spark.vectors import blocks, collected

EMPTY_AT_FIRST = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
LIMITS = ("maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger", "minoffsetspertrigger")
SPOOLED = "part int, step bigint, unit {unit}, time bigint, column int, value bigint, n bigint"


class Follower:
    """What is done with each micro-batch.

    Parameters
    ----------
    pipeline
        The stream of the configuration, open.
    reading
        How records are read.
    spool
        Rows of open steps.
    query
        The id of the streaming query, which its checkpoint keeps.
    clock
        Public time in seconds since 1970.
    """

    def __init__(
        self, pipeline: Pipeline, reading: Reading, spool: Spool, query: str, clock: Callable[[], float]
    ) -> None:
        self._pipeline, self._reading, self._spool = pipeline, reading, spool
        self._query, self._clock = query, clock
        self._known: float | None = None  # whatever had arrived at this time is in the next batch

    @property
    def ended(self) -> bool:
        """Whether the last step of all is released."""
        count = self._reading.steps.count
        return count is not None and self._pipeline.step >= count

    def take(self, events: DataFrame, batch: int) -> None:
        """Put a micro-batch into the spool, and release what has closed."""
        reached = self._spool.reached
        if batch > reached + 1:
            raise SpoolLost(
                "the spool lacks what was read before, of steps that are still open; put it back, or begin a new "
                "checkpoint with new_checkpoint, which reads the source again."
            )
        if batch > reached:  # else Spark hands over again what is there already
            self._put(events, batch)
        # the first batch after a start may have been planned by the process before: only the next ones are up to date
        last = self._pipeline.step if self._known is None else self._reading.steps.closed_by(self._known)
        if last > self._pipeline.step:
            self._close(last, batch)
        elif self._spool.crowded:
            self._spool.supersede(batch, self._pipeline.step, condensed(*self._rows()))
        self._known = self._clock()

    def _put(self, events: DataFrame, batch: int) -> None:
        steps = self._reading.steps
        reading = replace(
            self._reading, first=self._pipeline.step + 1, furthest=steps.furthest(self._clock())
        )
        rows = mapped(reading, events)
        several = len(reading.parts) > 1
        if several:
            rows = rows.persist()
        try:
            with one_map(events.sparkSession):
                self._spool.put(batch, condensed(reading, rows))
        finally:
            if several:
                rows.unpersist()

    def _rows(self) -> tuple[Reading, DataFrame]:
        """All rows of steps that were not released."""
        unit = "bigint" if self._reading.numbered else "string"
        reading = replace(self._reading, furthest=self._reading.steps.furthest(self._clock()))
        rows = self._spool.rows(SPOOLED.format(unit=unit)).where(sql.col("step") > self._pipeline.step)
        return reading, rows

    def _close(self, last: int, batch: int) -> None:
        """Release all steps up to one, and keep only what is open."""
        reading, rows = self._rows()
        cells = collected(counted(condensed(reading, rows.where(sql.col("step") <= last)), reading))
        position = {"query": self._query, "batch": batch}
        first = self._pipeline.step + 1
        for made in blocks(self._pipeline.editions[-1], cells, first, last, position, finite=False):
            self._pipeline.process(self._pipeline.editions[-1], made)
            self._pipeline.housekeeping()
        if self.ended:
            self._spool.remove()
        else:
            self._spool.supersede(batch, self._pipeline.step, condensed(*self._rows()))


class _Desk:
    """Where Spark's thread hands micro-batches over to the thread that has the ledger, and waits for them."""

    def __init__(self) -> None:
        self._lock, self._open = threading.Lock(), True
        self.jobs: queue.Queue[tuple[DataFrame, int, Future[None]]] = queue.Queue()

    def hand_over(self, events: DataFrame, batch: int) -> None:
        """Called by Spark."""
        done: Future[None] = Future()
        with self._lock:
            if not self._open:
                raise SparkFailed("the stream has been stopped.")
            self.jobs.put((events, batch, done))
        done.result()

    def close(self) -> None:
        """Nothing is taken any more, and nobody waits."""
        with self._lock:
            self._open = False
        while not self.jobs.empty():
            self.jobs.get()[2].set_exception(SparkFailed("the stream has been stopped."))


def follow(
    configuration: str | Path | Queries,
    events: DataFrame,
    *,
    checkpoint: str,
    spool: str,
    every: str = "1 second",
    clock: Callable[[], float] | None = None,
    stopped: threading.Event | None = None,
    backfill: bool = False,
    new_stream: bool = False,
    new_checkpoint: bool = False,
) -> None:
    """Release the steps of a configuration from a streaming DataFrame, until the last one or until it is stopped.

    Parameters
    ----------
    configuration
        The file, as for ``tidegate release --follow``; its location is not read.
    events
        A streaming DataFrame with the columns that ``[source]`` names. Nothing in it may limit what a batch reads.
    checkpoint
        Spark's own folder for the query. The ledger remembers whose it is.
    spool
        A folder that driver and executors share, for rows of open steps; nobody else's.
    every
        How often Spark looks for records, and the clock is asked.
    clock
        Public time in seconds since 1970.
    stopped
        Set it, from another thread or a signal handler, to end after the present batch.
    backfill, new_stream
        As for ``tidegate release``.
    new_checkpoint
        Accept that the checkpoint is not the one of earlier releases: the source is read again from its beginning, and
        records of steps that were released are late.

    Privacy
    -------
    As for every source that is followed: a record that cannot be read, is late or ahead of the clock is left out without
    a word, and no record closes a step. Steps, charges, releases and the position (query and batch) are one commit.
    """
    queries = (
        configuration if isinstance(configuration, Queries) else read_queries(configuration, follow=True)
    )
    if not events.isStreaming:
        raise InvalidParameter("events", "finite", "a streaming DataFrame", "use tidegate.spark.release")
    _refuse_limits(events)
    reading = reading_of(queries, events, lenient=True)
    now = clock or PublicClock()
    session = events.sparkSession
    with open_pipeline(queries, follow=True, clock=now, backfill=backfill, new_stream=new_stream) as pipeline:
        count = queries.first.steps.count
        bound = ((pipeline.position or {}).get("source") or {}).get("query")
        if count is not None and pipeline.step >= count:
            if bound is not None:  # whoever was killed after the last commit has left it
                Files(session, spool).remove(bound)
            pipeline.finish(stopped)
            return
        begun = Files(session, checkpoint).exists("metadata")
        if bound is not None and not begun and not new_checkpoint:
            raise _another(checkpoint)
        desk = _Desk()
        with in_a_sentence(), _running(_ticking(reading, events), desk, checkpoint, every) as query:
            if bound not in (None, query.id):
                if not new_checkpoint:
                    raise _another(checkpoint)
                Files(session, spool).remove(bound)
            place = Spool(session, f"{spool}/{query.id}")
            place.tidy()
            follower = Follower(pipeline, reading, place, query.id, now)
            _work(follower, desk, query, stopped or threading.Event())
        pipeline.finish(stopped)


def _work(follower: Follower, desk: _Desk, query: Any, stopped: threading.Event) -> None:
    """Take micro-batches as they come, until the end."""
    while not (follower.ended or stopped.is_set()):
        try:
            events, batch, done = desk.jobs.get(timeout=0.2)
        except queue.Empty:
            if not query.isActive:
                raise (
                    query.exception() or SparkFailed("Spark has ended the query; look into its log.")
                ) from None
            continue
        try:
            follower.take(events, batch)
        except BaseException:
            done.set_exception(SparkFailed("the batch was not taken; the driver says why."))
            raise
        done.set_result(None)


@contextmanager
def _after_any_kill(session: Any) -> Iterator[None]:
    """Let a query start where a driver was killed while it wrote its first offsets.

    Spark refuses a checkpoint without offsets in which any file is left, also a temporary one. Which batches were taken
    is in the log and in the spool, and which checkpoint they are of.
    """
    before = session.conf.get(EMPTY_AT_FIRST, None)
    session.conf.set(EMPTY_AT_FIRST, "false")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(EMPTY_AT_FIRST)
        else:
            session.conf.set(EMPTY_AT_FIRST, before)


@contextmanager
def _running(events: DataFrame, desk: _Desk, checkpoint: str, every: str) -> Iterator[Any]:
    writer = events.writeStream.foreachBatch(desk.hand_over).option("checkpointLocation", checkpoint)
    with _after_any_kill(events.sparkSession):
        query = writer.trigger(processingTime=every).start()
        try:
            yield query
        finally:
            desk.close()
            with suppress(StreamingQueryException):  # why it has been stopped the caller knows
                query.stop()


def _ticking(reading: Reading, events: DataFrame) -> DataFrame:
    """The events, and beside them a source that has something in every micro-batch: so steps close without any event."""
    wanted = selected(reading, events)
    ticks = events.sparkSession.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    nothing = [sql.lit(None).cast(field.dataType).alias(field.name) for field in wanted.schema.fields]
    return wanted.unionByName(ticks.select(*nothing))


def _refuse_limits(events: DataFrame) -> None:
    """Refuse a source that hands over only a part of what has arrived: a step would close without the rest."""
    leaves = events._jdf.queryExecution().logical().collectLeaves()  # type: ignore[operator]
    for number in range(leaves.size()):
        said = _options(leaves.apply(number))
        for name in LIMITS:
            if name in said:
                raise InvalidParameter(
                    name,
                    "…",
                    "absent, because a step closes when everything that had arrived is read",
                    "drop it",
                )


def _options(leaf: Any) -> str:
    """What a source was opened with, in small letters; each kind of source keeps it elsewhere."""
    asks: tuple[Callable[[], Any], ...] = (
        lambda: leaf.options(),
        lambda: leaf.dataSource().options(),
        lambda: leaf.extraOptions(),
    )
    for ask in asks:
        with suppress(Py4JError):
            return str(ask().toString()).lower()
    return ""


def _another(checkpoint: str) -> SpoolLost:
    return SpoolLost(
        f"the checkpoint {checkpoint} is not the one of the releases in the ledger, so its batches count again; put the "
        "right one back, or accept with new_checkpoint that the source is read again from its beginning."
    )
