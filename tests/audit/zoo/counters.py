"""Counters with too few levels, a forgotten window, or norms that are too small."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from tests.audit.zoo.animal import Animal

from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.endless_design import Phase
from tidegate.mechanisms.counters.endless_sum import EndlessSum
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.counters.gradual_tree import GradualTree
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.policy import Event, WEvent


class OneLevelShort(BinaryTree):
    """log₂ n levels where there is one more (Perrier et al., as printed)."""

    def scale_of(self, levels: int) -> float:
        """Of one level less."""
        return super().scale_of(levels - 1)


class WindowForgottenTree(BinaryTree):
    """A tree under a w-event policy without the factor w."""

    def scale_of(self, levels: int) -> float:
        """Of event level."""
        return super().scale_of(levels) / self.policy.steps_charged


class GradualOneLevelShort(GradualTree):
    """One level too few: the highest has what the others should share with it."""

    @cached_property
    def losses(self) -> tuple[Fraction, ...]:
        """That add up to more than ε."""
        return (self.policy.budget.total / (self.levels - 1),) * self.levels


class HybridOneLevelShort(HybridTree):
    """Blocks with one level too few."""

    def scale_of(self, levels: int) -> float:
        """Of one level less."""
        return super().scale_of(max(1, levels - 1))


class SlidingOneLevelShort(SlidingWindowTree):
    """One level too few."""

    @cached_property
    def scale(self) -> float:
        """Of one level less."""
        return float(super().scale) * (self.levels - 1) / self.levels


class ThinFactorization(Factorization):
    """A norm of C that is too small."""

    factor: ClassVar[float] = 2.0

    @cached_property
    def sigma(self) -> float:
        """Too small."""
        return float(super().sigma) / self.factor


class FactorizationNearMiss(ThinFactorization):
    """ρ is exceeded by a fifth."""

    factor: ClassVar[float] = math.sqrt(1.2)


class FactorizationOfOneStep(Factorization):
    """The largest norm of one column of C, where w of them may change together."""

    @cached_property
    def sigma(self) -> float:
        """Of event level."""
        alone = Factorization(
            Event(rho=self.policy.rho), horizon=self.horizon, method=self.method, strategy=self.strategy
        )
        return alone.sigma


class ThinEndlessSum(EndlessSum):
    """A norm of C that is too small."""

    def sigma_of(self, phase: Phase) -> float:
        """Too small."""
        return super().sigma_of(phase) / 2.0


class EndlessSumOfOneStep(EndlessSum):
    """The largest norm of one column of C, where w of them may change together."""

    def sigma_of(self, phase: Phase) -> float:
        """Of event level."""
        return super().sigma_of(phase) / self.policy.steps_charged


def animals() -> list[Animal]:
    """All of them."""
    one, rho = Event(epsilon="1"), Event(rho="1/2")
    return [
        Animal("tree with one level too few", "printed: log₂ n levels",
               lambda: OneLevelShort(one, horizon=7, estimator="plain"), 1.5, steps=6),
        Animal("tree without the factor w", "event level, claimed for windows",
               lambda: WindowForgottenTree(WEvent(epsilon="1", window=3), horizon=3, estimator="plain"), 3.0, steps=3),
        Animal("unbounded tree with one level too few", "blocks with noise for one level less",
               lambda: HybridOneLevelShort(one, estimator="plain"), 2.0, steps=3),
        Animal("gradual tree with one level too few", "the highest level has no part of the budget",
               lambda: GradualOneLevelShort(one, horizon=3), 2.0, steps=3),
        Animal("sliding window with one level too few", "noise for one level less",
               lambda: SlidingOneLevelShort(one, window=3, estimator="plain"), 2.0, steps=4),
        Animal("factorization with half of its norm", "a quarter of the variance",
               lambda: ThinFactorization(rho, horizon=4), 4.0, steps=3),
        Animal("factorization, ρ 20 % too high", "near miss",
               lambda: FactorizationNearMiss(rho, horizon=4, method="square-root"), 1.2, steps=4),
        Animal("factorization of one step", "one column's norm, claimed for windows of two",
               lambda: FactorizationOfOneStep(WEvent(rho="1/2", window=2), horizon=4, method="square-root"),
               3.0, steps=4),
        Animal("endless sum with half of its norm", "a quarter of the variance",
               lambda: ThinEndlessSum(rho), 4.0, steps=3),
        Animal("endless sum of one step", "one column's norm, claimed for windows of three",
               lambda: EndlessSumOfOneStep(WEvent(rho="1/2", window=3)), 9.0, steps=4),
    ]  # fmt: skip
