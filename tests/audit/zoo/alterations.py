"""The shipped Uniform with its noise altered before it is added: cut, kept, shared, left out, or in floating point."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from tests.audit.zoo.animal import Floats, Independent

from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.noise import current, laplace


class Altered(Independent):
    """Uniform whose exact noise is altered before it is added; `alter` says how."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Steps whose noise is altered."""
        true = rows * float(Fraction(self.grid))
        output = super().advance(state, rows, first, noise)
        return output._replace(values=self.alter(true, output.values - true))

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """What is released, from steps × columns of true values and of noise."""
        raise NotImplementedError


class FloatNoise(Altered):
    """Laplace noise by the inverse distribution function in floating point (Mironov 2012)."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """Noise that lies between the grid's points."""
        words = current().words("zoo", 0, 1, range(noise.size), 0, 1).reshape(noise.shape)
        centred = ((words >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53 - 0.5
        return true - self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))


class OneSided(Altered):
    """Noise that is never negative."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """Its absolute value."""
        return true + np.abs(noise)


class Truncated(Altered):
    """Noise that is cut off at four times its scale."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """Within four scales."""
        return true + np.clip(noise, -4, 4)


class SameInBothColumns(Altered):
    """One draw for both columns of a step."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """The first column's noise."""
        return true + np.repeat(noise[:, ::2], 2, axis=1)


class FirstColumnOnly(Altered):
    """Noise on the first of two columns, the other as it is."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """No noise on the second column."""
        noise[:, 1::2] = 0
        return true + noise


class DrawnOnce(Altered):
    """One draw for the whole stream."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """The first step's noise."""
        return true + noise[:1]


class KeptForTwoSteps(Altered):
    """Noise that is drawn at every other step."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """The noise of the step before."""
        return true + noise[np.arange(len(noise)) // 2 * 2]


class RedrawnUntilPositive(Altered):
    """Negative results are drawn again, which changes the distribution of all others."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """Never negative."""
        released = true + noise
        for _ in range(60):
            bad = np.nonzero(released < 0)
            if not len(bad[0]):
                break
            released[bad] = true[bad] + laplace(current(), "zoo", 0, self.scale, (len(bad[0]), 1))[:, 0]
        return released


class ZerosWithoutNoise(Altered):
    """Empty cells are released as they are."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """No noise on zeros."""
        return np.where(true == 0, 0.0, true + noise)


class ScaleFromTheData(Altered):
    """Noise in proportion to the count, so that large counts look as good as small ones."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """More noise on large counts."""
        return true + np.floor(noise * (1 + np.abs(true) / 4))


class UnchangedIsSkipped(Altered):
    """A step that equals the one before is not released: silence tells that nothing changed."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """NaN where nothing changed."""
        released = true + noise
        released[1:][np.diff(true, axis=0) == 0] = np.nan
        return released


class LargestStepOnly(Altered):
    """Only the largest step is measured, chosen by looking at the counts."""

    def alter(self, true: Floats, noise: Floats) -> Floats:
        """0 elsewhere."""
        largest = true == true.max(axis=0)
        return np.where(largest & (np.cumsum(largest, axis=0) == 1), true + noise, 0.0)
