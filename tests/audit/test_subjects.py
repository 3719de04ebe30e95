from __future__ import annotations

import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import distributions
from tidegate.audit import direct, neighbours
from tidegate.audit.copies import widened
from tidegate.audit.courses import AT_ONCE, MARKS, SINGLY, Course, Part, Refused
from tidegate.audit.neighbours import Counts
from tidegate.audit.search import Effort, candidates
from tidegate.audit.subjects import Callee, Configured, Failure, longest
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.policy import Event, WEvent
from tidegate.structures.hierarchy import Hierarchy
from waiting import LIMIT


def test_direct_runs_have_the_distribution_of_sessions() -> None:
    """How often step 2 repeats step 1: direct runs against sessions, exact binomial tails; a mutant is refused."""
    mechanism = BudgetAbsorption(WEvent(epsilon="2", window=2), noise="laplace")
    stream = np.array([[2], [3]])
    subject = Configured(mechanism)
    assert subject.way == "direct"
    many = subject.sample(stream, 60_000)
    share = float(np.mean(many[:, 0] == many[:, 1 + MARKS]))
    runs = np.array([Session(mechanism).push_batch(stream).values[:, 0] for _ in range(2000)])
    same = int(np.count_nonzero(runs[:, 0] == runs[:, 1]))
    assert distributions.compare_counts({"step 2 repeats step 1": (same, share)}, 2000).ok
    assert not distributions.compare_counts({"step 2 repeats step 1": (same, share * 0.7)}, 2000).ok


def test_columns_are_replicas_only_where_that_is_the_same() -> None:
    """Copies of columns leave the noise alone, or they are not used."""
    assert widened(Uniform(Event(epsilon="1")), 5) is not None
    assert widened(PeGaSus(Event(epsilon="1"), columns=2), 5) is not None
    assert widened(Uniform(Event(epsilon="1", adjacency="replace")), 5) is None  # Δ would double
    assert widened(Fast(WEvent(epsilon="1", window=4)), 5) is None  # columns share their sampling times
    assert Configured(Fast(WEvent(epsilon="1", window=4))).way == "direct"


@pytest.mark.parametrize(
    "mechanism", [Uniform(Event(epsilon="1"), columns=2), PeGaSus(Event(epsilon="1"), columns=2)]
)
def test_transcripts_keep_the_order_of_steps_and_columns(mechanism: Uniform) -> None:
    """Each transcript is steps × (kinds × columns), around its own true values."""
    stream = 10_000 * (1 + np.arange(6).reshape(3, 2))
    drawn = Configured(mechanism).sample(stream, 500)
    per_step = drawn.shape[1] // 3
    assert per_step % 2 == 0
    for step in range(3):
        assert np.allclose(
            np.median(drawn[:, step * per_step : step * per_step + 2], axis=0), stream[step], atol=30
        )


def test_copies_of_a_hierarchy_keep_the_order_of_nodes() -> None:
    """Every transcript has the nodes of one copy, in the order of the hierarchy's names, around their true sums."""
    tree = Hierarchy.from_parents({"all": None, "one": "all", "two": "all", "other": "one", "third": "one"})
    mechanism = HierarchicalPeGaSus(Event(epsilon="50"), hierarchy=tree, pruning="none")
    stream = np.array([[1000, 20_000, 300_000]])
    subject = Configured(mechanism)
    assert subject.way == "columns"
    many = subject.sample(stream, 700)
    alone = direct.released(mechanism, stream)
    assert many.shape == (700, 3 * mechanism.outputs)
    assert np.allclose(np.median(many[:, : mechanism.outputs], axis=0), alone.values[0], atol=30)
    assert np.ptp(many[:, : mechanism.outputs], axis=0).max() < 100


def test_transcripts_of_refused_runs_have_the_length_of_the_others() -> None:
    """Where some runs are refused in the middle, and so show less, all transcripts are brought to one length."""
    turns = iter([False, True] * 50)

    def drive(mechanism: Any, stream: Counts) -> list[Part]:
        begun = AT_ONCE.drive(mechanism, stream[:2])
        return [*begun, Refused(2)] if next(turns) else [*begun, *AT_ONCE.drive(mechanism, stream[2:])]

    mechanism = BackwardSmoothing(Event(epsilon="1"), back=2)
    sampled = Configured(mechanism, course=Course("refused now and then", drive))
    stream = np.array([[0], [10**6], [2 * 10**6], [3 * 10**6]])
    first = sampled.sample(stream, 7)
    for shown in (sampled.sample(stream, count) for count in (5, 20_001, 3)):
        assert shown.shape[1] == first.shape[1]
        assert np.abs(shown[:, 0]).max() < 1000


def test_failures_have_a_kind() -> None:
    """A crash, a hang, a ragged result and a text are told apart."""
    policy = Event(epsilon="1")

    def crash(stream: np.ndarray) -> np.ndarray:
        raise RuntimeError("secret value 42")

    def ragged(stream: np.ndarray) -> np.ndarray:
        ragged.calls += 1  # type: ignore[attr-defined]
        return np.zeros(1 + ragged.calls % 2)  # type: ignore[attr-defined]

    ragged.calls = 0  # type: ignore[attr-defined]
    stream = np.zeros((2, 1), dtype=np.int64)
    cases = [
        (crash, "crashes", LIMIT),
        (lambda stream: threading.Event().wait(LIMIT), "hangs", 0.3),
        (ragged, "shape", LIMIT),
        (lambda stream: "text", "shape", LIMIT),
    ]
    for call, kind, seconds in cases:
        with pytest.raises(Failure) as failure:
            Callee(call, policy, seconds=seconds).sample(stream, 3)
        assert failure.value.kind == kind
        assert "42" not in str(failure.value)


def test_a_threshold_is_attacked_on_its_sample() -> None:
    """It is no mechanism of the catalogue, and releases once, at the end of its sample."""
    threshold = Threshold(Event(epsilon="1", max_change=16), sample=3, above=1, per_doubling=4)
    assert longest(threshold) == 3
    drawn = Configured(threshold).sample(np.zeros((3, 1), dtype=np.int64), 4)
    assert np.isfinite(drawn).any(axis=1).all()


def test_what_reads_records_is_refused_and_not_accused() -> None:
    """Streams of values are no records: the mechanism would refuse every one of them."""
    mechanism = ClippedRecords.examples()[0]
    with pytest.raises(InvalidParameter, match="values of columns"):
        Configured(mechanism)


def test_streams_are_in_units_of_the_grid() -> None:
    """Changes that are smaller than 1 are tried as well, beside the grid where values are rounded."""
    fine = Uniform(WEvent(epsilon="2", window=2, max_change="1/2"), grid="1/4", noise="laplace")
    looked = Configured(fine)
    assert (looked.unit, looked.policy.max_change, looked.claimed) == (Fraction(1, 4), 2, fine.policy)
    rounded = Configured(Uniform(WEvent(epsilon="2", window=2), rounding="nearest", noise="laplace"))
    assert (rounded.unit, rounded.policy.max_change) == (Fraction(1, 2), 2)
    levels = looked.sample(np.full((1, 1), 4 * neighbours.BIG), 50)
    assert np.all(abs(levels - neighbours.BIG) < 100)
    effort, choose = Effort(), neighbours.chooser(1)
    assert any(pair.below_zero for pair in candidates(looked, 3, effort, choose))
    counted = Callee(lambda stream: np.sqrt(stream), fine.policy)
    assert not any(pair.below_zero for pair in candidates(counted, 3, effort, choose))


def test_a_run_that_is_pushed_singly_has_its_own_columns() -> None:
    """Copies beside each other would go another way than one value does."""
    fine = Uniform(WEvent(epsilon="2", window=2, max_change="1/2"), grid="1/4", noise="laplace")
    looked = Configured(fine, course=SINGLY)
    assert (looked.way, Configured(fine).way) == ("direct", "columns")
    assert looked.sample(np.ones((3, 1), dtype=np.int64), 4).shape[0] == 4
