"""The benchmark across papers on somebody's own stream: tables for people, for LaTeX and for programs."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.bench.measure import (
    AT_ONCE,
    LATER,
    ORACLE_RUNS,
    STATISTICS,
    SUMS,
    WINDOW_SUMS,
    Matrix,
    Row,
    compared,
    configured,
    planned_on,
    published,
)
from tidegate.config.tuning import rough
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, positive, show
from tidegate.ingest.requirements import Promise
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.w_event.personal import Personal, Requirement
from tidegate.plan.predict import counters, single_values
from tidegate.plan.requirements import strictest, with_requirements
from tidegate.policy import Event, Policy, WEvent
from tidegate.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRICTEST = "strictest"  # the requirement that every unit gets where a mechanism follows none
INSIDE = "INSIDE ONLY: computed from raw data without noise; not to be published."
FIELDS = (
    "epsilon",
    "window",
    "statistic",
    "mechanism",
    "error",
    "half",
    "relative",
    "oracle",
    "regret",
    "runs",
    "seconds",
    "parameters",
    "oracle_parameters",
    "choices",
    "oracle_runs",
    "as_published",
    "max_change",
    "grid",
    "season",
    "level",
    "steps",
    "columns",
    "version",
)
MADE_FOR = {"sums": SUMS, "windows": WINDOW_SUMS}  # the statistics of mechanisms that do not release steps


@dataclass(frozen=True)
class Comparison:
    """Errors of mechanisms on one stream.

    Attributes
    ----------
    rows
        One a mechanism, setting and statistic: ε, window, mean absolute error with half of its 95 % interval, the error
        of the best parameters in hindsight (`oracle`) and the ratio of both.
    public
        Whether the stream may be known, so that its errors may be, too.
    facts
        What all rows have in common: every parameter of the comparison, and the version.
    """

    rows: list[Row] = field(repr=False)
    public: bool
    facts: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> list[tuple[str, int, str]]:
        """Every ε, window and statistic that was looked at, in order."""
        found = dict.fromkeys((row["epsilon"], row["window"], row["statistic"]) for row in self.rows)
        order = {name: place for place, name in enumerate(STATISTICS)}
        policies = list(dict.fromkeys((epsilon, window) for epsilon, window, _ in found))
        return sorted(found, key=lambda setting: (policies.index(setting[:2]), order[setting[2]]))

    def of(self, setting: tuple[str, int, str]) -> list[Row]:
        """The rows of a setting, best first."""
        found = [row for row in self.rows if (row["epsilon"], row["window"], row["statistic"]) == setting]
        return sorted(found, key=lambda row: row["error"])

    def write_csv(self, file: Path) -> None:
        """All rows; the first line says so where the errors are not public."""
        with file.open("w", encoding="utf-8", newline="") as text:
            if not self.public:
                text.write(f"# {INSIDE}\n")
            writer = csv.DictWriter(text, FIELDS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(self.rows)

    def write_latex(self, file: Path) -> None:
        """A table a setting, to be included: mechanisms, errors with intervals, and the oracle's."""
        parts = [] if self.public else [f"% {INSIDE}"]
        parts += [f"% {name} = {value}" for name, value in self.facts.items()]
        for setting in self.settings():
            epsilon, window, statistic = setting
            parts += [
                f"% epsilon = {epsilon}, w = {window}, {statistic}",
                r"\begin{tabular}{lrrr}",
                r"mechanism & error & oracle & relative \\ \hline",
                *(
                    rf"{row['mechanism']} & ${digits(row['error'], 4)} \pm {digits(row['half'], 2)}$ & "
                    rf"${digits(row['oracle'], 4)}$ & "
                    rf"${100 * row['relative']:.1f}\,\%$ \\"
                    for row in self.of(setting)
                ),
                r"\end{tabular}",
                *(f"% {row['mechanism']}: {row['parameters']}" for row in self.of(setting)),
                "",
            ]
        file.write_text("\n".join(parts), encoding="utf-8")

    def draw(self, file: Path) -> None:
        """Errors of all mechanisms as dots with intervals, a panel a setting."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        settings = self.settings()
        statistics = [each for each in STATISTICS if any(each == setting[2] for setting in settings)]
        policies = list(dict.fromkeys((epsilon, window) for epsilon, window, _ in settings))
        longest = max(len(self.of(setting)) for setting in settings)
        shape = (len(policies), len(statistics))
        figure = Figure(figsize=(3.9 * shape[1] + 0.6, shape[0] * (0.22 * longest + 1.0) + 0.7), dpi=110)
        FigureCanvasAgg(figure)
        panels = figure.subplots(*shape, squeeze=False)
        for line, (epsilon, window) in zip(panels, policies, strict=True):
            for panel, statistic in zip(line, statistics, strict=True):
                _draw_setting(panel, self.of((epsilon, window, statistic)), longest)
                panel.set_title(f"ε = {epsilon}, w = {window}, {statistic}", fontsize=9, loc="left")
        marks, words = panels[0, 0].get_legend_handles_labels()
        figure.legend(marks, words, frameon=False, fontsize=8, loc="upper right", ncols=2)
        if not self.public:
            figure.suptitle(INSIDE, fontsize=9, color="#b4552d")
        figure.tight_layout(rect=(0, 0, 1, 0.98))
        figure.savefig(file)


def _draw_setting(panel: Axes, rows: list[Row], longest: int) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    places = [longest - 1 - place for place in range(len(rows))]
    low = [max(row["error"] - row["half"], row["error"] / 4) for row in rows]  # an axis of ratios has no 0
    panel.hlines(places, low, [row["error"] + row["half"] for row in rows], color="#0b6e8f", linewidth=1.5)
    panel.plot([row["error"] for row in rows], places, "o", color="#0b6e8f", markersize=5, label="planned")
    oracle = [row["oracle"] for row in rows]
    panel.plot(oracle, places, "|", color="#b4552d", markersize=10, label="best in hindsight")
    panel.set_ylim(-0.7, longest - 0.3)
    panel.set_yticks(places, [row["mechanism"] for row in rows], fontsize=8)
    panel.tick_params(axis="y", length=0)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", labelsize=8)
    panel.grid(axis="x", color="#dfe3e8", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_xlabel("mean absolute error", fontsize=8)


def digits(value: float, count: int) -> str:
    """A number with so many digits that mean something, and never an exponent, as tables have it.

    Examples
    --------
    >>> digits(3104.353, 4), digits(898.41, 2), digits(0.01234, 2), digits(0.0, 2)
    ('3104', '900', '0.012', '0')
    """
    return np.format_float_positional(float(f"{value:.{count}g}"), trim="-")


def to_units(values: npt.NDArray[np.float64], grid: Fraction) -> Matrix:
    """Values in units of the grid; refuses what is no number."""
    if not np.isfinite(values).all():
        raise InvalidInput("a value of the stream is missing or no number; fill it, or leave its column out.")
    if values.min(initial=0.0) < 0:
        raise InvalidInput(
            "a value of the stream is below 0, where all releases are cut for the comparison; add a public constant to "
            "its column, or leave it out."
        )
    units = np.rint(values * float(1 / grid))
    if np.abs(units).max(initial=0.0) > 2.0**50:
        raise InvalidInput("a value of the stream is too large for the grid; choose a coarser one.")
    return units.astype(np.int64)


def compare(
    values: npt.NDArray[np.float64],
    kinds: Mapping[str, type[Mechanism]],
    *,
    epsilons: Sequence[str],
    windows: Sequence[int],
    max_change: ExactLike = 1,
    grid: ExactLike = 1,
    season: int | None = None,
    level: float | None = None,
    runs: int = 20,
    public: bool = False,
    as_published: bool = False,
    requirements: Callable[[Promise], Sequence[Requirement]] | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> Comparison:
    """Run mechanisms on a stream, each with the parameters of a plan and with the best ones in hindsight.

    Sums are compared where one of the mechanisms is made for them.

    Parameters
    ----------
    values
        Steps × columns.
    kinds
        Mechanisms by name.
    epsilons, windows
        Every pair of them is a w-event policy.
    max_change
        By how much a unit changes a step, in the unit of the values.
    grid
        The resolution of the values.
    season
        Steps of a day, if there are days.
    level
        What a plan knows of the size of a value; by default the order of magnitude of their mean.
    runs
        How often the planned choice runs. Each of the other choices runs up to five times.
    public
        Whether the stream may be known.
    as_published
        Every mechanism with the noise and the defaults of its paper, and nothing chosen for the stream.
    requirements
        What some units ask for, by what all have: then each of these units is a count of the stream. Mechanisms that
        follow requirements are compared with all others, which have the strictest for every unit.
    tell
        Called with a few words at the beginning of each piece of work.
    """
    step = positive("grid", grid)
    truth = to_units(values, step)
    change = positive("max_change", max_change) / step
    if requirements is not None and not step == change == 1:
        raise InvalidParameter(
            "requirements", "given", "absent unless values are counts of units", "drop grid and max_change"
        )
    columns, ticks = truth.shape[1], float(step)
    known = rough(float(np.abs(values).mean())) if level is None else level
    made_up = planned_on(truth, known / ticks, season)
    few = runs if as_published else min(ORACLE_RUNS, runs)
    facts = {
        "as_published": as_published,
        "max_change": show(change * step),
        "grid": show(step),
        "season": season,
        "level": known,
        "runs": runs,
        "oracle_runs": few,
        "steps": len(truth),
        "columns": columns,
        "version": __version__,
    }
    wanted = {
        AT_ONCE,
        LATER,
        *(MADE_FOR[kind.statistic] for kind in kinds.values() if kind.statistic in MADE_FOR),
    }
    rows: list[Row] = []
    for epsilon in epsilons:
        for window in windows:
            policy = WEvent(epsilon=epsilon, window=window, max_change=show(change))
            for name, kind in kinds.items():
                tell(f"{name} at ε = {epsilon}, w = {window}")
                asked = requirements(Promise(positive("epsilon", epsilon), window)) if requirements else ()
                all_units = strictest(policy, asked) if asked else policy
                found: list[Mechanism]
                if asked and issubclass(kind, Personal):
                    found = [with_requirements(kind, policy, columns, asked)]
                elif as_published:
                    found = published(kind, all_units, columns, len(truth))
                else:
                    found = configured(kind, all_units, columns, season, len(truth))
                if not found and kind.statistic == "sums":
                    # a window of one step is event level, under which some counters have their only proof
                    own: Policy = Event(epsilon=epsilon, max_change=show(change)) if window == 1 else policy
                    found = counters(kind, own, columns, len(truth), single=single_values(own, [truth]))
                if asked and not issubclass(kind, Personal):
                    name = f"{name}, {STRICTEST}"
                labels: dict[str, Any] = {"epsilon": epsilon, "window": window, "mechanism": name}
                for row in compared(found, truth, made_up, few, runs, math.inf) if found else ():
                    if row["statistic"] not in wanted:
                        continue
                    scaled = {key: row[key] * ticks for key in ("predicted", "error", "half", "oracle")}
                    chosen = {
                        "parameters": parameters(found[row["chosen"]]),
                        "oracle_parameters": parameters(found[row["best"]]),
                    }
                    rows.append({**facts, **labels, **row, **scaled, **chosen})
    return Comparison(rows, public, facts)


def parameters(mechanism: Mechanism) -> str:
    """Every parameter of a mechanism as it runs, also those that have their default.

    Examples
    --------
    >>> from tidegate.mechanisms import Sample
    >>> parameters(Sample(WEvent(epsilon="1", window=24), noise="laplace"))
    'rounding = refuse, every = 24, noise = laplace'
    """
    described = {
        name: value
        for name, value in mechanism.describe().items()
        if name not in ("mechanism", "policy", "columns", "grid", "hierarchy")
    }
    if hasattr(mechanism, "noise"):
        described.setdefault("noise", "laplace")  # noise of its own at each step is not described
    return ", ".join(f"{name} = {_plain(value)}" for name, value in described.items())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
