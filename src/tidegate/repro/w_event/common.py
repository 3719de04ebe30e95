"""Mechanisms and pictures of the w-event paper's figures."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Fast, Mechanism, Sample, Uniform
from tidegate.policy import WEvent
from tidegate.repro.comparison import draw_curves, in_words, ratio_of
from tidegate.repro.experiment import Judgement, Outcome
from tidegate.testing.wide_shapes import rome, world_cup_urls

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

ROME = "Generated in the shape of the Rome traffic data (10 days of 10-minute steps), which are not public."
URLS = "Generated in the shape of the World Cup URL counts (88 days), since the per-URL trace is not at hand."
WINDOWS = (40, 80, 120, 160, 200)


def mechanisms(w: int, columns: int) -> dict[str, Mechanism]:
    """The paper's five, with budgets shifted where d > 2w, as the paper fine-tunes BD and BA."""
    policy = WEvent(epsilon="1", w=w)
    shift = columns > 2 * w
    return {
        "Uniform": Uniform(policy, columns=columns),
        "Sample": Sample(policy, columns=columns),
        "FAST_w": Fast(policy, columns=columns, blocks=True),
        "BD": BudgetDistribution(policy, columns=columns, shift=shift),
        "BA": BudgetAbsorption(policy, columns=columns, shift=shift),
    }


@lru_cache(maxsize=2)
def rome_stream(columns: int) -> npt.NDArray[np.int64]:
    """Roads of the generated Rome."""
    return rome(columns=columns)


@lru_cache(maxsize=4)
def url_stream(columns: int, steps_per_day: int) -> npt.NDArray[np.int64]:
    """Counts of the generated World Cup site."""
    return world_cup_urls(steps_per_day=steps_per_day, columns=columns, days=88)


def best_is_absorption(frame: pl.DataFrame, by: str) -> Judgement:
    """Whether BA has the smallest error in every setting, and by how much it beats the plain ones."""
    rivals = {name: ratio_of(frame, "BA", name, [by]) for name in ("Uniform", "Sample", "FAST_w", "BD")}
    wins = {name: sum(ratio < 1 for _, ratio in ratios) for name, ratios in rivals.items()}
    total = len(rivals["Uniform"])
    spans = "; ".join(
        f"BA/{name} {min(r for _, r in ratios):.2f} to {max(r for _, r in ratios):.2f}"
        for name, ratios in rivals.items()
    )
    everywhere = all(count == total for count in wins.values())
    outcome = Outcome.HOLDS if everywhere else Outcome.PARTLY if any(wins.values()) else Outcome.FAILS
    beaten = ", ".join(f"{name} in {count} of {total}" for name, count in wins.items())
    return Judgement(
        outcome, f"BA beats {beaten} settings. Ratios of mean errors: {spans}. {in_words(frame)}."
    )


def draw_two(frame: pl.DataFrame, figure: Figure, x: str) -> None:
    """Absolute and relative error side by side."""
    left, right = figure.subplots(1, 2)
    draw_curves(left, frame, x, "error", "mean absolute error")
    draw_curves(right, frame, x, "relative", "mean relative error")
