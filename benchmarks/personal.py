"""Errors with requirements of units, beside BD and BA that give every unit the strictest of them.

Units are divided among requirements by chance, as the public table says; in rows with a star the units of each
requirement are in columns of their own, and mechanisms have `deviation=1`. Mean absolute errors of a released value.

    python benchmarks/personal.py [--full] [--data DATA] [--runs 20]     DATA: a folder with public streams
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from sizes import scaled

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np
import polars as pl
from polars import selectors

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, PersonalAbsorption, PersonalDistribution
from tidegate.mechanisms.w_event.personal import Requirement

KINDS = ((PersonalDistribution, BudgetDistribution), (PersonalAbsorption, BudgetAbsorption))
# ε, window and share of units; the first is the policy's
TABLES = {
    "half with ε/5": (("1", 40, "1/2"), ("1/5", 40, "1/2")),
    "half with 3w": (("1", 40, "1/2"), ("1", 120, "1/2")),
    "three kinds": (("1", 40, "1/2"), ("3/5", 80, "3/10"), ("1/5", 120, "1/5")),
    "most with ε/10 and 3w": (("1", 40, "1/10"), ("1/10", 120, "9/10")),
}
# what the paper's abstract claims, with other data and other requirements
PUBLISHED = {("public", BudgetDistribution): 0.68, ("made-up", BudgetAbsorption): 0.249}
PUBLIC = {
    "taxi trips, 30 zones": ("nyc_taxi_od_900_hourly.parquet", 30),
    "taxi trips, all": ("nyc_taxi_od_900_hourly.parquet", 1),
    "bus boardings, all": ("montevideo_bus_675_hourly.parquet", 1),
}


def made_up(steps: int) -> dict[str, np.ndarray]:
    """A wave, a walk, counts that stand still, and small ones that walk."""
    choose = np.random.default_rng(1)
    walk = 5000 + np.cumsum(choose.normal(0, 30, (steps, 5)), axis=0)
    small = np.cumsum(choose.normal(0, 3, (steps, 50)), axis=0)
    found = {
        "wave": 1000 + 400 * np.sin(np.arange(steps)[:, np.newaxis] / 50),
        "walk, 5 columns": walk,
        "flat, 20 columns": np.full((steps, 20), 300.0),
        "small walk, 50 columns": small,
    }
    return {name: np.abs(rows).round().astype(np.int64) for name, rows in found.items()}


def public(folder: Path) -> dict[str, np.ndarray]:
    """Public streams of people who move about, added up to some columns."""
    found = {}
    for name, (file, columns) in PUBLIC.items():
        frame = pl.read_parquet(folder / file)
        rows = frame.select(selectors.integer()).fill_null(0).to_numpy().astype(np.int64)
        found[name] = (
            rows[:, : rows.shape[1] // columns * columns].reshape(len(rows), columns, -1).sum(axis=2)
        )
    return found


def divided(choose: np.random.Generator, rows: np.ndarray, shares: Sequence[str], apart: bool) -> np.ndarray:
    """Columns of each requirement beside each other: units by chance, or whole columns."""
    parts, rest, left = [], rows.copy(), Fraction(1)
    for share in shares[:-1]:
        if apart:
            part = rows * (choose.random(rows.shape[1]) < float(Fraction(share) / left)) * (rest == rows)
        else:
            part = choose.binomial(rest, float(Fraction(share) / left))
        parts.append(part)
        rest, left = rest - part, left - Fraction(share)
    return np.concatenate([*parts, rest], axis=1)


def error(mechanism: tg.mechanisms.Mechanism, pushed: np.ndarray, rows: np.ndarray) -> float:
    """Of one run."""
    return float(np.abs(Session(mechanism).push_batch(pushed).values - rows).mean())


def less(gain: float) -> str:
    """In words."""
    return f"{abs(gain):.0%} {'less' if gain >= 0 else 'more'}"


def compare(
    name: str, rows: np.ndarray, table: Sequence[tuple[str, int, str]], runs: int, apart: bool
) -> list[float]:
    """Print one line; what is gained, of the error with the strictest requirement, by each mechanism."""
    choose, columns = np.random.default_rng(2), rows.shape[1]
    policy = tg.WEvent(epsilon=table[0][0], window=table[0][1])
    asked = tuple(Requirement(share, epsilon, window) for epsilon, window, share in table[1:])
    least = min(Fraction(epsilon) for epsilon, _, _ in table)
    strictest = tg.WEvent(epsilon=least, window=max(window for _, window, _ in table))
    line, gains = f"  {name:24s}", []
    for personal, plain in KINDS:
        ours = personal(policy, columns=columns * len(table), requirements=asked, deviation=int(apart))
        shares = [share for _, _, share in table]
        mean = np.mean([error(ours, divided(choose, rows, shares, apart), rows) for _ in range(runs)])
        theirs, best = (
            np.mean([error(plain(strictest, columns=columns, noise=noise), rows, rows) for _ in range(runs)])
            for noise in ("laplace", "auto")
        )
        gains.append(float(1 - mean / theirs))
        line += f" {plain.__name__:18s} {theirs:7.1f}, shared noise {best:7.1f}, personal {mean:7.1f}, {less(gains[-1])};"
    print(line, flush=True)
    return gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of public streams")
    parser.add_argument("--runs", type=int, default=scaled(20, 1, 5))
    parser.add_argument("--full", action="store_true", help="20 runs")
    arguments = parser.parse_args()
    streams = made_up(scaled(1500, 100))
    real = public(arguments.data) if arguments.data else {}
    every: dict[str, list[list[float]]] = {"made-up": [], "public": []}
    for title, table in TABLES.items():
        print(title + ": " + ", ".join(f"{share} with ε = {e}, w = {w}" for e, w, share in table))
        found = [compare(name, rows, table, arguments.runs, False) for name, rows in (streams | real).items()]
        for name, rows in streams.items():
            if rows.shape[1] > 1:
                compare(name + " *", rows, table, arguments.runs, True)
        means = zip(KINDS, np.mean(found, axis=0), strict=True)
        print("  on average: " + "; ".join(f"{plain.__name__} {less(gain)}" for (_, plain), gain in means))
        every["made-up"] += found[: len(streams)]
        every["public"] += found[len(streams) :]
    for kind, gains in every.items():
        for (_, plain), gain in zip(KINDS, np.mean(gains, axis=0) if gains else (), strict=False):
            text, least = (
                f"{plain.__name__}: {less(gain)} on average of {kind} streams",
                PUBLISHED.get((kind, plain)),
            )
            if least is None:
                print(text)
            else:
                bar(text, gain >= least, f"{least:.1%}")
    for (_, plain), gain in zip(KINDS, np.mean([*every["made-up"], *every["public"]], axis=0), strict=True):
        bar(f"{plain.__name__}: {less(gain)} on average of all", gain >= 0.536, "53.6%")


if __name__ == "__main__":
    main()
