"""What Figures 6 and 7 share: ROC curves of several runs, areas under them, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.repro.experiment import Row
from tidegate.repro.metrics import area_under, interval_of_mean, roc
from tidegate.repro.pegasus.common import EPSILONS, curves_by_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = np.linspace(0.0, 1.0, 101)  # false positive rates at which a curve is kept


def rows_of(
    scores: npt.NDArray[np.float64], happened: npt.NDArray[np.bool_], run: int, **labels: Any
) -> list[Row]:
    """The area under the ROC curve of one run as a row; of the first run the curve as well."""
    curve = roc(scores, happened)
    rows: list[Row] = [{**labels, "run": run, "area": area_under(curve)}]
    if run == 0:
        heights = np.interp(POINTS, *curve)
        rows += [
            {**labels, "false positives": float(x), "true positives": float(y)}
            for x, y in zip(POINTS, heights, strict=True)
        ]
    return rows


def differences(frame: pl.DataFrame, one: str, other: str) -> pl.DataFrame:
    """In every setting: the areas, and their difference (one − other) with its interval."""
    areas = frame.filter(pl.col("area").is_not_null())
    rows: list[Row] = []
    for key, group in areas.group_by(["epsilon", "setting"], maintain_order=True):
        first, second = (
            group.filter(pl.col("mechanism") == name).sort("run")["area"].to_numpy() for name in (one, other)
        )
        low, high = interval_of_mean(first - second)
        rows.append(
            {
                "epsilon": key[0],
                "setting": key[1],
                "one": float(first.mean()),
                "other": float(second.mean()),
                "low": low,
                "high": high,
            }
        )
    return pl.DataFrame(rows)


def said(table: pl.DataFrame, one: str, other: str) -> str:
    """Areas and differences in words."""
    parts = "; ".join(
        f"{row['setting']}, ε = {row['epsilon']}: {row['one']:.3f} against {row['other']:.3f} "
        f"({row['low']:+.3f} to {row['high']:+.3f})"
        for row in table.rows(named=True)
    )
    return f"Areas of {one} against {other}, with the interval of the difference: {parts}"


def spans(table: pl.DataFrame, one: str, other: str) -> str:
    """The span of differences for each ε in words."""
    parts = []
    for epsilon in EPSILONS:
        part = table.filter(pl.col("epsilon") == epsilon)
        gaps = (part["one"] - part["other"]).to_numpy()
        parts.append(f"{gaps.min():+.3f} to {gaps.max():+.3f} at ε = {epsilon}")
    return f"Area of {one} minus that of {other}: {', '.join(parts)}"


def draw(frame: pl.DataFrame, figure: Figure) -> None:
    """One panel a setting: the curves of the first run, mean areas in the legend."""
    figure.set_size_inches(11, 5.8)
    places = frame["setting"].unique(maintain_order=True).sort().to_list()
    panels = [
        (
            f"{place}, ε = {epsilon}",
            frame.filter((pl.col("setting") == place) & (pl.col("epsilon") == epsilon)),
        )
        for epsilon in EPSILONS
        for place in places
    ]
    curves_by_panel(figure, frame, panels, _panel, len(places))


def _panel(axes: Axes, part: pl.DataFrame, colours: dict[str, str]) -> None:
    for key, group in part.group_by("mechanism", maintain_order=True):
        name = str(key[0])
        curve = group.filter(pl.col("false positives").is_not_null()).sort("false positives")
        area = float(group["area"].drop_nulls().to_numpy().mean())
        axes.plot(
            curve["false positives"],
            curve["true positives"],
            linewidth=1.3,
            color=colours[name],
            label=f"{name} ({area:.3f})",
        )
    axes.plot([0, 1], [0, 1], color="#9ca3af", linewidth=0.7, linestyle=":")
    axes.set_xlabel("false positive rate", fontsize=8)
    axes.set_ylabel("true positive rate", fontsize=8)
    axes.legend(frameon=False, fontsize=7, loc="lower right", title="area under the curve", title_fontsize=7)
