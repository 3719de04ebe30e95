"""A second program recomputes the account: equal for ε, never above the log for (ε, δ) and ρ."""

from __future__ import annotations

import builtins
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.account import Account
from tidegate.core.charges import Charges, Span, span_rows
from tidegate.core.errors import Halted
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import empty_output
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.mechanisms.clipping.clipped_average import ClippedAverage
from tidegate.mechanisms.clipping.clipped_decay import ClippedDecay
from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.clipping.tops import ToPS
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.pipeline import charge_export as export
from tidegate.pipeline.charge_export import ExportFailed, Loss, dp_events, loss_distribution, losses, windows
from tidegate.releases import Status
from tiers import thinned

KINDS: tuple[Any, ...] = (
    Uniform, Sample, Blocks, BudgetAbsorption, BudgetDistribution, PeGaSus, HierarchicalPeGaSus, BackwardSmoothing,
    OptStream, HierarchicalOptStream, PerLeafOptStream, Fourier, BinaryTree, HybridTree, SlidingWindowTree,
    Factorization, Fast, RescueDP, Swellfish, Tide, ClippedSum, ClippedAverage, ClippedDecay, ClippedHistogram, ToPS,
)  # fmt: skip
STEPS = 40
GRID = 1 << 14  # points of the library's grid that the largest ε of a window spans


def examples() -> list[Any]:
    """All whose charges an account can hold."""
    found = [example for kind in KINDS for example in kind.examples()]
    return [example for example in found if getattr(example, "enforced", True)]


def charged(mechanism: Any) -> MemoryLog:
    """A log of one example."""
    log = MemoryLog()
    t, c = np.arange(STEPS)[:, None], np.arange(mechanism.columns)[None, :]
    with install(FixedEntropy("export")):
        Session(mechanism, log).push_batch(
            (60 * np.sin(t / 5 + c) + 80).astype(np.int64) + (t // 9) * 30 * (c % 2)
        )
    return log


def spent(found: list[Loss]) -> Fraction:
    """The sum of ε or ρ."""
    return sum(
        (each.rho if each.rho is not None else each.epsilon or Fraction(0)) * each.times for each in found
    ) + Fraction(0)


def fullest(log: MemoryLog, window: int | None) -> list[Loss]:
    """The losses of the window that has spent most, of the part that has."""
    found = losses(log)
    parts = {each.part for each in found}
    held = [w for part in parts for w in windows([each for each in found if each.part == part], window)]
    return max(held, key=lambda each: spent(each[2]))[2]


@pytest.mark.parametrize(
    "mechanism", thinned(examples(), 3), ids=lambda each: f"{type(each).__name__} {each.policy.budget}"
)
def test_a_second_program_recomputes_the_fullest_window(mechanism: Any) -> None:
    """By its own composition of events; of (ε, δ) by its privacy loss distributions."""
    library = pytest.importorskip("dp_accounting", reason=export.MISSING)
    log, policy = charged(mechanism), mechanism.policy
    held, budget = fullest(log, policy.window), policy.budget
    together = library.ComposedDpEvent(dp_events(held))
    if policy.rho is not None:
        delta = 1e-6
        found, whole = library.rdp.RdpAccountant(), library.rdp.RdpAccountant()
        found.compose(together)
        whole.compose(library.ZCDpEvent(float(budget.rho)))
        assert 0 < found.get_epsilon(delta) <= whole.get_epsilon(delta) * (1 + 1e-12)
        assert spent(held) <= budget.rho
        return
    exact = float(spent(held))
    interval = exact / GRID
    if policy.delta and not isinstance(policy, tg.Swellfish):
        delta = loss_distribution(held, interval).get_delta_for_epsilon(
            float(budget.epsilon) + len(held) * interval
        )
        assert 0 <= delta <= float(budget.delta) * (1 + 1e-6)
        return
    accountant = library.pld.PLDAccountant(library.NeighboringRelation.REPLACE_ONE, interval)
    accountant.compose(together)
    # the library rounds every loss up to its grid, and the grid is fine: what it finds is the sum
    assert exact * (1 - 1e-9) <= accountant.get_epsilon(0) <= exact + (len(held) + 1) * interval
    if not isinstance(policy, tg.Swellfish):
        assert spent(held) <= budget.epsilon


def test_composition_under_delta_is_the_one_of_the_log() -> None:
    """Forty steps of the ε that optimal composition allows have the δ of the budget, and hardly less."""
    pytest.importorskip("dp_accounting", reason=export.MISSING)
    policy, log = tg.WEvent(epsilon="1", delta="1e-6", window=40), MemoryLog()
    Session(Uniform(policy), log).push_batch([[1]] * 45)
    held = fullest(log, 40)
    step = held[0].epsilon
    assert len(held) == 40
    assert step is not None
    assert step > Fraction(1, 40)
    # the grid has every loss, so the library rounds nothing
    found = loss_distribution(held, export._up(step)).get_delta_for_epsilon(1.0)
    assert found == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize(("w", "noise"), [(6, "auto"), (6, "laplace"), (1, "auto")])
def test_the_windows_of_the_account_are_those_of_the_losses(w: int, noise: str) -> None:
    """Also where spans are extended: a span is one loss, and its window has it once."""
    log = MemoryLog()
    mechanism = Uniform(tg.WEvent(epsilon="1", window=w), noise=noise)
    for _ in range(3):
        Session(mechanism, log).push_batch([[1]] * 7)
    found = losses(log)
    for _, _, held in windows(found, w):
        assert 0 < sum(each.units for each in held) <= mechanism.units
    identities = [(each.kind, each.first) for each in found]
    assert len(set(identities)) == len(identities)


class Spanning:
    """A mechanism whose noise covers three steps, with events that cost, and a failure on demand."""

    columns = outputs = 1
    grid, rounding, clamp, more, most_spans, noise_in_state, units = 1, "refuse", None, (), 2, False, 14

    def __init__(self) -> None:
        self.policy = tg.WEvent(epsilon="7/2", window=4)

    def describe(self) -> dict[str, Any]:
        """What it is."""
        return {"mechanism": "Spanning", "policy": self.policy.describe()}

    def begin(self, first: int) -> Any:
        """The first step."""
        return np.array([first])

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Nothing is public."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Any:
        """One unit per step, and a span of three steps."""
        if rows[0, 0] == 99:
            raise RuntimeError
        spans: list[Span] = []
        for step in range(first, first + len(rows)):
            at, begin = divmod(step - int(state[0]), 3)[0], step - (step - int(state[0])) % 3
            spans = [each for each in spans if each.ordinal != at] + [Span(0, at, begin, step, 4)]
        output = empty_output(len(rows), 1)
        output.values[:], output.status[:], output.source[:] = 0, int(Status.FRESH), first
        output.scale[:], output.units[:] = 1, 1
        return output._replace(spans=span_rows(spans[-2:], 2))

    def hears(self, name: str) -> bool:
        """Of all events."""
        return True

    def event(self, state: Any, name: str, step: int, noise: Any) -> Charges:
        """Two units."""
        return Charges(step, np.array([2], dtype=np.int64))


def test_spans_halts_events_and_restarts_are_exported_once() -> None:
    """What each costs, and which steps it covers."""
    log = MemoryLog()
    session = Session(Spanning(), log)
    for _ in range(4):
        session.push([1])
    session.event("intrusion")
    with pytest.raises(Halted):
        session.push([99])
    assert verify(log.rows()).ok
    found = losses(log)
    # a halt extends what its windows still meet
    assert [each[3:7] for each in found if each.kind == "span"] == [("span", 1, 5, 4), ("span", 4, 5, 4)]
    assert [each[3:7] for each in found if each.kind == "event"] == [("event", 5, 5, 2)]
    assert [each.first for each in found if each.kind == "step"] == [1, 2, 3, 4]
    assert {each.epsilon for each in found if each.kind == "span"} == {Fraction(1)}
    assert all(sum(each.units for each in held) <= 14 for _, _, held in windows(found, 4))
    again = Session(Spanning(), log)
    again.push_batch([[1]] * 5)  # silent for three steps; the ordinals of spans begin again
    later = losses(log)
    assert later[: len(found)] == found
    assert [each[3:7] for each in later[len(found) :] if each.kind == "span"] == [("span", 9, 10, 4)]


def test_amended_scopes_keep_their_names_and_their_worth() -> None:
    """Charges before an amendment are worth what they were worth; an ended query is still there."""
    log = MemoryLog()
    policy = tg.WEvent(epsilon="1", window=3)
    one = {"a": Uniform(policy, noise="laplace"), "b": Uniform(policy, noise="laplace")}
    session = Session(one, log, shares={"a": "1/2", "b": "1/2"})
    session.push({"a": [1], "b": [1]})
    Session({"a": one["a"]}, log, shares={"a": "1/4"}, amend=True).push_batch({"a": [[1]] * 5})
    found = losses(log)
    assert {(each.query, each.scope): each.epsilon for each in found} == {
        ("a", 0): Fraction(1, 6),
        ("b", 1): Fraction(1, 6),
        ("a", 2): Fraction(1, 12),
    }
    assert all(spent(held) <= 1 for _, _, held in windows(found, 3))


def test_the_library_is_asked_for_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses need no library; events do."""
    normal = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError
        return normal(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExportFailed, match=r"tidegate\[accounting\]"):
        dp_events([])


def test_which_event_a_charge_becomes() -> None:
    """The odds of randomized response are e^ε; (ε, δ) has an event only where the library has one."""
    made = SimpleNamespace(
        ZCDpEvent=lambda rho: ("rho", rho),
        RandomizedResponseDpEvent=lambda p, buckets: ("ratio", (1 - p / 2) / (p / 2), buckets),
        ComposedDpEvent=lambda events: events,
        UnsupportedDpEvent=lambda: "unsupported",
    )
    newer = SimpleNamespace(**vars(made), EpsilonDeltaDpEvent=lambda epsilon, delta: (epsilon, delta))
    nothing = Fraction(0)
    pure = Loss(0, "", None, "step", 1, 1, 1, Fraction(2), nothing, None)
    kind, ratio, buckets = export._event(made, pure)
    assert (kind, buckets, math.isclose(ratio, math.exp(2))) == ("ratio", 2, True)
    assert len(export._event(made, pure._replace(times=3))) == 3
    assert export._event(made, pure._replace(epsilon=None, rho=Fraction(1, 2))) == ("rho", 0.5)
    assert export._event(made, pure._replace(epsilon=None)) == "unsupported"
    approximate = pure._replace(delta=Fraction(1, 8))
    assert export._event(made, approximate) == "unsupported"
    assert export._event(newer, approximate) == (2.0, 0.125)
    assert Fraction(export._up(Fraction(1, 3))) >= Fraction(1, 3)


def test_an_account_and_its_losses_agree_on_every_window() -> None:
    """A window of the losses holds what the account says it has left no room for."""
    log = MemoryLog()
    mechanism = BudgetAbsorption(tg.WEvent(epsilon="4", window=5), columns=2)
    session = Session(mechanism, log)
    session.push_batch(np.arange(60).reshape(30, 2) ** 2)
    account: Account = session._queries[0].account
    step = session.step + 1
    held = [each for each in losses(log) if each.meets(step - 4, step)]
    assert sum(each.units for each in held) == mechanism.units - account.remaining()
    assert sorted((each.units, each.first) for each in held) == sorted(
        (each.units, each.first) for each in account.held(step)
    )
