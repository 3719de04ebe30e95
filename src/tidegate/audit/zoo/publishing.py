"""Budget Distribution and Budget Absorption as printed, and mutants of them."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit.intrusions import Intruded
from tidegate.audit.subjects import Configured
from tidegate.audit.zoo.animal import (
    EXACT,
    PAIR,
    PRINTED,
    REPLAY,
    Animal,
    bent,
    original,
    pair,
)
from tidegate.ledger import Ledger
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import WEvent
from tidegate.releases import Releases


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


class QuarterTest(_Loose):
    """The dissimilarity has a quarter of its noise."""

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


class ThinPanPrivate(BudgetAbsorption):
    """Half of all noise is missing."""

    @cached_property
    def whole_scale(self) -> float:
        """Too small."""
        return float(super().whole_scale) / 2

    @cached_property
    def score_scale(self) -> float:
        """Too small."""
        return float(super().score_scale) / 2


class FirstReleaseIsACount(BudgetDistribution):
    """Before the first publication the release is the first count, as it is (o_l is not defined there)."""

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> Any:
        """A run that begins with what it was given."""
        return bent(super().start(ledger, state), _push_batch=_begin_with_a_count)


def _begin_with_a_count(run: Any, matrix: Any, first_step: int) -> Any:
    if first_step == 1:
        run._arrays.last[:] = matrix[0]
    return original(run, "_push_batch")(matrix, first_step)


class Regrouped(_Loose):
    """Groups are formed anew every w steps, and what was spent before is forgotten."""

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> Any:
        """A run that forgets."""
        return bent(super().start(ledger, state), _push_batch=_forgetting)


def _forgetting(run: Any, matrix: Any, first_step: int) -> Any:
    parts = []
    for at in range(len(matrix)):
        if (first_step + at - 1) % run.mechanism.window == 0:
            memory = run._arrays.memory
            memory[loop.LATEST], memory[loop.TAKEN] = 0, 1
        parts.append(original(run, "_push_batch")(matrix[at : at + 1], first_step + at))
    values, status, source, scale, units = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("values", "status", "source", "scale", "units")
    )
    return Releases(first_step, values, status, source, scale, units, parts[0].unit)


def animals() -> list[Animal]:
    """All of them."""
    literal = BudgetAbsorption(WEvent(epsilon="3", w=2), calibration="paper")
    groups = tuple((column,) for column in range(3))
    four = WEvent(epsilon="4", w=2)

    def seen(kind: type[Publishing]) -> Intruded:
        mechanism = kind(WEvent(epsilon="4", w=1), pan_private="single", calibration="paper")
        return Intruded(mechanism, 1, after=False)

    return [
        Animal("BA, line 5 read literally", "printed: absorbed shares are not repaid", lambda: literal, 1.25, EXACT,
               kind=PRINTED),
        Animal("BA, line 5 read literally, sampled", "the same by sampling", lambda: literal, 1.25, PAIR,
               (pair([0, 0, 1], [0, 1, 2]), pair([0, 0, 2], [0, 1, 3]), pair([1, 0, 1], [1, 1, 2])), 3, kind=PRINTED),
        Animal("BA, literally, by its account", "w = 4: 1.375 ε",
               lambda: BudgetAbsorption(WEvent(epsilon="1", w=4), calibration="paper"), 1.375, REPLAY, kind=PRINTED),
        Animal("BA in floating point", "printed: the number of nullified steps is off by one at ε = 0.7, w = 4",
               lambda: BudgetAbsorption(WEvent(epsilon="0.7", w=4), calibration="paper-float"), 1.125, REPLAY,
               kind=PRINTED),
        Animal("BA, one nullified step short", "off by one",
               lambda: OneNullifiedStepShort(WEvent(epsilon="1", w=4)), 1.125, REPLAY),
        Animal("BA, one nullified step short, sampled", "off by one, w = 2, where it is the literal line 5",
               lambda: OneNullifiedStepShort(WEvent(epsilon="3", w=2)), 1.25, PAIR,
               (pair([0, 0, 1], [0, 1, 2]), pair([0, 0, 2], [0, 1, 3]), pair([1, 0, 1], [1, 1, 2])), 3),
        Animal("BA, never repaid", "each step absorbs all steps before it",
               lambda: NeverRepaid(WEvent(epsilon="3", w=3)), 1.5, steps=5, seconds=20),
        Animal("BA, independent groups", "printed: a moving unit meets a fresh budget in each group",
               lambda: BudgetAbsorption(WEvent(epsilon="3", w=3), columns=3, groups=groups, calibration="paper"),
               2.0, seconds=25, steps=5, kind=PRINTED),
        Animal("BA, groups re-formed", "what was spent before is forgotten",
               lambda: Regrouped(WEvent(epsilon="1", w=4)), 1.5, REPLAY),
        Animal("BA, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: BudgetAbsorption(WEvent(epsilon="3", w=2), columns=5, shift=True, calibration="paper"),
               1.4, steps=3, seconds=20, kind=PRINTED),
        Animal("BD, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: BudgetDistribution(WEvent(epsilon="3", w=2), columns=5, shift=True, calibration="paper"),
               1.15, REPLAY, kind=PRINTED),
        Animal("BA, test without noise", "whether a step is published is exact",
               lambda: QuietTest(WEvent(epsilon="1", w=2)), math.inf, steps=3),
        Animal("BA, test with a quarter of the noise", "tests spend four times their share",
               lambda: QuarterTest(WEvent(epsilon="2", w=2)), 2.5, steps=3),
        Animal("BA, publications take all of ε", "and tests another half",
               lambda: WholePool(WEvent(epsilon="2", w=2)), 1.5, steps=3),
        Animal("BD, budget recycled too early", "after one step, not after w",
               lambda: Forgetful(WEvent(epsilon="3", w=3)), 1.25, steps=4, seconds=40),
        Animal("BD, first release is a count", "o_l is not defined before the first publication",
               lambda: FirstReleaseIsACount(four), math.inf, steps=3),
        Animal("BA, rows replaced", "Δ = 1 where it is 2",
               lambda: Configured(Replaced(WEvent(epsilon="2", w=1, adjacency="replace"), columns=2, noise="laplace")),
               2.0, steps=2, seconds=20),
        Animal("pan-private BA, seen in mid-step", "printed: published minus state is exact",
               lambda: seen(BudgetAbsorption), math.inf, steps=1, seconds=15, kind=PRINTED),
        Animal("pan-private BD, seen in mid-step", "printed: published minus state is exact",
               lambda: seen(BudgetDistribution), math.inf, steps=1, seconds=15, kind=PRINTED),
        Animal("pan-private BD, a third of what remains", "printed: publications take ε/2, not ε/3, and a look ε/6",
               lambda: BudgetDistribution(WEvent(epsilon="1", w=8), pan_private="single", calibration="paper"),
               1.167, REPLAY, steps=32, kind=PRINTED),
        Animal("pan-private BA, noise halved", "seen once",
               lambda: Intruded(ThinPanPrivate(WEvent(epsilon="2", w=1), pan_private="single"), 1), 2.0, steps=1,
               seconds=15),
        Animal("pan-private BA, noise halved, w = 2", "seen once; tests of other steps show only through decisions",
               lambda: Intruded(ThinPanPrivate(WEvent(epsilon="4", w=2), pan_private="single"), 2), 2.0, steps=2,
               seconds=50),
    ]  # fmt: skip
