"""A run with a Grouper: how it starts, what its snapshots keep, and what an interruption does to open groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.pegasus import grouper as loop
from tidegate.mechanisms.pegasus.grouper import BLOCK as BLOCK
from tidegate.mechanisms.pegasus.grouper import SMOOTHERS
from tidegate.mechanisms.run import Run, State
from tidegate.structures.ordered import OrderedSets

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
    from tidegate.mechanisms.pegasus.pegasus import PeGaSus

Integers = npt.NDArray[np.int64]


class Grouper:
    """The last group of each of several streams of counts.

    Parameters
    ----------
    streams
        How many streams.
    limit
        The public threshold θ, in grid units.
    longest
        A group of so many steps is closed.
    smoother
        One of SMOOTHERS.
    grid
        The unit of the values.
    """

    def __init__(self, streams: int, limit: int, longest: int, smoother: str, grid: float) -> None:
        self.limit = limit
        self.longest = longest
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        self.bound = 2**60 // longest
        self.smoother = SMOOTHERS[smoother]
        self.grid = grid
        self.sets = OrderedSets()
        self.memory: Integers = np.zeros((streams, loop.MEMORY), dtype=np.int64)
        self.moments = np.zeros((streams, loop.MOMENTS))

    def advance(
        self,
        first_step: int,
        counts: Integers,
        noisy: Integers,
        weights: Integers,
        tests: Integers,
        thresholds: Integers,
        values: npt.NDArray[np.float64],
        groups: Integers,
    ) -> None:
        """Group and smooth some steps: fills `values` and `groups`."""
        self.sets.make_room(2 * counts.size)
        sets = self.sets
        loop.group_and_smooth(
            first_step,
            (self.limit, self.longest, self.bound, self.smoother, self.grid),
            (counts, noisy, weights, tests, thresholds),
            self.memory,
            self.moments,
            (sets.nodes, sets.pool, sets.path),
            values,
            groups,
        )

    def close(self) -> None:
        """Close every open group, which is public and free, and forget all raw counts."""
        for memory, moments in zip(self.memory, self.moments, strict=True):
            if memory[loop.OPEN]:
                sets = self.sets
                loop.close_group(sets.nodes, sets.pool, sets.path, memory, moments)

    def state(self) -> dict[str, Any]:
        """The open groups as arrays, raw counts included: values and how often each occurs."""
        raw = [self.sets.listing(int(root)) for root in self.memory[:, loop.RAW]]
        noisy = [self.sets.listing(int(root)) for root in self.memory[:, loop.NOISY]]
        memory = self.memory.copy()
        memory[:, loop.RAW] = [len(keys) for keys, _ in raw]
        memory[:, loop.NOISY] = [len(keys) for keys, _ in noisy]
        sets = [np.stack(listed) for listed in (*raw, *noisy)]
        return {"memory": memory, "moments": self.moments, "sets": np.concatenate(sets, axis=1)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.sets = OrderedSets()
        self.memory = state["memory"].copy()
        self.moments = state["moments"].copy()
        begin = 0
        for position in (loop.RAW, loop.NOISY):
            for memory in self.memory:
                end = begin + int(memory[position])
                memory[position] = self.sets.build(*state["sets"][:, begin:end])
                begin = end


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
