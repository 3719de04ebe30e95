"""Across the papers: every mechanism of the catalogue on every stream, and errors in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from experiments.comparison import COLOURS, short
from experiments.experiment import Experiment, Judgement, Outcome, Row, Table
from experiments.running import releases_of
from experiments.streams import STREAMS, here, load
from tidegate.bench.measure import (
    AT_ONCE,
    ELSEWHERE,
    LATER,
    ORACLE_RUNS,
    SUMS,
    WINDOW_SUMS,
    compared,
    configured,
    planned_on,
)
from tidegate.bench.metrics import interval_of_mean
from tidegate.mechanisms import BackwardSmoothing, BinaryTree, Factorization, Mechanism, Uniform, catalogue
from tidegate.policy import Event, WEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# pictures -----------------------------------------------------------------------------------------------------

OF_MECHANISM = {
    "Uniform": "#d1d5db",
    "Sample": "#9fb8ad",
    "Tide": "#5aa9c8",
    "PeGaSus": "#edae49",
    "BackwardSmoothing": "#c9b79c",
    "OptStream": "#e07a6b",
    "Fourier": "#b79ad3",
    "BudgetAbsorption": "#8cc084",
    "BudgetDistribution": "#b8d977",
    "Fast": "#e6a8d7",
    "RescueDP": "#7aa2e3",
    "HierarchicalPeGaSus": "#f3d27a",
    "HierarchicalOptStream": "#f0b3a8",
}
OTHERS = ("#9ca3af", "#d8a48f", "#a3b18a", "#cdb4db")  # for mechanisms that have no colour yet


def draw(frame: pl.DataFrame, figure: Figure) -> None:
    """Two panels, at once and with a delay: colour says which mechanism is best, the number its error over Uniform's."""
    frame = over_uniform(frame)
    streams = frame["stream"].unique(maintain_order=True).sort().to_list()
    settings = frame.select("epsilon", "w").unique().sort("epsilon", "w").rows()
    panels = (
        ("at once", best_of(frame.filter(pl.col("statistic") == AT_ONCE))),
        ("values may come later", best_of(frame.filter(pl.col("statistic").is_in([AT_ONCE, LATER])))),
    )
    winners = (
        pl.concat([best for _, best in panels])["mechanism"].value_counts(sort=True)["mechanism"].to_list()
    )
    spare = iter(OTHERS * len(winners))
    colours = {name: OF_MECHANISM.get(name) or next(spare) for name in winners}
    figure.set_size_inches(max(7.0, 0.78 * len(settings) + 3), 0.27 * len(streams) + 2.4)
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (title, best) in zip(grid, panels, strict=True):
        _panel(axes, best, streams, settings, colours)
        axes.set_title(title, fontsize=9.5)
    handles = [
        grid[0].plot([], [], "s", markersize=9, color=colours[name], label=name)[0] for name in winners
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=8.5)


def _panel(
    axes: Axes,
    best: pl.DataFrame,
    streams: list[str],
    settings: list[tuple[float, int]],
    colours: dict[str, str],
) -> None:
    from matplotlib.colors import to_rgb

    image = np.ones((len(streams), len(settings), 3))
    for row in best.rows(named=True):
        place = streams.index(row["stream"]), settings.index((row["epsilon"], row["w"]))
        image[place] = to_rgb(colours[row["mechanism"]])
        text = (
            "1"
            if row["ratio"] >= 0.995
            else f"{row['ratio']:.2f}".removeprefix("0")
            if row["ratio"] >= 0.01
            else "<.01"
        )
        axes.text(place[1], place[0], text, ha="center", va="center", fontsize=7, color="#111827")
    axes.imshow(image, aspect="auto")
    axes.set_yticks(range(len(streams)), streams, fontsize=7.5)
    groups = [
        [place for place, (e, _) in enumerate(settings) if e == epsilon]
        for epsilon in sorted({e for e, _ in settings})
    ]
    middles = {group[len(group) // 2] for group in groups}
    labels = [f"{w}\nε = {e:g}" if place in middles else str(w) for place, (e, w) in enumerate(settings)]
    axes.set_xticks(range(len(settings)), labels, fontsize=7.5)
    axes.set_xlabel("w; numbers: error of the best over that of Uniform", fontsize=8.5)
    for column in range(1, len(settings)):
        if settings[column][0] != settings[column - 1][0]:
            axes.axvline(column - 0.5, color="#111827", linewidth=1.2)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


# what to use when ---------------------------------------------------------------------------------------------

CELL = ["stream", "epsilon", "w"]
LOUDNESS = (
    (0.01, "below 1 %"),
    (0.1, "1 to 10 %"),
    (1.0, "10 to 100 %"),
    (10.0, "1 to 10 times"),
    (np.inf, "above 10 times"),
)
WIDTHS = ((1, "1"), (64, "2 to 64"), (10**9, "65 and more"))


def judge(frame: pl.DataFrame) -> Judgement:
    """Who wins how often, what to use when, and what choosing without the data costs."""
    frame = with_final(over_uniform(frame))
    now, later = (
        frame.filter(pl.col("statistic") == AT_ONCE),
        frame.filter(pl.col("statistic").is_in([AT_ONCE, LATER])),
    )
    streams, settings = now["stream"].n_unique(), now.select(CELL).unique().height
    spread = now.filter(pl.col("error") > 0).select(pl.col("half") / pl.col("error")).to_series()
    chosen = _recommended(now)
    words = [
        f"{streams} streams, {settings} settings, {now['mechanism'].n_unique()} mechanisms that release steps.",
        f"At once, settings won: {_wins(now)}.",
        f"When waiting is allowed: {_wins(later)}.",
        "The choice of a mechanism and its parameters by a plan that has not seen the data costs a median factor "
        f"{_number(chosen, 0.5)} over the best choice with the data, {_number(chosen, 0.9)} in one setting of ten, and "
        f"{_number(chosen, 1.0)} at worst.",
        _against_nothing(now, chosen),
        f"Intervals over runs (95 %) are ± {_percent(spread, 0.5)} of an error in the median and ± "
        f"{_percent(spread, 0.95)} in one of twenty.",
    ]
    tables = (
        _when(now, later),
        _by_mechanism(frame, chosen),
        *(
            _of_sums(frame.filter(pl.col("statistic") == statistic), statistic)
            for statistic in (WINDOW_SUMS, SUMS)
            if (frame["statistic"] == statistic).any()
        ),
    )
    return Judgement(Outcome.MEASURED, " ".join(words), tables)


def over_uniform(frame: pl.DataFrame) -> pl.DataFrame:
    """With the error over Uniform's of the same setting (values that come later: over Uniform's at once)."""
    same = pl.when(pl.col("statistic") == LATER).then(pl.lit(AT_ONCE)).otherwise("statistic").alias("against")
    frame = frame.with_columns(
        same,
        label=pl.when(pl.col("statistic") == LATER)
        .then(pl.col("mechanism") + ", delayed")
        .otherwise("mechanism"),
    )
    plain = frame.filter(pl.col("mechanism") == "Uniform").select(
        *CELL, against="statistic", plain="error", plain_deviation="deviation"
    )
    joined = frame.join(plain, on=[*CELL, "against"], how="left")
    loud = pl.col("w") / pl.col("epsilon") / pl.col("level")
    return joined.with_columns(
        ratio=pl.col("error").clip(1e-9) / pl.col("plain").clip(1e-9),
        variance=(pl.col("deviation") / pl.col("error").clip(1e-9)) ** 2,
        noise=_binned(loud, LOUDNESS),
        width=_binned(pl.col("columns"), WIDTHS),
    )


def with_final(frame: pl.DataFrame) -> pl.DataFrame:
    """Mechanisms that revise their values have delayed ones in every setting: where nothing was revised, the first."""
    later = frame.filter(pl.col("statistic") == LATER)
    missing = (
        frame.filter(
            (pl.col("statistic") == AT_ONCE)
            & pl.col("mechanism").is_in(later["mechanism"].unique().to_list())
        )
        .join(later, on=[*CELL, "mechanism"], how="anti")
        .with_columns(statistic=pl.lit(LATER), label=pl.col("mechanism") + ", delayed")
    )
    return pl.concat([frame, missing])


def best_of(frame: pl.DataFrame) -> pl.DataFrame:
    """The row with the least error in every setting."""
    return frame.sort("error", "label").group_by(CELL, maintain_order=True).first()


def _binned(value: pl.Expr, bins: tuple[tuple[float, str], ...]) -> pl.Expr:
    chosen = pl.lit(bins[-1][1])
    for bound, name in reversed(bins[:-1]):
        chosen = pl.when(value <= bound).then(pl.lit(name)).otherwise(chosen)
    return chosen


def _recommended(now: pl.DataFrame) -> pl.DataFrame:
    """In every setting: the mechanism that a plan expects to be best, its error over the least one of the oracle."""
    least = now.group_by(CELL).agg(least=pl.col("oracle").min())
    expected = now.sort("predicted", "label").group_by(CELL, maintain_order=True).first()
    return expected.join(least, on=CELL).with_columns(cost=pl.col("error") / pl.col("least").clip(1e-9))


def _against_nothing(now: pl.DataFrame, chosen: pl.DataFrame) -> str:
    """How often noise leaves nothing, and where the plan was most wrong."""
    best = best_of(now)
    hopeless = best.filter(pl.col("error") > 0.9 * pl.col("nothing")).height
    worst = chosen.sort("cost").row(-1, named=True)
    return (
        f"The worst is {worst['label']} for {worst['stream']} at ε = {worst['epsilon']:g}, w = {worst['w']}. In "
        f"{hopeless} of the {best.height} settings even the best mechanism has at least 90 % of the error of answering "
        "0 everywhere: no choice of a mechanism helps there, and a small ratio to Uniform only says how bad Uniform is."
    )


def _wins(frame: pl.DataFrame) -> str:
    counts = best_of(frame).group_by("mechanism").len().sort("len", "mechanism", descending=[True, False])
    return ", ".join(f"{name} {count}" for name, count in counts.rows())


def _number(chosen: pl.DataFrame, share: float) -> str:
    return short(max(1.0, float(np.quantile(chosen["cost"].to_numpy(), share))))


def _percent(values: pl.Series, share: float) -> str:
    return f"{np.quantile(values.to_numpy(), share):.1%}"


def geometric(part: pl.DataFrame) -> tuple[float, float]:
    """The geometric mean of the errors over Uniform's, and half its 95 % interval over runs as a share of it."""
    logs = np.log(part["ratio"].to_numpy())
    return float(np.exp(logs.mean())), float(1.96 * np.sqrt(part["variance"].to_numpy().sum()) / len(logs))


def _ranked(part: pl.DataFrame) -> list[tuple[float, float, float, str]]:
    """(geometric mean, half interval, worst, label) of everything that answers all settings of the part, best first."""
    settings = part.select(CELL).unique().height
    found = []
    for key, group in part.group_by("label"):
        if group.height == settings:
            mean, half = geometric(group)
            found.append((mean, half, float(group["ratio"].to_numpy().max()), str(key[0])))
    return sorted(found)


def _when(now: pl.DataFrame, later: pl.DataFrame) -> Table:
    rows = []
    for _, noise in LOUDNESS:
        for _, width in WIDTHS:
            here = [f.filter((pl.col("noise") == noise) & (pl.col("width") == width)) for f in (now, later)]
            if not here[0].height:
                continue
            at_once = _ranked(here[0])
            waiting = [entry for entry in _ranked(here[1]) if "delayed" in entry[3]]
            rows.append(
                (
                    noise,
                    width,
                    str(here[0].select(CELL).unique().height),
                    *(_told(entry) for entry in at_once[:2]),
                    _told(next(entry for entry in at_once if entry[3] == "Sample")),
                    _told(waiting[0]).replace(", delayed", "") if waiting else "–",
                )
            )
    return Table(
        "What to use when. The noise of Uniform (w/ε) against the order of magnitude of a value is public: look up the "
        "row. Numbers are geometric means of the error over Uniform's (± half of the 95 % interval over runs; the worst "
        "setting in brackets), parameters chosen without the data.",
        (
            "w/ε over a value",
            "columns",
            "settings",
            "best at once",
            "second",
            "Sample",
            "best when one can wait",
        ),
        tuple(rows),
    )


def _told(entry: tuple[float, float, float, str]) -> str:
    mean, half, worst, label = entry
    return f"{label} {_digits(mean)} ± {mean * half:.1g} ({_digits(worst)})"


def _digits(number: float) -> str:
    """Two digits without an exponent where it is large."""
    return f"{number:.2g}" if number < 100 else short(number)


def _by_mechanism(frame: pl.DataFrame, chosen: pl.DataFrame) -> Table:
    picks = dict(chosen.group_by("label").len().rows())
    steps = frame.filter(pl.col("statistic").is_in([AT_ONCE, LATER]))
    rows = []
    for key, group in steps.group_by("label"):
        label = str(key[0])
        mean, half = geometric(group)
        ratios, regret = group["ratio"].to_numpy(), group["regret"].to_numpy()
        several = group["choices"].to_numpy() > 1
        rows.append(
            (
                mean,
                (
                    label,
                    str(group.height),
                    f"{_digits(mean)} ± {mean * half:.1g}",
                    f"{_digits(ratios.min())} to {_digits(ratios.max())}",
                    f"{np.median(group['relative'].to_numpy()):.1%}",
                    f"{np.median(regret[several]):.2f}, {regret[several].max():.2g}"
                    if several.any()
                    else "–",
                    str(picks.get(label, 0)),
                ),
            )
        )
    return Table(
        "Every mechanism over all settings. The regret is the error with the planned parameters over that with the best "
        "ones, where there are several to choose from.",
        (
            "mechanism",
            "settings",
            "error over Uniform's, geometric mean",
            "least to most",
            "median relative error",
            "regret, median and worst",
            "settings a plan would use it in",
        ),
        tuple(row for _, row in sorted(rows)),
    )


def _of_sums(part: pl.DataFrame, statistic: str) -> Table:
    rows = []
    for mean, half, worst, label in _ranked(part):
        ratios = part.filter(pl.col("label") == label)["ratio"].to_numpy()
        rows.append(
            (label, f"{_digits(mean)} ± {mean * half:.1g}", f"{_digits(ratios.min())} to {_digits(worst)}")
        )
    title = statistic[0].upper() + statistic[1:]
    return Table(
        f"{title}: mechanisms made for them against the sums of Uniform's and Sample's releases.",
        ("mechanism", "error over Uniform's, geometric mean", "least to most"),
        tuple(rows),
    )


# the benchmark ------------------------------------------------------------------------------------------------

EPSILONS = ("0.01", "0.1", "1")
WINDOWS = (1, 24, 48, 120, 240)
STEPS, CELLS = 10_000, 1_500_000  # of a stream, from its beginning
RUNS = 20
WIDE, WIDE_RUNS = 50_000, (2, 5)  # cells from which a stream has fewer runs


def _settings_benchmark(small: bool) -> list[dict[str, Any]]:
    names = ["unemployment", "load, Provence"] if small else here() or list(STREAMS)
    epsilons, windows = (EPSILONS[1:2], (24,)) if small else (EPSILONS, WINDOWS)
    runs, steps = (2, 600) if small else (RUNS, STEPS)
    return [
        {"stream": name, "w": w, "epsilons": list(epsilons), "runs": runs, "steps": steps}
        for name in names
        for w in windows
    ]


def _measure_benchmark(setting: dict[str, Any]) -> list[Row]:
    stream, whole = STREAMS[setting["stream"]], load(setting["stream"])
    columns = whole.shape[1]
    truth = whole[: min(setting["steps"], CELLS // columns)]
    made_up = planned_on(truth, stream.level, stream.season)
    few, runs = min(ORACLE_RUNS, setting["runs"]), setting["runs"]
    if truth.size > WIDE:
        few, runs = (min(most, setting["runs"]) for most in WIDE_RUNS)
    rows: list[Row] = []
    for epsilon in setting["epsilons"]:
        policy = WEvent(epsilon=epsilon, window=setting["w"])
        labels = {
            "stream": stream.name,
            "columns": columns,
            "level": stream.level,
            "nothing": float(truth.mean()),  # the error of answering 0 everywhere
            "epsilon": float(epsilon),
            "w": setting["w"],
        }
        for name, kind in catalogue().items():
            found = configured(kind, policy, columns, stream.season, len(truth))
            if found:
                rows += [
                    {**labels, "mechanism": name, **row} for row in compared(found, truth, made_up, few, runs)
                ]
    return rows


def _cost(setting: dict[str, Any]) -> float:
    wide = {"load, 12 regions": 45.0, "load, 20 zones": 20.0, "load, 4 regions": 15.0}
    words = setting["stream"].split()
    return wide.get(setting["stream"], 25.0 if any(word.isdigit() for word in words[:-1]) else 8.0)


# errors in closed form ----------------------------------------------------------------------------------------

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
        lambda columns: Uniform(WEvent(epsilon="1/2", window=24), columns=columns, noise="laplace"),
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


def _settings_closed_forms(small: bool) -> list[dict[str, Any]]:
    return [{"form": name, "runs": 3 if small else 20 if "root" in name else 100} for name in FORMS]


def _measure_closed_forms(setting: dict[str, Any]) -> list[Row]:
    form = FORMS[setting["form"]]
    mechanism, zeros = form.make(COLUMNS), np.zeros((form.step, COLUMNS), dtype=np.int64)
    rows: list[Row] = []
    for run in range(setting["runs"]):
        errors = releases_of(mechanism, zeros).values[-1]
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
    exact = Uniform(WEvent(epsilon="1/10", delta=Fraction(17, 2 * 10**9), window=672)).scale
    rows.append(
        (
            "672 Laplace releases, δ = 8.5·10⁻⁹",
            "printed bound of Swellfish; exact composition here",
            "2092",
            f"{exact:.0f}",
        )
    )
    table = Table(
        "Root mean square errors; the last column is what runs give over the closed form, and in the last row the scale "
        "of the noise for ε = 0.1.",
        ("mechanism", "closed form", "value", "runs over it"),
        tuple(rows),
    )
    words = (
        f"{sum(near)} of {len(near)} closed forms are met within {NEAR:.0%} or within the interval over runs."
    )
    return Judgement(Outcome.of(near), words, (table,))


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


# the rows ----------------------------------------------------------------------------------------------------

_row = partial(Experiment, "across")

EXPERIMENTS = [
    _row(
        "Benchmark",
        "None of the papers compares all mechanisms: here every one of the catalogue runs on every stream.",
        "; ".join(sorted({f"{stream.source} ({stream.file})" for stream in STREAMS.values()})) + ".",
        settings=_settings_benchmark,
        measure=_measure_benchmark,
        judge=judge,
        draw=draw,
        cost=_cost,
        notes="The first 10,000 steps of every stream. One unit changes a step by 1. Parameters come from a plan that "
        "knows an order of magnitude, the length of a day and the number of columns, and tries its choices on a made-up "
        "stream; the oracle picks the best of the same choices by looking at the data, on five runs. 20 runs of the "
        "planned choice, 5 on wide streams and at least 2 or 3 of slow mechanisms (the rows say how many). Values are "
        "cut at 0. Hierarchies are binary trees over up to 64 columns, judged at their leaves. Window sums are over 24 "
        "steps. Tide is this library's own mechanism, and its defaults were settled while looking at some of these "
        "streams, which those of the others were not. Not here: mechanisms that need another policy or budget ("
        "Swellfish, Factorization, EndlessSum), Blocks, which wraps another mechanism, and ClippedSum, which "
        f"{ELSEWHERE['ClippedSum']} ClippedAverage, ClippedDecay and ClippedHistogram release other statistics of such "
        "observations.",
    ),
    _row(
        "Table, closed forms",
        "For Laplace noise, binary trees and the square-root factorization the literature gives errors in closed "
        "form.",
        "Streams of zeros.",
        settings=_settings_closed_forms,
        measure=_measure_closed_forms,
        judge=_judge,
        draw=_draw,
        notes="Noise here is discrete on a grid, which changes these errors by less than one part in a hundred.",
    ),
]
