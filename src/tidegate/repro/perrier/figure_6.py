"""Figure 6: a far quantile from a near one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.perrier.common import (
    MADE_UP,
    P_MAX,
    STREAMS,
    beside,
    names_here,
    tidy,
    upper_quantile,
    values_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 2_000_000
NEAR = (0.1, 0.01, 0.005, 0.001)
SEEN = 10  # observations beyond the far quantile


def _settings(small: bool) -> list[dict[str, Any]]:
    return [
        {"stream": name, "count": 50_000 if small else min(COUNT, STREAMS[name].count)}
        for name in names_here()
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    ordered = np.sort(values_of(setting["stream"], setting["count"]))
    rows: list[Row] = []
    for far in np.geomspace(0.1, SEEN / len(ordered), 25):
        labels = {"stream": setting["stream"], "far": float(far), "true": upper_quantile(ordered, far)}
        rows += [
            {
                **labels,
                "near": near,
                "estimate": math.log(far) / math.log(near) * upper_quantile(ordered, near),
            }
            for near in NEAR
            if far <= near * 1.0001
        ]
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    words, good = [], []
    close = frame.filter(pl.col("near") <= P_MAX).with_columns(ratio=pl.col("estimate") / pl.col("true"))
    for key, group in close.group_by("stream", maintain_order=True):
        least, most = group["ratio"].to_numpy().min(), group["ratio"].to_numpy().max()
        good.append(least >= 0.9 and most <= 1.5)
        words.append(f"{key[0]} {least:.2f} to {most:.2f}")
    outcome = Outcome.HOLDS if all(good) else Outcome.PARTLY if any(good) else Outcome.FAILS
    return Judgement(
        outcome,
        f"r·x_p over the true x_(p^r), for p ≤ {P_MAX}: {'; '.join(words)}. Below 1 more is clipped than the "
        "bound expects, far above 1 noise is larger than it need be.",
    )


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    names = frame["stream"].unique(maintain_order=True).to_list()
    figure.set_size_inches(2.5 * len(names) + 0.6, 3.8)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        part = frame.filter(pl.col("stream") == name)
        true = part.unique("far").sort("far")
        axes.plot(true["far"], true["true"], color="#111827", linewidth=1.8, label="true quantile")
        for number, near in enumerate(NEAR):
            line = part.filter(pl.col("near") == near).sort("far")
            axes.plot(
                line["far"], line["estimate"], color=COLOURS[number], linewidth=1, label=f"from p = {near}"
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("p^r")
        axes.set_ylabel(STREAMS[name].unit)
        axes.tick_params(labelsize=7, which="both")
        tidy(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)


EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 6",
    claim="For p ≤ 0.005 a far quantile is about r times a near one: x_(p^r) ≈ r·x_p.",
    data=MADE_UP + beside(),
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="“About” is judged as between 0.9 and 1.5 times, as far as ten observations lie beyond.",
)
