"""Compiled loop of the sliding-window tree: sums of nodes, their estimates, and prefixes and suffixes of blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.compiled import kernel, lean


@lean
def lowest_bit(number: int) -> int:
    """The position of the lowest bit that is set."""
    bit = 0
    while (number >> bit) & 1 == 0:
        bit += 1
    return bit


@lean
def variances(window: int, offsets: Any, averages: bool, out: Any) -> None:
    """The variance of every node's estimate, that of one measurement being 1.

    A measurement of variance 1 and the children's estimates of variance v are averaged to v/(1 + v).
    """
    for level in range(offsets.size - 1):
        for node in range(offsets[level + 1] - offsets[level]):
            below = 0.0
            if averages and level > 0:
                below = out[offsets[level - 1] + 2 * node]
                if 2 * node + 1 < offsets[level] - offsets[level - 1]:
                    below += out[offsets[level - 1] + 2 * node + 1]
            out[offsets[level] + node] = below / (1.0 + below) if below > 0.0 else 1.0


class Shape(NamedTuple):
    """What is public about the tree of a block."""

    window: int
    offsets: Any  # where the nodes of each level begin
    variance: Any  # of each node's estimate
    averages: bool  # whether a node's estimate uses those of its children
    grid: float


class Blocks(NamedTuple):
    """The present block and the one before."""

    sums: Any  # of each level: the noisy sum of the node that grows
    nodes: Any  # estimates of the present block's nodes
    prefix: Any  # sums from the beginning of the present block
    suffix: Any  # sums up to the end of the one before


@kernel
def slide(rows: Any, first_step: int, shape: Any, noise: Any, starts: Any, blocks: Any, values: Any) -> None:
    """Add steps to the block and write the window sums.

    `noise[starts[level] + i]` is the noise of the i-th node of a level that begins in these steps: a node's
    sum begins with its noise, so that `sums` never holds a raw one. `nodes`, `prefix` are of the present
    block and `suffix` of the one before.
    """
    window, offsets, variance, averages, grid = Shape(*shape)
    sums, nodes, prefix, suffix = Blocks(*blocks)
    levels = offsets.size - 1
    used = starts.copy()
    columns = rows.shape[1]
    for index in range(rows.shape[0]):
        at = (first_step + index - 1) % window
        for level in range(levels):
            if at % (1 << level) == 0:
                for column in range(columns):
                    sums[level, column] = noise[used[level], column]
                used[level] += 1
            for column in range(columns):
                sums[level, column] += rows[index, column]
            if (at + 1) % (1 << level) == 0 or at + 1 == window:
                node = at >> level
                place = offsets[level] + node
                own = variance[place] if averages and level > 0 else 1.0
                for column in range(columns):
                    estimate = own * sums[level, column]
                    if own < 1.0:  # the children say the same with the other weight
                        child = offsets[level - 1] + 2 * node
                        below = nodes[child, column]
                        if child + 1 < offsets[level]:
                            below += nodes[child + 1, column]
                        estimate += (1.0 - own) * below
                    nodes[place, column] = estimate
        done = at + 1
        if done < window:
            bit = lowest_bit(done)
            place = offsets[bit] + ((done - 1) >> bit)
            for column in range(columns):
                prefix[done, column] = prefix[done - (1 << bit), column] + nodes[place, column]
                values[index, column] = (prefix[done, column] + suffix[done, column]) * grid
        else:
            top = offsets[levels - 1]
            for column in range(columns):
                total = nodes[top, column]
                for place in range(top + 1, offsets[levels]):
                    total += nodes[place, column]
                values[index, column] = total * grid
            for begin in range(window - 1, 0, -1):
                bit = lowest_bit(begin)
                end = begin + (1 << bit)
                place = offsets[bit] + (begin >> bit)
                for column in range(columns):
                    rest = suffix[end, column] if end < window else 0.0
                    suffix[begin, column] = nodes[place, column] + rest
