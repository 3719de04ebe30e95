"""The tables of docs/experiments/w_event.md that say what each part of FAST and RescueDP is worth, as Markdown.

    python docs/figures/w_event_ablation.py DATA_FOLDER [RUNS]

DATA_FOLDER holds the public streams named below; none of them is part of the project. Noise is fixed, so that the
numbers come out the same each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

import tidegate as tg
from tidegate.mechanisms import Fast, Mechanism, RescueDP, Sample, Uniform
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.testing.entropy import fixed_entropy

PROPORTIONAL = {"proportional": 1.0, "integral": 0.0, "derivative": 0.0}  # the controller without its memory
NOTHING = {"adaptive": False, "allocation": False, "grouping": False, "filter": False}
FAST = {
    "all parts": {},
    "equal distances": {"adaptive": False},
    "P instead of PID": {"adaptive": Pid(**PROPORTIONAL)},
    "no filter": {"filter": False},
    "neither": {"adaptive": False, "filter": False},
    "on blocks": {"blocks": True},
}
RESCUE = {
    "all parts": {},
    "equal distances": {"adaptive": False},
    "P instead of PID": {"adaptive": Pid(**PROPORTIONAL, recent=3)},
    "equal budgets": {"allocation": False},
    "no pace": {"pace": None},
    "no groups": {"grouping": False},
    "no filter": {"filter": False},
    "none": NOTHING,
}


def streams(folder: Path) -> dict[str, tuple[np.ndarray, int]]:
    """Name → (steps × columns, w)."""

    def read(file: str) -> np.ndarray:
        path = folder / file
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
        return frame.select(pl.selectors.numeric()).fill_null(strategy="forward").to_numpy().astype(np.int64)

    jobs = read("unemployment_478_months.csv")[:, -1:]
    taxi = read("nyc_taxi_od_900_hourly.parquet")
    busiest = taxi[:, np.sort(np.argsort(taxi.sum(axis=0), kind="stable")[-10:])]
    web = read("worldcup98_requests_per_minute.parquet")[:, -1:]
    door = read("calit2_people_30min.csv.gz").reshape(-1, 2)  # in and out take turns
    bus = read("montevideo_bus_675_hourly.parquet")
    return {
        "unemployed, w = 120": (jobs, 120),
        "taxi, d = 10, w = 24": (busiest, 24),
        "taxi, d = 10, w = 168": (busiest, 168),
        "web requests, w = 120": (web, 120),
        "web requests, w = 1000": (web, 1000),
        f"people at a door, d = {door.shape[1]}, w = 48": (door, 48),
        f"bus, d = {bus.shape[1]}, w = 24": (bus, 24),
        f"taxi, d = {taxi.shape[1]}, w = 168": (taxi, 168),
    }


def error(mechanism: Mechanism, truth: np.ndarray, runs: int) -> tuple[float, float]:
    """The mean absolute error of releases cut at 0, over runs, and the standard error of that mean."""
    errors = []
    for seed in range(runs):
        with fixed_entropy(seed):
            values = tg.open(mechanism).push_batch(truth).values
        errors.append(np.abs(np.maximum(values, 0) - truth).mean())
    return float(np.mean(errors)), float(np.std(errors, ddof=1) / np.sqrt(runs))


def short(number: float) -> str:
    """Three digits, no exponent."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.1f}" if number >= 9.95 else f"{number:.2f}"


def table(
    kind: type[Mechanism], variants: dict[str, dict], found: dict[str, tuple[np.ndarray, int]], runs: int
) -> None:
    """One row a stream, one column a variant."""
    print("|", " | ".join(["mean absolute error", *variants, "`Uniform`", "`Sample`"]), "|")
    print("|", " | ".join(["---", *["---:"] * (len(variants) + 2)]), "|")
    worst = 0.0
    for name, (truth, w) in found.items():
        policy, columns = tg.WEvent(epsilon="1", window=w), truth.shape[1]
        some = runs if columns < 100 else max(2, runs // 10)
        entries = [kind(policy, columns=columns, **options) for options in variants.values()]
        entries += [Uniform(policy, columns=columns, noise="laplace"), Sample(policy, columns=columns)]
        errors = [error(mechanism, truth, some) for mechanism in entries]
        worst = max(worst, *(spread / mean for mean, spread in errors))
        print("|", " | ".join([name, *(short(mean) for mean, _ in errors)]), "|", flush=True)
    print(f"\nThe largest standard error is {100 * worst:.1f} % of its mean.\n")


if __name__ == "__main__":
    streams_found = streams(Path(sys.argv[1]))
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    table(Fast, FAST, streams_found, number)
    table(RescueDP, RESCUE, streams_found, number)
