"""Compiled: what a noisy measurement tells about a normal number behind it.

Noise is one number here: the variance of Laplace noise, or minus the variance of noise that is taken for Gaussian,
because its law is closer to that (noise that steps share).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidegate.compiled import lean

# Laplace noise tells more than Gaussian noise of its variance. Of a normal x (variance s) behind Laplace noise
# (scale b), the Fisher information of the sum about its location is 1/(s + b²·g(s/b²)), where g goes from 1 to 2 and
# is fitted to 0.002 by a rational function.
UPPER = (3.59842409, 0.90032391)
LOWER = (3.14338012, 2.56911407, 0.97764725)
NEARLY_GAUSSIAN = 200.0  # s/b² from which the noise may as well be Gaussian


@lean
def effective_noise(variance: float, noise: float) -> Any:
    """The variance of Gaussian noise that would tell as much as Laplace noise of variance `noise`."""
    if noise < 0.0:
        return -noise
    square = 0.5 * noise
    ratio = variance / square
    if ratio > NEARLY_GAUSSIAN:
        return noise
    u = np.sqrt(ratio)
    above = u * (UPPER[0] + u * (UPPER[1] + u))
    return square * min(2.0, 1.0 + above / (LOWER[0] + u * (LOWER[1] + u * (LOWER[2] + u))))


@lean
def _log_normal(z: float) -> Any:
    """The logarithm of the normal distribution function."""
    if z > -30.0:  # far from where the function itself underflows, and where the series below is good to 1e-8
        return np.log(0.5 * math.erfc(-z * 0.7071067811865476))
    square = 1.0 / (z * z)
    return -0.5 * z * z - np.log(-z * 2.5066282746310002) + np.log(1.0 - square * (1.0 - 3.0 * square))


@lean
def heard(innovation: float, variance: float, noise: float) -> Any:
    """The posterior mean of x for innovation = x + noise, x normal with this variance.

    Behind Laplace noise the posterior is a mixture of two truncated normals; its mean is (s/b)·tanh of half their
    log-odds.
    """
    square = 0.5 * noise
    if variance > NEARLY_GAUSSIAN * square:
        return variance * innovation / (variance + abs(noise))
    scale, deviation = np.sqrt(square), np.sqrt(variance)
    if deviation < 1e-9 * scale:
        return 0.0
    below, above = _log_parts(innovation, scale, deviation)
    return variance / scale * np.tanh(0.5 * (below - above))


@lean
def heard_with_density(innovation: float, variance: float, noise: float) -> Any:
    """The same, and the logarithm of the density of the innovation."""
    square = 0.5 * noise
    if variance > NEARLY_GAUSSIAN * square:
        total = variance + abs(noise)
        return variance * innovation / total, -0.5 * (
            np.log(6.283185307179586 * total) + innovation * innovation / total
        )
    scale, deviation = np.sqrt(square), np.sqrt(variance)
    if deviation < 1e-9 * scale:
        return 0.0, -np.log(2.0 * scale) - abs(innovation) / scale
    below, above = _log_parts(innovation, scale, deviation)
    shift, most = deviation / scale, max(below, above)
    density = 0.5 * shift * shift - np.log(2.0 * scale) + most + np.log1p(np.exp(-abs(below - above)))
    return variance / scale * np.tanh(0.5 * (below - above)), density


@lean
def _log_parts(innovation: float, scale: float, deviation: float) -> Any:
    """The logarithms of both parts of the posterior, up to a common factor."""
    shift = deviation / scale
    below = -innovation / scale + _log_normal(innovation / deviation - shift)
    above = innovation / scale + _log_normal(-innovation / deviation - shift)
    return below, above
