"""Figure 10: error in three months when changes up to α megawatts are hidden."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import (
    ALPHAS,
    MONTHS,
    REGIONS,
    REGIONS_DATA,
    SOUND,
    errors,
    least_error,
    mechanisms,
    month,
)
from tidegate.repro.optstream.pictures import draw_bars


def _settings(small: bool) -> list[dict[str, Any]]:
    months, regions, runs = (["February"], REGIONS[:1], 3) if small else (list(MONTHS), REGIONS, 30)
    return [
        {"month": name, "alpha": alpha, "regions": list(regions), "runs": runs}
        for name in months
        for alpha in ALPHAS
    ]


def _measure(setting: dict[str, Any]) -> list[Row]:
    labels = {"month": setting["month"], "alpha": setting["alpha"]}
    rows: list[Row] = []
    for region in setting["regions"]:
        chosen = mechanisms("1", setting["alpha"], region)
        rows += errors(chosen, month(region, MONTHS[setting["month"]]), setting["runs"], **labels)
    means = pl.DataFrame(rows).group_by([*labels, "mechanism", "run"], maintain_order=True)
    return means.agg(pl.col("error").mean()).to_dicts()


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 10",
    claim="OptStream has less error than Laplace and DFT in all months, for α = 10, 50 and 100 at ε = 1.",
    data=REGIONS_DATA,
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 2.0,
    judge=lambda frame: least_error(frame, ["month", "alpha"]),
    draw=lambda frame, figure: draw_bars(frame, figure, "alpha", ALPHAS, ("month", list(MONTHS)), "α"),
    general=SOUND,
    notes="Ten samples or coefficients up to α = 50 and five at α = 100. Errors are means over the regions; 30 runs.",
)
