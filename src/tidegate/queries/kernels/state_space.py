"""Compiled Kalman filter of a structural model: level + AR(1) + rotating harmonics, for many columns at once.

States are ordered (level, autoregression, cosine parts of all harmonics, sine parts of all harmonics), so that every
inner loop runs over neighbouring memory. Columns of one class share their covariance and gains; what differs
between them is the state alone. Between measurements nothing is stored: the model is looked at `gap` steps ahead in
closed form, and the covariance moves only when a measurement arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel

# positions in a class's parameters, in squared units of the values where they are variances
LEVEL_NOISE = 0  # variance of the level's step
SEASON_NOISE = 1  # variance of a harmonic's step, times its weight
MEMORY = 2  # φ of the autoregression
SHORT_NOISE = 3  # variance of the autoregression's step
LEVEL_PRIOR = 4  # variance of the level before the first measurement
SEASON_PRIOR = 5  # variance of a harmonic before the first measurement, times its weight
LEVEL_MEAN = 6  # the level expected before the first measurement
PARAMETERS = 7


@kernel
def begin(parameters: Any, weight: Any, covariance: Any) -> None:
    """The covariance of one class before any measurement."""
    harmonics = weight.size
    covariance[:] = 0.0
    memory = parameters[MEMORY]
    covariance[0, 0] = parameters[LEVEL_PRIOR]
    covariance[1, 1] = parameters[SHORT_NOISE] / (1.0 - memory * memory)
    for i in range(harmonics):
        covariance[2 + i, 2 + i] = parameters[SEASON_PRIOR] * weight[i]
        covariance[2 + harmonics + i, 2 + harmonics + i] = parameters[SEASON_PRIOR] * weight[i]


@kernel
def short_growth(parameters: Any, gap: int) -> Any:
    """(φ^gap, the autoregression's new variance in as many steps)."""
    memory = parameters[MEMORY]
    fading = memory**gap
    return fading, parameters[SHORT_NOISE] * (1.0 - fading * fading) / (1.0 - memory * memory)


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
def look_ahead(covariance: Any, parameters: Any, weight: Any, gap: int, turns: Any, work: Any, spread: Any) -> float:
    """Predicted variance of the value `gap` steps ahead; `spread` becomes its covariance with the states then."""
    harmonics = weight.size
    states = 2 + 2 * harmonics
    fading, fresh = short_growth(parameters, gap)
    work[0] = 1.0
    work[1] = fading
    for i in range(harmonics):
        work[2 + i] = turns[0, i]
        work[2 + harmonics + i] = turns[1, i]
    spread[:states] = 0.0
    for i in range(states):  # by rows, which is by columns too, so that the inner loop needs no sum
        row, factor = covariance[i], work[i]
        for j in range(states):
            spread[j] += factor * row[j]
    total = 0.0
    for i in range(states):
        total += spread[i] * work[i]
    drift = parameters[LEVEL_NOISE] * gap
    total += drift + fresh
    spread[0] += drift
    spread[1] = fading * spread[1] + fresh
    season = parameters[SEASON_NOISE] * gap
    for i in range(harmonics):
        grown = season * weight[i]
        one, two = spread[2 + i], spread[2 + harmonics + i]
        spread[2 + i] = turns[0, i] * one + turns[1, i] * two + grown
        spread[2 + harmonics + i] = turns[0, i] * two - turns[1, i] * one
        total += grown
    return total


@kernel
def variance_ahead(covariance: Any, parameters: Any, weight: Any, gap: int, turns: Any, work: Any) -> float:
    """The predicted variance alone."""
    harmonics = weight.size
    fading, fresh = short_growth(parameters, gap)
    work[0] = 1.0
    work[1] = fading
    sum_of_weights = 0.0
    for i in range(harmonics):
        work[2 + i] = turns[0, i]
        work[2 + harmonics + i] = turns[1, i]
        sum_of_weights += weight[i]
    total = gap * (parameters[LEVEL_NOISE] + parameters[SEASON_NOISE] * sum_of_weights) + fresh
    for i in range(2 + 2 * harmonics):
        row = covariance[i]
        product = 0.0
        for j in range(2 + 2 * harmonics):
            product += row[j] * work[j]
        total += product * work[i]
    return total


@kernel
def absorb(
    covariance: Any, parameters: Any, weight: Any, gap: int, turns: Any, spread: Any, total: float
) -> None:
    """Move a covariance `gap` steps and take in a measurement of variance `total` in all (prediction and noise)."""
    harmonics = weight.size
    states = 2 + 2 * harmonics
    fading, fresh = short_growth(parameters, gap)
    for j in range(states):
        covariance[1, j] *= fading
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        upper, lower = covariance[2 + i], covariance[2 + harmonics + i]
        for j in range(states):
            one, two = upper[j], lower[j]
            upper[j] = cosine * one + sine * two
            lower[j] = cosine * two - sine * one
    season = parameters[SEASON_NOISE] * gap
    for i in range(states):
        row = covariance[i]
        row[1] *= fading
        for j in range(harmonics):
            one, two = row[2 + j], row[2 + harmonics + j]
            row[2 + j] = turns[0, j] * one + turns[1, j] * two
            row[2 + harmonics + j] = turns[0, j] * two - turns[1, j] * one
    covariance[0, 0] += parameters[LEVEL_NOISE] * gap
    covariance[1, 1] += fresh
    for i in range(harmonics):
        covariance[2 + i, 2 + i] += season * weight[i]
        covariance[2 + harmonics + i, 2 + harmonics + i] += season * weight[i]
    for i in range(states):
        row = covariance[i]
        gain = spread[i] / total
        for j in range(states):
            row[j] -= gain * spread[j]


@kernel
def expected(state: Any, parameters: Any, kind: Any, gap: int, turns: Any, fading: Any, values: Any) -> None:
    """The predicted values of all columns; state is (states × columns), `fading` scratch for each class."""
    columns = values.size
    harmonics = turns.shape[1]
    for c in range(parameters.shape[0]):
        fading[c] = parameters[c, MEMORY] ** gap
    level, short = state[0], state[1]
    for j in range(columns):
        values[j] = level[j] + fading[kind[j]] * short[j]
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        one, two = state[2 + i], state[2 + harmonics + i]
        for j in range(columns):
            values[j] += cosine * one[j] + sine * two[j]


@kernel
def follow(
    state: Any, kind: Any, turns: Any, fading: Any, spread: Any, totals: Any, innovation: Any
) -> None:
    """Move the states of all columns to now and correct them by their innovations; `fading` as `expected` left it."""
    columns = innovation.size
    harmonics = turns.shape[1]
    classes = totals.size
    level, short = state[0], state[1]
    if classes == 1:
        total = totals[0]
        gain, other = spread[0, 0] / total, spread[0, 1] / total
        for j in range(columns):
            level[j] += gain * innovation[j]
            short[j] = fading[0] * short[j] + other * innovation[j]
    else:
        for j in range(columns):
            c = kind[j]
            level[j] += spread[c, 0] / totals[c] * innovation[j]
            short[j] = fading[c] * short[j] + spread[c, 1] / totals[c] * innovation[j]
    gains = np.empty((2, classes))
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        one, two = state[2 + i], state[2 + harmonics + i]
        for c in range(classes):
            gains[0, c] = spread[c, 2 + i] / totals[c]
            gains[1, c] = spread[c, 2 + harmonics + i] / totals[c]
        for j in range(columns):
            a, b, c = one[j], two[j], kind[j]
            one[j] = cosine * a + sine * b + gains[0, c] * innovation[j]
            two[j] = cosine * b - sine * a + gains[1, c] * innovation[j]


@kernel
def likelihood(
    steps: Any, measured: Any, noise: Any, parameters: Any, frequency: Any, weight: Any, skip: int
) -> float:
    """Gaussian log-likelihood of measurements (rows × columns of one class) from row `skip` on."""
    rows, columns = measured.shape
    harmonics = frequency.size
    states = 2 + 2 * harmonics
    covariance, turns = np.zeros((states, states)), np.zeros((2, harmonics))
    work, spread = np.zeros(states), np.zeros(states)
    state, values = np.zeros((states, columns)), np.zeros(columns)
    kind, fading = np.zeros(columns, dtype=np.int64), np.zeros(1)
    totals = np.zeros(1)
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
        total = variance + noise[row]
        totals[0] = total
        squares = 0.0
        for j in range(columns):
            values[j] = measured[row, j] - values[j]
            squares += values[j] * values[j]
        if row >= skip:
            result -= 0.5 * (columns * np.log(total) + squares / total)
        follow(state, kind, turns, fading, spreads, totals, values)
        absorb(covariance, parameters, weight, gap, turns, spread, total)
    return result


@kernel
def replay(
    steps: Any,
    measured: Any,
    noise: Any,
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
    states = 2 + 2 * harmonics
    columns = state.shape[1]
    turns, work = np.zeros((2, harmonics)), np.zeros(states)
    spread, totals, fading = np.zeros((classes, states)), np.zeros(classes), np.zeros(classes)
    values = np.zeros(columns)
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
                totals[c] = variance + noise[row]
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
            if keep and steps[row] >= oldest:
                kept_innovation[steps[row] % keep] = values
            follow(state, kind, turns, fading, spread, totals, values)
        for c in range(classes):
            absorb(covariance[c], parameters[c], weight, gap, turns, spread[c], totals[c])


@kernel
def smooth(
    last: int,
    length: int,
    keep: int,
    parameters: Any,
    kind: Any,
    once: Any,
    kept_spread: Any,
    kept_variance: Any,
    kept_total: Any,
    kept_innovation: Any,
    kept_value: Any,
    values: Any,
    variances: Any,
) -> None:
    """Smoothed values of the `length` oldest of the kept steps, from all of them up to `last`, backwards.

    r and N are the weighted sums of later innovations, and their variance (Durbin and Koopman, section 4.4).
    """
    columns = kind.size
    harmonics = once.shape[1]
    classes = parameters.shape[0]
    states = 2 + 2 * harmonics
    r, N = np.zeros((states, columns)), np.zeros((classes, states, states))
    product, inner = np.zeros((classes, states)), np.zeros(columns)
    for back in range(keep):
        step = last - back
        at = step % keep
        spread, total = kept_spread[at], kept_total[at]
        measured = total[0] > 0.0
        if back > 0:
            for j in range(columns):
                r[1, j] *= parameters[kind[j], MEMORY]
            for i in range(harmonics):
                cosine, sine = once[0, i], once[1, i]
                one, two = r[2 + i], r[2 + harmonics + i]
                for j in range(columns):
                    a, b = one[j], two[j]
                    one[j] = cosine * a - sine * b
                    two[j] = sine * a + cosine * b
            for c in range(classes):
                _turn_back(N[c], parameters[c, MEMORY], once)
        if measured or back >= keep - length:
            inner[:] = 0.0
            if classes == 1:
                for i in range(states):
                    for j in range(columns):
                        inner[j] += spread[0, i] * r[i, j]
            else:
                for i in range(states):
                    for j in range(columns):
                        inner[j] += spread[kind[j], i] * r[i, j]
        if measured:
            for j in range(columns):
                c = kind[j]
                correction = (kept_innovation[at, j] - inner[j]) / total[c]
                r[0, j] += correction
                r[1, j] += correction
                for i in range(2, 2 + harmonics):
                    r[i, j] += correction
            for c in range(classes):
                _add_measurement(N[c], spread[c], total[c], harmonics, product[c])
        if back >= keep - length:
            out = keep - 1 - back
            for c in range(classes):
                quadratic = 0.0
                for i in range(states):
                    partial = 0.0
                    for j in range(states):
                        partial += N[c, i, j] * spread[c, j]
                    quadratic += partial * spread[c, i]
                variances[out, c] = max(kept_variance[at, c] - quadratic, 0.0)
            if measured:
                inner[:] = 0.0
                for i in range(states):
                    for j in range(columns):
                        inner[j] += spread[kind[j], i] * r[i, j]
            for j in range(columns):
                values[out, j] = kept_value[at, j] + inner[j]


@kernel
def _turn_back(N: Any, memory: float, once: Any) -> None:
    """N becomes T'·N·T for the transition T of one step."""
    harmonics = once.shape[1]
    states = 2 + 2 * harmonics
    for j in range(states):
        N[1, j] *= memory
    for i in range(harmonics):
        cosine, sine = once[0, i], once[1, i]
        upper, lower = N[2 + i], N[2 + harmonics + i]
        for j in range(states):
            one, two = upper[j], lower[j]
            upper[j] = cosine * one - sine * two
            lower[j] = sine * one + cosine * two
    for i in range(states):
        row = N[i]
        row[1] *= memory
        for j in range(harmonics):
            one, two = row[2 + j], row[2 + harmonics + j]
            row[2 + j] = once[0, j] * one - once[1, j] * two
            row[2 + harmonics + j] = once[1, j] * one + once[0, j] * two


@kernel
def _add_measurement(N: Any, spread: Any, total: float, harmonics: int, product: Any) -> None:
    """N becomes (I − h·k')·N·(I − k·h') + h·h'/S with the gain k; h picks the level, the short part and cosines."""
    states = 2 + 2 * harmonics
    quadratic = 0.0
    for i in range(states):
        partial = 0.0
        for j in range(states):
            partial += N[i, j] * spread[j]
        product[i] = partial / total
    for i in range(states):
        quadratic += product[i] * spread[i] / total
    for i in range(states):
        seen = i < 2 + harmonics
        for j in range(states):
            if j < 2 + harmonics:
                N[i, j] -= product[i]
            if seen:
                N[i, j] -= product[j]
            if seen and j < 2 + harmonics:
                N[i, j] += quadratic + 1.0 / total
