"""Ordered multisets of integers in plain arrays: insert, sum up to a limit, pick by rank, all O(log n).

Many sets share one pool of nodes; a set is the index of its root, 0 for the empty set. The trees are height
balanced (Adelson-Velsky and Landis), so the bounds hold for every order of insertion. Equal keys share a node
and add their counts. A cleared set gives its nodes back to the pool, wiped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import lean

# columns of a node; row 0 is the empty tree
KEY = 0
COUNT = 1  # the weight of this key
LEFT = 2
RIGHT = 3
HEIGHT = 4
WEIGHT = 5  # of the whole subtree
TOTAL = 6  # Σ key · count of the whole subtree; wraps around where it does not fit, and is then not used
WIDTH = 8  # one cache line

# positions in `pool`
FREE = 0  # first node of the chain of free nodes, linked by LEFT
FRESH = 1  # first node never used
USED = 2
POOL = 3

DEEPEST = 64  # a height-balanced tree of 2^44 nodes is less deep


@lean
def _pull(nodes: Any, at: int) -> None:
    """Recompute what a node knows about its subtree."""
    left = nodes[at, LEFT]
    right = nodes[at, RIGHT]
    nodes[at, HEIGHT] = 1 + max(nodes[left, HEIGHT], nodes[right, HEIGHT])
    nodes[at, WEIGHT] = nodes[at, COUNT] + nodes[left, WEIGHT] + nodes[right, WEIGHT]
    nodes[at, TOTAL] = nodes[at, COUNT] * nodes[at, KEY] + nodes[left, TOTAL] + nodes[right, TOTAL]


@lean
def _rotate(nodes: Any, at: int, up: int, down: int) -> int:
    """Lift the child on side `up` above its parent; returns it."""
    child = nodes[at, up]
    nodes[at, up] = nodes[child, down]
    nodes[child, down] = at
    _pull(nodes, at)
    _pull(nodes, child)
    return child  # type: ignore[no-any-return]


@lean
def _balance(nodes: Any, at: int) -> int:
    """Restore the balance of one node; returns the root of its subtree."""
    lean = nodes[nodes[at, LEFT], HEIGHT] - nodes[nodes[at, RIGHT], HEIGHT]
    if lean > 1:
        child = nodes[at, LEFT]
        if nodes[nodes[child, LEFT], HEIGHT] < nodes[nodes[child, RIGHT], HEIGHT]:
            nodes[at, LEFT] = _rotate(nodes, child, RIGHT, LEFT)
        return _rotate(nodes, at, LEFT, RIGHT)
    if lean < -1:
        child = nodes[at, RIGHT]
        if nodes[nodes[child, RIGHT], HEIGHT] < nodes[nodes[child, LEFT], HEIGHT]:
            nodes[at, RIGHT] = _rotate(nodes, child, LEFT, RIGHT)
        return _rotate(nodes, at, RIGHT, LEFT)
    _pull(nodes, at)
    return at


@lean
def insert(nodes: Any, pool: Any, path: Any, root: int, key: int, count: int) -> int:
    """Add `count` copies of a key; returns the new root. The caller made sure of a free node."""
    depth = 0
    at = root
    while at != 0 and nodes[at, KEY] != key:
        path[depth] = at
        depth += 1
        at = nodes[at, LEFT] if key < nodes[at, KEY] else nodes[at, RIGHT]
    if at != 0:
        nodes[at, COUNT] += count
        path[depth] = at
        for index in range(depth + 1):
            nodes[path[index], WEIGHT] += count
            nodes[path[index], TOTAL] += count * key
        return root
    at = pool[FREE]
    if at != 0:
        pool[FREE] = nodes[at, LEFT]
    else:
        at = pool[FRESH]
        pool[FRESH] += 1
    pool[USED] += 1
    nodes[at, KEY] = key
    nodes[at, COUNT] = count
    nodes[at, LEFT] = 0
    nodes[at, RIGHT] = 0
    _pull(nodes, at)
    for index in range(depth - 1, -1, -1):
        parent = path[index]
        if key < nodes[parent, KEY]:
            nodes[parent, LEFT] = at
        else:
            nodes[parent, RIGHT] = at
        at = _balance(nodes, parent)
    return at


@lean
def up_to(nodes: Any, root: int, limit: int) -> Any:
    """(weight, total) of all keys that are at most the limit."""
    weight = np.int64(0)
    total = np.int64(0)
    at = root
    while at != 0:
        if nodes[at, KEY] <= limit:
            left = nodes[at, LEFT]
            weight += nodes[at, COUNT] + nodes[left, WEIGHT]
            total += nodes[at, COUNT] * nodes[at, KEY] + nodes[left, TOTAL]
            at = nodes[at, RIGHT]
        else:
            at = nodes[at, LEFT]
    return weight, total


@lean
def pick(nodes: Any, root: int, rank: int) -> int:
    """The least key up to which the weights sum to at least the rank, which is from 1 to the whole weight."""
    at = root
    while True:
        left = nodes[at, LEFT]
        if rank <= nodes[left, WEIGHT]:
            at = left
        elif rank <= nodes[left, WEIGHT] + nodes[at, COUNT]:
            return nodes[at, KEY]  # type: ignore[no-any-return]
        else:
            rank -= nodes[left, WEIGHT] + nodes[at, COUNT]
            at = nodes[at, RIGHT]


@lean
def clear(nodes: Any, pool: Any, path: Any, root: int) -> None:
    """Give all nodes of a set back, wiped."""
    depth = 0
    at = root
    while at != 0 or depth > 0:
        if at == 0:
            depth -= 1
            at = path[depth]
            continue
        left = nodes[at, LEFT]
        right = nodes[at, RIGHT]
        for column in range(WIDTH):
            nodes[at, column] = 0
        nodes[at, LEFT] = pool[FREE]
        pool[FREE] = at
        pool[USED] -= 1
        if right != 0 and left != 0:
            path[depth] = right
            depth += 1
            at = left
        else:
            at = left + right


@lean
def listing(nodes: Any, path: Any, root: int, keys: Any, counts: Any) -> int:
    """Write the keys in ascending order with their counts; returns how many there are."""
    found = 0
    depth = 0
    at = root
    while at != 0 or depth > 0:
        while at != 0:
            path[depth] = at
            depth += 1
            at = nodes[at, LEFT]
        depth -= 1
        at = path[depth]
        keys[found] = nodes[at, KEY]
        counts[found] = nodes[at, COUNT]
        found += 1
        at = nodes[at, RIGHT]
    return found


@lean
def listings(nodes: Any, path: Any, roots: Any, keys: Any, counts: Any, sizes: Any) -> int:
    """The same for several sets, one behind the other, with the size of each; returns how many keys there are."""
    found = 0
    for at in range(roots.size):
        sizes[at] = listing(nodes, path, roots[at], keys[found:], counts[found:])
        found += sizes[at]
    return found


@lean
def median(nodes: Any, root: int) -> float:
    """The middle of a set by weight; halfway between the two middle keys where there are two."""
    weight = nodes[root, WEIGHT]
    lower = pick(nodes, root, (weight + 1) // 2)
    if weight % 2 == 1:
        return np.float64(lower)
    return 0.5 * (np.float64(lower) + np.float64(pick(nodes, root, weight // 2 + 1)))


@lean
def deviation(nodes: Any, root: int, size: int, total: int) -> int:
    """⌊Σ|c − mean|⌋ of a set of integers without weights, in integer arithmetic.

    Deviations below and above the mean are equal, so the sum is 2·(k·mean − A) with k keys up to the mean and
    their sum A. The mean is written as ⌊mean⌋ + rest/size.
    """
    mean = total // size
    rest = total - mean * size
    k, below = up_to(nodes, root, mean)
    return 2 * (k * mean - below) + (2 * k * rest) // size  # type: ignore[no-any-return]
