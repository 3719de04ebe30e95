"""Exact discrete Laplace and Gaussian draws in plain integers: slow, readable, the definition of right.

A draw consumes 64-bit words of its element in order. A uniform real number is known by its leading bits and
gets 64 more from the next word exactly when the bits known so far leave a comparison open. Comparisons with
exp(−x) are decided by intervals of integers that shrink until they no longer overlap; they always end,
because exp(−x) is irrational for rational x > 0. See docs/proofs/noise_laplace.md and noise_gaussian.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from operator import neg

# Laplace scales above 2^20 are drawn in two parts, |X| = V·2^k + U.
SMALL_EXPONENT = 20
# Bits of the second word that decide whether U is kept; the low bits are U itself.
ACCEPT_BITS = 24
# Gaussian draws have two parts above 2^10.
GAUSSIAN_EXPONENT = 10
WORD_BITS = 64

# Integer bounds (low, high) of 2^bits · y for some real y, for any number of bits.
Bounds = Callable[[int], tuple[int, int]]


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers with low ≤ 2^bits · exp(−exponent) ≤ high, for exponent ≥ 0.

    Taylor's series of exp(−z) for z = exponent/2^halvings ≤ 1/16 (alternating, with falling terms, so that
    consecutive partial sums enclose the value), then squared as often, each step rounded outwards.
    """
    if exponent >= bits:
        return 0, 1
    halvings = max(0, math.ceil(exponent).bit_length() + 4)
    precision = bits + halvings + 32
    one = 1 << precision
    numerator, denominator = exponent.numerator, exponent.denominator << halvings
    z_low = (numerator << precision) // denominator
    z_high = z_low + 1
    low = high = one
    term_low = term_high = one
    index = 0
    while term_high > 1:
        index += 1
        term_low = term_low * z_low // (index << precision)
        term_high = -(-term_high * z_high // (index << precision))
        if index % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    # What the series omits is below its last term, which is at most one unit.
    low, high = max(low - 1, 0), high + 1
    for _ in range(halvings):
        low = low * low >> precision
        high = -(-high * high >> precision)
    extra = precision - bits
    return low >> extra, min(-(-high >> extra), 1 << bits)


class UniformReal:
    """A uniform real number in [0, 1) that is known to lie in [leading, leading + 1)/2^bits."""

    def __init__(self, leading: int, bits: int, words: Iterator[int]) -> None:
        self.leading = leading
        self.bits = bits
        self._words = words

    def extend(self) -> None:
        """Learn 64 more bits."""
        self.leading = (self.leading << WORD_BITS) | next(self._words)
        self.bits += WORD_BITS

    def side(self, bounds: Bounds) -> int:
        """−1 if certainly below an irrational boundary in (0, 1), 1 if above, 0 if not yet known."""
        precision = self.bits + 32
        while True:
            low, high = bounds(precision)
            scale = precision - self.bits
            start, end = self.leading << scale, (self.leading + 1) << scale
            if end <= low:
                return -1
            if high <= start:
                return 1
            # Boundaries are above 0, however little: no precision need show that.
            if (start < low or start == 0) and high < end:
                return 0
            precision += 64

    def below(self, bounds: Bounds) -> bool:
        """Whether the number is below an irrational boundary, learning more bits as needed."""
        while (side := self.side(bounds)) == 0:
            self.extend()
        return side < 0


def two_parts(scale: Fraction, exponent: int = SMALL_EXPONENT) -> int:
    """The k of |X| = V·2^k + U: the least k ≥ 0 with scale/2^k ≤ 2^exponent."""
    k = 0
    while scale > 1 << (exponent + k):
        k += 1
    return k


def _tail(scale: Fraction, value: int) -> Bounds:
    """P(|X| ≥ value) = 2·q^value/(1 + q), q = exp(−1/scale), for value ≥ 1."""

    def bounds(bits: int) -> tuple[int, int]:
        q_low, q_high = exp_bounds(1 / scale, bits)
        power_low, power_high = exp_bounds(value / scale, bits)
        one = 1 << bits
        return (2 * power_low << bits) // (one + q_high), -((-2 * power_high << bits) // (one + q_low))

    return bounds


def exponential(exponent: Fraction) -> Bounds:
    """The boundary exp(−exponent)."""
    return lambda bits: exp_bounds(exponent, bits)


def invert(uniform: UniformReal, scale: Fraction, tail: Callable[[int], Bounds]) -> int:
    """The largest v with v = 0 or uniform < tail(v), where tail falls by exp(−1/scale) from step to step."""
    while True:
        # A guess in floating point, from the upper end of what is known; exact comparisons correct it.
        depth = uniform.bits * math.log(2) - math.log(uniform.leading + 1)
        value = int(depth * float(scale))
        while value > 0 and uniform.side(tail(value)) >= 0:
            value -= 1
        while (side := uniform.side(tail(value + 1))) < 0:
            value += 1
        if side > 0:
            return value
        uniform.extend()


def _attempt(scale: Fraction, shift: int, leading: list[int], words: Iterator[int]) -> int | None:
    """One attempt at a Laplace draw from its leading words; None if it is rejected."""
    first = leading[0]
    uniform = UniformReal(first >> 1, 63, words)
    if shift == 0:
        magnitude = invert(uniform, scale, lambda v: _tail(scale, v))
        return -magnitude if first & 1 else magnitude
    part = scale / (1 << shift)
    high = invert(uniform, part, lambda v: exponential(v / part))
    low = leading[1] & ((1 << shift) - 1)
    keep = UniformReal(leading[1] >> (WORD_BITS - ACCEPT_BITS), ACCEPT_BITS, words)
    if low > 0 and not keep.below(exponential(low / scale)):
        return None
    magnitude = (high << shift) + low
    if magnitude == 0 and first & 1:
        return None  # zero has one sign only
    return -magnitude if first & 1 else magnitude


def laplace(scale: Fraction, words: Iterator[int]) -> int:
    """One draw of the discrete Laplace distribution, P(k) ∝ exp(−|k|/scale).

    An attempt reads one leading word if scale ≤ 2^20, else two; then the words that it needs for further
    bits, in the order of need; a rejected attempt is followed by another one.

    Parameters
    ----------
    scale
        Any rational number > 0.
    words
        The element's own sequence of independent uniform 64-bit words.
    """
    shift = two_parts(scale)
    while True:
        leading = [next(words) for _ in range(2 if shift else 1)]
        value = _attempt(scale, shift, leading, words)
        if value is not None:
            return value


@lru_cache(maxsize=16)
def magnitude_bounds(sigma: Fraction, sides: int, bits: int) -> tuple[list[int], list[int]]:
    """Integers with low[v] ≤ 2^bits · P(V ≥ v) ≤ high[v] for v = 1, 2, …, and high ≤ 1 from the end of the lists on.

    P(V = v) ∝ exp(−v²/(2·sigma²)), where V = 0 counts half if there are two sides. Both lists fall, and begin with v = 1.
    """
    precision = bits + 64
    # q^(v²) = q^((v−1)²) · q^(2v−1), where q^(2v−1) is q^(2v−3) · q²; each rounded down, and up
    step = exp_bounds(1 / sigma**2, precision)
    ratio = exp_bounds(1 / (2 * sigma**2), precision)
    weight = (1 << precision, 1 << precision)
    lows, highs = [], []
    while True:
        weight = weight[0] * ratio[0] >> precision, -(-weight[1] * ratio[1] >> precision)
        ratio = ratio[0] * step[0] >> precision, -(-ratio[1] * step[1] >> precision)
        lows.append(weight[0])
        highs.append(weight[1])
        # Ratios fall, so the weights from here on are at most a geometric series.
        rest = -((-weight[1] << precision) // ((1 << precision) - ratio[1]))
        if rest >> (precision - bits - 2) == 0:
            break
    highs[-1] = rest
    low_sums, high_sums = (list(accumulate(reversed(each)))[::-1] for each in (lows, highs))
    one = 1 << precision
    low_whole, high_whole = one + sides * low_sums[0], one + sides * high_sums[0]
    return (
        [(sides * each << bits) // high_whole for each in low_sums],
        [-((-sides * each << bits) // low_whole) for each in high_sums],
    )


def _magnitude(sigma: Fraction, sides: int, uniform: UniformReal) -> int:
    """The V with P(V ≥ V + 1) ≤ uniform < P(V ≥ V): how many boundaries the number is below.

    Bits are read until bounds of 32 more bits decide, so it does not matter whether a boundary can be a binary fraction.
    """
    while True:
        if uniform.leading > 0:
            low, high = magnitude_bounds(sigma, sides, uniform.bits + 32)
            start, end = uniform.leading << 32, (uniform.leading + 1) << 32
            surely = bisect_right(low, -end, key=neg)  # low[v] ≥ end
            perhaps = bisect_left(high, -start, key=neg)  # high[v] > start
            if surely == perhaps:
                return surely
        uniform.extend()


def kept_exponent(sigma: Fraction, high: int, further: int) -> Fraction:
    """The x with exp(−(high + further)²/(2·sigma²)) = exp(−high²/(2·sigma²)) · exp(−x)."""
    return further * (2 * high + further) / (2 * sigma**2)


def gaussian(sigma: Fraction, words: Iterator[int]) -> int:
    """One draw of the discrete Gaussian distribution, P(k) ∝ exp(−k²/(2·sigma²)).

    An attempt reads one leading word if sigma ≤ 2^10, else two; then the words that it needs for further bits, in the
    order of need; a rejected attempt is followed by another one. Above 2^10 the magnitude is V·2^k + U.

    Parameters
    ----------
    sigma
        Any rational number > 0.
    words
        The element's own sequence of independent uniform 64-bit words.
    """
    shift = two_parts(sigma, GAUSSIAN_EXPONENT)
    while True:
        leading = [next(words) for _ in range(2 if shift else 1)]
        uniform, negative = UniformReal(leading[0] >> 1, 63, words), leading[0] & 1
        if shift == 0:
            magnitude = _magnitude(sigma, 2, uniform)
            return -magnitude if negative else magnitude
        high = _magnitude(sigma / (1 << shift), 1, uniform) << shift
        low = leading[1] & ((1 << shift) - 1)
        test = UniformReal(leading[1] >> shift, WORD_BITS - shift, words)
        further = low + negative  # negative values begin with −1
        if further == 0 or test.below(exponential(kept_exponent(sigma, high, further))):
            return -(high + further) if negative else high + further
