"""Intervals of a model that says how far it is off, after its claims have changed."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate import WEvent
from tidegate.core.session import Session
from tidegate.intervals.modelled import Learnt, shown
from tidegate.mechanisms.tide.tide import Tide
from tidegate.testing.entropy import fixed_entropy

RUNS = 8


def learnt(square: float, claimed: float) -> Learnt:
    """Measurements that show this variance, where that one was claimed; they are 64."""
    return Learnt(*(np.array([each]) for each in (square, square**2 / 32, claimed, 0.0, 0.0)))


@pytest.mark.parametrize(
    ("square", "before", "claimed", "low", "high"),
    [
        (4.0, 4.0, 4.0, 3.9, 4.1),  # it was right
        (
            20.0,
            2.0,
            0.5,
            13.0,
            20.0,
        ),  # a column that noise hides, when claims shrink: in proportion 5 would be left
        (
            20.0,
            2.0,
            200.0,
            200.0,
            220.0,
        ),  # claims that have learnt from a jump: in proportion it would be 2,000
    ],
)
def test_what_was_beyond_claims_is_added_to_the_claim_of_now(
    square: float, before: float, claimed: float, low: float, high: float
) -> None:
    """Errors beyond what was claimed neither grow nor shrink with later claims."""
    found, _ = shown(learnt(square, before), np.array([claimed]), np.array([claimed]))
    assert low <= found[0] <= high


def test_intervals_get_narrow_again_after_a_jump() -> None:
    """After a jump from nothing to 40, intervals are at most 1.75 times as wide as nine of ten errors.

    The mean of 8 runs. In 60 runs this was 1.47 with a standard deviation of 0.13; it was 2.14 with 0.35 where what was
    beyond claims was scaled by them. So a right program fails for one entropy in a billion, and the wrong one passes for
    one in a thousand; entropy is fixed.
    """
    times = []
    for seed in range(RUNS):
        rates = np.where(np.arange(400)[:, np.newaxis] < 100, 0.02, np.array([40.0, 40.0]))
        rows = np.random.default_rng(seed).poisson(rates)
        mechanism = Tide(WEvent(epsilon="1", window=7), columns=2, periods=(7,), nonnegative=True)
        with fixed_entropy(seed):
            releases = Session(mechanism).push_batch(rows)
        fold = mechanism.intervals()
        fold.attach(fold.begin(), releases)
        half, off = releases.radii(0.9)[130:], np.abs(releases.values - rows)[130:]
        times.append(half.mean(axis=0) / np.quantile(off, 0.9, axis=0))
    assert 1.0 <= np.mean(times) <= 1.75
