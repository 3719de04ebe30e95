"""Run a configuration with Spark: ``spark-submit .../tidegate/spark/__main__.py tidegate.toml``.

``python -m tidegate.spark --where`` prints the path of this file.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.config import Queries, read_queries
from tidegate.core.postgres_log import is_url
from tidegate.errors import InvalidParameter, TidegateError, without_secrets
from tidegate.servers.kafka import TopicAddress, is_topic
from tidegate.spark import follow, release
from tidegate.spark.errors import in_a_sentence
from tidegate.spark.reading import needed_by

FORMATS = {"csv": "csv", "jsonl": "json", "parquet": "parquet"}
SECRET = ("security.", "sasl.", "ssl.")


def events_of(session: SparkSession, queries: Queries, *, streaming: bool) -> DataFrame:
    """The events of a configuration's location, read by Spark; fields of text as text, as elsewhere."""
    config = queries.first
    location, keys = config.locate(config.source.location), config.source
    names = needed_by((part.schema, part.query) for part in queries.parts)
    text = ", ".join(f"`{name}` string" for name in names)
    reader: Any = session.readStream if streaming else session.read
    if is_topic(location):
        from pyspark.sql import functions as sql

        address = TopicAddress(location)
        given = {name: value for name, value in address.settings().items() if isinstance(value, str)}
        options = {f"kafka.{name}": value for name, value in given.items() if name.startswith(SECRET)}
        options |= {"kafka.bootstrap.servers": address.servers, "subscribe": address.topic}
        options |= {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
        found = reader.format("kafka").options(**options).load()
        record = sql.from_json(sql.col("value").cast("string"), text).alias("record")
        return found.select(record).select("record.*")  # type: ignore[no-any-return]
    if "://" in location or location in ("-", "serve:") or location.startswith("mqtt"):
        raise InvalidParameter(
            "location",
            "…",
            "a file, a folder or a topic of Kafka for Spark",
            "read it with `tidegate release`",
        )
    kind = keys.format if keys.format != "auto" else _format_of(location)
    if kind not in FORMATS:
        raise InvalidParameter("format", kind, "csv, jsonl or parquet", 'write format = "jsonl"')
    if kind == "parquet":
        schema: Any = session.read.parquet(location).schema
        return reader.schema(schema).parquet(location)  # type: ignore[no-any-return]
    options = {"mode": "PERMISSIVE" if streaming else "FAILFAST", "pathGlobFilter": keys.pattern}
    if kind == "csv":
        options |= {"sep": keys.separator, "header": "true", "enforceSchema": "false"}
        text = _header(session, location, keys.separator, keys.pattern)
    return reader.format(FORMATS[kind]).schema(text).options(**options).load(location)  # type: ignore[no-any-return]


def _format_of(location: str) -> str:
    """The format that the names of files say, of one in a folder if it is one."""
    from pathlib import Path

    from tidegate.ingest.sources.directory import format_of

    path = Path(location)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return next((found for file in files if (found := format_of(file))), "")


def _header(session: SparkSession, location: str, separator: str, pattern: str) -> str:
    """All columns of a CSV as text."""
    found = session.read.options(header="true", sep=separator, pathGlobFilter=pattern).csv(location)
    return ", ".join(f"`{name}` string" for name in found.columns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, and release."""
    parser = argparse.ArgumentParser(
        prog="tidegate.spark", description="Release a configuration's stream with Spark."
    )
    parser.add_argument("configuration", nargs="?", help="the file, as for `tidegate release`")
    parser.add_argument(
        "--where", action="store_true", help="print the path of this program, for spark-submit"
    )
    parser.add_argument("--follow", action="store_true", help="continue as events arrive")
    parser.add_argument("--checkpoint", help="Spark's folder for the query; beside the ledger if not given")
    parser.add_argument(
        "--spool", help="a folder that driver and executors share; beside the ledger if not given"
    )
    parser.add_argument("--every", default="1 second", help="how often Spark looks for events")
    for name in ("backfill", "new-stream", "new-checkpoint"):
        parser.add_argument(f"--{name}", action="store_true", help="as for tidegate.spark.follow")
    given = parser.parse_args(arguments)
    if given.where or given.configuration is None:
        print(__file__)
        return 0 if given.where else 2
    try:
        _run(given)
    except TidegateError as error:
        print(f"error: {without_secrets(str(error))}", file=sys.stderr)
        return 1
    return 0


def _run(given: argparse.Namespace) -> None:
    queries = read_queries(given.configuration, follow=given.follow)
    streaming = given.follow or queries.first.source.follow
    session = SparkSession.builder.appName("tidegate").getOrCreate()
    with in_a_sentence():
        events = events_of(session, queries, streaming=streaming)
    if not streaming:
        release(queries, events, new_stream=given.new_stream)
        return
    beside = queries.path if is_url(queries.ledger) else queries.ledger
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    follow(
        queries,
        events,
        checkpoint=given.checkpoint or f"{beside}.spark/checkpoint",
        spool=given.spool or f"{beside}.spark/spool",
        every=given.every,
        stopped=stopped,
        backfill=given.backfill,
        new_stream=given.new_stream,
        new_checkpoint=given.new_checkpoint,
    )


if __name__ == "__main__":
    sys.exit(main())
