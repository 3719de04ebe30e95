"""What Tables I and II share: optimised parameters and improvement factors against the time lag."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.datasets.shapes import spendings, trip_minutes
from tidegate.mechanisms.clipping.clip_parameters import optimise
from tidegate.policy import Event
from tidegate.repro.comparison import COLOURS
from tidegate.repro.experiment import Judgement, Outcome, Row
from tidegate.repro.metrics import interval_of_mean
from tidegate.repro.perrier.common import BETA, DELTA, STREAMS, names_here, tidy, values_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAKE = {"train trips": trip_minutes, "supermarket": spendings}


def settings(small: bool, generated: str, real: str, lags: Mapping[int, float]) -> list[dict[str, Any]]:
    """Every lag; of the generated stream five samples, of the real one its beginning."""
    if small:
        return [{"stream": generated, "lag": lag, "samples": 1} for lag in list(lags)[1:4:2]]
    found = [{"stream": generated, "lag": lag, "samples": 5} for lag in lags]
    found += [
        {"stream": name, "lag": lag, "samples": 1}
        for name in names_here(real)
        for lag in lags
        if lag < STREAMS[name].count
    ]
    return found


def measure(setting: dict[str, Any]) -> list[Row]:
    """One row a sample: the parameters that minimise the bound of the error, and the improvement factor."""
    name, lag = setting["stream"], setting["lag"]
    stream = STREAMS[name]
    policy = Event(epsilon=1, delta=Fraction(DELTA), max_change=stream.bound)
    rows: list[Row] = []
    for run in range(setting["samples"]):
        sample = MAKE[name](lag, 201 + run) if name in MAKE else values_of(name)[:lag]
        found = optimise(sample, policy, horizon=stream.count, lag=lag, beta=BETA)
        rows.append(
            {
                "stream": name,
                "lag": lag,
                "run": run,
                "improvement": found.improvement,
                "r": float(found.multiplier) if found.gains else 1.0,
                "λ": found.shrink,
                "p": found.exceeding,
                "ε₁/ε": found.share,
                **{f"β {part}": chance / BETA for part, chance in found.chances.items()},
            }
        )
    return rows


def judge(frame: pl.DataFrame, generated: str, printed: Mapping[int, float]) -> Judgement:
    """Whether the factor is 1 at 40,000, grows with m, and reaches the printed ones."""
    words, means = [], {}
    for key, group in frame.group_by(["stream", "lag"], maintain_order=True):
        name, lag = str(key[0]), int(str(key[1]))
        low, high = interval_of_mean(group["improvement"].to_numpy())
        mean = {column: float(group[column].to_numpy().mean()) for column in ("r", "λ", "p", "ε₁/ε")}
        numbers = f"{(low + high) / 2:.2f}" + (f" ({low:.2f} to {high:.2f})" if group.height > 1 else "")
        says = f", printed {printed[lag]:g}" if name == generated else ""
        words.append(
            f"{name}, m = {lag:,}: {numbers}{says} with r = {mean['r']:.2f}, λ = {mean['λ']:.2f}, p = {mean['p']:.4f}, "
            f"ε₁/ε = {mean['ε₁/ε']:.2f}"
        )
        if name == generated:
            means[lag] = (low + high) / 2
    lags = sorted(means)
    grows = all(means[one] <= means[two] * 1.02 for one, two in pairwise(lags))
    reaches = all(means[lag] >= 0.95 * printed[lag] for lag in lags)
    nothing = means.get(40_000, 1.0) < 1.05
    checks = {"grows with m": grows, "is at least the printed one": reaches, "is 1 at m = 40,000": nothing}
    outcome = (
        Outcome.HOLDS if all(checks.values()) else Outcome.PARTLY if any(checks.values()) else Outcome.FAILS
    )
    said = ", ".join(f"{what}: {'yes' if true else 'no'}" for what, true in checks.items())
    return Judgement(outcome, f"The factor {said}. Factors by stream and time lag: " + "; ".join(words) + ".")


def draw(frame: pl.DataFrame, figure: Figure, printed: Mapping[int, float]) -> None:
    """The factor and two of the parameters against the lag."""
    left, right = figure.subplots(1, 2)
    left.plot(
        list(printed), list(printed.values()), marker="s", color="#111827", linestyle="--", label="printed"
    )
    for number, (key, group) in enumerate(frame.group_by("stream", maintain_order=True)):
        means = group.drop("stream").group_by("lag").mean().sort("lag")
        left.plot(means["lag"], means["improvement"], marker="o", color=COLOURS[number], label=str(key[0]))
        for column, line in (("r", "-"), ("λ", "--"), ("ε₁/ε", ":")):
            right.plot(
                means["lag"],
                means[column],
                linestyle=line,
                marker=".",
                color=COLOURS[number],
                label=f"{key[0]}: {column}",
            )
    ticks = np.array(sorted({*printed, *frame["lag"].to_list()}))
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick // 1000}k" for tick in ticks], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.set_xlabel("time lag m")
        tidy(axes)
    left.set_ylabel("improvement factor of the bound")
    left.set_yscale("log")
    left.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    left.set_yticks([], minor=True)
    left.set_ylim(0.9, 1.3 * max(float(frame["improvement"].to_numpy().max()), *printed.values()))
    right.set_ylabel("optimised parameters")
    right.set_ylim(0, None)
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


NOTES = (
    "Sound constants of the smooth sensitivity, and the error of the first sum added to the bound. The tails of the "
    "paper's data are not published; a smooth generated tail has smaller gaps between its largest values, which is "
    "what the smooth sensitivity sees at small m. A simplex search takes the place of a truncated Newton method, "
    "since the bound has steps. The real stream is optimised on its own beginning, as the paper does, "
    "which is for comparison only."
)
