"""The clipped sum and its threshold as Perrier et al. print them: not private, for their figures and for attacks.

Printed are a quantile that jumps where values tie (a loss of 47 ε), constants of Gaussian noise that are too small, a
threshold that may exceed the bound, a first sum that is not clipped, and a tree with one level too few.
"""

from __future__ import annotations

import math
from dataclasses import fields
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from tidegate.audit.direct import Printed
from tidegate.core.arrays import Array
from tidegate.core.charges import Integers
from tidegate.mechanisms.clipping.clipped_sum import SUM, ClippedSum, State
from tidegate.mechanisms.clipping.smooth_sensitivity import Constants
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.counters.binary_tree import BinaryTree, levels_of
from tidegate.noise import gaussian, laplace
from tidegate.noise.entropy import Source


def printed_constants(epsilon: float, delta: float, too_low: float, *, gaussian: bool) -> Constants:
    """The paper's a and b."""
    b = epsilon / (-2.0 * math.log(delta))
    if gaussian:
        a, offset = epsilon / math.sqrt(-math.log(delta)), NormalDist().inv_cdf(1.0 - too_low)
        return Constants(a, b, offset).checked()
    return Constants(epsilon / 2.0, b, -math.log(2.0 * too_low)).checked()


def printed_quantile(ordered: Integers, exceeding: float, bound: int) -> tuple[int, int]:
    """(value, rank): the least element with at least (1 − p)·m elements strictly below it, else B.

    With ties the value can jump to B when one observation changes, which its local sensitivity does not see.
    """
    below = np.searchsorted(ordered, ordered, side="left")
    found = np.flatnonzero(below >= (1.0 - exceeding) * len(ordered))
    return (int(ordered[found[0]]), int(found[0]) + 1) if len(found) else (bound, len(ordered) + 1)


class PrintedThreshold(Printed, Threshold):
    """The printed quantile and constants, of smooth sensitivity; it may exceed B."""

    @cached_property
    def _constants(self) -> Constants:
        epsilon, delta = float(Fraction(self.policy.epsilon or 0)), float(Fraction(self.policy.delta))
        return printed_constants(epsilon, delta, self.too_low, gaussian=self.method == "smooth-gaussian")

    def _smooth(self, ordered: Integers, source: Source, step: int) -> int:
        share = 1 - self.rank / self.sample if self.exceeding is None else float(Fraction(self.exceeding))
        value, rank = printed_quantile(ordered, share, self.largest)
        scale = self._constants.scale(ordered, rank, self.largest)
        draw = gaussian if self.method == "smooth-gaussian" else laplace
        noise = int(draw(source, "threshold", step, scale, (1,))[0])
        return max(value + math.floor(scale * self._constants.offset + 0.5) + noise, 1)


class PrintedClippedSum(Printed, ClippedSum):
    """Mechanism 1: a printed threshold, a first sum that is not clipped, and a tree with log₂ n levels."""

    @cached_property
    def finder(self) -> Threshold:
        """The threshold, as printed."""
        sound = super().finder
        return PrintedThreshold(**{each.name: getattr(sound, each.name) for each in fields(sound)})

    def clip_of(self, threshold: int) -> int:
        """r·τ̂, which may exceed B."""
        return max(1, math.floor(Fraction(self.multiplier or 1) * threshold))

    def tree(self, clip: int, steps: int | None = None, epsilon: Fraction | None = None) -> BinaryTree:
        """With noise for log₂ n levels, which are fewer than a step is in."""
        total = Fraction(self.policy.epsilon or 0) if epsilon is None else epsilon
        count = steps or self.length - self.waits
        if count > 1:
            total *= Fraction(levels_of(count, self.branching) / math.log(count, self.branching))
        return super().tree(clip, steps, total)

    def _learn(self, state: State, source: Source) -> tuple[Array, ...]:
        """The first sum is that of values up to B, with noise for the clip."""
        sample = state.sample.content.copy()
        revised = super()._learn(state, source)
        state.first[SUM] += int((sample - np.minimum(sample, state.numbers[1])).sum())
        return revised


def as_printed(sound: Any) -> PrintedClippedSum:
    """The printed form of a configuration."""
    return PrintedClippedSum(**{each.name: getattr(sound, each.name) for each in fields(sound) if each.init})
