"""The public integers of EndlessSum: the weights of every phase, and how far one value can move what is measured.

The weights are nearly those of (1 − z)^(−½), cut off beyond the steps that have passed. Their constants were chosen for
a small variance at every step at once. They use only what IEEE 754 rounds in one way, so every machine finds the same.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.counters.blt import ONE, SLACK

Values = npt.NDArray[np.float64]

LONGEST = (1 << 28) - 1  # steps that can be measured
DECAY = tuple(1 << (30 - 3 * i) for i in range(10))  # (1 − θ_i)·2^31: θ_i = 1 − 2^(−1−3i)
GAP: Values = np.array(DECAY, dtype=np.float64) / ONE
PIECES = 32  # per octave of a column's age, in the bound of its norm


class Phase(NamedTuple):
    """Some steps that are measured with the same weights and the same noise.

    Attributes
    ----------
    first, size
        Its steps.
    output
        ω_i·2^31.
    noise
        The variance of its noise, where that of step 1 is 1.
    """

    first: int
    size: int
    output: tuple[int, ...]
    noise: Fraction

    @property
    def omega(self) -> Values:
        """ω_i, exactly."""
        return np.array(self.output, dtype=np.float64) / ONE


@lru_cache(maxsize=1)
def phases() -> tuple[Phase, ...]:
    """All phases; they begin at the powers of 2 and halfway between them.

    Examples
    --------
    >>> [(phase.first, phase.size) for phase in phases()[:6]], len(phases())
    ([(1, 1), (2, 1), (3, 1), (4, 2), (6, 2), (8, 4)], 55)
    """
    firsts = [1]
    while firsts[-1] <= LONGEST:
        power = 1 << (firsts[-1].bit_length() - 1)
        firsts.append(2 * power if firsts[-1] > power or power == 1 else power + power // 2)
    return tuple(
        Phase(first, after - first, _output(number, first), 1 + Fraction(number, 14))
        for number, (first, after) in enumerate(pairwise(firsts))
    )


def phase_of(step: int) -> Phase:
    """The phase of a step."""
    return phases()[bisect_right(phases(), step, key=lambda phase: phase.first) - 1]


def _output(number: int, first: int) -> tuple[int, ...]:
    """The weights of a phase: √(1 − θ_i), more of it in early phases, and none where the past is not so long."""
    early = (0.6 + 5.6 / (number + 3.8)) * (0.79 if number in (1, 2) else 1.0)
    found = []
    for index, decay in enumerate(DECAY):
        gap = decay / ONE
        kept = 1.0 + 0.37 / (16.0 * gap * first)
        for _ in range(4):
            kept *= kept  # to the power of 16, nearly exp(0.37/(gap·first))
        shape = (0.46, 0.94)[index] if index < 2 else 1.0
        found.append(math.floor(early * shape * math.sqrt(gap) / kept * ONE + 0.5))
    return tuple(found)


@lru_cache(maxsize=1)
def _reach() -> tuple[Values, ...]:
    """For each phase, one row for some of its steps that follow each other: at least Σ_j M_ij of each i.

    M_ij is what two impulses, one in S_i and the other in S_j, have in common in all later measurements. Where m more
    steps of the phase are to come, it is W_ij·(1 − r_ij^m) there, r_ij = θ_i·θ_j, and A_ij·r_ij^m in all phases after
    it. It rises with m where W > A and falls where W < A: so of all m from one to another, the last one serves for
    the first kind and the first one for the second.
    """
    joint = GAP[:, None] + GAP[None, :] - GAP[:, None] * GAP[None, :]
    after, found = np.zeros_like(joint), []
    for phase in reversed(phases()):
        own = np.outer(phase.omega, phase.omega) / joint / float(phase.noise)
        rest, ages = after - own, np.array(_ages(phase.size))[:, None, None]
        falling = np.maximum(rest, 0.0) * np.exp(ages[:-1] * np.log1p(-joint))
        rising = np.minimum(rest, 0.0) * np.exp((ages[1:] - 1) * np.log1p(-joint))
        found.append((own + falling + rising).sum(axis=2))
        whole = np.exp(phase.size * np.log1p(-joint))
        after = own - own * whole + after * whole
    return tuple(reversed(found))


def _ages(size: int) -> list[int]:
    """Whole numbers from 0 to `size`, close to each other, so that the bound is tight."""
    ages = {0, size} | {math.floor(2.0 ** (k / PIECES)) for k in range(PIECES * size.bit_length())}
    return sorted(age for age in ages if age <= size)


def common(distance: int) -> float:
    """At least the product of any two columns of C that are so many steps apart, each row divided by its noise.

    It is what the second one's own step measures of both, and what they have in common later. It falls with distance.
    """
    before, faded = (np.exp(max(0, age) * np.log1p(-GAP)) for age in (distance - 1, distance))
    largest = 0.0
    for phase, reach in zip(phases(), _reach(), strict=True):
        if phase.first + phase.size - 1 > distance:  # or the first one is before step 1
            own = float(phase.omega @ before) if distance else 1.0
            largest = max(largest, own / float(phase.noise) + float((reach @ faded).max()))
    return largest


@lru_cache(maxsize=8)
def norm(window: int) -> float:
    """At least the norm of a sum of columns of C within `window` steps, each row divided by its noise.

    Its square is at most w·common(0) + 2·Σ_m (w − m)·common(m). Of distances from one to another the first one serves.
    """
    total = window * common(0)
    for distance, after in pairwise(_ages(window)[1:]):
        pairs = (after - distance) * (2 * window - distance - after + 1)  # twice the sum of w − m
        total += pairs * common(distance)
    return math.sqrt(total) * (1 + SLACK)


def rounding(places: int) -> float:
    """The norm over all steps of what rounding can change in one column, in lattice units over each step's noise."""
    total = 0.0
    for phase in phases():
        moved = len(DECAY) + float(np.sum(phase.omega / GAP))
        each = 1.0 + moved * 2.0**places / ONE
        total += phase.size * each * each / float(phase.noise)
    return math.sqrt(total) * (1 + SLACK)


@lru_cache(maxsize=1)
def digest() -> str:
    """A name of these integers: a stream that was begun with others cannot be continued."""
    named = [DECAY, [(phase.first, phase.output, str(phase.noise)) for phase in phases()]]
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]
