"""What means and covariances suggest, and that the attack goes there first."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tidegate.audit import neighbours
from tidegate.audit.courses import SINGLY
from tidegate.audit.moments import Suggested, suggested
from tidegate.audit.search import most_moved
from tidegate.audit.subjects import Configured
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.policy import Approximate, Event, Pure, WEvent, ZeroConcentrated

COUNT = 4000


def drawn(noise: np.ndarray, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """Running sums of noise; in the second, the first step is larger."""
    sums = np.cumsum(noise, axis=2)
    sums[1] += moved
    return sums[0], sums[1]


def test_small_losses_of_several_steps_add_up() -> None:
    """Sums hide that a node moves and the others do not."""
    random = np.random.default_rng(1)
    found = suggested(*drawn(random.laplace(scale=2, size=(2, COUNT, 6)), 1), Pure(Fraction(1)))
    assert found.least < 0.5 < found.most < 0.65
    gaussian = random.normal(size=(2, COUNT, 6))
    assert suggested(*drawn(gaussian, 1), ZeroConcentrated(Fraction(1))).least == pytest.approx(
        0.45, abs=0.08
    )
    approximate = Approximate(Fraction(1), Fraction(1, 1000))
    # one standard deviation of Gaussian noise has ε = 3.14 at δ = 1/1000
    assert suggested(*drawn(gaussian, 1), approximate).least == pytest.approx(3.0, abs=0.2)


def test_what_does_not_move_suggests_nothing() -> None:
    """Streams without any difference, constants, and too few transcripts."""
    noise = np.random.default_rng(2).laplace(size=(2, COUNT, 3))
    assert suggested(noise[0], noise[1], Pure(Fraction(1))).least == 0
    assert suggested(np.zeros((COUNT, 2)), np.ones((COUNT, 2)), Pure(Fraction(1))) == Suggested()
    assert suggested(noise[0, :20], noise[1, :20] + 5, Pure(Fraction(1))) == Suggested()


def test_transcripts_of_one_scale_are_looked_at_by_themselves() -> None:
    """The same loss under a small and a large scale looks like less where both are mixed."""
    random = np.random.default_rng(3)
    scale = random.choice([1.0, 8.0], size=(2, COUNT, 1))
    values = random.laplace(size=(2, COUNT, 1)) * scale
    values[1] += 1
    both = np.concatenate([values, scale], axis=2)
    mixed = suggested(both[0], both[1], Pure(Fraction(1)))
    apart = suggested(both[0], both[1], Pure(Fraction(1)), [1])
    assert mixed.most < 0.5 < 0.8 < apart.least


def test_the_place_that_loses_most_is_found() -> None:
    """Pairs come with what they suggest, most first."""
    sound = HybridTree(Event(epsilon="1"), estimator="plain")
    moved = most_moved(Configured(sound), 6, [], sound.policy.budget, 0.2, neighbours.chooser(1))
    assert len(moved) > 1
    assert moved == sorted(moved, key=lambda each: -each[0])
    assert all(sound.policy.distance(pair.first, pair.second) == 1 for _, pair in moved)


def test_single_pushes_are_drawn_without_a_session() -> None:
    """They have the same numbers as releases have."""
    mechanism = Uniform(WEvent(epsilon="2", window=2), noise="laplace")
    single = Configured(mechanism, course=SINGLY).sample(np.full((3, 1), 7), 400)
    assert single.shape == (400, 3 * 4)
    assert single[:, 0::4].mean() == pytest.approx(7, abs=0.5)
    assert set(single[:, 3::4].ravel()) == {1.0}


def test_what_is_revised_is_seen() -> None:
    """The sums of the first steps come late, and have noise of their own."""
    mechanism = ClippedSum(
        Event(epsilon="4", max_change=2),
        horizon=8,
        lag=3,
        above=2,
        multiplier=1,
        first_sums=True,
        estimator="plain",
    )
    looked = Configured(mechanism)
    layout = looked.layout(4)
    seen = looked.sample(np.ones((4, 1), dtype=np.int64), 50)
    assert layout.steps == 4
    assert seen.shape[1] > layout.steps * layout.width
    assert np.isfinite(seen[:, layout.steps * layout.width :]).any()
