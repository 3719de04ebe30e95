"""A process that starts streams by their tidegate.toml and has them die: one forked child for every start.

Reads one JSON object a line from standard input and answers with one. The parent touches neither polars nor a database,
so that each child begins like a fresh process, with kernels that are compiled already.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tidegate import mechanisms
from tidegate.config import parse_config
from tidegate.config.document import EXAMPLE
from tidegate.core.session import Session
from tidegate.ingest import kernels
from tidegate.ingest.arrays import frozen, never_decreases
from tidegate.ingest.bounding import bounded
from tidegate.mechanisms import BudgetAbsorption, OptStream, Uniform
from tidegate.policy import WEvent
from tidegate.testing.entropy import fixed_entropy

MODULES = (
    *(
        "psycopg",
        "paho.mqtt.client",
        "confluent_kafka",
        "tidegate.pipeline",
        "tidegate.ingest.combined_query",
    ),
    *("tidegate.sinks.factory", "tidegate.ingest.sources.mqtt", "tidegate.ingest.sources.kafka"),
    *("tidegate.ingest.sources.postgres", "tidegate.sinks.mqtt", "tidegate.sinks.kafka"),
    "tidegate.sinks.postgres",
)
os.environ["POLARS_MAX_THREADS"] = "1"  # inputs are small, and threads take time to start
PLACES = ("tidegate/pipeline", "tidegate/sinks", "tidegate/core", "tidegate/ingest", "tidegate/servers")


def work(order: dict[str, Any]) -> None:
    """One start of the stream of a folder, to its end if nobody interferes."""
    from tidegate.config import read_queries
    from tidegate.errors import TidegateError
    from tidegate.ingest import blocks as reading
    from tidegate.pipeline import open_pipeline, pipeline

    pipeline.SYNC_EVERY = 0.0  # record what sinks have confirmed at once, so that this is cut into, too
    reading.MOST_CELLS = order.get("cells", 4)  # two steps in a block
    folder = Path(order["folder"])
    follow = "clock" in order
    queries = read_queries(folder / "tidegate.toml", follow=follow)

    def clock() -> float:
        return float(Path(order["clock"]).read_text() or 0)

    now = clock if follow else None
    try:
        with (
            fixed_entropy(order["folder_seed"]),
            open_pipeline(queries, follow=follow, clock=now) as running,
        ):
            intake = running.queries.open(running.position, follow=follow, clock=now)
            if follow:
                threading.Thread(target=tell, args=(intake.source, folder / "taken"), daemon=True).start()
            try:
                running.drive(intake)
                running.finish()
            finally:
                intake.close()
    except TidegateError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        os._exit(2)


def tell(source: Any, place: Path) -> None:
    """Write down how many messages were stored, while the broker is there; nothing while it is not."""
    while True:
        reached = not str(getattr(source, "status", "")).startswith("waiting")
        fresh = place.with_suffix(".new")
        fresh.write_text(str(getattr(source, "_done", 0)) if reached else "")
        fresh.replace(place)
        time.sleep(0.01)


def die() -> None:
    """Not even Python gets a chance."""
    os.kill(os.getpid(), signal.SIGKILL)


def trace_until(lines: int) -> None:
    """Die at the given number of executed lines of what reads, commits and writes."""
    left = lines

    def local(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            die()
        return local

    def each_call(frame: Any, event: str, _: Any) -> Any:
        return local if any(place in frame.f_code.co_filename for place in PLACES) else None

    threading.settrace(each_call)
    sys.settrace(each_call)


def warm() -> None:
    """Compile what children need; nothing here reads a file or asks a database."""
    policy = WEvent(epsilon="1", window=6)
    with fixed_entropy(1):
        for mechanism in (
            Uniform(policy, columns=2),
            BudgetAbsorption(policy, columns=2),
            OptStream(policy, columns=2, samples=3),
        ):
            session = Session(mechanism)
            session.push([1, 2])
            session.push_batch(np.ones((9, 2), dtype=np.int64))
    whole, columns = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32)
    for distinct in (True, False):
        bounded(whole, whole, whole, columns, whole[:0], 1, distinct, 2)
    never_decreases(whole)
    kernels.add_records(
        frozen(whole), frozen(columns), frozen(whole[:0]), 1, 0, np.zeros((1, 2), dtype=np.int64)
    )
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    mechanisms.catalogue = cache(mechanisms.catalogue)  # it is asked twice at every start
    parse_config(EXAMPLE)


def ended(child: int, order: dict[str, Any]) -> int:
    """How a child ended, by itself or, some seconds after it was asked for, by a kill."""
    if order.get("seconds") is None:
        return os.waitpid(child, 0)[1]
    begun = None if "after" in order else time.monotonic()
    while True:
        if begun is None and Path(order["after"]).exists() and Path(order["after"]).read_text():
            begun = time.monotonic()
        left = 0.005 if begun is None else begun + order["seconds"] - time.monotonic()
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if left <= 0:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(min(left, 0.005))


def main() -> None:
    """Fork a child for every line of standard input."""
    warm()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 0
            try:
                if order.get("lines"):
                    trace_until(order["lines"])
                work(order)
            except BaseException as error:
                sys.settrace(None)
                words = "".join(traceback.format_exception(error))[-2000:]
                print(json.dumps({"unexpected": words}), flush=True)
                code = 3
            os._exit(code)
        status = ended(child, order)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "code": -1 if killed else os.WEXITSTATUS(status)}), flush=True)


if __name__ == "__main__":
    main()
