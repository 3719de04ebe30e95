"""Ingest against plain polars: 2 million events, a million units, 100 columns, 1,000 steps.

The same aggregation in plain polars keeps one event of each unit and step and counts per step and column; the
faster of its two engines is taken. Each measurement runs in a process of its own, in turns, and the best of
several rounds counts: seconds of processor time, since others may use the machine. ``--full`` has 20 million events.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sizes import scaled

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np
import polars as pl

START = 1_772_409_600  # 2026-03-02, UTC
UNITS, COLUMNS, STEPS, LENGTH = 1_000_000, 100, 1_000, 3_600
NAMES = [f"place {number:02}" for number in range(COLUMNS)]
LIMITS = {"m = 1": 1.5, "m = 3": 3.0, "out of order, m = 1": None}


def generate(path: Path, events: int, shuffled: Path) -> None:
    random = np.random.default_rng(1)
    times = np.sort(random.integers(0, STEPS * LENGTH * 10**6, events)) + START * 10**6
    places = pl.Series(random.integers(0, COLUMNS, events).astype(np.uint32))
    frame = pl.DataFrame(
        {
            "time": pl.Series(times).cast(pl.Datetime("us", "UTC")),
            "device": random.integers(0, UNITS, events),
            "place": pl.Series(NAMES).gather(places),
        }
    )
    frame.write_parquet(path)
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(shuffled)


def plain(path: Path, engine: str) -> int:
    step = (pl.col("time").dt.timestamp("us") - START * 10**6) // (LENGTH * 10**6)
    lazy = pl.scan_parquet(path).with_columns(step=step)
    kept = lazy.unique(subset=["step", "device"], keep="any")
    counts = kept.group_by("step", "place").len().collect(engine=engine)  # type: ignore[call-overload]
    return int(counts["len"].sum())


def ingest(path: Path, most: int) -> int:
    from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source

    query = Query(aggregate="distinct", columns=Columns(tuple(NAMES)), most=most)
    schema = Schema(time="time", unit="device", column="place")
    steps = Steps(start="2026-03-02", length=LENGTH, count=STEPS)
    intake = Intake(open_source(path, query.needed(schema)), schema, steps, query)
    return sum(int(block.units.sum()) for block in intake)


def measure(what: str, path: Path, shuffled: Path, warm: Path) -> dict[str, float]:
    jobs = {
        "plain polars": lambda file: plain(file, "in-memory"),
        "plain polars, streaming": lambda file: plain(file, "streaming"),
        "m = 1": lambda file: ingest(file, 1),
        "m = 3": lambda file: ingest(file, 3),
        "out of order, m = 1": lambda file: ingest(shuffled if file == path else file, 1),
    }
    jobs[what](warm)  # imports and compiles
    begun = time.process_time()
    total = jobs[what](path)
    seconds = time.process_time() - begun
    # getrusage would also count what the parent had when it started this process
    peak = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    memory = int(peak.split()[1]) / 2**20
    return {"seconds": seconds, "gigabytes": memory, "total": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(20_000_000, 20_000, 2_000_000))
    parser.add_argument("--rounds", type=int, default=scaled(3, 1))
    parser.add_argument("--full", action="store_true", help="20 million events")
    parser.add_argument(
        "--folder", type=Path, help="where the data are made and kept; by default a temporary one"
    )
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        files = [chosen.folder / name for name in ("events.parquet", "shuffled.parquet", "warm.parquet")]
        print(json.dumps(measure(chosen.measure, *files)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "warm.parquet").exists():
            print(f"making up {chosen.events:,} events", flush=True)
            generate(folder / "events.parquet", chosen.events, folder / "shuffled.parquet")
            pl.scan_parquet(folder / "events.parquet").head(20_000).collect().write_parquet(
                folder / "warm.parquet"
            )
        names = ["plain polars", "plain polars, streaming", *LIMITS]
        best: dict[str, dict[str, float]] = {}
        for _ in range(chosen.rounds):
            for name in names:
                command = [sys.executable, __file__, "--folder", str(folder), "--measure", name]
                found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                if name not in best or found["seconds"] < best[name]["seconds"]:
                    best[name] = found
    reference = min(best[name]["seconds"] for name in names[:2])
    for name in names:
        seconds, memory = best[name]["seconds"], best[name]["gigabytes"]
        limit = LIMITS.get(name)
        text = f"{name:26} {seconds:6.2f} s {seconds / reference:6.2f} × {memory:6.2f} GB"
        if limit is None:
            print(text)
        else:
            bar(text, seconds <= limit * reference, f"{limit} ×")


if __name__ == "__main__":
    main()
