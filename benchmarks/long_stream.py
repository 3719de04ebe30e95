"""Times a stream with a long past: starting, stopping and reading one old step, with `release` and with `serve`.

``python benchmarks/long_stream.py [--steps N] [--folder F]``; a folder that has the ledger already is used again. Every
step is a commit of its own, as in a stream that is followed. Times are by the wall, and there are no bars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from sizes import scaled

from tidegate.config import read_queries
from tidegate.ingest import StepBlock
from tidegate.pipeline import open_pipeline

STEPS = scaled(1_000_000, 2_000, 100_000)
TEXT = """\
[source]
location = "events.csv"
time = "time"
unit = "unit"

[steps]
start = "2020-01-01T00:00"
length = "1min"
count = {steps}

[protect]
epsilon = "1"
window = 24

[mechanism]
name = "Uniform"

[sink]
location = "released.csv"
"""


def build(folder: Path, steps: int) -> None:
    """A log with so many steps."""
    (folder / "long.toml").write_text(TEXT.format(steps=steps))
    (folder / "events.csv").write_text("time,unit\n2020-01-01T00:00:30,a\n")
    with open_pipeline(read_queries(folder / "long.toml")) as pipeline:
        (edition,) = pipeline.editions
        block = np.zeros((1, 1), dtype=np.int64)
        for step in range(pipeline.step + 1, steps + 1):
            position = {"step": step, "source": None, "length": None}
            pipeline.process(edition, [StepBlock(step, block, Fraction(1), position)])
        pipeline.finish()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], float]]:
    """A service, how long it took until it answered, and its address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    begin = time.monotonic()
    command = [sys.executable, "-m", "tidegate", "serve", str(folder / "long.toml"), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                with urllib.request.urlopen(f"{address}/streams", timeout=600):
                    break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the service has ended") from None
                time.sleep(0.05)
        yield address, process, time.monotonic() - begin
    finally:
        process.kill()
        process.wait()


def read(address: str, step: int) -> float:
    """How long one step takes to read."""
    begin = time.monotonic()
    with urllib.request.urlopen(
        f"{address}/streams/long/releases?since={step}&until={step}", timeout=600
    ) as body:
        assert [each["step"] for each in json.load(body)["releases"]] == [step]
    return time.monotonic() - begin


def released(folder: Path) -> float:
    """How long `release` takes to start and stop with nothing new to release."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "tidegate", "release", str(folder / "long.toml")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def stopped(address: str, process: subprocess.Popen[bytes], step: int) -> float:
    """How long a service takes to end while eight readers wait for everything up to a step."""

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            urllib.request.urlopen(f"{address}/streams/long/releases?until={step}", timeout=600).read()

    readers = [threading.Thread(target=ask) for _ in range(8)]
    for reader in readers:
        reader.start()
    time.sleep(1.0)
    begin = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        return float("inf")
    return time.monotonic() - begin


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    try:
        if not (folder / "long.toml").exists():
            build(folder, given.steps)
        print(f"{given.steps:,} steps")
        print(f"release, nothing new: {released(folder):.1f} s")
        with serving(folder) as (address, process, took):
            print(f"serve, until it answers: {took:.1f} s")
            for step in (1, given.steps // 2, given.steps - 10):
                print(f"one step, {step:,}: {read(address, step):.3f} s")
            print(
                f"serve, until it has ended with eight readers: {stopped(address, process, given.steps):.1f} s"
            )
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
