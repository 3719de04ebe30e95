"""Compiled draws: decided in floating point with a proved error bound, or handed back as undecided.

Laplace loops are free of branches so that the compiler can use vector instructions. The bounds behind
LEAST_LEADING, ERROR, SURELY_KEPT, BOUNDARY_ERROR and TEST_ERROR are derived in docs/proofs/noise_laplace.md and
noise_gaussian.md.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import types
from numba.extending import intrinsic

from tidegate.compiled import kernel, lean

# Compiled code has machine types, which annotations cannot name: int64, uint64 and contiguous arrays of them.
Int64: TypeAlias = Any
Word: TypeAlias = Any
Array: TypeAlias = Any

# The result of a draw that must be decided by the reference.
UNDECIDED = -(1 << 63)
# The result of an attempt that was certainly rejected: the next attempt decides.
REJECTED = UNDECIDED + 1

# Below this many units of 2^-63 the leading 63 bits of a uniform number say too little about its logarithm.
LEAST_LEADING = 1 << 43
# Error of scale · ln, relative to the scale: 2^-43 for the unknown bits, less than 2^-43 for the arithmetic.
ERROR = 2.0**-42
# Error of a Gaussian boundary in units of 2^-63, with the unknown bits of the number that is compared with it.
BOUNDARY_ERROR = 1 << 25
# A Gaussian table is looked up by the leading 12 of 63 bits.
GUIDE_SHIFT = 63 - 12
# Error of the computed chance that a Gaussian attempt is kept.
TEST_ERROR = 2.0**-34
LARGEST_LEADING = (1 << 63) - 1
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
def laplace_magnitude(leading: int, part: float, factor: float) -> int:
    """The magnitude for a call from Python, which passes 63 bits and takes the sign itself, or UNDECIDED."""
    return int(magnitude_of(np.int64(leading), part, factor))


@lean
def fill_laplace_small(words: Array, scale: float, out: Array) -> int:
    """Draws of one scale ≤ 2^20; returns how many are UNDECIDED."""
    part, factor, _ = constants(scale)
    undecided = 0
    for i in range(out.size):
        value = laplace_small(words[i], part, factor)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@lean
def add_scaled(values: Array, noise: Array, grid: float, out: Array) -> None:
    """(values + noise) · grid."""
    for i in range(out.size):
        out[i] = (values[i] + noise[i]) * grid


@lean
def fill_laplace_large(first: Array, second: Array, part: float, shift: Int64, out: Array) -> int:
    """Draws of one scale part · 2^shift > 2^20; returns how many are UNDECIDED."""
    undecided = 0
    for i in range(out.size):
        value = laplace_large(first[i], second[i], part, _UNIT_63, shift)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@lean
def fill_laplace_each(first: Array, second: Array, scales: Array, out: Array) -> int:
    """Draws with a scale for each; returns how many are UNDECIDED."""
    undecided = 0
    for i in range(out.size):
        part, factor, shift = constants(scales[i])
        value = laplace_any(first[i], second[i], part, factor, shift)
        out[i] = value
        undecided += value == UNDECIDED
    return undecided


@lean
def gaussian_table(sigma: float, sides: int, sums: Array, guide: Array, boundaries: Array) -> None:
    """What draws of the magnitude V, P(V = v) ∝ exp(−v²/(2·sigma²)), look up; sigma ≤ 2^10.

    With two sides V = 0 counts half. boundaries[v] is 2^63 · P(V ≥ v), off by at most BOUNDARY_ERROR and falling to 0 at
    its end; guide[c] is the least V of numbers in the c-th of equal cells. `sums` is room of the same length for sums.
    """
    last = boundaries.size - 2
    # Below 2^-500 all weights are 0 as good as exactly, whatever the inverse.
    inverse = _quotient(1.0, max(sigma, 2.0**-500))
    total = 0.0
    for v in range(last, 0, -1):
        distance = v * inverse
        total += exp_minus(0.5 * distance * distance)
        sums[v] = total
    unit = _quotient(sides * 2.0**63, 1.0 + sides * total)
    boundaries[0] = LARGEST_LEADING
    boundaries[last + 1] = 0
    for v in range(1, last + 1):
        boundaries[v] = np.int64(sums[v] * unit)
    v = 0
    for cell in range(guide.size - 1, -1, -1):
        end = (np.int64(cell) << GUIDE_SHIFT) | ((1 << GUIDE_SHIFT) - 1)  # the last number of the cell
        while end < boundaries[v + 1]:
            v += 1
        guide[cell] = v


@lean
def fill_gaussian(
    words: Array, guide: Array, boundaries: Array, shift: Int64, density: float, slope: Int64, out: Array
) -> Int64:
    """One attempt each at draws of one sigma; returns how many are REJECTED or UNDECIDED.

    Sigma is 2^shift times that of the table, density is 1 over the square of the table's, and slope the same in units of
    2^-38, rounded up. An attempt has one word if shift = 0, else two.
    """
    one, low_bits = np.uint64(1), np.uint64(shift)
    mask = (one << low_bits) - one
    left: Int64 = 0
    for i in range(out.size):
        first = words[0, i]
        leading = np.int64(first >> one)
        negative = -np.int64(first & one)
        # Unsigned places: no processor has to ask whether they count from the end.
        v = np.uint64(guide[first >> np.uint64(GUIDE_SHIFT + 1)])
        # Two steps that need no prediction are nearly always enough.
        v += np.uint64(leading < boundaries[v + one])
        v += np.uint64(leading < boundaries[v + one])
        while leading < boundaries[v + one]:
            v += one
        above = boundaries[v] - leading > BOUNDARY_ERROR
        sure = (leading - boundaries[v + one] >= BOUNDARY_ERROR) & (above | (v == 0))
        high = np.int64(v)
        value: Int64 = (high ^ negative) - negative
        if shift > 0:
            second = words[1, i]
            low = np.int64(second & mask)
            value = ((high << shift) | low) ^ negative
            # exp(−x) ≥ 1 − x, for the largest x with this high part, and 18 bits of the test are nearly always enough.
            room = (1 << 18) - 1 - np.int64(second >> np.uint64(46))
            if (high + 1) * slope > room << 20:
                unit = _from_bits((shift + (1023 - 64)) << 52)  # of the test, which has 64 − shift bits
                distance = (low - negative) * _from_bits((1023 - shift) << 52)
                x = distance * (high + 0.5 * distance) * density
                chance = 1.0 - x * (1.0 - x * (0.5 - x * (1 / 6 - x * (1 / 24))))
                gap = chance - np.int64(second >> low_bits) * unit
                sure &= abs(gap) > TEST_ERROR + unit
                value = value if gap > 0.0 else REJECTED
        value = value if sure else UNDECIDED
        out[i] = value
        left += value <= REJECTED
    return left
