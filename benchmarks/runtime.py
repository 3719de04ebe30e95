"""Speed of the durable runtime: commits a second, steps a second, latency while following, end to end.

Run with ``python benchmarks/runtime.py``; each rate is the best of five, warm. Bars are for processor time: commits wait
for the disk; what the wall says stands beside it. Following is by the wall. ``--postgres URL`` adds PostgreSQL,
``--mqtt URL`` a broker (``mqtt://localhost:1883``), ``--full`` compares 20 million events with plain polars, not 5.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
import time
from pathlib import Path

from sizes import scaled

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np

from tidegate.config import parse_queries
from tidegate.core.session import Session
from tidegate.mechanisms import Uniform
from tidegate.pipeline import open_pipeline
from tidegate.policy import WEvent
from tidegate.sinks.chunks import Chunk

MECHANISM = Uniform(WEvent(epsilon="1", window=24))


def rate(name: str, target: str | Path, count: int, size: int, wanted: float) -> None:
    """Print the best of five: steps for each second of processor time, and by the wall."""
    by_wall = by_processor = float("inf")
    rows = np.full((size, 1), 7, dtype=np.int64)
    with Session(MECHANISM, target) as session:
        for _ in range(5):
            wall, processor = time.perf_counter(), time.process_time()
            for _ in range(count):
                session.push_batch(rows, position=session.step)
            by_wall = min(by_wall, time.perf_counter() - wall)
            by_processor = min(by_processor, time.process_time() - processor)
    found, seen = count * size / by_processor, count * size / by_wall
    bar(
        f"{name:31} {found:12,.0f} steps/s of processor time, {seen:,.0f} by the wall",
        found >= wanted,
        f"{wanted:,}",
    )


CONFIG = """
[source]
location = "{location}"
time = "time"
unit = "unit"
{more}
follow = {follow}
[steps]
start = "{start}"
length = "{length}"
{count}
[query]
aggregate = "distinct"
{query}
[protect]
epsilon = "1"
window = 24
[sink]
location = "released.csv"
"""


def syncs(folder: Path, seconds: float = 0.5) -> float:
    """How often the disk can make a page safe: no single-step commit can be faster."""
    descriptor = os.open(folder / "page", os.O_RDWR | os.O_CREAT)
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        os.pwrite(descriptor, bytes(4096), 4096 * (count % 64))
        os.fdatasync(descriptor)
        count += 1
    os.close(descriptor)
    return count / (time.perf_counter() - begin)


class Clock:
    """Notes how long after the close of its step each release has reached the sink."""

    def __init__(self, begin: float, length: float) -> None:
        self.begin, self.length, self.lags = begin, length, []
        self.enough = threading.Event()

    def released(self, chunk: Chunk) -> None:
        """Releases have reached the sink."""
        now = time.time()
        self.lags += [now - (self.begin + int(step) * self.length) for step in chunk.step]

    def waiting(self, sentence: str) -> None:
        """Nothing."""


def following(folder: Path, seconds: int = 20, events: int = 2000) -> tuple[float, float]:
    """50th and 99th percentile from the close of a step of one second to the sink, with a file that grows."""
    path = folder / "growing.csv"
    path.write_text("time,unit\n")
    start = int(time.time()) + 1
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start))
    text = CONFIG.format(
        location=path, more="", follow="true", start=stamp, length="1s", count=f"count = {seconds}", query=""
    )
    queries = parse_queries(text, folder / "follow.toml")
    clock = Clock(start, 1.0)
    stop = threading.Event()

    def write() -> None:
        with path.open("a") as file:
            for number in itertools.count():
                now = time.time()
                file.write("".join(f"{now:.3f},u{number * 20 + i}\n" for i in range(events // 100)))
                file.flush()
                if stop.wait(0.01):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with open_pipeline(queries, follow=True, observers={queries.first.name: clock}) as pipeline:
            intake = queries.open(None, follow=True)
            pipeline.drive(intake)
            intake.close()
    finally:
        stop.set()
        writer.join()
    lags = np.array(clock.lags[1:])  # the first step began before the reader did
    return float(np.quantile(lags, 0.5)), float(np.quantile(lags, 0.99))


def from_broker(folder: Path, url: str, messages: int = 60_000) -> float:
    """Events a second from a broker through steps to a committed release; ten events a message."""
    import json

    import paho.mqtt.client as paho

    folder = folder / "broker"  # releases of its own
    folder.mkdir()
    start = int(time.time()) - 1
    text = CONFIG.format(
        location=f"{url}/bench/#",
        more=f'client = "bench{os.getpid()}"',
        follow="true",
        start=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start)),
        length="1s",
        count="",
        query="",
    )
    host, _, port = url.removeprefix("mqtt://").partition(":")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect(host, int(port or 1883))
    client.loop_start()
    done = 0

    class Counter(Clock):
        def released(self, chunk: Chunk) -> None:
            """Add up what has come out: exact, since ε is huge here."""
            nonlocal done
            done += round(float(chunk.values.sum()))
            if done >= messages:
                intake.stop()

    queries = parse_queries(text.replace('epsilon = "1"', 'epsilon = "10000000"'), folder / "broker.toml")
    with open_pipeline(queries, follow=True, observers={queries.first.name: Counter(0, 1)}) as pipeline:
        intake = queries.open(None, follow=True)

        def send() -> None:
            time.sleep(2.0)  # until the session exists
            for first in range(0, messages, 10):
                now = time.time()
                rows = [{"time": now, "unit": first + number} for number in range(10)]
                client.publish("bench/x", json.dumps(rows), qos=1)

        sender = threading.Thread(target=send)
        sender.start()
        begin = time.perf_counter() + 2.0
        pipeline.drive(intake)
        taken = time.perf_counter() - begin
        sender.join()
        intake.close()
    client.disconnect()
    client.loop_stop()
    return messages / taken


def end_to_end(folder: Path, events: int, most: int, repeats: int) -> tuple[float, float]:
    """Processor seconds of a release, and of the same aggregation in plain polars, both in one thread."""
    import polars as pl

    folder = folder / f"end-{most}"  # releases of its own
    folder.mkdir()
    path = folder.parent / f"events-{events}.parquet"
    if not path.exists():
        random = np.random.default_rng(1)  # public sample data
        times = np.sort(random.integers(0, 3_600_000 * 1000, size=events)) * 1000
        pl.DataFrame(
            {
                "time": pl.Series(times, dtype=pl.Datetime("us")),
                "unit": random.integers(0, 10**6, size=events),
                "place": random.integers(0, 100, size=events),
            }
        ).write_parquet(path)

    def plain() -> None:
        step = (pl.col("time").to_physical() // 3_600_000_000).alias("step")
        kept = pl.scan_parquet(path).with_columns(step)
        if most == 1:
            kept = kept.unique(["unit", "step"], keep="any")
        else:
            kept = kept.filter(pl.int_range(pl.len()).over("unit", "step") < most)
        kept.group_by("step", "place").len().collect()

    columns = ", ".join(f'"{place}"' for place in range(100))
    text = CONFIG.format(
        location=path,
        more='column = "place"',
        follow="false",
        start="1970-01-01",
        length="1h",
        count="count = 1000",
        query=f"columns = [{columns}]\nmost = {most}",
    ).replace('aggregate = "distinct"', 'aggregate = "count"')
    queries = parse_queries(text, folder / "end.toml")

    def release() -> None:
        for leftover in folder.iterdir():
            leftover.unlink()
        with open_pipeline(queries) as pipeline:
            intake = queries.open(None)
            pipeline.drive(intake)
            pipeline.finish()
            intake.close()

    times = []
    for work in (release, plain):
        taken = []
        for _ in range(repeats):
            begin = time.process_time()
            work()
            taken.append(time.process_time() - begin)
        times.append(min(taken))
    return times[0], times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", help="URL of a database in which streams may be made")
    parser.add_argument("--mqtt", help="URL of a broker without a topic")
    parser.add_argument("--events", type=int, default=scaled(20_000_000, 20_000, 5_000_000))
    parser.add_argument("--full", action="store_true", help="20 million events instead of five")
    parser.add_argument("--repeats", type=int, default=scaled(3, 1))
    parser.add_argument("--follow", type=int, default=scaled(20, 3), help="seconds to follow a growing file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TIDEGATE_BENCH_FOLDER")) as name:
        folder = Path(name)
        print(f"the disk, syncs of a page       {syncs(folder):12,.0f} a second")
        rate("SQLite, one step a commit", folder / "single.ledger", scaled(1000, 10), 1, 2_000)
        size = scaled(50_000, 500)
        rate("SQLite, 50,000 steps a commit", folder / "batch.ledger", scaled(4, 1), size, 100_000)
        if chosen.postgres:
            url = chosen.postgres.partition("#")[0]
            rate("PostgreSQL, one step a commit", f"{url}#bench_{os.getpid()}_1", 500, 1, 500)
            rate("PostgreSQL, 50,000 a commit", f"{url}#bench_{os.getpid()}_2", 4, 50_000, 100_000)
        if chosen.follow:
            middle, high = following(folder, chosen.follow)
            text = f"following, close → sink, by the wall {1000 * middle:8.1f} ms median, {1000 * high:.1f} ms p99"
            bar(text, middle <= 0.1, "100 ms")
        if chosen.mqtt:
            found = from_broker(folder, chosen.mqtt)
            bar(f"MQTT, ten events a message, by the wall {found:12,.0f} events/s", found >= 10_000, "10,000")
        if chosen.events:
            for most, wanted in ((1, 1.5), (3, 3.0)):
                ours, theirs = end_to_end(folder, chosen.events, most, chosen.repeats)
                seconds = f"{ours:.2f} s, polars {theirs:.2f} s"
                text = f"{chosen.events:,} events, m = {most}: {seconds}, ratio {ours / theirs:.2f}"
                bar(text, ours <= wanted * theirs, f"{wanted}")


if __name__ == "__main__":
    main()
