"""Sums of steps whose errors are correlated."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.releases import Errors

Values = npt.NDArray[np.float64]
# Standard deviations on each side of 90 %. Of a weighted sum of independent Laplace draws it is a little less.
SPREAD = NormalDist().inv_cdf(0.95)


class Stretch(NamedTuple):
    """What is known of the error of a sum of consecutive steps, for each column.

    Attributes
    ----------
    variance
        Of the error, but for its lasting part.
    enters
        How much the sum is off per unit by which the shared part is off before its first step.
    leaves
        The covariance of the sum's error with the shared part after its last step, per deviation of that.
    passes
        How much of the shared part before the first step is left after the last one.
    lasting
        By how much lasting parts are off together.
    """

    variance: Values
    enters: Values
    leaves: Values
    passes: Values
    lasting: Values


def one_step(errors: Errors, there: npt.NDArray[np.bool_]) -> Stretch:
    """Of a single step; of a column without a value nothing but what passes."""
    shared = np.where(there, np.sqrt(errors.shared), 0.0)
    own = np.where(there, errors.own, 0.0)
    lasting = np.where(there, np.sqrt(errors.lasting), 0.0)
    with np.errstate(invalid="ignore"):
        return Stretch(own + shared * shared, shared * errors.carry, shared, errors.carry, lasting)


def added(first: Stretch, then: Stretch) -> Stretch:
    """Of two that follow each other.

    Own parts add up as variances. Shared parts add up as deviations where steps repeat one measurement, and fade with
    each correction where they do not. Lasting parts add up as they are.

    Examples
    --------
    >>> one, none, there = np.ones(1), np.zeros(1), np.ones(1, dtype=bool)
    >>> own = one_step(Errors(one, none, none, none), there)
    >>> same = one_step(Errors(none, one, one, none), there)
    >>> added(own, own).variance.tolist(), added(same, same).variance.tolist()
    ([2.0], [4.0])
    """
    with np.errstate(invalid="ignore"):  # of errors that are not known
        return Stretch(
            first.variance + then.variance + 2 * first.leaves * then.enters,
            first.enters + first.passes * then.enters,
            first.leaves * then.passes + then.leaves,
            first.passes * then.passes,
            first.lasting + then.lasting,
        )


def vague(radius: Values) -> Errors:
    """Of an error of which only the half-width is known: it may have the same sign at all steps."""
    nothing = np.zeros(len(radius))
    return Errors(nothing, (radius / SPREAD) ** 2, nothing + 1.0, nothing)


class Sliding:
    """The stretches of a window that slides: two stacks, so that a step costs two additions on average.

    Examples
    --------
    >>> one, none, there = np.ones(1), np.zeros(1), np.ones(1, dtype=bool)
    >>> window = Sliding()
    >>> for _ in range(3):
    ...     window.push(one_step(Errors(none, one, one, none), there))
    >>> window.pop()
    >>> window.whole().variance.tolist()
    [4.0]
    """

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self._old: list[
            Stretch
        ] = []  # of each of the oldest steps that and all later ones of these, oldest last
        self._new: list[Stretch] = []
        self._joined: Stretch | None = None  # the new ones
        for stretch in stretches:
            self.push(stretch)

    def push(self, stretch: Stretch) -> None:
        """Put a step in."""
        self._new.append(stretch)
        self._joined = stretch if self._joined is None else added(self._joined, stretch)

    def pop(self) -> None:
        """Take the oldest one out."""
        if not self._old:
            for stretch in reversed(self._new):
                self._old.append(added(stretch, self._old[-1]) if self._old else stretch)
            self._new, self._joined = [], None
        self._old.pop()

    def whole(self) -> Stretch:
        """Of all of them; there is at least one."""
        if self._joined is None or not self._old:
            found = self._joined or self._old[-1]
        else:
            found = added(self._old[-1], self._joined)
        return found
