"""Wang et al.'s dynamic grouping, compiled: form groups of small columns from their releases, and measure them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.kernels.kalman import ESTIMATE, correct

FURTHEST = 1024  # columns that one pivot is compared with at most, so that the time stays linear in d
MOST_SUM = 2**61  # of a group; stopping there keeps the sensitivity and 64 bits


@kernel
def similarity(history: Any, one: int, other: int) -> float:
    """Pearson's correlation of two columns' recent releases; columns that do not move are alike."""
    recent = history.shape[0]
    mean_one, mean_other = 0.0, 0.0
    for at in range(recent):
        mean_one += history[at, one] / recent
        mean_other += history[at, other] / recent
    both, square_one, square_other = 0.0, 0.0, 0.0
    for at in range(recent):
        left, right = history[at, one] - mean_one, history[at, other] - mean_other
        both += left * right
        square_one += left * left
        square_other += right * right
    if square_one == 0.0 or square_other == 0.0:
        return 1.0 if square_one == square_other else 0.0
    return float(max(both / np.sqrt(square_one * square_other), -1.0))


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
    predicted = np.zeros(columns)
    left = np.empty(columns, dtype=np.int64)
    count = 0
    for column in range(columns):
        pivot_of[column] = column
        controller = column % counts.size
        if chosen[controller] and counts[controller] >= recent:
            for at in range(recent):
                predicted[column] += history[at, column] / recent
            if predicted[column] < small:
                left[count] = column
                count += 1
    keys = predicted[left[:count]]
    left[:count] = left[:count][np.argsort(keys, kind="mergesort")]
    while count > 1:
        pivot = left[0]
        weight = max(predicted[pivot], 0.0)
        kept = 0
        full = False
        for at in range(1, count):
            column = left[at]
            full = (
                full or at > FURTHEST or weight >= small or predicted[column] - predicted[pivot] >= difference
            )
            if not full and similarity(history, pivot, column) >= alike:
                pivot_of[column] = pivot
                weight += max(predicted[column], 0.0)
            else:
                left[kept] = column
                kept += 1
        count = kept


@kernel
def measure_groups(
    known: float,
    model: Any,
    step: int,
    row: Any,
    given: Any,
    chosen: Any,
    pivot_of: Any,
    widths: Any,
    belief: Any,
    history: Any,
    counts: Any,
    last: Any,
    moved: Any,
) -> None:
    """Filter the noisy sum of every group, shared equally among its columns; `moved` gets each group's change.

    `known` is the variance of the noise that the filter is to assume; 0 is that of the noise added.
    """
    columns = row.size
    controllers = counts.size
    recent = history.shape[0]
    sizes = np.zeros(columns, dtype=np.int64)
    sums = np.zeros(columns, dtype=np.int64)
    means = np.zeros(columns)
    spreads = np.zeros(columns)
    for column in range(columns):
        if chosen[column % controllers]:
            pivot = pivot_of[column]
            sizes[pivot] += 1
            sums[pivot] = min(max(sums[pivot] + row[column], -MOST_SUM), MOST_SUM)
            means[pivot] += belief[ESTIMATE, column]
            moved[column] = 0.0
    for column in range(columns):
        if chosen[column % controllers] and sizes[pivot_of[column]] > 1:
            pivot = pivot_of[column]
            distance = belief[ESTIMATE, column] - means[pivot] / sizes[pivot]
            spreads[pivot] += distance * distance
    for column in range(columns):
        controller = column % controllers
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
