"""From counts to a loss that holds with confidence: Clopper–Pearson, then what an event's two chances imply.

Whatever the budget is, an event E with chances p and q under two neighbours bounds the loss from below:

- pure and (ε, δ): p ≤ e^ε·q + δ, so ε ≥ ln((p − δ)/q), the hockey-stick divergence at that event;
- zCDP: D_α(p‖q) ≤ ρ·α for every α > 1, where D_α is the Rényi divergence of the two coins, because looking
  at one event only is post-processing.

Both grow with p and shrink with q where p > q, so a lower bound of p and an upper bound of q go in.
"""

from __future__ import annotations

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
    return 1.0 - at_least(trials - np.asarray(successes, dtype=np.float64), trials, error)


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
