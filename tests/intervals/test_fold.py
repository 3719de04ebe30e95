"""Intervals as a fold over releases: in batches, one by one, and resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_mechanism import subjects
from tidegate import WEvent
from tidegate.core.mechanism import KnowsErrors
from tidegate.core.session import Session
from tidegate.intervals import Errors, ratio_bounds, sum_radius, sum_variance
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Releases
from tiers import thinned

LENGTH = 70
CONFIDENCE = (0.5, 0.9)
# sums of squares may be added up in another order
DIFFERENT_ROUNDING = {"rtol": 1e-9, "atol": 1e-9}


def examples() -> list[Any]:
    """All mechanisms that know their errors, on plain columns."""
    known = [each.mechanism for each in subjects() if each.plain and isinstance(each.mechanism, KnowsErrors)]
    return [mechanism for mechanism in known if mechanism.intervals() is not None]


def stream(steps: int, columns: int) -> Any:
    """Waves, steps and ties."""
    t, c = np.arange(steps)[:, None], np.arange(columns)[None, :]
    return (60 * np.sin(t / 5 + c) + 80).astype(np.int64) + (t // 9) * 30 * (c % 2)


def half_widths(releases: Releases, confidence: float) -> Any:
    """One for each value."""
    found = releases.radius(confidence)
    assert found is not None
    return np.broadcast_to(found, releases.values.shape)


def folded(mechanism: Any, parts: list[Releases]) -> Any:
    """The state after all parts, each of which gets its intervals."""
    fold = mechanism.intervals()
    state = fold.begin()
    for part in parts:
        state = fold.attach(state, part)
        assert state.shape == fold.begin().shape  # public
    return state


@pytest.mark.parametrize("new", thinned(examples(), 4), ids=lambda new: type(new).__name__)
def test_in_batches_and_one_by_one(new: Any) -> None:
    """Half-widths do not depend on how steps were pushed."""
    rows = stream(LENGTH, new.columns)
    with install(FixedEntropy("same")):
        batch = Session(new).push_batch(rows)
        session = Session(new)
        singles = [session.push_batch([row]) for row in rows]
    whole, one_by_one = folded(new, [batch]), folded(new, singles)
    assert np.allclose(whole, one_by_one, equal_nan=True)
    for confidence in CONFIDENCE:
        now = half_widths(batch, confidence)
        narrow = np.concatenate([half_widths(each, confidence) for each in singles])
        assert np.allclose(narrow, now, **DIFFERENT_ROUNDING, equal_nan=True)
    errors = batch.radii.errors()
    assert all(part.shape == batch.values.shape for part in errors)
    assert not any((part < 0).any() for part in errors)


def test_resumed_from_a_state() -> None:
    """The second half after the state of the first is the same as both at once."""
    new = BudgetAbsorption(WEvent(epsilon="1", window=4), columns=3)
    with install(FixedEntropy("same")):
        whole = Session(new).push_batch(stream(LENGTH, 3))
        session = Session(new)
        halves = [session.push_batch(stream(LENGTH, 3)[part]) for part in (slice(0, 31), slice(31, None))]
    folded(new, [whole])
    fold = new.intervals()
    fold.attach(fold.attach(fold.begin(), halves[0]).copy(), halves[1])
    assert np.allclose(half_widths(halves[1], 0.9), half_widths(whole, 0.9)[31:])


@pytest.mark.parametrize("kind", [Uniform, Sample, BudgetAbsorption, PeGaSus, Tide, Fast])
def test_small_counts_and_their_sums(kind: Any) -> None:
    """Of columns that are too small to be seen: steps, and sums of 30 steps whose errors are correlated."""
    rows = np.random.default_rng(3).poisson(np.geomspace(0.1, 2, 10), (300, 10))
    mechanism = kind(WEvent(epsilon="1", window=7), columns=10)
    with install(FixedEntropy("small counts")):
        releases = Session(mechanism).push_batch(rows)
    folded(mechanism, [releases])
    radius = half_widths(releases, 0.9)
    known = np.isfinite(radius)
    held = np.abs(releases.values - rows) <= radius
    assert held[known].mean() >= 0.86
    assert min(held[known[:, c], c].mean() for c in range(10)) >= 0.8
    wide = sum_radius(releases.radii.errors(), 30, 0.9)[29::30]
    off = (releases.values - rows).reshape(10, 30, 10).sum(axis=1)
    assert (np.abs(off) <= wide)[np.isfinite(wide)].mean() >= 0.86


def test_parts_of_errors_add_up() -> None:
    """Independent, repeated, fading and lasting errors; of fewer steps at the beginning."""
    one, none = np.ones((6, 1)), np.zeros((6, 1))
    assert sum_variance(Errors(one, none, none, none), 3).ravel().tolist() == [1, 2, 3, 3, 3, 3]
    assert sum_variance(Errors(none, one, one, none), 3).ravel().tolist() == [1, 4, 9, 9, 9, 9]
    assert sum_variance(Errors(none, none, none, one), 3).ravel().tolist() == [1, 4, 9, 9, 9, 9]
    half = sum_variance(Errors(none, one, one / 2, none), 3)[-1, 0]
    assert half == 3 + 2 * (0.5 + 0.5 + 0.25)
    low, high = ratio_bounds(np.array([5.0]), np.array([1.0]), np.array([1.0]), np.array([2.0]))
    assert low[0] == -np.inf
    assert high[0] == np.inf


def test_steps_that_are_passed_over() -> None:
    """A gap between releases is a gap between measurements."""
    mechanism = Sample(WEvent(epsilon="1", window=4))
    session = Session(mechanism)
    parts = [session.push_batch([[40]], step=step) for step in (1, 2, 9, 11)]
    folded(mechanism, parts)
    width = [float(half_widths(part, 0.9)[0, 0]) for part in parts]
    assert width[2] == width[0] < width[1]
    assert width[3] > width[2]


def test_nothing_to_fold() -> None:
    """No steps, no change."""
    mechanism = Sample(WEvent(epsilon="1", window=4))
    nothing = Session(mechanism).push_batch(np.zeros((1, 1), dtype=np.int64))
    fold = mechanism.intervals()
    state = fold.attach(fold.begin(), nothing)
    assert not fold.begin().any()
    assert state.any()
