"""Compiled sums and pruning of a hierarchy: which nodes of a step are measured, and where paths end."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel

# how a node takes part in a step
PRUNED = 0
PASSES = 1  # measured, and so are its children
ENDS = 2  # measured, the last one on its paths: a leaf, or its children are pruned

COUNTS = 0
PRIVTREE = 1
MOST = 2**61


@kernel
def prune(
    counts: Any,
    noise: Any,
    parents: Any,
    levels: Any,
    is_leaf: Any,
    method: int,
    limit: int,
    decay: int,
    part: Any,
) -> None:
    """Decide how each node takes part. `limit` is β and `decay` PrivTree's δ, both public, in grid units."""
    for index in range(counts.shape[0]):
        for node in range(parents.size):
            parent = parents[node]
            if parent >= 0 and part[index, parent] != PASSES:
                part[index, node] = PRUNED
            elif is_leaf[node]:
                part[index, node] = ENDS
            else:
                score = counts[index, node]
                if method == PRIVTREE:
                    score = max(score - (levels[node] - 1) * decay, limit - decay)
                    passes = score + noise[index, node] > limit
                else:
                    passes = score + noise[index, node] >= limit
                part[index, node] = PASSES if passes else ENDS


@kernel
def look_up(
    part: Any,
    scales_of: Any,
    weights_of: Any,
    grid: float,
    shown: Any,
    scales: Any,
    weights: Any,
    scale: Any,
    status: Any,
) -> None:
    """The noise scale and the weight of each node, by (how it takes part, node), and what a step says of itself.

    `shown` is the status of a step in which every node is measured, and of one in which some are pruned.
    """
    for index in range(part.shape[0]):
        largest = 0.0
        pruned = False
        for node in range(part.shape[1]):
            kind = part[index, node]
            scales[index, node] = scales_of[kind, node]
            weights[index, node] = weights_of[kind, node]
            if kind == PRUNED:
                pruned = True
            else:
                largest = max(largest, scales_of[kind, node])
        scale[index] = largest * grid
        status[index] = shown[1] if pruned else shown[0]


@kernel
def measure(part: Any, counts: Any, grid: float, measured: Any, noisy: Any) -> None:
    """Add the counts to the noise in `measured`, nothing where a node is pruned; `noisy` is the same in values."""
    for index in range(part.shape[0]):
        for node in range(part.shape[1]):
            total = 0 if part[index, node] == PRUNED else measured[index, node] + counts[index, node]
            measured[index, node] = total
            noisy[index, node] = total * grid
