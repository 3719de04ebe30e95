"""A process that runs a small stream and gets killed: tests start it once, and it forks a child for every start.

Reads one JSON object a line from standard input and answers with one. Forking saves the seconds that importing
and compiling would take at each of hundreds of starts; the parent touches neither polars nor a database, so the
child begins like a fresh process.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.ingest import Columns, Intake, Query, Schema, StepBlock, Steps
from tidegate.ingest import blocks as blocks_module
from tidegate.ingest.sources.text import TextSource
from tidegate.mechanisms import BudgetAbsorption, OptStream
from tidegate.policy import WEvent
from tidegate.runtime import Stream, open_store, stream
from tidegate.runtime.sinks.layout import Layout
from tidegate.runtime.sinks.text import TextFileSink
from tidegate.testing.entropy import fixed_entropy

POLICY = WEvent(epsilon="1", w=8)
MECHANISMS = {
    "BudgetAbsorption": BudgetAbsorption(POLICY, columns=2),
    "OptStream": OptStream(POLICY, columns=2, samples=3),  # releases every step again when its period ends
}
STEPS = 80
SIZES = (1, 1, 3, 1, 2)  # how many steps come at once, over and over
LAYOUT: dict[str, Any] = {
    "labels": ("north", "south"),
    "boundary": lambda step: step * 3_600_000_000,
    "zone": "UTC",
    "stream": "test",
}


def counts() -> np.ndarray:
    """The stream: hills and valleys, the same each time."""
    hours = np.arange(STEPS)[:, np.newaxis]
    return (50 + 40 * np.sin(hours / (5, 9)) + hours % 7 * (hours % 11 == 3) * 30).astype(np.int64)


def blocks(after: int, steps: int) -> Any:
    """Closed steps from a position on."""
    values, step, turn = counts(), 0, 0
    while step < steps:
        size = min(SIZES[turn % len(SIZES)], steps - step)
        if step >= after:
            position = {"step": step + size, "source": {"row": step + size}}
            yield StepBlock(step + 1, values[step : step + size], Fraction(1), position)
        step, turn = step + size, turn + 1


def events(folder: Path) -> Path:
    """The same counts as events in a file, for starts that read a real input."""
    path = folder / "events.csv"
    if not path.exists():
        lines = ["time,unit,place"]
        for step, row in enumerate(counts().tolist()):
            for place, count in zip(("north", "south"), row, strict=True):
                lines += [f"{step * 3600 + unit},{place}{unit},{place}" for unit in range(count)]
        path.with_suffix(".tmp").write_text("\n".join(lines) + "\n")
        path.with_suffix(".tmp").rename(path)
    return path


def intake(folder: Path, position: Any) -> Intake:
    """Reads a few lines at a time, in blocks of a few steps."""
    blocks_module.BLOCK_STEPS = 3
    query = Query(aggregate="distinct", columns=Columns(("north", "south")))
    schema = Schema(time="time", unit="unit", column="place")
    steps = Steps(start="1970-01-01", length="1h", count=STEPS)
    if position is not None and "row" in (
        position["source"] or {}
    ):  # of the blocks above: read from the beginning
        position = {**position, "source": None}
    source = TextSource(events(folder), query.needed(schema), piece=2000)
    return Intake(source, schema, steps, query, position=position)


def work(order: dict[str, Any]) -> None:
    """One start of the stream, to its end if nobody interferes."""
    folder, cut = Path(order["folder"]), order.get("cut")
    mechanism, steps = MECHANISMS[order.get("mechanism", "BudgetAbsorption")], order.get("steps", STEPS)
    with nullcontext() if order.get("fresh_noise") else fixed_entropy(11):
        target = order["target"] or folder / "stream.ledger"
        store = open_store(target, POLICY, mechanism.units, mechanism.fingerprint, mechanism.describe())
        running = Stream(store, mechanism, last_step=steps)
        layout = Layout(unit=store.ledger.unit, revised=running.revises, **LAYOUT)
        sinks = [
            TextFileSink(folder / "out.csv", layout.csv_header(), layout.csv),
            TextFileSink(folder / "out.jsonl", b"", layout.json_lines),
        ]
        if order.get("wrong"):
            send_first(running, sinks)
        if cut:
            cut_at(running, sinks[0], cut, order["at"])
        running.open_sinks(sinks)
        position = store.progress.position
        running.drive(intake(folder, position) if order.get("real") else blocks(store.progress.step, steps))
        running.finish()
        running.close()


def send_first(running: Stream, sinks: list[TextFileSink]) -> None:
    """The planted mistake: releases reach the sinks before they are committed."""
    put = running.store.put

    def too_early(chunk: Any, *arguments: Any, **more: Any) -> None:
        for sink in sinks:
            sink.write(chunk)
        put(chunk, *arguments, **more)

    running.store.put = too_early  # type: ignore[method-assign]
    running.send = lambda chunk: None  # type: ignore[method-assign]


def die() -> None:
    """Not even Python gets a chance."""
    os.kill(os.getpid(), signal.SIGKILL)


def cut_at(running: Stream, sink: TextFileSink, point: str, turn: int) -> None:
    """Die at a certain point of the turn-th block."""
    count = 0

    def countdown() -> bool:
        nonlocal count
        count += 1
        return count >= turn

    if point == "before commit":
        put = running.store.put

        def dying_put(*arguments: Any, **more: Any) -> None:
            put(*arguments, **more)
            if countdown():
                die()

        running.store.put = dying_put  # type: ignore[method-assign]
    elif point == "between commit and sink":
        send = running.send

        def dying_send(*arguments: Any) -> None:
            if countdown():
                die()
            send(*arguments)

        running.send = dying_send  # type: ignore[method-assign]
    elif point == "in the middle of a line":
        lines = sink._lines

        def torn(chunk: Any) -> bytes:
            data = lines(chunk)
            if countdown():
                sink._append(data[: len(data) // 2])
                die()
            return data

        sink._lines = torn
    elif point == "between sink and record":
        sync = sink.sync

        def dying_sync() -> Any:
            position = sync()
            if countdown():
                die()
            return position

        sink.sync = dying_sync  # type: ignore[method-assign]


def trace_until(lines: int) -> None:
    """Die at the given number of executed lines of the runtime and the ledger."""
    left = lines

    def local(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            die()
        return local

    def each_call(frame: Any, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        return local if "tidegate/runtime" in name or "tidegate/ledger" in name else None

    sys.settrace(each_call)


def follow_orders(work: Callable[[dict[str, Any]], None]) -> None:
    """Fork a child for every line of standard input, and say how each has ended."""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        begun = time.perf_counter()
        child = os.fork()
        if child == 0:
            try:
                if order.get("lines"):
                    trace_until(order["lines"])
                work(order)
                sys.settrace(None)
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
        answer = {"killed": killed, "code": -1 if killed else os.WEXITSTATUS(status)}
        print(json.dumps({**answer, "seconds": time.perf_counter() - begun}), flush=True)


def main() -> None:
    """Get ready for what children need, and wait for orders."""
    stream.SYNC_EVERY = 0.0  # record what sinks have taken at once, so that this is cut into, too
    with fixed_entropy(1):
        for mechanism in MECHANISMS.values():
            warm = mechanism.start()
            warm.push([1, 2])
            warm.push_batch(counts())
    with suppress(ImportError):
        importlib.import_module("psycopg")  # not in every child anew
    follow_orders(work)


if __name__ == "__main__":
    main()
