"""Mechanisms on the new core release what they released before, bit for bit, under fixed entropy."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tidegate import mechanisms as before
from tidegate._mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate._mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate._mechanisms.pegasus.pegasus import PeGaSus
from tidegate._mechanisms.sampled.fast import Fast
from tidegate._mechanisms.sampled.rescue_dp import RescueDP
from tidegate._mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate._mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy

MOVED: dict[type[Any], type[Any]] = {
    before.Uniform: Uniform,
    before.Sample: Sample,
    before.BudgetAbsorption: BudgetAbsorption,
    before.BudgetDistribution: BudgetDistribution,
    before.PeGaSus: PeGaSus,
    before.HierarchicalPeGaSus: HierarchicalPeGaSus,
    before.BackwardSmoothing: BackwardSmoothing,
    before.OptStream: OptStream,
    before.HierarchicalOptStream: HierarchicalOptStream,
    before.PerLeafOptStream: PerLeafOptStream,
    before.Fourier: Fourier,
    before.BinaryTree: BinaryTree,
    before.HybridTree: HybridTree,
    before.SlidingWindowTree: SlidingWindowTree,
    before.Factorization: Factorization,
    before.Fast: Fast,
    before.RescueDP: RescueDP,
    before.Swellfish: Swellfish,
}
LENGTH = 70


def moved(old: Any) -> Any:
    """The same configuration on the new core."""
    kind = MOVED[type(old)]
    return kind(**{each.name: getattr(old, each.name) for each in fields(old)})


def examples() -> list[Any]:
    """All that have moved, but for the printed calibration, which no account can hold."""
    found = [example for kind in MOVED for example in kind.examples()]
    return [example for example in found if getattr(example, "enforced", True)]


def assert_same_revised(expected: Any, batch: Any, single: list[Any]) -> None:
    """Final values of earlier steps, where a mechanism has them."""
    assert (expected is None) == (batch is None)
    for name in ("steps", "values", "status", "source", "scale", "ends") if expected is not None else ():
        parts = [getattr(each.revised, name) for each in single if each.revised is not None]
        assert np.array_equal(getattr(expected, name), getattr(batch, name)), name
        assert np.array_equal(getattr(expected, name), np.concatenate(parts)), name


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
        single = [
            Session(new, log).push_batch(row[np.newaxis]) for row in rows
        ]  # every step in a session of its own
    for name in ("values", "status", "source", "scale"):
        assert np.array_equal(getattr(expected, name), getattr(batch, name)), name
        assert np.array_equal(
            getattr(expected, name), np.concatenate([getattr(each, name) for each in single])
        ), name
    assert_same_revised(expected.revised, batch.revised, single)
    assert verify(log.rows()).ok


def test_steps_before_the_first_one_leave_their_budget() -> None:
    """An intended difference: a stream that begins late has steps that were passed over, and they have spent nothing.

    Before, a run of Budget Absorption that began at step 50 had one share there; now it has those of a whole window.
    """
    old = before.BudgetAbsorption(before.BudgetAbsorption.examples()[0].policy, columns=3, noise="laplace")
    new, row = moved(old), np.full(3, 10**6)
    run, session = old.start(), Session(new)
    run.begin_at(50)
    assert session.push(row, step=50).scale * old.window <= run.push(row).scale * 1.0000001
    assert int(session.push(row).status) == 3  # nullified: it is paid for
