"""How often 90 % intervals of the new core hold the truth, by mechanism, stream and kind of answer.

    python benchmarks/interval_coverage.py [--data FOLDER] [--streams wide bus …] [MECHANISM …]

Kinds of answers: a step; the steps of the first window; sums of 30 steps (means are the same, divided by 30); the ratio
of the sums of the two largest columns; forecasts of the next step. `least` is the column that holds least often, of
columns with 200 steps or more; `clear` pools the columns whose median count exceeds their half-width. Made-up streams
come with the script. Real ones are read from --data, and left out where there is no such folder.
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
from tidegate.intervals import Errors, forecast_radius, ratio_bounds, sum_radius
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.queries.standing.forecasts import SeasonalForecast
from tidegate.queries.standing.operator import Known, Meaning

MECHANISMS = (Uniform, Sample, BudgetAbsorption, BudgetDistribution, PeGaSus, OptStream, Tide, Fast)
LENGTH = 30  # steps of a sum
CONFIDENCE = 0.9
FORECAST = 12  # columns that are forecast
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
    yield "citibike", 24, wide.drop("hour").fill_null(0).to_numpy().astype(np.int64)[-900:]
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


def forecasts(values: Matrix, radius: Matrix, errors: Errors, truth: Matrix, season: int) -> float:
    """Of the next step, by the profile of a season or the level."""
    columns = range(min(FORECAST, values.shape[1]))
    labels = tuple(map(str, columns))
    question = SeasonalForecast(Meaning(labels), ahead=1, every=1, periods=(season,))
    held = []
    for at in range(len(values) - 1):
        nothing = np.full(len(columns), np.nan)
        rows = list(question.push(Known(at + 1, values[at, columns], nothing, nothing)))
        centre = np.array([row.value for row in rows])
        observed = np.array([(row.high - row.low) / 2 for row in rows])
        here = Errors(*(part[at, columns] for part in errors))
        half = forecast_radius(observed, here, CONFIDENCE)
        known = np.isfinite(half)
        held += (np.abs(centre - truth[at + 1, columns]) <= half + 1e-9)[known].tolist()
    return 100 * float(np.mean(held)) if held else np.nan


def measured(mechanism: Any, rows: Matrix, window: int) -> list[float]:
    """The shares of all kinds of answers."""
    releases = Session(mechanism).push_batch(rows)
    fold = mechanism.intervals()
    fold.attach(fold.begin(), releases)
    radius = np.broadcast_to(releases.radii(CONFIDENCE), rows.shape)
    known = np.isfinite(radius)
    held = np.abs(releases.values - rows) <= radius + 1e-9
    each = [share(held[:, c], known[:, c]) for c in range(rows.shape[1]) if known[:, c].sum() >= 200]
    clear = np.median(rows, axis=0) > np.nanmedian(np.where(known, radius, np.nan), axis=0)
    errors = releases.radii.errors()
    ends = slice(LENGTH - 1, None, LENGTH)
    half = sum_radius(errors, LENGTH, CONFIDENCE)[ends]

    def sums(part: Matrix) -> Matrix:
        total = np.cumsum(np.vstack([np.zeros((1, part.shape[1])), part]), axis=0)
        return (total[LENGTH:] - total[:-LENGTH])[::LENGTH]

    shown, truth = sums(releases.values), sums(rows)
    fits, whole = np.abs(shown - truth) <= half + 1e-9, np.isfinite(half)
    ratio = np.nan
    if rows.shape[1] > 1:
        one, two = np.argsort(-rows.mean(axis=0))[:2]
        low, high = ratio_bounds(shown[:, one], shown[:, two], half[:, one], half[:, two])
        with np.errstate(all="ignore"):
            between = truth[:, one] / truth[:, two]
        ratio = share((low <= between) & (between <= high), np.isfinite(between) & np.isfinite(high))
    return [
        share(held, known),
        min(each, default=np.nan),
        share(held[:, clear], known[:, clear]),
        share(held[:window], known[:window]),
        share(fits, whole),
        share(fits, whole & (half < np.median(truth, axis=0))),
        ratio,
        forecasts(releases.values, radius, errors, rows, 24 if window == 24 else 7),
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
    kinds = ("steps", "least", "clear", "first w", "sums", "clear", "ratio", "forecast")
    print(f"{'stream':11}{'mechanism':19}", *(f"{kind:>8}" for kind in kinds))
    random = np.random.default_rng(5)
    for name, window, rows in (*made_up(random), *real(arguments.data)):
        if arguments.streams and name not in arguments.streams:
            continue
        counts = rows[:60] if SMALL else rows
        for kind in MECHANISMS:
            if kind.__name__ not in arguments.mechanisms:
                continue
            mechanism = kind(WEvent(epsilon="1", window=window), columns=rows.shape[1])
            found = np.nanmean([measured(mechanism, counts, window) for _ in range(arguments.runs)], axis=0)
            cells = (f"{'–' if np.isnan(cell) else format(cell, '.1f'):>8}" for cell in found)
            print(f"{name:11}{kind.__name__:19}", *cells, flush=True)


if __name__ == "__main__":
    main()
