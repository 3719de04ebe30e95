"""What the tree counters share: the tree that grows, its noise, and the sums that are read from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Self

import numpy as np

from tidegate.core.arrays import Array, rebuilt
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.counters import tree as configured
from tidegate.mechanisms.counters.kernels.tree import Shape, Tree, count_on_tree
from tidegate.mechanisms.run import summable
from tidegate.noise.entropy import Source
from tidegate.releases import Status

CELLS = 1 << 17  # node sums that a batch handles at once: their noise stays in the cache


class Trees:
    """The tree that grows, and what the full ones before it say. SECRET: it holds exact sums of open nodes.

    Stored are O(log t) rows: what follows from the position and the siblings is computed again. Noise is drawn when a
    node is complete, so none is ahead of its use.

    Parameters
    ----------
    mechanism
        Whose blocks, scales and weights.
    label
        Of its streams of noise.
    """

    def __init__(self, mechanism: configured.TreeCounter, label: str = "tree") -> None:
        self.mechanism, self.label = mechanism, label
        self.step = 0  # steps that were counted; a step that is passed over is none
        self.base = np.zeros(mechanism.columns)  # the sum of all full trees
        self.base_variance = 0.0
        self._open(mechanism.block(1))

    def _open(self, block: configured.Block) -> None:
        """Begin a tree."""
        mechanism, levels, columns = self.mechanism, block.levels, self.mechanism.columns
        self.block, self.scale = block, mechanism.scale_of(levels)
        self.shape = Shape(
            branching=mechanism.branching,
            own_weight=mechanism.own_weights(levels),
            node_variance=mechanism.node_variances(levels),
            grid=float(Fraction(mechanism.grid)),
        )
        self.tree = Tree(
            digits=np.zeros(levels, dtype=np.int64),
            total=np.zeros(columns, dtype=np.int64),
            marks=np.zeros((levels, columns), dtype=np.int64),
            siblings=np.zeros((levels, columns)),
            above=np.zeros((levels + 1, columns)),
            spread=np.zeros(levels + 1),
        )

    def stored(self) -> tuple[Array, ...]:
        """The position, the full trees, and the one that grows; their sizes follow from the position."""
        tree = self.tree
        numbers = (np.array([self.step]), self.base, np.array([self.base_variance]))
        return (*numbers, tree.total, tree.marks, tree.siblings)

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same from what was stored."""
        step, base, variance, total, marks, siblings = rebuilt(self.stored(), stored)
        found = type(self)(self.mechanism, self.label)
        found.step, found.base_variance = int(step[0]), float(variance[0])
        found.base[:] = base
        block = self.mechanism.block(max(found.step, 1))
        found._open(block)
        tree = found.tree
        tree.total[:], tree.marks[:], tree.siblings[:] = total, marks, siblings
        tree.digits[:] = self.mechanism.digits(found.step - block.first + 1, block.levels)
        for level in range(block.levels - 1, -1, -1):
            tree.above[level] = tree.above[level + 1] + tree.siblings[level]
            own = tree.digits[level] * found.shape.node_variance[level]
            tree.spread[level] = tree.spread[level + 1] + own
        return found

    def count(self, rows: Matrix, source: Source) -> tuple[Floats, Floats]:
        """The running sums after each step, and their standard deviations."""
        values, deviations, at = np.empty(rows.shape), np.empty(len(rows)), 0
        while at < len(rows):
            position = self.step + 1 - self.block.first
            if position == self.block.size:
                self.base += self.tree.above[0]
                self.base_variance += float(self.tree.spread[0])
                self._open(self.mechanism.block(self.step + 1))
                position = 0
            room = max(1, CELLS // (2 * rows.shape[1]))
            stop = min(len(rows), at + self.block.size - position, at + room)
            noise, offsets = self._noise(position, stop - at, source)
            count_on_tree(
                summable(rows[at:stop], self.block.size),
                self.shape[:],
                noise,
                offsets,
                self.tree[:],
                self.base,
                self.base_variance,
                values[at:stop],
                deviations[at:stop],
            )
            self.step += stop - at
            at = stop
        return values, deviations

    def _noise(self, position: int, steps: int, source: Source) -> tuple[Matrix, Integers]:
        """The noise of all nodes that the next steps complete, level after level, and where each level begins."""
        mechanism, draw = self.mechanism, self.mechanism.own_noise.draw
        pieces: list[Matrix] = []
        offsets = np.zeros(self.block.levels, dtype=np.int64)
        drawn = 0
        for level in range(self.block.levels):
            size = mechanism.branching**level
            first, last = position // size, (position + steps) // size
            offsets[level] = drawn
            if size > position + steps:
                break
            if last > first:
                stream = f"{self.label} {self.block.number} level {level}"
                pieces.append(draw(source, stream, first, self.scale, (last - first, mechanism.columns)))
                drawn += last - first
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), offsets


class State(NamedTuple):
    """All that is carried from step to step."""

    trees: Trees


@dataclass(frozen=True)
class TreeCounter(configured.TreeCounter):
    """Running sums from noisy sums over the nodes of trees; the common part.

    A step is a leaf when it is pushed. Steps that are passed over are none, so any w steps are at most w leaves that
    follow each other.
    """

    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False  # a node gets its noise when it is complete

    def begin(self, first: int) -> State:
        """Nothing was counted."""
        return State(Trees(self))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same: it is in one node of each level."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Count every step."""
        return every_step(first, *state.trees.count(rows, noise.source))

    def intervals(self) -> Fold:
        """Every value is the truth and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)


def every_step(first: int, values: Floats, deviations: Floats) -> Output:
    """The output of steps that are all measured and cost one unit each."""
    count = len(values)
    return Output(
        values,
        np.full(count, int(Status.FRESH), dtype=np.int8),
        np.arange(first, first + count),
        deviations,
        np.ones(count, dtype=np.int64),
    )
