"""Optimal composition of pure steps: the exact (ε, δ) of many steps together, rounded up.

A step that is n·u-differentially private is dominated by randomised response with parameter n·u (Kairouz,
Oh, Viswanath 2015), so the worst case of a composition is a sum of independent losses ±n·u, a distribution on
a lattice. Its hockey-stick divergence at ε is the smallest δ for which the composition is (ε, δ)-private.

Everything is computed in decimals of 110 digits, whose operations are correctly rounded, and the accumulated
relative error, far below `SLACK`, is added to the result; docs/proofs/composition.md has the count of operations.
Nothing here knows policies or ledgers.

References
----------
Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", ICML 2015.
Murtagh, Vadhan, "The complexity of computing the optimal composition of differential privacy", TCC 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from tidegate.composition.decimals import DOWN, SLACK, WORK, as_decimal, fraction_up, log_of
from tidegate.errors import InvalidParameter

_BITS = 384  # fixed point of the lattice convolution; one coefficient is at most 2^-_BITS too large
LONGEST_COUNT = 2**17  # beyond this many steps the closed bound replaces the exact sum
LONGEST_LATTICE = 2**14  # beyond this many lattice points sizes are rounded up to a coarser lattice


@lru_cache(maxsize=64)
def _central(count: int) -> Decimal:
    """C(count, ⌊count/2⌋), with a relative error below 2^-400."""
    number = math.comb(count, count // 2)
    shift = max(0, number.bit_length() - 420)
    return Decimal(number >> shift) * Decimal(2) ** shift


def _binomial(count: int, chosen: int) -> Decimal:
    """C(count, chosen) for chosen ≥ count/2, walked from the centre, which alone is costly."""
    number = _central(count)
    for heads in range(count // 2, chosen):
        number = number * (count - heads) / (heads + 1)
    return number


def _homogeneous(count: int, step: Fraction, epsilon: Fraction) -> Decimal:
    """Σ_j C(k,j) p^j q^(k−j) (1 − e^(ε−(2j−k)ε₀)) over j with (2j−k)ε₀ > ε, summed upwards from the first."""
    first = math.floor((epsilon / step + count) / 2) + 1
    if first > count:
        return Decimal(0)
    ratio = (-as_decimal(step)).exp()  # q/p
    weight = _binomial(count, first) * ratio ** (count - first) / (1 + ratio) ** count
    excess = as_decimal(epsilon - (2 * first - count) * step).exp()
    shrink = ratio * ratio
    total = Decimal(0)
    for heads in range(first, count + 1):
        total += weight * (1 - excess)
        weight = weight * (count - heads) / ((heads + 1) * ratio)
        excess *= shrink
        # the next weights fall at least as fast as a geometric series, since (k−j)/(j+1) decreases in j
        if heads % 64 == 0:
            fall = (count - heads - 1) / ((heads + 2) * ratio)
            if fall < Decimal("0.9") and weight * 10 < total * Decimal("1e-70"):
                return total + weight * 10
    return total


def _coarsened(counts: Mapping[int, int], unit: Fraction) -> tuple[dict[int, int], Fraction]:
    """The same multiset on its own lattice, or a larger one: sizes only ever round up."""
    common = math.gcd(*counts)
    reach = sum(size * count for size, count in counts.items()) // common
    widen = common
    if reach > LONGEST_LATTICE:
        room = LONGEST_LATTICE - sum(counts.values())
        widen = common * -(-reach // max(room, 1)) if room > 0 else max(counts)
    coarse: dict[int, int] = {}
    for size, count in counts.items():
        rounded = -(-size // widen)
        coarse[rounded] = coarse.get(rounded, 0) + count
    return coarse, unit * widen


def _fixed_pmf(size: int, count: int, unit: Fraction) -> list[int]:
    """P(i tails among count), times 2^_BITS, rounded up, for randomised responses of size·unit."""
    ratio = (-as_decimal(unit * size)).exp()
    scale = Decimal(2) ** _BITS * (1 + SLACK)
    weight = scale / (1 + ratio) ** count
    weights = []
    for tails in range(count + 1):
        weights.append(int(weight.to_integral_value(rounding=ROUND_CEILING)))
        weight = weight * ratio * (count - tails) / (tails + 1)
    return weights


def _convolve(one: list[int], other: list[int]) -> list[int]:
    """Product of two polynomials with coefficients in [0, 2^_BITS + 1], scaled back and rounded up.

    Kronecker substitution: both become one big integer with a slot a coefficient.
    """
    slot = (2 * _BITS + 2 + min(len(one), len(other)).bit_length() + 7) // 8
    left = int.from_bytes(b"".join(number.to_bytes(slot, "little") for number in one), "little")
    right = int.from_bytes(b"".join(number.to_bytes(slot, "little") for number in other), "little")
    length = len(one) + len(other) - 1
    packed = (left * right).to_bytes(slot * length, "little")
    return [
        (int.from_bytes(packed[index : index + slot], "little") >> _BITS) + 1
        for index in range(0, slot * length, slot)
    ]


def _heterogeneous(counts: Mapping[int, int], unit: Fraction, epsilon: Fraction) -> Decimal:
    """The hockey-stick divergence of a mixed composition, on the lattice of multiples of the unit."""
    sizes, unit = _coarsened(counts, unit)
    reach = sum(size * count for size, count in sizes.items())
    masses = [2**_BITS]  # masses[i]: probability that the loss is (reach − 2i)·unit
    for size, count in sorted(sizes.items()):
        spread = [0] * (size * count + 1)
        spread[::size] = _fixed_pmf(size, count, unit)
        masses = _convolve(masses, spread)
    total = Decimal(0)
    scale = Decimal(2) ** _BITS
    excess = as_decimal(epsilon - reach * unit).exp()
    grow = as_decimal(2 * unit).exp()
    for index, mass in enumerate(masses):
        if (reach - 2 * index) * unit <= epsilon:
            break
        total += Decimal(mass) / scale * (1 - excess)
        excess *= grow
    return total


@lru_cache(maxsize=4096)
def _delta_of(counts: tuple[tuple[int, int], ...], unit: Fraction, epsilon: Fraction) -> Fraction:
    reach = sum(size * count for size, count in counts) * unit
    if reach <= epsilon:
        return Fraction(0)
    steps = sum(count for _, count in counts)
    with localcontext(WORK):
        if len(counts) == 1 and steps <= LONGEST_COUNT:
            bound = _homogeneous(steps, counts[0][0] * unit, epsilon)
        elif steps <= LONGEST_LATTICE:
            bound = _heterogeneous(dict(counts), unit, epsilon)
        else:  # Hoeffding's inequality for the sum of the losses
            mean = sum(count * size * unit * _tanh_up(size * unit / 2) for size, count in counts)
            if mean >= epsilon:
                return Fraction(1)
            square = sum(count * (size * unit) ** 2 for size, count in counts)
            bound = as_decimal(-((epsilon - mean) ** 2) / (2 * square)).exp()
        return min(Fraction(1), fraction_up(bound + Decimal("1e-100")))


def delta_of(counts: Mapping[int, int], unit: Fraction, epsilon: Fraction) -> Fraction:
    """The smallest δ for which a composition of pure steps is (ε, δ)-private, rounded up.

    Parameters
    ----------
    counts
        `counts[n]` steps are n·unit-differentially private.
    unit
        The ε of a step of size 1.
    epsilon
        The ε of the whole.

    Returns
    -------
    An upper bound of the hockey-stick divergence, at most 1e-39 (relative) plus 1e-100 too large; exactly 0
    where plain addition suffices. For mixed sizes whose lattice would exceed `LONGEST_LATTICE` points and for
    more than `LONGEST_COUNT` steps the bound is still valid, but looser.

    Examples
    --------
    >>> delta_of({1: 10}, Fraction(1, 10), Fraction(1))
    Fraction(0, 1)
    >>> float(delta_of({1: 672}, Fraction(1, 1197), Fraction(1, 10))) < 8.5e-9
    True
    """
    if unit <= 0:
        raise InvalidParameter("unit", unit, "greater than 0", "give the ε of a step of size 1")
    kept = tuple(sorted((size, count) for size, count in counts.items() if size and count))
    if any(size < 0 or count < 0 for size, count in kept):
        raise InvalidParameter("counts", dict(counts), "not negative", "count each step once")
    return _delta_of(kept, unit, epsilon)


def _tanh_up(half: Fraction) -> Fraction:
    """tanh, rounded up."""
    with localcontext(WORK):
        tail = as_decimal(-2 * half).exp()
        return min(fraction_up((1 - tail) / (1 + tail) + Decimal("1e-100")), half)


def _round_down(value: Fraction) -> Fraction:
    """The value with 60 significant bits, rounded down."""
    exponent = 60 - (value.numerator.bit_length() - value.denominator.bit_length())
    scale = Fraction(2) ** exponent
    return math.floor(value * scale) / scale


def simple_step(count: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The ε₀ of the closed bound k·ε₀·tanh(ε₀/2) + ε₀·√(2k·ln(1/δ)) ≤ ε, rounded down.

    tanh(ε₀/2) ≤ ε₀/2 turns the bound into a quadratic inequality, which costs a relative ε₀²/12.

    Parameters
    ----------
    count
        The number k of steps that compose.
    epsilon, delta
        What all of them together may lose.

    Examples
    --------
    >>> from fractions import Fraction
    >>> step = simple_step(100, Fraction(1), Fraction("1e-6"))
    >>> Fraction(1, 100) < step < Fraction(1, 10)
    True
    """
    with localcontext(WORK):
        root = (2 * count * -(as_decimal(delta).ln()) * (1 + SLACK)).sqrt()
        solved = (-root + (root * root + 2 * count * as_decimal(epsilon)).sqrt()) / count
        step = _round_down(Fraction(DOWN.plus(solved - abs(solved) * SLACK)))
    return step


@lru_cache(maxsize=1024)
def largest_step(count: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ε₀, rounded down, such that `count` steps of ε₀ are (ε, δ)-private together.

    Never below ε/count, the answer of plain addition.

    Examples
    --------
    >>> round(1 / float(largest_step(672, Fraction("0.1"), Fraction("8.5e-9"))))
    1196
    >>> largest_step(2, Fraction(1), Fraction("1e-9")) >= Fraction(1, 2)
    True
    """
    if count < 1:
        raise InvalidParameter("count", count, "at least 1", "give the number of steps in a window")
    plain = epsilon / count
    if not 0 < delta < 1:
        raise InvalidParameter("delta", delta, "between 0 and 1", "write for example delta='1e-9'")
    low = max(plain, simple_step(count, epsilon, delta))
    if count > LONGEST_COUNT:
        return low

    def excess(step: Fraction) -> tuple[bool, float]:
        """Whether the step is allowed, exactly; and how far it is off, roughly, to guess the next one."""
        found = delta_of({1: count}, step, epsilon)
        return found <= delta, (-math.inf if found == 0 else log_of(found) - log_of(delta))

    low_value, high = excess(low)[1], low * 2
    while (reading := excess(high))[0]:
        low, low_value, high = high, reading[1], high * 2
    high_value = reading[1]
    side = 0
    while (high - low) > low * Fraction(1, 2**52):
        middle = (low + high) / 2
        if -math.inf < low_value < high_value:
            slope = Fraction(low_value / (low_value - high_value))
            middle = low + (high - low) * min(max(slope, Fraction(1, 2**20)), 1 - Fraction(1, 2**20))
        middle = _round_down(middle)
        if not low < middle < high:
            break
        allowed, value = excess(middle)
        if allowed:
            low, low_value = middle, value
            high_value = high_value / 2 if side == 1 else high_value  # Illinois: keep both ends moving
            side = 1
        else:
            high, high_value = middle, value
            low_value = low_value / 2 if side == 2 else low_value
            side = 2
    return low
