"""Mechanisms and pictures of the w-event paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.datasets.wide_shapes import rome, world_cup_urls
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Fast, Mechanism, Sample, Uniform
from tidegate.policy import WEvent
from tidegate.repro.comparison import draw_curves, errors_in, legend_below, ratios_of
from tidegate.repro.experiment import Judgement, Outcome, Table

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

ROME = "Generated in the shape of the Rome traffic data (10 days of 10-minute steps), which are not public."
URLS = "Generated in the shape of the World Cup URL counts (88 days), since the per-URL trace is not at hand."
WINDOWS = (40, 80, 120, 160, 200)
NAMES = ("Uniform", "Sample", "FAST_w", "BD", "BA")
RUNS = 5


def mechanisms(w: int, columns: int) -> dict[str, Mechanism]:
    """The paper's five, with budgets shifted where d > 2w, as the paper fine-tunes BD and BA."""
    policy = WEvent(epsilon="1", w=w)
    shift = columns > 2 * w
    return {
        "Uniform": Uniform(policy, columns=columns, noise="laplace"),
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


def judged(
    frame: pl.DataFrame, by: str, sign: str, claimed: Mapping[str, float], ones: Sequence[str] = ("BA",)
) -> Judgement:
    """Whether BA (and BD) beat every rival in every setting with the whole interval, somewhere by the claimed factor."""
    wins, parts, factors = [], [], []
    for one in ones:
        for rival, factor in claimed.items():
            ratios = ratios_of(frame, one, rival, by)
            won = sum(high < 1 for _, _, _, high in ratios)
            wins.append(won == len(ratios))
            best, worst = min(ratios, key=lambda r: r[1]), max(ratios, key=lambda r: r[1])
            factors.append(best[1] <= 1 / factor)
            ends = [
                f"{ratio:.2f} ({low:.2f} to {high:.2f}) at {sign} = {at}"
                for at, ratio, low, high in (best, worst)
            ]
            parts.append(
                f"{one} beats {rival} in {won} of {len(ratios)} settings, {one}/{rival} {ends[0]} to {ends[1]}"
            )
    outcome = Outcome.HOLDS if all(wins) and all(factors) else Outcome.PARTLY if any(wins) else Outcome.FAILS
    table = Table(
        "Mean absolute errors, ± half of the 95 % interval over runs.",
        (sign, *NAMES),
        errors_in(frame, by, NAMES),
    )
    words = "A setting counts as won where the whole interval of the ratio of mean errors is below 1. "
    return Judgement(outcome, f"{words}Ratios at best and at worst: {'; '.join(parts)}.", (table,))


def draw_two(frame: pl.DataFrame, figure: Figure, x: str, label: str) -> None:
    """Absolute and relative error side by side."""
    left, right = figure.subplots(1, 2)
    draw_curves(left, frame, x, "error", "mean absolute error (counts)", label, order=NAMES)
    draw_curves(right, frame, x, "relative", "mean relative error", label, order=NAMES)
    legend_below(figure, left, len(NAMES))
