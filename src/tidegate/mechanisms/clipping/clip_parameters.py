"""Parameters of the clipped sum with smooth sensitivity, from a PUBLIC or generated sample (paper, section VI).

The bound of equation 16 contains a quantile of the data and its smooth sensitivity. Minimising it on the protected
stream would leak; so a sample that may be published goes in: last year's stream, another city's, a simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.clipping.smooth_sensitivity import laplace_constants, smooth_quantile
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.policy import Event
from tidegate.structures.grid import nearest_units

P_MAX = 0.005  # beyond it the paper found tails light
LEAST_SHARE = 0.3  # of ε for the threshold: below it the smooth sensitivity is never small
NOWHERE = 1e300


@dataclass(frozen=True)
class ClipParameters:
    """The optimised parameters, and what they promise.

    Attributes
    ----------
    multiplier, shrink, exceeding, share
        r, λ, p and ε₁/ε.
    chances
        The parts of β by their names in the paper: qt, lt, lap, out, rt.
    error, tree_error
        The bound of equation 16 (with the error of the first sum added) and the bound of the plain tree with B.
    """

    lag: int
    horizon: int
    multiplier: float
    shrink: float
    exceeding: float
    share: float
    error: float
    tree_error: float
    chances: dict[str, float] = field(default_factory=dict)

    @property
    def improvement(self) -> float:
        """How many times smaller the bound is than the tree's; 1 where the tree is used."""
        return max(1.0, self.tree_error / self.error)

    @property
    def gains(self) -> bool:
        """Whether clipping pays at all."""
        return self.error < self.tree_error

    def mechanism(self, policy: Event) -> ClippedSum | BinaryTree:
        """The mechanism with these parameters; the plain tree with B where nothing is gained."""
        if not self.gains:
            return BinaryTree(replace(policy, delta=0), horizon=self.horizon)
        return ClippedSum(
            policy,
            horizon=self.horizon,
            lag=self.lag,
            branching=2,  # the tree of equation 3
            threshold="smooth",
            exceeding=Fraction(self.exceeding * self.shrink).limit_denominator(10**6),
            multiplier=Fraction(math.ceil(64 * self.multiplier), 64),
            share=Fraction(self.share).limit_denominator(100),
            too_low=self.chances["lt"],
        )


def tree_bound(bound: float, horizon: int, epsilon: float, beta: float) -> float:
    """Equation 3 with its constant: B/ε·(log₂ n)^1.5·√(8·ln(1/β))."""
    return bound / epsilon * float(math.log2(horizon) ** 1.5) * math.sqrt(8 * math.log(1 / beta))


def worst_case_bound(
    clip: float,
    bound: float,
    *,
    horizon: int,
    lag: int,
    exceeding: float,
    epsilon: float,
    too_noisy: float = 0.01,
    too_many: float = 0.01,
) -> float:
    """Equation 14: how far the last sum is off at most, whatever is above the clip.

    τ/ε·(log₂(n − m))^1.5·√(8·ln(1/β_Lap)) of noise, and (B − τ)·p·n·(ln(1/β_out) + 1) of what is cut off, where values
    exceed the clip with a chance of at most p and are at most B. Nothing is assumed of the tail, so the second part grows
    with n, and only equation 16, for light tails, promises a gain. From public numbers only.

    Parameters
    ----------
    clip, bound
        τ and B.
    horizon, lag
        n and m.
    exceeding
        p, the chance of a value above the clip.
    epsilon
        Of the tree.
    too_noisy, too_many
        β_Lap and β_out, the chances with which the two parts may be exceeded.

    Examples
    --------
    >>> round(worst_case_bound(100, 1440, horizon=10**6, lag=10**4, exceeding=0, epsilon=1.0))
    53952
    """
    noise = tree_bound(clip, horizon - lag, epsilon, too_noisy)
    return noise + (bound - clip) * exceeding * horizon * (1 - math.log(too_many))


def optimise(
    sample: npt.ArrayLike,
    policy: Event,
    *,
    horizon: int,
    lag: int,
    beta: float = 0.02,
    p_max: float = P_MAX,
) -> ClipParameters:
    """Minimise the bound of equation 16 over r, λ, p, ε₁ and the parts of β.

    Parameters
    ----------
    sample
        At least `lag` PUBLIC observations, like those of the stream, in grid units of 1.
    policy
        `Event` with ε, δ and B = ``max_change``.
    horizon, lag
        n and m.
    beta
        The chance with which the bound may fail.
    p_max
        The largest p that is considered.
    """
    values = np.asarray(sample)
    from scipy.optimize import minimize  # slow to import, needed here only
    from scipy.stats import binom

    lag = whole("lag", lag, most=horizon - 1)
    if len(values) < lag:
        raise InvalidParameter(
            "sample", f"{len(values)} values", f"at least the lag of {lag}", "generate more"
        )
    if not policy.delta:
        raise InvalidParameter(
            "policy", "without delta", "Event with δ for smooth sensitivity", 'write delta="1e-6"'
        )
    bound = math.floor(Fraction(policy.max_change))
    epsilon, delta = float(Fraction(policy.epsilon or 0)), float(Fraction(policy.delta))
    ordered = np.sort(np.clip(nearest_units(values[:lag]), 0, bound))
    tree_error = tree_bound(bound, horizon, epsilon, beta)

    def unpack(point: npt.NDArray[np.float64]) -> tuple[float, float, float, float, dict[str, float]]:
        r = 1.0 + abs(point[0])
        p = p_max / (1.0 + math.exp(-point[2]))
        shrink = 1.0 / (1.0 + math.exp(-point[1]))
        share = LEAST_SHARE + (0.99 - LEAST_SHARE) / (1.0 + math.exp(-point[3]))
        missed = float(binom.cdf(math.ceil(shrink * p * lag) - 1, lag, p))  # equation 5
        parts = np.exp(np.append(point[4:7], 0.0))
        parts *= max(beta - missed, 0.0) / parts.sum()
        return (
            r,
            shrink,
            p,
            share,
            dict(zip(("qt", "lt", "out", "rt", "lap"), (missed, *parts.tolist()), strict=True)),
        )

    def error(point: npt.NDArray[np.float64]) -> float:
        r, shrink, p, share, parts = unpack(point)
        if parts["lap"] <= 1e-9 or parts["lt"] <= 1e-9 or shrink * p * lag < 1:
            return NOWHERE
        try:
            constants = laplace_constants(share * epsilon, delta, parts["lt"])
        except InvalidParameter:  # no κ > 0 here
            return NOWHERE
        rank = math.ceil((1 - shrink * p) * lag)
        quantile = float(ordered[rank - 1])
        smooth = constants.kappa / constants.a * smooth_quantile(ordered, rank, bound, constants.b)
        highest = quantile + smooth * (constants.offset - math.log(2 * parts["rt"]))
        clip = min(r * highest, bound)  # equation 13, times r
        noise = tree_bound(clip, horizon - lag, epsilon, parts["lap"])
        first = clip / ((1 - share) * epsilon) * math.log(1 / parts["lap"])
        spread = math.sqrt(p**r * horizon) + math.sqrt(math.log(1 / parts["out"]))
        return noise + first + quantile / -math.log(p) * spread**2

    best: tuple[float, npt.NDArray[np.float64]] = (NOWHERE, np.zeros(7))
    for r, shrink, share in ((0.1, 1.5, 1.0), (0.6, 1.5, 1.0), (0.9, 2.0, 0.5)):
        start = np.array([r, shrink, 4.0, share, -1.0, -1.5, -1.5])
        found = minimize(
            error, start, method="Nelder-Mead", options={"maxiter": 800, "xatol": 1e-4, "fatol": 1e-3}
        )
        best = min(best, (float(found.fun), found.x), key=lambda pair: pair[0])
    r, shrink, p, share, parts = unpack(best[1])
    return ClipParameters(lag, horizon, r, shrink, p, share, best[0], tree_error, parts)


def suggested_lag(epsilon: float, delta: float, beta: float = 0.02, p_max: float = P_MAX) -> int:
    """The heuristics for m of section VI: enough observations above the quantile, and a small enough noise scale.

    First criterion: P(x̂_{p/2} < x_p) < β (equation 5 with λ = ½). Second: the smooth sensitivity's scale is at most a
    tenth of B for an exponential tail with its p_max-quantile near B. From public numbers only.

    Examples
    --------
    >>> suggested_lag(1.0, 2**-20) > suggested_lag(2.0, 2**-20)
    True
    """
    from scipy.stats import binom  # slow to import, needed here only

    low, high = 1, 1 << 40
    while low < high:
        middle = (low + high) // 2
        enough = float(binom.cdf(math.ceil(p_max * middle / 2) - 1, middle, p_max)) < beta
        low, high = (low, middle) if enough else (middle + 1, high)
    constants = laplace_constants(epsilon, delta, beta / 5)
    reach = -math.log(2 * beta / 5)
    # κ·(d·e^−1/b)/a·G⁻¹ ≤ B/10 with the spacing d = B/(m·p·ln(1/p))
    second = (
        10 * constants.kappa * math.exp(-1) * reach / (constants.a * constants.b * -p_max * math.log(p_max))
    )
    return max(low, math.ceil(second))
