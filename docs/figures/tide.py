"""Pictures of docs/experiments/tide.md: Tide on three real streams.

    python docs/figures/tide.py DATA_FOLDER

DATA_FOLDER holds the public streams named below; none of them is part of the project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import tidegate as tg
from tidegate.mechanisms import Tide, Uniform

PICTURES = Path(__file__).parents[1] / "pictures"


def streams(folder: Path) -> dict[str, tuple[np.ndarray, int, tuple[int, ...], slice]]:
    """Name → (steps, w, periods, what is shown)."""
    load = pl.read_parquet(folder / "rte_load_2016_30min.parquet")["ile_de_france"]
    web = pl.read_parquet(folder / "worldcup98_requests_per_minute.parquet")["requests"]
    taxi = pl.read_parquet(folder / "nyc_taxi_od_900_hourly.parquet").drop("ts_local")
    return {
        "electric load, one region, MW, w = one day": (whole(load), 48, (48, 336), slice(4000, 4336)),
        "web requests a minute, w = two hours": (whole(web), 120, (1440, 10080), slice(4000, 4600)),
        "taxi trips an hour, w = two days": (
            taxi.to_numpy().sum(axis=1).astype(np.int64),
            48,
            (24, 168),
            slice(1000, 1240),
        ),
    }


def whole(series: pl.Series) -> np.ndarray:
    """Gaps repeat the last value: these are experiments, not releases."""
    return series.fill_null(strategy="forward").to_numpy().astype(np.int64)[:6000]


def main() -> None:
    """Draw the truth, what Uniform releases, what Tide releases at once and smoothed, with 90 % intervals."""
    figure, axes = plt.subplots(3, 1, figsize=(10, 11), constrained_layout=True)
    for axis, (name, (truth, w, periods, shown)) in zip(
        axes, streams(Path(sys.argv[1])).items(), strict=True
    ):
        policy = tg.WEvent(epsilon="0.1", window=w)
        uniform = tg.open(Uniform(policy, noise="laplace")).push_batch(truth[:, np.newaxis])
        releases = tg.open(Tide(policy, periods=periods, nonnegative=True)).push_batch(truth[:, np.newaxis])
        revised = releases.revised
        time = np.arange(len(truth))
        low, high = releases.interval(0.9)
        axis.plot(time[shown], uniform.values[shown, 0], color="0.8", linewidth=0.8, label="Uniform")
        band = {"color": "tab:blue", "alpha": 0.2, "linewidth": 0}
        axis.fill_between(time[shown], low[shown, 0], high[shown, 0], **band, label="90 % interval")
        axis.plot(
            time[shown], releases.values[shown, 0], color="tab:blue", linewidth=1.2, label="Tide, at once"
        )
        axis.plot(
            time[shown], revised.values[shown, 0], color="tab:orange", linewidth=1.2, label="Tide, smoothed"
        )
        axis.plot(time[shown], truth[shown], color="black", linewidth=0.8, label="truth (not released)")
        fresh = np.flatnonzero(releases.fresh[shown]) + shown.start
        bottom = truth[shown].min() - 0.5 * (truth[shown].max() - truth[shown].min())
        axis.plot(fresh, np.full(len(fresh), bottom), "|", color="tab:red", label="measured")
        errors = [
            np.abs(r.values[:, 0] - truth[: len(r.values)]).mean() for r in (uniform, releases, revised)
        ]
        axis.set_title(
            f"{name}, ε = 0.1: error {errors[0]:.0f} (Uniform), {errors[1]:.0f} at once, {errors[2]:.0f} smoothed"
        )
        spread = truth[shown].max() - truth[shown].min()
        axis.set_ylim(bottom, truth[shown].max() + 0.5 * spread)
        axis.set_xlabel("step")
    axes[0].legend(ncols=6, fontsize=8, loc="upper left")
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / "tide_streams.png", dpi=110)


if __name__ == "__main__":
    main()
