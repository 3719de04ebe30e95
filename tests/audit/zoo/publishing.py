"""Budget Distribution and Budget Absorption as printed, and mutants of them."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.audit import models
from tests.audit.intrusions import Intruded
from tests.audit.zoo.animal import EXACT, PRINTED, REPLAY, Animal

from experiments.printed.publishing import ShiftedAbsorption, ShiftedDistribution, independent_groups
from tidegate.audit.direct import Printed
from tidegate.audit.subjects import Configured
from tidegate.core.charges import NO_SPANS, Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.budget_absorption import LATEST, TAKEN, BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import WEvent
from tidegate.releases import Status


class _Repaying(BudgetAbsorption):
    """Budget Absorption that remembers other shares of a publication than it has spent."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """By how many steps, plus one, a publication of n shares is repaid."""
        raise NotImplementedError

    def _release(self, state: Any, rows: Matrix, first: int, noise: Draws, out: Output) -> Integers:
        for at in range(len(rows)):
            part = slice(at, at + 1)
            super()._release(state, rows[part], first + at, noise, out.part(part))
            if state.memory[LATEST] == first + at:
                state.memory[TAKEN] = self.repaid()[state.memory[TAKEN]]
        return NO_SPANS


class Literal(_Repaying):
    """Line 5 read literally, with the budget of the present step: a publication is not repaid.

    The text at hand prints ε_{i,2} where the prose says ε_{l,2}. That is a misprint, and no error of Theorem 5.
    """

    def repaid(self) -> npt.NDArray[np.int64]:
        """Its own share alone."""
        return np.ones(self.window + 1, dtype=np.int64)


class InFloatingPoint(_Repaying):
    """ε_{l,2}/(ε/2w) − 1 is computed in floating point and cut off, and may be one short."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """As many as floating point says."""
        shares = np.arange(self.window + 1)
        share = float(self.policy.budget.total) / (2 * self.window)
        return np.maximum((share * shares / share - 1).astype(np.int64) + 1, 1)


class OneNullifiedStepShort(_Repaying):
    """A publication of n shares is repaid by n − 2 steps instead of n − 1."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """One too few."""
        return np.maximum(np.arange(self.window + 1) - 1, 1)


class NeverRepaid(_Repaying):
    """Absorbed shares are never repaid, and still absorbed by later steps."""

    def repaid(self) -> npt.NDArray[np.int64]:
        """Nothing."""
        return np.zeros(self.window + 1, dtype=np.int64)


class QuietTest(BudgetAbsorption):
    """The dissimilarity is compared without noise."""

    @cached_property
    def score_scale(self) -> float:
        """Next to nothing."""
        return 0.01


class QuarterTest(BudgetAbsorption):
    """The dissimilarity has a quarter of its noise."""

    @cached_property
    def score_scale(self) -> float:
        """Too small."""
        return float(super().score_scale) / 4


class WholePool(BudgetAbsorption):
    """Publications take all of ε, and tests half of it besides."""

    @cached_property
    def unit_scale(self) -> float:
        """Too small."""
        return float(super().unit_scale) / 2


class Forgetful(BudgetDistribution):
    """Recycles the budget of a publication after one step, not when it leaves the window."""

    @property
    def window(self) -> int:
        """One step."""
        return 1

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
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
    def unit_scale(self) -> float:
        """Too small."""
        return float(super().unit_scale) / 2

    @cached_property
    def score_scale(self) -> float:
        """Too small."""
        return float(super().score_scale) / 2


class FirstReleaseIsACount(BudgetDistribution):
    """Before the first publication the release is the first count, as it is (o_l is not defined there)."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Begin with what it was given."""
        if first == 1:
            state.published.last[:] = rows[0]
        return super().advance(state, rows, first, noise)


class Regrouped(BudgetAbsorption):
    """Groups are formed anew every w steps, and what was spent before is forgotten."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Step by step, and forget."""
        parts = []
        for at in range(len(rows)):
            if (first + at - 1) % self.window == 0:
                state.memory[LATEST], state.memory[TAKEN] = 0, 1
            parts.append(super().advance(state, rows[at : at + 1], first + at, noise))
        return joined(parts)


class _Bare(Printed, Publishing):
    """Pan-private as printed: what is in the cells is published without fresh noise."""

    reserve = 0

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Publish the cells."""
        parts = []
        for at, row in enumerate(rows):
            if not state.numbers[pan_private.OPEN]:
                pan_private.open_step(self, state, first + at, noise)
            cells = state.cells[0] + row
            part = super().advance(state, rows[at : at + 1], first + at, noise)
            if part.status[0] == Status.FRESH:
                state.rule.published.last[:] = cells
                part.values[0] = cells * self.grid_step
            parts.append(part)
        return joined(parts)


class BareAbsorption(_Bare, BudgetAbsorption):
    """Pan-private BA as printed."""


class BareDistribution(_Bare, BudgetDistribution):
    """Pan-private BD as printed: a third of what remains of a pool that tends to ε/2, not ε/3."""

    @property
    def separate_unit_split(self) -> tuple[int, int, int]:
        """A pool of ε/2."""
        total, test, pool = super().separate_unit_split
        return total, test, pool * 3 // 2

    def offered(self, state: Any, step: int) -> int:
        """A third of what remains, as half of two thirds."""
        return super().offered(state, step) * 2 // 3


def joined(parts: list[Output]) -> Output:
    """Outputs of consecutive steps as one."""
    values, status, source, scale, units = (
        np.concatenate(each) for each in zip(*(part.charged for part in parts), strict=True)
    )
    return Output(values, status, source, scale, units)


class Literally(Configured):
    """Line 5 read literally, with its program for the exact tester."""

    def __init__(self, mechanism: Literal) -> None:
        super().__init__(mechanism)
        epsilon = Fraction(mechanism.policy.epsilon or 0)
        self.program = models.absorption(epsilon, mechanism.window, mechanism.sensitivity, literal=True)


def animals() -> list[Animal]:
    """All of them."""
    literal = Literal(WEvent(epsilon="3", window=2), noise="laplace")
    groups = tuple((column,) for column in range(3))
    four = WEvent(epsilon="4", window=2)

    def seen(kind: type[Publishing]) -> Intruded:
        return Intruded(kind(WEvent(epsilon="4", window=1), pan_private="single"), 1, after=False)

    return [
        Animal("BA, line 5 read literally", "a misprint taken at its word: absorbed shares are not repaid",
               lambda: Literally(literal), 1.25, EXACT),
        Animal("BA, literally, by its account", "w = 4: 1.375 ε",
               lambda: Literal(WEvent(epsilon="1", window=4), noise="laplace"), 1.375, REPLAY),
        Animal("BA in floating point", "printed: the number of nullified steps is off by one at ε = 0.7, w = 4",
               lambda: InFloatingPoint(WEvent(epsilon="0.7", window=4), noise="laplace"), 1.125, REPLAY,
               kind=PRINTED),
        Animal("BA, one nullified step short", "off by one",
               lambda: OneNullifiedStepShort(WEvent(epsilon="1", window=4), noise="laplace"), 1.125, REPLAY),
        Animal("BA, never repaid", "each step absorbs all steps before it",
               lambda: NeverRepaid(WEvent(epsilon="3", window=3), noise="laplace"), 1.5, steps=5, seconds=20),
        Animal("BA, independent groups", "printed: a moving unit meets a fresh budget in each group",
               lambda: independent_groups(BudgetAbsorption, WEvent(epsilon="3", window=3), groups),
               2.0, seconds=25, steps=5, kind=PRINTED),
        Animal("BA, groups re-formed", "what was spent before is forgotten",
               lambda: Regrouped(WEvent(epsilon="1", window=4), noise="laplace"), 1.5, REPLAY),
        Animal("BA, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: ShiftedAbsorption(WEvent(epsilon="3", window=2), columns=5, shift=True, noise="laplace"),
               1.4, steps=3, seconds=20, kind=PRINTED),
        Animal("BD, shifted budget", "printed: the pool is not reduced by what tests spend",
               lambda: ShiftedDistribution(WEvent(epsilon="3", window=2), columns=5, shift=True, noise="laplace"),
               1.15, REPLAY, kind=PRINTED),
        Animal("BA, test without noise", "whether a step is published is exact",
               lambda: QuietTest(WEvent(epsilon="1", window=2), noise="laplace"), math.inf, steps=3),
        Animal("BA, test with a quarter of the noise", "tests spend four times their share",
               lambda: QuarterTest(WEvent(epsilon="2", window=2), noise="laplace"), 2.5, steps=3),
        Animal("BA, publications take all of ε", "and tests another half",
               lambda: WholePool(WEvent(epsilon="2", window=2), noise="laplace"), 1.5, steps=3),
        Animal("BD, budget recycled too early", "after one step, not after w",
               lambda: Forgetful(WEvent(epsilon="3", window=3), noise="laplace"), 1.25, steps=4, seconds=40),
        Animal("BD, first release is a count", "o_l is not defined before the first publication",
               lambda: FirstReleaseIsACount(four, noise="laplace"), math.inf, steps=3),
        Animal("BA, rows replaced", "Δ = 1 where it is 2",
               lambda: Configured(Replaced(WEvent(epsilon="2", window=1, adjacency="replace"), columns=2,
                                           noise="laplace")), 2.0, steps=2, seconds=20),
        Animal("pan-private BA, seen in mid-step", "printed: published minus state is exact",
               lambda: seen(BareAbsorption), math.inf, steps=1, seconds=15, kind=PRINTED),
        Animal("pan-private BD, seen in mid-step", "printed: published minus state is exact",
               lambda: seen(BareDistribution), math.inf, steps=1, seconds=15, kind=PRINTED),
        Animal("pan-private BD, a third of what remains", "printed: publications take ε/2, not ε/3, and a look ε/6",
               lambda: BareDistribution(WEvent(epsilon="1", window=8), pan_private="single"),
               1.167, REPLAY, steps=32, kind=PRINTED),
        Animal("pan-private BA, noise halved", "seen once",
               lambda: Intruded(ThinPanPrivate(WEvent(epsilon="2", window=1), pan_private="single"), 1), 2.0, steps=1,
               seconds=15),
        Animal("pan-private BA, noise halved, w = 2", "seen once; tests of other steps show only through decisions",
               lambda: Intruded(ThinPanPrivate(WEvent(epsilon="4", window=2), pan_private="single"), 2), 2.0, steps=2,
               seconds=50),
    ]  # fmt: skip
