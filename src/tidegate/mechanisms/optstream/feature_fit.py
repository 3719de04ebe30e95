"""Fit curves to the sums of features: the non-negative curve nearest to samples and sums, weighted (Algorithm 4).

Minimise Σᵢ (xᵢ − tᵢ)²/vᵢ + Σₙ pₙ·(Xₙ − cₙ)² over the steps x ≥ 0 of a period, Xₙ being the sum over part n. Written in
the steps alone, sums of parts agree with each other whatever the features have in common: the paper's constraints O2 hold
by themselves, for any partial order of the features. Nested features are a tree, which a compiled kernel solves in two
passes; others are a dense problem of as many unknowns as a period has steps.

The tree (`solve_tree`): each inner node is the sum of what is below it, and nothing is negative. With λₙ the sum of
pₘ·(Xₘ − cₘ) over n and all nodes above it, the optimum has xᵢ = max(0, tᵢ − vᵢ·λ) with the λ of the leaf's own node.
While the leaves that are not zero are known, this is linear, and two passes over the tree solve it. Leaves that come out
negative are set to zero for good, and the passes repeated. The λ only grow from one round to the next
(docs/proofs/feature_trees.md), so the first round without a negative leaf is the optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.mechanisms.optstream.feature_trees import FeatureTree
from tidegate.mechanisms.optstream.reconstruction import Reconstruction

Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-12  # of the optimum under non-negativity, relative to the largest value


def fit_features(
    tree: FeatureTree,
    curve: Reconstruction,
    variances: Floats,
    precisions: Floats,
    known: Floats,
    sums: Floats,
    nonnegative: bool,
) -> Floats:
    """The curves of periods (periods × steps × columns) from their points and noised sums.

    `known` are points (periods × points × columns), `sums` the sums of the parts (periods × parts × columns).
    """
    length = len(curve.segment)
    if not tree.nested:
        targets = np.einsum("sp,npc->nsc", curve.matrix, known)
        return _fit_any(tree.until(length).members, targets, variances, precisions, sums, nonnegative)
    fitted = np.empty((len(known), length, known.shape[2]))
    finish_periods(
        known,
        curve.segment,
        curve.weights,
        sums,
        tree.node_of[:length],
        tree.parents,
        precisions,
        variances,
        nonnegative,
        fitted,
    )
    return fitted


def norm_of(members: Floats, variances: Floats, precisions: Floats) -> Floats:
    """The matrix of the quadratic form that is minimised (steps × steps)."""
    matrix: Floats = members.T @ (precisions[:, np.newaxis] * members)
    matrix[np.diag_indices_from(matrix)] += 1.0 / variances
    return matrix


def _fit_any(
    members: Floats,
    targets: Floats,
    variances: Floats,
    precisions: Floats,
    sums: Floats,
    nonnegative: bool,
) -> Floats:
    """The same for features in any partial order; the sign is looked after where a step comes out negative."""
    from scipy.linalg import cho_solve, cholesky, solve_triangular  # slow to import, needed here only

    wanted = targets / variances[:, np.newaxis] + np.einsum("ns,n,pnc->psc", members, precisions, sums)
    root = cholesky(norm_of(members, variances, precisions), lower=True)
    steps = wanted.transpose(1, 0, 2).reshape(len(root), -1)
    fitted = cho_solve((root, True), steps)
    for column in np.flatnonzero((fitted < 0).any(axis=0)) if nonnegative else ():
        fitted[:, column] = nearest_nonnegative(root, solve_triangular(root, steps[:, column], lower=True))
    return np.ascontiguousarray(fitted.reshape(len(root), len(targets), -1).transpose(1, 0, 2))


def nearest_nonnegative(root: Floats, point: Floats) -> Floats:
    """The x ≥ 0 that minimises ‖rootᵀ·x − point‖."""
    from scipy.optimize import nnls

    found: Floats = nnls(np.ascontiguousarray(root.T), point, maxiter=50 * len(point))[0]
    return found


def nonnegative_leaves(best: Floats, coupling: Floats, norm: Floats, tolerance: float) -> Floats:
    """The non-negative streams (steps × leaves) nearest to `best` in the norm coupling ⊗ norm.

    Leaf after leaf is optimised with the others held, which converges because the norm is strictly convex.
    """
    from scipy.linalg import cholesky

    root = cholesky(norm, lower=True)
    streams, size = np.maximum(best, 0.0), float(np.abs(best).max())
    others = coupling / coupling.diagonal()[:, np.newaxis] - np.eye(len(coupling))
    for _ in range(100_000):
        moved = 0.0
        for leaf, pulls in enumerate(others):
            target = best[:, leaf] - (streams - best) @ pulls
            found = nearest_nonnegative(root, root.T @ target)
            moved = max(moved, float(np.abs(found - streams[:, leaf]).max()))
            streams[:, leaf] = found
        if moved <= tolerance * size:
            break
    return streams


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
    size = 0.0
    for step in range(length):
        for leaf in range(leaves):
            out[step, leaf] = max(best[step, leaf], 0.0)
            size = max(size, abs(best[step, leaf]))
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
