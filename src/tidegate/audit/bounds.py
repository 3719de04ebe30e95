"""From counts to a loss that holds with confidence: Clopper–Pearson, then what an event's two chances imply.

Whatever the budget is, an event E with chances p and q under two neighbours bounds the loss from below:

- pure and (ε, δ): p ≤ e^ε·q + δ, so ε ≥ ln((p − δ)/q), the hockey-stick divergence at that event;
- zCDP: D_α(p‖q) ≤ ρ·α for every α > 1, where D_α is the Rényi divergence of the two coins, because looking
  at one event only is post-processing.

Both grow with p and shrink with q where p > q, so a lower bound of p and an upper bound of q go in.

For zCDP one event shows little of what Gaussian noise loses. The mean of a score shows nearly all of it:
ρ ≥ KL(P‖Q) ≥ E_P[f] − ln E_Q[e^f] for every bounded f (Donsker and Varadhan 1975; ρ bounds D_α/α for every
α > 1, and so for α → 1). Both means are bounded with confidence by empirical Bernstein bounds (Maurer and Pontil
2009).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from tidegate.policy import Approximate, Budget, Policy, Pure, ZeroConcentrated

Floats = npt.NDArray[np.float64]

_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 40), np.geomspace(2.1, 200, 60)])


def at_least(successes: npt.ArrayLike, trials: int, error: float) -> Floats:
    """A lower bound of a chance that is wrong with probability at most `error` (Clopper and Pearson 1934).

    Examples
    --------
    >>> float(at_least(0, 100, 1e-3)), round(float(at_least(100, 100, 1e-3)), 4)
    (0.0, 0.9333)
    """
    k = np.asarray(successes, dtype=np.float64)
    found = betaincinv(np.maximum(k, 1.0), trials - k + 1.0, error)
    return np.where(k > 0, found * (1 - 1e-9), 0.0)  # less than the inversion can be off


def at_most(successes: npt.ArrayLike, trials: int, error: float) -> Floats:
    """An upper bound of a chance that is wrong with probability at most `error`."""
    least = 1.0 - at_least(trials - np.asarray(successes, dtype=np.float64), trials, error)
    return np.minimum(np.nextafter(least, 2.0), 1.0)  # the difference was rounded, perhaps down


def promised(policy: Policy) -> Budget:
    """What a policy promises for any pair of neighbours; secrets with budgets of their own promise the largest."""
    secrets = getattr(policy, "secrets", None)
    if not secrets:
        return policy.budget
    largest = max(Fraction(secret.epsilon) for secret in secrets)
    return Approximate(largest, Fraction(policy.delta)) if policy.delta else Pure(largest)


def claimed(budget: Budget) -> Fraction:
    """The number that is claimed: ε, or ρ."""
    return budget.total


def implied(p: npt.ArrayLike, q: npt.ArrayLike, budget: Budget) -> Floats:
    """The least loss, in the budget's own measure, that an event with chances p and q proves.

    Examples
    --------
    >>> round(float(implied(0.5, 0.25, Pure(Fraction(1)))), 4)
    0.6931
    """
    high, low = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if isinstance(budget, ZeroConcentrated):
        return _concentrated(high, low)
    delta = float(budget.delta) if isinstance(budget, Approximate) else 0.0
    gain = np.maximum(high - delta, 1e-300)
    return np.asarray(np.maximum(np.log(gain) - np.log(np.maximum(low, 1e-300)), 0.0))


def _concentrated(p: Floats, q: Floats) -> Floats:
    """The largest D_α(p‖q)/α over the orders; 0 where p ≤ q."""
    inside = np.clip(p, 1e-12, 1 - 1e-12)[..., None]
    below = np.clip(q, 1e-12, 1 - 1e-12)[..., None]
    one = _ORDERS * np.log(inside) + (1 - _ORDERS) * np.log(below)
    other = _ORDERS * np.log1p(-inside) + (1 - _ORDERS) * np.log1p(-below)
    divergence = np.logaddexp(one, other) / (_ORDERS - 1)
    best: Floats = np.max(divergence / _ORDERS, axis=-1)
    return np.where(p > q, np.maximum(best, 0.0), 0.0)


def proved(first: npt.ArrayLike, second: npt.ArrayLike, trials: int, error: float, budget: Budget) -> Floats:
    """The loss that `first` of `trials` against `second` of `trials` prove, wrong with chance at most `error`."""
    return implied(at_least(first, trials, error / 2), at_most(second, trials, error / 2), budget)


class Mean:
    """Adds up scores f under P (side 0) and e^f under Q (side 1), both cut off at ± reach.

    Examples
    --------
    >>> mean = Mean(2.0)
    >>> mean.add(0, np.full(10**6, 0.5))
    >>> mean.add(1, np.repeat([-1.0, 0.2], 500_000))
    >>> 0.65 < mean.proved(1e-6) < mean.estimate < 0.73  # 0.5 − ln((e^−1 + e^0.2)/2) = 0.73
    True
    """

    def __init__(self, reach: float) -> None:
        self.reach = reach
        self._sums, self._squares, self._counts = np.zeros(2), np.zeros(2), np.zeros(2)

    def add(self, side: int, scores: Floats) -> None:
        """Some more transcripts of a side."""
        cut = np.clip(scores, -self.reach, self.reach)
        values = cut if side == 0 else np.exp(cut)
        self._sums[side] += values.sum()
        self._squares[side] += (values * values).sum()
        self._counts[side] += len(values)

    @property
    def estimate(self) -> float:
        """The ρ that the means suggest."""
        means = self._sums / np.maximum(self._counts, 1)
        return float(max(means[0] - math.log(means[1]), 0.0)) if min(self._counts) > 1 else 0.0

    def proved(self, error: float, trials: int | None = None, doubt: float = 0.0) -> float:
        """The ρ that is proved, wrong with chance at most `error`.

        Parameters
        ----------
        error
            Half of it goes to each mean.
        trials, doubt
            For a promise: as if so many transcripts had the same means, which are doubted by so many deviations.
        """
        seen = self._counts
        if min(seen) < 2 or self.reach <= 0:
            return 0.0
        means = self._sums / seen
        variances = np.maximum(self._squares - seen * means**2, 0.0) / (seen - 1)
        count = seen if trials is None else np.full(2, float(trials))
        ranges = np.array([2 * self.reach, math.exp(self.reach) - math.exp(-self.reach)])
        log = math.log(4 / error)  # 2/(error/2)
        off = np.sqrt(2 * variances * log / count) + 7 * ranges * log / (3 * (count - 1))
        off += doubt * np.sqrt(variances / seen)
        return float(max(means[0] - off[0] - math.log(means[1] + off[1]), 0.0)) * (1 - 1e-9)
