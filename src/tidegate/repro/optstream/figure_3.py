"""Figure 3: error in three months, for three budgets."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    EPSILONS,
    EQUAL,
    EQUAL_PRINTED,
    MONTHS,
    REGIONS,
    REGIONS_DATA,
    SOUND,
    duels,
    errors,
    least_error,
    mechanisms,
    month,
    told,
)
from tidegate.repro.optstream.pictures import draw_bars


def _settings(small: bool) -> list[dict[str, Any]]:
    months, regions, runs = (["February"], REGIONS[:1], 3) if small else (list(MONTHS), REGIONS, 30)
    return [
        {"month": name, "epsilon": epsilon, "regions": list(regions), "runs": runs}
        for name in months
        for epsilon in EPSILONS
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    labels = {"month": setting["month"], "epsilon": setting["epsilon"]}
    rows: list[Row] = []
    for region in setting["regions"]:
        chosen = mechanisms(setting["epsilon"], region=region)
        rows += errors(chosen, month(region, MONTHS[setting["month"]]), setting["runs"], **labels)
    means = pl.DataFrame(rows).group_by([*labels, "mechanism", "run"], maintain_order=True)
    return means.agg(pl.col("error").mean()).to_dicts()


def _judge(frame: pl.DataFrame) -> Judgement:
    by = ["month", "epsilon"]
    found = least_error(frame, by)
    sound = duels(frame, [ADAPTIVE], [EQUAL], by)
    printed = duels(frame, [ADAPTIVE_PRINTED], [EQUAL_PRINTED], by)
    outcome = found.outcome
    if outcome is Outcome.HOLDS and not sound["wins"].all():
        outcome = Outcome.PARTLY
    if outcome is Outcome.PRINTED_ONLY and not printed["wins"].all():
        outcome = Outcome.PARTLY
    return Judgement(outcome, f"{found.words} L1 sampling: {told(sound)}; {told(printed)}.")


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 3",
    claim="OptStream has less error than Laplace and DFT in all months and for all ε, with L1 sampling even less than "
    "with equally spaced samples.",
    data=REGIONS_DATA,
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 2.0,
    judge=_judge,
    draw=lambda frame, figure: draw_bars(frame, figure, "epsilon", EPSILONS, ("month", list(MONTHS)), "ε"),
    general=SOUND,
    notes="Errors are means over the regions; 30 runs. With ε = 1 Laplace noise has a mean of 48 MW, while lines through "
    "ten samples a day miss the load by 82 (June) to 119 MW (October) before any noise. The tests of the L1 sampling "
    "have noise of scale 11,366 MW (printed: 9,120) against a threshold of 1,000 MW at ε = 1, and samples fall early in "
    "the day: half of them within the first 10 of 48 steps, against 34 when noise is negligible (ε = 1000).",
)
