"""Features of a period, and the least-squares problem on their tree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tidegate.errors import InvalidParameter
from tidegate.mechanisms.optstream.feature_fit import fit_features, solve_tree
from tidegate.mechanisms.optstream.feature_trees import (
    FeatureTree,
    equal_parts,
    parts,
    parts_of_day,
    read_features,
    whole_period,
)
from tidegate.mechanisms.optstream.opt_stream import add_to_sums
from tidegate.mechanisms.optstream.reconstruction import Reconstruction

EXAMPLE_3 = np.array([10, 15, 20, 23, 41, 72, 55, 50, 88, 72, 40, 18])


def test_example_3_of_the_paper():
    """The sums of morning, afternoon and evening are 68, 306 and 130."""
    tree = FeatureTree.grow(read_features([parts(12, [4, 9, 12]), whole_period(12)], 12), 12)
    sums = np.zeros((4, 1), dtype=np.int64)
    add_to_sums(EXAMPLE_3[:, None], 0, tree.labels, sums)
    assert sums[:, 0].tolist() == [68, 306, 130, 504]
    assert tree.parents.tolist() == [3, 3, 3, -1]
    assert tree.size.tolist() == [4, 5, 3, 12]


def test_the_papers_parts_of_the_day():
    """The intervals [0, 14), [14, 24), [24, 36) and [36, 48) of section 6."""
    assert [part[0] - 1 for part in parts_of_day(48)] == [0, 14, 24, 36]
    assert [len(part) for part in equal_parts(10, 4)] == [3, 2, 3, 2]


@st.composite
def problems(draw):
    """A random nested tree with targets of both signs, and weights over several orders of magnitude."""
    w = draw(st.integers(1, 30))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    labels, features = np.arange(w), []
    for _ in range(draw(st.integers(0, 3))):
        merged = rng.integers(0, max(1, int(labels.max())), labels.max() + 1)
        labels = np.unique(merged[labels], return_inverse=True)[1]
        features.append(tuple(tuple(np.flatnonzero(labels == part) + 1) for part in range(labels.max() + 1)))
    tree = FeatureTree.grow(read_features(features, w), w)
    nodes = len(tree.parents)
    scale = 10.0 ** rng.uniform(-4, 4)
    return (
        tree, rng.normal(1, 10, w), rng.uniform(0.1, 10, w) * scale, rng.normal(5, 30, nodes), rng.uniform(0.01, 5, nodes)
    )  # fmt: skip


def solve(problem, nonnegative=True):
    """What the kernel finds."""
    tree, targets, variances, wanted, precisions = problem
    w, nodes = len(targets), len(wanted)
    out = np.empty(w)
    solve_tree(
        targets, variances, tree.node_of, tree.parents, wanted, precisions, nonnegative,
        np.empty(w, dtype=bool), np.empty((3, nodes)), out,
    )  # fmt: skip
    return out


@settings(max_examples=300)
@given(problems())
def test_the_solver_agrees_with_nnls(problem):
    """On random trees the kernel and scipy's active-set method agree to 1e-8 of the largest value."""
    tree, targets, variances, wanted, precisions = problem
    rows = [np.sqrt(p) * (tree.labels == node).any(axis=0) for node, p in enumerate(precisions)]
    matrix = np.vstack([np.diag(variances**-0.5), *rows])
    right = np.concatenate([targets * variances**-0.5, wanted * precisions**0.5])
    expected = nnls(matrix, right, maxiter=10_000)[0]
    assert np.abs(solve(problem) - expected).max() <= 1e-8 * max(1e-9, np.abs(expected).max())


@settings(max_examples=100)
@given(problems())
def test_without_a_sign_the_gradient_vanishes(problem):
    """The unconstrained optimum satisfies the normal equations."""
    tree, targets, variances, wanted, precisions = problem
    x = solve(problem, nonnegative=False)
    gradient, size = (x - targets) / variances, np.abs(targets / variances)
    for node, precision in enumerate(precisions):
        below = (tree.labels == node).any(axis=0)
        gradient = gradient + precision * below * (x[below].sum() - wanted[node])
        size = size + precision * below * (np.abs(x[below]).sum() + abs(wanted[node]))
    assert (np.abs(gradient) <= 1e-9 * size + 1e-12).all()


@pytest.mark.parametrize(
    "features",
    [
        [[[1, 2], [3]]],  # 4 is missing
        [[[1, 2], [2, 3, 4]]],  # 2 twice
        [[[1, 2], [], [3, 4]]],  # an empty part
        [[[0, 1, 2, 3]]],  # positions begin at 1
    ],
)
def test_what_is_not_a_partition_is_refused(features):
    """Each wrong list of features is one sentence."""
    with pytest.raises(InvalidParameter) as refused:
        read_features(features, 4)
    assert len(str(refused.value).splitlines()) == 1


def test_features_may_be_listed_in_any_order():
    """A chain is found whichever feature comes first; features without one are no tree."""
    fine, coarse, across = equal_parts(4, 2), whole_period(4), ((1, 3), (2, 4))
    assert read_features([coarse, fine], 4) == (fine, coarse)
    assert FeatureTree.grow(read_features([coarse, fine], 4), 4).nested
    assert not FeatureTree.grow(read_features([fine, across, coarse], 4), 4).nested


@st.composite
def crossing(draw):
    """A period with features in no order at all, points and sums of both signs."""
    w, seed = draw(st.integers(2, 20)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    features = []
    for _ in range(draw(st.integers(2, 4))):
        labels = np.unique(rng.integers(0, 4, w), return_inverse=True)[1]
        features.append(tuple(tuple(np.flatnonzero(labels == part) + 1) for part in range(labels.max() + 1)))
    tree = FeatureTree.grow(read_features(features, w), w)
    times = np.sort(rng.choice(np.arange(1, w), size=rng.integers(0, w - 1), replace=False))
    curve = Reconstruction.through(np.append(times, w).astype(np.int64), w)
    known = rng.normal(1, 10, (2, curve.points, 3))
    variances, precisions = rng.uniform(0.1, 10, w), rng.uniform(0.01, 5, len(tree.level))
    return tree, curve, variances, precisions, known, rng.normal(5, 30, (2, len(tree.level), 3))


@settings(max_examples=100)
@given(crossing(), st.booleans())
def test_features_in_any_partial_order_are_fitted(problem, nonnegative):
    """Against one dense least-squares problem over the steps and, as printed, over the steps and all parts (O2)."""
    tree, curve, variances, precisions, known, sums = problem
    fitted = fit_features(tree, curve, variances, precisions, known, sums, nonnegative)
    members = tree.members
    matrix = np.vstack([np.diag(variances**-0.5), precisions[:, None] ** 0.5 * members])
    for period, column in np.ndindex(2, 3):
        drawn = curve.apply(known[period, :, column])
        right = np.concatenate([drawn * variances**-0.5, sums[period, :, column] * precisions**0.5])
        solve_it = nnls if nonnegative else lambda a, b: np.linalg.lstsq(a, b, rcond=None)
        expected = solve_it(matrix, right)[0]
        assert np.abs(fitted[period, :, column] - expected).max() <= 1e-7 * max(1e-9, np.abs(expected).max())


def distance(members, sizes, steps, sums, truth):
    """‖(steps, sums) − (truth, its sums)‖ in the norm of Theorem 12: 1 over the size of its feature for each part."""
    return np.sqrt(((steps - truth) ** 2).sum() / len(truth) + ((sums - members @ truth) ** 2 / sizes).sum())


@settings(max_examples=150)
@given(crossing())
def test_theorem_12_holds_and_two_may_be_one(problem):
    """‖x* − x‖ ≤ 2‖x̃ − x‖ in the printed weights; and ‖x̃ − x‖ will do, x* being a projection."""
    tree, curve, _, _, known, sums = problem
    w, members = tree.labels.shape[1], tree.members
    sizes = np.bincount(tree.level)[tree.level].astype(float)
    truth = np.abs(curve.apply(known[1, :, 0]))
    steps = fit_features(tree, curve, np.full(w, float(w)), 1 / sizes, known[:1], sums[:1], True)[0, :, 0]
    noisy = curve.apply(known[0, :, 0])
    before = distance(members, sizes, noisy, sums[0, :, 0], truth)
    assert distance(members, sizes, steps, members @ steps, truth) <= before * (1 + 1e-9)


def test_wrong_ends_of_parts_are_refused():
    """Parts end in order, the last one with the period."""
    for ends in ([4, 2, 12], [4, 4, 12], [4, 9], [0, 12]):
        with pytest.raises(InvalidParameter):
            parts(12, ends)
