"""Small streams for tests of the runtime."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.config import Config, parse_config
from tidegate.config.queries import one
from tidegate.core.verify import Verification
from tidegate.ingest import StepBlock
from tidegate.pipeline import Pipeline, open_pipeline
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import LogReader

Targets = Callable[[], str]  # makes a new place for a ledger
TEXT = """\
[source]
location = "{folder}/events.csv"
time = "time"
unit = "unit"
column = "place"

[steps]
start = "2026-03-02T00:00"
length = "1h"
zone = "Europe/Berlin"
count = 12

[query]
aggregate = "distinct"
columns = ["north", "south"]

[protect]
epsilon = "1"
window = 4

[mechanism]
name = "Uniform"

[sink]
location = "{folder}/out.csv"
"""
START = 1_800_000_000
# two steps, hardly any noise: whatever is counted twice or not at all is seen
EXACT = [
    ('start = "2026-03-02T00:00"', f'start = "{datetime.fromtimestamp(START, UTC).isoformat()}"'),
    ('length = "1h"', 'length = "1000s"'),
    ("count = 12", "count = 2"),
    ('epsilon = "1"', 'epsilon = "10000000"'),
    ('aggregate = "distinct"', 'aggregate = "count"'),
    ('columns = ["north", "south"]', 'columns = ["north", "south"]\nmost = 10000'),
]


def write_events(folder: Path, steps: int = 12) -> Path:
    """Three units in the north and one in the south at every hour; text that markers can be searched for."""
    lines = ["time,unit,place"]
    for hour in range(steps):
        lines += [
            f"2026-03-02T{hour:02d}:{10 * k:02d},walrus{k},{'south' if k == 3 else 'north'}" for k in range(4)
        ]
    path = folder / "events.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(folder: Path, *changes: tuple[str, str]) -> Config:
    """A configuration in a folder, with pieces of its text replaced."""
    if not (folder / "events.csv").exists():
        write_events(folder)
    text = TEXT.format(folder=folder)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "tidegate.toml").write_text(text)
    return parse_config(text, folder / "tidegate.toml")


def open_one(config: Config, **more: Any) -> Pipeline:
    """Open the stream of a configuration with one query."""
    return open_pipeline(one(config), **more)


def verified(ledger: Path | str) -> Verification:
    """Recompute a log."""
    with LogReader(str(ledger)) as log:
        return verify_log(log.rows())


def release(config: Config, *, finished: bool = True, **more: Any) -> Pipeline:
    """Release everything; returns the closed pipeline. One that is not finished may become longer."""
    queries = one(config)
    with open_pipeline(queries, **more) as pipeline:
        intake = queries.open(pipeline.position)
        try:
            pipeline.drive(intake)
            if finished:
                pipeline.finish()
        finally:
            intake.close()
    return pipeline


def blocks(values: np.ndarray, first: int = 1, size: int = 1) -> list[StepBlock]:
    """An array as closed steps."""
    found = []
    for at in range(0, len(values), size):
        part = values[at : at + size]
        position = {"step": first + at + len(part) - 1, "source": {"row": first + at + len(part) - 1}}
        found.append(StepBlock(first + at, part, Fraction(1), position))
    return found


def publish(port: int, payloads: Iterable[bytes], topic: bytes = b"events/x") -> None:
    """Publish with quality of service 1, as quickly as a broker takes it, and wait until it has everything."""
    packets, count = [], 0
    for count, payload in enumerate(payloads, 1):
        body = len(topic).to_bytes(2, "big") + topic + ((count - 1) % 65_535 + 1).to_bytes(2, "big") + payload
        packets.append(b"\x32" + _length(len(body)) + body)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        name = b"sender %d" % time.monotonic_ns()
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
        connection.sendall(b"\x10" + _length(len(body)) + body)
        acknowledged = -4  # the answer to the connection has four bytes as well
        for at in range(0, len(packets), 1000):
            connection.sendall(b"".join(packets[at : at + 1000]))
            while acknowledged < 4 * min(at + 1000, len(packets)):
                acknowledged += len(connection.recv(65_536))


def _length(size: int) -> bytes:
    """A length as MQTT writes it."""
    found = b""
    while True:
        size, low = divmod(size, 128)
        found += bytes([low | 128 if size else low])
        if not size:
            return found


class Worker:
    """A process that forks children, which are killed.

    Parameters
    ----------
    script
        What it runs: a file, from the folder of this one on.
    """

    def __init__(self, script: str) -> None:
        command = [sys.executable, str(Path(__file__).parent / script)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert self._line() == "ready"
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self, folder: Path, target: str, **order: Any) -> dict[str, Any]:
        """One start of a child; how it ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "target": target, **order}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            self._line()  # how the child ended, which must not be taken for the next one's answer
        assert "error" not in answer, answer
        assert answer["killed"] or answer["code"] == 0, answer
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def listening_broker(program: str, settings: Path, port: int) -> subprocess.Popen[bytes]:
    """Mosquitto, once it listens."""
    process = subprocess.Popen(
        [program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the broker does not listen")
