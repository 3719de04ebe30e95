"""How many integer points a ball has, and the numbers that turn this into sums of geometric variables."""

from __future__ import annotations

import math
from functools import lru_cache


def points(columns: int, radius: int) -> int:
    """The number of integer vectors of this many columns whose absolute values add up to at most the radius.

    Choose the i columns that are not zero, their signs, and i cuts of {1, …, radius}.

    Examples
    --------
    >>> [points(1, j) for j in range(4)], [points(2, j) for j in range(4)]
    ([1, 3, 5, 7], [1, 5, 13, 25])
    """
    few = min(columns, radius)
    return sum(math.comb(columns, i) * math.comb(radius, i) << i for i in range(few + 1))


@lru_cache(maxsize=256)
def numerators(columns: int, length: int) -> tuple[int, ...]:
    """The integers b with Σ points(j)^length · q^j = Σ b_i·q^i / (1 − q)^(n + 1), n = columns · length.

    points(j)^length is a polynomial of degree n in j, so its generating function times (1 − q)^(n + 1) has no
    power above n. For one column they are the Eulerian numbers of type B.

    Examples
    --------
    >>> numerators(1, 3), numerators(2, 1)
    ((1, 23, 23, 1), (1, 2, 1))
    """
    degree = columns * length
    values = [points(columns, j) ** length for j in range(degree + 1)]
    signs = [(-1) ** r * math.comb(degree + 1, r) for r in range(degree + 1)]
    return tuple(
        sum(sign * value for sign, value in zip(signs, reversed(values[: i + 1]), strict=False))
        for i in range(degree + 1)
    )
