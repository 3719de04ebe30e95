"""A tree counter at work: charge, draw the noise of the nodes that are complete, count."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.counters.tree import (
    CELLS,
    Block,
    Shape,
    Tree,
    TreeCounter,
    count_on_tree,
    refuse_beyond,
)
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.releases import Release, Releases, Status, Values
from tidegate.structures.clamping import summable

if TYPE_CHECKING:
    from tidegate.mechanisms.counters.binary_tree import BinaryTree


class CounterRun(Run):
    """A run that charges every step the same, and answers each with values and their standard deviation."""

    @abstractmethod
    def _answers(self, matrix: Matrix, first_step: int) -> tuple[Values, Values]:
        """The values after each step, and their standard deviations; the ledger was charged."""

    def _push(self, row: Row) -> Release:
        charge = self.ledger.units // self.mechanism.units
        self.ledger.charge(self.step, charge)
        values, deviations = self._answers(row[np.newaxis], self.step)
        fields = (self.step, values[0], Status.FRESH, self.step, float(deviations[0]))
        return Release(*fields, charge, self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        units = np.broadcast_to(np.int64(self.ledger.units // self.mechanism.units), len(matrix))
        self.ledger.charge_batch(first_step, units)
        return self._all_fresh(first_step, *self._answers(matrix, first_step), units)


class TreeRun(CounterRun):
    """A tree counter at work."""

    mechanism: TreeCounter
    label = "tree"  # of its streams of noise
    _tree: Tree

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        self._draw = mechanism.own_noise.draw
        if state is None:
            self._base = np.zeros(self._columns)
            self._base_variance = 0.0
            self._open(mechanism.block(1))
            return
        own = self.step - self.origin
        block = mechanism.block(max(own, 1))
        self._open(block)
        self._base, self._base_variance = state["base"], state["base_variance"]
        kept = {name: state[name] for name in ("total", "marks", "siblings")}
        self._tree = tree = self._tree._replace(**kept)
        # everything else follows from the position and the siblings
        tree.digits[:] = mechanism.digits(own - block.first + 1, block.levels)
        for level in range(block.levels - 1, -1, -1):
            tree.above[level] = tree.above[level + 1] + tree.siblings[level]
            own_variance = tree.digits[level] * self._shape.node_variance[level]
            tree.spread[level] = tree.spread[level + 1] + own_variance

    def _open(self, block: Block) -> None:
        """Begin a tree."""
        mechanism, levels = self.mechanism, block.levels
        self._block = block
        self._scale = mechanism.scale_of(levels)
        self._shape = Shape(
            branching=mechanism.branching,
            own_weight=mechanism.own_weights(levels),
            node_variance=mechanism.node_variances(levels),
            grid=self._grid,
        )
        self._tree = Tree(
            digits=np.zeros(levels, dtype=np.int64),
            total=np.zeros(self._columns, dtype=np.int64),
            marks=np.zeros((levels, self._columns), dtype=np.int64),
            siblings=np.zeros((levels, self._columns)),
            above=np.zeros((levels + 1, self._columns)),
            spread=np.zeros(levels + 1),
        )

    def _state(self) -> State:
        return {
            "base": self._base,
            "base_variance": float(self._base_variance),
            "total": self._tree.total,
            "marks": self._tree.marks,
            "siblings": self._tree.siblings,
        }

    def _answers(self, matrix: Matrix, first_step: int) -> tuple[Values, Values]:
        return self.count(matrix, first_step - self.origin)

    def count(self, matrix: Matrix, first_step: int) -> tuple[Values, Values]:
        """The running sums after each step, and their standard deviations; the caller has charged the ledger.

        `first_step` counts the run's own steps, from 1: the nodes that it completes are all nodes of this run.
        """
        values = np.empty(matrix.shape)
        deviations = np.empty(len(matrix))
        at = 0
        while at < len(matrix):
            position = first_step + at - self._block.first
            if position == self._block.size:
                self._base = self._base + self._tree.above[0]
                self._base_variance += float(self._tree.spread[0])
                self._open(self.mechanism.block(first_step + at))
                position = 0
            stop = min(
                len(matrix), at + self._block.size - position, at + max(1, CELLS // (2 * self._columns))
            )
            noise, offsets = self._node_noise(position, stop - at)
            count_on_tree(
                summable(matrix[at:stop], self._block.size),
                self._shape[:],
                noise,
                offsets,
                self._tree[:],
                self._base,
                float(self._base_variance),
                values[at:stop],
                deviations[at:stop],
            )
            at = stop
        return values, deviations

    def _node_noise(self, position: int, steps: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """The noise of all nodes that the next steps complete, level after level, and where each level begins."""
        pieces: list[Matrix] = []
        offsets = np.zeros(self._block.levels, dtype=np.int64)
        drawn = 0
        for level in range(self._block.levels):
            size = self.mechanism.branching**level
            first, last = position // size, (position + steps) // size
            offsets[level] = drawn
            if last == first:
                if size > position + steps:
                    break
                continue
            stream = f"{self.label} {self._block.number} level {level}"
            pieces.append(self._draw(self.source, stream, first, self._scale, (last - first, self._columns)))
            drawn += last - first
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), offsets


class BinaryTreeRun(TreeRun):
    """BinaryTree at work."""

    mechanism: BinaryTree

    def _within_horizon(self, steps: int) -> None:
        refuse_beyond(self.mechanism.length, self.step - self.origin, steps)
        super()._within_horizon(steps)
