"""Compiled passes over a history of measurements: its likelihood, and the filter's state after it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels.hearing import effective_noise, heard, heard_with_density
from tidegate.structures.kernels.smoothing import Rings
from tidegate.structures.kernels.state_space import (
    LEAD,
    LEVEL_MEAN,
    SEASON_NOISE,
    absorb,
    aim,
    arrive,
    begin,
    expected,
    follow,
    growth,
    inner_product,
    look_ahead,
    move,
    multiply,
    phase_at,
    take_out,
    turn_to,
)
from tidegate.structures.kernels.tracking import LOADS, USUAL, Season

NEAR = 8  # steps up to which turning a phase is cheaper than computing it


@kernel
def phases_of(steps: Any, once: Any) -> Any:
    """The phases of these steps, one row each."""
    phases = np.empty((steps.size, 2 * once.shape[1]))
    for row in range(steps.size):
        gap = steps[row] - steps[row - 1] if row else NEAR + 1
        if gap > NEAR:
            phase_at(once, steps[row], phases[row])
            continue
        for i in range(phases.shape[1]):
            phases[row, i] = phases[row - 1, i]
        for step in range(steps[row] - gap + 1, steps[row] + 1):
            turn_to(once, step, phases[row])
    return phases


@kernel
def likelihood(
    steps: Any,
    phases: Any,
    measured: Any,
    noise: Any,
    laplace: bool,
    parameters: Any,
    weight: Any,
    skip: int,
) -> float:
    """Log-likelihood of measurements (rows × columns of one class) from row `skip` on; noise is Laplace or Gaussian."""
    rows, columns = measured.shape
    states = LEAD + phases.shape[1]
    covariance, state = np.zeros((states, states)), np.zeros((columns, states))
    work, spread = np.zeros(states), np.zeros(states)
    begin(parameters, weight, covariance)
    for j in range(columns):
        state[j, 0] = parameters[LEVEL_MEAN]
    result, gap, season = 0.0, 0, 0.0
    grown = growth(parameters, gap)
    aim(grown, phases[0], work)
    multiply(covariance, work, spread)
    for row in range(rows):
        variance = arrive(grown, season, weight, phases[row], work, spread)
        total = variance + (effective_noise(variance, noise[row]) if laplace else noise[row])
        for j in range(columns):
            own = state[j]
            innovation = measured[row, j] - inner_product(work, own)
            if laplace:
                mean, density = heard_with_density(innovation, variance, noise[row])
                correction = mean / variance
            else:
                density = -0.5 * (np.log(6.283185307179586 * total) + innovation * innovation / total)
                correction = innovation / total
            if row >= skip:
                result += density
            own[1] *= grown[0]
            own[2] *= grown[1]
            own[3] *= grown[2]
            for i in range(states):
                own[i] += spread[i] * correction
        if row + 1 < rows:
            move(covariance, grown, season, weight)
            take_out(covariance, spread, total)
            if steps[row + 1] - steps[row] != gap:
                gap = steps[row + 1] - steps[row]
                grown, season = growth(parameters, gap), parameters[SEASON_NOISE] * gap
            aim(grown, phases[row + 1], work)
            multiply(covariance, work, spread)
    return result


class History(NamedTuple):
    """Measurements that hyper-parameters are estimated from."""

    steps: Any
    values: Any  # one row each
    noise: Any  # variances, negative where the noise is taken for Gaussian
    laplace: bool  # otherwise the noise is Gaussian


@kernel
def replay(
    history: Any,
    parameters: Any,
    kind: Any,
    season: Any,
    with_states: bool,
    covariance: Any,
    state: Any,
    rings: Any,
    load: Any,
    health: Any,
    believed: Any,
) -> None:
    """Filter all measurements again under new parameters; the last steps are written into the rings.

    `load` and `health` say what columns have in common (see `Book`); then it is measured in the last column. `believed`
    (rows × columns, or no rows) becomes what is believed at each measurement.
    """
    steps, measured, noise, laplace = History(*history)
    once, weight = Season(*season)
    kept_spread, kept_variance, kept_total, kept_innovation, kept_value = Rings(*rings)
    keep = kept_spread.shape[0]
    rows = steps.size
    classes = parameters.shape[0]
    columns, states = state.shape
    phase, work = np.zeros(states - LEAD), np.zeros(states)
    spread, made, totals = np.zeros((classes, states)), np.zeros((classes, states)), np.zeros(classes)
    values, variances = np.zeros(columns), np.zeros(classes)
    for c in range(classes):
        begin(parameters[c], weight, covariance[c])
    if with_states:
        state[:] = 0.0
        for j in range(columns):
            state[j, 0] = parameters[kind[j], LEVEL_MEAN]
    oldest = steps[rows - 1] - keep + 1
    for row in range(rows):
        gap = steps[row] - steps[row - 1] if row else 0
        begin_gap = gap
        if steps[row] >= oldest and row:
            begin_gap = max(1, gap - (steps[row] - oldest))
        for ahead in range(begin_gap, gap + 1):
            step = steps[row] - gap + ahead
            phase_at(once, step, phase)
            at = step % keep if keep else 0
            for c in range(classes):
                variance = look_ahead(covariance[c], parameters[c], weight, ahead, phase, work, spread[c])
                variances[c] = variance
                totals[c] = variance + (effective_noise(variance, noise[row]) if laplace else noise[row])
                if load.size and c == classes - 1:
                    totals[c] = variance + abs(noise[row]) / health[LOADS]
                if keep and step >= oldest:
                    for i in range(states):
                        kept_spread[at, c, i] = spread[c, i]
                    kept_variance[at, c] = variance
                    kept_total[at, c] = totals[c] if ahead == gap else 0.0
            expected(state, parameters, kind, ahead, phase, made, values)
            if keep and step >= oldest and with_states:
                for j in range(columns):
                    kept_value[at, j] = values[j]
        if with_states:
            beyond = 0.0
            if load.size:
                share = variances[classes - 1] / totals[classes - 1]
                beyond = (
                    values[load.size] + share * (measured[row, load.size] - values[load.size]) - health[USUAL]
                )
            for j in range(columns):
                expected_value = values[j]
                values[j] = measured[row, j] - values[j]
                if j < load.size:
                    values[j] -= load[j] * beyond
                c = kind[j]
                if believed.shape[0]:
                    believed[row, j] = expected_value + variances[c] / totals[c] * values[j]
                if laplace and not (load.size and j == load.size):
                    mean = heard(values[j], variances[c], noise[row])
                    values[j] = mean * totals[c] / variances[c]
            if keep and steps[row] >= oldest:
                at = steps[row] % keep
                for j in range(columns):
                    kept_innovation[at, j] = values[j]
            follow(state, kind, made, spread, totals, values)
        for c in range(classes):
            absorb(covariance[c], parameters[c], weight, gap, spread[c], totals[c])
