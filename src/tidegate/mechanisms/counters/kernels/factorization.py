"""The compiled loops of the factorisation mechanism: exact integer measurements, then floating-point recovery.

`measure_*` computes y = C·x + noise as exact integers and only then turns y into a float; all that follows sees y
alone. `recover_*` solves C·x̂ = y and adds x̂ up: post-processing, in plain floating point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel

BITS = 31  # binary places of the BLT's coefficients and of its states
_ONE = 1 << BITS
_MASK = _ONE - 1


@kernel
def clamp(rows: Any, limit: int) -> Any:
    """Values within ±limit, which no neighbour can move by more than before."""
    result = np.empty_like(rows)
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            result[step, column] = min(max(rows[step, column], -limit), limit)
    return result


@kernel
def measure_toeplitz(
    history: Any, steps: int, coefficients: Any, noise: Any, unit: float, measured: Any
) -> None:
    """y_t = Σ_k C_k·x_{t−k} + z_t; `history` ends with the new steps, oldest first."""
    before = history.shape[0] - steps
    for step in range(steps):
        at = before + step
        reach = min(coefficients.size, at + 1)
        for column in range(history.shape[1]):
            total = noise[step, column]
            for age in range(reach):
                total += coefficients[age] * history[at - age, column]
            measured[step, column] = total * unit


@kernel
def recover_toeplitz(
    measured: Any, coefficients: Any, estimates: Any, fade: float, answer: Any, last: Any, values: Any
) -> None:
    """x̂_t = y_t − Σ_{k≥1} c_k·x̂_{t−k}, then the answer: faded sums, or Σ_k answer[k]·x̂_{t−k} where given.

    `estimates` holds earlier x̂, oldest first, and room for the new ones.
    """
    steps = measured.shape[0]
    before = estimates.shape[0] - steps
    for step in range(steps):
        at = before + step
        reach = min(coefficients.size, at + 1)
        span = min(answer.size, at + 1)
        for column in range(measured.shape[1]):
            estimate = measured[step, column]
            for age in range(1, reach):
                estimate -= coefficients[age] * estimates[at - age, column]
            estimates[at, column] = estimate
            if answer.size:
                total = 0.0
                for age in range(span):
                    total += answer[age] * estimates[at - age, column]
                values[step, column] = total
            else:
                last[column] = fade * last[column] + estimate
                values[step, column] = last[column]


@kernel
def measure_blt(
    rows: Any, decay: Any, output: Any, places: int, whole: Any, part: Any, noise: Any, measured: Any
) -> None:
    """y_t = ⌊x_t + Σ_i ω_i·S_i⌋ + z_t on the lattice 2^−places, then S_i ← S_i − ⌊(1 − θ_i)·S_i⌋ + x_t.

    A state is whole + part·2^−31 with 0 ≤ part < 2^31; `decay` is (1 − θ)·2^31 and `output` ω·2^31. Products are
    rounded down to 2^−31 by three multiplications that fit into 64 bits.
    """
    shift = BITS - places
    lattice = 2.0**-places
    low_mask = (np.int64(1) << places) - 1
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            value = rows[step, column]
            high = value
            low = np.int64(0)
            for buffer in range(decay.size):
                units = whole[column, buffer]
                fraction = part[column, buffer]
                top = units >> BITS
                rest = units & _MASK
                weight = output[buffer]
                product = weight * rest
                places_31 = (product & _MASK) + (weight * fraction >> BITS)
                high += weight * top + (product >> BITS)
                low += places_31
                weight = decay[buffer]
                product = weight * rest
                places_31 = fraction - (product & _MASK) - (weight * fraction >> BITS)
                whole[column, buffer] = units - weight * top - (product >> BITS) + (places_31 >> BITS) + value
                part[column, buffer] = places_31 & _MASK
            low = (low >> shift) + noise[step, column]
            high += low >> places
            measured[step, column] = high + (low & low_mask) * lattice


@kernel
def recover_blt(
    measured: Any, theta: Any, omega: Any, buffers: Any, previous: Any, last: Any, values: Any
) -> None:
    """x̂_t = y_t − Σ_i ω_i·Ŝ_i, Ŝ_i ← θ_i·Ŝ_i + x̂_t, and the running sum of x̂.

    `buffers` are one step behind, without the `previous` x̂: so a step waits for one product of the step before only.
    """
    together = omega.sum()
    faded = omega * theta
    for step in range(measured.shape[0]):
        for column in range(measured.shape[1]):
            before = previous[column]
            estimate = measured[step, column]
            for buffer in range(theta.size):
                old = buffers[column, buffer]
                estimate -= faded[buffer] * old
                buffers[column, buffer] = theta[buffer] * old + before
            estimate -= together * before
            previous[column] = estimate
            last[column] += estimate
            values[step, column] = last[column]


@kernel
def deviations_blt(
    step: int, theta: Any, omega: Any, buffers: Any, memory: Any, unit: float, deviations: Any
) -> None:
    """The standard deviation of each step's sum: the answer to a single 1 at step 1, squared and added up.

    `memory` holds the previous x̂, the last sum and the sum of squares.
    """
    together = omega.sum()
    faded = omega * theta
    before, last, squares = memory[0], memory[1], memory[2]
    for index in range(deviations.size):
        estimate = 1.0 if step + index == 1 else 0.0
        for buffer in range(theta.size):
            old = buffers[buffer]
            estimate -= faded[buffer] * old
            buffers[buffer] = theta[buffer] * old + before
        estimate -= together * before
        before = estimate
        last += estimate
        squares += last * last
        deviations[index] = unit * squares**0.5
    memory[0], memory[1], memory[2] = before, last, squares
