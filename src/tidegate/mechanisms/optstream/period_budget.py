"""How OptStream splits the budget of a window among tests, samples and features, and what its periods are charged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from tidegate.core.charges import Integers


@dataclass(frozen=True)
class PeriodBudget:
    """The budget of a window of w steps, as parts of 1.

    Parameters
    ----------
    window, samples
        w and k.
    weights
        Of tests, samples and features; 0 for parts that are off.
    adaptive
        Whether samples depend on the data, so that a window that straddles two periods may have more than k of them.
    leaf
        Which part of a sample's budget leaves have that choose their samples for themselves; the rest belongs to
        nodes with k public times. 1 where all samples are taken at the same times.
    groups
        Groups of samples with one radius that a window can meet (one where a semiorder has all of them), each of
        which is charged its part of what samples have; 0 where each has noise of its own.

    Privacy
    -------
    Every charge is public. Of adaptive samples the first and the last step of a period are certain; the k − 2 in
    between may be anywhere, so they are charged to the period as a whole, as the tests are: once in each window
    that meets it. That is 2(k − 2) + 2 samples in a window that straddles two periods, and k in one that does not.
    Where 2k − 2 > w it is cheaper to charge every step with a sample. Adaptive samples that share noise are one group a
    period, of which a window meets two: it is charged to the period. Those of public times are charged by their noise.
    """

    window: int
    samples: int
    weights: tuple[Fraction, Fraction, Fraction]
    adaptive: bool = False
    leaf: Fraction = Fraction(1)
    groups: int = 0

    @property
    def most(self) -> int:
        """The samples that a window of w steps can contain."""
        return min(self._straddling, self.window) if self.adaptive else self.samples

    @property
    def _straddling(self) -> int:
        """The same for a window that straddles two periods, however long it is."""
        return 2 * self.samples - len(self._certain)

    @property
    def _certain(self) -> tuple[int, ...]:
        """The positions that are samples whatever the data are, where the others depend on them."""
        return (1, self.window)

    @cached_property
    def shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """What one period's tests, one sample, and one step's features cost."""
        tests, samples, features = self.weights
        k, w = self.samples, self.window
        total = 2 * tests + samples * self.most / k + features
        return tests / total, samples / total / k, features / total / w

    @property
    def measuring(self) -> Fraction:
        """What all samples of a window cost."""
        return self.shares[1] * self.most

    @property
    def public_sample(self) -> Fraction:
        """What a sample at one of k public times costs where leaves have times of their own: a window has only k."""
        return self.shares[1] * self.most / self.samples

    @cached_property
    def _parts(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """The costs of a period, of a certain sample of the leaves, of a public sample above them, and of a step."""
        tests, sample, step = self.shares
        if self.groups:  # samples at public times are charged as groups; adaptive ones have one a period
            period = tests + self.measuring / self.groups if self.adaptive else tests
            return period, Fraction(0), Fraction(0), step
        certain = self.leaf * sample
        spread = self.adaptive and self._straddling <= self.window
        span = tests + (self.samples - len(self._certain)) * certain if spread else tests
        if self.adaptive and not spread:
            certain, step = Fraction(0), step + certain
        return span, certain, (1 - self.leaf) * self.public_sample, step

    @cached_property
    def units(self) -> int:
        """As many as make every charge a whole number of them."""
        if self.groups:
            return math.lcm(*(part.denominator for part in (*self._parts, self.measuring / self.groups)))
        return math.lcm(*(part.denominator for part in (*self.shares, *self._parts)))

    def charges(self, times: Sequence[int], above: Sequence[int] = ()) -> tuple[int, Integers]:
        """The units of a period and of its steps: samples of the leaves, if certain, and of the nodes above them."""
        span, certain, public, step = (int(part * self.units) for part in self._parts)
        steps = np.full(self.window, step, dtype=np.int64)
        steps[np.array(self._certain if self.adaptive else times, dtype=np.int64) - 1] += certain
        steps[np.array(above, dtype=np.int64) - 1] += public
        return span, steps
