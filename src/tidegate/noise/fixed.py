"""Words that are a hash of their address: for tests, and for plans that must come out the same every time.

A run on this source protects nobody, and its ledger is marked.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np

from tidegate.noise.entropy import Elements, Source, Words
from tidegate.noise.readdressed import Readdressed

_MASK = (1 << 64) - 1
# Odd constants with well spread bits: the golden ratio, and the multipliers of David Stafford's 13th mixer.
STRIDE = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def _mix(number: int) -> int:
    """A bijection of 64-bit integers in which every bit of the input moves every bit of the output."""
    number = ((number ^ (number >> 30)) * MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * MIX_2) & _MASK
    return number ^ (number >> 31)


def _mix_array(numbers: Words) -> Words:
    """`_mix` of every element, in place."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(MIX_1)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(MIX_2)
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
        base = _mix_array(steps * np.uint64(STRIDE) + np.uint64(step_key))
        base ^= (chosen % draws).astype(np.uint64) * np.uint64(STRIDE) + np.uint64(draw_key)
        _mix_array(base)
        indices = np.arange(first, first + count, dtype=np.uint64) * np.uint64(STRIDE)
        return _mix_array(_mix_array(base[None, :] ^ indices[:, None]) + np.uint64(index_key))

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word; the same as `words` gives for this address."""
        step_key, draw_key, index_key = _keys(self._seed, stream)
        base = _mix((step * STRIDE + step_key) & _MASK)
        base = _mix(base ^ ((draw * STRIDE + draw_key) & _MASK))
        return _mix((_mix(base ^ ((index * STRIDE) & _MASK)) + index_key) & _MASK)


def address_keys(source: Source, stream: str) -> tuple[int, int, int] | None:
    """The three keys from which compiled code computes the words of a stream; None where words have no addresses."""
    if isinstance(source, FixedEntropy):
        return _keys(source._seed, stream)
    if isinstance(source, Readdressed):
        keys = address_keys(source.source, source.prefix + stream)
        return None if keys is None else ((keys[0] + source.offset * STRIDE) & _MASK, *keys[1:])
    return None
