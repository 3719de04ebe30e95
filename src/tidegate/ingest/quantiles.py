"""Quantiles of bounded values: counted in public bins of their range, directly or as a tree, and read from the counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
Weights = tuple[int, int]
# how often a record is counted in its bin and in the part of the range that the bin is in
METHODS: dict[str, Weights] = {"histogram": (1, 0), "parts 2:1": (2, 1), "parts 3:2": (3, 2), "parts": (1, 1)}
EARLY = 0.4  # by how much less noise, as a logarithm, makes up for all of the budget that parts have at q = 1


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
        values = numbers(series, "value").cast(pl.Float64)
        there = values.is_not_null().to_numpy()
        low, high = float(Fraction(self.edges[0])), float(Fraction(self.edges[-1]))
        inside = np.clip(values.fill_null(low).to_numpy(), low, np.nextafter(high, low))
        found = super().indices(pl.Series(inside))
        result: Indices = np.where(there, np.where(found < 0, 0, found), -1).astype(np.int32)
        return result


def fan_out(bins: int) -> int:
    """How many bins are together in a part of the range: about as many as there are parts."""
    return max(2, math.ceil(math.sqrt(bins)))


def parts_over(labels: tuple[str, ...]) -> Hierarchy:
    """Neighbouring bins together in parts of the range, which nothing is above: two levels.

    Quantiles need no count of everything: of the noise of one, every bin and every part would have a third more.
    """
    parts = _parts(labels)
    return Hierarchy.from_parents(dict.fromkeys(parts) | dict(zip(labels, parts, strict=True)))


def tree_over(labels: tuple[str, ...]) -> Hierarchy:
    """The same with a root, as version 0.2 had it: three levels."""
    parts = _parts(labels)
    links: dict[str, str | None] = {"all": None} | dict.fromkeys(parts, "all")
    return Hierarchy.from_parents({**links, **dict(zip(labels, parts, strict=True))})


def _parts(labels: tuple[str, ...]) -> list[str]:
    """The part of the range that each bin is in."""
    fan = fan_out(len(labels))
    return [f"part {at // fan + 1}" for at in range(len(labels))]


def best_method(bins: int, fractions: Sequence[Fraction]) -> str:
    """By which method quantiles are known best: from bins alone, or from bins and parts of the range with more noise.

    It follows from the number of bins and from the quantiles that are asked for, which are public: the noise of what
    a quantile is read from is compared (:func:`squares`), at the bins up to the one that the quantile would be in if
    values lay anywhere in the range; where values really lie is not known, and mostly it is nearer to the lower end. A
    little is added for the noise of single bins, in which a crossing is found too early, and the more so the more of
    them come before it.

    Parameters
    ----------
    bins
        Their number.
    fractions
        The quantiles.

    Examples
    --------
    >>> [best_method(bins, (Fraction(1, 2),)) for bins in (16, 64)]
    ['histogram', 'parts']
    >>> [best_method(bins, (Fraction(1, 10),)) for bins in (64, 256)]
    ['histogram', 'parts 2:1']
    """

    def worse(weights: Weights) -> float:
        found = 0.0
        for part in fractions:
            near = math.ceil(part * bins)
            noise = sum(weights) ** 2 * squares(part, bins, weights)[:near] / squares(part, bins)[:near]
            found += float(np.mean(np.log(noise))) / 2 - EARLY * float(part) * weights[1] / sum(weights)
        return found

    return min(METHODS, key=lambda name: worse(METHODS[name]))


def squares(part: Fraction, bins: int, weights: Weights = (1, 0)) -> Values:
    """The variance of what a quantile is read from at the end of each bin, in those of what is released.

    That is (1 − q) times the counts up to there, less q times those after. A bin that is counted u times has 1/u² of
    the variance. Where parts are counted as well, v times, the counts of a part's f bins are made to agree with its own,
    by least squares: each bin gets 1/(f + (u/v)²) of what is lacking. So j of them have j − j²/(f + (u/v)²), over u²,
    and j and the other k of them have the covariance −j·k/(f + (u/v)²), over u².
    """
    q, at = float(part), np.arange(1, bins + 1)
    once, above = weights
    if not above:
        return ((1 - q) ** 2 * at + q**2 * (bins - at)) / once**2
    fan, ratio = fan_out(bins), (once / above) ** 2
    sizes = np.minimum(fan, bins - np.arange(0, bins, fan))
    before = np.concatenate([[0.0], np.cumsum(sizes * ratio / (sizes + ratio))])
    inside = (at - 1) // fan
    size = sizes[inside]
    low = at - inside * fan
    high = size - low
    own = ((1 - q) * low - q * high) ** 2 / (size + ratio)
    found: Values = (
        (1 - q) ** 2 * (before[inside] + low) + q**2 * (before[-1] - before[inside + 1] + high) - own
    )
    return found / once**2


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
        """The quantiles of noisy counts (T × bins); where nothing was counted, those of values anywhere in the range."""
        return np.stack(
            [self._crossing(*self._excess(counts, part), part) for part in self.fractions], axis=-1
        )

    def bounds(
        self, counts: Values, radius: Values, weights: Weights = METHODS["histogram"]
    ) -> tuple[Values, Values]:
        """The values that a quantile can have where the noise of the counts up to them is within its interval at 90 %.

        Parameters
        ----------
        counts
            Of the bins (T × bins).
        radius
            Half the widths of the intervals around them; where parts were counted as well, around what was released.
        weights
            How often bins, and parts of the range that they agree with, were counted.
        """
        low, high = [], []
        for part in self.fractions:
            excess, total = self._excess(counts, part)
            share = float(part)
            if weights[1]:
                around = radius**2 * squares(part, counts.shape[-1], weights)
            else:  # (1 − q)·(counts up to here) − q·(counts after): independent noise
                sums = np.cumsum(radius**2, axis=-1)
                around = (1 - share) ** 2 * sums + share**2 * (sums[..., -1:] - sums)
            half = SUMMED * np.sqrt(around)
            some = total[..., 0] > 0  # otherwise the quantile may be anywhere
            low.append(np.where(some, self._end(excess + half, first=True), self.edges[0]))
            high.append(np.where(some, self._end(excess - half, first=False), self.edges[-1]))
        return np.stack(low, axis=-1), np.stack(high, axis=-1)

    def _excess(self, counts: Values, part: Fraction) -> tuple[Values, Values]:
        """How many more values lie up to the end of each bin than the part of all; and how many there are."""
        sums = np.cumsum(counts, axis=-1)
        total = sums[..., -1:]
        return sums - float(part) * total, total

    def _crossing(self, excess: Values, total: Values, part: Fraction) -> Values:
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
        anywhere = self.edges[0] + float(part) * (self.edges[-1] - self.edges[0])
        found: Values = np.where(total[..., 0] > 0, np.where(none, self.edges[-1], value), anywhere)
        return found

    def _end(self, excess: Values, *, first: bool) -> Values:
        """The lower edge of the first bin that may have enough, or the upper one after the last that may not."""
        if first:
            may = excess >= 0
            at = np.where(may.any(axis=-1), np.argmax(may, axis=-1), excess.shape[-1] - 1)
            lower: Values = self.edges[at]
            return lower
        may = excess <= 0
        last = excess.shape[-1] - 1 - np.argmax(may[..., ::-1], axis=-1)
        at = np.where(may.any(axis=-1), np.minimum(last + 1, excess.shape[-1] - 1), 0)
        upper: Values = self.edges[at + 1]
        return upper
