"""A DataFrame with an end: a backfill of years in one job."""

from __future__ import annotations

from pathlib import Path

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame

from tidegate.config import Queries, read_queries
from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import UnreadableInput
from tidegate.pipeline import open_pipeline
from tidegate.spark.bounding import condensed, counted, one_map
from tidegate.spark.errors import in_a_sentence
from tidegate.spark.native import mapped
from tidegate.spark.reading import Reading, reading_of
from tidegate.spark.vectors import Cells, blocks, collected


class _Sentences(AccumulatorParam[frozenset[str]]):
    """Which refusals executors have found, each once."""

    def zero(self, value: frozenset[str]) -> frozenset[str]:
        return frozenset()

    def addInPlace(self, value1: frozenset[str], value2: frozenset[str]) -> frozenset[str]:  # noqa: N802
        return value1 | value2


def release(configuration: str | Path | Queries, events: DataFrame, *, new_stream: bool = False) -> None:
    """Release all steps of a configuration from a DataFrame that ends, and resume where an earlier start stopped.

    Parameters
    ----------
    configuration
        The file, as for ``tidegate release``; its location is not read. `count` in ``[steps]`` says how many there are.
    events
        One row for each record, with the columns that ``[source]`` names.
    new_stream
        Accept that the sink has releases of an earlier stream, whose budget adds to this one's.

    Privacy
    -------
    As for a file: a record that cannot be read refuses the whole input, before any noise is drawn.
    """
    queries = configuration if isinstance(configuration, Queries) else read_queries(configuration)
    if events.isStreaming:
        raise InvalidParameter("events", "a stream", "a DataFrame that ends", "use tidegate.spark.follow")
    last = queries.first.steps.count
    if last is None:
        raise InvalidParameter(
            "count",
            None,
            "given for a finite input, because the last event must not decide where the stream ends",
            "write how many steps there are, for example count=168",
        )
    reading = reading_of(queries, events, lenient=False)
    with open_pipeline(queries, new_stream=new_stream) as pipeline:
        (edition,), first = pipeline.editions, pipeline.step + 1
        if first <= last:
            cells = _cells(reading, events, first)
            for made in blocks(edition, cells, first, last, {"frame": "finite"}, finite=True):
                pipeline.process(edition, made)
                pipeline.housekeeping()
        pipeline.finish()


def _cells(reading: Reading, events: DataFrame, first: int) -> Cells:
    """One job: records to rows, bounding, and the sum of each cell."""
    refusals = events.sparkSession.sparkContext.accumulator(frozenset[str](), _Sentences())
    wanted = Reading(reading.parts, reading.steps, reading.numbered, reading.lenient, first)

    with in_a_sentence(), one_map(events.sparkSession):
        rows = mapped(wanted, events, lambda sentence: refusals.add(frozenset([sentence])))
        several = len(wanted.parts) > 1
        if several:  # each statistic condenses the same rows
            rows = rows.persist()
        try:
            cells = collected(counted(condensed(wanted, rows), wanted))
        finally:
            if several:
                rows.unpersist()
    if refusals.value:
        raise UnreadableInput(min(refusals.value))
    return cells
