"""Maximum likelihood of ARMA(1, 1), x(t) = φ·x(t−1) + e(t) + θ·e(t−1), for values whose mean was taken off.

One step ahead the innovations algorithm predicts φ·x(t) + θ·(x(t) − predicted)/r, with r the variance of the last
error in units of that of e: r = (1 + 2φθ + θ²)/(1 − φ²) at first, then 1 + θ² − θ²/r. With the variance of e at its
best value, −2·log likelihood is n·log(Σ error²/r) + Σ log r and a constant. It is minimised over φ = tanh a and
θ = tanh b, from the best point of a grid on, by the simplex of Nelder and Mead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidegate.compiled import kernel

ITERATIONS = 200
CLOSE = 1e-7  # of the simplex, in a and b
INSIDE = 1.0 - 1e-9  # φ stays below 1, where there is a variance
START = 0.2  # the size of the first simplex
STEADY = 1e-13  # r − 1 below this no longer moves


@kernel
def deviance(values: Any, phi: float, theta: float) -> tuple[float, float]:
    """−2·log likelihood up to a constant, and the prediction of the value after the last."""
    variance = (1.0 + 2.0 * phi * theta + theta * theta) / (1.0 - phi * phi)
    predicted = 0.0
    squares = 0.0
    logarithms = 0.0
    for value in values:
        error = value - predicted
        squares += error * error / variance
        if abs(variance - 1.0) > STEADY:
            logarithms += math.log(variance)
        predicted = phi * value + theta * error / variance
        variance = 1.0 + theta * theta * (1.0 - 1.0 / variance)
    return len(values) * math.log(squares) + logarithms, predicted


@kernel
def _at(values: Any, point: Any) -> float:
    """The deviance at a point of the plane of a and b."""
    return deviance(values, INSIDE * math.tanh(point[0]), math.tanh(point[1]))[0]


@kernel
def fit(values: Any) -> tuple[float, float, float]:
    """φ, θ and the prediction of the value after the last."""
    points = np.zeros((3, 2))
    found = np.empty(3)
    trial = np.empty(2)
    found[0] = _at(values, points[0])
    for one in range(-4, 5):
        for other in range(-4, 5):
            trial[0], trial[1] = 0.6 * one, 0.6 * other
            here = _at(values, trial)
            if here < found[0]:
                points[0], found[0] = trial, here
    for corner in range(2):
        points[corner + 1] = points[0]
        points[corner + 1, corner] += START
        found[corner + 1] = _at(values, points[corner + 1])
    for _ in range(ITERATIONS):
        order = np.argsort(found)
        best, middle, worst = order[0], order[1], order[2]
        if np.abs(points - points[best]).max() < CLOSE:
            break
        centre = 0.5 * (points[best] + points[middle])
        away = points[worst] - centre
        trial[:] = centre - away
        reached = _at(values, trial)
        if reached < found[best]:  # further in the same direction
            further = centre - 2.0 * away
            beyond = _at(values, further)
            if beyond < reached:
                trial[:], reached = further, beyond
        elif reached >= found[middle]:  # nearer, on the better side
            trial[:] = centre - 0.5 * away if reached < found[worst] else centre + 0.5 * away
            reached = _at(values, trial)
        if reached < found[worst]:
            points[worst], found[worst] = trial, reached
            continue
        for corner in range(3):  # nothing is better: shrink towards the best
            if corner != best:
                points[corner] = 0.5 * (points[corner] + points[best])
                found[corner] = _at(values, points[corner])
    best = np.argmin(found)
    phi, theta = INSIDE * math.tanh(points[best, 0]), math.tanh(points[best, 1])
    return phi, theta, deviance(values, phi, theta)[1]
