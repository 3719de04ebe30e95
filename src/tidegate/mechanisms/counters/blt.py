"""Buffered linear Toeplitz factors: C_k = Σ_i ω_i·θ_i^(k−1), a few exponentials in place of a long memory.

References
----------
Dvijotham, McMahan, Pillutla, Steinke, Thakurta: Efficient and near-optimal noise generation for streaming
differential privacy. FOCS 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
BITS = 31  # binary places of the coefficients and of the states
ONE = 1 << BITS
SLACK = 1e-9  # relative; the floating-point error of the norms below is under 1e-12


def norm_square(gap: Values, omega: Values, horizon: int, window: int) -> float:
    """The squared norm of the sum of `window` consecutive columns of C over `horizon` steps, or a little more.

    All terms are positive, so the relative error is that of one term: 1 − θ_i·θ_j = g_i + g_j − g_i·g_j and powers by
    expm1 and log1p cancel nothing.
    """
    joint = gap[:, None] + gap[None, :] - gap[:, None] * gap[None, :]
    tails = -np.expm1((horizon - 1) * np.log1p(-joint)) / joint * omega[:, None] * omega[None, :]
    square = 1.0 + float(tails.sum())
    if window == 1:
        return square
    total = window * square
    column = tails.sum(axis=0)
    for start in range(1, window, 1 << 20):
        ages = np.arange(start, min(window, start + (1 << 20)), dtype=np.float64)
        for each in range(len(gap)):
            power = np.exp((ages - 1.0) * np.log1p(-gap[each]))
            products = power * (omega[each] + column[each] * (1.0 - gap[each]))
            total += 2.0 * float(np.sum((window - ages) * products))
    return total


@dataclass(frozen=True)
class Blt:
    """The integers of a BLT: (1 − θ_i)·2^31 and ω_i·2^31."""

    decay: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def gap(self) -> Values:
        """1 − θ_i, exactly."""
        return np.array(self.decay, dtype=np.float64) / ONE

    @property
    def omega(self) -> Values:
        """ω_i, exactly."""
        return np.array(self.output, dtype=np.float64) / ONE

    @property
    def usable(self) -> bool:
        """Whether 0 < θ < 1 and the ω are positive and below 1 together, so that C falls."""
        return all(0 < number < ONE for number in self.decay + self.output) and sum(self.output) < ONE

    def norm(self, horizon: int, window: int) -> float:
        """The norm of the sum of `window` columns of C, rounded up."""
        return math.sqrt(norm_square(self.gap, self.omega, horizon, window)) * (1 + SLACK)

    @property
    def rounding_error(self) -> float:
        """How far, in units of 2^−31, rounding down can move one measurement: buffers + Σ_i ω_i/(1 − θ_i)."""
        sizes = (weight / gap for gap, weight in zip(self.decay, self.output, strict=True))
        return (len(self.decay) + sum(sizes)) * (1.0 + SLACK)

    def limit(self, horizon: int) -> int:
        """Values up to this keep every state below 2^60."""
        return (1 << 60) // min(horizon, -(-ONE // min(self.decay)))
