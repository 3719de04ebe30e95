"""Streams, mechanisms and judgements of the OptStream paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.mechanisms import Fourier, Mechanism, OptStream, Uniform
from tidegate.mechanisms.optstream.feature_trees import parts_of_day, whole_period
from tidegate.policy import WEvent
from tidegate.repro.comparison import ratio_with_interval, short
from tidegate.repro.data import french_loads_2016, french_loads_2026
from tidegate.repro.experiment import Judgement, Outcome, Row
from tidegate.repro.metrics import interval_of_mean

Counts = npt.NDArray[np.int64]
W = 48  # half hours of a day
FEATURES = (parts_of_day(W), whole_period(W))
THRESHOLD = 1000  # θ of the L1 sampling, as printed
REGION = "ile_de_france"
REGIONS = (REGION, "hauts_de_france", "nouvelle_aquitaine", "provence_alpes_cote_d_azur")
MONTHS = {"February": 2, "June": 6, "October": 10}
EPSILONS = ("1", "0.1", "0.01")
ALPHAS = (10, 50, 100)
SIGNS = {"epsilon": "ε", "alpha": "α"}

LAPLACE, DFT = "Laplace", "DFT"
EQUAL, ADAPTIVE = "OptStream ES", "OptStream LS"
EQUAL_PRINTED, ADAPTIVE_PRINTED = "OptStream ES, printed", "OptStream LS, printed"
CHOSEN = "OptStream, chosen"
ORDER = (LAPLACE, DFT, EQUAL, ADAPTIVE, EQUAL_PRINTED, ADAPTIVE_PRINTED, CHOSEN)

REGION_DATA = (
    "Load of Île-de-France in 2016 by half hours (RTE éCO2mix, Licence Ouverte 2.0), which stands in for "
    "Auvergne-Rhône-Alpes."
)
REGIONS_DATA = (
    "Load of four of the twelve regions in 2016 by half hours (RTE éCO2mix, Licence Ouverte 2.0): "
    "Île-de-France, Hauts-de-France, Nouvelle-Aquitaine and Provence."
)
SOUND = (
    "Sound noise: sums of features carry w times the printed noise, and adaptive samples pay for windows that straddle "
    "two periods; “printed” has the printed scales and weights and is not private. DFT measures ten coefficients of the "
    "orthonormal transform; the printed DFT is not private by far and is not offered. “chosen” takes the number and the "
    "times of its samples from the same region's load of April 2026, as a public profile. Values below 0 are cut off. "
    "A claim about all settings counts as holding in part from a third of the comparisons on, a bound set after the runs."
)


def samples_for(alpha: int) -> int:
    """k as in the paper's experiments."""
    return 10 if alpha <= 50 else 5


def month(region: str, number: int, days: int | None = None) -> Counts:
    """A region's load in a month of 2016 (steps × 1)."""
    frame = french_loads_2016().filter(pl.col("month") == number)
    values = frame[region].cast(pl.Int64).to_numpy()[:, np.newaxis]
    return np.ascontiguousarray(values if days is None else values[: days * W])


@lru_cache(maxsize=64)
def chosen(region: str, epsilon: str, alpha: int) -> OptStream:
    """OptStream with the samples that are best for the region's load in April 2026."""
    frame = french_loads_2026().filter(pl.col("month") == 4)
    profile = frame[region].cast(pl.Float64).to_numpy()[:, np.newaxis]
    policy = WEvent(epsilon=epsilon, w=W, max_change=alpha)
    return OptStream.from_profile(policy, profile, candidates=((), FEATURES), nonnegative=True)


def mechanisms(
    epsilon: str = "1", alpha: int = 1, region: str = REGION, names: Sequence[str] = ORDER
) -> dict[str, Mechanism]:
    """The paper's mechanisms, its OptStream in both calibrations, and one with chosen samples."""
    policy, k = WEvent(epsilon=epsilon, w=W, max_change=alpha), samples_for(alpha)
    # loads are not negative
    equal: dict[str, Any] = {"samples": k, "features": FEATURES, "nonnegative": True}
    adaptive: dict[str, Any] = {**equal, "adaptive": True, "threshold": THRESHOLD}
    printed: dict[str, Any] = {"weights": "size", "calibration": "paper"}
    makers: dict[str, Any] = {
        LAPLACE: lambda: Uniform(policy, noise="laplace"),
        DFT: lambda: Fourier(policy, coefficients=k, nonnegative=True),
        EQUAL: lambda: OptStream(policy, **equal),
        ADAPTIVE: lambda: OptStream(policy, **adaptive),
        EQUAL_PRINTED: lambda: OptStream(policy, **equal, **printed),
        ADAPTIVE_PRINTED: lambda: OptStream(policy, **adaptive, **printed),
        CHOSEN: lambda: chosen(region, epsilon, alpha),
    }
    return {name: makers[name]() for name in names}


def released(mechanism: Mechanism, truth: Counts) -> npt.NDArray[np.float64]:
    """One release of whole periods, final values, cut off at 0."""
    return np.maximum(mechanism.start().push_batch(truth).final.values, 0.0)


def errors(chosen: Mapping[str, Mechanism], truth: Counts, runs: int, **labels: Any) -> list[Row]:
    """One row for each mechanism and run: its mean absolute error."""
    return [
        {
            **labels,
            "mechanism": name,
            "run": run,
            "error": float(np.abs(released(each, truth) - truth).mean()),
        }
        for name, each in chosen.items()
        for run in range(runs)
    ]


def curves(chosen: Mapping[str, Mechanism], truth: Counts, runs: int, days: int, **labels: Any) -> list[Row]:
    """The errors of runs, and of the first run the released values of its first days, step by step."""
    rows: list[Row] = [
        {**labels, "mechanism": "real", "step": step, "value": float(value)}
        for step, value in enumerate(truth[: days * W, 0])
    ]
    for name, each in chosen.items():
        for run in range(runs):
            values = released(each, truth)
            error = float(np.abs(values - truth).mean())
            rows.append({**labels, "mechanism": name, "run": run, "error": error})
            if run == 0:
                shown = values[: days * W, 0]
                rows += [
                    {**labels, "mechanism": name, "step": step, "value": float(value)}
                    for step, value in enumerate(shown)
                ]
    return rows


def duels(frame: pl.DataFrame, ones: Sequence[str], others: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
    """Every one against every other in every setting: ratio of mean errors, its interval, and whether it is below 1."""
    rows: list[Row] = []
    for key, group in frame.drop_nulls("error").group_by(list(by), maintain_order=True):
        runs = {str(name[0]): part["error"].to_numpy() for name, part in group.group_by("mechanism")}
        for one, other in ((one, other) for one in ones for other in others if {one, other} <= runs.keys()):
            ratio, low, high = ratio_with_interval(runs[one], runs[other])
            labels = {"one": one, "other": other, "at": f"{SIGNS.get(by[-1], by[-1])} = {key[-1]}"}
            rows.append({**labels, "ratio": ratio, "low": low, "high": high, "wins": high < 1})
    return pl.DataFrame(rows)


def told(table: pl.DataFrame) -> str:
    """In words: how often each wins against each rival, and its best and its worst ratio with their intervals."""
    parts = []
    for key, group in table.group_by(["one", "other"], maintain_order=True):
        ranked = group.sort("ratio")
        ends = [
            f"{row['ratio']:.2g} ({row['low']:.2g} to {row['high']:.2g})"
            for row in (ranked.row(0, named=True), ranked.row(-1, named=True))
        ]
        span = ends[0] if group.height == 1 else f"{ends[0]} at best, {ends[1]} at worst"
        wins = int(group["wins"].sum())
        where = ""
        if 0 < wins < group.height:
            counts = group.group_by("at", maintain_order=True).agg(pl.col("wins").sum())
            where = " (" + ", ".join(f"{at}: {number}" for at, number in counts.rows()) + ")"
        parts.append(f"{key[0]} / {key[1]} is below 1 in {wins} of {group.height}{where}, {span}")
    return "; ".join(parts)


def in_part(table: pl.DataFrame) -> Outcome:
    """A claim about all settings that fails in some: in part from a third of the comparisons on."""
    return Outcome.PARTLY if 3 * int(table["wins"].sum()) >= table.height else Outcome.FAILS


def least_error(
    frame: pl.DataFrame,
    by: Sequence[str],
    *,
    sound: Sequence[str] = (EQUAL, ADAPTIVE),
    printed: Sequence[str] = (EQUAL_PRINTED, ADAPTIVE_PRINTED),
    rivals: Sequence[str] = (LAPLACE, DFT),
    beside: Sequence[str] = (CHOSEN,),
    beside_title: str = "Samples chosen on a public profile: ",
) -> Judgement:
    """Whether all sound ones beat all rivals in every setting with the whole interval, or only the printed ones do."""
    tables = [duels(frame, ones, rivals, by) for ones in (sound, printed, beside)]
    wins = [bool(table.height and table["wins"].all()) for table in tables]
    if wins[0]:
        outcome = Outcome.HOLDS
    elif wins[1]:
        outcome = Outcome.PRINTED_ONLY
    else:
        outcome = in_part(tables[0])
    titles = ("Ratios of mean errors: ", "Printed calibration: ", beside_title)
    words = [title + told(table) + "." for title, table in zip(titles, tables, strict=True) if table.height]
    return Judgement(outcome, " ".join([*words, means(frame, by)]))


def means(frame: pl.DataFrame, by: Sequence[str]) -> str:
    """Mean absolute errors at the middle value of the last label, over all other labels, with intervals over runs."""
    keys = [by[-1], "mechanism", "run"]
    runs = frame.drop_nulls("error").group_by(keys, maintain_order=True).agg(pl.col("error").mean())
    values = runs[by[-1]].unique().sort().to_list()
    middle = values[len(values) // 2]
    numbers = []
    for name, part in runs.filter(pl.col(by[-1]) == middle).group_by("mechanism", maintain_order=True):
        low, high = interval_of_mean(part["error"].to_numpy())
        numbers.append(f"{name[0]} {short((low + high) / 2)} ± {short((high - low) / 2)}")
    return f"Mean absolute errors in MW at {SIGNS.get(by[-1], by[-1])} = {middle}: {', '.join(numbers)}."
