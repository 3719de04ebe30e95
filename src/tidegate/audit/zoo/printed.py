"""Other printed algorithms that do not keep their promise, and counters with too few levels."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from tidegate.audit.subjects import Callee
from tidegate.audit.zoo.animal import PAIR, REPLAY, Animal, Floats, Stream, noise, pair
from tidegate.mechanisms.binary_tree import BinaryTree
from tidegate.mechanisms.factorization import Factorization
from tidegate.mechanisms.fast import Fast
from tidegate.mechanisms.feature_trees import whole_period
from tidegate.mechanisms.hybrid_tree import HybridTree
from tidegate.mechanisms.opt_stream import OptStream
from tidegate.mechanisms.rescue_dp import RescueDP
from tidegate.mechanisms.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.threshold import Threshold
from tidegate.policy import Event, Policy, WEvent


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
    """A norm of C that is too small by half: a quarter of the variance."""

    @cached_property
    def sigma(self) -> float:
        """Too small."""
        return float(super().sigma) / 2


def transform_not_normalised(stream: Stream, count: int) -> Floats:
    """Two real Fourier sums with noise for an orthonormal transform: √2·√w/ε (OptStream's DFT baseline)."""
    values = stream[:, 0].astype(float)
    waves = np.cos(2 * math.pi * np.arange(len(values)) / len(values))
    sums = np.array([values.sum(), np.rint((values * waves).sum())])
    return sums[np.newaxis] + noise(math.sqrt(2 * len(values)), (count, 2)).astype(float)


def feature_not_times_w(stream: Stream, count: int) -> Floats:
    """The sum over a period with sensitivity 1, where w steps can change it."""
    return stream.sum() + noise(1.0, (count, 1)).astype(float)


def levels_not_divided(stream: Stream, count: int) -> Floats:
    """Two leaves and their sum, each with the whole budget."""
    sums = np.concatenate([stream, stream.sum(axis=1, keepdims=True)], axis=1).reshape(1, -1)
    return sums + noise(1.0, (count, sums.size)).astype(float)


def pruned_path(stream: Stream, count: int) -> Floats:
    """PRUNE on a path of eight nodes, as printed: c + Lap(2/ε) against β + Lap(2/ε), down to the first failure."""
    level = np.zeros(count)
    alive = np.ones(count, dtype=np.bool_)
    for _ in range(7):
        passed = int(stream[0, 0]) + noise(1.0, (count, 1))[:, 0] >= 1 + noise(1.0, (count, 1))[:, 0]
        alive &= passed
        level += alive
    return level[:, np.newaxis]


def first_values_not_clipped(stream: Stream, count: int) -> Floats:
    """The sum of the first observations, unclipped, with noise for the clip (Perrier et al., as printed)."""
    sums = np.cumsum(stream[:, 0])
    return sums[-1] + noise(5.0, (count, 1)).astype(float)


def _smooth(policy: Policy) -> Callee:
    threshold = Threshold(
        policy, sample=60, exceeding="1/2", method="smooth", calibration="paper", too_low=0.1
    )

    def release(stream: Stream) -> Floats:
        return np.array([float(threshold.release(stream[:, 0]).value)])

    return Callee(release, policy, name="Threshold, printed")


def _callee(call: Any, policy: Policy, columns: int = 1) -> Callee:
    return Callee(call, policy, columns, call.__name__, many=True)


def animals() -> list[Animal]:
    """All of them."""
    one = Event(epsilon="1")
    return [
        Animal("FAST, each column for itself", "printed: a moving unit is measured at almost every step",
               lambda: Fast(WEvent(epsilon="2", w=4), columns=3, samples=2, filter=False, calibration="paper"),
               2.0, REPLAY, steps=24),
        Animal("RescueDP, each column for itself", "printed: accounts side by side for moving units",
               lambda: RescueDP(WEvent(epsilon="2", w=8), columns=8, grouping=False, calibration="paper"),
               2.0, REPLAY, steps=300),
        Animal("OptStream, features of sensitivity 1", "printed: the sum over a period changes by w",
               lambda: OptStream(WEvent(epsilon="2", w=4), samples=2, features=(whole_period(4),), calibration="paper"),
               2.5, steps=4, seconds=20),
        Animal("a feature not times w", "the same, alone", lambda: _callee(feature_not_times_w, WEvent(epsilon="1", w=4)),
               4.0, steps=4),
        Animal("Fourier transform not normalised", "printed: noise for an orthonormal one",
               lambda: _callee(transform_not_normalised, WEvent(epsilon="1", w=8)), 2.0, steps=8),
        Animal("Threshold of ties", "printed: a quantile that jumps from 0 to the bound",
               lambda: _smooth(Event(epsilon="4", delta="1e-3", max_change=400, adjacency="replace")), 47.0, PAIR,
               (pair([5] * 30 + [10] * 30, [5] * 29 + [10] * 31),), 60),
        Animal("first values not clipped", "printed: sums of the sample before the threshold is known",
               lambda: _callee(first_values_not_clipped, Event(epsilon="1", max_change=20)), 4.0, steps=3),
        Animal("PRUNE on eight levels", "printed: tests on a path are not counted",
               lambda: _callee(pruned_path, Event(epsilon="2")), 3.48, steps=1),
        Animal("levels not divided", "a leaf and its parent spend the same budget",
               lambda: _callee(levels_not_divided, one, 2), 2.0, steps=1),
        Animal("tree with one level too few", "printed: log₂ n levels",
               lambda: OneLevelShort(one, horizon=7, estimator="plain"), 1.5, steps=6),
        Animal("tree without the factor w", "event level, claimed for windows",
               lambda: WindowForgottenTree(WEvent(epsilon="1", w=3), horizon=3, estimator="plain"), 3.0, steps=3),
        Animal("unbounded tree with one level too few", "blocks with noise for one level less",
               lambda: HybridOneLevelShort(one, estimator="plain"), 2.0, steps=3),
        Animal("sliding window with one level too few", "noise for one level less",
               lambda: SlidingOneLevelShort(one, window=3, estimator="plain"), 2.0, steps=4),
        Animal("factorization with half of its norm", "a quarter of the variance",
               lambda: ThinFactorization(Event(rho="1/2"), horizon=4), 4.0, steps=3, seconds=15),
    ]  # fmt: skip
