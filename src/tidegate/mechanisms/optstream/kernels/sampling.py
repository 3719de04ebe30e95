"""Compiled scores of straight lines: how far steps are from the line between two of them, in whole numbers.

The score of the steps a < b is Σ|line(i) − xᵢ| over the steps in between (OptStream paper, equation 3). With
u = i − a and y = xᵢ − xₐ, step i lies |u·s − y| from the line of slope s, so steps on one side of it are
those whose own slope y/u is on one side of s. A search tree of the steps by slope, with the sums of u and of
y below each node, gives the score of each further b in O(log n). Slopes are compared as y·u′ against y′·u, in
integers, so every score is exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel

# columns of a node
RISE = 0  # y
RUN = 1  # u
LEFT = 2
RIGHT = 3
RISES = 4  # the sum of y over the node and all below it
RUNS = 5  # the sum of u
RANK = 6  # nodes of higher rank stand above: a treap, balanced because ranks look random
NODE = 7


@kernel
def _rank(number: int) -> int:
    """A fixed hash of a step's number."""
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    rank: Any = np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))
    return int(rank)


@kernel
def _add_up(nodes: Any, node: int) -> None:
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    rises, runs = nodes[node, RISE], nodes[node, RUN]
    if left >= 0:
        rises += nodes[left, RISES]
        runs += nodes[left, RUNS]
    if right >= 0:
        rises += nodes[right, RISES]
        runs += nodes[right, RUNS]
    nodes[node, RISES] = rises
    nodes[node, RUNS] = runs


@kernel
def insert(nodes: Any, path: Any, root: int, new: int, rise: int, run: int) -> int:
    """Put a step into the tree as node `new`; returns the root."""
    rank = _rank(run)
    nodes[new, RISE], nodes[new, RUN], nodes[new, RANK] = rise, run, rank
    parent, side, node = -1, RIGHT, root
    while node >= 0 and nodes[node, RANK] >= rank:
        nodes[node, RISES] += rise
        nodes[node, RUNS] += run
        parent, side = node, (RIGHT if nodes[node, RISE] * run <= rise * nodes[node, RUN] else LEFT)
        node = nodes[node, side]
    # what stood here is split by slope into the two sides of the new node
    lower, lower_side, upper, upper_side, top = new, LEFT, new, RIGHT, 0
    while node >= 0:
        path[top] = node
        top += 1
        if nodes[node, RISE] * run <= rise * nodes[node, RUN]:
            nodes[lower, lower_side] = node
            lower, lower_side = node, RIGHT
        else:
            nodes[upper, upper_side] = node
            upper, upper_side = node, LEFT
        node = nodes[node, RIGHT] if lower == node else nodes[node, LEFT]
    nodes[lower, lower_side] = -1
    nodes[upper, upper_side] = -1
    while top > 0:
        top -= 1
        _add_up(nodes, path[top])
    _add_up(nodes, new)
    if parent < 0:
        return new
    nodes[parent, side] = new
    return root


@kernel
def score(nodes: Any, root: int, rise: int, run: int) -> int:
    """run · Σ|line − x| over the steps in the tree, for the line that rises by `rise` over `run` steps."""
    if root < 0:
        return 0
    rises, runs = 0, 0  # of the steps below the line or on it
    node = root
    while node >= 0:
        if nodes[node, RISE] * run <= rise * nodes[node, RUN]:
            left = nodes[node, LEFT]
            rises += nodes[node, RISE]
            runs += nodes[node, RUN]
            if left >= 0:
                rises += nodes[left, RISES]
                runs += nodes[left, RUNS]
            node = nodes[node, RIGHT]
        else:
            node = nodes[node, LEFT]
    below = rise * runs - run * rises
    above = run * (nodes[root, RISES] - rises) - rise * (nodes[root, RUNS] - runs)
    found: int = below + above
    return found


# what the sampler remembers within a period
POSITION = 0  # of the last step seen, from 1; 0 before any
TAKEN = 1  # samples so far
START = 2  # the position of the last sample
LIMIT = 3  # the noisy threshold
MEMORY = 4


class Rule(NamedTuple):
    """What is public and stays as it is."""

    samples: int  # of a period
    length: int  # steps of a period
    bound: int  # values are clipped to it for the scores


class Memory(NamedTuple):
    """The arrays that a sampler keeps; of several groups one entry a group, but for the path."""

    counts: Any  # as named above
    values: Any  # the steps since the last sample
    nodes: Any  # of the search trees, one a column
    roots: Any
    path: Any  # room for the way to a node


@kernel
def choose_steps(rows: Any, noise: Any, rule: Any, memory: Any, chosen: Any) -> None:
    """Algorithm 3 on some steps of one period: which of them are samples.

    The first and the last step always are; a step between them is if its noisy score since the last sample
    reaches the noisy threshold, or if all that are left are needed.
    """
    samples, length, bound = Rule(*rule)
    counts, values, nodes, roots, path = Memory(*memory)
    columns = rows.shape[1]
    for index in range(rows.shape[0]):
        counts[POSITION] += 1
        position, left = counts[POSITION], samples - counts[TAKEN]
        run = position - counts[START]
        if position == 1 or position == length:
            hit = True
        elif left == 1:
            hit = False  # the last one is kept for the end of the period
        elif length - position + 1 <= left:
            hit = True
        else:
            total = 0
            for column in range(columns):
                value = min(max(rows[index, column], -bound), bound)
                total += score(nodes[column], roots[column], value - values[0, column], run)
            hit = total // run + noise[index] >= counts[LIMIT]
        chosen[index] = hit
        if hit:
            counts[TAKEN] += 1
            counts[START] = position
            roots[:] = -1
            run = 0
        elif left == 1:
            continue
        for column in range(columns):
            value = min(max(rows[index, column], -bound), bound)
            values[run, column] = value
            if not hit:
                roots[column] = insert(
                    nodes[column], path, roots[column], run - 1, value - values[0, column], run
                )


@kernel
def choose_apart(rows: Any, noise: Any, rule: Any, memories: Any, chosen: Any) -> None:
    """The same for groups of columns, each with its own tests and samples (steps × groups), and its own memory."""
    counts, values, nodes, roots, path = Memory(*memories)
    steps, groups = chosen.shape
    columns = rows.shape[1] // groups
    own = np.empty((steps, columns), dtype=np.int64)
    draws, hits = np.empty(steps, dtype=np.int64), np.empty(steps, dtype=np.bool_)
    for group in range(groups):
        for step in range(steps):
            draws[step] = noise[step, group]
            for column in range(columns):
                own[step, column] = rows[step, group * columns + column]
        memory = (counts[group], values[group], nodes[group], roots[group], path)
        choose_steps(own, draws, rule, memory, hits)
        for step in range(steps):
            chosen[step, group] = hits[step]


@kernel
def rebuild(values: Any, count: int, nodes: Any, roots: Any, path: Any) -> None:
    """The search trees of the steps since the last sample, values[1] to values[count − 1]."""
    for column in range(values.shape[1]):
        roots[column] = -1
        for run in range(1, count):
            rise = values[run, column] - values[0, column]
            roots[column] = insert(nodes[column], path, roots[column], run - 1, rise, run)


@kernel
def segment_costs(profile: Any, costs: Any) -> None:
    """costs[a, b] = Σ|line − x| between the positions a and b of a profile (positions × columns), added up."""
    positions, columns = profile.shape
    nodes = np.empty((positions, NODE), dtype=np.int64)
    path = np.empty(positions, dtype=np.int64)
    for column in range(columns):
        for a in range(positions - 1):
            root = -1
            for b in range(a + 1, positions):
                run, rise = b - a, profile[b, column] - profile[a, column]
                costs[a, b] += score(nodes, root, rise, run) / run
                root = insert(nodes, path, root, run - 1, rise, run)


@kernel
def cheapest_paths(costs: Any, most: int, best: Any, came: Any) -> None:
    """best[k, b]: the least cost of k segments from position 0 to b, and the position that the last one came from."""
    positions = costs.shape[0]
    best[:] = np.inf
    best[0, 0] = 0.0
    for k in range(1, most + 1):
        for b in range(k, positions):
            for a in range(k - 1, b):
                cost = best[k - 1, a] + costs[a, b]
                if cost < best[k, b]:
                    best[k, b] = cost
                    came[k, b] = a
