"""Buffered linear Toeplitz factors: C_k = Σ_i ω_i·θ_i^(k−1), a few exponentials in place of a long memory.

References
----------
Dvijotham, McMahan, Pillutla, Steinke, Thakurta: Efficient and near-optimal noise generation for streaming
differential privacy. FOCS 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
BITS = 31  # binary places of the coefficients and of the states
ONE = 1 << BITS
SLACK = 1e-9  # relative; the floating-point error of the norms below is under 1e-12


@lru_cache(maxsize=64)
def optimise(horizon: int, buffers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """((1 − θ_i)·2^31, ω_i·2^31) with the least mean squared error of prefix sums over `horizon` steps.

    Starts from a quadrature of c_k = (1/π)·∫ θ^(k−½)·(1 − θ)^(−½) dθ, the square root's coefficients, and improves it.
    """
    from scipy.optimize import minimize  # slow to import, needed once

    nodes = np.linspace(math.log(1 / 3), math.log(2.0 * max(horizon, 4)), buffers)
    spacing = nodes[1] - nodes[0] if buffers > 1 else 2.0
    gaps = 1.0 / (1.0 + np.exp(nodes))  # 1 − θ
    weights = spacing / math.pi * np.sqrt(gaps) * (1.0 - gaps) ** 1.5
    start = np.concatenate([np.log(gaps), np.log(np.maximum(weights, 1e-9) * 0.5 / weights.sum())])

    def loss(parameters: Values) -> float:
        gap, omega = _unpack(parameters)
        square = norm_square(gap, omega, horizon, 1)
        found = mean_variance(gap, omega, horizon)
        return math.log(square) + math.log(found) if found > 0 and math.isfinite(found) else 1e6

    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 300})
    for _ in range(3):  # the numerical gradient stops early at times; the simplex gets it going again
        shaken = minimize(
            loss, found.x, method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-4, "fatol": 1e-7}
        )
        before, found = (
            found.fun,
            minimize(loss, shaken.x, method="BFGS", options={"gtol": 1e-6, "maxiter": 300}),
        )
        if before - found.fun < 1e-4:
            break
    gap, omega = _unpack(found.x)
    order = np.argsort(gap)
    decay = np.clip(np.floor(gap[order] * ONE + 0.5), 1, ONE - 1).astype(np.int64)
    output = np.clip(np.floor(omega[order] * ONE + 0.5), 1, ONE - 1).astype(np.int64)
    return tuple(decay.tolist()), tuple(output.tolist())


def _unpack(parameters: Values) -> tuple[Values, Values]:
    count = len(parameters) // 2
    return np.exp(np.minimum(parameters[:count], -1e-3)), np.exp(np.minimum(parameters[count:], -1e-3))


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


def mean_variance(gap: Values, omega: Values, horizon: int) -> float:
    """The mean over steps of Σ_{k<t} b_k² for b = (1, 1, …)·C⁻¹, in closed form by the eigenvalues of the feedback."""
    eigenvalues, vectors = np.linalg.eig(np.diag(1.0 - gap) - np.ones((len(gap), 1)) * omega[None, :])
    hats = (omega @ vectors) * np.linalg.solve(vectors, np.ones(len(gap)))
    gain = hats / (1.0 - eigenvalues)
    roots = np.concatenate([[1.0 + 0j], eigenvalues])
    amplitude = np.concatenate([[1.0 - gain.sum()], gain])
    ratio = roots[:, None] * roots[None, :]
    with np.errstate(all="ignore"):
        power = ratio**horizon
        plain = (1.0 - power) / (1.0 - ratio)
        # Σ_{k<n} (n − k)·r^k = (n − r·(1 − r^n)/(1 − r))/(1 − r)
        summed = (horizon - ratio * plain) / (1.0 - ratio)
    near = np.abs(1.0 - ratio) * horizon < 1e-6
    summed[near] = horizon * (horizon + 1) / 2
    total = float(np.real(np.sum(amplitude[:, None] * amplitude[None, :] * summed)))
    return total / horizon


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
