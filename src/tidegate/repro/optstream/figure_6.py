"""Figure 6: error of a day's forecasts in three months."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tidegate.repro.experiment import Experiment, Judgement, Row
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    EPSILONS,
    MONTHS,
    REGION_DATA,
    SOUND,
    W,
    least_error,
    mechanisms,
    released,
)
from tidegate.repro.optstream.forecasts import NAMES, REAL, TRAINING, day_ahead, stretch
from tidegate.repro.optstream.pictures import draw_bars

DAYS = (4, 11, 18, 25)  # of a month


def _settings(small: bool) -> list[dict[str, Any]]:
    months, epsilons, days, runs = (
        (["February"], ["0.1"], DAYS[:1], 2) if small else (list(MONTHS), list(EPSILONS), DAYS, 10)
    )
    options = {"days": list(days), "runs": runs, "fast": small}
    return [{"month": name, "epsilon": epsilon, **options} for name in months for epsilon in epsilons]


def _measure(setting: dict[str, Any]) -> list[Row]:
    days = setting["days"]
    truth = stretch(MONTHS[setting["month"]], max(days))
    labels = {"month": setting["month"], "epsilon": setting["epsilon"]}

    def error(values: Any) -> float:
        """The mean over the days."""
        found = []
        for day in days:
            now = (day - 1 + TRAINING) * W
            found.append(np.abs(day_ahead(values, day, setting["fast"]) - truth[now : now + W, 0]).mean())
        return float(np.mean(found))

    rows: list[Row] = [{**labels, "mechanism": REAL, "run": 0, "error": error(truth.astype(float))}]
    for name, mechanism in mechanisms(setting["epsilon"], names=NAMES).items():
        for run in range(setting["runs"]):
            values = released(mechanism, truth)
            rows.append({**labels, "mechanism": name, "run": run, "error": error(values)})
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    found = least_error(frame, ["month", "epsilon"], sound=[ADAPTIVE], printed=[ADAPTIVE_PRINTED])
    averages = frame.group_by("mechanism", maintain_order=True).agg(pl.col("error").mean())
    mean = dict(averages.select("mechanism", "error").rows())
    extra = ", ".join(f"{name} {mean[name] / mean[REAL] - 1:+.0%}" for name in NAMES if name in mean)
    return Judgement(
        found.outcome, f"{found.words} Over all settings, compared with forecasts from real data: {extra}."
    )


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 6",
    claim="Forecasts from OptStream's stream have the least error of all private ones and come nearest to those from "
    "real data, in all months and for all ε.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 10.0,
    judge=_judge,
    draw=lambda frame, figure: draw_bars(
        frame, figure, "epsilon", EPSILONS, ("month", list(MONTHS)), "ε", (*NAMES, REAL)
    ),
    notes="ARMA(1, 1), trained on the four weeks before each day; four days of each month and 10 runs instead of every "
    "day and 30 runs.",
    general=SOUND,
)
