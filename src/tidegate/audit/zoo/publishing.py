"""Budget Distribution and Budget Absorption as printed, and mutants of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidegate.audit.subjects import Callee, Configured
from tidegate.audit.zoo.animal import EXACT, PAIR, REPLAY, Animal, Floats, Stream, pair
from tidegate.mechanisms.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.budget_distribution import BudgetDistribution
from tidegate.mechanisms.pan_private import PanPrivateRun
from tidegate.mechanisms.publishing import Publishing
from tidegate.policy import Policy, WEvent


class _Loose(BudgetAbsorption):
    """A mutant whose ledger writes down and refuses nothing."""

    enforced = property(lambda self: False)


class OneNullifiedStepShort(_Loose):
    """A publication of n shares is repaid by n − 2 steps instead of n − 1."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """One too few."""
        return np.maximum(np.arange(self.window + 1) - 1, 1)


class NeverRepaid(_Loose):
    """Absorbed shares are never repaid, and still absorbed by later steps."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """Nothing."""
        return np.zeros(self.window + 1, dtype=np.int64)


class QuietTest(_Loose):
    """The dissimilarity is compared without noise."""

    @cached_property
    def score_scale(self) -> float:
        """Next to nothing."""
        return 0.01


class HalfTest(_Loose):
    """The dissimilarity has half of its noise."""

    @cached_property
    def score_scale(self) -> float:
        """Too small."""
        return float(super().score_scale) / 4


class WholePool(_Loose):
    """Publications take all of ε, and tests half of it besides."""

    @cached_property
    def whole_scale(self) -> float:
        """Too small."""
        return float(super().whole_scale) / 2


class Forgetful(BudgetDistribution):
    """Recycles the budget of a publication after one step, not when it leaves the window."""

    enforced = property(lambda self: False)

    @property
    def window(self) -> int:
        """One step."""
        return 1

    @property
    def shares(self) -> tuple[int, int, int]:
        """Those of the real window."""
        w = self.policy.steps_charged
        fine = 1 << 30
        return 2 * w * fine, fine, w * fine


class Replaced(BudgetAbsorption):
    """A row may change column, and Δ stays 1."""

    @cached_property
    def sensitivity(self) -> int:
        """That of a row added or removed."""
        return 1


def seen_in_mid_step(make: Callable[[], Publishing]) -> Callable[[Stream], Floats]:
    """An intruder looks at the state in mid-step: some rows have arrived, those of the stream arrive afterwards."""

    def intruded(stream: Stream) -> Floats:
        run = make().start()
        assert isinstance(run, PanPrivateRun)
        seen: list[float] = []
        for row in stream:
            run.open_step()
            run.arrive(0, 4096)
            state = run.memory()["counts"]
            seen.append(float(state[0]) if state.size else 0.0)
            run.arrive(0, int(row[0]))
            seen.append(float(run.close_step().values[0]))
        return np.array(seen)

    return intruded


def _intruded(kind: type[Publishing], policy: Policy, calibration: str) -> Callee:
    def make() -> Publishing:
        return kind(policy, pan_private="single", calibration=calibration)

    return Callee(seen_in_mid_step(make), policy, name=f"{kind.__name__}, {calibration}, seen in mid-step")


def animals() -> list[Animal]:
    """All of them."""
    literal = BudgetAbsorption(WEvent(epsilon="3", w=2), calibration="paper")
    groups = tuple((column,) for column in range(3))
    return [
        Animal("BA, line 5 read literally", "printed: absorbed shares are not repaid", lambda: literal, 1.25, EXACT),
        Animal("BA, line 5 read literally, sampled", "the same by sampling", lambda: literal, 1.25, PAIR,
               (pair([0, 0, 1], [0, 1, 2]), pair([0, 0, 2], [0, 1, 3]), pair([1, 0, 1], [1, 1, 2])), 3),
        Animal("BA, literally, by its account", "w = 4: 1.375 ε",
               lambda: BudgetAbsorption(WEvent(epsilon="1", w=4), calibration="paper"), 1.375, REPLAY),
        Animal("BA in floating point", "printed: the number of nullified steps is off by one at ε = 0.7, w = 4",
               lambda: BudgetAbsorption(WEvent(epsilon="0.7", w=4), calibration="paper-float"), 1.125, REPLAY),
        Animal("BA, one nullified step short", "off by one",
               lambda: OneNullifiedStepShort(WEvent(epsilon="1", w=4)), 1.125, REPLAY),
        Animal("BA, never repaid", "each step absorbs all steps before it",
               lambda: NeverRepaid(WEvent(epsilon="3", w=3)), 1.5, steps=5, seconds=20),
        Animal("BA, independent groups", "printed: a moving unit meets a fresh budget in each group",
               lambda: BudgetAbsorption(WEvent(epsilon="3", w=3), columns=3, groups=groups, calibration="paper"),
               2.0, seconds=25, steps=5),
        Animal("BA, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: BudgetAbsorption(WEvent(epsilon="3", w=2), columns=5, shift=True, calibration="paper"),
               1.4, REPLAY),
        Animal("BD, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: BudgetDistribution(WEvent(epsilon="3", w=2), columns=5, shift=True, calibration="paper"),
               1.15, REPLAY),
        Animal("BA, test without noise", "whether a step is published is exact",
               lambda: QuietTest(WEvent(epsilon="1", w=2)), math.inf, steps=3),
        Animal("BA, test with a quarter of the noise", "tests spend four times their share",
               lambda: HalfTest(WEvent(epsilon="2", w=2)), 2.5, steps=3),
        Animal("BA, publications take all of ε", "and tests another half",
               lambda: WholePool(WEvent(epsilon="2", w=2)), 1.5, steps=3),
        Animal("BD, budget recycled too early", "after one step, not after w",
               lambda: Forgetful(WEvent(epsilon="3", w=3)), 1.25, steps=4, seconds=20),
        Animal("BA, rows replaced", "Δ = 1 where it is 2",
               lambda: Configured(Replaced(WEvent(epsilon="2", w=2, adjacency="replace"), columns=2)), 2.0, steps=3,
               seconds=20),
        Animal("pan-private BA, seen in mid-step", "printed: published minus state is exact",
               lambda: _intruded(BudgetAbsorption, WEvent(epsilon="4", w=1), "paper"), math.inf, steps=1, seconds=15),
        Animal("pan-private BD, seen in mid-step", "printed: published minus state is exact",
               lambda: _intruded(BudgetDistribution, WEvent(epsilon="4", w=1), "paper"), math.inf, steps=1,
               seconds=15),
    ]  # fmt: skip
