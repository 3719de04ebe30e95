"""A run with a Grouper: how it starts, what its snapshots keep, and what an interruption does to open groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.mechanisms.pegasus.grouper import Grouper
from tidegate.mechanisms.run import Run, State

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
    from tidegate.mechanisms.pegasus.pegasus import PeGaSus

BLOCK = 1 << 13  # cells that are handled at once: their noise stays in the cache


class GrouperRun(Run):
    """PeGaSus at work, on columns or on the nodes of a hierarchy."""

    mechanism: PeGaSus | HierarchicalPeGaSus

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        self._charge = self.ledger.units // mechanism.units
        self._grouper = Grouper(
            mechanism.outputs, mechanism.limit, mechanism.longest_group, mechanism.smoothing, self._grid
        )
        if state is not None:
            self._grouper.restore(state)

    def _state(self) -> State:
        if self.mechanism.snapshots == "closed":
            self._grouper.close()
        return self._grouper.state()

    @contextmanager
    def _closing_groups(self) -> Iterator[None]:
        """Close the open groups if something goes wrong: none may hold steps that were not released."""
        try:
            yield
        except BaseException:
            self._grouper.close()
            raise
