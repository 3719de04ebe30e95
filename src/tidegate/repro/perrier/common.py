"""Streams of the paper's figures, and what is asked of their tails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.datasets.shapes import spendings, trip_minutes
from tidegate.repro.data import is_here, observations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MADE_UP = "Generated in the described shape (means of 30 minutes and 40 dollars, light tails), since neither is public."
SOURCES = {
    "flights": "air times of flights out of New York (CC0)",
    "baskets": "grocery baskets (Ta-Feng)",
    "bike trips": "bike trips (Citi Bike data licence)",
}
DELTA = "1/1048576"
BETA = 0.02
P_MAX = 0.005
SEEN = 30  # a tail is looked at as far as so many observations lie beyond


@dataclass(frozen=True)
class Observations:
    """A stream of single observations: its bound B, its unit and how it is made or read."""

    bound: int
    unit: str
    count: int
    file: str
    make: Callable[[int], Integers]

    @property
    def here(self) -> bool:
        """Whether it is generated, or its file is at hand."""
        return not self.file or is_here(self.file)


def _from(file: str, column: str, divisor: int = 1) -> Callable[[int], Integers]:
    def read(count: int) -> Integers:
        kept: Integers = observations(file, column)[:count] // divisor
        return kept

    return read


STREAMS = {
    "train trips": Observations(1440, "minutes", 25_000_000, "", trip_minutes),
    "supermarket": Observations(3000, "dollars", 150_000, "", spendings),
    "flights": Observations(
        1440,
        "minutes",
        327_346,
        "flight_durations_2013.parquet",
        _from("flight_durations_2013.parquet", "air_time_min"),
    ),
    "baskets": Observations(
        1_000_000, "TWD", 119_578, "tafeng_baskets.parquet", _from("tafeng_baskets.parquet", "spend_twd")
    ),
    "bike trips": Observations(
        1440,
        "minutes",
        166_336,
        "citibike_trips.parquet",
        _from("citibike_trips.parquet", "tripduration_s", 60),
    ),
}


@lru_cache(maxsize=2)
def values_of(name: str, count: int | None = None) -> Integers:
    """A stream, or its first values, clipped at its bound."""
    stream = STREAMS[name]
    clipped: Integers = np.clip(stream.make(count or stream.count), 0, stream.bound)
    return clipped


def names_here(*wanted: str) -> list[str]:
    """Those of the streams that are generated or at hand."""
    return [name for name in wanted or STREAMS if STREAMS[name].here]


def beside(*names: str) -> str:
    """The sentence about real streams that are used where their files are at hand; all of them by default."""
    return (
        f" Beside it, where their files are at hand: {', '.join(SOURCES[name] for name in names or SOURCES)}."
    )


def upper_quantile(ordered: Integers, p: float) -> float:
    """x_p: the least value that a share of at most p exceeds; of sorted values.

    Examples
    --------
    >>> upper_quantile(np.arange(1, 101), 0.05)
    95.0
    """
    return float(ordered[max(0, math.ceil((1 - p) * len(ordered)) - 1)])


class Tail(NamedTuple):
    """How a tail compares with the exponential of the same p-quantile.

    Attributes
    ----------
    quantile
        x_p.
    worst
        The largest (1 − F)/(1 − H) beyond x_p, as far as 30 observations lie beyond; at most 1 where the tail is light.
    at_least
        `worst` less three standard errors of the count.
    where
        The value at which it is.
    """

    quantile: float
    worst: float
    at_least: float
    where: float

    @property
    def heavy(self) -> bool:
        """Whether it lies above the exponential beyond doubt."""
        return self.at_least > 1


def tail_of(values: Integers, p: float = P_MAX) -> Tail:
    """Definition 12 put to a sample.

    Examples
    --------
    >>> light, heavy = np.arange(10_000), (1e4 / np.arange(1, 10_001)).astype(np.int64)
    >>> tail_of(light).heavy, tail_of(heavy).heavy
    (False, True)
    """
    ordered = np.sort(values)
    quantile = upper_quantile(ordered, p)
    points = np.unique(ordered[ordered >= max(quantile, 1.0)]).astype(np.float64)
    above = len(ordered) - np.searchsorted(ordered, points, side="right")
    points, above = points[above >= SEEN], above[above >= SEEN]
    if not len(points):
        return Tail(quantile, 0.0, 0.0, quantile)
    exponential = p ** (points / quantile)
    ratios = above / len(ordered) / exponential
    place = int(np.argmax(ratios))
    least = (above - 3 * np.sqrt(above)) / len(ordered) / exponential
    return Tail(quantile, float(ratios[place]), float(least.max()), float(points[place]))


def distribution(values: Integers, points: Floats) -> Floats:
    """The share of values that do not exceed each point."""
    found: Floats = np.searchsorted(np.sort(values), points, side="right") / len(values)
    return found


def times(ratio: float) -> str:
    """A ratio, or its power of ten where it is huge."""
    return f"{ratio:.2f}" if ratio < 1000 else f"10^{math.log10(ratio):.0f}"


def tidy(axes: Axes) -> None:
    """No frame above and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
