"""Pictures and table of docs/experiments/w_event.md: which w-event mechanism wins on which real stream.

    python docs/figures/w_event.py DATA_FOLDER

DATA_FOLDER holds the public streams named below; none of them is part of the project.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.colors import LogNorm

import tidegate as tg
from tidegate.mechanisms import (
    BudgetAbsorption,
    BudgetDistribution,
    Fast,
    Mechanism,
    RescueDP,
    Sample,
    Uniform,
)

PICTURES = Path(__file__).parents[1] / "pictures"
MECHANISMS: dict[str, Callable[[tg.WEvent, int], Mechanism]] = {
    "Uniform": lambda policy, d: Uniform(policy, columns=d, noise="laplace"),
    "Sample": lambda policy, d: Sample(policy, columns=d),
    "Sample, w/4": lambda policy, d: Sample(
        policy, columns=d, every=max(1, policy.window // 4), noise="laplace"
    ),
    "BD": lambda policy, d: BudgetDistribution(policy, columns=d, shift=d > 2 * policy.window),
    "BA": lambda policy, d: BudgetAbsorption(policy, columns=d, shift=d > 2 * policy.window),
    "Fast": lambda policy, d: Fast(policy, columns=d),
    "RescueDP": lambda policy, d: RescueDP(policy, columns=d),
}
RUNS = 5


def streams(folder: Path) -> dict[str, tuple[np.ndarray, int]]:
    """Name → (steps × columns, w): one day of steps each, ten years for the monthly one."""

    def filled(values: np.ndarray) -> np.ndarray:
        """Gaps repeat the last value: these are experiments, not releases."""
        frame = pl.DataFrame(values, schema=[f"c{i}" for i in range(values.shape[1])])
        return (
            frame.fill_nan(None)
            .fill_null(strategy="forward")
            .fill_null(0)
            .to_numpy()
            .round()
            .astype(np.int64)
        )

    def wide(file: str) -> np.ndarray:
        frame = pl.read_parquet(folder / file)
        return frame.select(pl.col(pl.Int64, pl.Int32, pl.Int16, pl.UInt16, pl.UInt32, pl.Float64)).to_numpy()

    found: dict[str, tuple[np.ndarray, int]] = {}
    rte = pl.read_parquet(folder / "rte_load_2016_30min.parquet")
    region = next(
        c
        for c in rte.columns
        if "le-de-france" in c.lower() or "ile_de_france" in c.lower() or "idf" in c.lower()
    )
    found["electric load, one region"] = (
        filled(rte.select(pl.col(region).cast(pl.Float64)).to_numpy())[:6000],
        48,
    )
    cup = pl.read_parquet(folder / "worldcup98_requests_per_minute.parquet")
    count = next(c for c, t in cup.schema.items() if t.is_numeric())
    found["web requests a minute"] = (
        filled(cup.select(pl.col(count).cast(pl.Float64)).to_numpy())[:20000],
        60,
    )
    jobs = pl.read_csv(folder / "unemployment_478_months.csv")
    count = [c for c, t in jobs.schema.items() if t.is_numeric()][-1]
    found["unemployment, monthly"] = (filled(jobs.select(pl.col(count).cast(pl.Float64)).to_numpy()), 120)
    taxi = wide("nyc_taxi_od_900_hourly.parquet").astype(float)
    found["taxi trips, all"] = (filled(taxi.sum(axis=1, keepdims=True)), 24)
    found[f"taxi trips, {taxi.shape[1]} pairs"] = (filled(taxi), 24)
    bus = wide("montevideo_bus_675_hourly.parquet").astype(float)
    found[f"bus boardings, {bus.shape[1]} stops"] = (filled(bus), 24)
    return found


def short(number: float) -> str:
    """Three digits, no exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def error(mechanism: Mechanism, truth: np.ndarray) -> float:
    """Mean absolute error of non-negative releases, over runs."""
    return float(
        np.mean(
            [
                np.abs(np.maximum(tg.open(mechanism).push_batch(truth).values, 0) - truth).mean()
                for _ in range(RUNS)
            ]
        )
    )


def table(
    found: dict[str, tuple[np.ndarray, int]], epsilons: tuple[str, ...]
) -> tuple[list[str], np.ndarray]:
    """Errors of every mechanism in every setting."""
    rows, errors = [], []
    for name, (truth, w) in found.items():
        for epsilon in epsilons:
            policy = tg.WEvent(epsilon=epsilon, window=w)
            rows.append(f"{name}\nw = {w}, ε = {epsilon}, mean {short(truth.mean())}")
            errors.append([error(make(policy, truth.shape[1]), truth) for make in MECHANISMS.values()])
            print(rows[-1].replace("\n", " | "), *(f"{e:.4g}" for e in errors[-1]), flush=True)
    return rows, np.array(errors)


def draw_table(rows: list[str], errors: np.ndarray) -> None:
    """The errors as a coloured table."""
    ratio = errors / errors[:, :1]
    figure, axes = plt.subplots(figsize=(9.4, 0.52 * len(rows) + 1.5), layout="constrained")
    axes.imshow(ratio, norm=LogNorm(0.05, 20), cmap="RdYlGn_r", aspect="auto", alpha=0.75)
    for row in range(len(rows)):
        for column in range(len(MECHANISMS)):
            best = errors[row, column] <= errors[row].min() * 1.0001
            axes.text(
                column,
                row,
                short(errors[row, column]) + ("  ●" if best else ""),
                ha="center",
                va="center",
                fontsize=9,
                weight="bold" if best else "normal",
            )
    axes.set_xticks(range(len(MECHANISMS)), list(MECHANISMS), fontsize=10)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(
        "Mean absolute error; colour: against Uniform (green is better), ● the best of the row",
        fontsize=11,
        pad=12,
    )
    figure.savefig(PICTURES / "w_event_table.png", dpi=110)


def draw_streams(found: dict[str, tuple[np.ndarray, int]], epsilon: str) -> None:
    """A few windows of some streams, true and released."""
    shown = ["Uniform", "Sample", "BA", "Fast"]
    names = [name for name, (truth, _) in found.items() if truth.shape[1] == 1][:3]
    figure, grid = plt.subplots(
        len(shown),
        len(names),
        figsize=(11, 8),
        layout="constrained",
        sharex="col",
        sharey="col",
        squeeze=False,
    )
    for column, name in enumerate(names):
        truth, w = found[name]
        start = min(1000, len(truth) // 2)
        window = slice(start, start + 4 * w if len(truth) > start + 4 * w else len(truth))
        steps = np.arange(len(truth))[window]
        for row, label in enumerate(shown):
            axes = grid[row, column]
            mechanism = MECHANISMS[label](tg.WEvent(epsilon=epsilon, window=w), 1)
            values = np.maximum(tg.open(mechanism).push_batch(truth).values, 0)
            wrong = np.abs(values - truth).mean()
            axes.plot(steps, values[window], color="#d1495b", linewidth=0.9, drawstyle="steps-post")
            axes.plot(steps, truth[window], color="#1f2d3d", linewidth=1.1)
            axes.text(0.01, 0.97, f"{label}: error {short(wrong)}", transform=axes.transAxes, va="top", fontsize=9,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})  # fmt: skip
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            high = truth[window].max()
            axes.set_ylim(0, 1.6 * high)
        grid[0, column].set_title(f"{name} (w = {w})", fontsize=10)
        grid[-1, column].set_xlabel("step", fontsize=9)
    figure.suptitle(f"True (black) and released (red) under w-event privacy with ε = {epsilon}", fontsize=12)
    figure.savefig(PICTURES / "w_event_streams.png", dpi=100)


if __name__ == "__main__":
    streams_found = streams(Path(sys.argv[1]))
    draw_streams(streams_found, "0.1")
    draw_table(*table(streams_found, ("1", "0.1")))
