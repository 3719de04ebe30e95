from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import BinaryTree, ClippedSum
from tidegate.mechanisms.clipping.clip_parameters import optimise, suggested_lag, tree_bound, worst_case_bound
from tidegate.noise import current
from tidegate.policy import Event, User, WEvent
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy, zero_noise

EVENT = Event(epsilon="1", max_change=1000)


@settings(max_examples=30)
@given(values=st.lists(st.integers(-50, 2000), min_size=80, max_size=120), first_sums=st.booleans())
def test_without_noise_every_value_is_clipped_at_the_applied_threshold(values, first_sums):
    """Also the first m, the defect of the printed mechanism."""
    mechanism = ClippedSum(EVENT, horizon=120, lag=40, above=4, first_sums=first_sums)
    with zero_noise():
        releases = Session(mechanism).push_batch(values)
    expected = np.cumsum(np.clip(values, 0, releases.clip[-1]))
    assert np.allclose(releases.values[39:, 0], expected[39:])
    assert np.all(releases.values[:39] == 0)
    if first_sums:
        assert np.allclose(releases.revised.values[:, 0], expected[:40])


def test_statuses_and_sources():
    """Steps before the lag say that nothing was measured; step m is the first fresh one."""
    releases = Session(ClippedSum(EVENT, horizon=200, lag=50)).push_batch([3] * 60)
    assert [Status(s) for s in releases.status[[0, 48, 49, 59]]] == [Status.APPROXIMATED] * 2 + [
        Status.FRESH
    ] * 2
    assert releases.source[[0, 49, 59]].tolist() == [0, 50, 60]
    assert releases.scale[0] == 0
    assert np.all(releases.units == 1)


def test_scales_use_the_applied_clip_and_all_levels():
    """Lap(τ/ε₂) for the first sum, Lap(τ·(⌊log₂ n'⌋ + 1)/ε) for the tree, τ = min(r·τ̂, B)."""
    mechanism = ClippedSum(EVENT, horizon=1124, lag=100, share="0.75", multiplier="1.5", branching=2)
    assert mechanism.clip_of(100) == 150
    assert mechanism.clip_of(900) == 1000
    assert mechanism.first_scale(150) == 600
    assert mechanism.tree(150).scale == 150 * 11
    assert mechanism.finder.scales == pytest.approx((8 / 3, 8 / 3))
    assert mechanism.finder.scales[0] >= Fraction(8, 3)
    windows = ClippedSum(WEvent(epsilon="1", max_change=1000, window=2), horizon=1124, lag=100, above=10)
    assert windows.finder.scales == (5, 10)
    assert windows.tree(150).scale == 150 * 3 * 2
    assert windows.first_scale(150) == 150 * 2 * 5


def test_the_deviation_of_a_release_is_the_closed_form():
    """The releases' scale against noise_deviation with the clip that was applied."""
    for first_sums in (False, True):
        mechanism = ClippedSum(EVENT, horizon=3000, lag=60, first_sums=first_sums)
        releases = Session(mechanism).push_batch(np.arange(500) % 90)
        clip = Fraction(releases.clip[-1])
        for step in (60, 61, 100, 499):
            assert releases[step - 1].scale == pytest.approx(mechanism.noise_deviation(step, clip))


def test_the_error_is_that_of_the_tree_with_the_clip():
    """400 runs with a clip of B: the spread at the last step is the closed form within 20 per cent (four sigma)."""
    mechanism = ClippedSum(Event(epsilon="1", max_change=40), horizon=300, lag=40, multiplier="100")
    errors = [Session(mechanism).push_batch([40] * 300).values[-1, 0] - 12_000 for _ in range(400)]
    deviation = mechanism.noise_deviation(300, 40)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(deviation, rel=0.2)


def test_no_lag_where_the_public_numbers_say_that_it_is_too_short():
    """The fallback is the plain tree with B from the first step."""
    mechanism = ClippedSum(Event(epsilon="1/100", max_change=1000), horizon=2000)
    assert mechanism.waits == 0
    with fixed_entropy(5):
        releases = Session(mechanism).push_batch([7] * 100)
        plain = BinaryTree(Event(epsilon="1/100", max_change=1000), horizon=2000, branching=16)
        tree = Session(plain).push_batch([7] * 100)
    assert (releases.clip == 1000).all()
    assert np.array_equal(releases.values, tree.values)


@pytest.mark.parametrize(
    ("name", "column", "bound", "least"),
    [
        ("flight_durations_2013.parquet", "air_time_min", 1440, 2.0),
        ("tafeng_baskets.parquet", "spend_twd", 10**6, 10.0),
    ],
)
def test_the_improvement_over_a_tree_with_the_bound(shared_data, name, column, bound, least):
    """300 thresholds on real streams: error at the last step from the exact clipping loss and the closed-form noise."""
    values = pl.read_parquet(shared_data(name))[column].drop_nulls().to_numpy().astype(np.int64)
    count = len(values)
    policy = Event(epsilon="1", max_change=bound)
    mechanism = ClippedSum(policy, horizon=count)
    clips = [
        mechanism.clip_of(mechanism.finder.draw(values[: mechanism.waits], current(), 1).grid_units)
        for _ in range(300)
    ]
    errors = []
    for clip in clips:
        lost, deviation = int(np.maximum(values - clip, 0).sum()), mechanism.noise_deviation(count, clip)
        # E|lost + N(0, deviation²)|
        errors.append(
            deviation * math.sqrt(2 / math.pi) * math.exp(-(lost**2) / (2 * deviation**2))
            + lost * math.erf(lost / (deviation * math.sqrt(2)))
        )
    assert BinaryTree(policy, horizon=count).expected_error(count) / np.mean(errors) > least


def test_optimised_parameters_have_the_paper_s_shape():
    """Train trips generated with mean 30 and a light tail, m = 100,000: improvement near 3.7, r, λ, p, ε₁ as printed."""
    values = np.random.default_rng(1).gamma(2.2, 13.5, 100_000).round()
    policy = Event(epsilon="1", delta=Fraction(1, 2**20), max_change=1440)
    found = optimise(values, policy, horizon=25_000_000, lag=100_000)
    assert 3.0 < found.improvement < 5.0
    assert 1.5 < found.multiplier < 2.2
    assert 0.75 < found.shrink < 0.95
    assert 0.003 < found.exceeding <= 0.005
    assert 0.7 < found.share < 0.97
    assert sum(found.chances.values()) == pytest.approx(0.02)
    assert isinstance(found.mechanism(policy), ClippedSum)


def test_nothing_gained_means_the_tree():
    """On a sample whose values reach B, the optimiser's mechanism is the plain tree."""
    values = np.random.default_rng(1).integers(0, 100, 20_000)
    policy = Event(epsilon="1", delta=Fraction(1, 2**20), max_change=100)
    found = optimise(values, policy, horizon=100_000, lag=20_000)
    assert found.improvement == 1.0
    assert isinstance(found.mechanism(policy), BinaryTree)


def test_the_suggested_lag():
    """Public numbers only; smaller budgets wait longer (about 1/ε²)."""
    assert 30_000 < suggested_lag(1.0, 2**-20) < 120_000
    assert suggested_lag(0.5, 2**-20) > 3 * suggested_lag(1.0, 2**-20)


def test_refusals_name_the_parameter_to_change():
    """One sentence each, before any budget is touched."""
    with pytest.raises(InvalidParameter, match="one user could own"):
        ClippedSum(User(epsilon="1", horizon=100))
    with pytest.raises(InvalidParameter, match="lag=10 is refused"):
        ClippedSum(EVENT, horizon=100, lag=10)
    with pytest.raises(InvalidParameter, match="wait longer"):
        ClippedSum(EVENT, horizon=1000, lag=50, exceeding="0.001")
    policy = Event(epsilon="1/2", delta=Fraction(1, 2**20), max_change=9)
    with pytest.raises(InvalidParameter, match="raise too_low"):
        ClippedSum(policy, horizon=10_000, lag=1000, threshold="smooth", exceeding="0.01", too_low=1e-12)
    with pytest.raises(InvalidParameter, match="columns"):
        ClippedSum(EVENT, columns=2, horizon=1000)
    with pytest.raises(InvalidParameter, match="horizon"):
        ClippedSum(EVENT, horizon=1)
    assert (
        ClippedSum(EVENT, horizon=100, bound="1/2").largest == 1
    )  # a grid unit, the least bound that can be had
    with pytest.raises(InvalidParameter, match="multiplier"):
        ClippedSum(EVENT, horizon=1000, multiplier="0.5")
    session = Session(ClippedSum(EVENT, horizon=100, lag=40))
    with pytest.raises(InvalidInput, match="HybridTree"):
        session.push_batch([1] * 101)
    assert session.step == 0
    with pytest.raises(InvalidParameter, match="at least the lag"):
        optimise([1, 2], Event(epsilon="1", delta="1e-6", max_change=9), horizon=100, lag=50)


def test_the_first_sum_never_wraps_around():
    """Sums beyond 64 bits are added exactly before the noise."""
    largest = 2**50
    mechanism = ClippedSum(Event(epsilon="64", max_change=largest, horizon=10_000), lag=8193)
    with zero_noise():
        releases = Session(mechanism).push_batch(np.full((8193, 1), largest))
    assert releases.values[-1, 0] > 0


def test_the_first_sum_hides_one_observation():
    """Neighbours whose sums differ by far more than the noise: clipping cuts the difference off."""
    policy = Event(epsilon="10", delta="1e-2", max_change=100_000, adjacency="replace")
    named = {"horizon": 3024, "lag": 2000, "threshold": "smooth", "exceeding": "0.2", "too_low": 0.1}
    mechanism, spread = ClippedSum(policy, **named, multiplier=1), list(range(100)) * 20
    found = []
    for values in (spread, [*spread[:-1], 100_000]):
        with fixed_entropy(7):
            found.append(Session(mechanism).push_batch(values))
    scale = mechanism.first_scale(int(found[1].clip[-1]))
    assert found[1].values[-1, 0] - found[0].values[-1, 0] <= 10 * scale


@pytest.mark.parametrize("p", [1e-4, 1e-3, 0.005])
def test_equation_14_bounds_the_worst_distribution(p):
    """Values that exceed the clip are all B: the chance of more lost than the bound says is below β_out, exactly."""
    n, clip, bound, beta = 100_000, 100, 1000, 0.01
    cut = worst_case_bound(
        clip, bound, horizon=n, lag=1000, exceeding=p, epsilon=1.0, too_many=beta
    ) - worst_case_bound(clip, bound, horizon=n, lag=1000, exceeding=0, epsilon=1.0)
    assert binom.sf(math.floor(cut / (bound - clip)), n, p) <= beta
    assert worst_case_bound(1000, 1000, horizon=n, lag=0, exceeding=1, epsilon=1.0) == tree_bound(
        1000, n, 1.0, 0.01
    )
