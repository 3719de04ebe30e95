"""Exact discrete Gaussian noise on the integers, P(k) ∝ exp(−k²/(2·sigma²)), in grid units.

The magnitude, or its high part, is looked up in a table of the scale, which is public; what the compiled kernel cannot
decide goes to `tidegate.noise.reference` with the same random words. See docs/proofs/noise_gaussian.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.noise import kernels, reference
from tidegate.noise.discrete_laplace import ARRAYS, BLOCK, Integers, element_words, fit, layout
from tidegate.noise.entropy import Elements, Source
from tidegate.noise.scale import ScaleLike, prepare_each, read

# Beyond so many sigma a magnitude has a chance below 2^-49, and no boundary in the table.
_REACH = 8
# Tables that are kept: 80 kB each, at most.
_KEPT = 64


class Table(NamedTuple):
    """What draws of one sigma = part · 2^shift look up, part ≤ 2^10."""

    exact: Fraction
    leading: int  # words of an attempt
    guide: npt.NDArray[np.uint16]
    boundaries: Integers
    shift: int
    density: float  # 1/part²
    slope: int  # the same in units of 2^-38, rounded up


@lru_cache(maxsize=_KEPT, typed=True)
def table_of(sigma: float | Fraction) -> Table:
    """Make the table of a sigma; a fraction that is not a float64 is rounded up."""
    exact = Fraction(read(sigma, "sigma"))
    shift = reference.two_parts(exact, reference.GAUSSIAN_EXPONENT)
    part = exact / (1 << shift)
    boundaries = np.empty(math.ceil(_REACH * part) + 3, dtype=np.int64)
    guide = np.empty(1 << (63 - kernels.GUIDE_SHIFT), dtype=np.uint16)
    kernels.gaussian_table(float(part), 1 if shift else 2, np.empty(boundaries.size), guide, boundaries)
    if not shift:
        return Table(exact, 1, guide, boundaries, 0, 0.0, 0)
    return Table(exact, 2, guide, boundaries, shift, float(1 / part**2), math.ceil(2**38 / part**2))


def gaussian(
    source: Source, stream: str, step: int, sigma: ScaleLike, shape: tuple[int, ...] = ()
) -> Integers:
    """Draw exact discrete Gaussian noise.

    Parameters
    ----------
    source, stream, step, shape
        As for `laplace`.
    sigma
        In grid units, one number or an array, as `laplace` takes its scale; every number in it needs a table, which takes
        as long as ten thousand draws where it is new. The variance is below sigma² by a little (Canonne, Kamath and
        Steinke 2020, Corollary 9).

    Examples
    --------
    >>> from tidegate.noise import current
    >>> gaussian(current(), "example", 0, 2.5, (3, 2)).shape
    (3, 2)
    """
    size, draws = layout(shape)
    out = np.empty(size, np.int64)
    if type(sigma) is not float and isinstance(sigma, ARRAYS):
        each = prepare_each(np.asarray(sigma), shape, "sigma")
        for one in np.unique(each).tolist():
            elements = np.flatnonzero(each == one)
            for start in range(0, elements.size, BLOCK):
                chosen = elements[start : start + BLOCK]
                values = np.empty(chosen.size, np.int64)
                _draw(source, stream, step, draws, table_of(one), chosen, values)
                out[chosen] = values
    elif size <= BLOCK:
        _draw(source, stream, step, draws, table_of(sigma), range(size), out)
    else:
        for start in range(0, size, BLOCK):
            block = out[start : start + BLOCK]
            _draw(source, stream, step, draws, table_of(sigma), range(start, start + block.size), block)
    return out if len(shape) == 1 else out.reshape(shape)


def _draw(
    source: Source,
    stream: str,
    step: int,
    draws: int,
    table: Table,
    elements: Elements,
    out: Integers,
    first: int = 0,
) -> None:
    """Draw some elements, by attempts whose words begin at ``first``."""
    exact, leading, guide, boundaries, shift, density, slope = table
    words = source.words(stream, step, draws, elements, first, leading)
    if not kernels.fill_gaussian(words, guide, boundaries, shift, density, slope, out):
        return
    rejected = []
    for i in np.flatnonzero(out <= kernels.REJECTED).tolist():
        if out[i] == kernels.REJECTED:
            rejected.append(i)
            continue
        taken = words[:, i].tolist()
        further = element_words(source, stream, step, draws, int(elements[i]), taken, first)
        out[i] = fit(reference.gaussian(exact, further))
    if rejected:
        again = np.empty(len(rejected), np.int64)
        chosen = np.array([elements[i] for i in rejected])
        _draw(source, stream, step, draws, table, chosen, again, first + leading)
        out[rejected] = again


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
