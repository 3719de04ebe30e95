"""Figure 5: one day's forecast from private streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, short
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    REGION_DATA,
    SOUND,
    W,
    least_error,
    mechanisms,
    released,
)
from tidegate.repro.optstream.forecasts import NAMES, REAL, TRAINING, day_ahead, stretch
from tidegate.repro.optstream.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON, DAY, SHOWN = "0.1", 2, 3  # 2 February, after three days of what was released


def _settings(small: bool) -> list[dict[str, Any]]:
    runs, step = (2, 2) if small else (30, 2)
    return [
        {"first": first, "runs": min(step, runs - first), "fast": small} for first in range(0, runs, step)
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    truth = stretch(2, DAY)
    now = (DAY - 1 + TRAINING) * W
    shown = range(now - SHOWN * W, now)
    actual = truth[now : now + W, 0]
    rows: list[Row] = []

    def add(name: str, run: int, values: Any, picture: bool) -> None:
        predicted = day_ahead(values, DAY, setting["fast"])
        error = float(np.abs(predicted - actual).mean())
        labels = {"epsilon": EPSILON, "mechanism": name}
        rows.append({**labels, "run": run, "error": error})
        if picture:
            points = [(step, "released", values[step, 0]) for step in shown]
            points += [(now + ahead, "forecast", value) for ahead, value in enumerate(predicted)]
            rows.extend(
                {**labels, "kind": kind, "step": step - now, "value": float(value)}
                for step, kind, value in points
            )

    if setting["first"] == 0:
        add(REAL, 0, truth.astype(float), picture=True)
        rows.extend(
            {
                "epsilon": EPSILON,
                "mechanism": REAL,
                "kind": "actual",
                "step": step - now,
                "value": float(truth[step, 0]),
            }
            for step in range(now - SHOWN * W, now + W)
        )
    for name, mechanism in mechanisms(EPSILON, names=NAMES).items():
        for run in range(setting["first"], setting["first"] + setting["runs"]):
            add(name, run, released(mechanism, truth[:now]), picture=run == 0)
    return rows


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    figure.set_size_inches(11, 5.2)
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    actual = frame.filter(pl.col("kind") == "actual").sort("step")
    for axes, name in zip(grid.flat, (REAL, *NAMES), strict=True):
        here = frame.filter(pl.col("mechanism") == name)
        axes.plot(actual["step"] / W, actual["value"] / 1000, color=GREY, linewidth=2.2)
        for kind, style, width in (("released", "-", 0.8), ("forecast", "-", 2.0)):
            part = here.filter(pl.col("kind") == kind).sort("step")
            colour = COLOURS[1] if kind == "released" else COLOURS[0]
            axes.plot(part["step"] / W, part["value"] / 1000, style, color=colour, linewidth=width)
        error = float(here.drop_nulls("error")["error"].to_numpy().mean())
        axes.set_title(f"{name}: {short(error)} MW", fontsize=9)
        axes.axvline(0, color="#4b5563", linewidth=0.6, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("days from 2 February 2016, 0:00", fontsize=8.5)
    for row in grid:
        row[0].set_ylabel("load, GW")
    figure.supxlabel(
        "grey: real; red: released; blue: forecast; numbers: mean absolute error of forecasts", fontsize=8.5
    )


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 5",
    claim="At ε = 0.1 the forecast of 2 February from OptStream's stream is better than those from Laplace and DFT.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    judge=lambda frame: least_error(frame, ["epsilon"], sound=[ADAPTIVE], printed=[ADAPTIVE_PRINTED]),
    draw=_draw,
    notes="ARMA(1, 1), trained on the four weeks before; a forecast of ARMA(1, 1) over a whole day is little more than a "
    "return to the mean, whatever it is trained on. 30 runs.",
    general=SOUND,
)
