"""A quantile with noise scaled to its smooth sensitivity: (ε, δ), as in the paper, with constants that hold.

The scale of the noise depends on the data, so it may not simply be rounded: it is taken from a public geometric
ladder, and the ladder's step, like every floating-point error, is part of the smoothness b that the proof spends
(docs/proofs/threshold.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.errors import InvalidParameter

Integers = npt.NDArray[np.int64]
SHARE = 1 / 1024  # of b, set apart for the ladder and for floating-point errors
DOWN = 1 - 1e-12
LEAST_B = 1e-8  # below it floating-point errors would no longer fit into their share of b
MOST_DELTA = 2 / math.e  # beyond it b would exceed ε/2, which a larger scale costs


@kernel
def smooth_quantile(ordered: Any, rank: int, bound: int, smoothing: float) -> float:
    """max_k e^(−b·k)·(A_k + 1), A_k = max_{t=0..k+1} σ(P + t) − σ(P + t − k − 1), with σ = 0 before and B after.

    Stops at the k from which even the whole range [0, B] would no longer count.
    """
    count = ordered.size
    best = 0.0
    for distance in range(count + 2):
        shrink = np.exp(-smoothing * distance)
        if shrink * (bound + 1) <= best:
            break
        widest: Any = np.int64(0)
        for shift in range(distance + 2):
            upper = rank + shift
            lower = upper - distance - 1
            high = ordered[upper - 1] if upper <= count else bound
            low = ordered[min(lower, count) - 1] if lower >= 1 else 0
            if lower > count:
                low = bound
            widest = max(widest, high - low)
        best = max(best, shrink * (widest + 1))
    return best


@dataclass(frozen=True)
class Constants:
    """Noise of scale κ·S/a around the quantile plus κ·S/a·offset, where S is b-smooth.

    Parameters
    ----------
    a, b
        Of the smooth-sensitivity framework, rounded down.
    offset
        G⁻¹(1 − β_lt): how many scales the threshold is moved up so that it is too low with a chance of β_lt only.
    """

    a: float
    b: float
    offset: float

    @property
    def kappa(self) -> float:
        """κ = 1/(1 − (e^b − 1)·offset/a), rounded up; infinite where there is none."""
        rest = 1.0 - math.expm1(self.b) * self.offset / self.a if self.a > 0 else 0.0
        return (1.0 + 1e-12) / rest if rest > 0 else math.inf

    @property
    def steps(self) -> int:
        """Rungs of the ladder to a factor of two."""
        return math.ceil(2.0 * math.log(2.0) / (self.b * SHARE))

    def scale(self, ordered: Integers, rank: int, bound: int) -> float:
        """The scale of the noise, in grid units: a rung at or just above κ·S/a."""
        smooth = smooth_quantile(ordered, rank, bound, self.b * (1.0 - SHARE))
        rung = math.ceil(math.log2(smooth) * self.steps + 1e-6)
        return self.kappa / self.a * float(np.exp2(rung / self.steps))

    def checked(self) -> Constants:
        """Refuse constants without a κ, or a b too small for its share of errors, naming what to change."""
        if self.b < LEAST_B:
            raise InvalidParameter(
                "epsilon",
                f"a smoothness b of {self.b:.3g}",
                f"large enough that b is at least {LEAST_B:g}, beyond floating-point errors",
                'raise epsilon or delta, or use method="quantile"',
            )
        if not math.isfinite(self.kappa):
            raise InvalidParameter(
                "too_low",
                f"an offset of {self.offset:.3g}",
                f"such that κ > 0, that is (e^b − 1)·offset < a with a = {self.a:.3g} and b = {self.b:.3g}",
                "raise too_low (the chance that the threshold is too low), epsilon or delta",
            )
        return self


def laplace_constants(epsilon: float, delta: float, too_low: float) -> Constants:
    """a = ε/2, b = ln(1 + ε/(2·ln(2/δ))): sound for discrete Laplace noise of every scale, with δ ≤ 2/e."""
    if delta > MOST_DELTA:
        raise InvalidParameter(
            "delta", delta, "at most 2/e, so that b ≤ ε/2", 'write for example delta="1e-6"'
        )
    b = math.log1p(epsilon / (2.0 * math.log(2.0 / delta)))
    return Constants(epsilon / 2.0 * DOWN, b * DOWN, -math.log(2.0 * too_low)).checked()


def gaussian_constants(epsilon: float, delta: float, too_low: float) -> Constants:
    """b = ½·ln(1 + ε/(2·ln(4/δ))) and the a with a²/2 + a·√(2·ln(2e^(ε/2)/δ)) = ε/2."""
    b = 0.5 * math.log1p(epsilon / (2.0 * math.log(4.0 / delta)))
    tail = math.sqrt(2.0 * (math.log(2.0 / delta) + epsilon / 2.0))
    a = math.sqrt(tail * tail + epsilon) - tail
    return Constants(a * (1 - 1e-9), b * DOWN, NormalDist().inv_cdf(1.0 - too_low)).checked()
