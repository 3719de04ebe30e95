from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import fftconvolve

from distributions import ALPHA, compare_counts
from tidegate.core import arrays
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BinaryTree, HybridTree
from tidegate.noise import current, laplace
from tidegate.policy import Event, Swellfish, User, WEvent
from tidegate.queries.sums import laplace_radius
from tidegate.testing.entropy import fixed_entropy, zero_noise
from tiers import combined


@given(
    steps=st.integers(1, 200),
    branching=st.integers(2, 7),
    estimator=st.sampled_from(["honaker", "plain"]),
    data=st.data(),
)
def test_without_noise_the_running_sum_is_exact(steps, branching, estimator, data):
    """Whatever the branching and the estimator, nodes add up to every prefix."""
    rows = np.array(data.draw(st.lists(st.integers(-50, 50), min_size=steps, max_size=steps)))
    mechanism = BinaryTree(Event(epsilon="1"), branching=branching, estimator=estimator, horizon=steps)
    with zero_noise():
        released = Session(mechanism).push_batch(rows)
    assert np.allclose(released.values[:, 0], np.cumsum(rows), atol=1e-9)


@given(horizon=st.integers(1, 3000), branching=st.integers(2, 9))
def test_a_step_is_in_one_node_of_each_level(horizon, branching):
    """The number of completed nodes that contain a step never exceeds the levels, and somewhere reaches them."""
    mechanism = BinaryTree(Event(epsilon="1"), branching=branching, horizon=horizon)
    nodes = np.zeros(horizon, dtype=int)
    level, size = 0, 1
    while size <= horizon:
        nodes[: horizon // size * size] += 1
        level, size = level + 1, size * branching
    assert nodes.max() == mechanism.levels == level
    assert mechanism.scale >= mechanism.levels  # Δ = ε = 1


def test_honaker_is_least_squares_on_all_released_nodes():
    """The estimate after step 7 is the best linear one: it agrees with the normal equations."""
    mechanism = BinaryTree(Event(epsilon="1"), horizon=8)
    scale = mechanism.scale
    with fixed_entropy(3):
        release = Session(mechanism).push_batch([5, 1, 4, 1, 5, 9, 2])[6]
        design, measured = [], []
        for level in range(3):
            size = 2**level
            noise = laplace(current(), f"tree 0 level {level}", 0, scale, (7 // size, 1))
            for node in range(7 // size):
                row = np.zeros(7)
                row[node * size : (node + 1) * size] = 1
                design.append(row)
                measured.append(np.dot(row, [5, 1, 4, 1, 5, 9, 2]) + noise[node, 0])
    solved, *_ = np.linalg.lstsq(np.array(design), np.array(measured), rcond=None)
    assert release.values[0] == pytest.approx(solved.sum())
    covariance = np.linalg.inv(np.array(design).T @ np.array(design)) * mechanism.noise_variance(4)
    assert mechanism.standard_deviation(7) == pytest.approx(math.sqrt(covariance.sum()))


@pytest.mark.parametrize("policy", [Event(epsilon="1", max_change=100), Event(rho="1/2", max_change=100)])
@pytest.mark.parametrize("kind", [BinaryTree, HybridTree])
def test_the_closed_form_is_the_empirical_error(policy, kind):
    """Standard deviation and coverage of the interval over 4,000 streams side by side, level ALPHA."""
    mechanism = kind(policy, columns=4000, **({"horizon": 50} if kind is BinaryTree else {}))
    values = Session(mechanism).push_batch(np.zeros((50, 4000), dtype=np.int64)).values
    for step in (1, 8, 31, 50):
        inside = int(np.count_nonzero(np.abs(values[step - 1]) <= mechanism.radius(step, 0.9)))
        assert compare_counts({"inside": (inside, 0.9)}, 4000).p_value > ALPHA
        error = np.abs(values[step - 1]).mean()
        assert error == pytest.approx(mechanism.expected_error(step), rel=0.12)


def test_a_scale_that_is_one_level_short_is_caught():
    """The planted mistake: intervals of the printed scale log₂ n cover too little; n = 4000, level ALPHA."""
    right = BinaryTree(Event(epsilon="1"), columns=4000, horizon=16)
    wrong = BinaryTree(Event(epsilon="1"), horizon=15)  # 4 levels instead of 5
    values = Session(right).push_batch(np.zeros((16, 4000), dtype=np.int64)).values
    inside = int(np.count_nonzero(np.abs(values[14]) <= wrong.radius(15, 0.9)))
    assert not compare_counts({"inside": (inside, 0.9)}, 4000).ok


def test_scales_of_all_policies():
    """The formulas of the docstring, in numbers."""
    assert BinaryTree(Event(epsilon="1", max_change=3), horizon=1023).scale == 30
    assert BinaryTree(Event(epsilon="1", max_change=3), horizon=1024).scale == 33
    assert BinaryTree(WEvent(epsilon="1/2", window=10), horizon=1024).scale == 220
    assert BinaryTree(User(epsilon="1", horizon=100)).scale == 700
    assert BinaryTree(Event(rho="1/2"), horizon=8).scale == 2
    squares = 3 * (1 + 2 + 3 + 3)
    assert BinaryTree(WEvent(rho="1/2", window=3), horizon=8).scale ** 2 == pytest.approx(squares)
    assert BinaryTree(Event(epsilon="1", adjacency="replace"), columns=2, horizon=8).scale == 8


@given(
    w=st.integers(1, 9),
    first=st.integers(0, 20),
    signs=st.lists(st.sampled_from([-1, 0, 1]), min_size=9, max_size=9),
)
def test_the_gaussian_sensitivity_covers_every_window(w, first, signs):
    """Brute force: the squared norm of the change of all nodes is at most what σ was made for."""
    horizon = 32
    mechanism = BinaryTree(WEvent(rho="1/2", window=w), horizon=horizon)
    change = np.zeros(horizon)
    change[first : first + w] = signs[: len(change[first : first + w])]
    norm = sum(
        float(np.sum(change.reshape(-1, 2**level).sum(axis=1) ** 2)) for level in range(mechanism.levels)
    )
    touched = np.count_nonzero(change)
    assert norm <= mechanism.scale**2 * (1 + 1e-12)
    assert norm <= mechanism.scale**2 * touched / w * (1 + 1e-12)  # what these steps were charged


def test_answers_that_are_linear_in_the_sums_have_their_deviation():
    """The deviation of a difference of two sums, against 20,000 streams, within 3 per cent."""
    mechanism = BinaryTree(Event(rho="1/2"), columns=20_000, horizon=40)
    values = Session(mechanism).push_batch(np.zeros((40, 20_000), dtype=np.int64)).values
    weights = np.zeros(37)
    weights[36], weights[20], weights[7] = 1, -1, 0.5
    answer = values[36] - values[20] + 0.5 * values[7]
    assert mechanism.deviation_of(weights) == pytest.approx(answer.std(), rel=0.03)


def test_the_state_is_a_kilobyte():
    """At n = 10⁹ what is stored after each commit has little more than 1 KB."""
    mechanism = BinaryTree(Event(epsilon="1"), horizon=10**9)
    state = mechanism.begin(1)
    mechanism.advance(state, np.ones((100_000, 1), dtype=np.int64), 1, Draws(current()))
    assert sum(part.nbytes for part in arrays.flat(state)) < 1500


def test_refusals_name_the_remedy():
    """A horizon that is exceeded, or missing, or a policy without a proof: one sentence each, nothing charged."""
    session = Session(BinaryTree(Event(epsilon="1"), horizon=5))
    with pytest.raises(InvalidInput, match="HybridTree"):
        session.push_batch([1] * 6)
    assert session.step == 0
    with pytest.raises(InvalidParameter, match="HybridTree"):
        BinaryTree(Event(epsilon="1"))
    with pytest.raises(InvalidParameter, match="estimator"):
        BinaryTree(Event(epsilon="1"), horizon=5, estimator="best")
    with pytest.raises(InvalidParameter, match="branching"):
        BinaryTree(Event(epsilon="1"), horizon=5, branching=1)
    assert Swellfish not in BinaryTree.supports


def test_nodes_beyond_64_bits_wrap_and_do_not_fail():
    """Extreme data cannot stop a run: sums wrap, which depends on the noisy sums alone."""
    session = Session(BinaryTree(Event(epsilon="1"), horizon=5000))
    assert np.isfinite(session.push_batch(np.full(4096, 2**53)).values).all()


def test_units_are_exact():
    """A release says what its step lost."""
    releases = Session(BinaryTree(WEvent(epsilon="1", window=4), horizon=9)).push_batch([1, 2, 3])
    assert releases[2].spent == Fraction(1, 4)


def test_noise_that_cannot_be_drawn_is_refused_by_the_constructor():
    """Scales beyond 2^56 grid units would fail at the first push, after it was charged."""
    with pytest.raises(InvalidParameter, match="coarser grid"):
        BinaryTree(Event(epsilon="1", max_change=2**55), horizon=10)
    with pytest.raises(InvalidParameter, match="coarser grid"):
        HybridTree(Event(epsilon="1", max_change=2**55))


def share_within(mechanism, step, radius):
    """P(|noise| ≤ radius) of a running sum by convolution of the laws of its draws, in grid units."""
    grid = float(Fraction(mechanism.grid))
    points = np.arange(-1500, 1501)
    law = np.zeros(len(points))
    law[1500] = 1.0
    for scale, count in zip(*mechanism.noise_terms(step), strict=True):
        one = np.exp(-np.abs(points) * grid / scale)
        for _ in range(int(count)):
            law = fftconvolve(law, one / one.sum(), mode="same")
    return law[np.abs(points) <= round(radius / grid, 6)].sum()


@pytest.mark.parametrize(
    ("kind", "epsilon", "grid"), combined(3, [BinaryTree, HybridTree], ["1", "8"], ["1", "1/4"])
)
def test_a_radius_holds_as_often_as_it_says(kind, epsilon, grid):
    """Computed at every step; the radius of noise that is not on the grid, the wrong version, holds less often."""
    horizon = {"horizon": 15} if kind is BinaryTree else {}
    mechanism = kind(Event(epsilon=epsilon), grid=grid, estimator="plain", **horizon)
    short = 0
    for step in range(1, 16):
        for level in (0.5, 0.9, 0.99):
            assert share_within(mechanism, step, mechanism.radius(step, level)) >= level - 1e-9
            fine = laplace_radius(*mechanism.noise_terms(step), level)
            short += share_within(mechanism, step, fine) < level - 0.001
    assert short > 0
