"""The compiled loop of the tree counters."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel


@kernel
def count_on_tree(
    rows: Any,
    branching: int,
    own_weight: Any,
    node_variance: Any,
    noise: Any,
    offsets: Any,
    digits: Any,
    total: Any,
    marks: Any,
    siblings: Any,
    above: Any,
    spread: Any,
    base: Any,
    base_variance: float,
    grid: float,
    values: Any,
    deviations: Any,
) -> None:
    """Add the steps `rows` to one tree and write the running sum after each of them.

    A step completes the levels 0 to k whose digit of the position turns over. A completed node's noisy sum is
    averaged with the estimates of its children (`own_weight` says how much it counts itself), and becomes one more
    sibling on its level; the running sum is the sum of the siblings over all levels. `above[l]` keeps that sum from
    level l upwards and `spread[l]` its variance, so that a step costs as much as the nodes that it completes.
    """
    levels = own_weight.size
    for index in range(rows.shape[0]):
        top = 0
        digits[0] += 1
        while top + 1 < levels and digits[top] == branching:
            digits[top] = 0
            top += 1
            digits[top] += 1
        variance = spread[top + 1] + digits[top] * node_variance[top]
        for level in range(top + 1):
            spread[level] = variance
        for column in range(rows.shape[1]):
            total[column] += rows[index, column]
            estimate = 0.0
            for level in range(top + 1):
                noisy = float(total[column] - marks[level, column] + noise[offsets[level], column])
                marks[level, column] = total[column]
                if level == 0:
                    estimate = noisy
                else:
                    children = siblings[level - 1, column] + estimate
                    estimate = children + own_weight[level] * (noisy - children)
                    siblings[level - 1, column] = 0.0
            siblings[top, column] += estimate
            running = above[top + 1, column] + siblings[top, column]
            for level in range(top + 1):
                above[level, column] = running
            values[index, column] = (base[column] + running) * grid
        for level in range(top + 1):
            offsets[level] += 1
        deviations[index] = (base_variance + variance) ** 0.5 * grid
