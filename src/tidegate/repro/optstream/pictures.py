"""Pictures of the OptStream figures: released streams in a grid, and bars of errors by month."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, logarithmic, short
from tidegate.repro.metrics import interval_of_mean
from tidegate.repro.optstream.common import ORDER, W

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY = "#b8c0ca"


def colour_of(name: str, order: Sequence[str] = ORDER) -> str:
    """Every mechanism keeps its colour in all figures; real data have none of theirs."""
    if name == "real data":
        return GREY
    return COLOURS[list(ORDER if name in ORDER else order).index(name) % len(COLOURS)]


def draw_grid(
    frame: pl.DataFrame, figure: Figure, label: str, values: Sequence[Any], names: Sequence[str], sign: str
) -> None:
    """Released streams over the real one: a row of panels for each value of a label, a column a mechanism."""
    present = [value for value in values if value in set(frame[label].to_list())]
    figure.set_size_inches(11, 1.0 + (3.0 if len(present) == 1 else 1.75 * len(present)))
    grid = figure.subplots(len(present), len(names), sharex=True, sharey=True, squeeze=False)
    real = frame.filter((pl.col("mechanism") == "real") & (pl.col(label) == present[0]))
    top = 1.45 * max(real["value"].to_list()) / 1000
    for row, value in zip(grid, present, strict=True):
        for axes, name in zip(row, names, strict=True):
            here = frame.filter((pl.col(label) == value) & (pl.col("mechanism") == name))
            curve = here.drop_nulls("value").sort("step")
            errors = here.drop_nulls("error")["error"].to_numpy()
            axes.plot(1 + real["step"] / W, real["value"] / 1000, color=GREY, linewidth=2.2)
            axes.plot(1 + curve["step"] / W, curve["value"] / 1000, color=COLOURS[1], linewidth=0.9)
            axes.set_ylim(0, top)
            axes.set_title(f"{name}: {short(float(errors.mean()))} MW", fontsize=8.5)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
        row[0].set_ylabel(f"{sign} = {value}\nload, GW", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("day of January 2016", fontsize=8.5)
    key = "grey: real; red: released; numbers: mean absolute error over the whole month"
    figure.supxlabel(key, fontsize=8.5)


def draw_bars(
    frame: pl.DataFrame,
    figure: Figure,
    x: str,
    values: Sequence[Any],
    panels: tuple[str, Sequence[Any]],
    sign: str,
    names: Sequence[str] = ORDER,
    lines: int = 1,
) -> None:
    """Errors with intervals over runs: a panel for each value of one label, clusters of bars by another."""
    label, places = panels
    shown = [place for place in places if place in set(frame[label].to_list())]
    across = -(-len(shown) // lines)
    figure.set_size_inches(11, 1.1 + 3.1 * lines)
    grid = figure.subplots(lines, across, sharey="row", squeeze=False)
    present = [value for value in values if value in set(frame[x].to_list())]
    found = [name for name in names if name in set(frame["mechanism"].to_list())]
    width = 0.84 / len(found)
    for number, place in enumerate(shown):
        axes = grid[number // across][number % across]
        for at, name in enumerate(found):
            part = frame.filter((pl.col(label) == place) & (pl.col("mechanism") == name)).drop_nulls("error")
            centres, heights, halves = [], [], []
            for cluster, value in enumerate(present):
                errors = part.filter(pl.col(x) == value)["error"].to_numpy()
                if len(errors):
                    low, high = interval_of_mean(errors)
                    centres.append(cluster + (at - (len(found) - 1) / 2) * width)
                    heights.append((low + high) / 2)
                    halves.append(min((high - low) / 2, 0.99 * heights[-1]))
            style = {"elinewidth": 0.8, "ecolor": "#222222"}
            axes.bar(
                centres, heights, width, yerr=halves, color=colour_of(name, names), label=name, error_kw=style
            )
        logarithmic(axes)
        axes.set_xticks(np.arange(len(present)), [f"{sign} = {value}" for value in present], fontsize=9)
        axes.set_title(str(place), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.grid(True, color="#e5e7eb", linewidth=0.6)
        axes.set_axisbelow(True)
    for row in grid:
        row[0].set_ylabel("mean absolute error, MW")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(found) if len(found) <= 7 else -(-len(found) // 2),
        frameon=False,
        fontsize=8,
    )
