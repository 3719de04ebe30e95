import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import SlidingWindowTree, Uniform
from tidegate.testing.entropy import zero_noise


@given(
    st.integers(1, 20),
    st.lists(st.integers(-50, 50), min_size=1, max_size=70),
    st.booleans(),
    st.integers(0, 70),
)
@settings(max_examples=80)
def test_without_noise_the_sums_are_exact(window, counts, averaged, cut):
    """Every window, also over the seams of blocks and of batches, is the sum of its steps."""
    options = {"window": window, "estimator": "honaker" if averaged else "plain"}
    with zero_noise():
        session = Session(SlidingWindowTree(tg.Event(epsilon="1"), **options))
        found = [
            *session.push_batch(counts[:cut]).values[:, 0],
            *session.push_batch(counts[cut:]).values[:, 0],
        ]
    expected = [sum(counts[max(0, at + 1 - window) : at + 1]) for at in range(len(counts))]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 13, 24, 64])
def test_a_step_is_in_one_node_of_each_level(window):
    """An impulse at any step of a block changes exactly `levels` measurements by one: the sensitivity."""
    mechanism = SlidingWindowTree(tg.Event(epsilon="1"), window=window, estimator="plain")
    assert mechanism.levels == max(1, int(np.ceil(np.log2(window))))
    for at in range(window):
        with zero_noise():
            session = Session(mechanism)
            session.push_batch(np.eye(window, dtype=np.int64)[at])
        nodes = session._queries[0].state.nodes[:, 0]
        assert (np.count_nonzero(nodes), nodes.sum()) == (mechanism.levels, mechanism.levels)
    assert mechanism.scale == mechanism.levels


@pytest.mark.parametrize("estimator", ["honaker", "plain"])
def test_the_stated_standard_deviation_is_the_one_seen(estimator):
    """n = 20,000 independent columns; within 5 %, which a scale one level too small or large would leave."""
    mechanism = SlidingWindowTree(tg.Event(epsilon="1"), columns=20_000, window=7, estimator=estimator)
    releases = Session(mechanism).push_batch(np.zeros((21, 20_000), dtype=np.int64))
    seen = releases.values.std(axis=1)
    stated = [mechanism.standard_deviation(step) for step in range(1, 22)]
    assert seen == pytest.approx(stated, rel=0.05)
    assert releases.scale == pytest.approx(stated)


def test_averaging_with_children_helps():
    """At every position the averaged estimate is at least as good, and it beats adding up noisy steps."""
    policy = tg.Event(epsilon="1")
    averaged = SlidingWindowTree(policy, window=256).deviations
    plain = SlidingWindowTree(policy, window=256, estimator="plain").deviations
    assert (averaged <= plain).all()
    assert averaged.mean() < 0.8 * plain.mean()
    assert (
        SlidingWindowTree(policy, window=1024).expected_error()
        < np.sqrt(1024) * Uniform(policy).expected_error()
    )


def test_scales_follow_the_policy():
    """Times w for w-event, times the horizon for users; under ρ by the largest norm of a window's change."""
    assert SlidingWindowTree(tg.WEvent(epsilon="2", window=6), window=8).scale == 9.0
    assert SlidingWindowTree(tg.User(epsilon="2", horizon=10), window=8).scale == 15.0
    assert SlidingWindowTree(tg.Event(epsilon="1", max_change=4), window=16).scale == 16.0
    # one step changes 3 nodes by 1: ρ = 3/(2σ²)
    assert SlidingWindowTree(tg.Event(rho="1/2"), window=8).scale == pytest.approx(np.sqrt(3))
    # two steps: levels of nodes of 1, 2, 4 steps change by (1, 1), 2, 2
    assert SlidingWindowTree(tg.WEvent(rho="1/2", window=2), window=8).scale == pytest.approx(
        np.sqrt(2 + 4 + 4)
    )


def test_bad_parameters_are_refused():
    """One sentence each."""
    for options in ({"window": 0}, {"window": 2**25}, {"estimator": "best"}):
        with pytest.raises(InvalidParameter) as caught:
            SlidingWindowTree(tg.Event(epsilon="1"), **options)
        assert len(str(caught.value).splitlines()) == 1
