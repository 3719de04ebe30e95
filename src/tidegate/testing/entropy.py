"""Test sources of random words: noise that depends on nothing but its address, and no noise at all.

A run under one of these is marked in its ledger, because it protects nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from tidegate.noise.entropy import SYSTEM, Elements, Source, Words, install

__all__ = ["CountingEntropy", "FixedEntropy", "ZeroEntropy", "fixed_entropy", "install", "zero_noise"]

_MASK = (1 << 64) - 1
# Odd constants with well spread bits: the golden ratio, and the multipliers of David Stafford's 13th mixer.
_STRIDE = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _mix(number: int) -> int:
    """A bijection of 64-bit integers in which every bit of the input moves every bit of the output."""
    number = ((number ^ (number >> 30)) * _MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * _MIX_2) & _MASK
    return number ^ (number >> 31)


def _mix_array(numbers: Words) -> Words:
    """`_mix` of every element, in place."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(_MIX_1)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(_MIX_2)
    numbers ^= numbers >> np.uint64(31)
    return numbers


@lru_cache(maxsize=4096)
def _keys(seed: int | str, stream: str) -> tuple[int, int, int]:
    digest = blake2b(f"{seed!r}\0{stream}".encode(), digest_size=24).digest()
    return int.from_bytes(digest[:8]), int.from_bytes(digest[8:16]), int.from_bytes(digest[16:])


class FixedEntropy:
    """Words that are a hash of (seed, stream, step, draw, index): the same address, the same noise."""

    name = "fixed"
    marked = True

    def __init__(self, seed: int | str) -> None:
        self._seed = seed

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words of the addressed elements, of shape (count, len(elements))."""
        step_key, draw_key, index_key = _keys(self._seed, stream)
        chosen = np.asarray(elements, dtype=np.int64)
        steps = (chosen // draws + step).astype(np.uint64)
        base = _mix_array(steps * np.uint64(_STRIDE) + np.uint64(step_key))
        base ^= (chosen % draws).astype(np.uint64) * np.uint64(_STRIDE) + np.uint64(draw_key)
        _mix_array(base)
        indices = np.arange(first, first + count, dtype=np.uint64) * np.uint64(_STRIDE)
        return _mix_array(_mix_array(base[None, :] ^ indices[:, None]) + np.uint64(index_key))

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word; the same as `words` gives for this address."""
        step_key, draw_key, index_key = _keys(self._seed, stream)
        base = _mix((step * _STRIDE + step_key) & _MASK)
        base = _mix(base ^ ((draw * _STRIDE + draw_key) & _MASK))
        return _mix((_mix(base ^ ((index * _STRIDE) & _MASK)) + index_key) & _MASK)


class ZeroEntropy:
    """Words that make every draw zero: a uniform number next to 1, a positive sign, tests that pass."""

    name = "zero"
    marked = True

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """All bits but the sign set in word 0, no bit in the others."""
        words = np.zeros((count, len(elements)), dtype=np.uint64)
        if first == 0 and count:
            words[0] = _MASK - 1
        return words

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word."""
        return 0 if index else _MASK - 1


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
    """Make every draw of noise zero within a with-block."""
    with install(ZeroEntropy()) as source:
        yield source
