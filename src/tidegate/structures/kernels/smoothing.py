"""Compiled fixed-lag smoothing: backwards over the last steps, with what the filter kept of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel, lean
from tidegate.structures.kernels.state_space import (
    FALLING_MEMORY,
    LEAD,
    REFRESHED,
    RISING_MEMORY,
    ROUGH_MEMORY,
    UNSEEN,
    fade,
    inner_product,
    multiply,
    phase_at,
)

WIDER = 1.07  # by so much intervals of smoothed values are wider: these rest on the model more than others do
HARDLY = 1e-5  # relative changes of a variance from step to step that intervals do not notice


class Rings(NamedTuple):
    """What the filter kept of each of the last steps, at the place step % keep."""

    spread: Any  # keep × classes × states: covariances of the states with the value
    variance: Any  # keep × classes: that of the value before its measurement
    total: Any  # and of the measurement; 0 where there was none
    innovation: Any  # keep × columns: measured less expected
    value: Any  # what was expected


@kernel
def smooth(
    last: int,
    length: int,
    parameters: Any,
    kind: Any,
    once: Any,
    rings: Any,
    settled: Any,
    values: Any,
    variances: Any,
) -> None:
    """Smoothed values of the `length` oldest of the kept steps, from all of them up to `last`, backwards.

    r and N are the weighted sums of later innovations, and their variance (Durbin and Koopman, section 4.4). N moves
    only when it meets a measurement; in between, what it is asked about moves to it. While there are few measurements
    N is kept as vectors v, one for each, with N = Σ v·v'. `settled` (length × classes) has the variances of a stream
    that is measured at every step with a covariance that hardly changes; 0 for unknown.
    """
    kept_spread, kept_variance, kept_total, kept_innovation, kept_value = Rings(*rings)
    columns = kind.size
    keep = kept_spread.shape[0]
    classes = parameters.shape[0]
    states = kept_spread.shape[2]
    count = 0
    for at in range(keep):
        count += kept_total[at, 0] > 0.0
    few = count <= states // 2
    r, N = np.zeros((columns, states)), np.zeros((classes, count if few else states, states))
    product, moved = np.zeros(states), np.zeros(states)
    met = 0  # measurements so far
    still = settled.shape[0] == length and _is_still(kept_variance, kept_total)
    known = still and settled[0, 0] > 0.0
    seen = np.zeros(states)  # how the value of a step is made of its states
    seen[0], seen[1], seen[2], seen[3] = 1.0, 1.0, 1.0, -1.0
    ahead = 0  # steps from here to where N is
    for back in range(keep):
        step = last - back
        at = step % keep
        spread, total = kept_spread[at], kept_total[at]
        measured = total[0] > 0.0
        asked = back >= keep - length
        out = keep - 1 - back
        if back > 0:
            ahead += 1
            for j in range(columns):
                c = kind[j]
                r[j, 1] *= parameters[c, ROUGH_MEMORY]
                r[j, 2] *= parameters[c, RISING_MEMORY]
                r[j, 3] *= parameters[c, FALLING_MEMORY]
        _turn_back(once, step, back == 0, seen[LEAD:])
        if measured:
            for j in range(columns):
                c, own = kind[j], r[j]
                correction = (kept_innovation[at, j] - inner_product(spread[c], own)) / total[c]
                for i in range(states):
                    own[i] += seen[i] * correction
        if not known and (measured or asked):
            for c in range(classes):
                rough = parameters[c, ROUGH_MEMORY] ** ahead
                rising, falling = (
                    parameters[c, RISING_MEMORY] ** ahead,
                    parameters[c, FALLING_MEMORY] ** ahead,
                )
                if measured and few:
                    before = _add_vector(N[c], met, rough, rising, falling, spread[c], total[c], seen)
                elif measured:
                    fade(N[c], rough, rising, falling)
                    before = _add_measurement(N[c], spread[c], total[c], seen, product)
                else:
                    for i in range(states):
                        moved[i] = spread[c, i]
                    moved[1] *= rough
                    moved[2] *= rising
                    moved[3] *= falling
                    before = _quadratic(N[c], met if few else -1, moved, product)
                if asked:
                    quadratic = before
                    if measured:  # h'·spread is the variance
                        share = kept_variance[at, c] / total[c]
                        quadratic = before * (1.0 - share) ** 2 + share * kept_variance[at, c]
                    variances[out, c] = max(kept_variance[at, c] - quadratic, 0.0) + parameters[c, UNSEEN]
                    if still:
                        settled[out, c] = variances[out, c]
        if measured:
            ahead = 0
            met += 1
        if asked:
            if known:
                for c in range(classes):
                    variances[out, c] = settled[out, c]
            for j in range(columns):
                values[out, j] = kept_value[at, j] + inner_product(spread[kind[j]], r[j])


@lean
def _turn_back(once: Any, step: int, anew: bool, phase: Any) -> None:
    """The phase of a step from that of the step after it; now and then from nothing."""
    if anew or step % REFRESHED == 0:
        phase_at(once, step, phase)
        return
    harmonics = once.shape[1]
    for i in range(harmonics):
        cosine, sine = phase[i], phase[harmonics + i]
        phase[i] = cosine * once[0, i] + sine * once[1, i]
        phase[harmonics + i] = sine * once[0, i] - cosine * once[1, i]


@lean
def _is_still(kept_variance: Any, kept_total: Any) -> bool:
    """Whether every kept step was measured, and predicted about as surely as the others."""
    for at in range(kept_variance.shape[0]):
        for c in range(kept_variance.shape[1]):
            first = kept_variance[0, c]
            if kept_total[at, c] <= 0.0 or abs(kept_variance[at, c] - first) > HARDLY * first:
                return False
    return True


@lean
def _quadratic(N: Any, vectors: int, spread: Any, product: Any) -> Any:
    """spread'·N·spread; N is given by so many vectors, or as it is where their number is negative."""
    if vectors < 0:
        multiply(N, spread, product)
        return inner_product(spread, product)
    result = 0.0
    for at in range(vectors):
        result += inner_product(N[at], spread) ** 2
    return result


@lean
def _add_measurement(N: Any, spread: Any, total: float, seen: Any, product: Any) -> Any:
    """N becomes (I − h·k')·N·(I − k·h') + h·h'/S with the gain k = spread/S and h = seen.

    Returns spread'·N·spread of the N before.
    """
    before = _quadratic(N, -1, spread, product)
    both = before / (total * total) + 1.0 / total
    for i in range(spread.size):
        product[i] /= total
    for i in range(spread.size):
        row, factor, other = N[i], seen[i] * both - product[i], seen[i]
        for j in range(spread.size):
            row[j] += factor * seen[j] - other * product[j]
    return before


@lean
def _add_vector(
    vectors: Any,
    met: int,
    rough: float,
    rising: float,
    falling: float,
    spread: Any,
    total: float,
    seen: Any,
) -> Any:
    """The same for N = Σ v·v': v becomes (I − h·k')·v, and there is one more, h/√S. They fade first."""
    before = 0.0
    for at in range(met):
        v = vectors[at]
        v[1] *= rough
        v[2] *= rising
        v[3] *= falling
        inner = inner_product(v, spread)
        before += inner * inner
        for i in range(v.size):
            v[i] -= inner / total * seen[i]
    for i in range(seen.size):
        vectors[met, i] = seen[i] / np.sqrt(total)
    return before
