"""Random linear orders of a semiorder, one element after another, with probabilities that are exact.

Each step t is placed once for each of its columns; it may be placed when all steps up to t − width are done.
A *state* says how often the oldest step that is not done and the width − 1 steps after it have been placed.
Of the successors s′ of a state s one is taken with probability h(s′)/Σ h, where h > 0 solves A·h = λ·h for the
0/1 matrix A of successors (Perron). All probabilities of a path then telescope to h(last)/(λ^n·h(first)).

With an approximate h they do not: each step would add its own error to the privacy loss, without end. So h is
known to any number of bits: integer vectors, enclosed by a theorem and not by trust (noise_semiorder.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.noise.entropy import Words
from tidegate.noise.reference import WORD_BITS
from tidegate.noise.shared import kernels, reference
from tidegate.noise.shared.tables import kept

# States of the largest order: 4 MB of boundaries at width 16.
MOST_STATES = 1 << 16
MOST_WIDTH = 16
MOST_COLUMNS = 8

# From here on tables are kept on disk: they take a tenth of a second or more.
MANY_STATES = 1 << 12

_LIMB = 32
_MASK = (1 << _LIMB) - 1
# Where columns > 1 the matrix is periodic; 8·A + λ has the same h and is not.
_FACTOR = 8
Floats = npt.NDArray[np.float64]


def widest(columns: int) -> int:
    """The largest width whose states fit, 0 where there are too many columns.

    Examples
    --------
    >>> [widest(d) for d in range(1, 10)]
    [16, 10, 8, 7, 6, 5, 5, 5, 0]
    """
    if columns > MOST_COLUMNS:
        return 0
    width = 1
    while width < MOST_WIDTH and columns * (columns + 1) ** width <= MOST_STATES:
        width += 1
    return width


@dataclass(frozen=True)
class Eigenvector:
    """Positive integers that are proportional to h, each up to a relative error.

    There is a c > 0 with (1 − error)·c·h(s) ≤ values(s) ≤ c·h(s)/(1 − error) at every state s.
    """

    values: npt.NDArray[Any]
    error: Fraction


@dataclass(frozen=True)
class Order:
    """The semiorder of a width: steps that are less than `width` apart are in no order.

    Examples
    --------
    >>> order = Order(2)
    >>> order.states, order.successors.tolist()
    (2, [[0, 1], [0, -1]])
    >>> golden = (1 + 5**0.5) / 2
    >>> abs(float(order.eigenvector(64).values[0] / order.eigenvector(64).values[1]) - golden) < 1e-15
    True
    """

    width: int
    columns: int = 1

    def __post_init__(self) -> None:
        whole("columns", self.columns, 1, MOST_COLUMNS)
        whole("width", self.width, 1, widest(self.columns))

    @cached_property
    def states(self) -> int:
        """How many states there are; state 0 has nothing placed."""
        return self.columns * int((self.columns + 1) ** (self.width - 1))

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each step of the window has been placed, (width, states)."""
        found = np.empty((self.width, self.states), dtype=np.int64)
        rest = np.arange(self.states)
        found[0], rest = rest % self.columns, rest // self.columns
        for i in range(1, self.width):
            found[i], rest = rest % (self.columns + 1), rest // (self.columns + 1)
        return found

    @cached_property
    def radix(self) -> npt.NDArray[np.int64]:
        """What the number of a state grows by when the i-th step of the window is placed and not done by that."""
        return np.array([1] + [self.columns * (self.columns + 1) ** i for i in range(self.width - 1)])

    @cached_property
    def done(self) -> npt.NDArray[np.int64]:
        """For the states in which one placement completes the oldest step: the states that this leads to."""
        counts = self.counts[:, self.counts[0] == self.columns - 1].copy()
        counts[0] = self.columns
        while (full := counts[0] == self.columns).any():
            counts[:-1, full] = counts[1:, full]
            counts[-1, full] = 0
        return np.asarray(self.radix @ counts)

    @cached_property
    def done_list(self) -> list[int]:
        """`done` as Python integers."""
        found: list[int] = self.done.tolist()
        return found

    @cached_property
    def successors(self) -> npt.NDArray[np.int32]:
        """The state after placing the i-th step of the window, (states, width); −1 where it is done already."""
        found = np.full((self.states, self.width), -1, dtype=np.int32)
        numbers = np.arange(self.states)
        for i, step in enumerate(self.radix.tolist()):
            free = self.counts[i] < (self.columns if i else self.columns - 1)
            found[free, i] = numbers[free] + step
        found[self.counts[0] == self.columns - 1, 0] = self.done
        return found

    @cached_property
    def _padded(self) -> npt.NDArray[np.int64]:
        """`successors` with the number of states where there is none: the kernels keep a zero there."""
        return np.where(self.successors < 0, self.states, self.successors).astype(np.int64)

    def apply(self, vector: Floats) -> Floats:
        """A·v in floating point: the sum of v over the successors of every state."""
        out = np.empty(self.states)
        kernels.sum_successors(self._padded, np.append(vector, 0.0), out)
        return out

    @cached_property
    def _approximate(self) -> Floats:
        """h in floating point; a start for the integers, which do not rely on it."""
        vector = np.ones(self.states)
        for _ in range(2000):
            image = self.apply(vector)
            ratio = image / vector
            if ratio.max() < ratio.min() * (1 + 1e-12):
                break
            vector = image if self.columns == 1 else _FACTOR * image + ratio.mean() * vector
            vector /= vector.max()
        return vector

    @cached_property
    def _mixing(self) -> tuple[int, float]:
        """(n, β): from every state the chain is in state 0 after n steps with a chance of at least β.

        The chain of `_approximate`'s probabilities, which stands still with a chance of ½ where it is periodic.
        A chain whose values are within 10^-7 of these has a chance of at least (1 + 10^-7)^-2n of that, and the
        rounding is smaller still: for n ≤ 1024 both are within the factor 0.999.
        """
        values = self._approximate
        total = self.apply(values)
        chance = np.zeros(self.states)
        chance[0] = 1.0
        best, steps = (1, 0.0), 0
        for until in (8, 16, 32, 64, 128, 256, 512, 1024):
            while steps < until:
                moved = self.apply(values * chance) / total
                chance = moved if self.columns == 1 else (moved + chance) / 2
                steps += 1
            least = 0.999 * float(chance.min())
            if best[1] and least / until <= best[1] / best[0]:
                break
            best = (until, least)
        return best

    @lru_cache(maxsize=4)  # noqa: B019  orders are few and kept for good by `order`
    def eigenvector(self, bits: int) -> Eigenvector:
        """Integers proportional to h with a relative error of at most 2^-bits."""
        count = math.ceil((bits + 64) / _LIMB)
        start = [int(value * 2.0**62) << ((count - 2) * _LIMB - 4) for value in self._approximate]
        limbs = np.array(
            [[number >> (_LIMB * i) & _MASK for i in range(count)] for number in (*start, 0)], dtype=np.uint64
        )
        rounds, known = 64, 0.0
        while True:
            for _ in range(rounds):
                limbs = self._iterate(limbs)
            found = self._certify(limbs)
            if found.error <= Fraction(1, 1 << bits):
                return found
            # Errors fall by the same factor in every round: go as far as that will probably take.
            before, known = known, -math.log2(found.error)
            gained = max((known - before) / rounds, 0.01) if before else 0.5
            rounds = max(16, math.ceil((bits - known) / gained * 1.05))

    def _iterate(self, limbs: Words) -> Words:
        """One step towards h in integers of 32-bit limbs, the lowest first; the last limb stays below 2^31."""
        image = np.empty_like(limbs)
        factor, stay = (1, 0) if self.columns == 1 else (_FACTOR, self._growth)
        largest = kernels.sum_limbs(self._padded, limbs, np.uint64(factor), np.uint64(stay), image)
        excess = int(largest).bit_length() - (_LIMB - 1)
        if excess > 0:
            kernels.halve_limbs(image, np.uint64(excess))
        return image

    @cached_property
    def _growth(self) -> int:
        """λ, roughly."""
        return max(1, round(float(self.apply(self._approximate).sum() / self._approximate.sum())))

    def _certify(self, limbs: Words) -> Eigenvector:
        """Enclose h by integers v > 0 and their images A·v: see "Enclosing h" in noise_semiorder.md."""
        image = np.empty_like(limbs)
        kernels.sum_limbs(self._padded, limbs, np.uint64(1), np.uint64(0), image)
        values, images = _join(limbs), _join(image)
        least, most = int(min(values)), int(max(values))
        if least <= 0:
            raise ArithmeticError("a component of the eigenvector is not positive")
        near = values.astype(np.float64) / self._approximate
        if near.max() > near.min() * (1 + 1e-7):
            raise ArithmeticError("the eigenvector is not near its start")
        ratios = (images << (most.bit_length() + 64)) // values
        low, high = int(min(ratios)), int(max(ratios)) + 1
        spread = Fraction(high - low, low)  # λ̂ of any two states differ by at most this factor less 1
        steps, chance = self._mixing
        # (1 + δ)^n − (1 + δ)^-n ≤ 3nδ as long as nδ ≤ 1/3
        error = 3 * steps * spread / Fraction(chance) if spread * steps <= Fraction(1, 3) else Fraction(1)
        return Eigenvector(values, min(Fraction(1), error))

    def ladder(self, state: int) -> reference.Ladder:
        """The boundaries of the choices in a state, for `reference.choose`."""

        def boundaries(bits: int) -> list[int]:
            values = self.eigenvector(bits + 10).values
            weights = [int(values[s]) if s >= 0 else 0 for s in self.successors[state].tolist()]
            total, sums = sum(weights), 0
            found = []
            for weight in weights:
                sums += weight
                # F is within 2^-(bits + 7) of the quotient.
                found.append((max((sums << (bits + 6)) // total - 1, 0)) >> 6)
            last = max(i for i, weight in enumerate(weights) if weight)
            return [*found[:last], 1 << bits]

        return boundaries

    @cached_property
    def boundaries(self) -> Words:
        """`ladder` to 64 bits for all states, (states, width), for the kernel; 1 is written as 2^64 − 1."""
        if self.states < MANY_STATES:
            return self._boundaries()
        return kept(f"boundaries-{self.width}-{self.columns}", self._boundaries)

    def _boundaries(self) -> Words:
        values = self.eigenvector(WORD_BITS + 10).values
        padded = np.append(values, 0)  # index −1: no such choice
        sums = np.cumsum(padded[self.successors], axis=1)
        found = np.empty(sums.shape, dtype=np.uint64)
        for i in range(self.width):
            quotients = ((sums[:, i] << (WORD_BITS + 6)) // sums[:, -1] - 1) >> 6
            found[:, i] = np.minimum(np.maximum(quotients, 0), (1 << WORD_BITS) - 1).astype(np.uint64)
        found[sums == sums[:, -1:]] = np.uint64((1 << WORD_BITS) - 1)
        return found

    @cached_property
    def halves(self) -> npt.NDArray[np.uint32]:
        """The upper 32 bits of `boundaries`."""
        return (self.boundaries >> np.uint64(32)).astype(np.uint32)

    def row(self, state: int) -> list[int]:
        """`boundaries` of one state as Python integers."""
        found = self.rows.get(state)
        if found is None:
            found = self.rows[state] = self.boundaries[state].tolist()
        return found

    @cached_property
    def rows(self) -> dict[int, list[int]]:
        """What `row` has answered so far."""
        return {}

    def choose(self, state: int, words: Iterator[int]) -> int:
        """Which step of the window is placed next, exactly."""
        return reference.choose(self.ladder(state), words)


def _join(limbs: Words) -> npt.NDArray[Any]:
    """Limbs (states + 1, limbs) as one Python integer a state."""
    total = np.zeros(len(limbs) - 1, dtype=object)
    for i in range(limbs.shape[1]):
        total += limbs[:-1, i].astype(object) << (_LIMB * i)
    return total


@cache
def order(width: int, columns: int = 1) -> Order:
    """The order of a width, made once in a process; those of many states once by a user, which takes seconds.

    Examples
    --------
    >>> order(40)
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: width=40 is refused: width must be at most 16; write width=16 or less.
    """
    return Order(width, columns)


def check_widths(width: int, columns: int) -> None:
    """Refuse an order whose states do not fit."""
    if width > widest(columns):
        raise InvalidParameter(
            "width",
            width,
            f"at most {widest(columns)} for {columns} columns",
            "use more classes, or the cube",
        )
