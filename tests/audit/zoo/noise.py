"""Mutants of the noise itself: too little, too regular, one-sided, in floating point, or left out.

All of them are the shipped Uniform (or Sample) with one thing changed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from tests.audit.zoo.alterations import (
    DrawnOnce,
    FirstColumnOnly,
    FloatNoise,
    KeptForTwoSteps,
    LargestStepOnly,
    OneSided,
    RedrawnUntilPositive,
    SameInBothColumns,
    ScaleFromTheData,
    Truncated,
    UnchangedIsSkipped,
    ZerosWithoutNoise,
)
from tests.audit.zoo.animal import MISUSED, REPLAY, Animal, Floats, Independent

from tidegate.audit import direct
from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee, Configured
from tidegate.composition import largest_step
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.core.values import Reader, ValueReader
from tidegate.exact import float_up
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import gaussian
from tidegate.policy import Event, Policy, WEvent


class _Thin(Independent):
    """Uniform whose noise is too small by a factor."""

    factor: ClassVar[float] = 1.0

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) * self.factor


def thin(times: float, policy: Policy, variance: bool = False) -> Uniform:
    """Uniform that loses so many times its claim; with `variance` σ² is too small by it."""
    factor = 1 / math.sqrt(times) if variance else 1 / times
    kind: type[Uniform] = type("Thin", (_Thin,), {"factor": factor})
    return kind(policy)


class WindowForgotten(Independent):
    """Every step has the whole budget, although w of them share it."""

    @cached_property
    def scale(self) -> float:
        """Of one step alone."""
        return float_up(self.sensitivity / Fraction(self.policy.epsilon or 1))


class EpsilonOverW(Independent):
    """OptStream's Laplace baseline as printed: noise with parameter ε/w, where w/ε is meant."""

    @cached_property
    def scale(self) -> float:
        """Upside down."""
        return float(Fraction(self.policy.epsilon or 1) / self.units)


class ScaleRoundedDown(Independent):
    """A scale that is kept as a whole number."""

    @cached_property
    def scale(self) -> float:
        """2.5 becomes 2."""
        return math.floor(super().scale)


class WrongRate(Independent):
    """Two-sided geometric noise of rate 1 − ε in place of e^−ε."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return -1 / math.log(1 - float(self.policy.budget.total))


class SampledHalved(Sample):
    """Half of the noise at measured steps."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) / 2


class HalfOfTheSteps(Independent):
    """The share of a step is composed over half of the window only."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        epsilon, delta = Fraction(self.policy.epsilon or 1), Fraction(self.policy.delta)
        return float_up(self.sensitivity / largest_step(self.units // 2, epsilon, delta))


class ReplacementForgotten(Independent):
    """A row may change column, and Δ stays 1."""

    @cached_property
    def sensitivity(self) -> int:
        """That of a row added or removed."""
        return 1


class GaussianForPure(Independent):
    """Gaussian noise of the Laplace scale, claimed to be ε-private without any δ."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Draw from the wrong distribution."""
        output = super().advance(state, rows, first, noise)
        return output._replace(
            values=(rows + gaussian(noise.source, "zoo", first, self.scale, rows.shape)).astype(np.float64)
        )


class HalfEven(Independent):
    """Real values rounded half to even, taking for granted that a whole change stays a whole change."""

    @cached_property
    def sensitivity(self) -> int:
        """That of values on the grid."""
        return self.policy.grid_sensitivity(self.columns, Fraction(self.grid), rounded=False)

    def reader(self) -> Reader:
        """Rounds as numpy does."""
        return _HalfEvenReader(self.columns, Fraction(self.grid), self.rounding)


class _HalfEvenReader(ValueReader):
    """Rounds half to even."""

    def rows(self, values: Any) -> Matrix:
        """Whole numbers of the grid."""
        return np.rint(np.asarray(values, dtype=np.float64) * self._per_one).astype(np.int64)


class ColumnsOfRoundingForgotten(Independent):
    """Real values rounded to the grid, as if that moved one column only."""

    @cached_property
    def sensitivity(self) -> int:
        """Δ rounded up to the grid."""
        return self.policy.grid_sensitivity(self.columns, Fraction(self.grid), rounded=False)


def in_parts(mechanism: Any, parts: int, policy: Policy) -> Callee:
    """A mechanism for real values, given whole numbers of so many parts; one batch is many transcripts."""
    columns = mechanism.columns

    def release(stream: Counts, count: int) -> Floats:
        from dataclasses import replace

        wide = replace(mechanism, columns=columns * count)
        values = direct.released(wide, np.tile(stream, (1, count)) / parts).values
        return np.moveaxis(values.reshape(len(stream), count, columns), 1, 0).reshape(count, -1)

    return Callee(release, policy, columns, type(mechanism).__name__, many=True)


def animals() -> list[Animal]:
    """All of them."""
    one, rho = Event(epsilon="1"), Event(rho="1/2")
    halves, eighths = Event(epsilon="1", max_change=2), Event(epsilon="1", max_change=2)
    return [
        Animal("noise halved", "half of the noise", lambda: thin(2, one), 2.0, steps=2),
        Animal("noise 10 % low", "near miss", lambda: thin(1.1, one), 1.1, steps=1),
        Animal("noise 5 % low", "nearer miss", lambda: thin(1.05, one), 1.05, steps=1),
        Animal("noise 10 % low, w = 2", "near miss over two steps",
               lambda: thin(1.1, WEvent(epsilon="2", window=2)), 1.1, steps=3),
        Animal("scales that do not add up", "the account of a thin mechanism",
               lambda: thin(2, WEvent(epsilon="1", window=5)), 2.0, REPLAY),
        Animal("window forgotten", "each step spends all of ε",
               lambda: WindowForgotten(WEvent(epsilon="1", window=3)), 3.0, steps=4),
        Animal("parameter ε/w", "printed: the Laplace baseline of OptStream has its scale upside down",
               lambda: EpsilonOverW(WEvent(epsilon="1", window=2)), 4.0, steps=2),
        Animal("sample halved", "half of the noise at measured steps",
               lambda: SampledHalved(WEvent(epsilon="1", window=3)), 2.0),
        Animal("composed over half of the window", "(ε, δ) share of a step too large",
               lambda: HalfOfTheSteps(WEvent(epsilon="1", delta="1e-3", window=4)), 2.0, steps=4),
        Animal("replacement forgotten", "a row changes column: Δ = 2, not 1",
               lambda: ReplacementForgotten(Event(epsilon="1", adjacency="replace"), columns=2), 2.0, steps=1),
        Animal("clipping forgotten", "values up to 3, noise for 1",
               lambda: Configured(Uniform(one), Event(epsilon="1", max_change=3)), 3.0, steps=2, kind=MISUSED),
        Animal("noise in floating point", "outputs that only one neighbour can produce",
               lambda: FloatNoise(one), math.inf, steps=1),
        Animal("rounded half to even", "0.5 and 1.5 become 0 and 2",
               lambda: in_parts(HalfEven(one, rounding="nearest"), 2, halves), 2.0, steps=1),
        Animal("rounding of columns forgotten", "an eighth in each of two columns moves both to the next quarter",
               lambda: in_parts(ColumnsOfRoundingForgotten(Event(epsilon="1", max_change="1/4"), columns=2, grid="1/4",
                                                           rounding="nearest"), 8, eighths), 2.0, steps=1),
        Animal("noise never negative", "a release below the count is impossible", lambda: OneSided(one), math.inf,
               steps=2),
        Animal("noise cut off", "no release is further away than four scales", lambda: Truncated(one), math.inf,
               steps=2),
        Animal("one draw for all columns", "differences of columns are exact",
               lambda: SameInBothColumns(one, columns=2), math.inf, steps=2),
        Animal("one draw for ever", "differences of steps are exact", lambda: DrawnOnce(one), math.inf),
        Animal("one draw for two steps", "some differences are exact", lambda: KeptForTwoSteps(one), math.inf),
        Animal("drawn again until not negative", "the normalisation depends on the count, and far below 0 it gives up",
               lambda: RedrawnUntilPositive(one), math.inf, steps=1),
        Animal("zeros without noise", "empty cells as they are", lambda: ZerosWithoutNoise(one), math.inf, steps=2),
        Animal("rate 1 − ε", "the wrong geometric distribution", lambda: WrongRate(Event(epsilon="1/2")), 1.387,
               steps=1),
        Animal("scale rounded down", "2.5 becomes 2", lambda: ScaleRoundedDown(Event(epsilon="2/5")), 1.25, steps=1),
        Animal("Gaussian noise, no δ", "its tails are too thin", lambda: GaussianForPure(one), math.inf, steps=1),
        Animal("scale from the data", "the spread tells the count", lambda: ScaleFromTheData(one), math.inf, steps=2),
        Animal("noise on the first column only", "the others are exact",
               lambda: FirstColumnOnly(one, columns=2), math.inf, steps=2),
        Animal("unchanged steps are skipped", "silence is exact", lambda: UnchangedIsSkipped(one), math.inf),
        Animal("largest step measured", "where, is exact", lambda: LargestStepOnly(one), math.inf),
        Animal("ρ 10 % too high", "zCDP, near miss: σ 5 % too small", lambda: thin(1.1, rho, variance=True), 1.1,
               steps=1, seconds=16),
        Animal("ρ 20 % too high", "zCDP: σ 9 % too small", lambda: thin(1.2, rho, variance=True), 1.2, steps=1),
        Animal("half of the variance", "zCDP with half of the noise", lambda: thin(2, rho, variance=True), 2.0, steps=2),
    ]  # fmt: skip
