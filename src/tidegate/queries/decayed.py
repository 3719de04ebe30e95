"""Decayed sums: what happened long ago counts less (Bolot et al.).

Each decay is an answer from released running sums (post-processing of any counter), and a workload that
``Factorization(decay=…)`` releases directly, with less noise.

References
----------
Bolot, Fawaz, Muthukrishnan, Nikolov, Taft: Private decayed predicate sums on streams. ICDT 2013.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.exact import ExactLike, exact, positive, proper, whole
from tidegate.queries.sums import LinearQuery, Values, increments


@dataclass(frozen=True)
class Decay(LinearQuery):
    """Σ_j by_age[t − j]·x_j, from the running sums of x."""

    @abstractmethod
    def by_age(self, count: int) -> Values:
        """The weights of the ages 0, 1, …, count − 1; age 0 has weight 1."""

    def weights(self, step: int) -> Values:
        """A sum of age k counts as much as its increment counts more than the next one (Abel's summation)."""
        ages = self.by_age(step)[::-1]  # weights of the increments 1 … step
        weights: Values = ages - np.append(ages[1:], 0.0)
        return weights

    def apply(self, sums: npt.ArrayLike) -> Values:
        """The decayed sums of all steps."""
        steps = increments(sums)
        flat = steps.reshape(len(steps), -1)
        ages = self.by_age(max(len(flat), 1))
        columns = [np.convolve(column, ages)[: len(flat)] for column in flat.T]
        return np.stack(columns, axis=1).reshape(steps.shape) if columns else steps


@dataclass(frozen=True)
class Exponential(Decay):
    """Weight factor^age.

    Examples
    --------
    >>> Exponential("0.5").apply([1.0, 1.0, 2.0])
    array([1.  , 0.5 , 1.25])
    """

    factor: ExactLike

    def __post_init__(self) -> None:
        factor = proper("factor", exact("factor", self.factor), 'write for example factor="0.99"')
        object.__setattr__(self, "factor", factor)

    def by_age(self, count: int) -> Values:
        """The powers of the factor."""
        return np.power(float(Fraction(self.factor)), np.arange(count, dtype=np.float64))

    def apply(self, sums: npt.ArrayLike) -> Values:
        """The decayed sums of all steps, in linear time."""
        from scipy.signal import lfilter  # slow to import, needed here only

        result: Values = lfilter([1.0], [1.0, -float(Fraction(self.factor))], increments(sums), axis=0)
        return result


@dataclass(frozen=True)
class Polynomial(Decay):
    """Weight (age + 1)^−power.

    Examples
    --------
    >>> Polynomial("1").apply([1.0, 1.0, 2.0]).round(3)
    array([1.   , 0.5  , 1.333])
    """

    power: ExactLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", positive("power", self.power))

    def by_age(self, count: int) -> Values:
        """The powers of 1, 2, 3, …, negative."""
        return np.power(np.arange(1, count + 1, dtype=np.float64), -float(Fraction(self.power)))


@dataclass(frozen=True)
class Window(Decay):
    """Weight 1 for the last `length` steps, then 0: the sum over a sliding window.

    Examples
    --------
    >>> Window(2).apply([1.0, 3.0, 6.0])
    array([1., 3., 5.])
    """

    length: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole("length", self.length))

    def by_age(self, count: int) -> Values:
        """Ones, then zeros."""
        return (np.arange(count) < self.length).astype(np.float64)

    def apply(self, sums: npt.ArrayLike) -> Values:
        """S_t − S_{t−length}."""
        given = np.array(sums, dtype=np.float64)
        given[self.length :] -= np.asarray(sums, dtype=np.float64)[: -self.length]
        return given
