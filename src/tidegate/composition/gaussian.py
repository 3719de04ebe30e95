"""What several counts with discrete Gaussian noise lose together, when each of them may change by 1.

The privacy loss of c such counts is linear in the sum of their noises, and that sum is nearly a discrete Gaussian of
variance cσ². docs/proofs/discovery.md has the bound and the count of rounding errors. Nothing here knows policies.
"""

from __future__ import annotations

import math

import numpy as np

SLACK = 2.0**-40  # relative, and of every chance: far above what floating point loses in these sums
REACH = 14  # deviations beyond which all chances together are below `FAR`
FAR = 1e-40
WIDEST = 2.0**17  # deviations of a sum: beyond it sums would have millions of terms


def tail(sigma: float, least: int) -> float:
    """P(Z ≥ least) of discrete Gaussian noise, rounded up; `least` is at least 1.

    Examples
    --------
    >>> 0.15 < tail(10.0, 10) < 0.18
    True
    """
    values = np.arange(least, math.ceil(least + REACH * sigma) + 1, dtype=np.float64)
    chances = np.exp(-(values**2) / (2 * sigma * sigma)) / (sigma * math.sqrt(2 * math.pi))
    return float(chances.sum()) * (1 + SLACK) + FAR


def gaussian_delta(count: int, sigma: float, epsilon: float) -> float:
    """A δ for which `count` counts, each changed by 1 and with noise of this σ, are (ε, δ)-private; rounded up.

    Parameters
    ----------
    count
        How many counts change.
    sigma
        σ of their discrete Gaussian noise, at least 1.
    epsilon
        The ε for which a δ is wanted.

    Examples
    --------
    >>> gaussian_delta(4, 8.7, 1.0) < 6e-7 < gaussian_delta(4, 8.5, 1.0)
    True
    >>> gaussian_delta(0, 8.7, 1.0)
    0.0
    """
    if not count:
        return 0.0
    variance = count * sigma * sigma
    deviation = math.sqrt(variance)
    first = math.floor(epsilon * sigma * sigma - count / 2)
    last = math.ceil(max(first, 0) + REACH * deviation)
    sums = np.arange(max(first, -last), last + 1, dtype=np.float64)
    chances = np.exp(-(sums**2) / (2 * variance)) / (deviation * math.sqrt(2 * math.pi))
    losses = (count + 2 * sums) / (2 * sigma * sigma)
    beyond = np.minimum(np.maximum(-np.expm1(epsilon - losses), 0.0) + SLACK, 1.0)
    ratio = math.exp(-((math.pi * sigma) ** 2))
    uneven = (
        2 * ratio / (1 - ratio)
    )  # by how much the sums of noises differ from a discrete Gaussian, each time
    factor = (1 + uneven) ** count
    return min(1.0, float((chances * beyond).sum()) * factor * (1 + SLACK) + FAR)


def normal_tail(deviations: float) -> float:
    """P(N ≥ deviations) of a standard normal variable, rounded up.

    Examples
    --------
    >>> 0.0227 < normal_tail(2.0) < 0.0228
    True
    """
    return math.erfc(deviations / math.sqrt(2)) / 2 * (1 + SLACK) + FAR


def normal_delta(shift: float, epsilon: float) -> float:
    """A δ for which normal variables, moved by so many deviations together, are (ε, δ)-private; rounded up.

    Examples
    --------
    >>> normal_delta(1 / 4.3, 1.0) < 1e-6 < normal_delta(1 / 4.2, 1.0)
    True
    """
    left, right = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    kept = math.exp(epsilon) * math.erfc(right / math.sqrt(2)) / 2 * (1 - SLACK)
    return max(0.0, normal_tail(left) - kept) + FAR
