"""Figure 5: sums over sliding windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.mechanisms import PeGaSus, SlidingWindowTree, Uniform
from tidegate.policy import Event
from tidegate.queries import WindowSum
from tidegate.repro.comparison import legend_below
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.metrics import mean_absolute_error
from tidegate.repro.pegasus.common import (
    EPSILONS,
    MADE_UP,
    PATIENT,
    REAL,
    SINGLE,
    compared,
    counted,
    curves_by_panel,
    real_names,
    stream,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHER = f"PGS_WWS, factor {PATIENT}"
NAMES = ("LM", "SW_w", "PGS_MS", "PGS_WWS", OTHER)
BY = ["stream", "epsilon", "window"]


def _settings(small: bool) -> list[dict[str, Any]]:
    names = ["Med_5"] if small else [*SINGLE, *(n for n in real_names() if n == "people in")]
    powers, runs, steps = ((2, 9), 2, 2000) if small else (range(1, 13), 20, None)
    return [
        {"stream": n, "epsilon": e, "powers": list(powers), "runs": runs, "steps": steps}
        for n in names
        for e in EPSILONS
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    counts, policy = stream(setting["stream"], setting["steps"]), Event(epsilon=setting["epsilon"])
    sums = np.concatenate([[[0]], np.cumsum(counts, axis=0)])
    ends = np.arange(1, len(counts) + 1)
    rows: list[Row] = []
    for run in range(setting["runs"]):
        laplace = Uniform(policy, noise="laplace").start().push_batch(counts)
        printed = PeGaSus(policy).start().push_batch(counts)
        patient = PeGaSus(policy, threshold_factor=PATIENT).start().push_batch(counts)
        for power in setting["powers"]:
            window = 2**power
            truth = sums[ends] - sums[np.maximum(ends - window, 0)]
            tree = SlidingWindowTree(policy, window=window, estimator="plain")
            answers = {
                "LM": WindowSum(1, window, "released").push_batch(laplace),
                "SW_w": tree.start().push_batch(counts).values,
                "PGS_MS": WindowSum(1, window, "released").push_batch(printed),
                "PGS_WWS": WindowSum(1, window).push_batch(printed),
                OTHER: WindowSum(1, window).push_batch(patient),
            }
            rows += [
                {
                    "stream": setting["stream"],
                    "epsilon": setting["epsilon"],
                    "window": window,
                    "mechanism": name,
                    "run": run,
                    "error": mean_absolute_error(answer, truth),
                }
                for name, answer in answers.items()
            ]
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    short, long = frame.filter(pl.col("window") <= 256), frame.filter(pl.col("window") > 256)
    smoother = compared(frame, "PGS_WWS", ["PGS_MS"], BY)
    tree = compared(short, "PGS_WWS", ["SW_w"], BY)
    beyond = compared(long, "PGS_WWS", ["SW_w"], BY)
    laplace = compared(frame, "LM", ["SW_w", "PGS_WWS"], BY)
    patient = compared(short, OTHER, ["SW_w", "LM"], BY)
    parts = [
        ("the window smoother is better than the median smoother", (smoother["ahead"] != "no").all()),
        ("PGS_WWS beats SW_w up to 256 steps", (tree["ahead"] != "no").all()),
        ("the Laplace mechanism has the most error", (laplace["ahead"] == "no").all()),
    ]
    outcome = (
        Outcome.HOLDS
        if all(true for _, true in parts)
        else Outcome.PARTLY
        if any(true for _, true in parts)
        else Outcome.FAILS
    )
    said = "; ".join(f"{words}: {'yes' if true else 'no'}" for words, true in parts)
    return Judgement(
        outcome,
        f"{said[0].upper()}{said[1:]}. All windows: {counted(smoother, 'PGS_WWS')}; {counted(laplace, 'LM')}. "
        f"Windows up to 256: {counted(tree, 'PGS_WWS')}; {counted(patient, OTHER)}. "
        f"Longer windows: {counted(beyond, 'PGS_WWS')}.",
    )


def _panel(axes: Axes, part: pl.DataFrame, colours: dict[str, str]) -> None:
    for name in NAMES:
        means = (
            part.filter(pl.col("mechanism") == name)
            .group_by("window")
            .agg(pl.col("error").mean())
            .sort("window")
        )
        axes.plot(
            means["window"],
            means["error"],
            marker="o",
            markersize=3,
            linewidth=1.2,
            color=colours[name],
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("window (steps)")
    axes.set_ylabel("mean absolute error")


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    streams = [n for n in (*SINGLE, "people in") if n in set(frame["stream"])]
    figure.set_size_inches(3.4 * len(streams), 6.2)
    panels = [
        (f"{name}, ε = {epsilon}", frame.filter((pl.col("stream") == name) & (pl.col("epsilon") == epsilon)))
        for epsilon in EPSILONS
        for name in streams
    ]
    curves_by_panel(figure, frame, panels, _panel, len(streams))
    legend_below(figure, figure.axes[0], 5)


EXPERIMENT = Experiment(
    paper="pegasus",
    name="Figure 5",
    claim="Window sums: the Laplace mechanism has excessive error, the window smoother (PGS_WWS) is a little better "
    "than the median smoother, and it beats the binary trees SW_w for windows of up to 256 steps.",
    data=MADE_UP
    + REAL.replace(
        ", WiFi clients of a room, and requests a minute to a web site (World Cup 98 trace, "
        "Internet Traffic Archive)",
        "",
    ).replace("real streams", "a real one"),
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 12.0,
    judge=_judge,
    draw=_draw,
    notes="Summed Laplace counts have the standard deviation √(2w)/ε whatever the data, which is below that of SW_w, "
    "whose nodes have noise of ⌊log₂ w⌋ + 1 levels, for windows of up to about 512 steps.",
)
