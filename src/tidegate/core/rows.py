"""Rows of noise whose scale a compiled loop decides: drawn in the loop, from a pool of random words.

A loop takes words from the pool in order, and each row of noise has a slot of its own, so no two draws share a word.
Where the pool is empty, or floating point cannot decide a draw (about one in 2^18), the loop returns before the step
has written anything, and `run_loop` helps and calls it again at the same step. Under fixed entropy the loop computes
the words from their addresses; production takes the same path but for the words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.noise.discrete_laplace import decide, laplace, laplace_one
from tidegate.noise.entropy import CHUNK_WORDS, SYSTEM, Source
from tidegate.noise.fixed import MIX_1, MIX_2, STRIDE, address_keys
from tidegate.noise.kernels import UNDECIDED, constants, laplace_large, laplace_small
from tidegate.noise.readdressed import Readdressed

# what a loop wants when it returns: nothing, words, or the row of slot k as ROW + k; a mechanism's own are negative
DONE, WORDS, ROW = 0, 1, 2
SINGLE = 256  # draws that are made at once for single steps

_STRIDE, _MIX_1, _MIX_2 = np.uint64(STRIDE), np.uint64(MIX_1), np.uint64(MIX_2)


class Pool(NamedTuple):
    """Random words for the rows of a loop."""

    words: Any  # taken in order; under fixed entropy room for the words of one row
    position: Any  # of the next word
    addressed: int  # 1 under fixed entropy


class Slot(NamedTuple):
    """One row of noise per step."""

    number: int
    row: Any  # the noise of each column
    step: Any  # the step that the row was drawn for; −1: none
    scale: Any  # of a row that is to be decided
    begin: Any  # where its words begin in the pool
    keys: Any  # of its stream under fixed entropy


@lean
def _mixed(number: Any) -> Any:
    """`fixed._mix` in compiled code."""
    number = (number ^ (number >> np.uint64(30))) * _MIX_1
    number = (number ^ (number >> np.uint64(27))) * _MIX_2
    return number ^ (number >> np.uint64(31))


@lean
def _address_words(keys: Any, step: int, words: Any, count: int) -> None:
    """The first two words of every draw of a step, as `FixedEntropy.words` gives them."""
    base = _mixed(np.uint64(step) * _STRIDE + keys[0])
    for draw in range(count):
        own = _mixed(base ^ (np.uint64(draw) * _STRIDE + keys[1]))
        words[draw] = _mixed(_mixed(own) + keys[2])
        words[count + draw] = _mixed(_mixed(own ^ _STRIDE) + keys[2])


@lean
def draw_row(pool: Any, slot: Any, step: int, scale: float) -> Any:
    """Laplace noise of this scale into the slot's row: DONE, or what is wanted first."""
    row = slot.row
    if slot.step[0] == step:
        return DONE
    count = row.size
    part, factor, shift = constants(scale)
    taken = count if shift == 0 else 2 * count
    begin = 0
    if pool.addressed:
        _address_words(slot.keys, step, pool.words, count)
    else:
        begin = pool.position[0]
        if begin + taken > pool.words.size:
            return WORDS
        pool.position[0] = begin + taken
    undecided = 0
    # parts of the pool, because vector instructions need places that surely count from the beginning
    words, further = pool.words[begin : begin + count], pool.words[begin + count : begin + taken]
    if shift == 0:
        for draw in range(count):
            value = laplace_small(words[draw], part, factor)
            row[draw] = value
            undecided += value == UNDECIDED
    else:
        for draw in range(count):
            value = laplace_large(words[draw], further[draw], part, factor, shift)
            row[draw] = value
            undecided += value == UNDECIDED
    if undecided:
        slot.scale[0], slot.begin[0] = scale, begin
        return ROW + slot.number
    slot.step[0] = step
    return DONE


class Draws:
    """The randomness of one query: its source, and the rows that its loops draw."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._rows: dict[tuple[tuple[str, int], ...], RowNoise] = {}
        self._bound: tuple[Any, Any] = (None, None)
        self._drawn: tuple[float, list[int]] = (0.0, [])  # a scale, and noise that waits for single steps

    def laplace(self, stream: str, step: int, scale: float) -> int:
        """Laplace noise for the only value of a step; in production some are drawn at once, and wait like words do."""
        if self.source is not SYSTEM:
            return laplace_one(self.source, stream, step, 0, scale)
        known, drawn = self._drawn
        if known != scale or not drawn:
            drawn = laplace(self.source, stream, step, scale, (SINGLE,)).tolist()
            self._drawn = scale, drawn
        return drawn.pop()

    def bound(self, state: Any, make: Callable[[], Any]) -> Any:
        """What a mechanism makes once for a state, such as room for its loops; made again for another state."""
        if self._bound[0] is not state:
            self._bound = (state, make())
        return self._bound[1]

    def part(self, prefix: str = "", offset: int = 0) -> Draws:
        """The randomness of a mechanism inside of this one, with rows of its own and, under fixed entropy, its addresses.

        Rows are known by their steps. So whatever counts steps from elsewhere has rows of its own.
        """
        addressed = address_keys(self.source, "") is not None
        return Draws(Readdressed(self.source, prefix, offset) if addressed else self.source)

    def rows(self, **streams: int) -> RowNoise:
        """Rows by the names of their streams, with so many columns each; made once."""
        key = tuple(streams.items())
        if key not in self._rows:
            self._rows[key] = RowNoise(self.source, streams)
        return self._rows[key]


class RowNoise:
    """The pool and the slots of one mechanism, for as long as its session lives.

    Parameters
    ----------
    source
        Where words come from.
    streams
        The name of each kind of row, with the number of its columns.
    """

    def __init__(self, source: Source, streams: dict[str, int]) -> None:
        self._source, self._streams = source, tuple(streams)
        keys = [address_keys(source, stream) for stream in streams]
        addressed, widest = keys[0] is not None, max(streams.values())
        size = 2 * widest if addressed else max(CHUNK_WORDS, 2 * widest)
        self.pool = Pool(np.zeros(size, dtype=np.uint64), np.array([size]), int(addressed))
        self.slots = tuple(
            Slot(
                number,
                np.zeros(columns, dtype=np.int64),
                np.array([-1]),
                np.zeros(1),
                np.zeros(1, dtype=np.int64),
                np.array(keys[number] or (0, 0, 0), dtype=np.uint64),
            )
            for number, columns in enumerate(streams.values())
        )

    def refill(self) -> None:
        """Fresh words; what was left is dropped."""
        words, position, _ = self.pool
        words[:] = self._source.words("pool", 0, 1, range(words.size), 0, 1)[0]
        position[0] = 0

    def decide(self, number: int, step: int) -> None:
        """Decide the draws of a row that floating point could not, from the same words."""
        slot, words = self.slots[number], self.pool.words
        scale, begin, count = float(slot.scale[0]), int(slot.begin[0]), slot.row.size
        pairs = self.pool.addressed or constants(scale)[2] > 0  # whether the second word belongs to the draw
        for draw in np.flatnonzero(slot.row == UNDECIDED).tolist():
            taken = [int(words[begin + draw])] + ([int(words[begin + count + draw])] if pairs else [])
            slot.row[draw] = decide(self._source, self._streams[number], step, count, draw, scale, taken)
        slot.step[0] = step

    def run_loop(
        self,
        loop: Callable[[int], tuple[int, int]],
        first: int,
        at_boundary: Callable[[int, int], None] | None = None,
    ) -> None:
        """Call a loop, which takes the index of a step and returns (index, what it wants), until it wants nothing."""
        index, wanted = loop(0)
        while wanted != DONE:
            if wanted == WORDS:
                self.refill()
            elif wanted >= ROW:
                self.decide(wanted - ROW, first + index)
            else:
                assert at_boundary is not None
                at_boundary(index, wanted)
            index, wanted = loop(index)
