"""Dynamic grouping, RescueDP's way to measure columns that are small beside the noise: together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.exact import whole
from tidegate.mechanisms.sampled.kalman import ESTIMATE, correct, finite

FURTHEST = 256  # columns that one pivot is compared with at most, so that the time stays linear in d
MOST_SUM = 2**61  # of a group; stopping there keeps the sensitivity and 64 bits


@dataclass(frozen=True)
class Grouping:
    """Which columns share one measurement: small ones of similar size and movement, judged by releases only.

    Parameters
    ----------
    small
        τ₁: columns whose recent releases are on average below this are grouped, and a group takes columns until
        its values add up to this. None is the noise scale of the measurement.
    similarity
        τ₂: the least correlation of the recent releases with those of the group's first column.
    difference
        τ₃: the largest difference from the group's first column. None is the same as `small`.
    recent
        κ: how many releases are compared. A column with fewer is measured by itself.

    Examples
    --------
    >>> Grouping(small=30).describe()
    {'small': 30.0, 'similarity': 0.5, 'difference': None, 'recent': 3}
    """

    small: float | None = None
    similarity: float = 0.5
    difference: float | None = None
    recent: int = 3

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("small", "difference"):
            value = getattr(self, name)
            if value is not None:
                put(self, name, finite(name, value, 1e-9))
        put(self, "similarity", finite("similarity", self.similarity, -1.0, 1.0))
        put(self, "recent", whole("recent", self.recent, least=2, most=1000))

    def describe(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)


@kernel
def _shape(history: Any, column: int, out: Any) -> bool:
    """A column's recent releases less their mean, divided by their length; False if they do not move."""
    mean, square = 0.0, 0.0
    for at in range(out.size):
        mean += history[at, column] / out.size
    for at in range(out.size):
        out[at] = history[at, column] - mean
        square += out[at] * out[at]
    if square > 0.0:
        out /= np.sqrt(square)
    return square > 0.0


@kernel
def form_groups(
    chosen: Any, history: Any, counts: Any, small: float, alike: float, difference: float, pivot_of: Any
) -> None:
    """Give every column its pivot: itself, or the first column of the group that it joins.

    Columns of a value below `small` join in order of their values: a group takes those that differ from its pivot
    by less than `difference` and move like it, until its values add up to `small`.
    """
    columns = pivot_of.size
    recent = history.shape[0]
    apart = 1 if counts.size > 1 else 0  # column · apart is the controller of a column
    predicted = np.zeros(columns)
    order = np.empty(columns, dtype=np.int64)
    count = 0
    for column in range(columns):
        pivot_of[column] = column
        controller = column * apart
        if chosen[controller] and counts[controller] >= recent:
            for at in range(recent):
                predicted[column] += history[at, column] / recent
            if predicted[column] < small:
                order[count] = column
                count += 1
    order = order[:count][np.argsort(predicted[order[:count]], kind="mergesort")]
    shapes = np.empty((count, recent))
    moves = np.empty(count, dtype=np.bool_)
    following = np.arange(1, count + 1)  # the columns that are left, as a chain
    for place in range(count):
        moves[place] = _shape(history, order[place], shapes[place])
    head = 0
    while head < count:
        least = predicted[order[head]]
        weight = max(least, 0.0)
        before, place = head, following[head]
        for _ in range(FURTHEST):
            if place >= count or weight >= small or predicted[order[place]] - least >= difference:
                break
            correlation = 0.0
            for at in range(recent):
                correlation += shapes[head, at] * shapes[place, at]
            if not moves[head] and not moves[place]:
                correlation = 1.0
            if max(correlation, -1.0) >= alike:
                pivot_of[order[place]] = order[head]
                weight += max(predicted[order[place]], 0.0)
                following[before] = following[place]
            else:
                before = place
            place = following[place]
        head = following[head]


@kernel
def measure_groups(known: float, model: Any, step: int, row: Any, state: Any, work: Any) -> None:
    """Filter the noisy sum of every group, shared equally among its columns; `work.moved` gets each group's change.

    `known` is the variance of the noise that the filter is to assume; 0 is that of the noise added.
    """
    belief, history, counts, last = state.belief, state.history, state.counts, state.last
    given, chosen, pivot_of, widths, moved = work.given, work.chosen, work.pivot_of, work.widths, work.moved
    columns = row.size
    apart = 1 if counts.size > 1 else 0
    recent = history.shape[0]
    sizes = np.zeros(columns, dtype=np.int64)
    sums = np.zeros(columns, dtype=np.int64)
    means = np.zeros(columns)
    spreads = np.zeros(columns)
    for column in range(columns):
        if chosen[column * apart]:
            pivot = pivot_of[column]
            sizes[pivot] += 1
            sums[pivot] = min(max(sums[pivot] + row[column], -MOST_SUM), MOST_SUM)
            means[pivot] += belief[ESTIMATE, column]
            moved[column] = 0.0
    for column in range(columns):
        if chosen[column * apart] and sizes[pivot_of[column]] > 1:
            pivot = pivot_of[column]
            distance = belief[ESTIMATE, column] - means[pivot] / sizes[pivot]
            spreads[pivot] += distance * distance
    for column in range(columns):
        controller = column * apart
        if chosen[controller]:
            pivot = pivot_of[column]
            size = sizes[pivot]
            share = (sums[pivot] + given[pivot]) / size
            # the mean of a group measures a member as badly as its members differ
            noise = known if known > 0.0 else 2.0 * widths[pivot] * widths[pivot]
            noise = noise / (size * size) + spreads[pivot] / size
            gap = step - last[controller]
            moved[pivot] += correct(belief, column, share, noise, gap, model, counts[controller] == 0)
            history[counts[controller] % recent, column] = belief[ESTIMATE, column]
