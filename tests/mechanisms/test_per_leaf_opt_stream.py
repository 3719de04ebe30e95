"""Samples of every leaf for itself: reference and kernel, one optimum, what fixed units lose, what moving ones would."""

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from tests.mechanisms.chances import sample_chances

import tidegate as tg
from experiments.printed.optstream import PerNode
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import PerLeafOptStream
from tidegate.mechanisms.optstream import l1_sampling as loop
from tidegate.mechanisms.optstream import node_curves
from tidegate.mechanisms.optstream.feature_trees import equal_parts, parts_of_day, whole_period
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler, L1Sampling, chosen_steps
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.noise import current, laplace
from tidegate.queries import Hierarchy
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy, zero_noise

PAIR = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"})
APART = Hierarchy.from_parents({"a": None, "b": None, "c": None})
RAGGED = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b"])
REGIONS = Hierarchy.from_parents({"all": None, **{f"r{number}": "all" for number in range(12)}})
FIXED = tg.WEvent(epsilon="1", window=12, mobility="fixed")


def per_leaf(policy, hierarchy, **options):
    """A mechanism with samples per leaf."""
    return PerLeafOptStream(policy, hierarchy=hierarchy, **options)


chances = lru_cache(maxsize=None)(sample_chances)


# choosing ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(3, 16), st.integers(1, 4), st.integers(0, 10**6), st.data())
def test_leaves_choose_as_the_reference_does(w, leaves, seed, data):
    """The compiled samplers of all leaves choose what the plain rule chooses with the same draws, in any cuts."""
    rule = L1Sampling(w, data.draw(st.integers(2, w)), Fraction(3), 1, data.draw(st.integers(-20, 90)))
    rows = np.array(
        data.draw(st.lists(st.integers(0, 99), min_size=w * leaves, max_size=w * leaves))
    ).reshape(w, leaves)
    cut = data.draw(st.integers(0, w))
    with fixed_entropy(seed):
        source, noise, limits = current(), np.zeros((w, leaves), np.int64), np.full(leaves, rule.limit)
        if rule.tests:
            noise = laplace(source, "tests", 1, rule.sparse_vector.question_scale, (w, leaves))
            limits = (
                rule.limit
                + laplace(source, "threshold", 0, rule.sparse_vector.threshold_scale, (1, leaves))[0]
            )
        sampler = L1Sampler(rule, 1, leaves)
        sampler.begin(source, 0)
        head = sampler.choose(source, 1, rows[:cut])
        again = L1Sampler(rule, 1, leaves)
        again.restore(sampler.state())
        chosen = np.vstack([head, again.choose(source, cut + 1, rows[cut:])])
    for leaf in range(leaves):
        expected = chosen_steps(rows[:, leaf].tolist(), noise[:, leaf].tolist(), rule, int(limits[leaf]))
        assert (np.flatnonzero(chosen[:, leaf]) + 1).tolist() == expected
    assert again.memory[:, loop.TAKEN].tolist() == [rule.samples] * leaves


def test_each_leaf_is_measured_where_it_moves():
    """Leaves that cancel out at the root are still followed, each at its own steps."""
    jumps = np.zeros((12, 2), dtype=np.int64)
    jumps[3:6, 0] = 1000
    jumps[7:9, 1] = 1000
    with zero_noise():
        session = Session(per_leaf(FIXED, PAIR, samples=6, threshold=100))
        releases = session.push_batch(jumps)
    times = {node: session._queries[0].state.times[node].tolist() for node in range(3)}
    assert {1, 4, 12} <= set(times[0])
    assert {1, 8, 12} <= set(times[1])
    assert times[2] == [2, 4, 6, 8, 10, 12]  # the root at public times
    assert [Status(status) for status in releases.status[[0, 3, 11]]] == [
        Status.FRESH,
        Status.PARTIAL,
        Status.FRESH,
    ]


# one optimum ---------------------------------------------------------------------------------------------------


def dense_problem(mechanism, curves, variances, sums, factors, precisions):
    """The weighted least-squares problem over leaves × steps as a matrix."""
    leaves, length = mechanism.forest.leaves, curves.shape[1]
    matrix, right = [], []
    for place, node in enumerate(mechanism.order):
        below = np.array([float(node in mechanism.forest.path(leaf)) for leaf in leaves])
        for step in range(length):
            row = np.zeros((length, len(leaves)))
            row[step] = below
            matrix.append(row.ravel() / variances[place, step] ** 0.5)
            right.append(curves[place, step] / variances[place, step] ** 0.5)
        for part, precision in enumerate(precisions):
            weight = (factors[place] * precision) ** 0.5
            row = np.outer((mechanism.tree.labels[:, :length] == part).any(axis=0), below)
            matrix.append(row.ravel() * weight)
            right.append(sums[part, place] * weight)
    return np.array(matrix), np.array(right)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.integers(0, 2), st.sampled_from([PAIR, RAGGED, APART]))
def test_the_release_is_the_joint_optimum(seed, nonnegative, features, hierarchy):
    """Nodes with different times and features together: the solver agrees with least squares and with nnls to 1e-8."""
    w = 6
    mechanism = per_leaf(
        tg.WEvent(epsilon="9", window=w, mobility="fixed"), hierarchy, samples=3, nonnegative=nonnegative,
        features=((), (whole_period(w),), (equal_parts(w, 2), whole_period(w)))[features],
    )  # fmt: skip
    seen = {}
    fit = node_curves.fit_nodes

    def watched(*given):
        seen["given"] = given
        fit(*given)

    rows = np.random.default_rng(seed).integers(0, 12, (2 * w, mechanism.columns))
    with fixed_entropy(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.mechanisms.optstream.per_leaf_opt_stream.fit_nodes", watched)
        final = Session(mechanism).push_batch(rows).final.values[w:, list(hierarchy.leaves)]
    curves, variances, _, _, sums, factors, _, _, precisions, *_ = seen["given"]
    matrix, right = dense_problem(mechanism, curves, variances, sums, factors, precisions)
    expected = (
        nnls(matrix, right, maxiter=10_000)[0]
        if nonnegative
        else np.linalg.lstsq(matrix, right, rcond=None)[0]
    )
    assert np.abs(final.ravel() - expected).max() <= 1e-8 * max(1.0, np.abs(expected).max())


def test_curves_pass_through_the_samples_of_each_leaf():
    """Without noise and inner nodes, every leaf is the line through its own samples."""
    rows = np.array([[0, 50], [0, 40], [0, 30], [90, 20], [90, 10], [90, 0]])
    with zero_noise():
        mechanism = per_leaf(
            tg.WEvent(epsilon="1", window=6, mobility="fixed"), Hierarchy.from_parents({"a": None, "b": None}),
            samples=4, threshold=10,
        )  # fmt: skip
        session = Session(mechanism)
        final = session.push_batch(rows).final.values
    for leaf in range(2):
        times = session._queries[0].state.times[leaf]
        line = Reconstruction.through(times, 6).apply(
            np.concatenate([[rows[0, leaf]], rows[times - 1, leaf]])
        )
        assert final[:, leaf] == pytest.approx(line)


@pytest.mark.parametrize("level", [0, 40, 5000])
@pytest.mark.parametrize("causal", ["hold", "line", "last period"])
def test_leaves_add_up_at_every_step(level, causal):
    """Both answers are consistent to 1e-9 and not negative."""
    mechanism = per_leaf(
        tg.WEvent(epsilon="20", window=48, mobility="fixed"), REGIONS, samples=6, causal=causal, nonnegative=True,
        features=(parts_of_day(48), whole_period(48)),
    )  # fmt: skip
    rows = np.rint(level * (1 + 0.3 * np.sin(np.arange(110 * 12).reshape(110, 12) / 40))).astype(np.int64)
    session = Session(mechanism)
    releases = session.push_batch(rows)
    for values in (releases.values, releases.final.values, session.finish().revised.values):
        assert np.allclose(values[:, 0], values[:, 1:].sum(axis=1), rtol=1e-9)
        assert values.min() >= 0


# privacy -------------------------------------------------------------------------------------------------------


def path_loss(mechanism, leaf, stream, change, first):
    """The largest loss of a unit in one leaf whose steps change from `first` on, over two periods: exact.

    The choice of samples and their values, the samples of the nodes above, and the sums of all of them.
    """
    w, forest = mechanism.window, mechanism.forest
    moved = np.zeros(2 * w, dtype=np.int64)
    moved[first : first + w] = change
    scales = dict(zip(mechanism.order.tolist(), mechanism.sample_scales.tolist(), strict=True))
    own, total = forest.leaves[leaf], 0.0
    for period in range(2):
        steps = moved[period * w : (period + 1) * w]
        one, other = (
            sample_chances(mechanism.sampling, values) for values in (stream, tuple(stream + steps))
        )
        total += max(
            np.log(one[times] / other[times]) + np.abs(steps[np.array(times) - 1]).sum() / scales[own]
            for times in one
            if min(one[times], other[times]) > 1e-12
        )
        above = np.abs(steps[np.array(mechanism.times_above) - 1]).sum()
        total += sum(above / scales[node] for node in forest.path(own) if node != own)
        if mechanism.features:
            sums = mechanism.sum_scales.reshape(mechanism.sum_count, -1)[0]
            by_node = dict(zip(mechanism.order.tolist(), sums.tolist(), strict=True))
            parts = sum(np.abs(np.bincount(level, weights=steps)).sum() for level in mechanism.tree.labels)
            total += sum(parts / by_node[node] for node in forest.path(own))
    return total


def charged(mechanism, first):
    """What is charged to the window that begins at a step of the first of two periods, in units of ε."""
    span, steps = mechanism.charges(())
    met = 1 if first == 0 else 2
    return Fraction(
        met * span + int(np.tile(steps, 2)[first : first + mechanism.window].sum()), mechanism.units
    )


@pytest.mark.parametrize(
    "mechanism",
    [
        per_leaf(tg.WEvent(epsilon="2", window=6, mobility="fixed"), PAIR, samples=4, threshold=2),
        per_leaf(tg.WEvent(epsilon="2", window=5, mobility="fixed"), PAIR, samples=3, threshold=2, levels=(1, 3)),
        per_leaf(
            tg.WEvent(epsilon="3", window=5, mobility="fixed"), RAGGED, samples=3, threshold=1,
            features=(equal_parts(5, 2), whole_period(5)), split=(2, 1, 1),
        ),
        per_leaf(tg.WEvent(epsilon="2", window=4, mobility="fixed"), APART, samples=2),
    ],
    ids=["w=6", "w=5", "ragged with features", "no tests"],
)  # fmt: skip
def test_no_window_of_a_fixed_unit_loses_more_than_it_is_charged(mechanism):
    """Exact enumeration: every leaf's path, every window, aligned or straddling, every change; charges are at most ε."""
    w, epsilon = mechanism.window, float(mechanism.policy.budget.total)
    worst = 0.0
    for first in range(w):
        cost = charged(mechanism, first)
        assert cost <= 1
        for stream in ((5,) * w, tuple(6 * (step % 2) for step in range(w))):
            for change in product((-1, 1), repeat=w):
                for leaf in (0, mechanism.columns - 1):
                    lost = path_loss(mechanism, leaf, np.array(stream), np.array(change), first)
                    assert lost <= float(cost) * epsilon + 1e-6
                    worst = max(worst, lost)
    assert worst > 0.3 * epsilon  # the sparse vector loses less than its bound


def test_a_replaced_unit_changes_two_leaves_and_loses_no_more():
    """One unit leaves a leaf and another one appears elsewhere: each path loses at most half."""
    policy = tg.WEvent(epsilon="2", window=5, mobility="fixed", adjacency="replace")
    mechanism = per_leaf(policy, PAIR, samples=3, threshold=2)
    assert mechanism.sensitivity == 2
    stream = np.array((0, 6, 0, 6, 0))
    for first, change in product(range(5), product((-1, 1), repeat=5)):
        lost = sum(
            path_loss(mechanism, leaf, stream, np.array(change) * sign, first)
            for leaf, sign in ((0, 1), (1, -1))
        )
        assert lost <= 2 * float(charged(mechanism, first)) + 1e-6


@settings(max_examples=40)
@given(st.integers(2, 14), st.data())
def test_charges_fill_a_window_exactly_and_cover_all_samples(w, data):
    """Any w, k, levels and features: the fullest window is charged ε and no more, whatever is chosen."""
    k = data.draw(st.integers(2, w))
    hierarchy = data.draw(st.sampled_from([PAIR, RAGGED, APART]))
    mechanism = per_leaf(
        tg.WEvent(epsilon="40", window=w, mobility="fixed"), hierarchy, samples=k, threshold=20,
        features=data.draw(st.sampled_from([(), (whole_period(w),)])),
        levels=tuple(data.draw(st.integers(1, 4)) for _ in range(hierarchy.height)),
    )  # fmt: skip
    windows = [charged(mechanism, first) for first in range(w)]
    assert max(windows) == 1
    rows = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 60, (4 * w, mechanism.columns))
    log = MemoryLog()
    session, taken = Session(mechanism, log), []
    chooser = session._queries[0].state.sampler.chooser
    choose = chooser.choose
    chooser.choose = lambda *given: (taken.append(choose(*given)), taken[-1])[1]
    session.push_batch(rows)
    assert verify(log.rows()).ok
    chosen = np.vstack(taken)
    assert (chosen.reshape(4, w, -1).sum(axis=1) == k).all()
    tests, sample, step = mechanism.shares
    leaf, above = mechanism.leaf_share, np.tile(np.isin(np.arange(1, w + 1), mechanism.times_above), 4)
    for first in range(3 * w):
        window = slice(first, first + w)
        spent = chosen[window].sum(axis=0).max() * leaf * sample
        spent += above[window].sum() * (1 - leaf) * mechanism.period.public_sample
        assert (2 if first % w else 1) * tests + spent + w * step <= windows[first % w]


def moving_loss(mechanism, stream, change, first):
    """The same for a unit that is in another leaf at each step: change (w × leaves), hierarchies of leaves alone."""
    w, total = mechanism.window, 0.0
    moved = np.zeros((2 * w, mechanism.columns), dtype=np.int64)
    moved[first : first + w] = change
    for period, leaf in product(range(2), range(mechanism.columns)):
        steps = moved[period * w : (period + 1) * w, leaf]
        one, other = (
            sample_chances(mechanism.sampling, values) for values in (stream, tuple(stream + steps))
        )
        total += max(
            np.log(one[times] / other[times])
            + np.abs(steps[np.array(times) - 1]).sum() / mechanism.sample_scales[leaf]
            for times in one
            if min(one[times], other[times]) > 1e-12
        )
    return total


def test_a_unit_that_moves_breaks_samples_per_leaf():
    """The planted wrong version: a unit that is always in the leaf which is measured loses w samples, not k."""
    printed = PerNode(
        tg.WEvent(epsilon="1", window=5),
        hierarchy=APART,
        samples=3,
        threshold=4,
        split=(1, 30, 1),
        noise="laplace",
    )
    change = np.zeros((5, 3), dtype=np.int64)
    change[[0, 1, 2, 3, 4], [0, 0, 1, 2, 0]] = 1
    assert moving_loss(printed, np.full(5, 5), change, 0) > 1.4
    with pytest.raises(InvalidParameter, match="fixed"):
        per_leaf(tg.WEvent(epsilon="1", window=5), APART, samples=3)


def test_features_of_leaves_with_samples_of_their_own_are_nested():
    """The joint problem of nodes and features is solved on a tree; others are refused."""
    across = (equal_parts(12, 2), (tuple(range(1, 13, 2)), tuple(range(2, 13, 2))))
    with pytest.raises(InvalidParameter, match="nested for PerLeafOptStream"):
        per_leaf(FIXED, PAIR, samples=4, features=across)


def test_leaves_have_all_of_the_tests_budget_and_roots_pay_for_k_samples():
    """Scales: ε_S is not divided; leaves kΔ/(r·ε_P), roots kΔ/(r·ε_P·(2k − 2)/k)."""
    mechanism = per_leaf(tg.WEvent(epsilon="1", window=48, mobility="fixed"), REGIONS, samples=10)
    tests, sample, _ = mechanism.shares
    assert 2 * tests + 18 * sample == 1
    assert mechanism.sampling.epsilon == tests
    assert mechanism.sample_scales[0] == pytest.approx(2 / float(sample))
    assert mechanism.sample_scales[-1] == pytest.approx(2 / float(sample) * 10 / 18)
    assert "one column" in str(mechanism.guarantee)


# ends and bad input --------------------------------------------------------------------------------------------


def test_an_end_before_the_roots_first_sample():
    """Only leaves were measured: their values stand alone."""
    with zero_noise():
        session = Session(per_leaf(FIXED, PAIR, samples=2, features=(whole_period(12),)))
        session.push_batch(np.array([[5, 7], [5, 7], [5, 7]]))
        ended = session.finish().revised.values
    assert ended[:, 1] == pytest.approx([5, 5, 5])
    assert ended[:, 0] == pytest.approx([12, 12, 12])


@pytest.mark.parametrize("options", [{"adaptive": False}, {"samples": 1}, {"times": (6, 12)}], ids=str)
def test_wrong_parameters_are_one_sentence(options):
    """Samples per leaf are adaptive ones, two or more."""
    with pytest.raises(InvalidParameter) as refused:
        per_leaf(FIXED, PAIR, **options)
    assert len(str(refused.value).splitlines()) == 1
