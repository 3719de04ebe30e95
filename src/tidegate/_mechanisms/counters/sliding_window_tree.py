"""SlidingWindowTree: sums over the last n steps, from binary trees on consecutive blocks of n steps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.counters.tree import every_step
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.counters import sliding_window_tree as configured
from tidegate.mechanisms.counters.kernels import sliding_window as loop
from tidegate.mechanisms.run import summable
from tidegate.noise.entropy import Source

CELLS = 1 << 16  # cells that a batch handles at once
ORIGIN, STEP = 0, 1  # positions in `State.numbers`


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # the step before the first block, and the last step that is in a block
    sums: Any  # SECRET: of each level, the noise and the sum so far of the node that grows
    nodes: Any  # estimates of the present block's nodes
    prefix: Any  # sums from the beginning of the present block
    suffix: Any  # sums up to the end of the one before


@dataclass(frozen=True)
class SlidingWindowTree(configured.SlidingWindowTree):
    """Sums of the last n steps; :class:`tidegate.mechanisms.SlidingWindowTree` has parameters and privacy.

    A step that is passed over is in the window like every other one, and is empty.
    """

    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = True  # a node's sum begins with its noise

    def begin(self, first: int) -> State:
        """No block has begun."""
        columns = self.columns
        return State(
            np.array([first - 1, first - 1]),
            np.zeros((self.levels, columns), dtype=np.int64),
            np.zeros((int(self.offsets[-1]), columns)),
            np.zeros((self.window, columns)),
            np.zeros((self.window, columns)),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same: it is in one node of each level."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Add every step to its block, and those that were passed over before as empty ones."""
        passed = self._pass_over(state, first) if len(rows) else 0
        given = np.concatenate([np.zeros((passed, self.columns), dtype=np.int64), rows]) if passed else rows
        own = (
            int(state.numbers[STEP] - state.numbers[ORIGIN]) + 1
        )  # nodes and blocks are counted from the origin
        values = self._slide(state, given, own, noise.source)
        state.numbers[STEP] += len(given)
        return every_step(first, values[passed:], self._spread(own + passed, len(rows)))

    def _pass_over(self, state: State, first: int) -> int:
        """How many empty steps come before `first`; where no window contains an earlier one, blocks begin anew."""
        passed = first - 1 - int(state.numbers[STEP])
        if state.numbers[STEP] > state.numbers[ORIGIN] and passed < self.window:
            return passed
        for kept, new in zip(state, self.begin(first), strict=True):
            kept[...] = new
        return 0

    def _slide(self, state: State, rows: Matrix, own: int, source: Source) -> Floats:
        values, length = np.empty(rows.shape), max(1, CELLS // self.columns)
        averages, grid = self.estimator == "honaker", float(Fraction(self.grid))
        shape = loop.Shape(self.window, self.offsets, self.node_variances, averages, grid)
        blocks = loop.Blocks(state.sums, state.nodes, state.prefix, state.suffix)
        for start in range(0, len(rows), length):
            part = slice(start, start + length)
            piece = summable(rows[part], self.window)
            drawn, starts = self._noise(own + start, len(piece), source)
            loop.slide(piece, own + start, shape[:], drawn, starts, blocks[:], values[part])
        return values

    def _noise(self, own: int, steps: int, source: Source) -> tuple[Matrix, Integers]:
        """The noise of all nodes that begin in these steps, level after level, and where each level's begins."""
        draw, drawn, starts = self.own_noise.draw, [np.zeros((0, self.columns), dtype=np.int64)], [0]
        for level in range(self.levels):
            first, last = self._begun(level, own - 1), self._begun(level, own + steps - 1)
            if last > first:
                shape = (last - first, self.columns)
                drawn.append(draw(source, f"level {level}", first + 1, self.scale, shape))
            starts.append(starts[-1] + last - first)
        return np.concatenate(drawn), np.array(starts[:-1], dtype=np.int64)

    def _begun(self, level: int, own: int) -> int:
        """How many nodes of a level have begun by the end of a step."""
        blocks, inside = divmod(own, self.window)
        return blocks * -(-self.window >> level) + -(-inside >> level)

    def _spread(self, own: int, steps: int) -> Floats:
        """The standard deviations of the sums; those of the first block are less."""
        at = own - 1 + np.arange(steps)
        spread, young = self.deviations[at % self.window], at < self.window
        spread[young] = self.first_deviations[at[young]]
        return spread

    def intervals(self) -> Fold:
        """Every value is the truth and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
