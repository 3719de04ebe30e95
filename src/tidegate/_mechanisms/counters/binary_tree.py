"""BinaryTree: running sums of a stream of known length, by one tree over all of it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate._mechanisms.counters.tree import State, TreeCounter
from tidegate.core.charges import Charges
from tidegate.mechanisms.counters import binary_tree as configured
from tidegate.mechanisms.counters.tree_run import refuse_beyond


@dataclass(frozen=True)
class BinaryTree(TreeCounter, configured.BinaryTree):
    """Running sums for at most `horizon` steps; :class:`tidegate.mechanisms.BinaryTree` has parameters and privacy."""

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, and the tree has `horizon` leaves."""
        refuse_beyond(self.length, state.trees.step, count)
        return super().public(state, first, count)
