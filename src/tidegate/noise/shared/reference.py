"""Exact draws of noise shared by steps, in plain integers: slow, readable, the definition of right.

Like `tidegate.noise.reference`: a draw reads the words of its element in order, a uniform real number is
known by its leading bits, and more are read exactly when the known ones leave a comparison open. See
docs/proofs/noise_cube.md and noise_semiorder.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

from tidegate.noise.reference import (
    ACCEPT_BITS,
    WORD_BITS,
    Bounds,
    UniformReal,
    exp_bounds,
    exponential,
    invert,
    two_parts,
)
from tidegate.noise.shared.lattice import numerators, points

# Up to this many dimensions a radius is a sum of geometric variables, beyond it is drawn by rejection.
MOST_SUMMED = 64

_ONES = (1 << WORD_BITS) - 1

# For each of some ascending numbers F in (0, 1] an integer low with low ≤ 2^bits · F < low + 2.
Ladder = Callable[[int], Sequence[int]]


def choose(ladder: Ladder, words: Iterator[int]) -> int:
    """The first index whose boundary is above a uniform real number; the last boundary is 1.

    Boundaries may be any real numbers: where an enclosure leaves the comparison open, the number gets 64 more
    bits and the boundaries too, and this ends with probability 1.
    """
    leading, bits = next(words), WORD_BITS
    while True:
        boundaries = ladder(bits)
        for index, low in enumerate(boundaries):
            if leading < low or index == len(boundaries) - 1:
                return index
            if leading < low + 2:
                break
        leading, bits = (leading << WORD_BITS) | next(words), bits + WORD_BITS


def remainder_ladder(columns: int, length: int, scale: Fraction) -> Ladder:
    """The boundaries of I, P(I = i) ∝ b_i·q^i with the numbers of `numerators` and q = exp(−1/scale)."""
    weights = numerators(columns, length)
    if min(weights) < 0:
        raise ArithmeticError("a numerator is negative")

    @lru_cache(maxsize=4)
    def ladder(bits: int) -> tuple[int, ...]:
        # The first weight is 1, so relative and absolute errors of the sums are alike.
        precision = bits + 8 + max(weights).bit_length() + len(weights).bit_length()
        lows, highs = [0], [0]
        for i, weight in enumerate(weights):
            low, high = exp_bounds(i / scale, precision) if i else (1 << precision,) * 2
            lows.append(lows[-1] + weight * low)
            highs.append(highs[-1] + weight * high)
        found = []
        for i in range(1, len(weights)):
            low = (lows[i] << bits) // (lows[i] + highs[-1] - highs[i])
            # An upper bound is below low + 2 if its whole part is.
            if (highs[i] << bits) // (highs[i] + lows[-1] - lows[i]) >= low + 2:
                raise ArithmeticError("the boundaries of a remainder are not tight")
            found.append(low)
        return (*found, 1 << bits)

    return ladder


def geometric(scale: Fraction, shift: int, words: Iterator[int]) -> int:
    """A variable with P(G ≥ v) = exp(−v/scale); an attempt has one leading word if shift = 0, else two.

    With shift = k > 0 it is V·2^k + U as for Laplace draws; a rejected U is followed by another attempt.
    """
    part = scale / (1 << shift)
    while True:
        leading = [next(words) for _ in range(2 if shift else 1)]
        uniform = UniformReal(leading[0] >> 1, WORD_BITS - 1, words)
        high = invert(uniform, part, lambda v: exponential(v / part))
        if shift == 0:
            return high
        low = leading[1] & ((1 << shift) - 1)
        keep = UniformReal(leading[1] >> (WORD_BITS - ACCEPT_BITS), ACCEPT_BITS, words)
        if low == 0 or keep.below(exponential(low / scale)):
            return (high << shift) + low


def radius(columns: int, length: int, scale: Fraction, variables: Sequence[Iterator[int]]) -> int:
    """The radius j of a group, P(j) ∝ points(columns, j)^length · exp(−j/scale).

    The sum of the remainder I and of n + 1 geometric variables, n = columns · length, each from the words of
    its own; above MOST_SUMMED dimensions by rejection from the words of the first variable.
    """
    dimensions = columns * length
    if dimensions > MOST_SUMMED:
        return radius_by_rejection(columns, length, scale, variables[0])
    shift = two_parts(scale)
    total = choose(remainder_ladder(columns, length, scale), variables[0])
    for words in variables[1 : dimensions + 2]:
        total += geometric(scale, shift, words)
    return total


def log_bounds(value: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """An enclosure of ln(value), value > 0, of width below 2^-bits·(1 + |log2 value|).

    value = 2^e·f with f in [2/3, 4/3], and ln f = 2·atanh((f − 1)/(f + 1)), ln 2 = 2·atanh(1/3).
    """
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    f = value / Fraction(2) ** exponent
    if f > Fraction(4, 3):
        exponent, f = exponent + 1, f / 2
    elif f < Fraction(2, 3):
        exponent, f = exponent - 1, f * 2
    low, high = _atanh((f - 1) / (f + 1), bits + 4)
    two_low, two_high = _atanh(Fraction(1, 3), bits + 4)
    if exponent < 0:
        two_low, two_high = two_high, two_low
    return 2 * (low + exponent * two_low), 2 * (high + exponent * two_high)


def _atanh(z: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """An enclosure of z + z³/3 + z⁵/5 + … for |z| ≤ 1/3, of width below 2^-bits."""
    sign, z = (-1, -z) if z < 0 else (1, z)
    precision = bits + 16
    power = (z.numerator << precision) // z.denominator
    square = (z.numerator**2 << precision) // z.denominator**2
    total, index = 0, 1
    while power:
        total += power // index
        power = power * square >> precision
        index += 2
    # A power is too small by less than 2 units, a term by less than 3, and what is left out is below 2.
    slack = 3 * index + 2
    unit = Fraction(1, 1 << precision)
    bounds = sorted((sign * total * unit, sign * (total + slack) * unit))
    return bounds[0], bounds[1]


def _certain_sign(enclosure: Callable[[int], tuple[Fraction, Fraction]]) -> int:
    """The sign of a number that is not 0."""
    bits = 64
    while True:
        low, high = enclosure(bits)
        if low > 0 or high < 0:
            return 1 if low > 0 else -1
        bits *= 2


def _log_ratio(
    columns: int, length: int, scale: Fraction, j: int, i: int, bits: int
) -> tuple[Fraction, Fraction]:
    """An enclosure of ln(p(j)/p(i)), p(j) = points(j)^length · exp(−j/scale)."""
    ratio = Fraction(points(columns, j), points(columns, i))
    low, high = log_bounds(ratio, bits + length.bit_length() + abs(j.bit_length() - i.bit_length()) + 8)
    drift = (j - i) / scale
    return length * low - drift, length * high - drift


@lru_cache(maxsize=64)
def mode(columns: int, length: int, scale: Fraction) -> tuple[int, int]:
    """(M, b): p is largest at M and at most half as large 2^b further on either side (0 below zero)."""

    def rises(j: int) -> bool:
        return _certain_sign(lambda bits: _log_ratio(columns, length, scale, j + 1, j, bits)) > 0

    def half(j: int, peak: int) -> bool:
        def enclosure(bits: int) -> tuple[Fraction, Fraction]:
            low, high = _log_ratio(columns, length, scale, j, peak, bits)
            two_low, two_high = log_bounds(Fraction(2), bits)
            return low + two_low, high + two_high

        return j < 0 or _certain_sign(enclosure) < 0

    above = 1
    while rises(above):
        above *= 2
    below = -1  # p rises up to and including `below`, and does not rise at `above`
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if rises(middle) else (below, middle)
    width = 0
    while not (half(above + (1 << width), above) and half(above - (1 << width), above)):
        width += 1
    return above, width


def radius_by_rejection(columns: int, length: int, scale: Fraction, words: Iterator[int]) -> int:
    """The radius of a group of any size, by rejection from stairs that halve every 2^b integers from the mode.

    An attempt reads four words: side, place on the stair, stair, test; then more if these leave it open.
    """
    peak, width = mode(columns, length, scale)
    while True:
        side, place, stair_word, test = (next(words) for _ in range(4))
        stair = 0
        while stair_word == _ONES:
            stair, stair_word = stair + WORD_BITS, next(words)
        stair += WORD_BITS - (stair_word ^ _ONES).bit_length()
        distance = (stair << width) + (place & ((1 << width) - 1))
        j = peak + distance if side & 1 else peak - 1 - distance
        if j == peak:
            return j
        if j >= 0 and UniformReal(test, WORD_BITS, words).below(
            _acceptance(columns, length, scale, j, peak, stair)
        ):
            return j


def _acceptance(columns: int, length: int, scale: Fraction, j: int, peak: int, stair: int) -> Bounds:
    """2^stair · p(j)/p(peak), a number in (0, 1) that is not rational."""

    def bounds(bits: int) -> tuple[int, int]:
        low, high = _log_ratio(columns, length, scale, j, peak, bits + 8)
        two_low, two_high = log_bounds(Fraction(2), bits + 8 + stair.bit_length())
        depth_low, depth_high = -(high + stair * two_high), -(low + stair * two_low)
        return exp_bounds(depth_high, bits)[0], exp_bounds(max(depth_low, Fraction(0)), bits)[1]

    return bounds


def below_count(word: int, count: int) -> int | None:
    """A uniform integer in {0, …, count − 1} from one word, or None where the word must be rejected.

    The leading 64 bits of word · count; of the words that lead to one result all but the same number
    2^64 // count are rejected.
    """
    product = word * count
    if product & ((1 << WORD_BITS) - 1) < (1 << WORD_BITS) % count:
        return None
    return product >> WORD_BITS


def in_interval(radius: int, words: Iterator[int]) -> int:
    """A uniform integer in {−radius, …, radius}; the highest word gives 0, as in every other draw."""
    while (found := below_count(next(words), 2 * radius + 1)) is None:
        pass
    return found + 1 if found < radius else found - 2 * radius


def in_ball(radius: int, columns: Sequence[Iterator[int]]) -> list[int]:
    """A uniform integer vector whose absolute values add up to at most the radius.

    An attempt reads one word of each column: a sign and a place in {0, …, radius + d − 1}. The gaps between
    d different places in ascending order are the absolute values; minus zero is rejected. The places of
    column c are turned by c + 1, so that the highest words give 0.
    """
    d = len(columns)
    while True:
        drawn = [below_count(next(words), 2 * (radius + d)) for words in columns]
        numbers = [found for found in drawn if found is not None]
        if len(numbers) < d:
            continue
        places = sorted(((number >> 1) + c + 1) % (radius + d) for c, number in enumerate(numbers))
        gaps = [place - before - 1 for place, before in zip(places, [-1, *places], strict=False)]
        negative = [number & 1 == 0 for number in numbers]
        if min(gaps) < 0 or any(gap == 0 and minus for gap, minus in zip(gaps, negative, strict=True)):
            continue
        return [-gap if minus else gap for gap, minus in zip(gaps, negative, strict=True)]


def rounded_sum(gaps: Sequence[UniformReal], scale: Fraction) -> int:
    """⌊½ + scale · Σ −ln u⌋ of some uniform numbers, each learning more bits as needed.

    The largest v with v = 0 or Π u < exp(−(v − ½)/scale). The product is known by that of the known intervals;
    where the comparison is open, the number that is known worst is extended.
    """
    depth = sum(gap.bits * math.log(2) - math.log(gap.leading + 1) for gap in gaps)
    value = int(depth * float(scale) + 0.5)
    while True:
        while value > 0 and _product_side(gaps, (value - Fraction(1, 2)) / scale) >= 0:
            value -= 1
        while (side := _product_side(gaps, (value + Fraction(1, 2)) / scale)) < 0:
            value += 1
        if side > 0:
            return value
        min(gaps, key=lambda gap: gap.leading).extend()


def _product_side(gaps: Sequence[UniformReal], exponent: Fraction) -> int:
    """−1 if Π u is certainly below exp(−exponent), 1 if certainly not, 0 if not yet known; exponent > 0."""
    bits = sum(gap.bits for gap in gaps)
    start = math.prod(gap.leading for gap in gaps)
    end = math.prod(gap.leading + 1 for gap in gaps)
    # About as many bits as are known of the product; its leading zeros are those of the boundary.
    precision = bits - end.bit_length() + max(gap.bits for gap in gaps) + 32
    while True:
        low, high = exp_bounds(exponent, precision)
        if precision >= bits:
            known_start, known_end = start << (precision - bits), end << (precision - bits)
        else:
            low, high = low << (bits - precision), high << (bits - precision)
            known_start, known_end = start, end
        if known_end <= low:
            return -1
        if high <= known_start:
            return 1
        if (known_start < low or start == 0) and high < known_end:
            return 0
        precision += WORD_BITS
