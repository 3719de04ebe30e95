"""Exact discrete Laplace noise on the integers, P(k) ∝ exp(−|k|/scale), in grid units.

The compiled kernel decides all but about one draw in 2^18; `tidegate.noise.reference` decides the rest from
the same random words. See docs/proofs/noise_laplace.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import proper
from tidegate.noise import kernels, reference
from tidegate.noise.entropy import CHUNK_WORDS, Source
from tidegate.noise.scale import Scale, ScaleLike, prepare, prepare_each

Integers = npt.NDArray[np.int64]

# Elements that are drawn at once: the words of a block are one refill of the keystream and stay in the cache.
BLOCK = CHUNK_WORDS // 2
# Elements of one step that are drawn at once, where the caller has no room for all of its columns.
ARRAYS = (np.ndarray, list, tuple)
LARGEST_INTEGER = (1 << 63) - 1


def element_words(
    source: Source, stream: str, step: int, draws: int, element: int, taken: list[int], first: int = 0
) -> Iterator[int]:
    """The word sequence of one element from ``first``: the words taken already, then the following ones."""
    yield from taken
    index = first + len(taken)
    while True:
        yield source.word(stream, step + element // draws, element % draws, index)
        index += 1


def fit(value: int) -> int:
    """The value as far as 64 bits hold it; it is beyond them with a chance below 2^-183."""
    return max(-LARGEST_INTEGER, min(LARGEST_INTEGER, value))


def layout(shape: tuple[int, ...]) -> tuple[int, int]:
    """(number of elements, draws per step) of a result shape (), (d,) or (T, d)."""
    if len(shape) == 1:
        return shape[0], shape[0] or 1
    if len(shape) == 2:
        return shape[0] * shape[1], shape[1] or 1
    if shape:
        raise InvalidParameter("shape", shape, "(), (columns,) or (steps, columns)", "flatten the columns")
    return 1, 1


def decide(
    source: Source,
    stream: str,
    step: int,
    draws: int,
    element: int,
    scale: float | Fraction,
    taken: list[int],
) -> int:
    """The draw that a kernel left undecided, from the words it has taken and as many more as it needs."""
    words = element_words(source, stream, step, draws, element, taken)
    return fit(reference.laplace(Fraction(scale), words))


def laplace(
    source: Source, stream: str, step: int, scale: ScaleLike, shape: tuple[int, ...] = ()
) -> Integers:
    """Draw exact discrete Laplace noise.

    Parameters
    ----------
    source
        Where random words come from, normally ``tidegate.noise.current()``.
    stream, step
        The address of the noise; each kind of noise in a run has a stream name of its own.
    scale
        In grid units, above 0 and at most 2^56: one float64 (taken as the exact number it is), one Fraction
        (rounded up to a float64), or an array of float64 that broadcasts to the shape.
    shape
        () or (d,) for one step, (T, d) for the steps from ``step`` to ``step + T − 1``.

    Examples
    --------
    >>> from tidegate.noise import current
    >>> laplace(current(), "example", 0, 2.5, (3, 2)).shape
    (3, 2)
    """
    size, draws = layout(shape)
    out = np.empty(size, dtype=np.int64)
    if isinstance(scale, ARRAYS) and np.ndim(scale):
        each = prepare_each(np.asarray(scale), shape)
        for start in range(0, size, BLOCK):
            part = slice(start, start + BLOCK)
            _fill_block(source, stream, step, draws, each[part], start, out[part])
        return out.reshape(shape)
    prepared = prepare(scale.item() if isinstance(scale, np.ndarray) else scale)
    if size == 1:
        out.fill(_one(source, stream, step, 0, prepared))
        return out.reshape(shape)
    for start in range(0, size, BLOCK):
        _fill_block(source, stream, step, draws, prepared, start, out[start : start + BLOCK])
    return out.reshape(shape)


def add_laplace(
    source: Source, stream: str, step: int, scale: float | Fraction, values: Integers, grid: float
) -> npt.NDArray[np.float64]:
    """(values + noise) · grid for T × d integers, block by block while the noise is in the cache.

    The noise is that of `laplace` with the same address and the shape of the values.

    Parameters
    ----------
    source, stream, step, scale
        As for `laplace`.
    values
        T × d whole numbers.
    grid
        What the sums are multiplied by.

    Examples
    --------
    >>> import numpy as np
    >>> from tidegate.noise import current
    >>> add_laplace(current(), "example", 1, 3.0, np.zeros((4, 2), dtype=np.int64), 0.5).shape
    (4, 2)
    """
    draws = values.shape[1]
    prepared = prepare(scale)
    result = np.empty(values.shape)
    flat, given = result.reshape(-1), np.ascontiguousarray(values).reshape(-1)
    noise = np.empty(min(BLOCK, flat.size), dtype=np.int64)
    for start in range(0, flat.size, BLOCK):
        block = noise[: flat.size - start]
        _fill_block(source, stream, step, max(draws, 1), prepared, start, block)
        kernels.add_scaled(given[start : start + BLOCK], block, grid, flat[start : start + BLOCK])
    return result


def laplace_one(source: Source, stream: str, step: int, draw: int, scale: float | Fraction) -> int:
    """One draw as a Python integer: the fast way for a stream of single values.

    It is element ``draw`` of what `laplace` gives for the same step.

    Parameters
    ----------
    source, stream, step, scale
        As for `laplace`.
    draw
        Which element of the step it is.

    Examples
    --------
    >>> from tidegate.noise import current
    >>> isinstance(laplace_one(current(), "example", 1, 0, 4.0), int)
    True
    """
    return _one(source, stream, step, draw, prepare(scale))


def _one(source: Source, stream: str, step: int, draw: int, scale: Scale) -> int:
    taken = [source.word(stream, step, draw, 0)]
    if scale.shift:
        taken.append(source.word(stream, step, draw, 1))
    value = attempt(scale, taken)
    if value == kernels.UNDECIDED:
        # One element in one step with draw + 1 draws has this very address.
        return decide(source, stream, step, draw + 1, draw, scale.exact, taken)
    return value


def attempt(scale: Scale, leading: list[int]) -> int:
    """A draw from its leading words, or UNDECIDED: `kernels.laplace_any` for a call from Python."""
    first = leading[0]
    magnitude = kernels.laplace_magnitude(first >> 1, scale.part, scale.factor)
    if magnitude < 0:
        return kernels.UNDECIDED
    if scale.shift:
        magnitude = (magnitude << scale.shift) | (leading[1] & ((1 << scale.shift) - 1))
        if leading[1] >> 40 >= kernels.SURELY_KEPT or (magnitude == 0 and first & 1):
            return kernels.UNDECIDED
    return -magnitude if first & 1 else magnitude


def _fill_block(
    source: Source,
    stream: str,
    step: int,
    draws: int,
    scale: Scale | npt.NDArray[np.float64],
    start: int,
    block: Integers,
) -> None:
    """Draw the elements from ``start`` on; an array has the scale of each of them."""
    count = 1 if isinstance(scale, Scale) and not scale.shift else 2
    words = source.words(stream, step, draws, range(start, start + block.size), 0, count)
    if not isinstance(scale, Scale):
        undecided = kernels.fill_laplace_each(words[0], words[1], scale, block)
    elif scale.shift:
        undecided = kernels.fill_laplace_large(words[0], words[1], scale.part, scale.shift, block)
    else:
        undecided = kernels.fill_laplace_small(words[0], scale.value, block)
    if undecided:
        for i in np.flatnonzero(block == kernels.UNDECIDED).tolist():
            exact = scale.exact if isinstance(scale, Scale) else float(scale[i])
            block[i] = decide(source, stream, step, draws, start + i, exact, words[:, i].tolist())


def variance(scale: float | Fraction) -> float:
    """Var X = 2q/(1 − q)² with q = exp(−1/scale), in a form without cancellation.

    Parameters
    ----------
    scale
        The scale b of the noise.

    Examples
    --------
    >>> round(variance(1000.0), 3)
    1999999.833
    """
    half = 0.5 / float(scale)
    return 0.0 if half > 350 else 0.5 / math.sinh(half) ** 2


def expected_absolute(scale: float | Fraction) -> float:
    """E|X| = 2q/(1 − q²) = 1/sinh(1/scale).

    Parameters
    ----------
    scale
        The scale b of the noise.

    Examples
    --------
    >>> round(expected_absolute(10.0), 4)
    9.9834
    """
    inverse = 1.0 / float(scale)
    return 0.0 if inverse > 700 else 1.0 / math.sinh(inverse)


def quantile(scale: float | Fraction, probability: float) -> int:
    """The least integer k with P(X ≤ k) ≥ probability, to floating-point accuracy.

    Parameters
    ----------
    scale
        The scale b of the noise.
    probability
        Between 0 and 1.

    Examples
    --------
    >>> quantile(10.0, 0.5), quantile(10.0, 0.975), quantile(10.0, 0.025)
    (0, 30, -30)
    """
    proper("probability", probability, "write for example 0.95")
    number = float(scale)
    log_1q = math.log1p(math.exp(-1.0 / number))
    below = -number * (math.log(probability) + log_1q)
    if below >= 1.0:  # P(X ≤ −j) = q^j/(1 + q) ≥ probability for a j ≥ 1
        return -math.floor(below)
    # P(X > k) = q^(k+1)/(1 + q) ≤ 1 − probability
    return max(0, math.ceil(-number * (math.log1p(-probability) + log_1q)) - 1)


def radius(scale: float | Fraction, probability: float) -> int:
    """The least integer k ≥ 0 with P(|X| ≤ k) ≥ probability: half the width of an interval around a release.

    Parameters
    ----------
    scale
        The scale b of the noise.
    probability
        Between 0 and 1.

    Examples
    --------
    >>> radius(10.0, 0.95)
    30
    """
    proper("probability", probability, "write for example 0.95")
    number = float(scale)
    # P(|X| > k) = 2·q^(k+1)/(1 + q) ≤ 1 − probability
    log_r = math.log1p(math.exp(-1.0 / number)) - math.log(2.0)
    return max(0, math.ceil(-number * (math.log1p(-probability) + log_r)) - 1)
