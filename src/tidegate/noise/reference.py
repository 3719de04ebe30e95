"""Exact discrete Laplace and Gaussian draws in plain integers: slow, readable, the definition of right.

A draw consumes 64-bit words of its element in order. A uniform real number is known by its leading bits and
gets 64 more from the next word exactly when the bits known so far leave a comparison open. Comparisons with
exp(−x) are decided by intervals of integers that shrink until they no longer overlap; they always end,
because exp(−x) is irrational for rational x > 0. See docs/proofs/noise_laplace.md and noise_gaussian.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

# Scales above 2^20 are drawn in two parts, |X| = V·2^k + U.
SMALL_EXPONENT = 20
# Bits of the second word that decide whether U is kept; the low bits are U itself.
ACCEPT_BITS = 24
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


def two_parts(scale: Fraction) -> int:
    """The k of |X| = V·2^k + U: the least k ≥ 0 with scale/2^k ≤ 2^20."""
    k = 0
    while scale > 1 << (SMALL_EXPONENT + k):
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


def gaussian(sigma: Fraction, words: Iterator[int]) -> int:
    """One draw of the discrete Gaussian distribution, P(k) ∝ exp(−k²/(2·sigma²)).

    Rejection from the discrete Laplace distribution of scale sigma (Canonne, Kamath and Steinke 2020, with
    t = sigma): a proposal y is kept with probability exp(−(|y|/sigma − 1)²/2). An attempt reads the leading
    words of a Laplace draw, then the word of its test, then the words for further bits.

    Parameters
    ----------
    sigma
        Any rational number > 0.
    words
        The element's own sequence of independent uniform 64-bit words.
    """
    shift = two_parts(sigma)
    while True:
        leading = [next(words) for _ in range(2 if shift else 1)]
        test = UniformReal(next(words), WORD_BITS, words)
        proposal = _attempt(sigma, shift, leading, words)
        if proposal is None:
            continue
        distance = abs(proposal) / sigma - 1
        if distance == 0 or test.below(exponential(distance * distance / 2)):
            return proposal
