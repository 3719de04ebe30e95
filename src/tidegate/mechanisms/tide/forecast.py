"""Compiled forecasts of Tide's error: what the fitted model says about each choice, without any data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.tide.plan import PLAN, next_gap
from tidegate.structures.kernels.hearing import effective_noise
from tidegate.structures.kernels.smoothing import smooth
from tidegate.structures.kernels.state_space import absorb, look_ahead


@kernel
def predicted_error(
    covariance: Any,
    parameters: Any,
    phases: Any,
    weight: Any,
    shares: Any,
    choice: int,
    noise: float,
    horizon: int,
    limit: float,
    scratch: Any,
) -> float:
    """The mean standard error over the next `horizon` steps if this choice is followed from now on, causal.

    `phases` has a row for each of those steps, and for one gap more. Infinite as soon as it must be above `limit`.
    """
    states = covariance.shape[0]
    work, spread = np.zeros(states), np.zeros(states)
    for i in range(states):
        for j in range(states):
            scratch[i, j] = covariance[i, j]
    plan = np.zeros(PLAN, dtype=np.int64)
    passed, error = 0, 0.0
    while passed < horizon:
        gap = next_gap(shares, choice, plan)
        if gap > 1:
            coming = phases[passed : passed + gap]
            first = _deviation(scratch, parameters, coming, weight, 1, work, spread)
            between = first
            if gap > 2:
                last = _deviation(scratch, parameters, coming, weight, gap - 1, work, spread)
                between = 0.5 * (first + last)
                if gap > 3:
                    middle = _deviation(scratch, parameters, coming, weight, gap // 2, work, spread)
                    between = (
                        (first + middle + last) / 3.0 if gap == 4 else (first + 4.0 * middle + last) / 6.0
                    )
            error += (gap - 1) * between
        variance = look_ahead(scratch, parameters, weight, gap, phases[passed + gap - 1], work, spread)
        total = variance + effective_noise(variance, noise)
        error += np.sqrt(variance * (1.0 - variance / total))
        absorb(scratch, parameters, weight, gap, spread, total)
        passed += gap
        if error > limit * (horizon + gap):
            return np.inf
    return float(error / passed)


@kernel
def predicted_silence(
    covariance: Any, parameters: Any, phases: Any, weight: Any, steps: int, work: Any, spread: Any
) -> float:
    """The mean standard error of the next steps if none of them is measured, by Simpson's rule."""
    first = _deviation(covariance, parameters, phases, weight, 1, work, spread)
    middle = _deviation(covariance, parameters, phases, weight, (steps + 1) // 2, work, spread)
    last = _deviation(covariance, parameters, phases, weight, steps, work, spread)
    return float((first + 4.0 * middle + last) / 6.0)


@kernel
def _deviation(
    covariance: Any,
    parameters: Any,
    phases: Any,
    weight: Any,
    gap: int,
    work: Any,
    spread: Any,
) -> float:
    return float(np.sqrt(look_ahead(covariance, parameters, weight, gap, phases[gap - 1], work, spread)))


@kernel
def predicted_smoothed(
    covariance: Any,
    parameters: Any,
    phases: Any,
    weight: Any,
    now: int,
    once: Any,
    shares: Any,
    choice: int,
    noise: float,
    ahead: int,
    keep: int,
    scratch: Any,
) -> float:
    """The mean standard error of smoothed values after `ahead` steps of a choice, with `keep` steps to smooth over.

    `phases` has a row for each of those steps, which follow step `now`.
    """
    states = covariance.shape[0]
    work = np.zeros(states)
    spread = np.zeros((keep, 1, states))
    variance, total = np.zeros((keep, 1)), np.zeros((keep, 1))
    nothing = np.zeros((keep, 0))
    for i in range(states):
        for j in range(states):
            scratch[i, j] = covariance[i, j]
    plan = np.zeros(PLAN, dtype=np.int64)
    step, last = 0, ahead + keep
    due, before = next_gap(shares, choice, plan), 0
    while step < last:
        step += 1
        if step < due and step <= ahead:
            continue
        at = (now + step) % keep
        gap = step - before
        predicted = look_ahead(scratch, parameters, weight, gap, phases[step - 1], work, spread[at, 0])
        variance[at, 0], total[at, 0] = predicted, 0.0
        if step == due:
            total[at, 0] = predicted + effective_noise(predicted, noise)
            absorb(scratch, parameters, weight, gap, spread[at, 0], total[at, 0])
            before, due = step, step + next_gap(shares, choice, plan)
    length = keep // 2
    found = np.zeros((length, 1))
    nobody = np.zeros(0, dtype=np.int64)
    every = parameters.reshape(1, -1)
    rings = (spread, variance, total, nothing, nothing)
    smooth(now + last, length, every, nobody, once, rings, nothing[:0], nothing[:length], found)
    error = 0.0
    for row in range(length):
        error += np.sqrt(found[row, 0])
    return float(error / length)
