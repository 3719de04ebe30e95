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
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.config import parse_config
from tidegate.config.document import EXAMPLE
from tidegate.mechanisms import BudgetAbsorption, OptStream, Uniform, catalogue
from tidegate.policy import WEvent
from tidegate.testing.entropy import fixed_entropy

PLACES = ("tidegate/runtime", "tidegate/ledger", "tidegate/ingest", "tidegate/servers")


def work(order: dict[str, Any]) -> None:
    """One start of the stream of a folder, to its end if nobody interferes."""
    from tidegate.config import read_queries
    from tidegate.errors import TidegateError
    from tidegate.ingest import intake as reading
    from tidegate.runtime import open_streams, stream, streams

    stream.SYNC_EVERY = 0.0  # record what sinks have taken at once, so that this is cut into, too
    streams.SYNC_EVERY = 0.0
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
            open_streams(queries, follow=follow, clock=now) as running,
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
    """Write down how many messages were put away, while the broker is there; nothing while it is not."""
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

    sys.settrace(each_call)


def warm() -> None:
    """Compile what children need; nothing here reads a file or asks a database."""
    policy = WEvent(epsilon="1", w=6)
    with fixed_entropy(1):
        for mechanism in (
            Uniform(policy, columns=2),
            BudgetAbsorption(policy, columns=2),
            OptStream(policy, columns=2, samples=3),
        ):
            run = mechanism.start()
            run.push([1, 2])
            run.push_batch(np.ones((9, 2)))
    for name in ("psycopg", "tidegate.runtime", "tidegate.ingest.several", "tidegate.runtime.sinks.factory"):
        with suppress(ImportError):
            importlib.import_module(name)
    catalogue()
    parse_config(EXAMPLE)


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
        if order.get("seconds") is not None:
            time.sleep(order["seconds"])
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "code": -1 if killed else os.WEXITSTATUS(status)}), flush=True)


if __name__ == "__main__":
    main()
