from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import BinaryTree, HybridTree
from tidegate.policy import Event, User, WEvent
from tidegate.testing.entropy import zero_noise


@given(branching=st.integers(2, 5), steps=st.integers(1, 400))
def test_without_noise_the_running_sum_is_exact(branching, steps):
    """Finished blocks and the open tree add up to every prefix."""
    rows = np.arange(steps) % 7
    with zero_noise():
        released = Session(HybridTree(Event(epsilon="1"), branching=branching)).push_batch(rows)
    assert np.allclose(released.values[:, 0], np.cumsum(rows))


@given(step=st.integers(1, 10**9), branching=st.integers(2, 6))
def test_blocks_are_disjoint_and_cover_every_step(step, branching):
    """Each step is in one block, whose tree has enough levels for its root."""
    mechanism = HybridTree(Event(epsilon="1"), branching=branching)
    block = mechanism.block(step)
    assert block.first <= step < block.first + block.size
    assert block.size == branching ** (block.levels - 1)
    if block.first > 1:
        before = mechanism.block(block.first - 1)
        assert before.first + before.size == block.first


def test_scale_grows_with_the_block():
    """Block j has j + 1 levels, each with that fraction of the budget."""
    mechanism = HybridTree(WEvent(epsilon="1/2", window=3))
    assert [mechanism.scale_of(mechanism.block(step).levels) for step in (1, 2, 4, 1024)] == [6, 12, 18, 66]


def test_not_far_behind_a_tree_that_knows_the_length():
    """The standard deviation is at most 1.9 times that of BinaryTree with the horizon 2^k − 1, for k up to 24."""
    hybrid = HybridTree(Event(epsilon="1"))
    for k in range(3, 25):
        steps = 2**k - 1
        known = BinaryTree(Event(epsilon="1"), horizon=steps)
        assert hybrid.standard_deviation(steps) < 1.9 * known.standard_deviation(steps)


def test_the_closed_form_of_linear_answers():
    """A window difference that straddles blocks, against 20,000 streams, within 3 per cent."""
    mechanism = HybridTree(Event(rho="1/2"), columns=20_000)
    values = Session(mechanism).push_batch(np.zeros((40, 20_000), dtype=np.int64)).values
    weights = np.zeros(37)
    weights[36], weights[20], weights[6] = 1, -1, 0.5
    answer = values[36] - values[20] + 0.5 * values[6]
    assert mechanism.deviation_of(weights) == pytest.approx(answer.std(), rel=0.03)


def test_no_user_level_guarantee_on_an_endless_stream():
    """User is refused with one sentence."""
    with pytest.raises(InvalidParameter, match="Event or WEvent for HybridTree"):
        HybridTree(User(epsilon="1", horizon=100))
