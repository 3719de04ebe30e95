"""Compiled Kalman filter of a structural model: level, rough and smooth residual, harmonics; many columns at once.

States are ordered (level, rough, rising, falling, cosine parts of all harmonics, sine parts of all harmonics), so that
every inner loop runs over neighbouring memory. The value is level + rough + (rising − falling) + all cosine parts:
rising and falling forget at different rates but are moved by the same noise, so that their difference begins at zero and
is smooth. Columns of one class share their covariance and gains; what differs between them is the state alone.
Between measurements nothing is stored: the model is looked at `gap` steps ahead in closed form, and the covariance
moves only when a measurement arrives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidegate.compiled import kernel

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
PARAMETERS = 11

LEAD = 4  # states before the harmonics: level, rough, rising, falling

# Laplace noise tells more than Gaussian noise of its variance. Of a normal x (variance s) behind Laplace noise
# (scale b), the Fisher information of the sum about its location is 1/(s + b²·g(s/b²)), where g goes from 1 to 2 and
# is fitted to 0.002 by a rational function.
UPPER = (3.59842409, 0.90032391)
LOWER = (3.14338012, 2.56911407, 0.97764725)
NEARLY_GAUSSIAN = 200.0  # s/b² from which the noise may as well be Gaussian


@kernel
def effective_noise(variance: float, noise: float) -> Any:
    """The variance of Gaussian noise that would tell as much as Laplace noise of variance `noise`."""
    square = 0.5 * noise
    ratio = variance / square
    if ratio > NEARLY_GAUSSIAN:
        return noise
    u = np.sqrt(ratio)
    above = u * (UPPER[0] + u * (UPPER[1] + u))
    return square * min(2.0, 1.0 + above / (LOWER[0] + u * (LOWER[1] + u * (LOWER[2] + u))))


@kernel
def _log_normal(z: float) -> Any:
    """The logarithm of the normal distribution function."""
    if z > -30.0:  # far from where the function itself underflows, and where the series below is good to 1e-8
        return np.log(0.5 * math.erfc(-z * 0.7071067811865476))
    square = 1.0 / (z * z)
    return -0.5 * z * z - np.log(-z * 2.5066282746310002) + np.log(1.0 - square * (1.0 - 3.0 * square))


@kernel
def heard(innovation: float, variance: float, noise: float) -> Any:
    """(posterior mean of x, log-density) for innovation = x + Laplace noise, x normal with this variance.

    The posterior is a mixture of two truncated normals; its mean is (s/b)·tanh of half their log-odds.
    """
    square = 0.5 * noise
    if variance > NEARLY_GAUSSIAN * square:
        total = variance + noise
        return variance * innovation / total, -0.5 * (
            np.log(6.283185307179586 * total) + innovation * innovation / total
        )
    scale, deviation = np.sqrt(square), np.sqrt(variance)
    if deviation < 1e-9 * scale:
        return 0.0, -np.log(2.0 * scale) - abs(innovation) / scale
    shift = deviation / scale
    below = -innovation / scale + _log_normal(innovation / deviation - shift)
    above = innovation / scale + _log_normal(-innovation / deviation - shift)
    odds = below - above
    most = max(below, above)
    density = 0.5 * shift * shift - np.log(2.0 * scale) + most + np.log1p(np.exp(-abs(odds)))
    return variance / scale * np.tanh(0.5 * odds), density


@kernel
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


@kernel
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


@kernel
def turn_to(frequency: Any, gap: int, turns: Any) -> None:
    """Cosines and sines of the angles by which the harmonics turn in `gap` steps."""
    for i in range(frequency.size):
        turns[0, i] = np.cos(frequency[i] * gap)
        turns[1, i] = np.sin(frequency[i] * gap)


@kernel
def turn_once(once: Any, turns: Any) -> None:
    """Turn by one more step."""
    for i in range(turns.shape[1]):
        cosine = turns[0, i]
        turns[0, i] = cosine * once[0, i] - turns[1, i] * once[1, i]
        turns[1, i] = turns[1, i] * once[0, i] + cosine * once[1, i]


@kernel
def look_ahead(
    covariance: Any, parameters: Any, weight: Any, gap: int, turns: Any, work: Any, spread: Any
) -> Any:
    """Predicted variance of the value `gap` steps ahead; `spread` becomes its covariance with the states then."""
    harmonics = weight.size
    states = LEAD + 2 * harmonics
    left, rising, falling, drift, rough, up, down, both = growth(parameters, gap)
    work[0], work[1], work[2], work[3] = 1.0, left, rising, -falling
    for i in range(harmonics):
        work[LEAD + i] = turns[0, i]
        work[LEAD + harmonics + i] = turns[1, i]
    spread[:states] = 0.0
    for i in range(states):  # by rows, which is by columns too, so that the inner loop needs no sum
        row, factor = covariance[i], work[i]
        for j in range(states):
            spread[j] += factor * row[j]
    total = drift + rough + up + down - 2.0 * both
    for i in range(states):
        total += spread[i] * work[i]
    spread[0] += drift
    spread[1] = left * spread[1] + rough
    spread[2] = rising * spread[2] + up - both
    spread[3] = falling * spread[3] + both - down
    season = parameters[SEASON_NOISE] * gap
    for i in range(harmonics):
        grown = season * weight[i]
        one, two = spread[LEAD + i], spread[LEAD + harmonics + i]
        spread[LEAD + i] = turns[0, i] * one + turns[1, i] * two + grown
        spread[LEAD + harmonics + i] = turns[0, i] * two - turns[1, i] * one
        total += grown
    return total


@kernel
def absorb(
    covariance: Any, parameters: Any, weight: Any, gap: int, turns: Any, spread: Any, total: float
) -> None:
    """Move a covariance `gap` steps and take in a measurement of variance `total` in all (prediction and noise)."""
    harmonics = weight.size
    states = LEAD + 2 * harmonics
    left, rising, falling, drift, rough, up, down, both = growth(parameters, gap)
    for j in range(states):
        covariance[1, j] *= left
        covariance[2, j] *= rising
        covariance[3, j] *= falling
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        upper, lower = covariance[LEAD + i], covariance[LEAD + harmonics + i]
        for j in range(states):
            one, two = upper[j], lower[j]
            upper[j] = cosine * one + sine * two
            lower[j] = cosine * two - sine * one
    season = parameters[SEASON_NOISE] * gap
    for i in range(states):
        row = covariance[i]
        row[1] *= left
        row[2] *= rising
        row[3] *= falling
        for j in range(harmonics):
            one, two = row[LEAD + j], row[LEAD + harmonics + j]
            row[LEAD + j] = turns[0, j] * one + turns[1, j] * two
            row[LEAD + harmonics + j] = turns[0, j] * two - turns[1, j] * one
    covariance[0, 0] += drift
    covariance[1, 1] += rough
    covariance[2, 2] += up
    covariance[3, 3] += down
    covariance[2, 3] += both
    covariance[3, 2] += both
    for i in range(harmonics):
        covariance[LEAD + i, LEAD + i] += season * weight[i]
        covariance[LEAD + harmonics + i, LEAD + harmonics + i] += season * weight[i]
    for i in range(states):
        row = covariance[i]
        gain = spread[i] / total
        for j in range(states):
            row[j] -= gain * spread[j]


@kernel
def expected(state: Any, parameters: Any, kind: Any, gap: int, turns: Any, fading: Any, values: Any) -> None:
    """The predicted values of all columns; state is (states × columns), `fading` (classes × 3) scratch."""
    columns = values.size
    harmonics = turns.shape[1]
    for c in range(parameters.shape[0]):
        fading[c, 0] = parameters[c, ROUGH_MEMORY] ** gap
        fading[c, 1] = parameters[c, RISING_MEMORY] ** gap
        fading[c, 2] = parameters[c, FALLING_MEMORY] ** gap
    for j in range(columns):
        c = kind[j]
        values[j] = (
            state[0, j] + fading[c, 0] * state[1, j] + fading[c, 1] * state[2, j] - fading[c, 2] * state[3, j]
        )
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        one, two = state[LEAD + i], state[LEAD + harmonics + i]
        for j in range(columns):
            values[j] += cosine * one[j] + sine * two[j]


@kernel
def follow(
    state: Any, kind: Any, turns: Any, fading: Any, spread: Any, totals: Any, innovation: Any, gains: Any
) -> None:
    """Move the states of all columns to now and correct them by their innovations; `fading` as `expected` left it."""
    columns = innovation.size
    harmonics = turns.shape[1]
    for c in range(totals.size):
        for i in range(LEAD + 2 * harmonics):
            gains[i, c] = spread[c, i] / totals[c]
    for j in range(columns):
        c = kind[j]
        state[0, j] += gains[0, c] * innovation[j]
        state[1, j] = fading[c, 0] * state[1, j] + gains[1, c] * innovation[j]
        state[2, j] = fading[c, 1] * state[2, j] + gains[2, c] * innovation[j]
        state[3, j] = fading[c, 2] * state[3, j] + gains[3, c] * innovation[j]
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        one, two = state[LEAD + i], state[LEAD + harmonics + i]
        gain, other = gains[LEAD + i], gains[LEAD + harmonics + i]
        for j in range(columns):
            a, b, c = one[j], two[j], kind[j]
            one[j] = cosine * a + sine * b + gain[c] * innovation[j]
            two[j] = cosine * b - sine * a + other[c] * innovation[j]
