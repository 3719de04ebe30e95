"""Starts streams of configurations and kills them: tests start it once, and it forks a child for every start.

Reads one JSON object a line from standard input and answers with one. The parent touches neither polars nor a server, so
that a child begins like a fresh process, without the seconds that importing would take.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.runtime.helpers import open_one

from tidegate.config import read_config
from tidegate.core.session import Session
from tidegate.ingest import blocks
from tidegate.pipeline import pipeline
from tidegate.testing.entropy import fixed_entropy

NEEDED = ("psycopg", "confluent_kafka", "tidegate.sinks.postgres", "tidegate.servers.postgres")


def work(order: dict[str, Any], begun: int) -> None:
    """One start, to its end if nobody interferes."""
    seed, follow = order.get("seed"), bool(order.get("follow"))
    config = read_config(Path(order["toml"]), follow=follow)
    clock = Path(order["clock"]) if order.get("clock") else None
    now = (lambda: float(clock.read_text() or 0)) if clock else None
    blocks.BLOCK_STEPS = order.get("size", blocks.BLOCK_STEPS)  # smaller ones, so that there are many commits
    with (
        nullcontext() if seed is None else fixed_entropy(seed),
        open_one(config, follow=follow, clock=now, backfill=follow) as running,
    ):
        os.write(begun, b"1")
        intake = config.open(running.position, follow=follow, clock=now)
        running.drive(intake)
        running.finish()
        intake.close()


def warm(toml: str) -> None:
    """Load the kernels of a mechanism, which its children then have."""
    mechanism = read_config(Path(toml), follow=True).mechanism
    with fixed_entropy(1):
        session = Session(mechanism)
        for count in (1, 2, 40):
            session.push_batch(np.ones((count, mechanism.columns), dtype=np.int64))


def main() -> None:
    """Fork a child for every line of standard input."""
    pipeline.SYNC_EVERY = 0.0  # record what sinks have taken at once, so that this is cut into, too
    for name in NEEDED:  # not in every child again
        with suppress(ImportError):
            importlib.import_module(name)
    print("ready", flush=True)
    known: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if order["toml"] not in known:
            known.add(order["toml"])
            warm(order["toml"])
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(out)
            code = 0
            try:
                work(order, into)
            except BaseException as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
                code = 3
            os._exit(code)
        os.close(into)
        if os.read(out, 1):  # else it has failed, and has said so
            print(json.dumps({"open": True}), flush=True)
        os.close(out)
        if order.get("seconds") is not None:
            time.sleep(order["seconds"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "code": -1 if killed else os.WEXITSTATUS(status)}), flush=True)


if __name__ == "__main__":
    main()
