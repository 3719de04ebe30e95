"""Compiled fixed-lag smoothing: backwards over the last steps, with what the filter kept of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.queries.kernels.state_space import (
    FALLING_MEMORY,
    LEAD,
    RISING_MEMORY,
    ROUGH_MEMORY,
    UNSEEN,
    turn_once,
)

WIDER = 1.07  # by so much intervals of smoothed values are wider: these rest on the model more than others do
HARDLY = 1e-5  # relative changes of a variance from step to step that intervals do not notice


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
    settled: Any,
    values: Any,
    variances: Any,
) -> None:
    """Smoothed values of the `length` oldest of the kept steps, from all of them up to `last`, backwards.

    r and N are the weighted sums of later innovations, and their variance (Durbin and Koopman, section 4.4). N moves
    only when it meets a measurement; in between, what it is asked about moves to it. `settled` (length × classes) has
    the variances of a stream that is measured at every step with a covariance that hardly changes; 0 for unknown.
    """
    columns = kind.size
    harmonics = once.shape[1]
    classes = parameters.shape[0]
    states = LEAD + 2 * harmonics
    r, N = np.zeros((states, columns)), np.zeros((classes, states, states))
    product, inner, moved = np.zeros((classes, states)), np.zeros(columns), np.zeros(states)
    still = settled.shape[0] == length and _is_still(kept_variance, kept_total)
    known = still and settled[0, 0] > 0.0
    turns = np.zeros((2, harmonics))
    turns[0] = 1.0
    ahead = 0  # steps from here to where N is
    for back in range(keep):
        step = last - back
        at = step % keep
        spread, total = kept_spread[at], kept_total[at]
        measured = total[0] > 0.0
        if back > 0:
            for j in range(columns):
                c = kind[j]
                r[1, j] *= parameters[c, ROUGH_MEMORY]
                r[2, j] *= parameters[c, RISING_MEMORY]
                r[3, j] *= parameters[c, FALLING_MEMORY]
            for i in range(harmonics):
                cosine, sine = once[0, i], once[1, i]
                one, two = r[LEAD + i], r[LEAD + harmonics + i]
                for j in range(columns):
                    a, b = one[j], two[j]
                    one[j] = cosine * a - sine * b
                    two[j] = sine * a + cosine * b
            turn_once(once, turns)
            ahead += 1
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
                r[2, j] += correction
                r[3, j] -= correction
                for i in range(LEAD, LEAD + harmonics):
                    r[i, j] += correction
            if not known:
                for c in range(classes):
                    _turn_back(N[c], parameters[c], ahead, turns)
                    _add_measurement(N[c], spread[c], total[c], harmonics, product[c])
            ahead = 0
            turns[0] = 1.0
            turns[1] = 0.0
        if back >= keep - length:
            out = keep - 1 - back
            for c in range(classes):
                if known:
                    variances[out, c] = settled[out, c]
                    continue
                _move(spread[c], parameters[c], ahead, turns, moved)
                quadratic = 0.0
                for i in range(states):
                    partial = 0.0
                    for j in range(states):
                        partial += N[c, i, j] * moved[j]
                    quadratic += partial * moved[i]
                variances[out, c] = max(kept_variance[at, c] - quadratic, 0.0) + parameters[c, UNSEEN]
                if still:
                    settled[out, c] = variances[out, c]
            if measured:
                inner[:] = 0.0
                for i in range(states):
                    for j in range(columns):
                        inner[j] += spread[kind[j], i] * r[i, j]
            for j in range(columns):
                values[out, j] = kept_value[at, j] + inner[j]


@kernel
def _is_still(kept_variance: Any, kept_total: Any) -> bool:
    """Whether every kept step was measured, and predicted about as surely as the others."""
    for at in range(kept_variance.shape[0]):
        for c in range(kept_variance.shape[1]):
            first = kept_variance[0, c]
            if kept_total[at, c] <= 0.0 or abs(kept_variance[at, c] - first) > HARDLY * first:
                return False
    return True


@kernel
def _move(spread: Any, parameters: Any, ahead: int, turns: Any, moved: Any) -> None:
    """T^ahead · spread for the transition T of one step."""
    harmonics = turns.shape[1]
    moved[0] = spread[0]
    moved[1] = parameters[ROUGH_MEMORY] ** ahead * spread[1]
    moved[2] = parameters[RISING_MEMORY] ** ahead * spread[2]
    moved[3] = parameters[FALLING_MEMORY] ** ahead * spread[3]
    for i in range(harmonics):
        one, two = spread[LEAD + i], spread[LEAD + harmonics + i]
        moved[LEAD + i] = turns[0, i] * one + turns[1, i] * two
        moved[LEAD + harmonics + i] = turns[0, i] * two - turns[1, i] * one


@kernel
def _turn_back(N: Any, parameters: Any, ahead: int, turns: Any) -> None:
    """N becomes T'·N·T for the transition T of `ahead` steps."""
    harmonics = turns.shape[1]
    states = LEAD + 2 * harmonics
    rough = parameters[ROUGH_MEMORY] ** ahead
    slow, fast = parameters[RISING_MEMORY] ** ahead, parameters[FALLING_MEMORY] ** ahead
    for j in range(states):
        N[1, j] *= rough
        N[2, j] *= slow
        N[3, j] *= fast
    for i in range(harmonics):
        cosine, sine = turns[0, i], turns[1, i]
        upper, lower = N[LEAD + i], N[LEAD + harmonics + i]
        for j in range(states):
            one, two = upper[j], lower[j]
            upper[j] = cosine * one - sine * two
            lower[j] = sine * one + cosine * two
    for i in range(states):
        row = N[i]
        row[1] *= rough
        row[2] *= slow
        row[3] *= fast
        for j in range(harmonics):
            one, two = row[LEAD + j], row[LEAD + harmonics + j]
            row[LEAD + j] = turns[0, j] * one - turns[1, j] * two
            row[LEAD + harmonics + j] = turns[1, j] * one + turns[0, j] * two


@kernel
def _add_measurement(N: Any, spread: Any, total: float, harmonics: int, product: Any) -> None:
    """N becomes (I − h·k')·N·(I − k·h') + h·h'/S with the gain k; h picks what the value is made of."""
    states = LEAD + 2 * harmonics
    quadratic = 0.0
    for i in range(states):
        partial = 0.0
        for j in range(states):
            partial += N[i, j] * spread[j]
        product[i] = partial / total
    for i in range(states):
        quadratic += product[i] * spread[i] / total
    for i in range(states):
        sign = _seen(i, harmonics)
        for j in range(states):
            other = _seen(j, harmonics)
            N[i, j] += sign * other * (quadratic + 1.0 / total) - product[i] * other - sign * product[j]


@kernel
def _seen(i: int, harmonics: int) -> float:
    """With which sign a state is part of the value."""
    return -1.0 if i == 3 else (1.0 if i < LEAD + harmonics else 0.0)
