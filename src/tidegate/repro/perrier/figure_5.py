"""Figure 5: the tail against that of an exponential distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, short
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.perrier.common import (
    MADE_UP,
    P_MAX,
    STREAMS,
    beside,
    distribution,
    names_here,
    tail_of,
    tidy,
    times,
    values_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 2_000_000


def _settings(small: bool) -> list[dict[str, Any]]:
    return [
        {"stream": name, "count": 50_000 if small else min(COUNT, STREAMS[name].count)}
        for name in names_here()
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    name = setting["stream"]
    values = values_of(name, setting["count"])
    tail = tail_of(values)
    points = np.unique(np.linspace(0, min(3.5 * tail.quantile, float(values.max())), 200).round())
    above = 1 - distribution(values, points)
    rows: list[Row] = [
        {"stream": name, "over x_p": float(x / tail.quantile), "beyond": float(y)}
        for x, y in zip(points, above, strict=True)
    ]
    rows.append({"stream": name, **tail._asdict()})
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    tails = frame.filter(pl.col("worst").is_not_null()).rows(named=True)
    heavy = [row["stream"] for row in tails if row["at_least"] > 1]
    words = "; ".join(
        f"{row['stream']}: x_p = {short(row['quantile'])}, {times(row['worst'])} times the exponential's tail "
        f"(at least {times(max(0.0, row['at_least']))}) at {short(row['where'])}"
        for row in tails
    )
    outcome = Outcome.HOLDS if not heavy else Outcome.PARTLY if len(heavy) < len(tails) else Outcome.FAILS
    which = f"Heavier than the exponential: {', '.join(heavy)}." if heavy else "No tail is heavier."
    return Judgement(outcome, f"{which} With p = {P_MAX}: {words}.")


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    axes = figure.subplots()
    curves = frame.filter(pl.col("beyond") > 0)
    for number, (key, group) in enumerate(curves.group_by("stream", maintain_order=True)):
        group = group.sort("over x_p")
        axes.plot(group["over x_p"], group["beyond"], color=COLOURS[number], label=str(key[0]))
    line = np.linspace(0, 3.5, 50)
    axes.plot(
        line, P_MAX**line, color="#111827", linestyle="--", linewidth=1, label="exponential of the same x_p"
    )
    axes.axvline(1, color="#9ca3af", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(1e-7, 1.2)
    axes.set_xlabel(f"value / x_p (p = {P_MAX})")
    axes.set_ylabel("share of values above")
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)


EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 5",
    claim="Beyond its 0.005-quantile a distribution lies above the exponential of the same quantile: its tail is light.",
    data=MADE_UP + beside(),
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="Shares above are shown in place of shares below, so that a light tail lies under the dashed line. A tail is "
    "judged as far as 30 observations lie beyond, less three standard errors.",
)
