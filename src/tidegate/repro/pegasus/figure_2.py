"""Figure 2: what the busy stream looks like after the Laplace mechanism and after PeGaSus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.mechanisms import PeGaSus, Uniform
from tidegate.policy import Event
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.metrics import mean_absolute_error
from tidegate.repro.pegasus.common import EPSILONS, MADE_UP, PATIENT, compared, counted, stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 8000


def _settings(small: bool) -> list[dict[str, Any]]:
    return [{"epsilon": epsilon, "runs": 2 if small else 20} for epsilon in EPSILONS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    truth, policy = stream("High_5")[:STEPS], Event(epsilon=setting["epsilon"])
    rows: list[Row] = [
        {"epsilon": setting["epsilon"], "mechanism": "real", "step": step, "value": float(count)}
        for step, count in enumerate(truth[:, 0], start=1)
    ]
    mechanisms = {
        "LM": Uniform(policy, noise="laplace"),
        "PeGaSus": PeGaSus(policy),
        f"PeGaSus, factor {PATIENT}": PeGaSus(policy, threshold_factor=PATIENT),
    }
    for name, mechanism in mechanisms.items():
        labels = {"epsilon": setting["epsilon"], "mechanism": name}
        for run in range(setting["runs"]):
            values = np.maximum(mechanism.start().push_batch(truth).values, 0.0)
            rows.append({**labels, "run": run, "error": mean_absolute_error(values, truth)})
            if run == 0:
                rows += [
                    {**labels, "step": step, "value": float(value)}
                    for step, value in enumerate(values[:, 0], 1)
                ]
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    table = compared(frame.filter(pl.col("error").is_not_null()), "PeGaSus", ["LM"], ["epsilon"])
    better = (table["ratio"] < 1).all()
    patient = f"PeGaSus, factor {PATIENT}"
    other = compared(frame.filter(pl.col("error").is_not_null()), patient, ["LM"], ["epsilon"])
    words = f"Mean absolute error of the picture: {counted(table, 'PeGaSus')}. {counted(other, patient)}."
    return Judgement(Outcome.HOLDS if better else Outcome.FAILS, words)


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    figure.set_size_inches(11, 5)
    values = frame.filter(pl.col("value").is_not_null())
    names = ["real", *(name for name in values["mechanism"].unique(maintain_order=True) if name != "real")]
    grid = figure.subplots(len(EPSILONS), len(names), sharex=True, sharey="row")
    for line, epsilon in enumerate(EPSILONS):
        for place, name in enumerate(names):
            part = values.filter((pl.col("epsilon") == epsilon) & (pl.col("mechanism") == name)).sort("step")
            axes = grid[line][place]
            axes.plot(part["step"], part["value"], linewidth=0.4, color="#0b6e8f")
            axes.set_title(name if name == "real" else f"{name}, ε = {epsilon}", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
            if line:
                axes.set_xlabel("step")
            if not place:
                axes.set_ylabel("count")


EXPERIMENT = Experiment(
    paper="pegasus",
    name="Figure 2",
    claim="On the first 8,000 steps of the busy stream PeGaSus looks closer to the real counts than the Laplace "
    "mechanism does, for ε = 0.1 and 0.01.",
    data=MADE_UP,
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="Negative counts are cut at zero, as in the paper. Looking close is judged by the mean absolute error.",
)
