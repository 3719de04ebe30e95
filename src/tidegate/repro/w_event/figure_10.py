"""Figure 10: error against the number of groups of columns."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Mechanism
from tidegate.policy import WEvent
from tidegate.repro.comparison import draw_curves, errors_of, in_words
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.w_event.common import ROME, rome_stream

W = 120


def _settings(small: bool) -> list[dict[str, Any]]:
    columns, runs, counts = (400, 1, (1, 5)) if small else (10_000, 2, (1, 5, 20, 50, 150))
    return [{"groups": count, "columns": columns, "runs": runs} for count in counts]


def _measure(setting: dict[str, Any]) -> list[Row]:
    columns, groups = setting["columns"], setting["groups"]
    policy = WEvent(epsilon="1", w=W)
    chosen: dict[str, Mechanism] = {}
    for name, kind in (("BD", BudgetDistribution), ("BA", BudgetAbsorption)):
        chosen[f"{name}, one account (sound)"] = kind(policy, columns=columns, groups=groups)
        chosen[f"{name}, independent (printed)"] = kind(
            policy, columns=columns, groups=groups, calibration="paper"
        )
        if groups == 1:
            chosen[f"{name}, independent (printed)"] = kind(policy, columns=columns)
    return errors_of(chosen, rome_stream(columns), setting["runs"], groups=groups)


def _judge(frame: pl.DataFrame) -> Judgement:
    words, gains = [], {}
    for name in frame["mechanism"].unique().sort():
        means = (
            frame.filter(pl.col("mechanism") == name)
            .group_by("groups")
            .agg(pl.col("error").mean())
            .sort("groups")
        )
        one = means.filter(pl.col("groups") == 1)["error"][0]
        best = means.sort("error").row(0, named=True)
        gains[name] = 1 - best["error"] / one
        words.append(f"{name}: best with {best['groups']} groups, {gains[name]:.0%} below one group")
    sound = [gain for name, gain in gains.items() if "sound" in name]
    printed = [gain for name, gain in gains.items() if "printed" in name]
    if min(sound) > 0.05:
        outcome = Outcome.HOLDS
    elif max(sound) > 0.05:
        outcome = Outcome.PARTLY
    else:
        outcome = Outcome.PRINTED_ONLY if max(printed) > 0.05 else Outcome.FAILS
    return Judgement(outcome, "; ".join(words) + ". " + in_words(frame) + ".")


EXPERIMENT = Experiment(
    paper="w-event",
    name="Figure 10",
    claim="A moderate number of column groups lowers the error, of BD by 10 to 36 % and of BA by 21 to 71 %.",
    data=ROME,
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=lambda frame, figure: draw_curves(
        figure.subplots(), frame, "groups", "error", "mean absolute error"
    ),
    notes="Independent groups lose up to (w/2 + ½)ε when a unit moves between columns; with one account groups cannot "
    "save as much.",
)
