"""What experiments share: errors of several mechanisms over runs, ratios with intervals, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms import Mechanism
from tidegate.repro.experiment import Row
from tidegate.repro.metrics import interval_of_mean, mean_absolute_error, mean_relative_error

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes

COLOURS = ("#0b6e8f", "#d1495b", "#edae49", "#2e7d4f", "#7b5ea7", "#8c6d4f", "#4b5563", "#c026d3")


def errors_of(
    mechanisms: Mapping[str, Mechanism], truth: npt.NDArray[np.int64], runs: int, **labels: Any
) -> list[Row]:
    """One row for each mechanism and run: its mean absolute and relative error; releases are cut at 0."""
    rows: list[Row] = []
    for name, mechanism in mechanisms.items():
        for run in range(runs):
            releases = mechanism.start().push_batch(truth)
            values = np.maximum(releases.values, 0.0)
            rows.append(
                {
                    **labels,
                    "mechanism": name,
                    "run": run,
                    "error": mean_absolute_error(values, truth),
                    "relative": mean_relative_error(values, truth),
                }
            )
    return rows


def ratio_of(
    frame: pl.DataFrame, one: str, other: str, by: Sequence[str]
) -> list[tuple[tuple[Any, ...], float]]:
    """The mean error of one mechanism over that of another, in every setting."""
    import polars as pl

    means = frame.group_by([*by, "mechanism"]).agg(pl.col("error").mean()).sort(list(by))
    table = {
        (*row[: len(by)], row[len(by)]): row[-1] for row in means.select([*by, "mechanism", "error"]).rows()
    }
    settings = sorted({key[:-1] for key in table})
    return [
        (s, table[*s, one] / table[*s, other])
        for s in settings
        if (*s, one) in table and (*s, other) in table
    ]


def ratio_with_interval(one: npt.ArrayLike, other: npt.ArrayLike) -> tuple[float, float, float]:
    """(ratio of the means, lower end, upper end of its 95 % interval) of two sets of runs, by the delta method.

    Examples
    --------
    >>> ratio_with_interval([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])
    (0.5, 0.5, 0.5)
    """
    from scipy.stats import t

    first, second = np.asarray(one, float), np.asarray(other, float)
    ratio = float(first.mean() / second.mean())
    count = min(first.size, second.size)
    if count < 2:
        return ratio, ratio, ratio
    spread = sum(float(runs.var(ddof=1)) / runs.size / float(runs.mean()) ** 2 for runs in (first, second))
    half = ratio * float(t.ppf(0.975, count - 1)) * spread**0.5
    return ratio, ratio - half, ratio + half


def in_words(frame: pl.DataFrame, by: Sequence[str] = ()) -> str:
    """Mean errors of all mechanisms with their intervals, over all settings or in each."""
    import polars as pl

    parts = []
    for key, group in frame.group_by(["mechanism", *by], maintain_order=True):
        low, high = interval_of_mean(group["error"].to_numpy())
        place = "".join(f", {name} {value}" for name, value in zip(by, key[1:], strict=True))
        parts.append(f"{key[0]}{place} {short((low + high) / 2)} (± {short((high - low) / 2)})")
    assert isinstance(frame, pl.DataFrame)
    return "; ".join(parts)


def short(number: float) -> str:
    """Three digits, no exponent."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def draw_curves(axes: Axes, frame: pl.DataFrame, x: str, y: str, label: str, *, log_x: bool = False) -> None:
    """Mean y against x, one curve a mechanism."""
    import polars as pl

    for number, (key, group) in enumerate(frame.group_by("mechanism", maintain_order=True)):
        means = group.group_by(x).agg(pl.col(y).mean()).sort(x)
        axes.plot(
            means[x],
            means[y],
            marker="o",
            markersize=3.5,
            color=COLOURS[number % len(COLOURS)],
            label=str(key[0]),
        )
    axes.set_yscale("log")
    if log_x:
        axes.set_xscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
