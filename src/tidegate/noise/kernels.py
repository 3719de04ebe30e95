"""Compiled draws: decided in floating point with a proved error bound, or handed back as undecided.

Every loop is free of branches so that the compiler can use vector instructions. The bounds behind
LEAST_LEADING, ERROR, EXP_ERROR and SURELY_KEPT are derived in docs/proofs/noise_laplace.md and
noise_gaussian.md.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types
from numba.extending import intrinsic

from tidegate.compiled import kernel

# Compiled code has machine types, which annotations cannot name: int64, uint64 and contiguous arrays of them.
Int64: TypeAlias = Any
Word: TypeAlias = Any
Array: TypeAlias = Any

# The result of a draw that must be decided by the reference.
UNDECIDED = -(1 << 63)
# The result of a Gaussian attempt that was certainly rejected: the next attempt decides.
REJECTED = UNDECIDED + 1

# Below this many units of 2^-63 the leading 63 bits of a uniform number say too little about its logarithm.
LEAST_LEADING = 1 << 43
# Error of scale · ln, relative to the scale: 2^-43 for the unknown bits, less than 2^-43 for the arithmetic.
ERROR = 2.0**-42
# Error of the computed acceptance probability of a Gaussian proposal, with the unknown bits of the test.
EXP_ERROR = 2.0**-38
# The low part U is kept with probability exp(−U/scale) > 1 − 2^-19: all 24-bit tests below this pass.
SURELY_KEPT = (1 << 24) - 33

_UNIT_63 = 2.0**-63
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 significant bits: its product with an exponent is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_HALF_ROOT_BITS = 0x3FE6A09E667F3BCD  # the bits of √½
_FRACTION_BITS = 0x000FFFFFFFFFFFFF


def _reinterpret(result: Any, argument: Any) -> Any:
    """An operation that gives the bits of a number another type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return result(argument), generate


def _type_bits(context: Any, number: Any) -> Any:
    """The bits of a float64 as an int64."""
    return _reinterpret(types.int64, types.float64)


def _type_from_bits(context: Any, number: Any) -> Any:
    """The float64 with the bits of an int64."""
    return _reinterpret(types.float64, types.int64)


def _type_quotient(context: Any, numerator: Any, denominator: Any) -> Any:
    """A division without the branch that raises for a zero denominator, which would stop vectorisation."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(arguments[0], arguments[1])

    return types.float64(types.float64, types.float64), generate


_bits: Any = intrinsic(_type_bits)
_from_bits: Any = intrinsic(_type_from_bits)
_quotient: Any = intrinsic(_type_quotient)


@kernel
def log(number: float) -> float:
    """Natural logarithm of a positive normal number; error below 2^-48 for numbers in [2^-30, 1].

    number = 2^e · f with f in [√½, √2), and ln f = 2·atanh(z) with z = (f − 1)/(f + 1), |z| < 0.1716.
    """
    shifted = _bits(number) - _HALF_ROOT_BITS
    exponent = shifted >> 52
    f = _from_bits((shifted & _FRACTION_BITS) + _HALF_ROOT_BITS)
    z = _quotient(f - 1.0, f + 1.0)
    y = z * z
    tail = 1 / 13 + y * (1 / 15 + y * (1 / 17))
    series = 1.0 + y * (1 / 3 + y * (1 / 5 + y * (1 / 7 + y * (1 / 9 + y * (1 / 11 + y * tail)))))
    result: float = exponent * _LN2_HIGH + (exponent * _LN2_LOW + 2.0 * z * series)
    return result


@kernel
def exp_minus(number: float) -> float:
    """exp(−number) for number ≥ 0, relative error below 2^-49; numbers above 700 count as 700."""
    bounded = min(number, 700.0)
    power = np.floor(0.5 - bounded * _LOG2_E)
    r = (-bounded - power * _LN2_HIGH) - power * _LN2_LOW
    tail = 1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r * (1 / 479001600 + r * (1 / 6227020800))))
    middle = 1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * tail)))
    series = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6 + r * (1 / 24 + r * middle))))
    result: float = series * _from_bits((np.int64(power) + 1023) << 52)
    return result


@kernel
def constants(scale: float) -> tuple[float, float, int]:
    """What the draws need to know of a scale in (0, 2^56]: (part, factor, shift).

    The scale is part · 2^shift with part ≤ 2^20 and the least shift ≥ 0. The factor is 2^-63 · (1 + q)/2,
    q = exp(−1/scale), where one word decides a draw (shift = 0), else 2^-63.
    """
    # 2^(n−1) < scale ≤ 2^n makes the biased exponent of the float before it n − 1.
    exponent = ((_bits(scale) - 1) >> 52) - 1022
    shift = max(exponent - 20, 0)
    part = scale * _from_bits((1023 - shift) << 52)
    # A scale below 2^-10 has q < exp(−1024), as good as the exp(−700) that stands for it.
    q = exp_minus(_quotient(1.0, max(scale, 2.0**-10)))
    factor = _UNIT_63 * (0.5 + 0.5 * q) if shift == 0 else _UNIT_63
    return part, factor, shift


@kernel
def magnitude_of(leading: Int64, part: float, factor: float) -> Int64:
    """⌊−part · ln(2^63 · factor · u)⌋ for a uniform u that starts with the 63 leading bits, or UNDECIDED."""
    depth = -part * log(leading * factor)
    value = np.floor(depth)
    rest = depth - value
    error = part * ERROR
    # Zero has no boundary below it.
    sure = (leading >= LEAST_LEADING) & ((rest > error) | (value < 1.0)) & (rest < 1.0 - error)
    return np.int64(value) if sure else UNDECIDED


@kernel
def laplace_small(word: Word, part: float, factor: float) -> Int64:
    """A Laplace draw of scale = part ≤ 2^20 from one word (uint64), or UNDECIDED."""
    magnitude = magnitude_of(np.int64(word >> np.uint64(1)), part, factor)
    negative = -np.int64(word & np.uint64(1))
    # Two's complement negation where the sign bit is set; UNDECIDED is its own negative.
    return (magnitude ^ negative) - negative


@kernel
def laplace_large(first: Word, second: Word, part: float, factor: float, shift: Int64) -> Int64:
    """A Laplace draw of scale part · 2^shift, shift > 0, from two words (uint64), or UNDECIDED."""
    magnitude = magnitude_of(np.int64(first >> np.uint64(1)), part, factor)
    low = np.int64(second) & ((np.int64(1) << shift) - 1)
    kept = np.int64(second >> np.uint64(40)) < SURELY_KEPT
    value = (magnitude << shift) | low
    negative = -np.int64(first & np.uint64(1))
    # Minus zero is rejected, which the reference does.
    sure = kept & (magnitude != UNDECIDED) & ((value | (negative + 1)) != 0)
    return (value ^ negative) - negative if sure else UNDECIDED


@kernel
def laplace_any(first: Word, second: Word, part: float, factor: float, shift: Int64) -> Int64:
    """A Laplace draw of any scale, or UNDECIDED; the second word is ignored if shift = 0."""
    small = laplace_small(first, part, factor)
    large = laplace_large(first, second, part, factor, shift)
    return small if shift == 0 else large


@kernel
def laplace_draw(first: Word, second: Word, part: float, factor: float, shift: Int64) -> tuple[int, bool]:
    """A Laplace draw for the compiled loops of mechanisms: (value, whether it is decided).

    Get part, factor and shift from `constants`. An undecided draw (about one in 2^18) goes back to Python
    with its words, to `tidegate.noise.discrete_laplace.decide`.
    """
    value = laplace_any(first, second, part, factor, shift)
    return value, value != UNDECIDED


@kernel
def laplace_magnitude(leading: int, part: float, factor: float) -> int:
    """The magnitude for a call from Python, which passes 63 bits and takes the sign itself, or UNDECIDED."""
    return int(magnitude_of(np.int64(leading), part, factor))


@kernel
def fill_laplace_small(words: Array, part: float, factor: float, out: Array) -> int:
    """Draws of one scale ≤ 2^20; returns how many are UNDECIDED."""
    undecided = 0
    for i in range(out.size):
        value = laplace_small(words[i], part, factor)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@kernel
def add_scaled(values: Array, noise: Array, grid: float, out: Array) -> None:
    """(values + noise) · grid."""
    for i in range(out.size):
        out[i] = (values[i] + noise[i]) * grid


@kernel
def fill_laplace_large(
    first: Array, second: Array, part: float, factor: float, shift: Int64, out: Array
) -> int:
    """Draws of one scale > 2^20; returns how many are UNDECIDED."""
    undecided = 0
    for i in range(out.size):
        value = laplace_large(first[i], second[i], part, factor, shift)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@kernel
def fill_laplace_each(first: Array, second: Array, scales: Array, out: Array) -> int:
    """Draws with a scale for each; returns how many are UNDECIDED."""
    undecided = 0
    for i in range(out.size):
        part, factor, shift = constants(scales[i])
        value = laplace_any(first[i], second[i], part, factor, shift)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@kernel
def _inverse(sigma: float) -> float:
    """1/sigma, kept finite: below 2^-1000 every proposal that a kernel decides is 0, whatever the inverse."""
    inverse: float = _quotient(1.0, max(sigma, 2.0**-1000))
    return inverse


@kernel
def _test(proposal: Int64, test: Int64, inverse: float) -> Int64:
    """Keep, reject or leave open a Gaussian proposal, by the leading 63 bits of its test and 1/sigma."""
    distance = np.float64(abs(proposal)) * inverse - 1.0
    probability = exp_minus(0.5 * distance * distance)
    gap = np.float64(test) * _UNIT_63 - probability
    decided = proposal if gap < 0.0 else REJECTED
    open_ = (proposal == UNDECIDED) | (abs(gap) <= EXP_ERROR)
    return UNDECIDED if open_ else decided


@kernel
def gaussian_verdict(proposal: int, test: int, sigma: float) -> int:
    """`_test` for a call from Python: the proposal, REJECTED or UNDECIDED."""
    return int(_test(np.int64(proposal), np.int64(test), _inverse(sigma)))


@kernel
def fill_gaussian_small(words: Array, test: Array, part: float, factor: float, out: Array) -> int:
    """One attempt each at draws of one sigma ≤ 2^20; returns how many are REJECTED or UNDECIDED."""
    inverse = _inverse(part)
    left = 0
    for i in range(out.size):
        value = _test(laplace_small(words[i], part, factor), np.int64(test[i] >> np.uint64(1)), inverse)
        out[i] = value
        left += value <= REJECTED
    return left


@kernel
def fill_gaussian_large(
    first: Array, second: Array, test: Array, part: float, factor: float, shift: Int64, out: Array
) -> int:
    """One attempt each at draws of one sigma > 2^20; returns how many are REJECTED or UNDECIDED."""
    inverse = _inverse(part * _from_bits((shift + 1023) << 52))
    left = 0
    for i in range(out.size):
        value = _test(
            laplace_large(first[i], second[i], part, factor, shift),
            np.int64(test[i] >> np.uint64(1)),
            inverse,
        )
        out[i] = value
        left += value <= REJECTED
    return left


@kernel
def fill_gaussian_each(first: Array, second: Array, test: Array, scales: Array, out: Array) -> int:
    """One attempt each at draws with a sigma for each; returns how many are REJECTED or UNDECIDED."""
    # Two loops, because one over both parts is too much for the vectoriser.
    fill_laplace_each(first, second, scales, out)
    left = 0
    for i in range(out.size):
        value = _test(out[i], np.int64(test[i] >> np.uint64(1)), _inverse(scales[i]))
        out[i] = value
        left += value <= REJECTED
    return left
