"""The Kalman filter that FAST and RescueDP share: post-processing of noisy measurements, free of charge.

A diagonal filter on random walks, one independent scalar filter per column. `belief` is a float64 array of FIELDS × d in
grid units; everything in it comes from noisy measurements.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.errors import InvalidParameter

# rows of `belief`
ESTIMATE = 0  # what is published
VARIANCE = 1  # of the estimate, just after its last correction
MEASURED = 2  # the last measurement
NOISE = 3  # its variance
SQUARES = 4  # Σ of squared differences of measurements, less what their noise explains; faded, and weighted:
GAPS = 5  # Σ of the steps between them; the same. Squares of noise are as unsure as its variance squared
FIELDS = 6

LEAST_NOISE = 1e-6  # a variance in squared grid units that is as good as none


class Model(NamedTuple):
    """The settings of a filter, in grid units."""

    filters: bool  # else the estimate is the last measurement
    process: float  # variance of the walk per step; negative: estimated from the measurements
    fades: float  # what a difference of measurements is worth when the next one comes


def finite(name: str, value: float, least: float, most: float = math.inf) -> float:
    """Read a tuning constant, which no guarantee depends on: a finite number in [least, most]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        bounds = f"a finite number of at least {least:g}" + (
            "" if math.isinf(most) else f" and at most {most:g}"
        )
        raise InvalidParameter(name, value, bounds, "leave it out for the default")
    return number


@dataclass(frozen=True)
class Kalman:
    """A scalar filter for each column: a random walk that is measured with noise.

    Between measurements the estimate stands still and its variance grows by the process noise Q a step; a
    measurement with noise variance R moves it by the gain P/(P + R). The first measurement is taken as it is.

    Parameters
    ----------
    process_noise
        Q: how much the stream moves in one step, as a variance in the values' unit squared: a public
        constant. None estimates it for each column from the noisy measurements, by the excess of their
        squared differences over what the noise explains, each worth one over the squared variance of its
        noise; never from the data.
    measurement_noise
        R, as a variance. None is the variance of the noise that is really added, which is public.
    fading
        For the estimate of Q: what a difference of two measurements is worth when the next one comes.

    Examples
    --------
    >>> Kalman(process_noise=25.0).describe()
    {'process_noise': 25.0, 'measurement_noise': None, 'fading': 0.95}
    """

    process_noise: float | None = None
    measurement_noise: float | None = None
    fading: float = 0.95

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, least in (("process_noise", 0.0), ("measurement_noise", 1e-12)):
            value = getattr(self, name)
            if value is not None:
                put(self, name, finite(name, value, least))
        put(self, "fading", finite("fading", self.fading, 0.0, 1.0))

    def describe(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)


def model(settings: Kalman | None, grid: Fraction) -> Model:
    """The settings for the compiled loops, in grid units; without settings nothing is filtered."""
    if settings is None:
        return Model(filters=False, process=0.0, fades=0.0)
    walk = settings.process_noise
    return Model(
        filters=True, process=-1.0 if walk is None else walk / float(grid) ** 2, fades=settings.fading
    )


def switched(name: str, value: Any, default: Any) -> Any:
    """Read a switch: True is the default of a feature, another object of its class says how, and False is without it."""
    if value is True:
        return default
    if value is not False and not isinstance(value, type(default)):
        kind = type(default).__name__
        raise InvalidParameter(name, value, f"True, False or a {kind}", f"write {name}=True")
    return value


@lean
def _weight(noise: float) -> Any:
    """What a squared difference is worth whose noise has this variance: its own variance goes with the square of it."""
    noise = max(noise, LEAST_NOISE)
    return np.true_divide(1.0, noise * noise)


@lean
def correct(
    belief: Any, column: int, measurement: float, noise: float, gap: int, model: Any, first: bool
) -> float:
    """Correct one column by a measurement whose noise has this variance; returns the change of the estimate.

    `gap` is the number of steps since the last correction; the `first` measurement is taken as it is.
    """
    before: float = belief[ESTIMATE, column]
    gain = 1.0
    prior = noise
    if not first and model.filters:
        walk = model.process
        if walk < 0.0:
            # E(z − z')² = gap·Q + R + R' for a random walk
            difference = measurement - belief[MEASURED, column]
            both = noise + belief[NOISE, column]
            weight = _weight(both)
            squares = model.fades * belief[SQUARES, column] + weight * (difference * difference - both)
            gaps = model.fades * belief[GAPS, column] + weight * gap
            belief[SQUARES, column] = squares
            belief[GAPS, column] = gaps
            walk = np.true_divide(max(squares, 0.0), gaps)
        # true_divide has no branch for a zero denominator, which would stop vectorisation; there is none
        prior = belief[VARIANCE, column] + gap * walk
        gain = np.true_divide(prior, prior + noise)
    belief[VARIANCE, column] = gain * noise  # the same as (1 − gain)·prior
    belief[MEASURED, column] = measurement
    belief[NOISE, column] = noise
    change: float = gain * (measurement - before)
    belief[ESTIMATE, column] = before + change if gain < 1.0 else measurement
    return change


@lean
def correct_all(
    belief: Any, row: Any, given: Any, noise: float, gap: int, model: Any, first: bool, changes: Any
) -> None:
    """`correct` every column by row + given, in loops that the compiler can vectorise; `changes` are absolute."""
    estimate, variance, measured = belief[ESTIMATE], belief[VARIANCE], belief[MEASURED]
    if first or not model.filters:
        for column in range(row.size):
            measurement = float(row[column] + given[column])
            changes[column] = abs(measurement - estimate[column])
            estimate[column] = measurement
            measured[column] = measurement
        variance[:] = noise
        belief[NOISE] = noise
        return
    public, fades = model.process, model.fades
    before, squares, gaps = belief[NOISE], belief[SQUARES], belief[GAPS]
    if public < 0.0:
        for column in range(row.size):
            measurement = float(row[column] + given[column])
            difference = measurement - measured[column]
            both = noise + before[column]
            weight = _weight(both)
            squares[column] = fades * squares[column] + weight * (difference * difference - both)
            gaps[column] = fades * gaps[column] + weight * gap
            # the walk's part of the prior, kept here for the next loop
            changes[column] = gap * np.true_divide(max(squares[column], 0.0), gaps[column])
    else:
        changes[:] = gap * public
    for column in range(row.size):
        measurement = float(row[column] + given[column])
        prior = variance[column] + changes[column]
        gain = np.true_divide(prior, prior + noise)
        change = gain * (measurement - estimate[column])
        variance[column] = gain * noise
        estimate[column] += change
        measured[column] = measurement
        changes[column] = abs(change)
    belief[NOISE] = noise
