"""Fit curves to the sums of features: the non-negative curve nearest to samples and sums, weighted (Algorithm 4).

Minimise Σᵢ (xᵢ − tᵢ)²/vᵢ + Σₙ pₙ·(Xₙ − cₙ)² over the steps x ≥ 0 of a period, Xₙ being the sum over part n. Written in
the steps alone, sums of parts agree with each other whatever the features have in common: the paper's constraints O2 hold
by themselves, for any partial order of the features. Nested features are a tree, which a compiled kernel solves in two
passes; others are a dense problem of as many unknowns as a period has steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.optstream.feature_trees import FeatureTree
from tidegate.mechanisms.optstream.kernels import features as solver
from tidegate.mechanisms.optstream.reconstruction import Reconstruction

Floats = npt.NDArray[np.float64]


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
    solver.finish_periods(
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
