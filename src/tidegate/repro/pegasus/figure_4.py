"""Figure 4: the three ways to smooth within a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tidegate.mechanisms import PeGaSus
from tidegate.policy import Event
from tidegate.repro.comparison import legend_below
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.metrics import mean_absolute_error
from tidegate.repro.pegasus.common import (
    EPSILONS,
    MADE_UP,
    REAL,
    SINGLE,
    bars,
    compared,
    counted,
    real_names,
    stream,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHERS = {"MS": "median", "AS": "average", "JSS": "james-stein"}


def _settings(small: bool) -> list[dict[str, Any]]:
    names = [*SINGLE, *real_names()]
    runs, steps = (2, 4000) if small else (20, None)
    return [{"stream": n, "epsilon": e, "runs": runs, "steps": steps} for n in names for e in EPSILONS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    truth, policy = stream(setting["stream"], setting["steps"]), Event(epsilon=setting["epsilon"])
    rows: list[Row] = []
    for name, smoother in SMOOTHERS.items():
        mechanism = PeGaSus(policy, smoother=smoother)
        for run in range(setting["runs"]):
            error = mean_absolute_error(mechanism.start().push_batch(truth).values, truth)
            rows.append(
                {
                    "stream": setting["stream"],
                    "epsilon": setting["epsilon"],
                    "mechanism": name,
                    "run": run,
                    "error": error,
                }
            )
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    by, rivals = ["stream", "epsilon"], ["AS", "JSS"]
    made_up = compared(frame.filter(pl.col("stream").is_in(list(SINGLE))), "MS", rivals, by)
    words = f"On the generated streams: {counted(made_up, 'MS')}."
    real = frame.filter(~pl.col("stream").is_in(list(SINGLE)))
    everywhere = made_up
    if real.height:
        table = compared(real, "MS", rivals, by)
        everywhere = pl.concat([made_up, table])
        words += f" On the real streams: {counted(table, 'MS')}."
    wins = everywhere["ratio"] < 1
    outcome = Outcome.HOLDS if wins.all() else Outcome.PARTLY if wins.any() else Outcome.FAILS
    return Judgement(outcome, words)


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    figure.set_size_inches(11, 4.2)
    frame = frame.sort(pl.col("mechanism").map_elements(list(SMOOTHERS).index, return_dtype=pl.Int64))
    places = [n for n in (*SINGLE, "people in", "WiFi room", "web requests") if n in set(frame["stream"])]
    both = figure.subplots(1, 2, sharey=True)
    for axes, epsilon in zip(both, EPSILONS, strict=True):
        bars(
            axes, frame.filter(pl.col("epsilon") == epsilon), "stream", places, "error", "mean absolute error"
        )
        axes.set_title(f"ε = {epsilon}", fontsize=10)
    both[1].set_ylabel("")
    legend_below(figure, both[0], 3)


EXPERIMENT = Experiment(
    paper="pegasus",
    name="Figure 4",
    claim="All three smoothers are good, and the median smoother is better than the average and the James–Stein "
    "smoother on all streams and for both ε.",
    data=MADE_UP + REAL,
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
)
