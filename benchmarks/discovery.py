"""Discovery: what it finds on bike trips, against selection alone at each epoch, and how fast it is.

    python benchmarks/discovery.py speed [--full] [--small]
    python benchmarks/discovery.py trips DATA [--runs 20]
    python benchmarks/discovery.py units

`speed` divides the time of the same aggregation in plain polars by that of a push, in processor time of one thread.
`trips` reads trips of a folder of data sets: bikes are the units, stations the categories. Missing are stations that some
bike has in the epoch before and that are not open; few are open ones with fewer than a tenth of the threshold.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sizes import scaled

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

import tidegate as tg
from tidegate.mechanisms import Discover

NAMES, EVENTS = 10**6, 10**7
WEEK = 168


def processor(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of processor time, the best of some rounds."""
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def events(count: int, names: int) -> pl.DataFrame:
    """Units with categories of very unequal sizes: rank r has a weight of 1/(r + 50)."""
    generator = np.random.default_rng(1)
    weights = 1 / (np.arange(names) + 50)
    ranks = generator.choice(names, count, p=weights / weights.sum())
    frame = pl.DataFrame({"unit": generator.integers(0, count // 5, count), "rank": ranks})
    return frame.select("unit", ("product " + pl.col("rank").cast(pl.String)).alias("category"))


def plain(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """The same counts without noise: units by category, the first categories of each unit; and records by category."""
    if most == 1:
        kept = frame.unique("unit", keep="first")
    else:
        kept = frame.unique(["unit", "category"], keep="first", maintain_order=True)
        kept = kept.filter(pl.int_range(pl.len()).over("unit") < most)
    frame.unique("unit", keep="first").group_by("category").len()
    return kept.group_by("category").len().sort("category")


def speed(rounds: int) -> None:
    frame = events(scaled(EVENTS, 20_000, EVENTS // 10), scaled(NAMES, 2_000, NAMES // 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(frame):,} events, {frame['category'].n_unique():,} names")
    for most in (1, 8):
        mechanism = Discover(
            tg.WEvent(epsilon="2", delta="2e-6", window=WEEK), columns=256, epoch=1, categories=most
        )

        def push(mechanism: Discover = mechanism) -> None:
            with tg.open(mechanism) as session:
                session.push(mechanism.collector().step(frame))

        push()
        other, own = processor(lambda most=most: plain(frame, most), rounds), processor(push, rounds)
        print(f"categories={most}: plain {other:.2f} s, push {own:.2f} s, {other / own:.2f} times its speed")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory: {before / 1e6:.2f} GB with the events, {after / 1e6:.2f} GB at most")


def trips(path: Path, runs: int) -> None:
    frame = pl.read_parquet(path).sort("start_ts")
    hours = (pl.col("start_ts") - pl.lit(frame["start_ts"].min()).dt.truncate("1d")).dt.total_hours()
    frame = frame.select(
        (hours + 1).alias("step"),
        pl.col("bike_id").alias("unit"),
        pl.format("station {}", "start_station_id").alias("category"),
    )
    steps = int(frame["step"].max()) // WEEK * WEEK
    by_step = {
        key[0]: rows.select("unit", "category") for key, rows in frame.group_by("step", maintain_order=True)
    }
    empty = frame.clear().select("unit", "category")
    print("| ε of tests | k | opens with | open | found | missing | few | error | first open |")
    for epsilon, most in (("1", 1), ("1", 4), ("2", 4), ("4", 4), ("4", 8)):
        policy = tg.WEvent(epsilon=str(2 * int(epsilon)), delta="2e-6", window=WEEK, max_change=1)
        mechanism = Discover(policy, columns=64, categories=most)
        found = [one_run(mechanism, by_step, empty, steps) for _ in range(runs)]
        open_, right, missing, few, error, first = np.nanmean(np.array(found), axis=0)
        print(
            f"| {epsilon} | {most} | {mechanism.units_needed()} | {open_:.1f} | {right:.1%} | {missing:.1%} | {few:.2%} "
            f"| {error:.1f} | {first:.0f} |"
        )


def one_run(
    mechanism: Discover, by_step: dict[Any, pl.DataFrame], empty: pl.DataFrame, steps: int
) -> list[float]:
    """Means over epochs: open categories, and parts of true ones that are found and missing; few; error; first step."""
    collector, session = mechanism.collector(), tg.open(mechanism)
    releases = session.push_batch([collector.step(by_step.get(step, empty)) for step in range(1, steps + 1)])
    rows, errors, first = [], [], steps
    for end in range(WEEK, steps, WEEK):
        week = pl.concat([by_step.get(step, empty) for step in range(end - WEEK + 1, end + 1)])
        units = dict(week.unique().group_by("category").len().iter_rows())
        opened = {name for name in releases.categories(end - 1) if name}
        first = min(first, end) if opened else first
        few = [name for name in opened if units.get(name, 0) < mechanism.selection.threshold / 10]
        true = len(units)
        if true:
            right = len(opened & units.keys()) / true
            rows.append([len(opened), right, 1 - right, len(few) / max(1, len(opened))])
        for step in range(end, min(end + WEEK, steps), 12):
            kept = by_step.get(step, empty).unique("unit", keep="first", maintain_order=True)
            counts = dict(kept.group_by("category").len().iter_rows())
            shown = dict(zip(releases.categories(step - 1), releases.values[step - 1, :-1], strict=True))
            errors += [abs(value - counts.get(name, 0)) for name, value in shown.items() if name]
    return [*np.mean(rows, axis=0).tolist(), float(np.mean(errors)) if errors else float("nan"), float(first)]


def alone(epsilon: float, delta: float, most: int, epochs: int) -> int:
    """The same of optimal selections of single categories (Desfontaines and others 2020), of which 2·k·m change."""
    count, chance, found = 2 * most * epochs, 0.0, 0
    epsilon, delta = epsilon / count, delta / count
    while chance < 0.5:
        grows, falls = np.exp(epsilon) * chance + delta, 1 - np.exp(-epsilon) * (1 - chance - delta)
        chance, found = min(grows, falls, 1.0), found + 1
    return found


def units() -> None:
    """With how many units a category opens with probability one half: tests alone at ε and δ = 1e-6."""
    print("| window | epoch | k | ε = 0.1 | ε = 0.5 | ε = 1 | ε = 4 | ε = 1, each selected alone |")
    for window, epoch, most in ((24, 24, 1), (168, 168, 1), (168, 24, 1), (168, 168, 4), (168, 168, 16)):
        needed = [
            Discover(
                tg.WEvent(epsilon=epsilon, delta="2e-6", window=window), epoch=epoch, categories=most
            ).units_needed()
            for epsilon in ("0.2", "1", "2", "8")
        ]
        epochs = (window - 2) // epoch + 2
        print(
            f"| {window} | {epoch} | {most} | {' | '.join(map(str, needed))} | {alone(1, 1e-6, most, epochs)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "trips", "units"], nargs="?", default="units")
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if given.what == "speed":
        speed(given.rounds)
    elif given.what == "trips":
        if given.data is None:
            parser.error("trips needs the folder of the data sets")
        trips(given.data / "citibike_trips.parquet", given.runs)
    else:
        units()


if __name__ == "__main__":
    main()
