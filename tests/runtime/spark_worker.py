"""Follows a folder with Spark, by a clock in a file, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.runtime.conftest import SPARK_SETTINGS

from tidegate.config import read_queries
from tidegate.spark import follow
from tidegate.spark.__main__ import events_of


def main(master: str, toml: str, clock: str, checkpoint: str, spool: str) -> None:
    """One start."""
    builder = SparkSession.builder.master(master)
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    session, queries = builder.getOrCreate(), read_queries(toml, follow=True)
    print("ready", flush=True)
    follow(
        queries,
        events_of(session, queries, streaming=True),
        checkpoint=checkpoint,
        spool=spool,
        every="100 milliseconds",
        clock=lambda: float(Path(clock).read_text() or 0),
        backfill=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
