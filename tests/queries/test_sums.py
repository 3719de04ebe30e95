from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from distributions import compare_counts
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import BinaryTree, ClippedSum, Factorization
from tidegate.policy import Event
from tidegate.queries.averages import RunningAverage, WindowAverage
from tidegate.queries.sums import (
    RunningSum,
    answer,
    gaussian_radius,
    increments,
    interval,
    laplace_mean_absolute,
    laplace_radius,
    merged,
)


def test_the_law_of_one_and_two_laplace_draws_is_the_known_one():
    """Closed forms: E|X| = b and 3b/2; P(|X| > r) = e^(−r/b) and (1 + r/2b)·e^(−r/b)."""
    assert laplace_mean_absolute([7.0], [1]) == pytest.approx(7.0)
    assert laplace_mean_absolute([7.0], [2]) == pytest.approx(10.5)
    for confidence in (0.5, 0.9, 0.999):
        assert laplace_radius([7.0], [1], confidence) == pytest.approx(
            -7 * math.log(1 - confidence), rel=1e-5
        )
        r = laplace_radius([1.0], [2], confidence)
        assert (1 + r / 2) * math.exp(-r) == pytest.approx(1 - confidence, rel=1e-4)


def test_many_draws_are_nearly_gaussian():
    """The central limit: 10,000 equal draws have the Gaussian radius within a per cent."""
    assert laplace_radius([1.0], [10_000]) == pytest.approx(gaussian_radius(math.sqrt(20_000)), rel=0.01)


def test_no_noise_has_no_radius():
    """Zero scales are allowed and give zero."""
    assert laplace_radius([0.0], [3]) == laplace_mean_absolute([0.0], [3]) == gaussian_radius(0.0) == 0.0


@pytest.mark.slow
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=4))
def test_unequal_scales_agree_with_simulation_free_moments(scales):
    """Radii grow with confidence, and E|X| lies between the bounds of its variance (√(2/π)·σ ≥ E|X| ≥ σ/√2)."""
    counts = [1] * len(scales)
    deviation = math.sqrt(sum(2 * s * s for s in scales))
    mean = laplace_mean_absolute(scales, counts)
    assert deviation / math.sqrt(2) * 0.999 <= mean <= deviation * math.sqrt(2 / math.pi) * 1.001
    assert laplace_radius(scales, counts, 0.5) < laplace_radius(scales, counts, 0.95)


def test_running_sum_and_increments():
    """The identity, and its inverse."""
    sums = np.array([[1.0, 2.0], [3.0, 2.0]])
    assert np.array_equal(RunningSum().apply(sums), sums)
    assert np.array_equal(np.cumsum(increments(sums), axis=0), sums)
    assert RunningSum().weights(3).tolist() == [0, 0, 1]


def test_intervals_of_columns():
    """A radius for each step serves all columns."""
    low, high = interval(np.zeros((2, 3)), [1.0, 2.0])
    assert low.tolist() == [[-1.0] * 3, [-2.0] * 3]
    assert high.tolist() == [[1.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0])
def test_a_confidence_is_a_probability(confidence):
    """Anything else is refused with one sentence."""
    with pytest.raises(InvalidParameter, match="confidence"):
        gaussian_radius(1.0, confidence)


@pytest.mark.parametrize("query", [RunningSum(), RunningAverage(), WindowAverage(13)], ids=repr)
@pytest.mark.parametrize("kind", ["tree", "blt"])
def test_answers_carry_intervals_that_cover(query, kind):
    """3,000 streams side by side: 90 % intervals cover as often as they say, level ALPHA; half of one does not."""
    tree = BinaryTree(Event(epsilon="1", max_change=30), columns=3000, horizon=90)
    mechanism = (
        tree if kind == "tree" else Factorization(Event(rho="1/2", max_change=30), columns=3000, horizon=90)
    )
    values = tg.open(mechanism).push_batch(np.zeros((77, 3000), dtype=np.int64)).values
    found = answer(query, values, mechanism, 0.9)
    inside = int(np.count_nonzero((found.low <= 0) & (found.high >= 0)))
    assert compare_counts({"inside": (inside, 0.9)}, 3000).ok
    assert not compare_counts(
        {"inside": (int(np.count_nonzero(np.abs(found.values) <= found.radius / 2)), 0.9)}, 3000
    ).ok
    assert np.allclose(found.values, query.apply(values)[-1])
    assert found.step == 77


@pytest.mark.parametrize("first_sums", [False, True])
def test_answers_of_a_clipped_sum_need_its_clip(first_sums):
    """The releases have it; before the lag has passed nothing is known."""
    mechanism = ClippedSum(
        Event(epsilon="1", max_change=900), horizon=500, lag=60, grid="0.1", first_sums=first_sums
    )
    releases = tg.open(mechanism).push_batch([5] * 200)
    with pytest.raises(InvalidParameter, match="clip"):
        mechanism.counter_at(releases.clip[58])
    counter = mechanism.counter_at(releases.clip[-1])
    found = answer(RunningSum(), releases.values, counter)
    assert found.deviation == pytest.approx(releases.scale[-1])
    assert found.deviation < found.radius < 4 * found.deviation
    # the mean of the last 100 is (S_200 − S_100)/100, in which the sum of the first 60 cancels
    mean = answer(WindowAverage(100), releases.values, counter)
    tree = mechanism.tree(counter.clip)
    assert mean.deviation == pytest.approx(tree.deviation_of(WindowAverage(100).weights(200)[60:]))
    assert mean.deviation < mean.radius < 4 * mean.deviation


def test_merging_many_scales_keeps_the_variance():
    """However many scales there are, their squares add up to the same."""
    scales = np.linspace(1, 50, 5000)
    values, counts = merged(scales)
    assert len(values) <= 401
    assert np.sum(values**2 * counts) == pytest.approx(np.sum(scales**2))
    assert counts.sum() == 5000
