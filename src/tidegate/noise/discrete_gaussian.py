"""Exact discrete Gaussian noise on the integers, P(k) ∝ exp(−k²/(2·sigma²)), in grid units.

Rejection from the discrete Laplace distribution in compiled rounds; what the kernel cannot decide goes to
`tidegate.noise.reference` with the same random words. See docs/proofs/noise_gaussian.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.noise import kernels, reference
from tidegate.noise.discrete_laplace import ARRAYS, BLOCK, Integers, attempt, element_words, fit, layout
from tidegate.noise.entropy import Elements, Source, Words
from tidegate.noise.scale import Scale, ScaleLike, prepare, prepare_each


def gaussian(
    source: Source, stream: str, step: int, sigma: ScaleLike, shape: tuple[int, ...] = ()
) -> Integers:
    """Draw exact discrete Gaussian noise.

    Parameters
    ----------
    source, stream, step, shape
        As for `laplace`.
    sigma
        In grid units, one number or an array, as `laplace` takes its scale. The variance is below sigma² by a little
        (Canonne, Kamath and Steinke 2020, Corollary 9).

    Examples
    --------
    >>> from tidegate.noise import current
    >>> gaussian(current(), "example", 0, 2.5, (3, 2)).shape
    (3, 2)
    """
    size, draws = layout(shape)
    out = np.empty(size, dtype=np.int64)
    if isinstance(sigma, ARRAYS) and np.ndim(sigma):
        each = prepare_each(np.asarray(sigma), shape, "sigma")
        # Attempts are one word shorter at small scales, so the two kinds keep step separately.
        large = each > 1 << reference.SMALL_EXPONENT
        for chosen, count in ((~large, 1), (large, 2)):
            elements = np.flatnonzero(chosen)
            for start in range(0, elements.size, BLOCK):
                _rounds(source, stream, step, draws, each, count, elements[start : start + BLOCK], out)
        return out.reshape(shape)
    prepared = prepare(sigma.item() if isinstance(sigma, np.ndarray) else sigma, "sigma")
    count = 2 if prepared.shift else 1
    if size == 1:
        out.fill(_one(source, stream, step, 0, prepared, count))
        return out.reshape(shape)
    for start in range(0, size, BLOCK):
        _rounds(source, stream, step, draws, prepared, count, range(start, min(start + BLOCK, size)), out)
    return out.reshape(shape)


def _one(source: Source, stream: str, step: int, draw: int, sigma: Scale, count: int) -> int:
    """One draw; an attempt takes ``count`` + 1 words."""
    first = 0
    while True:
        taken = [source.word(stream, step, draw, first + i) for i in range(count + 1)]
        value = kernels.gaussian_verdict(attempt(sigma, taken), taken[-1] >> 1, sigma.value)
        if value == kernels.UNDECIDED:
            return _decide(source, stream, step, draw + 1, draw, sigma.exact, first, taken)
        if value != kernels.REJECTED:
            return value
        first += count + 1


def _attempt_all(
    sigma: Scale | npt.NDArray[np.float64], elements: Elements, words: Words, out: Integers
) -> int:
    """One compiled attempt for each element; returns how many have no value yet."""
    left: int
    if not isinstance(sigma, Scale):
        left = kernels.fill_gaussian_each(words[0], words[-2], words[-1], sigma[elements], out)
    elif sigma.shift:
        left = kernels.fill_gaussian_large(
            words[0], words[1], words[2], sigma.part, sigma.factor, sigma.shift, out
        )
    else:
        left = kernels.fill_gaussian_small(words[0], words[1], sigma.part, sigma.factor, out)
    return left


def _rounds(
    source: Source,
    stream: str,
    step: int,
    draws: int,
    sigma: Scale | npt.NDArray[np.float64],
    count: int,
    elements: Elements,
    out: Integers,
) -> None:
    """Attempt after attempt until every element has its value; an attempt takes ``count`` + 1 words."""
    first = 0
    while True:
        words = source.words(stream, step, draws, elements, first, count + 1)
        values = np.empty(len(elements), dtype=np.int64)
        left = _attempt_all(sigma, elements, words, values)
        rejected = values == kernels.REJECTED if left else None
        if rejected is not None and left > np.count_nonzero(rejected):
            for i in np.flatnonzero(values == kernels.UNDECIDED).tolist():
                element = int(elements[i])
                exact = sigma.exact if isinstance(sigma, Scale) else Fraction(float(sigma[element]))
                taken = words[:, i].tolist()
                values[i] = _decide(source, stream, step, draws, element, exact, first, taken)
        if isinstance(elements, range):
            out[elements.start : elements.stop] = values
        else:
            out[elements] = values
        if rejected is None or not rejected.any():
            return
        chosen = np.flatnonzero(rejected)
        elements = chosen + elements.start if isinstance(elements, range) else elements[chosen]
        first += count + 1


def _decide(
    source: Source,
    stream: str,
    step: int,
    draws: int,
    element: int,
    sigma: Fraction,
    first: int,
    taken: list[int],
) -> int:
    """The draw that the kernel left undecided at the attempt whose words start at ``first``."""
    words = element_words(source, stream, step, draws, element, taken, first)
    return fit(reference.gaussian(sigma, words))


# From here on the sums over the integers are their integrals and a few corrections, to the last digit.
_MANY = 32.0


def _moments(sigma: float) -> tuple[float, float]:
    """(E|X|, E X²) by summation."""
    integers = np.arange(1, math.ceil(13 * sigma) + 2, dtype=np.float64)
    weights = np.exp(-0.5 * (integers / sigma) ** 2)
    total = 1.0 + 2.0 * math.fsum(weights)
    return 2.0 * math.fsum(integers * weights) / total, 2.0 * math.fsum(integers**2 * weights) / total


def variance(sigma: float | Fraction) -> float:
    """Var X, a little below sigma².

    Parameters
    ----------
    sigma
        The parameter of the noise.

    Examples
    --------
    >>> variance(100.0), round(variance(0.5), 4)
    (10000.0, 0.215)
    """
    number = float(sigma)
    return _moments(number)[1] if number < _MANY else number * number


def expected_absolute(sigma: float | Fraction) -> float:
    """E|X|, close to √(2/π)·sigma.

    Parameters
    ----------
    sigma
        The parameter of the noise.

    Examples
    --------
    >>> round(expected_absolute(10.0), 4)
    7.9722
    """
    number = float(sigma)
    if number < _MANY:
        return _moments(number)[0]
    # Euler and Maclaurin: Σ k·exp(−k²/2σ²) = σ² − 1/12 − 1/(240·σ²) − …
    return math.sqrt(2 / math.pi) * (number - 1 / (12 * number) - 1 / (240 * number**3))
