"""Sums, means and ratios of steps whose errors are correlated."""

from __future__ import annotations

import numpy as np

from tidegate.intervals.fold import Errors
from tidegate.intervals.kernels import add_up
from tidegate.noise.law import spread_radius
from tidegate.releases import Values


def sum_variance(errors: Errors, length: int) -> Values:
    """The variance of the error of the sum of the last `length` steps, T × d; of fewer at the beginning.

    Own parts add up as variances. Shared parts add up as deviations where steps repeat one measurement, and fade with
    each correction where they do not. Lasting parts add up as they are.

    Examples
    --------
    >>> one = np.ones((4, 1))
    >>> sum_variance(Errors(one, 0 * one, 0 * one, 0 * one), 4)[-1].tolist()  # independent
    [4.0]
    >>> sum_variance(Errors(0 * one, one, one, 0 * one), 4)[-1].tolist()  # one measurement, four times
    [16.0]
    """
    found = np.empty(errors.own.shape)
    own, carry = np.ascontiguousarray(errors.own), np.ascontiguousarray(errors.carry)
    add_up(own, np.sqrt(errors.shared), carry, np.sqrt(errors.lasting), length, found)
    return found


def sum_radius(errors: Errors, length: int, confidence: float) -> Values:
    """Half-widths of sums of the last steps; over `length` those of means."""
    return spread_radius(np.sqrt(sum_variance(errors, length)), confidence)


def forecast_radius(observed: Values, errors: Errors, confidence: float) -> Values:
    """Half-widths of a forecast of the truth, where `observed` holds for releases to come as far as the past tells.

    Noise that every release has for itself is in what was observed. What releases repeat is not, because a forecast that
    was made from them repeats it too; nor is the scatter of the truth around them.
    """
    hidden = errors.own + errors.shared * errors.carry + errors.lasting
    return np.hypot(observed, spread_radius(np.sqrt(hidden), confidence))


def ratio_bounds(
    above: Values, below: Values, above_radius: Values, below_radius: Values
) -> tuple[Values, Values]:
    """The ends of the interval of a ratio, after Fieller: all θ for which above − θ·below may be 0.

    It has no upper or lower end where the lower number may be 0.

    Examples
    --------
    >>> low, high = ratio_bounds(np.array([10.0]), np.array([20.0]), np.array([1.0]), np.array([0.0]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.45], [0.55])
    """
    square = below**2 - below_radius**2
    centre = above * below
    with np.errstate(all="ignore"):
        root = np.sqrt(np.maximum(centre**2 - square * (above**2 - above_radius**2), 0.0))
        low, high = (centre - root) / square, (centre + root) / square
    sure = square > 0
    return np.where(sure, low, -np.inf), np.where(sure, high, np.inf)
