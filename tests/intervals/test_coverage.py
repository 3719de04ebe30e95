"""Intervals hold the truth as often as they say, and half as wide ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tidegate.core.session import Session
from tidegate.intervals import ByLaw
from tidegate.mechanisms import catalogue
from tidegate.testing.entropy import fixed_entropy
from tiers import rotated

EXAMPLES = {name: mechanism.examples() for name, mechanism in catalogue().items()}
LEVELS = (0.5, 0.9, 0.99)
RUNS = 6
SLACK = 0.12  # errors of a stream are correlated, and 6 are few; entropy is fixed, so nothing of it is chance


def slow(mechanism: Any, steps: int, seed: int) -> Any:
    """Small steps up and down around 200, on the grid of every example, below every bound."""
    moves = np.random.default_rng(seed).integers(-1, 2, (steps, mechanism.columns))
    return 200 + np.cumsum(moves, axis=0)


def scattered(mechanism: Any, steps: int, seed: int) -> Any:
    """Counts that scatter around 100 by chance, on the grid of every example, below every bound."""
    return np.random.default_rng(seed).poisson(100, (steps, mechanism.columns))


def errors_and_releases(mechanism: Any, seed: int, kind: Any = slow) -> Iterator[tuple[Any, Any]]:
    """Of one stream under fixed entropy: how far values are off, and the releases with their intervals."""
    fold = mechanism.intervals()
    rows = kind(mechanism, min(60, mechanism.policy.horizon or 60), seed)
    exact = mechanism.ideal(rows.astype(np.float64))
    if mechanism.forest is not None and mechanism.outputs != mechanism.columns:
        exact = mechanism.forest.sum(exact)
    if fold is None or exact.shape[1] != mechanism.outputs or "clip" in mechanism.more:
        return  # of values that are clipped the clip decides
    with fixed_entropy(seed):
        releases = Session(mechanism).push_batch(rows)
    fold.attach(fold.begin(), releases)
    for found in (releases, releases.revised):
        if found is not None and found.radius(0.9) is not None:
            yield np.abs(found.values - exact[: len(found)]), found


def held(off: Any, found: Any, level: float, part: float = 1.0) -> tuple[int, int]:
    """How many intervals that are known hold the truth, and how many there are."""
    radius = np.broadcast_to(found.radius(level), off.shape)
    known = np.isfinite(radius)
    return int((off[known] <= part * radius[known]).sum()), int(known.sum())


@pytest.mark.parametrize("kind", [slow, scattered])
@pytest.mark.parametrize("mechanism", rotated(EXAMPLES, 3))
def test_intervals_hold_the_truth_of_ordinary_streams(mechanism: Any, kind: Any) -> None:
    """The share that holds is at most SLACK below the level, at 50, 90 and 99 %."""
    found = [part for seed in range(RUNS) for part in errors_and_releases(mechanism, seed, kind)]
    for level in LEVELS:
        counts = [held(*part, level) for part in found]
        assert sum(a for a, _ in counts) >= (level - SLACK) * sum(b for _, b in counts), level


def test_intervals_of_half_the_scale_would_be_noticed() -> None:
    """The wrong version: where noise says all, half as wide intervals at 90 % hold fewer than 78 % on the whole."""
    counts = [
        held(*part, 0.9, 0.5)
        for examples in EXAMPLES.values()
        for mechanism in examples
        if isinstance(mechanism.intervals(), ByLaw)
        for part in errors_and_releases(mechanism, 7)
    ]
    total = sum(b for _, b in counts)
    assert total > 2000
    assert sum(a for a, _ in counts) < (0.9 - SLACK) * total
