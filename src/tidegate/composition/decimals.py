"""Decimals of 110 digits with a known error, and the roundings that end every computation with them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

_DIGITS = 110
WORK = Context(prec=_DIGITS, Emin=-(10**15), Emax=10**15)
UP = Context(prec=40, rounding=ROUND_CEILING, Emin=-(10**15), Emax=10**15)
DOWN = Context(prec=40, rounding=ROUND_FLOOR, Emin=-(10**15), Emax=10**15)
# covers every rounding of a composition: at most 2^26 operations of relative error 1e-109 each
SLACK = Decimal("1e-60")


def as_decimal(value: Fraction) -> Decimal:
    """The fraction to _DIGITS digits, in the working context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def fraction_up(value: Decimal) -> Fraction:
    """A readable upper bound: 40 digits, rounded up after the slack is added."""
    return Fraction(UP.plus(value + abs(value) * SLACK))


def log_of(value: Fraction) -> float:
    """The natural logarithm, for values far below the smallest float too."""
    return math.log(value.numerator) - math.log(value.denominator)
