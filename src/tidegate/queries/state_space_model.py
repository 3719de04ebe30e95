"""The structural model of a stream: a level that wanders, a rough and a smooth residual, harmonics of public periods.

Its hyper-parameters are estimated from measurements with known noise: the likelihood of what the filter did not
expect, with a weak prior that is stated relative to the size of the values, so that it means the same in any unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.queries.kernels import state_space as k
from tidegate.queries.kernels.replaying import likelihood

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# what is searched: logarithms of variances, and logits of memories
LEVEL, ROUGH, ROUGH_MEMORY, SMOOTH, SMOOTH_MEMORY, SEASON, SEASON_STEP = range(7)
SEARCHED = 7
VARIANCES = [LEVEL, ROUGH, SMOOTH, SEASON, SEASON_STEP]
# where they are expected (variances relative to the squared size of the values), and how sure that is
CENTRES = np.array([math.log(1e-4), math.log(3e-3), 0.0, math.log(1e-2), 2.0, math.log(1e-2), math.log(1e-7)])
SURENESS = np.array([5.0, 5.0, 2.0, 5.0, 1.5, 2.5, 4.0])
STEPS = np.array([1.5, 1.5, 1.0, 1.5, 1.0, 1.5, 2.0])
SHRINKING = 0.5
MEMORY_BOUND = 7.0  # of the logit of φ: up to 0.999
DIFFUSE = 100.0
DOUBT = 0.5  # standard errors by which values must vary more than their noise to count as larger


@dataclass(frozen=True)
class Structure:
    """What a stream is made of, apart from hyper-parameters.

    Parameters
    ----------
    periods
        Public periods in steps, such as (24, 168) for hours of days and weeks; none by default.
    harmonics
        How many harmonics each period has, at most half of its steps; one number for all of them, or one for each.

    Examples
    --------
    >>> Structure((24, 168), 3).states
    16
    """

    periods: tuple[float, ...] = ()
    harmonics: int | tuple[int, ...] = 6

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "periods", read_periods(self.periods))
        counts = (
            self.harmonics if isinstance(self.harmonics, Sequence) else [self.harmonics] * len(self.periods)
        )
        if len(counts) != len(self.periods):
            raise InvalidParameter(
                "harmonics", self.harmonics, "one number, or one for each period", "give as many as periods"
            )
        put(self, "harmonics", tuple(whole("harmonics", count, most=64) for count in counts))

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        found: list[tuple[float, float]] = []
        counts = self.harmonics
        assert isinstance(counts, tuple)
        for period, count in zip(self.periods, counts, strict=True):
            for number in range(1, count + 1):
                frequency = 2 * math.pi * number / period
                known = any(abs(frequency - other) < 1e-9 for other, _ in found)
                if not known and frequency <= math.pi * (1 + 1e-9):
                    found.append((frequency, 1.0 / number))
        return np.array([f for f, _ in found]), np.array([w for _, w in found])

    @property
    def frequency(self) -> Floats:
        """The angles by which the harmonics turn in one step; those of several periods that coincide count once."""
        return self._table[0]

    @property
    def weight(self) -> Floats:
        """How much variance a harmonic is expected to have, relative to the first: 1/number."""
        return self._table[1]

    @property
    def states(self) -> int:
        """Level, rough residual, two for the smooth one, and two for each harmonic."""
        return k.LEAD + 2 * len(self.frequency)

    @cached_property
    def once(self) -> Floats:
        """Cosines and sines of one step."""
        return np.stack([np.cos(self.frequency), np.sin(self.frequency)])


def read_periods(periods: Sequence[float] | float) -> tuple[float, ...]:
    """Check public periods."""
    given = (periods,) if isinstance(periods, int | float) else tuple(periods)
    for period in given:
        if isinstance(period, bool) or not isinstance(period, int | float) or not 2 <= period < 2**40:
            raise InvalidParameter(
                "periods", period, "numbers of at least 2 steps", "count the period in steps"
            )
    return tuple(sorted(given))


def parameters_of(searched: Floats, prior: tuple[float, float]) -> Floats:
    """The filter's parameters from the searched ones, and from mean and variance of the level at the beginning."""
    rough, slow = (1.0 / (1.0 + math.exp(-searched[at])) for at in (ROUGH_MEMORY, SMOOTH_MEMORY))
    fast = slow * slow  # forgets twice as fast
    result = np.empty(k.PARAMETERS)
    result[k.LEVEL_NOISE] = math.exp(searched[LEVEL])
    result[k.ROUGH_MEMORY] = rough
    result[k.ROUGH_NOISE] = math.exp(searched[ROUGH]) * (1.0 - rough * rough)
    result[k.RISING_MEMORY], result[k.FALLING_MEMORY] = slow, fast
    share = 1 / (1 - slow * slow) - 2 / (1 - slow * fast) + 1 / (1 - fast * fast)
    result[k.SMOOTH_NOISE] = math.exp(searched[SMOOTH]) / share
    result[k.SEASON_PRIOR] = math.exp(searched[SEASON])
    result[k.SEASON_NOISE] = math.exp(searched[SEASON_STEP])
    result[k.LEVEL_MEAN], result[k.LEVEL_PRIOR] = prior
    return result


def size_of(values: Floats, noise: Floats) -> float:
    """The squared size of the values behind noisy measurements: level, or what varies more than the noise."""
    precision: Floats = 1.0 / noise
    mean: float = float((values * precision[:, np.newaxis]).sum() / (precision.sum() * values.shape[1]))
    sure: float = 1.0 / (float(precision.sum()) * values.shape[1])  # the variance of that mean
    squares = float(np.square(precision).sum()) * values.shape[1]
    beyond = (values - mean) ** 2 - noise[:, np.newaxis]
    excess = float((beyond * np.square(precision)[:, np.newaxis]).sum()) / squares
    excess -= DOUBT * math.sqrt(5.0 / squares)  # a squared Laplace number has the variance 5 · noise²
    # the same with equal weights: the few precise measurements may all stem from a quiet hour
    plain = float(beyond.mean()) - DOUBT * math.sqrt(5.0 * float(np.square(noise).mean()) / values.size)
    return float(max(mean * mean, excess, plain, sure))


def estimate(
    structure: Structure,
    steps: Integers,
    values: Floats,
    noise: Floats,
    laplace: bool,
    prior: tuple[float, float],
    start: Floats | None,
    rounds: int,
) -> Floats:
    """Hyper-parameters with the largest posterior, by a search along the coordinates.

    Parameters
    ----------
    steps, values, noise
        When was measured, what (rows × columns of one class), and with which noise variance.
    laplace
        Whether the noise is Laplace; else Gaussian.
    prior
        Mean and variance of the level before the first measurement.
    start
        Where to begin: an earlier estimate.
    rounds
        How often each coordinate is tried.
    """
    size = size_of(values, noise)
    centre = CENTRES.copy()
    centre[VARIANCES] += math.log(size)
    if len(steps) < 2:
        return centre
    searched = range(SEARCHED if len(structure.frequency) else SEASON)
    frequency, weight = structure.frequency, structure.weight

    def score(candidate: Floats) -> float:
        parameters = parameters_of(candidate, prior)
        fit: float = likelihood(steps, values, noise, laplace, parameters, frequency, weight, 1)
        distance = (candidate - centre) / SURENESS
        return fit - 0.5 * float(distance @ distance)

    best, width = centre, STEPS.copy()
    found = score(best)
    wild = (
        centre.copy()
    )  # far from the centre the likelihood is flat in between, and the search would not get there
    wild[VARIANCES] += math.log(max(1.0, float(np.square(values).mean()) / size))
    reached = score(wild)
    if reached > found:
        best, found = wild, reached
    if start is not None:
        again = score(start)
        if again > found:
            best, found, width = start, again, STEPS * 0.5
    for _ in range(rounds):
        for at in searched:
            for sign in (1.0, -1.0):
                candidate = best.copy()
                candidate[at] += sign * width[at]
                if at in (ROUGH_MEMORY, SMOOTH_MEMORY) and abs(candidate[at]) > MEMORY_BOUND:
                    continue
                reached = score(candidate)
                if reached > found:
                    best, found = candidate, reached
                    break
            else:
                width[at] *= SHRINKING
    return best
