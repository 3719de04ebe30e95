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
from tidegate.structures.kernels import state_space as k
from tidegate.structures.kernels.replaying import phases_of
from tidegate.structures.kernels.searching import (
    LEVEL,
    ROUGH,
    SEARCHED,
    SEASON,
    SEASON_STEP,
    SMOOTH,
    search,
    write_parameters,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

VARIANCES = [LEVEL, ROUGH, SMOOTH, SEASON, SEASON_STEP]
# where searched numbers are expected (variances relative to the squared size of the values), and how sure that is
CENTRES = np.array([math.log(1e-4), math.log(3e-3), 0.0, math.log(1e-2), 2.0, math.log(1e-2), math.log(1e-7)])
SURENESS = np.array([5.0, 5.0, 2.0, 5.0, 1.5, 2.5, 4.0])
STEPS = np.array([1.5, 1.5, 1.0, 1.5, 1.0, 1.5, 2.0])
DIFFUSE = 100.0
SETTLED = 64  # measurements from which an earlier estimate is not doubted any more
HARMONICS = 8  # of a period, where nothing else is said
NEXT = (
    8  # a period at most so many times as long as the one before it says how that one's shape differs in it
)
DIFFERING = 0.3  # how much less variance those differences are expected to have
EVIDENT = 3.5  # standard errors that a mean, or what varies more than its noise, must have to be seen
POSSIBLE = 0.5  # standard errors of a variance that is not visible
HIDDEN = 1 / 256  # of that mean's variance: the squared size that is expected of values nobody can see
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
        By default eight, and more for a period that is a few times as long as the one before it: 16 of a week let
        the shape of its days differ.

    Examples
    --------
    >>> Structure((24, 168), 3).states
    16
    >>> Structure((24, 168)).harmonics
    (8, 16)
    """

    periods: tuple[float, ...] = ()
    harmonics: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "periods", read_periods(self.periods))
        counts = usual_harmonics(self.periods) if self.harmonics is None else self.harmonics
        if isinstance(counts, int):
            counts = (counts,) * len(self.periods)
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
        shorter = 0.0
        for period, count in zip(self.periods, counts, strict=True):
            for number in range(1, count + 1):
                frequency = 2 * math.pi * number / period
                known = any(abs(frequency - other) < 1e-9 for other, _ in found)
                if not known and frequency <= math.pi * (1 + 1e-9):
                    found.append((frequency, (DIFFERING if number * shorter > period else 1.0) / number))
            shorter = period
        return np.array([f for f, _ in found]), np.array([w for _, w in found])

    @property
    def frequency(self) -> Floats:
        """The angles by which the harmonics turn in one step; those of several periods that coincide count once."""
        return self._table[0]

    @property
    def weight(self) -> Floats:
        """How much variance a harmonic is expected to have, relative to the first: 1/number, less for differences."""
        return self._table[1]

    @property
    def states(self) -> int:
        """Level, rough residual, two for the smooth one, and two for each harmonic."""
        return k.LEAD + 2 * len(self.frequency)

    @cached_property
    def once(self) -> Floats:
        """Cosines and sines of one step, and the angles."""
        return np.stack([np.cos(self.frequency), np.sin(self.frequency), self.frequency])


def usual_harmonics(periods: Sequence[float]) -> tuple[int, ...]:
    """Eight for each period; for one that is a few times as long as the one before, two and a bit for each time.

    Examples
    --------
    >>> usual_harmonics((24, 168, 8760))
    (8, 16, 8)
    """
    found, before = [], 0.0
    for period in periods:
        differs = before and period <= NEXT * before
        found.append(max(HARMONICS, round(2 * period / before) + 2) if differs else HARMONICS)
        before = period
    return tuple(found)


def read_periods(periods: Sequence[float] | float) -> tuple[float, ...]:
    """Check public periods."""
    given = (periods,) if isinstance(periods, int | float) else tuple(periods)
    for period in given:
        if isinstance(period, bool) or not isinstance(period, int | float) or not 2 <= period < 2**40:
            raise InvalidParameter(
                "periods", period, "numbers of at least 2 steps", "count the period in steps"
            )
    return tuple(sorted(given))


@dataclass(frozen=True)
class Prior:
    """What is known of the level before the first measurement.

    Attributes
    ----------
    mean, variance
        Of the level.
    unseen
        A variance that intervals have to add: of what may hide behind the noise, but is not believed in.
    """

    mean: float
    variance: float
    unseen: float = 0.0


def parameters_of(searched: Floats, prior: Prior) -> Floats:
    """The filter's parameters from the searched ones, and from what is known of the level at the beginning."""
    result = np.empty(k.PARAMETERS)
    write_parameters(searched, result)
    result[k.LEVEL_MEAN], result[k.LEVEL_PRIOR], result[k.UNSEEN] = prior.mean, prior.variance, prior.unseen
    result[k.SQUARED_LOAD] = 0.0
    return result


@dataclass(frozen=True)
class Size:
    """How large the values behind noisy measurements are.

    Attributes
    ----------
    square
        The squared size; where nothing is visible a small part of what could hide behind the noise.
    visible
        Whether the measurements show anything but their noise.
    variation
        Where they do not: the variance around their level that they may have all the same.
    """

    square: float
    visible: bool = True
    variation: float = 0.0

    @property
    def unseen(self) -> float:
        """The squared size of what may hide where nothing is visible."""
        return 0.0 if self.visible else max(self.square / HIDDEN, self.variation)


def size_of(values: Floats, known_as: Floats, laplace: bool) -> Size:
    """The squared size of the values behind noisy measurements: level, or what varies more than the noise.

    `known_as` are variances of the noise, negative where it is neither Laplace nor, if `laplace` is False, Gaussian.
    """
    noise = np.abs(known_as)
    precision: Floats = 1.0 / noise
    mean: float = float((values * precision[:, np.newaxis]).sum() / (precision.sum() * values.shape[1]))
    sure: float = 1.0 / (float(precision.sum()) * values.shape[1])  # the variance of that mean
    squares = float(np.square(precision).sum()) * values.shape[1]
    beyond = (values - mean) ** 2 - noise[:, np.newaxis]
    excess = float((beyond * np.square(precision)[:, np.newaxis]).sum()) / squares
    unsure = math.sqrt(5.0 / squares)  # a squared Laplace number has the variance 5 · noise²
    # the same with equal weights: the few precise measurements may all stem from a quiet hour
    plain = float(beyond.mean())
    plainly = math.sqrt(5.0 * float(np.square(noise).mean()) / values.size)
    if mean * mean <= EVIDENT**2 * sure and not _varies(values - mean, known_as, laplace):
        return Size(HIDDEN * sure, visible=False, variation=max(0.0, excess) + POSSIBLE * unsure)
    return Size(max(mean * mean, excess - DOUBT * unsure, plain - DOUBT * plainly, sure))


def _varies(values: Floats, known_as: Floats, laplace: bool) -> bool:
    """Whether values are larger than their noise, by mean absolute values: squares of Laplace noise have long tails.

    Noise that steps share has a mean absolute value of at most √¾ of its deviation, that of a uniform number.
    """
    usual, variance = (0.5**0.5, 0.5) if laplace else ((2 / math.pi) ** 0.5, 1 - 2 / math.pi)
    noise, expected = np.abs(known_as), np.where(known_as < 0, 0.75**0.5, usual)
    over = (np.abs(values) / np.sqrt(noise)[:, np.newaxis]).mean(axis=1) - expected
    for weight in (np.ones(len(noise)), 1.0 / noise):
        deviation = math.sqrt(variance * float(weight @ weight) / values.shape[1])
        if float(weight @ over) > EVIDENT * deviation:
            return True
    return False


def estimate(
    structure: Structure,
    steps: Integers,
    values: Floats,
    noise: Floats,
    laplace: bool,
    prior: Prior,
    size: Size,
    start: Floats | None,
    rounds: int,
) -> Floats:
    """Hyper-parameters with the largest posterior, by a search along the coordinates.

    Parameters
    ----------
    steps, values, noise
        When was measured, what (rows × columns of one class), and with which noise variance.
    laplace
        Whether the noise is Laplace; otherwise Gaussian.
    prior
        What is known of the level before the first measurement.
    size
        How large the values are; where they are not visible there is nothing to be estimated.
    start
        Where to begin: an earlier estimate.
    rounds
        How often each coordinate is tried.
    """
    centre = CENTRES.copy()
    centre[VARIANCES] += math.log(size.square)
    if len(steps) < 2 or not size.visible:
        return centre
    parameters = parameters_of(centre, prior)
    data = (steps, phases_of(steps, structure.once), values, noise, laplace)
    rule = (centre, SURENESS, parameters, data, structure.weight)
    begun = [] if start is None else [(start, STEPS * 0.5)]
    if start is None or len(steps) < SETTLED:
        # far from the centre the likelihood is flat in between, and the search would not get there
        wild = centre.copy()
        wild[VARIANCES] += math.log(max(1.0, float(np.square(values).mean()) / size.square))
        begun += [(centre, STEPS), (wild, STEPS)]
    candidates, widths = (np.stack(arrays) for arrays in zip(*begun, strict=True))
    coordinates = SEARCHED if len(structure.frequency) else SEASON
    best: Floats = candidates[search(candidates, widths, coordinates, rounds, *rule)]
    return best
