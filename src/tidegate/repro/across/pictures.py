"""The picture of the benchmark: the best mechanism for every stream and setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tidegate.repro.across.scores import AT_ONCE, LATER
from tidegate.repro.across.verdict import best_of, over_uniform

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "Uniform": "#d1d5db",
    "Sample": "#9fb8ad",
    "Tide": "#5aa9c8",
    "PeGaSus": "#edae49",
    "BackwardSmoothing": "#c9b79c",
    "OptStream": "#e07a6b",
    "Fourier": "#b79ad3",
    "BudgetAbsorption": "#8cc084",
    "BudgetDistribution": "#b8d977",
    "Fast": "#e6a8d7",
    "RescueDP": "#7aa2e3",
    "HierarchicalPeGaSus": "#f3d27a",
    "HierarchicalOptStream": "#f0b3a8",
}
OTHERS = ("#9ca3af", "#d8a48f", "#a3b18a", "#cdb4db")  # for mechanisms that have no colour yet


def draw(frame: pl.DataFrame, figure: Figure) -> None:
    """Two panels, at once and with a delay: colour says which mechanism is best, the number its error over Uniform's."""
    frame = over_uniform(frame)
    streams = frame["stream"].unique(maintain_order=True).sort().to_list()
    settings = frame.select("epsilon", "w").unique().sort("epsilon", "w").rows()
    panels = (
        ("at once", best_of(frame.filter(pl.col("statistic") == AT_ONCE))),
        ("values may come later", best_of(frame.filter(pl.col("statistic").is_in([AT_ONCE, LATER])))),
    )
    winners = (
        pl.concat([best for _, best in panels])["mechanism"].value_counts(sort=True)["mechanism"].to_list()
    )
    spare = iter(OTHERS * len(winners))
    colours = {name: COLOURS.get(name) or next(spare) for name in winners}
    figure.set_size_inches(max(7.0, 0.78 * len(settings) + 3), 0.27 * len(streams) + 2.4)
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (title, best) in zip(grid, panels, strict=True):
        _panel(axes, best, streams, settings, colours)
        axes.set_title(title, fontsize=9.5)
    handles = [
        grid[0].plot([], [], "s", markersize=9, color=colours[name], label=name)[0] for name in winners
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=8.5)


def _panel(
    axes: Axes,
    best: pl.DataFrame,
    streams: list[str],
    settings: list[tuple[float, int]],
    colours: dict[str, str],
) -> None:
    from matplotlib.colors import to_rgb

    image = np.ones((len(streams), len(settings), 3))
    for row in best.rows(named=True):
        place = streams.index(row["stream"]), settings.index((row["epsilon"], row["w"]))
        image[place] = to_rgb(colours[row["mechanism"]])
        text = (
            "1"
            if row["ratio"] >= 0.995
            else f"{row['ratio']:.2f}".removeprefix("0")
            if row["ratio"] >= 0.01
            else "<.01"
        )
        axes.text(place[1], place[0], text, ha="center", va="center", fontsize=7, color="#111827")
    axes.imshow(image, aspect="auto")
    axes.set_yticks(range(len(streams)), streams, fontsize=7.5)
    groups = [
        [place for place, (e, _) in enumerate(settings) if e == epsilon]
        for epsilon in sorted({e for e, _ in settings})
    ]
    middles = {group[len(group) // 2] for group in groups}
    labels = [f"{w}\nε = {e:g}" if place in middles else str(w) for place, (e, w) in enumerate(settings)]
    axes.set_xticks(range(len(settings)), labels, fontsize=7.5)
    axes.set_xlabel("w; numbers: error of the best over that of Uniform", fontsize=8.5)
    for column in range(1, len(settings)):
        if settings[column][0] != settings[column - 1][0]:
            axes.axvline(column - 0.5, color="#111827", linewidth=1.2)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
