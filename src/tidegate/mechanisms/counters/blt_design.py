"""The integers of a BLT for a horizon: a search that takes the same steps on every machine.

They are public, and part of a log's description, so a stream can only be reopened where they come out the same. The
search uses +, −, ×, ÷ and square roots of Python's floats alone, which IEEE 754 rounds in one way; no exponentials, no
linear algebra, no order of summation that a library may choose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tidegate.mechanisms.counters.blt import ONE

OCTAVE = 64  # parameters are logarithms to base 2, in steps of 1/64
FINEST = 2  # the last moves are by so many steps
MARGIN = 1e-5  # relative; a move must gain as much
MOST_OUTPUT = 0.999  # Σω_i: below 1 the coefficients of C fall


@lru_cache(maxsize=64)
def design(horizon: int, buffers: int) -> tuple[int, ...]:
    """(1 − θ_i)·2^31, slowest first, then ω_i·2^31: a small mean squared error of prefix sums over `horizon` steps.

    The logarithms of 1 − θ_i and of ω_i are parabolas along i, which is any choice for up to three buffers. A pattern
    search moves one of their six numbers at a time, by an octave at first and by 1/32 at last.

    Examples
    --------
    >>> gap, omega = (number / ONE for number in design(1000, 1))
    >>> 0.009 < gap < 0.012 and 0.15 < omega < 0.2
    True
    """
    slow = -OCTAVE * max(horizon.bit_length() - 1, 3)
    place = [slow, -OCTAVE, 0, slow // 2, -2 * OCTAVE, 0]
    while not _falls(*_factor(place, buffers)):
        place[3], place[4] = place[3] - OCTAVE // 2, place[4] - OCTAVE // 2
    best, move = loss(*_factor(place, buffers), horizon), OCTAVE
    while move >= FINEST:
        before = best
        for which in range(len(place)):
            for step in (move, -move):
                while True:
                    place[which] += step
                    gaps, omegas = _factor(place, buffers)
                    found = loss(gaps, omegas, horizon) if _falls(gaps, omegas) else math.inf
                    if not found < best * (1.0 - MARGIN):
                        place[which] -= step
                        break
                    best = found
        if best == before:
            move //= 2
    gaps, omegas = _factor(place, buffers)
    return tuple(max(1, math.floor(number * ONE + 0.5)) for number in (*gaps, *omegas))


def loss(gaps: Sequence[float], omegas: Sequence[float], horizon: int) -> float:
    """The squared norm of C's first column times the mean over steps of Σ_{k<t} b_k², for b = (1, 1, …)·C⁻¹.

    With v = 1 − 1/z, C is f(v) = 1 + Σ_i ω_i/(g_i − v) for g = 1 − θ, and has one root v_i above each g_i. So
    b_k = 1/f(0) + Σ_i (1 − v_i)^k/(v_i·f'(v_i)), and its squares are geometric series.
    """
    norm, roots = [1.0], _roots(gaps, omegas)
    for one, omega in zip(gaps, omegas, strict=True):
        for other, weight in zip(gaps, omegas, strict=True):
            joint = one + other - one * other
            norm.append(omega * weight * _fall(joint, horizon - 1) / joint)
    ratio = [omega / gap for gap, omega in zip(gaps, omegas, strict=True)]
    terms = [(0.0, 1.0 / (1.0 + math.fsum(ratio)))]
    for root, slope in roots:
        terms.append((root, 1.0 / (root * slope)))
    mean = []
    for one, weight in terms:
        for other, amplitude in terms:
            joint = one + other - one * other
            mean.append(weight * amplitude * _mean_of_sums(joint, horizon))
    return math.fsum(norm) * math.fsum(mean)


def _factor(place: Sequence[int], buffers: int) -> tuple[list[float], list[float]]:
    """1 − θ_i and ω_i."""
    return _along(place[:3], buffers), _along(place[3:], buffers)


def _along(curve: Sequence[int], count: int) -> list[float]:
    """The powers of 2 along a parabola, exactly but for the last place."""
    first, last, middle = curve
    whole = max(1, count - 1)
    parts = [
        (first * (whole - i) * whole + last * i * whole + 4 * middle * i * (whole - i)) // whole**2
        for i in range(count)
    ]
    return [math.ldexp(_ROOTS[part % OCTAVE], part // OCTAVE) for part in parts]


def _powers() -> list[float]:
    """2^(i/64) for i from 0 to 63."""
    root = 2.0
    for _ in range(6):
        root = math.sqrt(root)
    powers = [1.0]
    while len(powers) < OCTAVE:
        powers.append(powers[-1] * root)
    return powers


_ROOTS = _powers()


def _falls(gaps: Sequence[float], omegas: Sequence[float]) -> bool:
    """Whether all 0 < θ_i < 1, each above the next, and the coefficients of C fall."""
    rising = all(one < other for one, other in zip(gaps, [*gaps[1:], 1.0], strict=True))
    return rising and math.fsum(omegas) < MOST_OUTPUT


def _roots(gaps: Sequence[float], omegas: Sequence[float]) -> list[tuple[float, float]]:
    """Each root of f(v) = 1 + Σ_i ω_i/(g_i − v), with the slope of f there; Newton's method between two poles."""
    found, total = [], math.fsum(omegas)
    for index, gap in enumerate(gaps):
        low, high = 0.0, gaps[index + 1] - gap if index + 1 < len(gaps) else total
        away = [other - gap for other in gaps]
        root, slope = min(omegas[index], high / 2), 1.0
        for _ in range(100):
            parts = [omega / (pole - root) for pole, omega in zip(away, omegas, strict=True)]
            height = 1.0 + math.fsum(parts)
            slope = math.fsum([part * part / omega for part, omega in zip(parts, omegas, strict=True)])
            low, high = (root, high) if height < 0.0 else (low, root)
            nearer = root - root * height / (height + root * slope)  # of root·f, which has no pole here
            if not low < nearer < high:
                nearer = (low + high) / 2
            if abs(nearer - root) <= 1e-14 * root:
                break
            root = nearer
        found.append((gap + root, slope))
    return found


def _fall(gap: float, steps: int) -> float:
    """1 − (1 − gap)^steps, by doubling."""
    fallen = 0.0
    while steps:
        if steps & 1:
            fallen = fallen + gap - fallen * gap
        gap, steps = gap * (2.0 - gap), steps >> 1
    return fallen


def _mean_of_sums(gap: float, count: int) -> float:
    """The mean over t ≤ count of Σ_{k<t} (1 − gap)^k."""
    if gap * count < 1e-4:
        return (count + 1) * 0.5 * (1.0 - gap * (count - 1) / 3.0)
    return (1.0 - (1.0 - gap) * _fall(gap, count) / (gap * count)) / gap
