"""Statistics with a learnt threshold at work on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.mechanisms.mechanism import Matrix, Run, State
from tidegate.releases import Releases, Status, Values

if TYPE_CHECKING:
    from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram
    from tidegate.mechanisms.clipping.learned_clip import LearnedClip


@kernel
def clip_values(rows: Any, limit: int, bound: int, clipped: Any) -> int:
    """Write the values, cut to [0, limit]; returns how many lay outside [0, bound]."""
    outside = 0
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            value = rows[step, column]
            outside += value < 0 or value > bound
            clipped[step, column] = min(max(value, 0), limit)
    return outside


class LearnedClipRun(Run):
    """A statistic with a learnt threshold at work.

    Attributes
    ----------
    outside
        How many values lay outside [0, B] and were clipped. Private: never publish it.
    """

    mechanism: LearnedClip

    def _begin(self, state: State | None) -> None:
        saved, mechanism = state or {}, self.mechanism
        self.outside = int(saved.get("outside", 0))
        self._sample: npt.NDArray[np.int64] = np.zeros((mechanism.lag, 1), dtype=np.int64)
        sample = saved.get("sample", np.zeros((0, 1), dtype=np.int64))
        self._sample[: len(sample)] = sample
        self._limit = int(saved.get("limit", 0))
        self._kept: Values = saved.get("kept", mechanism.fresh)
        self._counter: Run | None = None
        if self._limit:
            self._count_from(saved["counter"].tobytes())

    def _count_from(self, state: bytes | None) -> None:
        """Start the counter. It has an account of its own, since every step is charged here; both agree."""
        self._counter = self.mechanism.counter(self._limit).start(state=state)
        self._counter.source = self.source

    @property
    def clip(self) -> float | None:
        """The clip that is applied, in the values' unit, once it is known. Public."""
        return self._limit * self._grid if self._limit else None

    def reach(self, step: int) -> float:
        """By how much one observation can change what is released at a step after the lag, given the threshold."""
        return self.mechanism.reach(self._limit, step - self.origin - self.mechanism.lag)

    def _state(self) -> State:
        state: State = {"outside": self.outside, "limit": self._limit}
        if self._counter is None:
            return {**state, "sample": self._sample[: self.step - self.origin]}
        counter = np.frombuffer(self._counter.snapshot(), dtype=np.uint8)
        return {**state, "kept": self._kept, "counter": counter}

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        mechanism, steps = self.mechanism, len(matrix)
        units = np.broadcast_to(np.int64(self.ledger.units // mechanism.units), steps)
        self.ledger.charge_batch(first_step, units)
        own = first_step - self.origin
        early = min(steps, max(0, mechanism.lag - own + 1))
        values, deviations = np.zeros((steps, mechanism.outputs)), np.zeros(steps)
        status = np.full(steps, np.int8(Status.FRESH))
        source = np.arange(first_step, first_step + steps)
        status[:early], source[:early] = Status.APPROXIMATED, 0
        if early:
            self._collect(matrix[:early], own)
        if early < steps:
            values[early:], deviations[early:] = self._count(matrix[early:], own + early - mechanism.lag)
        return Releases(first_step, values, status, source, deviations, units, self.ledger.unit)

    def _collect(self, rows: Matrix, own: int) -> None:
        """Put observations into the sample; the last one of it buys the threshold."""
        mechanism = self.mechanism
        bound, end = mechanism.largest, own - 1 + len(rows)
        self.outside += clip_values(rows, bound, bound, self._sample[own - 1 : end])
        if end == mechanism.lag:
            released = mechanism.finder.draw(self._sample[:, 0], self.source, end)
            self._limit = mechanism.clip_of(released.grid_units)
            self._sample[:] = 0
            self._count_from(None)

    def _count(self, rows: Matrix, first: int) -> tuple[Values, Values]:
        assert self._counter is not None
        clipped = np.empty_like(rows)
        self.outside += clip_values(rows, self._limit, self.mechanism.largest, clipped)
        counted = self._counter.push_batch(self.mechanism.entered(clipped, self._limit))
        values, deviations, self._kept = self.mechanism.answers(counted, first, self._kept)
        return values, deviations


class ClippedHistogramRun(LearnedClipRun):
    """ClippedHistogram at work."""

    mechanism: ClippedHistogram

    @property
    def edges(self) -> Values | None:
        """The lower ends of the bins in the values' unit, once the threshold is known; the last is it. Public."""
        return self.mechanism.edges(self._limit) * self._grid if self._limit else None
