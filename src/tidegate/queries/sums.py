"""Linear answers from released running sums, and how far off they are: public arithmetic on public noise laws.

A linear answer at step t is Σ_j weights[j]·S_j over the running sums S_1 … S_t released so far. Given its
`weights`, every counter states its exact standard deviation: ``mechanism.deviation_of(query.weights(t))``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.exact import proper

Values = npt.NDArray[np.float64]
_WIDEST = (
    80.0  # standard deviations after which the periodic images of a law repeat; exp(−80·√2/2) is nothing
)
_LEAST = 1e-9  # where the characteristic function is cut off


class LinearQuery(ABC):
    """An answer that is linear in the running sums released so far."""

    @abstractmethod
    def weights(self, step: int) -> Values:
        """The coefficients of the running sums of steps 1 to `step` in the answer at `step`."""

    @abstractmethod
    def apply(self, sums: npt.ArrayLike) -> Values:
        """The answers of all steps, from the running sums of steps 1, 2, … (T, or T × d)."""


@dataclass(frozen=True)
class RunningSum(LinearQuery):
    """The released running sums themselves.

    Examples
    --------
    >>> RunningSum().apply([1.0, 3.0])
    array([1., 3.])
    """

    def weights(self, step: int) -> Values:
        """One for the last sum."""
        weights = np.zeros(step)
        weights[-1] = 1.0
        return weights

    def apply(self, sums: npt.ArrayLike) -> Values:
        """The sums."""
        return np.array(sums, dtype=np.float64)


class Counter(Protocol):
    """What a counter says about linear answers from its running sums."""

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of an answer with these weights."""

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around it."""


@dataclass(frozen=True)
class Answer:
    """An answer at one step, one number for each column, with what is known of its noise."""

    step: int
    values: Values
    deviation: float
    radius: float

    @property
    def low(self) -> Values:
        """The lower end of the confidence interval."""
        return self.values - self.radius

    @property
    def high(self) -> Values:
        """The upper end of the confidence interval."""
        return self.values + self.radius


def answer(query: LinearQuery, sums: npt.ArrayLike, counter: Counter, confidence: float = 0.95) -> Answer:
    """The answer at the last step of the running sums of steps 1, 2, …, with its error and confidence interval.

    Parameters
    ----------
    query
        Which answer.
    sums
        All running sums released so far (T, or T × d), such as ``releases.values``.
    counter
        The mechanism that released them; of ClippedSum, ``mechanism.counter_at(releases.clip[-1])``.
    confidence
        Of the interval.
    """
    given = np.asarray(sums, dtype=np.float64)
    weights = query.weights(len(given))
    values: Values = np.atleast_1d(weights @ given)
    return Answer(len(given), values, counter.deviation_of(weights), counter.radius_of(weights, confidence))


def increments(sums: npt.ArrayLike) -> Values:
    """The noisy stream behind running sums: S_t − S_{t−1}.

    Examples
    --------
    >>> increments([2.0, 5.0, 4.0])
    array([ 2.,  3., -1.])
    """
    return np.diff(np.asarray(sums, dtype=np.float64), axis=0, prepend=0.0)


def interval(values: npt.ArrayLike, radius: npt.ArrayLike) -> tuple[Values, Values]:
    """(lower, upper) ends of intervals around answers, with the radius of each step."""
    centre, reach = np.asarray(values, dtype=np.float64), np.asarray(radius, dtype=np.float64)
    if centre.ndim == 2 and reach.ndim == 1:
        reach = reach[:, np.newaxis]
    return centre - reach, centre + reach


def gaussian_radius(deviation: float, confidence: float = 0.95) -> float:
    """The r with P(|X| ≤ r) = confidence for Gaussian noise.

    Examples
    --------
    >>> round(gaussian_radius(1.0), 3)
    1.96
    """
    proper("confidence", confidence, "write for example confidence=0.95")
    return deviation * NormalDist().inv_cdf(0.5 + confidence / 2)


def laplace_radius(scales: npt.ArrayLike, counts: npt.ArrayLike, confidence: float = 0.95) -> float:
    """The r with P(|X| ≤ r) = confidence, for a sum of independent Laplace draws, counts[i] of scales[i].

    By inversion of the characteristic function (Gil-Pelaez), to about six digits; the grid is taken as fine.

    Examples
    --------
    >>> round(laplace_radius([1.0], [1]), 3), round(-math.log(0.05), 3)
    (2.996, 2.996)
    """
    proper("confidence", confidence, "write for example confidence=0.95")
    points, law, deviation = _characteristic(scales, counts)
    if deviation == 0.0:
        return 0.0
    step = float(points[1] - points[0])
    low, high = 0.0, _WIDEST / 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        mass = step * (middle / math.pi + 2 / math.pi * float(np.sum(np.sin(middle * points) / points * law)))
        low, high = (middle, high) if mass < confidence else (low, middle)
    return high * deviation


def laplace_mean_absolute(scales: npt.ArrayLike, counts: npt.ArrayLike) -> float:
    """E|X| of a sum of independent Laplace draws, counts[i] of scales[i]: (2/π)·∫ (1 − φ(s))/s² ds.

    Examples
    --------
    >>> round(laplace_mean_absolute([1.0], [1]), 4), round(laplace_mean_absolute([1.0], [2]), 4)
    (1.0, 1.5)
    """
    points, law, deviation = _characteristic(scales, counts)
    if deviation == 0.0:
        return 0.0
    step = float(points[1] - points[0])
    rest = (1.0 - law) / points**2
    integral = step * (0.25 + float(np.sum(rest)) - 0.5 * float(rest[-1])) + 1.0 / float(points[-1])
    return 2 / math.pi * integral * deviation


def merged(scales: Values, most: int = 400) -> tuple[Values, Values]:
    """Independent draws of many scales as (scales, how many of each); beyond `most`, neighbours share their mean square.

    Examples
    --------
    >>> merged(np.array([2.0, 1.0, 2.0]))
    (array([1., 2.]), array([1., 2.]))
    """
    values, counts = np.unique(np.round(scales, 12), return_counts=True)
    many = counts.astype(np.float64)
    if len(values) > most:
        # few large scales decide the tails, so they stay apart; the many small ones are put together
        groups = np.concatenate(
            [
                np.linspace(0, most // 2, len(values) - most // 2, dtype=np.int64),
                most // 2 + 1 + np.arange(most // 2),
            ]
        )
        squares = np.bincount(groups, weights=many * values**2)
        many = np.bincount(groups, weights=many).astype(np.float64)
        values, many = np.sqrt(squares[many > 0] / many[many > 0]), many[many > 0]
    return values, many


def _characteristic(scales: npt.ArrayLike, counts: npt.ArrayLike) -> tuple[Values, Values, float]:
    """(points s > 0, φ(s) of the standardised sum, standard deviation of the sum)."""
    each = np.asarray(scales, dtype=np.float64)
    many = np.asarray(counts, dtype=np.float64)
    deviation = math.sqrt(float(np.sum(2.0 * each**2 * many)))
    if deviation == 0.0:
        return np.zeros(0), np.zeros(0), 0.0
    unit = each / deviation

    def log_law(points: Values) -> Values:
        law = np.zeros(len(points))
        for scale, count in zip(unit, many, strict=True):
            law -= count * np.log1p((scale * points) ** 2)
        return law

    last = 8.0
    while last < 16384.0 and log_law(np.array([last]))[0] > math.log(_LEAST):
        last *= 2.0
    step = 2 * math.pi / _WIDEST
    points: Values = np.arange(1, math.ceil(last / step) + 1, dtype=np.float64) * step
    return points, np.exp(log_law(points)), deviation
