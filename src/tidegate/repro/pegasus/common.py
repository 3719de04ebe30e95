"""Streams, mechanisms, comparisons and pictures of the PeGaSus paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.datasets.shapes import SHAPES, shape
from tidegate.repro.comparison import COLOURS, logarithmic, ratio_with_interval
from tidegate.repro.data import is_here, located, people, room
from tidegate.repro.streams import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MADE_UP = "Generated with the lengths and totals of the paper's Table 1, whose WiFi traces are not public."
REAL = (
    " Beside them, where their files are at hand, real streams: people entering a building (UCI CalIt2, CC BY), "
    "WiFi clients of a room, and requests a minute to a web site (World Cup 98 trace, Internet Traffic Archive)."
)
SINGLE = ("Low_5", "Med_5", "High_5")
EPSILONS = ("0.1", "0.01")
PATIENT = (
    30  # the other threshold factor that is shown: chosen on the generated streams, not on the real ones
)
Counts = npt.NDArray[np.int64]

_REAL: dict[str, tuple[str, Callable[[Path], Counts] | None]] = {
    "people in": ("calit2_people_30min.csv.gz", people),
    "WiFi room": ("wifi_rooms_5min.csv.gz", room("B-004")),
    "web requests": ("worldcup98_requests_per_minute.parquet", None),
}


@lru_cache(maxsize=4)
def stream(name: str, steps: int | None = None) -> Counts:
    """A stream (T × 1) by its name, or its busiest part of so many steps."""
    if name in SHAPES:
        counts = shape(name)
    else:
        file, read = _REAL[name]
        counts = load("web requests") if read is None else read(located(file))
    if steps is None or steps >= len(counts):
        return counts
    sums = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    first = int(np.argmax(sums[steps:] - sums[:-steps]))
    return np.ascontiguousarray(counts[first : first + steps])


def real_names() -> list[str]:
    """The real streams whose files are at hand."""
    return [name for name, (file, _) in _REAL.items() if is_here(file)]


def compared(
    frame: pl.DataFrame, one: str, others: Iterable[str], by: Sequence[str], value: str = "error"
) -> pl.DataFrame:
    """For every setting and rival: the ratio of mean errors of `one` over it with its interval, and who is ahead."""
    rows: list[dict[str, Any]] = []
    for key, group in frame.group_by(list(by), maintain_order=True):
        runs = {
            str(name[0]): part[value].drop_nulls().to_numpy() for name, part in group.group_by("mechanism")
        }
        for other in others:
            if one not in runs or other not in runs:
                continue
            ratio, low, high = ratio_with_interval(runs[one], runs[other])
            ahead = "yes" if high < 1 else "no" if low > 1 else "open"
            rows.append(
                {
                    **dict(zip(by, key, strict=True)),
                    "rival": other,
                    "ratio": ratio,
                    "low": low,
                    "high": high,
                    "ahead": ahead,
                }
            )
    return pl.DataFrame(rows)


def counted(table: pl.DataFrame, one: str) -> str:
    """In words: against each rival, in how many settings `one` is ahead, and the span of ratios with intervals."""
    parts = []
    for key, group in table.group_by("rival", maintain_order=True):
        wins = int((group["ahead"] == "yes").sum())
        least, most = group.sort("ratio").row(0, named=True), group.sort("ratio").row(-1, named=True)
        ends = [f"{row['ratio']:.3g} ({row['low']:.3g} to {row['high']:.3g})" for row in (least, most)]
        span = ends[0] if group.height == 1 else f"{ends[0]} at best and {ends[1]} at worst"
        parts.append(f"{one}/{key[0]} below 1 in {wins} of {group.height} settings, {span}")
    return "; ".join(parts)


def bars(axes: Axes, frame: pl.DataFrame, group: str, groups: Sequence[str], value: str, label: str) -> None:
    """Bars of means, one cluster a group, one colour a mechanism."""
    names = frame["mechanism"].unique(maintain_order=True).to_list()
    means = {
        (row[0], row[1]): row[2]
        for row in frame.group_by([group, "mechanism"]).agg(pl.col(value).mean()).rows()
    }
    width = 0.84 / len(names)
    for number, name in enumerate(names):
        heights = [means.get((place, name), np.nan) for place in groups]
        axes.bar(
            np.arange(len(groups)) + (number - (len(names) - 1) / 2) * width,
            heights,
            width,
            color=COLOURS[number % len(COLOURS)],
            label=name,
        )
    logarithmic(axes)
    axes.set_xticks(np.arange(len(groups)), groups, fontsize=8)
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def curves_by_panel(
    figure: Figure,
    frame: pl.DataFrame,
    panels: Sequence[tuple[str, pl.DataFrame]],
    draw: Callable[[Axes, pl.DataFrame, dict[str, str]], None],
    columns: int,
) -> None:
    """A grid of panels with their titles; mechanisms keep their colours from panel to panel."""
    names = frame["mechanism"].unique(maintain_order=True).to_list()
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    lines = -(-len(panels) // columns)
    grid = figure.subplots(lines, columns, squeeze=False)
    for place, (title, part) in enumerate(panels):
        axes = grid[place // columns][place % columns]
        draw(axes, part, colours)
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for place in range(len(panels), lines * columns):
        grid[place // columns][place % columns].set_visible(False)
