"""Quantiles of bounded values: counted in public bins of their range, directly or as a tree, and read from the counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, show, whole
from tidegate.ingest.columns import Indices, Intervals, numbers
from tidegate.ingest.levels import SUMMED
from tidegate.structures.hierarchy import Hierarchy

Values = npt.NDArray[np.float64]
MOST_BINS = 10_000
TREE = 64  # bins from which on a tree over them pays


@dataclass(frozen=True)
class Range(Intervals):
    """Bins of a range; a value beyond an end counts in the bin at that end, as a clipped one would.

    Examples
    --------
    >>> bins = Range.of("0", "10", 5)
    >>> bins.labels[0], bins.indices(pl.Series([-3.0, 0.0, 9.9, 10.0, 99.0, None])).tolist()
    ('[0, 2)', [0, 0, 4, 4, 4, -1])
    """

    @classmethod
    def of(cls, low: ExactLike, high: ExactLike, bins: int) -> Range:
        """Bins of equal width."""
        count = whole("bins", bins, least=2, most=MOST_BINS)
        begin, end = exact("clip", low), exact("clip", high)
        if not begin < end:
            raise InvalidParameter(
                "clip", (show(begin), show(end)), "increasing", 'write for example clip = ["0", "100"]'
            )
        return cls(tuple(begin + (end - begin) * at / count for at in range(count + 1)))

    def indices(self, series: pl.Series) -> Indices:
        """The bin of each number, −1 where there is none."""
        values = numbers(series, "value").astype(np.float64)
        there = ~np.isnan(values)
        low, high = float(Fraction(self.edges[0])), float(Fraction(self.edges[-1]))
        inside = np.clip(np.where(there, values, low), low, np.nextafter(high, low))
        found = super().indices(pl.Series(inside))
        result: Indices = np.where(there, np.where(found < 0, 0, found), -1).astype(np.int32)
        return result


def fan_out(bins: int) -> int:
    """Into how many parts a node of a tree over so many bins is divided: three levels, with one root."""
    return max(2, math.ceil(math.sqrt(bins)))


def tree_over(labels: tuple[str, ...]) -> Hierarchy:
    """A tree over neighbouring bins: parts of the range, and all of it."""
    fan = fan_out(len(labels))
    links: dict[str, str | None] = {"all": None}
    groups = [f"part {at // fan + 1}" for at in range(len(labels))]
    links |= dict.fromkeys(groups, "all")
    return Hierarchy.from_parents({**links, **dict(zip(labels, groups, strict=True))})


def tree_pays(bins: int) -> bool:
    """Whether quantiles are better known from a tree: by the number of bins, which is public.

    Counts up to a bin are sums of up to all bins, or of a few nodes with three times the noise. On made-up receipts and
    durations the tree was better from about 64 bins on, whatever the noise.

    Examples
    --------
    >>> tree_pays(16), tree_pays(64)
    (False, True)
    """
    return bins >= TREE


@dataclass(frozen=True)
class Quantiles:
    """Which quantiles are read from counts in bins.

    Parameters
    ----------
    fractions
        The parts of all values that lie below: 1/2 for the median.
    edges
        Of the bins.

    Examples
    --------
    >>> median = Quantiles((Fraction(1, 2),), np.array([0.0, 1.0, 2.0, 4.0]))
    >>> median.labels, median.read(np.array([[4.0, 0.0, 2.0], [0.0, 0.0, 8.0]])).tolist()
    (('median',), [[0.75], [3.0]])
    """

    fractions: tuple[Fraction, ...]
    edges: Values

    @property
    def labels(self) -> tuple[str, ...]:
        """Their names."""
        return tuple("median" if part * 2 == 1 else f"quantile {show(part)}" for part in self.fractions)

    def read(self, counts: Values) -> Values:
        """The quantiles of noisy counts (T × bins); the middle of the range where nothing was counted."""
        return np.stack([self._crossing(*self._excess(counts, part)) for part in self.fractions], axis=-1)

    def bounds(self, counts: Values, radius: Values) -> tuple[Values, Values]:
        """The values that a quantile can have where the noise of the counts up to them is within its interval at 90 %."""
        low, high = [], []
        for part in self.fractions:
            excess, _ = self._excess(counts, part)
            share = float(part)
            squares = np.cumsum(radius**2, axis=-1)
            total = squares[..., -1:]
            # (1 − q)·(counts up to here) − q·(counts after): independent noise
            half = SUMMED * np.sqrt((1 - share) ** 2 * squares + share**2 * (total - squares))
            low.append(self._end(excess + half, first=True))
            high.append(self._end(excess - half, first=False))
        return np.stack(low, axis=-1), np.stack(high, axis=-1)

    def _excess(self, counts: Values, part: Fraction) -> tuple[Values, Values]:
        """How many more values lie up to the end of each bin than the part of all; and how many there are."""
        sums = np.cumsum(counts, axis=-1)
        total = sums[..., -1:]
        return sums - float(part) * total, total

    def _crossing(self, excess: Values, total: Values) -> Values:
        """Where the excess becomes positive, between the edges of a bin."""
        before = np.concatenate([excess[..., :1] * 0, excess], axis=-1)
        before[..., 0] = np.minimum(
            0.0, excess[..., -1] - total[..., 0]
        )  # at the lower end: minus the part of all
        rising = np.maximum.accumulate(before, axis=-1)
        at = np.argmax(rising > 0, axis=-1)
        none = ~(rising > 0).any(axis=-1)
        at = np.where(none, len(self.edges) - 1, np.maximum(at, 1))
        left, right = (
            np.take_along_axis(rising, place[..., None], axis=-1)[..., 0] for place in (at - 1, at)
        )
        width = np.where(right > left, right - left, 1.0)
        inside = np.clip(-left / width, 0.0, 1.0)
        value = self.edges[at - 1] + inside * (self.edges[at] - self.edges[at - 1])
        middle = (self.edges[0] + self.edges[-1]) / 2
        found: Values = np.where(total[..., 0] > 0, np.where(none, self.edges[-1], value), middle)
        return found

    def _end(self, excess: Values, *, first: bool) -> Values:
        """The lower edge of the first bin whose excess may be positive, or the upper one of the last that may not."""
        if first:
            may = excess > 0
            at = np.where(may.any(axis=-1), np.argmax(may, axis=-1), excess.shape[-1] - 1)
            lower: Values = self.edges[at]
            return lower
        may = excess < 0
        last = excess.shape[-1] - 1 - np.argmax(may[..., ::-1], axis=-1)
        at = np.where(may.any(axis=-1), np.minimum(last + 1, excess.shape[-1] - 1), 0)
        upper: Values = self.edges[at + 1]
        return upper
