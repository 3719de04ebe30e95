"""Mechanisms on the new core release what they released before, bit for bit, under fixed entropy."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tidegate import mechanisms as before
from tidegate._mechanisms.counters.binary_tree import BinaryTree
from tidegate._mechanisms.counters.factorization import Factorization
from tidegate._mechanisms.counters.hybrid_tree import HybridTree
from tidegate._mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate._mechanisms.optstream.opt_stream import OptStream
from tidegate._mechanisms.pegasus.pegasus import PeGaSus
from tidegate._mechanisms.plain.sample import Sample
from tidegate._mechanisms.plain.uniform import Uniform
from tidegate._mechanisms.sampled.fast import Fast
from tidegate._mechanisms.sampled.rescue_dp import RescueDP
from tidegate._mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate._mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy

MOVED = {
    before.Uniform: Uniform,
    before.Sample: Sample,
    before.BudgetAbsorption: BudgetAbsorption,
    before.BudgetDistribution: BudgetDistribution,
    before.PeGaSus: PeGaSus,
    before.OptStream: OptStream,
    before.BinaryTree: BinaryTree,
    before.HybridTree: HybridTree,
    before.SlidingWindowTree: SlidingWindowTree,
    before.Factorization: Factorization,
    before.Fast: Fast,
    before.RescueDP: RescueDP,
}
LENGTH = 70


def moved(old: Any) -> Any:
    """The same configuration on the new core."""
    return MOVED[type(old)](**{each.name: getattr(old, each.name) for each in fields(old)})


def examples() -> list[Any]:
    """All that have moved: not yet pan-private ones, and not fixed column groups, which are mechanisms of their own."""
    found = [example for kind in MOVED for example in kind.examples()]
    return [
        example
        for example in found
        if not getattr(example, "pan_private", None) and not getattr(example, "independent", False)
    ]


def stream(steps: int, columns: int) -> Any:
    """Waves, steps and ties."""
    t, c = np.arange(steps)[:, None], np.arange(columns)[None, :]
    return (60 * np.sin(t / 5 + c) + 80).astype(np.int64) + (t // 9) * 30 * (c % 2)


@pytest.mark.parametrize("old", examples(), ids=lambda old: type(old).__name__)
def test_batches_single_pushes_and_reopened_logs(old: Any) -> None:
    """Values, statuses, sources and scales; charges fit, and a verified log says so."""
    new, rows = moved(old), stream(LENGTH, old.columns)
    with install(FixedEntropy("same")):
        expected = old.start().push_batch(rows)
        batch = Session(new).push_batch(rows)
        log = MemoryLog()
        single = [Session(new, log).push(row) for row in rows]  # every step in a session of its own
    for name in ("values", "status", "source", "scale"):
        assert np.array_equal(getattr(expected, name), getattr(batch, name)), name
        assert np.array_equal(
            getattr(expected, name), np.concatenate([getattr(each, name) for each in single])
        ), name
    assert verify(log.rows()).ok
