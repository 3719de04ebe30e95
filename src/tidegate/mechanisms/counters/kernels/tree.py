"""The compiled loop of the tree counters."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.compiled import lean


class Shape(NamedTuple):
    """What is public about a tree."""

    branching: int
    own_weight: Any  # of each level: how much a node's own measurement counts
    node_variance: Any  # of each level: the variance of a node's estimate
    grid: float


class Tree(NamedTuple):
    """A tree that grows."""

    digits: Any  # of the position, one a level
    total: Any  # of each column: the exact sum so far
    marks: Any  # levels × columns: that sum when the last node of a level was complete
    siblings: Any  # levels × columns: estimates of the complete nodes that are in no complete node above
    above: Any  # levels + 1 × columns: the sum of the siblings from a level upwards
    spread: Any  # levels + 1: its variance


@lean
def count_on_tree(
    rows: Any,
    shape: Any,
    noise: Any,
    offsets: Any,
    tree: Any,
    base: Any,
    base_variance: float,
    values: Any,
    deviations: Any,
) -> None:
    """Add the steps `rows` to one tree and write the running sum after each of them.

    A step completes the levels 0 to k whose digit of the position turns over. A completed node's noisy sum is
    averaged with the estimates of its children (its `own_weight` says how much it counts itself), and becomes one more
    sibling on its level; the running sum is the sum of the siblings over all levels. `above[l]` keeps that sum from
    level l upwards and `spread[l]` its variance, so that a step costs as much as the nodes that it completes.
    """
    branching, own_weight, node_variance, grid = Shape(*shape)
    digits, total, marks, siblings, above, spread = Tree(*tree)
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
