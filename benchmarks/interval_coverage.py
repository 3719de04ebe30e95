"""How often 90 % intervals of the new core hold the truth, by mechanism, stream and kind of answer.

    python benchmarks/interval_coverage.py [--data FOLDER] [--streams wide bus …] [MECHANISM …]

`known` is the part of all values that have an interval. Kinds of answers: a step; the steps of the first window; sums
of 30 steps (means are the same, divided by 30); the ratio of such sums of the two largest columns; the five largest of
them, all at once; forecasts of the next step, and of the step a season later. They are those that a configuration gets
with [[answer]]. `least` is the column that holds least often, of columns with 200 steps or more, and `ever` the same of
all runs; `clear` pools the columns whose median count exceeds their half-width. All others are means of the runs.
Made-up streams come with the script, another one for each run. Real ones are read from --data, and left out where there
is no such folder.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sizes import SMALL

from tidegate import WEvent
from tidegate.core.session import Session
from tidegate.intervals import Phases
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.queries.standing import Known, Meaning, Ratio, SeasonalForecast, Top, Window
from tidegate.releases import Errors

MECHANISMS = (Uniform, Sample, BudgetAbsorption, BudgetDistribution, PeGaSus, OptStream, Tide, Fast)
LENGTH = 30  # steps of a sum
CONFIDENCE = 0.9
FORECAST = 12  # columns that are forecast, and compared
TOP = 5
Matrix = Any


def made_up(random: np.random.Generator) -> Iterator[tuple[str, int, Matrix]]:
    """Name, window, and counts (steps × columns)."""
    days, hours = np.arange(730)[:, np.newaxis], np.arange(600)[:, np.newaxis]
    sizes = 600 / np.arange(1, 73) ** 1.45
    yield "wide", 7, random.poisson(sizes * (1 + 0.25 * np.sin(2 * np.pi * days / 7)))
    yield "narrow", 7, random.poisson(50, (600, 1))
    yield "sparse", 7, random.poisson(np.geomspace(0.03, 1, 12), (600, 12))
    wave = 1 + 0.9 * np.sin(2 * np.pi * hours / 24)
    yield "seasonal", 24, random.poisson(np.array([150, 60, 20]) * wave)
    yield "growing", 7, random.poisson(np.array([2, 10, 40, 5]) * np.exp(hours[:400] / 130))
    yield "cold start", 7, random.poisson(np.where(hours[:400] < 100, 0.02, np.array([40, 8, 25, 3])))
    walk = 200 + np.cumsum(random.normal(0, 3, (400, 4)), axis=0)
    yield "walk", 7, np.abs(np.rint(walk)).astype(np.int64)


def real(folder: Path) -> Iterator[tuple[str, int, Matrix]]:
    """The same of public data, where the folder has them."""
    if not folder.is_dir():
        return
    import polars as pl

    trips = pl.read_parquet(folder / "citibike_trips.parquet")
    hourly = trips.group_by(pl.col("start_ts").dt.truncate("1h").alias("hour"), "start_station_id").len()
    wide = (
        hourly.pivot(on="start_station_id", index="hour", values="len")
        .sort("hour")
        .upsample("hour", every="1h")
    )
    stations = wide.select(sorted(set(wide.columns) - {"hour"}))
    yield "citibike", 24, stations.fill_null(0).to_numpy().astype(np.int64)[-900:]
    stops = pl.read_parquet(folder / "montevideo_bus_675_hourly.parquet")
    yield "bus", 24, stops.drop("ts_local").to_numpy().astype(np.int64)
    for name, file, by, value in (
        ("wifi", "wifi_rooms_5min.csv.gz", "room", "associated"),
        ("calit2", "calit2_people_30min.csv.gz", "flow", "count"),
    ):
        found = pl.read_csv(folder / file).partition_by(by, maintain_order=True)
        columns = [part[value].fill_null(0).to_numpy() for part in found]
        length = min(1500, *map(len, columns))
        yield name, 24, np.stack([column[:length] for column in columns], axis=1).astype(np.int64)


def share(held: Matrix, known: Matrix) -> float:
    """The part of what is known that holds, in per cent."""
    return 100 * float(held[known].mean()) if known.any() else np.nan


def answers(known: list[Known], truth: Matrix, season: int) -> list[float]:
    """Sums of all columns, pooled and of those that are clear; a ratio, the largest sums, and forecasts."""
    width, some = truth.shape[1], np.argsort(-truth.mean(axis=0))[:FORECAST]
    added, held, halves = Window(Meaning(tuple(map(str, range(width)))), length=LENGTH), [], []
    few = [
        Known(each.step, each.values[some], each.radius[some], Errors(*(part[some] for part in each.made_of)))
        for each in known
    ]
    meaning = Meaning(tuple(map(str, range(len(some)))))
    ratio = Ratio(meaning, of="0", by="1", window=Window(meaning, length=LENGTH)) if width > 1 else None
    top = Top(meaning, count=TOP, window=Window(meaning, length=LENGTH))
    ahead = SeasonalForecast(meaning, ahead=season, every=1, periods=(season,))
    found: dict[str, list[bool]] = {"ratio": [], "top": [], "next": [], "later": []}
    for at, (each, part) in enumerate(zip(known, few, strict=True)):
        shown, half = added.follow(each)
        best = list(top.push(part))
        quotients = list(ratio.push(part)) if ratio is not None else []
        for row in ahead.push(part):
            name = {1: "next", season: "later"}.get(row.more[0])
            if name and row.about <= len(truth) and np.isfinite(row.low):
                count = truth[row.about - 1, some[int(row.column)]]
                found[name].append(bool(row.low <= count <= row.high))
        if at % LENGTH < LENGTH - 1:
            continue
        sums = truth[at - LENGTH + 1 : at + 1].sum(axis=0)
        held.append(np.abs(shown - sums) <= half + 1e-9)
        halves.append(half)
        own = sums[some]
        if all(np.isfinite(row.low) for row in best):
            found["top"].append(all(row.low <= own[int(row.column)] <= row.high for row in best))
        found["ratio"] += [
            row.low <= own[0] / own[1] <= row.high for row in quotients if np.isfinite(row.low) and own[1]
        ]
    fits, half = np.array(held), np.array(halves)
    middle = np.median(truth, axis=0) * LENGTH
    whole = np.isfinite(half)
    return [
        share(fits, whole),
        share(fits, whole & (half < middle)),
        *(100 * float(np.mean(each)) if each else np.nan for each in found.values()),
    ]


def measured(mechanism: Any, rows: Matrix, window: int) -> list[float]:
    """The shares of all kinds of answers."""
    releases = Session(mechanism).push_batch(rows)
    fold = mechanism.intervals()
    if mechanism.skips_steps:  # as of a configuration, whose clock has days and weeks
        fold = Phases(fold, (24, 168) if window == 24 else (7,))
    fold.attach(fold.begin(), releases)
    radius = np.broadcast_to(releases.radii(CONFIDENCE), rows.shape)
    known = np.isfinite(radius)
    held = np.abs(releases.values - rows) <= radius + 1e-9
    each = [share(held[:, c], known[:, c]) for c in range(rows.shape[1]) if known[:, c].sum() >= 200]
    clear = np.median(rows, axis=0) > np.nanmedian(np.where(known, radius, np.nan), axis=0)
    errors = releases.radii.errors()
    known_of = [
        Known(at + 1, releases.values[at], radius[at], Errors(*(part[at] for part in errors)))
        for at in range(len(rows))
    ]
    return [
        share(known, np.isfinite(releases.values)),
        share(held, known),
        min(each, default=np.nan),
        share(held[:, clear], known[:, clear]),
        share(held[:window], known[:window]),
        *answers(known_of, rows, 24 if window == 24 else 7),
    ]


def main() -> None:
    """Print one line for each mechanism and stream."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mechanisms", nargs="*", default=[each.__name__ for each in MECHANISMS])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--streams", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
    kinds = (
        "known",
        "steps",
        "least",
        "ever",
        "clear",
        "first w",
        "sums",
        "clear",
        "ratio",
        "top",
        "next",
        "later",
    )
    print(f"{'stream':11}{'mechanism':19}", *(f"{kind:>8}" for kind in kinds), flush=True)
    found: dict[tuple[str, str], list[list[float]]] = {}
    public = list(real(arguments.data))
    for run in range(arguments.runs):
        for name, window, rows in (*made_up(np.random.default_rng(run)), *public):
            if arguments.streams and name not in arguments.streams:
                continue
            counts = rows[:60] if SMALL else rows
            for kind in MECHANISMS:
                if kind.__name__ not in arguments.mechanisms:
                    continue
                periods = {
                    "periods": (24, 168) if window == 24 else (7,),
                    "nonnegative": True,
                }  # as for `auto`
                more: dict[str, Any] = periods if kind is Tide else {}
                mechanism = kind(WEvent(epsilon="1", window=window), columns=rows.shape[1], **more)
                found.setdefault((name, kind.__name__), []).append(measured(mechanism, counts, window))
    for (name, mechanism), runs in found.items():
        means = np.nanmean(runs, axis=0)
        row = [*means[:3], np.nanmin(np.array(runs)[:, 2], initial=np.inf), *means[3:]]
        cells = (f"{format(cell, '.1f') if np.isfinite(cell) else '–':>8}" for cell in row)
        print(f"{name:11}{mechanism:19}", *cells)


if __name__ == "__main__":
    main()
