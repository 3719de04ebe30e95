"""ClippedSum and its threshold: as printed, and mutants."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from tests.audit.zoo.animal import PAIR, PRINTED, Animal, Floats, pair

from experiments.printed.clipping import PrintedThreshold, printed_constants
from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee
from tidegate.core.arrays import Array
from tidegate.core.mechanism import Matrix
from tidegate.core.rows import Draws
from tidegate.mechanisms.clipping import smooth_sensitivity as smooth
from tidegate.mechanisms.clipping.clipped_sum import CLIP, SUM, ClippedSum, State
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.clipping.tops import ToPS
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.noise import Source, current
from tidegate.policy import Event, Policy


class FirstValuesNotClipped(ClippedSum):
    """The sum of the sample is released unclipped, with noise for the clip (Perrier et al., as printed)."""

    def _learn(self, state: State, source: Source) -> tuple[Array, ...]:
        """Add what the clip took away."""
        sample = state.sample.content.copy()
        revised = super()._learn(state, source)
        state.first[SUM] += float((sample - np.minimum(sample, state.numbers[CLIP])).sum())
        return revised


class FallbackFromTheSample(ClippedSum):
    """Falls back to B where the sample itself exceeds the threshold (section VI decides by a quantile of the data)."""

    def _learn(self, state: State, source: Source) -> tuple[Array, ...]:
        """The clip of the raw sample."""
        largest = int(state.sample.content.max())
        revised = super()._learn(state, source)
        if largest > state.numbers[CLIP]:
            state.numbers[CLIP] = self.largest
            state.tree.begin(self.largest)
        return revised


class ThinTree(ClippedSum):
    """The tree and the first sum spend a quarter more than they have."""

    def tree(self, clip: int, steps: int | None = None, epsilon: Fraction | None = None) -> BinaryTree:
        """With a budget that is too large."""
        total = Fraction(self.policy.epsilon or 0) if epsilon is None else epsilon
        return super().tree(clip, steps, total * Fraction(5, 4))


class BoundForgotten(ClippedSum):
    """Values are clipped at B and noise is scaled to the threshold."""

    def _count(self, state: State, rows: Matrix, noise: Draws, values: Floats, deviations: Floats) -> None:
        """Clip too late."""
        super()._count(state, rows, noise, values, deviations)
        lost = rows - np.minimum(rows, state.numbers[CLIP])
        values += np.cumsum(lost, axis=0) * float(Fraction(self.grid))


class GuessFromTheGroup(ToPS):
    """Within a group the sum grows by what has arrived, not by what earlier groups had."""

    def _count(self, state: Any, rows: Matrix, first: int, noise: Draws) -> tuple[Floats, Floats]:
        """Add the open group, without noise."""
        values, deviations = super()._count(state, rows, first, noise)
        values[~self.ends(first, len(rows)), 0] += float(state.group[0])
        return values, deviations


class PrintedGaussian(Threshold):
    """Gaussian noise with a = ε/√ln(1/δ), as printed; the rank is the fixed one, so that ties do no harm."""

    @cached_property
    def _constants(self) -> smooth.Constants:
        epsilon, delta = float(Fraction(self.policy.epsilon or 0)), float(Fraction(self.policy.delta))
        return printed_constants(epsilon, delta, self.too_low, gaussian=True)


class RoundedScale(Threshold):
    """The smooth scale is rounded up to a power of 16, which makes it jump."""

    @cached_property
    def _constants(self) -> smooth.Constants:
        found = super()._constants
        return _Rounded(found.a, found.b, found.offset)


class _Rounded(smooth.Constants):
    """Constants whose scale is rounded."""

    def scale(self, ordered: Any, rank: int, bound: int) -> float:
        """Up to a power of 16."""
        return 16.0 ** math.ceil(math.log(super().scale(ordered, rank, bound), 16))


def released(threshold: Threshold, name: str) -> Callee:
    """A threshold as something that can be audited: one number from a sample."""

    def release(stream: Counts) -> Floats:
        return np.array([float(threshold.draw(stream[:, 0], current(), threshold.sample).value)])

    return Callee(release, threshold.policy, name=name)


def animals() -> list[Animal]:
    """All of them."""
    two = Event(epsilon="2", max_change=4)
    small: dict[str, Any] = {
        "horizon": 4,
        "lag": 3,
        "above": 1,
        "multiplier": 1,
        "share": "1/2",
        "estimator": "plain",
    }

    def approximate(epsilon: str, bound: int, delta: str = "1e-3") -> Policy:
        return Event(epsilon=epsilon, delta=delta, max_change=bound, adjacency="replace")

    return [
        Animal("first values not clipped", "printed: sums of the sample before the threshold is known",
               lambda: FirstValuesNotClipped(two, **small), math.inf, steps=4),
        Animal("clip chosen from the sample", "printed: section VI falls back to B where the data exceed the threshold",
               lambda: FallbackFromTheSample(two, **small), math.inf, steps=4),
        Animal("clipped sum, 25 % too much", "near miss: the tree's budget is too large",
               lambda: ThinTree(two, **small), 1.25, steps=4, seconds=40),
        Animal("clipped too late", "values up to B, noise for the threshold",
               lambda: BoundForgotten(two, **small), 4.0, steps=4, seconds=40),
        Animal("guess from the open group", "between measured sums, what has arrived since is added",
               lambda: GuessFromTheGroup(two, horizon=6, lag=3, above=1, group=2), math.inf, steps=4),
        Animal("threshold of ties", "printed: a quantile that jumps from 0 to the bound",
               lambda: released(PrintedThreshold(approximate("4", 400), sample=60, exceeding="1/2", method="smooth",
                                                 too_low=0.1), "Threshold, printed"), 47.0, PAIR,
               (pair([5] * 30 + [10] * 30, [5] * 29 + [10] * 31),), 60, kind=PRINTED),
        Animal("smooth sensitivity, Gaussian", "printed: a = ε/√ln(1/δ)",
               lambda: released(PrintedGaussian(approximate("4", 100_000, "1/20"), sample=60, exceeding="1/2",
                                                method="smooth-gaussian", too_low=0.49), "Threshold, Gaussian"),
               1.5, PAIR, (pair([40_000] * 30 + [40_400] * 30, [40_000] * 29 + [40_400] * 31),), 60, seconds=40),
        Animal("smooth scale rounded up", "to a power of 16: neighbours differ by that much",
               lambda: released(RoundedScale(approximate("4", 100_000), sample=60, exceeding="1/2", method="smooth",
                                             too_low=0.4), "Threshold, rounded"), math.inf, PAIR,
               (pair([40_000] * 30 + [40_490] + [40_505] * 29, [40_000] * 30 + [40_505] * 30),), 60),
    ]  # fmt: skip
