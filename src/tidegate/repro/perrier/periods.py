"""What Figures 12 and 13 share: distributions of trip times by hour or by day of the week, on real trips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import short
from tidegate.repro.data import located
from tidegate.repro.experiment import Judgement, Outcome, Row
from tidegate.repro.perrier.common import P_MAX, distribution, tail_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = (
    "The paper's trips are not public, and generated ones would show what was put in: air times of flights out of "
    "New York (CC0) and bike trips (Citi Bike data licence), by the time of their start."
)
FILES = {
    "flights": ("flight_durations_2013.parquet", "sched_dep_local", "air_time_min", 1),
    "bike trips": ("citibike_trips.parquet", "start_ts", "tripduration_s", 60),
}
LEAST = 6000  # observations of a period: 30 beyond its 0.005-quantile
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def settings(small: bool, period: str) -> list[dict[str, Any]]:
    """Both streams."""
    return [{"stream": name, "period": period, "points": 40 if small else 200} for name in FILES]


def measure(setting: dict[str, Any]) -> list[Row]:
    """For each hour or day: its distribution, and how its tail compares with an exponential one."""
    file, start, column, divisor = FILES[setting["stream"]]
    frame = pl.read_parquet(located(file), columns=[start, column]).drop_nulls()
    moment = pl.col(start).dt.hour() if setting["period"] == "hour" else pl.col(start).dt.weekday()
    frame = frame.select(
        when=moment.cast(pl.Int64),
        value=(pl.col(column).cast(pl.Int64) // divisor).clip(0, 1440),
    )
    rows: list[Row] = []
    points = np.geomspace(1, 1440, setting["points"])
    for key, group in frame.group_by("when"):
        if group.height < LEAST:
            continue
        values = group["value"].to_numpy()
        labels = {"stream": setting["stream"], "when": int(str(key[0]))}
        rows.append({**labels, "count": len(values), **tail_of(values)._asdict()})
        rows += [
            {**labels, "minutes": float(x), "beyond": float(1 - y)}
            for x, y in zip(points, distribution(values, points), strict=True)
        ]
    return rows


def judge(frame: pl.DataFrame) -> Judgement:
    """Whether tails are light in every period, and how far their quantiles are apart."""
    words, light, near = [], [], []
    for key, group in frame.filter(pl.col("worst").is_not_null()).group_by("stream", maintain_order=True):
        heavy = int((group["at_least"] > 1).sum())
        quantiles = group["quantile"].to_numpy()
        light.append(heavy == 0)
        near.append(quantiles.max() / quantiles.min() < 2)
        words.append(
            f"{key[0]}: the tail is heavier than the exponential in {heavy} of {group.height} periods, and the "
            f"{P_MAX}-quantile lies between {short(quantiles.min())} and {short(quantiles.max())} minutes"
        )
    good = [*light, *near]
    outcome = Outcome.HOLDS if all(good) else Outcome.PARTLY if any(good) else Outcome.FAILS
    return Judgement(outcome, "By stream: " + "; ".join(words) + ".")


def draw(frame: pl.DataFrame, figure: Figure, period: str) -> None:
    """Shares above, one line a period, one panel a stream."""
    import matplotlib

    figure.set_size_inches(10, 4.4)
    curves = frame.filter(pl.col("beyond") > 0)
    names = curves["stream"].unique(maintain_order=True).to_list()
    colours = matplotlib.colormaps["turbo" if period == "hour" else "viridis"]
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for key, group in curves.filter(pl.col("stream") == name).group_by("when", maintain_order=True):
            when, line = int(str(key[0])), group.sort("minutes")
            share = (when + 1) / 25 if period == "hour" else when / 7.5
            label = f"{when} h" if period == "hour" else DAYS[when - 1]
            axes.plot(line["minutes"], line["beyond"], color=colours(share), linewidth=1.1, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("minutes")
        axes.set_ylabel("share of trips above")
        axes.legend(frameon=False, fontsize=6.5, ncols=2, loc="lower left")
        tidy(axes)


NOTES = (
    "Shares above on logarithmic axes show the tail, which the paper's densities do not. Periods with fewer than "
    "6,000 trips are left out. “Similar” is judged as 0.005-quantiles within a factor of two."
)
