"""Compiled lists of placements for the optimal Swellfish schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def placements(firsts: Any, lasts: Any, durations: Any, limits: Any) -> Any:
    """Every longest placement of each event inside its interval, as rows (first, last, limit)."""
    count = 0
    for i in range(firsts.size):
        if lasts[i] >= firsts[i]:
            count += max(lasts[i] - firsts[i] + 1 - durations[i] + 1, 1)
    rows = np.empty((count, 3), dtype=np.int64)
    at = 0
    for i in range(firsts.size):
        if lasts[i] < firsts[i]:
            continue
        length = min(durations[i], lasts[i] - firsts[i] + 1)
        for first in range(firsts[i], lasts[i] - length + 2):
            rows[at, 0] = first
            rows[at, 1] = first + length - 1
            rows[at, 2] = limits[i]
            at += 1
    return rows


@kernel
def needed(rows: Any, size: int) -> Any:
    """Which rows, sorted by (first, −last, limit), no earlier row implies: none ends later with no larger limit.

    A binary indexed tree over the ends keeps the least limit of all rows seen that end at a step or later.
    """
    most = np.int64(2**62)
    tree = np.full(size + 1, most)
    keep = np.zeros(rows.shape[0], dtype=np.bool_)
    for i in range(rows.shape[0]):
        place = size - rows[i, 1]  # later ends come first in the tree
        least = most
        j = place
        while j > 0:
            least = min(least, tree[j])
            j -= j & -j
        if least <= rows[i, 2]:
            continue
        keep[i] = True
        j = place
        while j <= size:
            tree[j] = min(tree[j], rows[i, 2])
            j += j & -j
    return keep


@kernel
def largest_ratio(firsts: Any, lasts: Any, ratios: Any, size: int, order: Any) -> Any:
    """For each step the largest ratio of all placements that contain it; `order` sorts them from the largest."""
    out = np.zeros(size)
    jump = np.arange(size + 1)
    for n in range(order.size):
        i = order[n]
        t = firsts[i]
        while t <= lasts[i]:
            free = t
            while jump[free] != free:
                jump[free] = jump[jump[free]]
                free = jump[free]
            if free > lasts[i]:
                jump[t] = free
                break
            out[free] = ratios[i]
            jump[free] = free + 1
            t = free + 1
    return out
