"""Which mechanism to use when: tables of the benchmark's rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.repro.across.scores import AT_ONCE, LATER, SUMS, WINDOWS
from tidegate.repro.comparison import short
from tidegate.repro.experiment import Judgement, Outcome, Table

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
            for statistic in (WINDOWS, SUMS)
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
