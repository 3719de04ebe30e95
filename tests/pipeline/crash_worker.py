"""A process that releases small streams and gets killed: tests start it once, and it forks a child for every start.

Reads one JSON object per line from standard input and answers with one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pipeline.streams import release

from tidegate.config import read_queries
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.ingest import blocks
from tidegate.mechanisms import BudgetAbsorption, Uniform
from tidegate.pipeline import Pipeline, delivery, pipeline, side_tables
from tidegate.policy import WEvent
from tidegate.sinks import text
from tidegate.testing.entropy import fixed_entropy


def work(order: dict[str, Any]) -> None:
    """One start of the stream, to its end if nobody interferes."""
    blocks.BLOCK_STEPS = 3
    pipeline.SYNC_EVERY = 0.0  # a checkpoint after every commit, so that this is cut into, too
    if "cut" in order:
        cut_at(order["cut"], order["at"])
    if order.get("wrong"):
        send_first()
    with nullcontext() if order.get("fresh_noise") else fixed_entropy(11):
        release(read_queries(Path(order["folder"]) / "tidegate.toml"))


def die() -> None:
    """Not even Python gets a chance."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Any, turn: int, *, before: bool) -> Any:
    """A function that kills at its turn-th call, before or after it has done its work."""
    count = 0

    def called(*arguments: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if before and count >= turn:
            die()
        found = function(*arguments, **more)
        if count >= turn:
            die()
        return found

    return called


POINTS = {
    "before the commit": (Pipeline, "stage", False),
    "between commit and receipt": (Pipeline, "_write_receipts", True),
    "between receipt and sink": (Pipeline, "_write_receipts", False),
    "between sink and checkpoint": (delivery.SinkState, "confirm", False),
    "after the checkpoint": (side_tables.SideTables, "checkpoint", False),
}


def cut_at(point: str, turn: int) -> None:
    """Die at a certain point of the turn-th block."""
    if point == "within a line":
        whole = text.TextFileSink._write_on
        count = 0

        def torn(sink: Any, data: bytes) -> None:
            nonlocal count
            count += 1
            if count >= turn:
                whole(sink, data[: len(data) // 2])
                die()
            whole(sink, data)

        text.TextFileSink._write_on = torn  # type: ignore[method-assign]
        return
    owner, name, before = POINTS[point]
    setattr(owner, name, dying(getattr(owner, name), turn, before=before))


def send_first() -> None:
    """The planted mistake: the same rows are sent before they are committed."""
    append = SQLiteLog.append
    process = Pipeline.process
    sinks: list[Any] = []

    def known(running: Pipeline, *given: Any) -> None:
        sinks[:] = [state.sink for _, state in running.states]
        process(running, *given)

    def too_late(log: SQLiteLog, expected: bytes, commit: Any) -> bytes:
        for sink in sinks:
            sink._append(
                b"2026,%d," % commit.first + commit.content.encoded().releases[-8:].hex().encode() + b"\n"
            )
        return append(log, expected, commit)

    Pipeline.process = known  # type: ignore[method-assign]
    SQLiteLog.append = too_late  # type: ignore[method-assign]


def trace_until(lines: int) -> None:
    """Die at the given number of executed lines of the pipeline and the core."""
    left = lines

    def local(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            die()
        return local

    def each_call(frame: Any, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        return local if "tidegate/pipeline" in name or "tidegate/core" in name else None

    sys.settrace(each_call)


def main() -> None:
    """Load what children need, and follow orders."""
    with fixed_entropy(1):  # kernels are loaded once, and not in every child
        for kind in (BudgetAbsorption, Uniform):
            for columns in (1, 2):
                session = Session(kind(WEvent(epsilon="1", window=4), columns=columns))
                session.push_batch([[1] * columns] * 30)
                session.push([1] * columns)
    follow_orders(work)


def follow_orders(work: Callable[[dict[str, Any]], None]) -> None:
    """Fork a child for every line of standard input, and say how each has ended."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                if order.get("lines"):
                    trace_until(order["lines"])
                work(order)
                code = 0
            except BaseException as error:
                sys.settrace(None)
                print(json.dumps({"error": repr(error)}), flush=True)
                code = 3
            os._exit(code)
        if order.get("seconds") is not None:
            time.sleep(order["seconds"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "code": -1 if killed else os.WEXITSTATUS(status)}), flush=True)


if __name__ == "__main__":
    main()
