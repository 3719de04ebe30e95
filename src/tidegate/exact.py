"""Exact numbers: budgets are fractions, and every conversion states its rounding direction."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TypeVar

from tidegate.errors import InvalidParameter

_LONGEST = 1000  # characters, or powers of ten: longer numbers only keep the machine busy
ExactLike = str | int | Fraction | Decimal
Number = TypeVar("Number", float, Fraction)


def exact(name: str, value: ExactLike) -> Fraction:
    """Read an exact number from an int, a Fraction, a Decimal or a string such as "0.1" or "1/3".

    A float is refused, because 0.1 as a float is not one tenth; the message shows the string to write.

    Examples
    --------
    >>> exact("epsilon", "0.1")
    Fraction(1, 10)
    >>> exact("epsilon", 0.1)
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: epsilon=0.1 is refused: ... write epsilon="0.1".
    """
    if isinstance(value, bool):
        raise InvalidParameter(name, value, "a number", f'write {name}="1" for one')
    if isinstance(value, Fraction | int):
        return Fraction(value)
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    if isinstance(value, str):
        found = re.search(r"[eE][+-]?0*(\d+)\s*$", value)
        if len(value) > _LONGEST or (found and (len(found[1]) > 4 or int(found[1]) > _LONGEST)):
            raise InvalidParameter(
                name,
                value[:20] + "…" * (len(value) > 20),
                f"of at most {_LONGEST} digits",
                "write it shorter",
            )
        try:
            return Fraction(value.strip().replace("_", ""))
        except (ValueError, ZeroDivisionError, InvalidOperation):
            raise InvalidParameter(
                name,
                value,
                "a decimal number or a fraction",
                f'write for example {name}="0.5" or {name}="1/3"',
            ) from None
    if isinstance(value, float) and math.isfinite(value):
        raise InvalidParameter(name, value, "exact, and a float is not", f'write {name}="{value!r}"')
    raise InvalidParameter(
        name, value, "an exact finite number", f'write it as a string, for example {name}="0.5"'
    )


def positive(name: str, value: ExactLike, most: int | None = None) -> Fraction:
    """Read an exact number that must be greater than zero, and at most another one."""
    number = exact(name, value)
    if number <= 0:
        raise InvalidParameter(name, value, "greater than 0", f'write for example {name}="1"')
    if most is not None and number > most:
        raise InvalidParameter(name, value, f"at most {most}", f"give a smaller {name}")
    return number


def whole(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """Read an integer in [least, most]; numpy integers are accepted, floats and booleans are not."""
    try:
        if isinstance(value, bool | float):
            raise TypeError
        number = value.__index__()
    except (TypeError, AttributeError):
        raise InvalidParameter(
            name, value, "a whole number", f"write for example {name}={max(least, 1)}"
        ) from None
    if number < least:
        raise InvalidParameter(name, value, f"at least {least}", f"write {name}={least} or more")
    if most is not None and number > most:
        raise InvalidParameter(name, value, f"at most {most}", f"write {name}={most} or less")
    return number


def one_of(name: str, value: object, allowed: Collection[object], remedy: str = "leave it out") -> None:
    """Refuse what is none of the values that are allowed.

    Examples
    --------
    >>> one_of("layout", "long", ("long", "wide"))
    >>> one_of("layout", "tall", ("long", "wide"))
    Traceback (most recent call last):
    ...
    tidegate.errors.InvalidParameter: layout='tall' is refused: layout must be 'long' or 'wide'; leave it out.
    """
    if value not in allowed:
        raise InvalidParameter(name, value, " or ".join(map(repr, allowed)), remedy)


def proper(name: str, value: Number, remedy: str) -> Number:
    """Refuse a number that is not above 0 and below 1."""
    if not 0 < value < 1:
        raise InvalidParameter(name, value, "above 0 and below 1", remedy)
    return value


def float_up(value: Fraction) -> float:
    """The smallest float that is not below the value: for noise scales, which round up.

    Examples
    --------
    >>> float_up(Fraction(1, 3)) >= Fraction(1, 3), float_up(Fraction(10) ** 400)
    (True, inf)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def sqrt_up(value: Fraction) -> float:
    """The smallest float whose square is not below the value; infinite where the value is no float.

    Examples
    --------
    >>> sqrt_up(Fraction(4)), sqrt_up(Fraction(10) ** 400), f"{sqrt_up(Fraction(1, 10**400)):.3g}"
    (2.0, inf, '1e-200')
    """
    # of small values a float may know no digit, so that their root would be looked for among all floats
    half = min(0, (value.numerator.bit_length() - value.denominator.bit_length()) // 2)
    try:
        root = math.ldexp(math.sqrt(value * 4**-half), half)
    except OverflowError:
        return math.inf
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    while root > 0 and Fraction(math.nextafter(root, 0.0)) ** 2 >= value:
        root = math.nextafter(root, 0.0)
    return root


def show(value: Fraction) -> str:
    """Print a fraction as a decimal where that is exact and short, else as p/q.

    Examples
    --------
    >>> show(Fraction(1, 8)), show(Fraction(1, 3)), show(Fraction(5))
    ('0.125', '1/3', '5')
    """
    denominator, twos, fives = value.denominator, 0, 0
    while denominator % 2 == 0:
        denominator //= 2
        twos += 1
    while denominator % 5 == 0:
        denominator //= 5
        fives += 1
    places = max(twos, fives)
    if denominator != 1 or places > 12:
        return str(value)
    scaled = abs(value.numerator) * 10**places // value.denominator
    digits = str(scaled).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)
