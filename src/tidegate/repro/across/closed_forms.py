"""Errors that the literature gives in closed form, against runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.mechanisms import BackwardSmoothing, BinaryTree, Factorization, Mechanism, Uniform
from tidegate.policy import Event, WEvent
from tidegate.repro.comparison import COLOURS
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row, Table
from tidegate.repro.metrics import interval_of_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 500  # of a stream of zeros: as many independent errors a run
NEAR = 0.02


@dataclass(frozen=True)
class Form:
    """A root mean square error in closed form, and the mechanism and step it is about."""

    words: str
    value: float
    make: Callable[[int], Mechanism]
    step: int


def _square_root(n: int) -> float:
    """Σ_(k<n) f_k² with f_k = C(2k, k)/4^k: both norms of the square-root factorization of n running sums."""
    total, f = 0.0, 1.0
    for k in range(n):
        total += f * f
        f *= (2 * k + 1) / (2 * k + 2)
    return total


FORMS = {
    "Laplace, w-event": Form(
        "√2·w/ε (Dwork et al. 2006, w times)",
        math.sqrt(2) * 24 / 0.5,
        lambda columns: Uniform(WEvent(epsilon="1/2", w=24), columns=columns, noise="laplace"),
        1,
    ),
    "mean of the last 5": Form(
        "√2·(1/ε)/√5",
        math.sqrt(2) / 0.1 / math.sqrt(5),
        lambda columns: BackwardSmoothing(Event(epsilon="1/10"), columns=columns, back=4),
        10,
    ),
    "binary tree": Form(
        "√(2·ones(t))·levels/ε (Chan, Shi, Song 2011; sound number of levels)",
        math.sqrt(2 * 10) * 10,
        lambda columns: BinaryTree(Event(epsilon="1"), columns=columns, horizon=1023, estimator="plain"),
        1023,
    ),
    "binary tree, bottom up": Form(
        "√(2·2^h/(2^(h+1) − 1))·levels/ε for a finished tree of height h (Honaker 2015)",
        math.sqrt(2 * 512 / 1023) * 10,
        lambda columns: BinaryTree(Event(epsilon="1"), columns=columns, horizon=1023, estimator="honaker"),
        512,
    ),
    "square-root factorization": Form(
        "Σ f_k²/√(2ρ) (Henzinger, Upadhyay, Upadhyay 2023)",
        _square_root(1024),
        lambda columns: Factorization(Event(rho="1/2"), columns=columns, horizon=1024, method="square-root"),
        1024,
    ),
}


def _settings(small: bool) -> list[dict[str, Any]]:
    return [{"form": name, "runs": 3 if small else 20 if "root" in name else 100} for name in FORMS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    form = FORMS[setting["form"]]
    mechanism, zeros = form.make(COLUMNS), np.zeros((form.step, COLUMNS), dtype=np.int64)
    rows: list[Row] = []
    for run in range(setting["runs"]):
        errors = mechanism.start().push_batch(zeros).values[-1]
        rows.append({"form": setting["form"], "run": run, "error": float((errors**2).mean()) / form.value**2})
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    rows, near = [], []
    for name, form in FORMS.items():
        low, high = interval_of_mean(frame.filter(pl.col("form") == name)["error"].to_numpy())
        ends = [math.sqrt(max(end, 0.0)) for end in (low, high)]
        ratio = math.sqrt((low + high) / 2)
        near.append(abs(ratio - 1) < NEAR or ends[0] <= 1 <= ends[1])
        rows.append((name, form.words, f"{form.value:.4g}", f"{ratio:.4f} ({ends[0]:.4f} to {ends[1]:.4f})"))
    exact = Uniform(WEvent(epsilon="1/10", delta=Fraction(17, 2 * 10**9), w=672)).scale
    rows.append(
        (
            "672 Laplace releases, δ = 8.5·10⁻⁹",
            "printed bound of Swellfish; exact composition here",
            "2092",
            f"{exact:.0f}",
        )
    )
    outcome = Outcome.HOLDS if all(near) else Outcome.PARTLY if any(near) else Outcome.FAILS
    table = Table(
        "Root mean square errors; the last column is what runs give over the closed form, and in the last row the scale "
        "of the noise for ε = 0.1.",
        ("mechanism", "closed form", "value", "runs over it"),
        tuple(rows),
    )
    words = (
        f"{sum(near)} of {len(near)} closed forms are met within {NEAR:.0%} or within the interval over runs."
    )
    return Judgement(outcome, words, (table,))


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    axes = figure.subplots()
    for place, name in enumerate(FORMS):
        low, high = np.sqrt(interval_of_mean(frame.filter(pl.col("form") == name)["error"].to_numpy()))
        axes.errorbar((low + high) / 2, place, xerr=(high - low) / 2, fmt="o", color=COLOURS[0], capsize=3)
    axes.axvline(1, color="#111827", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(FORMS)), list(FORMS))
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xlabel("root mean square error of runs over the closed form, 95 % intervals")
    axes.spines[["top", "right"]].set_visible(False)


EXPERIMENT = Experiment(
    paper="across",
    name="Table, closed forms",
    claim="For Laplace noise, binary trees and the square-root factorization the literature gives errors in closed form.",
    data="Streams of zeros.",
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="Noise here is discrete on a grid, which changes these errors by less than one part in a hundred.",
)
