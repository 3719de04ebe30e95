"""The deviation of counts from their mean: the readable form of what the compiled Grouper computes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def deviation(counts: Sequence[int]) -> Fraction:
    """Σ|c − mean|, exactly (PeGaSus paper, section 3.2).

    Changing one of n integer counts by a whole number a changes it by at most 2·|a|·(n − 1)/n, less than
    2·|a|.

    Examples
    --------
    >>> deviation([5, 5, 6]), deviation([5, 5, 6, 9])
    (Fraction(4, 3), Fraction(11, 2))
    """
    mean = Fraction(sum(counts), len(counts))
    return sum((abs(count - mean) for count in counts), Fraction(0))


def whole_deviation(counts: Sequence[int]) -> int:
    """The deviation rounded down to a whole number, from integers only.

    Rounding down keeps the sensitivity: numbers less than 2a apart have floors at most 2a apart, if 2a is
    whole.

    Examples
    --------
    >>> whole_deviation([5, 5, 6]), whole_deviation([5, 5, 6, 9])
    (1, 5)
    """
    size, total = len(counts), sum(counts)
    return sum(abs(size * count - total) for count in counts) // size


def clip(count: int, bound: int) -> int:
    """The count, moved into [−bound, bound]; this brings no two counts further apart."""
    return max(-bound, min(bound, count))
