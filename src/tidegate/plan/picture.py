"""The picture of a plan: how the error of each mechanism's best choice changes with ε and with w."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.plan.predict import Plan, number, percent, settings_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6e8f", "#d1495b", "#edae49", "#2e7d4f", "#7b5ea7", "#8c6d4f")
QUIET = "#b8c0c9"
NAMED = 6  # as many curves as can be distinguished


def draw_plan(plan: Plan, file: Path) -> None:
    """Draw error against ε (left) and against w (right, where the policy has one); the best few are named."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [("ε", plan.by_epsilon)] + ([("w (steps)", plan.by_window)] if plan.by_window else [])
    figure = Figure(figsize=(5.6 * len(panels), 4.4), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    ranked = list(dict.fromkeys(prediction.label for prediction in plan.predictions))[:NAMED]
    for axes, (label, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, label, curves, ranked)
    best = plan.best()
    figure.suptitle(
        f"Expected error at {settings_of(plan.policy)}: {best.name} is off by {number(best.absolute)} "
        f"({percent(best.relative)} of {plan.part_of})",
        fontsize=11,
    )
    figure.savefig(file)


def _draw(axes: Axes, label: str, curves: dict[str, list[tuple[float, float]]], named: list[str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for name, points in curves.items():
        x, y = zip(*points, strict=True)
        if name in named:
            colour = COLOURS[named.index(name)]
            axes.plot(x, y, color=colour, linewidth=2, marker="o", markersize=3.5, label=name)
        else:
            axes.plot(x, y, color=QUIET, linewidth=1, zorder=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.set_ylabel("mean absolute error")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(which="major", color="#eef1f4")
    axes.legend(frameon=False, fontsize=8)
