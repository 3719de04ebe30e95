"""Compiled passes over a history of measurements: its likelihood, and the filter's state after it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.queries.kernels.state_space import (
    LEAD,
    LEVEL_MEAN,
    absorb,
    begin,
    effective_noise,
    expected,
    follow,
    heard,
    look_ahead,
    turn_to,
)


@kernel
def likelihood(
    steps: Any,
    measured: Any,
    noise: Any,
    laplace: bool,
    parameters: Any,
    frequency: Any,
    weight: Any,
    skip: int,
) -> float:
    """Log-likelihood of measurements (rows × columns of one class) from row `skip` on; noise is Laplace or Gaussian."""
    rows, columns = measured.shape
    harmonics = frequency.size
    states = LEAD + 2 * harmonics
    covariance, turns = np.zeros((states, states)), np.zeros((2, harmonics))
    work, spread = np.zeros(states), np.zeros(states)
    state, values = np.zeros((states, columns)), np.zeros(columns)
    kind, fading = np.zeros(columns, dtype=np.int64), np.zeros((1, 3))
    totals, gains = np.zeros(1), np.zeros((states, 1))
    begin(parameters, weight, covariance)
    state[0] = parameters[LEVEL_MEAN]
    every = parameters.reshape(1, -1)
    spreads = spread.reshape(1, -1)
    result = 0.0
    last_gap = -1
    for row in range(rows):
        gap = steps[row] - steps[row - 1] if row else 0
        if gap != last_gap:
            turn_to(frequency, gap, turns)
            last_gap = gap
        variance = look_ahead(covariance, parameters, weight, gap, turns, work, spread)
        expected(state, every, kind, gap, turns, fading, values)
        total = variance + (effective_noise(variance, noise[row]) if laplace else noise[row])
        totals[0] = total
        for j in range(columns):
            values[j] = measured[row, j] - values[j]
            if laplace:
                mean, density = heard(values[j], variance, noise[row])
                values[j] = mean * total / variance
            else:
                density = -0.5 * (np.log(6.283185307179586 * total) + values[j] * values[j] / total)
            if row >= skip:
                result += density
        follow(state, kind, turns, fading, spreads, totals, values, gains)
        absorb(covariance, parameters, weight, gap, turns, spread, total)
    return result


@kernel
def replay(
    steps: Any,
    measured: Any,
    noise: Any,
    laplace: bool,
    parameters: Any,
    kind: Any,
    frequency: Any,
    weight: Any,
    with_states: bool,
    covariance: Any,
    state: Any,
    keep: int,
    kept_spread: Any,
    kept_variance: Any,
    kept_total: Any,
    kept_innovation: Any,
    kept_value: Any,
) -> None:
    """Filter all measurements anew under new parameters; the last `keep` steps are written into the rings."""
    rows = steps.size
    harmonics = frequency.size
    classes = parameters.shape[0]
    states = LEAD + 2 * harmonics
    columns = state.shape[1]
    turns, work = np.zeros((2, harmonics)), np.zeros(states)
    spread, totals, fading = np.zeros((classes, states)), np.zeros(classes), np.zeros((classes, 3))
    gains = np.zeros((states, classes))
    values, variances = np.zeros(columns), np.zeros(classes)
    for c in range(classes):
        begin(parameters[c], weight, covariance[c])
    if with_states:
        state[:] = 0.0
        for j in range(columns):
            state[0, j] = parameters[kind[j], LEVEL_MEAN]
    oldest = steps[rows - 1] - keep + 1
    for row in range(rows):
        gap = steps[row] - steps[row - 1] if row else 0
        begin_gap = gap
        if steps[row] >= oldest and row:
            begin_gap = max(1, gap - (steps[row] - oldest))
        for ahead in range(begin_gap, gap + 1):
            turn_to(frequency, ahead, turns)
            step = steps[row] - gap + ahead
            at = step % keep if keep else 0
            for c in range(classes):
                variance = look_ahead(covariance[c], parameters[c], weight, ahead, turns, work, spread[c])
                variances[c] = variance
                totals[c] = variance + (effective_noise(variance, noise[row]) if laplace else noise[row])
                if keep and step >= oldest:
                    kept_spread[at, c] = spread[c]
                    kept_variance[at, c] = variance
                    kept_total[at, c] = totals[c] if ahead == gap else 0.0
            expected(state, parameters, kind, ahead, turns, fading, values)
            if keep and step >= oldest and with_states:
                kept_value[at] = values
        if with_states:
            for j in range(columns):
                values[j] = measured[row, j] - values[j]
                if laplace:
                    c = kind[j]
                    mean, _ = heard(values[j], variances[c], noise[row])
                    values[j] = mean * totals[c] / variances[c]
            if keep and steps[row] >= oldest:
                kept_innovation[steps[row] % keep] = values
            follow(state, kind, turns, fading, spread, totals, values, gains)
        for c in range(classes):
            absorb(covariance[c], parameters[c], weight, gap, turns, spread[c], totals[c])
