"""HierarchicalOptStream: one optimum over nodes and features, parts that add up, and what paths lose."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from tests.mechanisms.chances import sample_chances

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import HierarchicalOptStream, OptStream
from tidegate.mechanisms.optstream.feature_trees import equal_parts, parts_of_day, whole_period
from tidegate.queries import Hierarchy
from tidegate.testing.entropy import fixed_entropy, zero_noise

RAGGED = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b"])
REGIONS = Hierarchy.from_parents({"all": None, **{f"r{number}": "all" for number in range(12)}})
W = 6


def joint_problem(mechanism, noisy, sums):
    """The whole weighted least-squares problem over leaves × steps, as a dense matrix."""
    curve, variances, precisions = mechanism.weights_at(mechanism.sample_times, W)
    points = np.vstack([noisy[:1], noisy]).astype(float)
    drawn, shares = curve.matrix @ points, [float(share) for share in mechanism.node_shares]
    matrix, right = [], []
    leaves = mechanism.forest.leaves
    for column, node in enumerate(mechanism.order):
        below = np.array([float(node in mechanism.forest.path(leaf)) for leaf in leaves])
        for step in range(W):
            row = np.zeros((W, len(leaves)))
            row[step] = below
            matrix.append(row.ravel() * shares[column] / variances[step] ** 0.5)
            right.append(drawn[step, column] * shares[column] / variances[step] ** 0.5)
        for part, precision in enumerate(precisions):
            row = np.outer((mechanism.tree.labels == part).any(axis=0), below)
            matrix.append(row.ravel() * shares[column] * precision**0.5)
            right.append(sums[part, column] * shares[column] * precision**0.5)
    return np.array(matrix), np.array(right)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 60), min_size=4 * W, max_size=4 * W),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([whole_period(W), ((1, 3, 5), (2, 4, 6))]),
)
def test_the_release_is_the_joint_optimum(values, nonnegative, seed, second):
    """Leaves first and curves afterwards is the optimum of nodes × features; with a sign it agrees with nnls."""
    mechanism = HierarchicalOptStream(
        tg.WEvent(epsilon="1", window=W), hierarchy=RAGGED, samples=3, levels=(1, 2, 3), nonnegative=nonnegative,
        features=(equal_parts(W, 2), second),
    )  # fmt: skip
    seen, leaves = [], mechanism._leaves
    mechanism.__dict__["_leaves"] = lambda noisy: (seen.append(noisy.copy()), leaves(noisy))[1]
    with fixed_entropy(seed):
        final = Session(mechanism).push_batch(np.array(values).reshape(W, 4)).final.values
    noisy, sums = seen  # of the samples, and of the parts of features
    matrix, right = joint_problem(mechanism, noisy, sums)
    dense = np.linalg.lstsq(matrix, right, rcond=None)[0]
    expected = nnls(matrix, right, maxiter=10_000)[0] if nonnegative else dense
    found = final[:, list(RAGGED.leaves)].ravel()
    assert np.abs(found - expected).max() <= 1e-8 * max(1e-9, np.abs(expected).max())


@pytest.mark.parametrize("level", [0, 40, 5000])
@pytest.mark.parametrize("causal", ["hold", "line", "last period"])
def test_leaves_add_up_to_their_parents_at_every_step(level, causal):
    """Both answers are consistent to 1e-9, and nothing is negative."""
    mechanism = HierarchicalOptStream(
        tg.WEvent(epsilon="1", window=48), hierarchy=REGIONS, samples=6, features=(parts_of_day(48), whole_period(48)),
        causal=causal, nonnegative=True,
    )  # fmt: skip
    rows = np.rint(level * (1 + 0.3 * np.sin(np.arange(96 * 12).reshape(96, 12) / 40))).astype(np.int64)
    releases = Session(mechanism).push_batch(rows)
    for values in (releases.values, releases.final.values):
        assert values.shape == (96, 13)
        assert np.allclose(values[:, 0], values[:, 1:].sum(axis=1), rtol=1e-9)
        assert values.min() >= 0


def test_without_noise_the_leaves_are_those_of_opt_stream():
    """Consistent measurements stay as they are."""
    rows = np.arange(4 * 12).reshape(12, 4)
    with zero_noise():
        final = Session(HierarchicalOptStream(tg.WEvent(epsilon="1", window=12), hierarchy=RAGGED, samples=3))
        plain = Session(OptStream(tg.WEvent(epsilon="1", window=12), columns=4, samples=3))
        leaves = final.push_batch(rows).final.values[:, list(RAGGED.leaves)]
        assert np.allclose(leaves, plain.push_batch(rows).final.values)


def test_every_path_spends_the_whole_budget_and_no_more():
    """Units may move between leaves: at each step their change costs what one path costs, which is the step's charge."""
    mechanism = HierarchicalOptStream(
        tg.WEvent(epsilon="1", window=12),
        hierarchy=RAGGED,
        samples=4,
        features=(whole_period(12),),
        levels=(1, 1, 2),
    )
    shares = dict(zip(mechanism.order.tolist(), mechanism.node_shares, strict=True))
    sample, total = (
        dict(zip(mechanism.order.tolist(), scales, strict=True))
        for scales in (mechanism.sample_scales, mechanism.sum_scales.reshape(1, -1)[0])
    )
    for leaf in RAGGED.leaves:
        path = RAGGED.path(leaf)
        assert sum(shares[node] for node in path) == 1
        lost = sum(4 / Fraction(float(sample[node])) + 12 / Fraction(float(total[node])) for node in path)
        assert Fraction(999, 1000) < lost <= 1


def moving_loss(mechanism, changes, times):
    """The loss of two periods for given changes of all leaves (2w × leaves) and samples: exact, apart from tests."""
    w, forest = mechanism.window, mechanism.forest
    nodes = np.abs(forest.sum(changes).reshape(2, w, -1)[:, :, mechanism.order])
    lost = sum(
        Fraction(int(moved)) / Fraction(float(scale))
        for moved, scale in zip(
            nodes[:, np.array(times) - 1].sum(axis=(0, 1)), mechanism.sample_scales, strict=True
        )
    )
    if mechanism.features:
        scales = mechanism.sum_scales.reshape(mechanism.sum_count, -1)
        signed = forest.sum(changes).reshape(2, w, -1)[:, :, mechanism.order]
        for level in mechanism.tree.labels:
            for part in np.unique(level):
                moved = np.abs(signed[:, level == part].sum(axis=1)).sum(axis=0)
                lost += sum(
                    Fraction(int(each)) / Fraction(float(scale))
                    for each, scale in zip(moved, scales[part], strict=True)
                )
    return lost


@pytest.mark.parametrize("mobility", ["moving", "fixed"])
@pytest.mark.parametrize("features", [(), (equal_parts(4, 2), whole_period(4))], ids=["", "features"])
def test_no_window_loses_more_than_epsilon(features, mobility):
    """Exact enumeration: a unit that is in any leaf at any step, with either sign, in every window of public times."""
    tree, w = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"}), 4
    mechanism = HierarchicalOptStream(
        tg.WEvent(epsilon="1", window=w, mobility=mobility), hierarchy=tree, samples=2, features=features,
        levels=(1, 2),
    )  # fmt: skip
    worst = Fraction(0)
    ways = list(product((0, 1), repeat=w)) if mobility == "moving" else [(0,) * w, (1,) * w]
    for first, leaves, signs in product(range(w), ways, product((-1, 1), repeat=w)):
        changes = np.zeros((2 * w, 2), dtype=np.int64)
        changes[range(first, first + w), leaves] = signs
        worst = max(worst, moving_loss(mechanism, changes, mechanism.sample_times))
    assert Fraction(999, 1000) < worst <= 1


def test_no_window_loses_more_than_epsilon_with_adaptive_samples():
    """The same for shared adaptive samples: the root's tests and everybody's samples, in every window."""
    tree, w = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"}), 5
    mechanism = HierarchicalOptStream(
        tg.WEvent(epsilon="2", window=w), hierarchy=tree, samples=3, adaptive=True, threshold=2
    )
    scales, stream, worst = mechanism.sample_scales, np.array((5, 9, 5, 9, 5)), 0.0
    # wherever a unit is, a sample moves one leaf and the root
    sample = 1 / scales[0] + 1 / scales[-1]
    for first, signs in product(range(w), product((-1, 1), repeat=w)):
        moved, lost = np.zeros(2 * w, dtype=np.int64), 0.0
        moved[first : first + w] = signs
        for steps in moved.reshape(2, w):
            one, other = (sample_chances(mechanism.sampling, x) for x in (stream, stream + steps))
            lost += max(
                math.log(one[times] / other[times]) + sample * np.abs(steps[np.array(times) - 1]).sum()
                for times in one
            )
        worst = max(worst, lost)
    assert 0.6 < worst <= 2


def test_more_levels_for_the_leaves_means_less_noise_there():
    """The budget of levels is the user's; roots pay for it."""
    equal, lower = (
        HierarchicalOptStream(tg.WEvent(epsilon="1", window=12), hierarchy=REGIONS, samples=3, levels=levels)
        for levels in (None, (1, 9))
    )
    assert lower.sample_scales[0] < equal.sample_scales[0]
    assert lower.sample_scales[-1] > equal.sample_scales[-1]


def test_adaptive_samples_follow_the_root():
    """One sparse vector for all nodes: leaves that cancel out at the root take no samples in between."""
    jumps = np.zeros((12, 2), dtype=np.int64)
    jumps[3:6, 0] = 1000
    jumps[3:6, 1] = -1000
    tree = Hierarchy.balanced(2)
    with zero_noise():
        mechanism = HierarchicalOptStream(
            tg.WEvent(epsilon="1", window=12),
            hierarchy=tree,
            samples=4,
            adaptive=True,
            threshold=100,
            nonnegative=False,
        )
        fresh = np.flatnonzero(Session(mechanism).push_batch(jumps).fresh) + 1
        assert fresh.tolist() == [1, 10, 11, 12]
        jumps[:, 1] = 0
        assert np.flatnonzero(Session(mechanism).push_batch(jumps).fresh)[1] + 1 == 4


@pytest.mark.parametrize(
    "options",
    [{"hierarchy": None}, {"columns": 3}, {"levels": (1, 1)}, {"levels": (1, 0, 1)}, {"samples": 13}],
    ids=str,
)
def test_wrong_parameters_are_one_sentence(options):
    """A hierarchy, as many columns as leaves, a positive weight for each level."""
    with pytest.raises(InvalidParameter) as refused:
        HierarchicalOptStream(tg.WEvent(epsilon="1", window=12), **{"hierarchy": RAGGED, **options})
    assert len(str(refused.value).splitlines()) == 1
