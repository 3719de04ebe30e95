"""Compiled Kalman filter of a structural model: level, rough and smooth residual, harmonics; many columns at once.

States are ordered (level, rough, rising, falling, cosine amplitudes of all harmonics, sine amplitudes of all
harmonics), so that every inner loop runs over neighbouring memory. The value of step t is level + rough + (rising −
falling) + Σ of amplitudes × cosines and sines at t: rising and falling forget at different rates but are moved by the
same noise, so that their difference begins at zero and is smooth. Amplitudes only wander; what turns is the `phase`,
the cosines and sines of a step, so that moving a covariance costs next to nothing. (Cosine and sine get noise of the same
variance: this is the model whose harmonics turn.) Columns of one class share their covariance and gains; what differs
between them is the state alone. Between measurements nothing is stored: the model is looked at `gap` steps ahead in
closed form, and the covariance moves only when a measurement arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import lean

# positions in a class's parameters, in squared units of the values where they are variances
LEVEL_NOISE = 0  # variance of the level's step
SEASON_NOISE = 1  # variance of a harmonic's step, times its weight
ROUGH_MEMORY = 2  # φ of the rough residual
ROUGH_NOISE = 3  # variance of its step
RISING_MEMORY = 4  # φ of the slower part of the smooth residual
FALLING_MEMORY = 5  # and of the faster one
SMOOTH_NOISE = 6  # variance of their common step
LEVEL_PRIOR = 7  # variance of the level before the first measurement
SEASON_PRIOR = 8  # variance of a harmonic before the first measurement, times its weight
LEVEL_MEAN = 9  # the level expected before the first measurement
UNSEEN = 10  # what may hide where nothing is visible: belongs to intervals, not to the filter
SQUARED_LOAD = 11  # the mean square of how much its columns have of what all have in common
PARAMETERS = 12

LEAD = 4  # states before the harmonics: level, rough, rising, falling
REFRESHED = 64  # steps after which a phase is recomputed


@lean
def begin(parameters: Any, weight: Any, covariance: Any) -> None:
    """The covariance of one class before any measurement."""
    harmonics = weight.size
    covariance[:] = 0.0
    covariance[0, 0] = parameters[LEVEL_PRIOR]
    covariance[1, 1] = parameters[ROUGH_NOISE] / (1.0 - parameters[ROUGH_MEMORY] ** 2)
    slow, fast = parameters[RISING_MEMORY], parameters[FALLING_MEMORY]
    covariance[2, 2] = parameters[SMOOTH_NOISE] / (1.0 - slow * slow)
    covariance[2, 3] = parameters[SMOOTH_NOISE] / (1.0 - slow * fast)
    covariance[3, 2] = covariance[2, 3]
    covariance[3, 3] = parameters[SMOOTH_NOISE] / (1.0 - fast * fast)
    for i in range(harmonics):
        covariance[LEAD + i, LEAD + i] = parameters[SEASON_PRIOR] * weight[i]
        covariance[LEAD + harmonics + i, LEAD + harmonics + i] = parameters[SEASON_PRIOR] * weight[i]


@lean
def growth(parameters: Any, gap: int) -> Any:
    """What of the leading states fades, and what is new after `gap` steps.

    Returns φ^gap of rough, rising and falling; the new variances of level, rough, rising and falling; and the new
    covariance of the last two.
    """
    rough, slow, fast = parameters[ROUGH_MEMORY], parameters[RISING_MEMORY], parameters[FALLING_MEMORY]
    left, rising, falling = rough**gap, slow**gap, fast**gap
    noise = parameters[SMOOTH_NOISE]
    return (
        left,
        rising,
        falling,
        parameters[LEVEL_NOISE] * gap,
        parameters[ROUGH_NOISE] * (1.0 - left * left) / (1.0 - rough * rough),
        noise * (1.0 - rising * rising) / (1.0 - slow * slow),
        noise * (1.0 - falling * falling) / (1.0 - fast * fast),
        noise * (1.0 - rising * falling) / (1.0 - slow * fast),
    )


@lean
def phase_at(once: Any, step: int, phase: Any) -> None:
    """Cosines, then sines, of all harmonics at a step; `once` has cosines and sines of one step, and the angles."""
    harmonics = once.shape[1]
    for i in range(harmonics):
        phase[i] = np.cos(once[2, i] * step)
        phase[harmonics + i] = np.sin(once[2, i] * step)


@lean
def turn_to(once: Any, step: int, phase: Any) -> None:
    """The phase of a step from that of the step before; now and then from nothing, so that no error adds up."""
    if step % REFRESHED == 0:
        phase_at(once, step, phase)
        return
    harmonics = once.shape[1]
    for i in range(harmonics):
        cosine, sine = phase[i], phase[harmonics + i]
        phase[i] = cosine * once[0, i] - sine * once[1, i]
        phase[harmonics + i] = sine * once[0, i] + cosine * once[1, i]


@lean
def look_ahead(
    covariance: Any, parameters: Any, weight: Any, gap: int, phase: Any, work: Any, spread: Any
) -> Any:
    """Predicted variance of the value in `gap` steps; `spread` becomes its covariance with the states then."""
    grown = growth(parameters, gap)
    aim(grown, phase, work)
    multiply(covariance, work, spread)
    return arrive(grown, parameters[SEASON_NOISE] * gap, weight, phase, work, spread)


@lean
def multiply(matrix: Any, vector: Any, product: Any) -> None:
    """product = matrix · vector for a symmetric matrix: by rows, which is by columns too, four at once."""
    states = vector.size
    product[:] = 0.0
    whole = states - states % 4
    for i in range(0, whole, 4):
        a, b, c, d = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(states):
            product[j] += (vector[i] * a[j] + vector[i + 1] * b[j]) + (
                vector[i + 2] * c[j] + vector[i + 3] * d[j]
            )
    for i in range(whole, states):
        a = matrix[i]
        for j in range(states):
            product[j] += vector[i] * a[j]


@lean
def aim(grown: Any, phase: Any, work: Any) -> None:
    """How the value of a later step is made of the states now."""
    work[0], work[1], work[2], work[3] = 1.0, grown[0], grown[1], -grown[2]
    for i in range(phase.size):
        work[LEAD + i] = phase[i]


@lean
def arrive(grown: Any, season: float, weight: Any, phase: Any, work: Any, spread: Any) -> Any:
    """The variance of that value from its covariance with the states now, which becomes the one with those then."""
    harmonics = weight.size
    left, rising, falling, drift, rough, up, down, both = grown
    total = drift + rough + up + down - 2.0 * both
    total += inner_product(spread, work)
    spread[0] += drift
    spread[1] = left * spread[1] + rough
    spread[2] = rising * spread[2] + up - both
    spread[3] = falling * spread[3] + both - down
    for i in range(harmonics):
        new = season * weight[i]
        spread[LEAD + i] += new * phase[i]
        spread[LEAD + harmonics + i] += new * phase[harmonics + i]
        total += new
    return total


@lean
def absorb(covariance: Any, parameters: Any, weight: Any, gap: int, spread: Any, total: float) -> None:
    """Move a covariance `gap` steps and take in a measurement of variance `total` in all (prediction and noise)."""
    move(covariance, growth(parameters, gap), parameters[SEASON_NOISE] * gap, weight)
    take_out(covariance, spread, total)


@lean
def take_out(covariance: Any, spread: Any, total: float) -> None:
    """What a measurement of variance `total` in all explains is no longer uncertain."""
    for i in range(spread.size):
        row = covariance[i]
        gain = spread[i] / total
        for j in range(spread.size):
            row[j] -= gain * spread[j]


@lean
def move(covariance: Any, grown: Any, season: float, weight: Any) -> None:
    """Move a covariance by so much growth."""
    harmonics = weight.size
    left, rising, falling, drift, rough, up, down, both = grown
    fade(covariance, left, rising, falling)
    covariance[0, 0] += drift
    covariance[1, 1] += rough
    covariance[2, 2] += up
    covariance[3, 3] += down
    covariance[2, 3] += both
    covariance[3, 2] += both
    for i in range(harmonics):
        covariance[LEAD + i, LEAD + i] += season * weight[i]
        covariance[LEAD + harmonics + i, LEAD + harmonics + i] += season * weight[i]


@lean
def fade(matrix: Any, rough: float, rising: float, falling: float) -> None:
    """Multiply the rows and columns of the residuals."""
    for i in range(matrix.shape[0]):
        row = matrix[i]
        row[1] *= rough
        row[2] *= rising
        row[3] *= falling
    for at, factor in ((1, rough), (2, rising), (3, falling)):
        row = matrix[at]
        for j in range(row.size):
            row[j] *= factor


@lean
def expected(state: Any, parameters: Any, kind: Any, gap: int, phase: Any, made: Any, values: Any) -> None:
    """The predicted values of all columns; state is (columns × states).

    `made` (classes × states) becomes how a value is made of the states at the last measurement.
    """
    for c in range(parameters.shape[0]):
        made[c, 0] = 1.0
        made[c, 1] = parameters[c, ROUGH_MEMORY] ** gap
        made[c, 2] = parameters[c, RISING_MEMORY] ** gap
        made[c, 3] = -(parameters[c, FALLING_MEMORY] ** gap)
        for i in range(phase.size):
            made[c, LEAD + i] = phase[i]
    for j in range(values.size):
        values[j] = inner_product(made[kind[j]], state[j])


@lean
def follow(state: Any, kind: Any, made: Any, spread: Any, totals: Any, innovation: Any) -> None:
    """Move the states of all columns to now and correct them by their innovations; `made` as `expected` left it."""
    for j in range(innovation.size):
        c, own = kind[j], state[j]
        own[1] *= made[c, 1]
        own[2] *= made[c, 2]
        own[3] *= -made[c, 3]
        correction, gain = innovation[j] / totals[c], spread[c]
        for i in range(gain.size):
            own[i] += gain[i] * correction


@lean
def inner_product(one: Any, other: Any) -> Any:
    """The sum of products, as four sums, because a sum waits for itself; there is an even number of states."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = one.size - one.size % 4
    for i in range(0, whole, 4):
        a += one[i] * other[i]
        b += one[i + 1] * other[i + 1]
        c += one[i + 2] * other[i + 2]
        d += one[i + 3] * other[i + 3]
    for i in range(whole, one.size, 2):
        a += one[i] * other[i]
        b += one[i + 1] * other[i + 1]
    return (a + b) + (c + d)
