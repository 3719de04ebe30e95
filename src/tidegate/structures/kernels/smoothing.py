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
TOGETHER = 128  # columns, at most, that are smoothed together
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

    r and N are the weighted sums of later innovations, and their variance (Durbin and Koopman, section 4.4). N is that
    of a class, r that of a column. `settled` (length × classes) has the variances of a stream that is measured at every
    step with a covariance that hardly changes; 0 for unknown.
    """
    rings = Rings(*rings)
    keep, classes, states = rings.spread.shape
    seen = np.zeros((keep, states))  # how the value of each step, backwards, is made of its states
    for back in range(keep):
        seen[back, 0], seen[back, 1], seen[back, 2], seen[back, 3] = 1.0, 1.0, 1.0, -1.0
        _turn_back(once, last - back, back == 0, seen[max(back - 1, 0), LEAD:], seen[back, LEAD:])
    measurements = 0
    for at in range(keep):
        measurements += rings.total[at, 0] > 0.0
    few = measurements <= states // 2
    N = np.zeros((classes, measurements if few else states, states))
    product = np.zeros((2, states))
    _smooth_variances(last, length, parameters, rings, seen, settled, few, N, product, variances)
    if classes == kind.size:
        r = np.zeros(states)
        for j in range(kind.size):
            _smooth_column(last, length, parameters[kind[j]], rings, seen, kind[j], j, r, values)
    else:
        many = np.zeros((states, TOGETHER))
        sums, correction = np.zeros((4, TOGETHER)), np.zeros(TOGETHER)
        own = np.zeros(TOGETHER, dtype=np.int64)
        for c in range(classes):
            count = 0
            for j in range(kind.size):
                if kind[j] == c:
                    own[count] = j
                    count += 1
                if count == TOGETHER or (count and j == kind.size - 1):
                    some = own[:count]
                    _smooth_columns(
                        last, length, parameters[c], rings, seen, c, some, many, sums, correction, values
                    )
                    count = 0


@lean
def _smooth_variances(
    last: int,
    length: int,
    parameters: Any,
    rings: Any,
    seen: Any,
    settled: Any,
    few: bool,
    N: Any,
    products: Any,
    variances: Any,
) -> None:
    """The variances of classes.

    N moves only when it meets a measurement; in between, what it is asked about moves to it. While there are few
    measurements N is kept as vectors v, one for each, with N = Σ v·v'.
    """
    kept_spread, kept_variance, kept_total = rings.spread, rings.variance, rings.total
    keep, classes, states = kept_spread.shape
    still = settled.shape[0] == length and _is_still(kept_variance, kept_total)
    if still and settled[0, 0] > 0.0:
        for out in range(length):
            for c in range(classes):
                variances[out, c] = settled[out, c]
        return
    product, moved = products[0], products[1]
    met = 0  # measurements so far
    ahead = 0  # steps from here to where N is
    for back in range(keep):
        at = (last - back) % keep
        spread, total = kept_spread[at], kept_total[at]
        measured = total[0] > 0.0
        asked = back >= keep - length
        out = keep - 1 - back
        ahead += back > 0
        if not (measured or asked):
            continue
        for c in range(classes):
            rough = parameters[c, ROUGH_MEMORY] ** ahead
            rising, falling = parameters[c, RISING_MEMORY] ** ahead, parameters[c, FALLING_MEMORY] ** ahead
            if measured and few:
                before = _add_vector(N[c], met, rough, rising, falling, spread[c], total[c], seen[back])
            elif measured:
                fade(N[c], rough, rising, falling)
                before = _add_measurement(N[c], spread[c], total[c], seen[back], product)
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


@lean
def _smooth_column(
    last: int, length: int, parameters: Any, rings: Any, seen: Any, c: int, j: int, r: Any, values: Any
) -> None:
    """The values of a column."""
    keep = seen.shape[0]
    r[:] = 0.0
    for back in range(keep):
        at = (last - back) % keep
        spread, total = rings.spread[at, c], rings.total[at, c]
        if back > 0:
            r[1] *= parameters[ROUGH_MEMORY]
            r[2] *= parameters[RISING_MEMORY]
            r[3] *= parameters[FALLING_MEMORY]
        if total > 0.0:
            correction = (rings.innovation[at, j] - inner_product(spread, r)) / total
            for i in range(r.size):
                r[i] += seen[back, i] * correction
        if back >= keep - length:
            values[keep - 1 - back, j] = rings.value[at, j] + inner_product(spread, r)


@lean
def _smooth_columns(
    last: int,
    length: int,
    parameters: Any,
    rings: Any,
    seen: Any,
    c: int,
    own: Any,
    r: Any,
    sums: Any,
    correction: Any,
    values: Any,
) -> None:
    """The values of some columns of a class: the same, with inner loops over columns."""
    keep, states = seen.shape
    count = own.size
    for i in range(states):
        for j in range(count):
            r[i, j] = 0.0
    for back in range(keep):
        at = (last - back) % keep
        spread, total = rings.spread[at, c], rings.total[at, c]
        if back > 0:
            for i, memory in ((1, ROUGH_MEMORY), (2, RISING_MEMORY), (3, FALLING_MEMORY)):
                row, factor = r[i], parameters[memory]
                for j in range(count):
                    row[j] *= factor
        if total > 0.0:
            _inner_products(spread, r, count, sums)
            for j in range(count):
                correction[j] = (rings.innovation[at, own[j]] - sums[0, j]) / total
            for i in range(states):
                row, factor = r[i], seen[back, i]
                for j in range(count):
                    row[j] += factor * correction[j]
        if back >= keep - length:
            _inner_products(spread, r, count, sums)
            out, expected = values[keep - 1 - back], rings.value[at]
            for j in range(count):
                out[own[j]] = expected[own[j]] + sums[0, j]


@lean
def _inner_products(one: Any, others: Any, count: int, sums: Any) -> None:
    """`inner_product` of a vector and each of several columns: added up in the same order, and left in sums[0]."""
    for lane in range(4):
        for j in range(count):
            sums[lane, j] = 0.0
    for i in range(one.size):
        lane, row, factor = sums[i % 4], others[i], one[i]
        for j in range(count):
            lane[j] += factor * row[j]
    a, b, c, d = sums[0], sums[1], sums[2], sums[3]
    for j in range(count):
        a[j] = (a[j] + b[j]) + (c[j] + d[j])


@lean
def _turn_back(once: Any, step: int, anew: bool, after: Any, phase: Any) -> None:
    """The phase of a step from that of the step after it; now and then from nothing."""
    if anew or step % REFRESHED == 0:
        phase_at(once, step, phase)
        return
    harmonics = once.shape[1]
    for i in range(harmonics):
        cosine, sine = after[i], after[harmonics + i]
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
