"""What experiments share: errors of several mechanisms over runs, ratios with intervals, curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.experiment import Row
from experiments.running import releases_of
from tidegate.bench.metrics import cut_errors, interval_of_mean
from tidegate.mechanisms import Mechanism

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b6e8f", "#d1495b", "#edae49", "#2e7d4f", "#7b5ea7", "#8c6d4f", "#4b5563", "#c026d3")


def errors_of(
    mechanisms: Mapping[str, Mechanism], truth: npt.NDArray[np.int64], runs: int, **labels: Any
) -> list[Row]:
    """One row for each mechanism and run: its mean absolute and relative error; releases are cut at 0."""
    rows: list[Row] = []
    for name, mechanism in mechanisms.items():
        for run in range(runs):
            error, relative = cut_errors(releases_of(mechanism, truth).values, truth)
            rows.append({**labels, "mechanism": name, "run": run, "error": error, "relative": relative})
    return rows


def settings_of(
    frame: pl.DataFrame, by: Sequence[str], value: str = "error"
) -> Iterator[tuple[tuple[Any, ...], dict[str, npt.NDArray[np.float64]]]]:
    """Every setting with the runs of each mechanism in it."""
    for key, group in frame.drop_nulls(value).group_by(list(by), maintain_order=True):
        yield key, {str(name[0]): part[value].to_numpy() for name, part in group.group_by("mechanism")}


def compared(
    frame: pl.DataFrame, ones: Sequence[str], rivals: Sequence[str], by: Sequence[str], value: str = "error"
) -> pl.DataFrame:
    """In every setting, each of `ones` against each rival: the ratio of mean errors with its interval, who is ahead."""
    import polars as pl

    rows: list[Row] = []
    for key, runs in settings_of(frame, by, value):
        for one, rival in ((one, rival) for one in ones for rival in rivals if {one, rival} <= runs.keys()):
            ratio = ratio_with_interval(runs[one], runs[rival])
            ahead = "yes" if ratio.high < 1 else "no" if ratio.low > 1 else "open"
            labels = {**dict(zip(by, key, strict=True)), "one": one, "rival": rival}
            rows.append({**labels, **ratio._asdict(), "ahead": ahead})
    return pl.DataFrame(rows)


def best_and_worst(table: pl.DataFrame) -> list[tuple[Row, Ratio]]:
    """The rows of a comparison with the least and with the largest ratio."""
    ranked = table.sort("ratio", maintain_order=True)
    ends = (ranked.row(0, named=True), ranked.row(-1, named=True))
    return [(row, Ratio(row["ratio"], row["low"], row["high"])) for row in ends]


def errors_in(frame: pl.DataFrame, by: str, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Rows of a table: the setting, then the mean error of each mechanism with its interval over runs."""
    return tuple(
        (str(key[0]), *(with_interval(runs[name]) if name in runs else "–" for name in names))
        for key, runs in settings_of(frame.sort(by), [by])
    )


def answered(checks: Mapping[str, Any], between: str = ", ") -> str:
    """What was checked, each with yes or no.

    Examples
    --------
    >>> answered({"grows": True, "is flat": False})
    'grows: yes, is flat: no'
    """
    return between.join(f"{what}: {'yes' if true else 'no'}" for what, true in checks.items())


def with_interval(runs: npt.ArrayLike) -> str:
    """A mean and half of its 95 % interval.

    Examples
    --------
    >>> with_interval([1.0, 2.0, 3.0])
    '2 ± 2.48'
    """
    low, high = interval_of_mean(runs)
    half = f" ± {short((high - low) / 2)}" if np.size(runs) > 1 else ""
    return short((low + high) / 2) + half


class Ratio(NamedTuple):
    """A ratio of means and the ends of its 95 % interval, formatted like a number: f"{ratio:.2f}"."""

    ratio: float
    low: float
    high: float

    def __format__(self, digits: str) -> str:
        """All three, with as many digits as is asked for."""
        return f"{self.ratio:{digits}} ({self.low:{digits}} to {self.high:{digits}})"


def ratio_with_interval(one: npt.ArrayLike, other: npt.ArrayLike) -> Ratio:
    """The ratio of the means of two sets of runs with its interval, by the delta method.

    Examples
    --------
    >>> f"{ratio_with_interval([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]):.1f}"
    '0.5 (0.5 to 0.5)'
    """
    from scipy.stats import t

    first, second = np.asarray(one, float), np.asarray(other, float)
    ratio = float(first.mean() / second.mean())
    count = min(first.size, second.size)
    if count < 2:
        return Ratio(ratio, ratio, ratio)
    spread = sum(float(runs.var(ddof=1)) / runs.size / float(runs.mean()) ** 2 for runs in (first, second))
    half = ratio * float(t.ppf(0.975, count - 1)) * spread**0.5
    return Ratio(ratio, ratio - half, ratio + half)


def short(number: float) -> str:
    """Three digits, no exponent."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def draw_curves(
    axes: Axes,
    frame: pl.DataFrame,
    x: str,
    y: str,
    label: str,
    below: str = "",
    *,
    order: Sequence[str] = (),
    log_x: bool = False,
) -> None:
    """Mean y against x with bars for the 95 % intervals over runs, one curve a mechanism."""
    import polars as pl

    names = order or frame["mechanism"].unique(maintain_order=True).to_list()
    for number, name in enumerate(names):
        groups = frame.filter(pl.col("mechanism") == name).sort(x).group_by(x, maintain_order=True)
        points = [(key[0], group[y].to_numpy()) for key, group in groups]
        ends = np.array([interval_of_mean(runs) for _, runs in points])
        means = ends.mean(axis=1)
        axes.errorbar(
            [at for at, _ in points],
            means,
            yerr=np.minimum(ends[:, 1] - means, 0.9 * means),
            marker="o",
            markersize=3.5,
            capsize=2,
            color=COLOURS[number % len(COLOURS)],
            label=name,
        )
    logarithmic(axes)
    if log_x:
        axes.set_xscale("log")
    ticks = sorted(set(frame[x].to_list()))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(below or x)
    axes.set_ylabel(label)


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis whose numbers are written out: 20 instead of 2 × 10¹."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale("log")
    low, high = sorted(axes.get_ylim())
    if high < 6 * low:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    elif high < 1e3 * max(low, 1e-300):  # many powers of ten need no numbers between them
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for all panels, under them: never over the data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
