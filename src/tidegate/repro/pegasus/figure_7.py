"""Figure 7: finding stretches of low signal."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tidegate.mechanisms import PeGaSus, SlidingWindowTree, Uniform
from tidegate.policy import Event
from tidegate.queries import WindowSum
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.pegasus.common import EPSILONS, MADE_UP, stream
from tidegate.repro.pegasus.monitors import differences, draw, rows_of, said, spans

SETTINGS = ((16, 50), (16, 100), (64, 200), (64, 500))


def _settings(small: bool) -> list[dict[str, Any]]:
    runs, steps = (2, 5000) if small else (20, None)
    return [{"epsilon": epsilon, "runs": runs, "steps": steps} for epsilon in EPSILONS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    counts, policy = stream("High_5", setting["steps"]), Event(epsilon=setting["epsilon"])
    sums = np.concatenate([[0], np.cumsum(counts[:, 0])])
    rows: list[Row] = []
    for run in range(setting["runs"]):
        laplace = Uniform(policy, noise="laplace").start().push_batch(counts)
        grouped = PeGaSus(policy).start().push_batch(counts)
        for window in sorted({window for window, _ in SETTINGS}):
            tree = SlidingWindowTree(policy, window=window, estimator="plain").start().push_batch(counts)
            answers = {
                "SW_w": tree.values,
                "PGS": WindowSum(1, window).push_batch(grouped),
                "LM, summed": WindowSum(1, window, "released").push_batch(laplace),
            }
            truth = sums[window:] - sums[:-window]
            for threshold in (delta for w, delta in SETTINGS if w == window):
                for name, answer in answers.items():
                    rows += rows_of(
                        -answer[window - 1 :, 0],
                        truth < threshold,
                        run,
                        epsilon=setting["epsilon"],
                        setting=f"w = {window}, δ = {threshold}",
                        mechanism=name,
                    )
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    table = differences(frame, "PGS", "SW_w")
    ahead = int((table["low"] > 0).sum())
    better = table["one"] > table["other"]
    outcome = Outcome.HOLDS if better.all() else Outcome.PARTLY if better.any() else Outcome.FAILS
    plain = differences(frame, "PGS", "LM, summed")
    return Judgement(
        outcome,
        f"PeGaSus is ahead in {int(better.sum())} of {table.height} settings, in {ahead} beyond its interval. "
        f"{said(table, 'PGS', 'SW_w')}. The paper does not compare with summed Laplace counts: PeGaSus is "
        f"ahead of them in {int((plain['low'] > 0).sum())} settings. {spans(plain, 'PGS', 'LM, summed')}.",
    )


EXPERIMENT = Experiment(
    paper="pegasus",
    name="Figure 7",
    claim="For finding stretches of low signal PeGaSus is better than the binary trees SW_w for all ε, windows and "
    "thresholds.",
    data=MADE_UP + " The busy stream, High_5.",
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 2.5,
    judge=_judge,
    draw=draw,
    notes="Windows and thresholds of the panels are ours. Every threshold is tried, not only those from −4,000 to "
    "4,000. Curves are those of one run, areas are means.",
)
