"""Group privacy and the way from zCDP to (ε, δ), rounded up."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from tidegate.composition.decimals import WORK, as_decimal, fraction_up


def group_delta(epsilon: Fraction, delta: Fraction, size: int) -> Fraction:
    """The δ of a group of `size` units: δ·(e^(kε) − 1)/(e^ε − 1), rounded up, at most 1.

    Parameters
    ----------
    epsilon, delta
        What one unit is promised.
    size
        The number k of units.

    Examples
    --------
    >>> group_delta(Fraction(1), Fraction("1e-9"), 1)
    Fraction(1, 1000000000)
    """
    if size <= 1:
        return delta
    with localcontext(WORK):
        base = as_decimal(epsilon).exp()
        if epsilon * size > 1000 + delta.denominator.bit_length():
            return Fraction(1)
        series = (base**size - 1) / (base - 1) if base != 1 else Decimal(size)
        return min(Fraction(1), fraction_up(as_decimal(delta) * series * (1 + Decimal("1e-50"))))


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """A δ for which ρ-zCDP implies (ε, δ)-privacy, rounded up, at most 1 (Canonne et al. 2020, Proposition 12).

    Parameters
    ----------
    rho
        The budget of zCDP.
    epsilon
        The ε for which a δ is wanted.

    Examples
    --------
    >>> float(zcdp_delta(Fraction(1, 2), Fraction("5.23"))) < 1e-6
    True
    """
    budget, least = float(rho), float(epsilon)

    def rough(order: float) -> float:
        return (order - 1) * (order * budget - least) - math.log(order - 1) + order * math.log1p(-1 / order)

    order = _best_order(rough, max((float(epsilon / rho) - 1) / 2, 0.1))
    with localcontext(WORK):
        exact_order = as_decimal(Fraction(order))
        exponent = (exact_order - 1) * (exact_order * as_decimal(rho) - as_decimal(epsilon))
        exponent += exact_order * (1 - 1 / exact_order).ln() - (exact_order - 1).ln()
        bound = (exponent + Decimal("1e-50")).exp()
        return min(Fraction(1), fraction_up(bound))


@lru_cache(maxsize=256)  # every mechanism of a policy asks for the same
def zcdp_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ, rounded down, for which ρ-zCDP implies (ε, δ)-privacy.

    Parameters
    ----------
    epsilon, delta
        What is to be kept.

    Examples
    --------
    >>> 0.0243 < zcdp_rho(Fraction(1), Fraction(1, 10**6)) < 0.0245
    True
    """
    low, high = Fraction(0), Fraction(epsilon)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_delta(middle, epsilon) <= delta else (low, middle)
    return low


def _best_order(rough: Callable[[float], float], around: float) -> float:
    """A Rényi order near the minimum of a unimodal function; any order gives a valid bound."""
    low, high = math.log(max(around, 1e-9)) - 12, math.log(max(around, 1e-9)) + 12
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if rough(1 + math.exp(left)) < rough(1 + math.exp(right)):
            high = right
        else:
            low = left
    return 1 + math.exp((low + high) / 2)
