"""Test sources of random words: noise that depends on nothing but its address, and no noise at all.

A run under one of these is marked in its ledger, because it protects nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tidegate.noise.entropy import SYSTEM, Elements, Source, Words, install
from tidegate.noise.fixed import FixedEntropy

__all__ = ["CountingEntropy", "FixedEntropy", "ZeroEntropy", "fixed_entropy", "install", "zero_noise"]

ALL_BUT_SIGN = (1 << 64) - 2


class ZeroEntropy:
    """Words that make every draw zero: a uniform number next to 1, a positive sign, tests that pass."""

    name = "zero"
    marked = True

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """All bits but the sign set in word 0, no bit in the others."""
        words = np.zeros((count, len(elements)), dtype=np.uint64)
        if first == 0 and count:
            words[0] = ALL_BUT_SIGN
        return words

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word."""
        return 0 if index else ALL_BUT_SIGN


class CountingEntropy:
    """The system's words, counted: shows whether anything was drawn."""

    name = "counting"
    marked = True

    def __init__(self) -> None:
        self.words_drawn = 0

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Fresh words."""
        self.words_drawn += count * len(elements)
        return SYSTEM.words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One fresh word."""
        self.words_drawn += 1
        return SYSTEM.word(stream, step, draw, index)


@contextmanager
def fixed_entropy(seed: int | str = 0) -> Iterator[Source]:
    """Make noise a function of (seed, stream, step, draw) within a with-block.

    Parameters
    ----------
    seed
        Another one gives other noise.

    Examples
    --------
    >>> from tidegate.noise import current, laplace
    >>> with fixed_entropy(7):
    ...     batch = laplace(current(), "example", 0, 9.5, (4, 2))
    ...     third = laplace(current(), "example", 2, 9.5, (2,))
    >>> bool((batch[2] == third).all())
    True
    """
    with install(FixedEntropy(seed)) as source:
        yield source


@contextmanager
def zero_noise() -> Iterator[Source]:
    """Make every draw of noise zero within a with-block.

    Examples
    --------
    >>> import tidegate as tg
    >>> with zero_noise():
    ...     tg.open(tg.mechanisms.Sample(tg.Event(epsilon="1"))).push(7).values
    array([7.])
    """
    with install(ZeroEntropy()) as source:
        yield source
