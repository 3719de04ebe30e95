"""FAST, RescueDP, DSAT, OptStream and Fourier: as printed, and mutants."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from tests.audit import models
from tests.audit.zoo.animal import EXACT, PAIR, PRINTED, REPLAY, Animal, pair

from experiments.printed.optstream import PerNode, PrintedFourier, PrintedOptStream
from experiments.printed.publishing import each_column
from tidegate.audit.subjects import Configured
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.mechanisms.optstream.feature_trees import whole_period
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.sampled.dsat import DSAT, State
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.policy import WEvent
from tidegate.structures.hierarchy import Hierarchy


class ThinRescue(RescueDP):
    """A fifth of the noise is missing."""

    def unit_scale(self, units: int) -> float:
        """Too small."""
        return super().unit_scale(units) / 1.25


class ProcessNoiseFromTheStream(RescueDP):
    """The filter's process noise is the variance of the raw stream (RescueDP, as printed)."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Look at all of the stream."""
        variance = 1.0 + (float(np.var(np.diff(rows, axis=0))) if len(rows) > 1 else 0.0)
        other = replace(self, filter=Kalman(process_noise=variance))
        return RescueDP.advance(other, state, rows, first, noise)


class KnownThreshold(SparseVector):
    """A threshold whose noise is gone, and the paper's noise of tests."""

    @property
    def threshold_scale(self) -> float:  # type: ignore[override]
        """None to speak of."""
        return 0.01

    @property
    def question_scale(self) -> float:  # type: ignore[override]
        """2CΔ/ε₁ in place of 4CΔ/ε₁."""
        return super().question_scale / 2


class ThresholdCut(DSAT):
    """DSAT after its noisy threshold was cut to its bounds."""

    @cached_property
    def tests(self) -> SparseVector:
        """A threshold that everybody knows."""
        return KnownThreshold(super().tests.epsilon, self.sensitivity)


class OnePublicationMore(DSAT):
    """C + 1 publications in a window, each with the budget of one of C."""

    def begin(self, first: int) -> State:
        """Remembers one more."""
        return super().begin(first)._replace(taken=np.zeros(self.units + 1, dtype=np.int64))

    def most_named(self, steps: int) -> int:
        """Room for all of them."""
        return steps


class TestsOfHalf(DSAT):
    """Tests with half of their noise."""

    @cached_property
    def tests(self) -> SparseVector:
        """Too narrow."""
        return SparseVector(2 * Fraction(super().tests.epsilon), self.sensitivity)


def enumerated(mechanism: DSAT) -> Configured:
    """With its program, for the exact tester."""
    found = Configured(mechanism)
    found.program = models.distant(mechanism)  # type: ignore[attr-defined]
    return found


class FeatureNotTimesW(OptStream):
    """The sum over a period with sensitivity Δ, where w steps can change it."""

    @cached_property
    def sum_scale(self) -> float:
        """Too small by w."""
        return float(super().sum_scale) / self.window


class NoiseForASampleFewer(OptStream):
    """Samples share noise that slides over one sample fewer than a window has."""

    def measured_in(self, steps: int) -> int:
        """Too few."""
        return super().measured_in(steps) - 1


# a RescueDP that spends a good part of its budget in a short stream
LAVISH: dict[str, Any] = {
    "filter": False, "portion": 1.0, "most_portion": 1.0, "most": Fraction(1), "pace": None, "samples": 1,
}  # fmt: skip


def animals() -> list[Animal]:
    """All of them."""
    two, five = WEvent(epsilon="2", window=2), WEvent(epsilon="1", window=5)
    period, leaves = (whole_period(4),), Hierarchy.from_parents({"north": None, "south": None})
    jumps = [
        [4096 * step, 40960] for step in range(1, 9)
    ]  # the first column is measured at 5 and 6, the other at 5 and 7
    moved = [[a + (step in (5, 6)), b + (step == 7)] for step, (a, b) in enumerate(jumps, 1)]
    return [
        Animal("FAST, each column for itself", "printed: a moving unit is measured at almost every step",
               lambda: each_column(Fast, WEvent(epsilon="2", window=4), 3, samples=2, filter=False, noise="laplace"),
               2.0, REPLAY, steps=24, kind=PRINTED),
        Animal("FAST, each column for itself, sampled", "the same by sampling: one column jumps, one stays",
               lambda: each_column(Fast, WEvent(epsilon="2", window=4), 2, samples=2, filter=False, noise="laplace"),
               1.5, PAIR, (pair(jumps, moved),), 8, seconds=20, kind=PRINTED),
        Animal("RescueDP, each column for itself", "printed: accounts side by side for moving units",
               lambda: each_column(RescueDP, WEvent(epsilon="2", window=8), 8, grouping=False),
               2.0, REPLAY, steps=300, kind=PRINTED),
        Animal("RescueDP, each column for itself, sampled", "the same by sampling",
               lambda: each_column(RescueDP, two, 2, grouping=False, **LAVISH), 1.54, steps=4, seconds=40,
               kind=PRINTED),
        Animal("RescueDP, noise 20 % low", "near miss: 1.25 ε", lambda: ThinRescue(two, **LAVISH), 1.25, steps=3,
               seconds=15),
        Animal("RescueDP, process noise from the stream", "printed: the filter's gain tells the raw variance",
               lambda: ProcessNoiseFromTheStream(WEvent(epsilon="6", window=3), portion=1.0, most_portion=1.0, most=1,
                                                 samples=3, pace=None), math.inf, steps=4, seconds=40),
        Animal("DSAT, threshold cut to its bounds", "printed: without its noise, steps that are not published lose",
               lambda: enumerated(ThresholdCut(five, publications=1, test_share="49/50", gain=0)),
               2.45, EXACT, (pair([0] * 5 + [60] * 5, [0] * 5 + [61] * 5),), 10, kind=PRINTED),
        Animal("DSAT, one publication more", "printed budgets for C, and C + 1 in a window",
               lambda: OnePublicationMore(WEvent(epsilon="1", window=6), publications=2), 1.5, REPLAY, steps=24),
        Animal("DSAT, tests of half", "half of the noise of tests and thresholds",
               lambda: TestsOfHalf(WEvent(epsilon="1", window=6), publications=2, test_share="1/2"), 1.5, REPLAY,
               steps=24),
        Animal("OptStream, features of sensitivity 1", "printed: the sum over a period changes by w",
               lambda: PrintedOptStream(WEvent(epsilon="2", window=4), samples=2, features=period, noise="laplace"),
               2.5, steps=4, seconds=20, kind=PRINTED),
        Animal("a feature not times w", "the same, nearly alone",
               lambda: FeatureNotTimesW(WEvent(epsilon="1", window=4), samples=1, features=period, split=(0, "1/50", 1)),
               4.0, steps=4, seconds=15),
        Animal("OptStream, noise for a sample fewer", "the first and the last sample of a window lose ε each",
               lambda: NoiseForASampleFewer(WEvent(epsilon="1", window=4), samples=3), 2.0, steps=4, seconds=20),
        Animal("OptStream, straddling window", "printed: samples chosen by the data crowd together in two periods",
               lambda: PrintedOptStream(WEvent(epsilon="2", window=4), samples=3, adaptive=True, split=("1/50", 1, 0),
                                        noise="laplace"), 1.346, REPLAY, steps=24, kind=PRINTED),
        Animal("HierarchicalOptStream, leaf by leaf", "printed: a moving unit is measured wherever it is",
               lambda: PerNode(WEvent(epsilon="2", window=4), hierarchy=leaves, samples=3, split=("1/50", 1, 0),
                               nonnegative=False), 1.346, REPLAY, steps=24, kind=PRINTED),
        Animal("Fourier transform not normalised", "printed: noise for an orthonormal one",
               lambda: PrintedFourier(WEvent(epsilon="1", window=8), coefficients=1), 8.0, steps=8, seconds=15,
               kind=PRINTED),
    ]  # fmt: skip
