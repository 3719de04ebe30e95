"""Compiled least squares on a tree of sums: each inner node is the sum of what is below it, nothing is negative.

Minimise Σᵢ (xᵢ − tᵢ)²/vᵢ + Σₙ pₙ·(Xₙ − cₙ)² over x ≥ 0, where Xₙ is the sum of the leaves below node n. With λₙ the
sum of pₘ·(Xₘ − cₘ) over n and all nodes above it, the optimum has xᵢ = max(0, tᵢ − vᵢ·λ) with the λ of the leaf's own
node. While the leaves that are not zero are known, this is linear, and two passes over the tree solve it. Leaves that
come out negative are set to zero for good, and the passes repeated. The λ only grow from one round to the next
(docs/proofs/feature_trees.md), so the first round without a negative leaf is the optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def solve_tree(
    targets: Any,
    variances: Any,
    node_of: Any,
    parents: Any,
    wanted: Any,
    precisions: Any,
    nonnegative: bool,
    free: Any,
    room: Any,
    out: Any,
) -> None:
    """One problem. Nodes stand before their parents; a leaf or node without anything above it has −1 there.

    `free` (leaves) and `room` (3 × nodes) are scratch.
    """
    leaves, nodes = targets.size, parents.size
    reach, total, multiplier = room[0], room[1], room[2]
    free[:] = True
    while True:
        reach[:] = 0.0
        total[:] = 0.0
        for leaf in range(leaves):
            node = node_of[leaf]
            if free[leaf] and node >= 0:
                reach[node] += variances[leaf]
                total[node] += targets[leaf]
        for node in range(
            nodes
        ):  # X = total − reach·λ for the free leaves below; now as a line in the parent's λ
            shrink = 1.0 / (1.0 + precisions[node] * reach[node])
            parent = parents[node]
            if parent >= 0:
                reach[parent] += reach[node] * shrink
                total[parent] += (total[node] + reach[node] * precisions[node] * wanted[node]) * shrink
        for node in range(nodes - 1, -1, -1):
            above = multiplier[parents[node]] if parents[node] >= 0 else 0.0
            shrink = 1.0 / (1.0 + precisions[node] * reach[node])
            multiplier[node] = (above + precisions[node] * (total[node] - wanted[node])) * shrink
        again = False
        for leaf in range(leaves):
            if not free[leaf]:
                continue
            node = node_of[leaf]
            value = targets[leaf] - (variances[leaf] * multiplier[node] if node >= 0 else 0.0)
            if nonnegative and value < 0.0:
                free[leaf] = False
                value = 0.0
                again = again or node >= 0
            out[leaf] = value
        if not again:
            return


@kernel
def interpolate(known: Any, segment: Any, weights: Any, out: Any) -> None:
    """A curve through known points: four neighbouring points with public weights for each step."""
    last = known.size - 1
    for step in range(out.size):
        at = segment[step]
        before = known[max(at - 1, 0)]
        after = known[min(at + 2, last)]
        inner = weights[step, 1] * known[at] + weights[step, 2] * known[min(at + 1, last)]
        out[step] = inner + weights[step, 0] * before + weights[step, 3] * after


@kernel
def finish_periods(
    known: Any,
    segment: Any,
    weights: Any,
    sums: Any,
    node_of: Any,
    parents: Any,
    precisions: Any,
    variances: Any,
    nonnegative: bool,
    out: Any,
) -> None:
    """Reconstruct and post-process: known (periods, points, columns), sums (periods, nodes, columns)."""
    periods, _, columns = known.shape
    length, nodes = segment.size, parents.size
    curve, result = np.empty(length), np.empty(length)
    free, room = np.empty(length, dtype=np.bool_), np.empty((3, nodes))
    for period in range(periods):
        for column in range(columns):
            interpolate(known[period, :, column], segment, weights, curve)
            solve_tree(
                curve,
                variances,
                node_of,
                parents,
                sums[period, :, column],
                precisions,
                nonnegative,
                free,
                room,
                result,
            )
            for step in range(length):
                out[period, step, column] = result[step]


@kernel
def reconcile(
    values: Any,
    leaves: int,
    node_of: Any,
    parents: Any,
    precisions: Any,
    variances: Any,
    nonnegative: bool,
    out: Any,
) -> None:
    """The leaves of a hierarchy (rows × leaves) from measurements of all its nodes.

    `values` has the leaves first and then the inner nodes, each before its parent.
    """
    free, room = np.empty(leaves, dtype=np.bool_), np.empty((3, parents.size))
    for row in range(values.shape[0]):
        measured = values[row]
        solve_tree(
            measured[:leaves],
            variances,
            node_of,
            parents,
            measured[leaves:],
            precisions,
            nonnegative,
            free,
            room,
            out[row],
        )


@kernel
def nonnegative_together(
    best: Any,
    coupling: Any,
    node_of: Any,
    parents: Any,
    precisions: Any,
    variances: Any,
    tolerance: float,
    out: Any,
) -> None:
    """The non-negative streams (steps × leaves) nearest to `best` in the norm coupling ⊗ (the tree's norm).

    Leaf after leaf is optimised exactly with the others held, which converges because the norm is strictly convex.
    """
    length, leaves = best.shape
    nodes = parents.size
    free, room, wanted = np.empty(length, dtype=np.bool_), np.empty((3, nodes)), np.empty(nodes)
    targets, result = np.empty(length), np.empty(length)
    out[:] = np.maximum(best, 0.0)
    size = np.abs(best).max()
    for _ in range(100_000):
        moved = 0.0
        for leaf in range(leaves):
            for step in range(length):
                pull = 0.0
                for other in range(leaves):
                    if other != leaf:
                        pull += coupling[leaf, other] * (out[step, other] - best[step, other])
                targets[step] = best[step, leaf] - pull / coupling[leaf, leaf]
            wanted[:] = 0.0
            for step in range(length):
                node = node_of[step]
                while node >= 0:
                    wanted[node] += targets[step]
                    node = parents[node]
            solve_tree(targets, variances, node_of, parents, wanted, precisions, True, free, room, result)
            for step in range(length):
                moved = max(moved, abs(result[step] - out[step, leaf]))
                out[step, leaf] = result[step]
        if moved <= tolerance * size:
            return
