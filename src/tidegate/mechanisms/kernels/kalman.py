"""A diagonal Kalman filter on random walks, compiled: one independent scalar filter a column.

`belief` is a float64 array of FIELDS × d in grid units; everything in it comes from noisy measurements.
"""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel

# rows of `belief`
ESTIMATE = 0  # what is published
VARIANCE = 1  # of the estimate, just after its last correction
MEASURED = 2  # the last measurement
NOISE = 3  # its variance
SQUARES = 4  # Σ of squared differences of measurements, less what their noise explains; faded
GAPS = 5  # Σ of the steps between them; faded
FIELDS = 6

# positions in `model`
FILTERS = 0  # 0: the estimate is the last measurement
PROCESS = 1  # variance of the walk per step; negative: estimated from the measurements
FADES = 2  # what a difference of measurements is worth when the next one comes
MODEL = 3


@kernel
def process_noise(belief: Any, column: int, measurement: float, noise: float, gap: int, model: Any) -> float:
    """The variance per step of the walk, estimated from the measurements so far where it is not public."""
    public: float = model[PROCESS]
    if public >= 0.0:
        return public
    # E(z − z')² = gap·Q + R + R' for a random walk
    difference = measurement - belief[MEASURED, column]
    excess = difference * difference - noise - belief[NOISE, column]
    belief[SQUARES, column] = model[FADES] * belief[SQUARES, column] + excess
    belief[GAPS, column] = model[FADES] * belief[GAPS, column] + gap
    estimated: float = max(belief[SQUARES, column], 0.0) / belief[GAPS, column]
    return estimated


@kernel
def absorb(
    belief: Any, column: int, measurement: float, noise: float, gap: int, model: Any, first: bool
) -> float:
    """Correct one column by a measurement whose noise has this variance; returns the change of the estimate.

    `gap` is the number of steps since the last correction; the `first` measurement is taken as it is.
    """
    before: float = belief[ESTIMATE, column]
    if first or model[FILTERS] == 0.0:
        belief[ESTIMATE, column] = measurement
        belief[VARIANCE, column] = noise
    else:
        walk = process_noise(belief, column, measurement, noise, gap, model)
        prior = belief[VARIANCE, column] + gap * walk
        gain = prior / (prior + noise)
        belief[ESTIMATE, column] = before + gain * (measurement - before)
        belief[VARIANCE, column] = (1.0 - gain) * prior
    belief[MEASURED, column] = measurement
    belief[NOISE, column] = noise
    change: float = belief[ESTIMATE, column] - before
    return change
