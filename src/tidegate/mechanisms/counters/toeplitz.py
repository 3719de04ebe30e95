"""Lower-triangular Toeplitz factors A = B·C with few binary places, and exact norms of their columns."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PLACES = 20  # binary places of C: its integers and those of the stream give exact products


def square_root(series: Values) -> Values:
    """The power series c with c·c = series, for series[0] = 1.

    Examples
    --------
    >>> square_root(np.ones(4))
    array([1.    , 0.5   , 0.375 , 0.3125])
    """
    count = len(series)
    if bool(np.all(series == 1.0)):
        factors = (2.0 * np.arange(1, count) - 1.0) / (2.0 * np.arange(1, count))
        return np.concatenate([[1.0], np.cumprod(factors)])
    root = np.zeros(count)
    root[0] = 1.0
    for index in range(1, count):
        middle = float(np.dot(root[1:index], root[index - 1 : 0 : -1])) if index > 1 else 0.0
        root[index] = (series[index] - middle) / 2.0
    return root


def rounded(coefficients: Values) -> Integers:
    """C on the grid 2^−PLACES; the first coefficient is exactly 1, so that C is invertible."""
    return np.floor(coefficients * 2.0**PLACES + 0.5).astype(np.int64)


def window_norm(coefficients: Integers, window: int) -> int:
    """The squared norm of the sum of `window` consecutive columns of abs(C), in units of 2^(−2·PLACES), exactly.

    No pattern of changes ±1 within a window moves C·x further, and a part of k steps of a window moves it by at most
    k/window of that square, because the increments grow: see docs/proofs/factorization.md.

    Examples
    --------
    >>> window_norm(np.array([2, 1]), 1), window_norm(np.array([2, 1]), 2)
    (5, 14)
    """
    sums = np.concatenate([[0], np.cumsum(np.abs(coefficients))])
    index = np.arange(len(coefficients) + window - 1)
    upper = sums[np.minimum(index + 1, len(coefficients))]
    lower = sums[np.clip(index + 1 - window, 0, len(coefficients))]
    total = 0
    for start in range(0, len(index), 4096):
        for amount in (upper[start : start + 4096] - lower[start : start + 4096]).tolist():
            total += amount * amount
    return total


@lru_cache(maxsize=8)
def response(coefficients: tuple[int, ...], answer: tuple[float, ...] | None, count: int) -> Values:
    """The first `count` coefficients of B = A·C⁻¹; A is the sum where no answer is given."""
    from scipy.signal import fftconvolve  # slow to import, needed here only

    c = np.array(coefficients[:count], dtype=np.float64) * 2.0**-PLACES
    inverse = np.ones(1)
    while len(inverse) < count:  # Newton: each round doubles the number of right coefficients
        length = min(2 * len(inverse), count)
        residual = -fftconvolve(c[:length], inverse)[:length]
        residual[0] += 2.0
        inverse = fftconvolve(inverse, residual)[:length]
    result: Values = np.cumsum(inverse) if answer is None else fftconvolve(inverse, np.array(answer))[:count]
    return result
