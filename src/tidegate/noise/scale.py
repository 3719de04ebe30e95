"""Noise scales: float64 numbers, taken as the exact rational numbers that they are."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import float_up
from tidegate.noise import kernels

ScaleLike = float | Fraction | npt.NDArray[np.float64]

# Up to here a draw fits in 64 bits but for a chance of exp(−127), less than 2^-183.
LARGEST = 2.0**56
_RANGE = "a number above 0 and at most 2^56 grid units"
_REMEDY = "use a finite positive scale, a coarser grid or a larger epsilon"


@dataclass(frozen=True)
class Scale:
    """One noise scale in grid units with what the compiled draws need to know of it.

    `value` is the float64 that is used; it is exactly the number `exact`, never below what was asked for.

    Attributes
    ----------
    value
        The float64 that is used.
    exact
        The same number as a fraction.
    part, shift
        The scale is part · 2^shift with part ≤ 2^20 and the least shift ≥ 0.

    Examples
    --------
    >>> from tidegate.noise import laplace, current
    >>> laplace(current(), "example", 1, 2.5, (3,)).shape
    (3,)
    """

    value: float
    exact: Fraction
    part: float
    shift: int

    @cached_property
    def factor(self) -> float:
        """What a single draw multiplies a uniform number by; see `kernels.constants`, which is compiled for it."""
        return float(kernels.constants(self.value)[1])


def check_scale(scale: float, name: str = "scale") -> None:
    """Refuse a scale that noise cannot be drawn for, before anything is charged for it; nothing is compiled.

    Parameters
    ----------
    scale
        The scale in grid units.
    name
        What messages call it.

    Examples
    --------
    >>> check_scale(1e20)
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: scale=1e+20 is refused: scale must be a number above 0 and at most 2^56 ...
    """
    if not 0.0 < scale <= LARGEST:
        raise InvalidParameter(name, scale, _RANGE, _REMEDY)


def read(scale: float | Fraction, name: str = "scale") -> float:
    """The float64 that is used for a scale; a fraction that is not a float64 is rounded up. Nothing is compiled."""
    if isinstance(scale, bool | np.bool) or not isinstance(scale, numbers.Real):
        raise InvalidParameter(name, scale, _RANGE, _REMEDY)
    if isinstance(scale, numbers.Rational):
        fraction = Fraction(int(scale.numerator), int(scale.denominator))
        value = float_up(fraction) if 0 < fraction <= LARGEST else math.nan
    else:
        value = float(scale)
    if math.isnan(value):
        raise InvalidParameter(name, scale, _RANGE, _REMEDY)
    check_scale(value, name)
    return value


@lru_cache(maxsize=4096, typed=True)
def prepare(scale: float | Fraction, name: str = "scale") -> Scale:
    """Read a scale; a fraction that is not a float64 is rounded up.

    Examples
    --------
    >>> prepare(Fraction(1, 3)).exact >= Fraction(1, 3)
    True
    >>> prepare(0.0)
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: scale=0.0 is refused: scale must be a number above 0 ...
    """
    value = read(scale, name)
    # 2^(n−1) < scale ≤ 2^n, where frexp has 2^(n−1) ≤ scale < 2^n
    shift = max(math.frexp(math.nextafter(value, 0.0))[1] - 20, 0)
    return Scale(value, Fraction(value), math.ldexp(value, -shift), shift)


def prepare_each(
    scales: npt.NDArray[np.float64], shape: tuple[int, ...], name: str = "scale"
) -> npt.NDArray[np.float64]:
    """Read an array of scales, broadcast to a shape and flattened."""
    given = np.asarray(scales)
    if given.dtype.kind not in "fiu":
        raise InvalidParameter(
            name, given.dtype, "an array of float64", "convert it with numpy.asarray(…, float)"
        )
    # Integers beyond 2^53 would be rounded to nearest, perhaps down.
    each = given.astype(np.float64)
    if given.dtype.kind != "f" and np.any(np.abs(each) > 2.0**53):
        raise InvalidParameter(
            name, "integers above 2^53", "an array of float64", "pass float64 scales, rounded up"
        )
    if not np.all((each > 0.0) & (each <= LARGEST)):
        raise InvalidParameter(name, "an array with an element out of range", _RANGE, _REMEDY)
    try:
        # A broadcast view cannot be written to, for which the kernels would be compiled once more.
        full = each if each.shape == shape else np.array(np.broadcast_to(each, shape))
    except ValueError:
        raise InvalidParameter(
            name, f"an array of shape {given.shape}", f"broadcastable to {shape}", "give one scale per column"
        ) from None
    return np.ascontiguousarray(full).reshape(-1)
