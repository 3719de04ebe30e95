"""FAST or RescueDP at work: around a compiled loop that measures some steps and predicts the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Batch
from tidegate.mechanisms.kernels.loops import Outputs
from tidegate.mechanisms.loop_run import CELLS, INLINE, Block, LoopRun
from tidegate.mechanisms.run import ChargeAll, Matrix, State
from tidegate.mechanisms.sampled.kernels.kalman import Model
from tidegate.mechanisms.sampled.kernels.pid import Control
from tidegate.releases import Releases


class SampledRun(LoopRun):
    """A run around a compiled loop that asks the ledger at each step it measures."""

    # what a mechanism writes, besides the arrays that the loop keeps

    _rule: Any
    _model: Model
    _control: Control
    _work: Any

    _afresh: tuple[Any, ...] | None = (
        None  # the length of blocks that begin anew, and from what, while there are any
    )

    def _remember(self, fresh: State, state: State | None) -> None:
        """Lay the arrays that the loop works on into one piece of memory, so that a block begins anew by one copy."""
        self._beginning = np.concatenate([array.reshape(-1).view(np.int64) for array in fresh.values()])
        self._memory = self._beginning.copy()
        self._arrays: State = {}
        end = 0
        for name, array in fresh.items():
            begin, end = end, end + array.size
            self._arrays[name] = self._memory[begin:end].view(array.dtype).reshape(array.shape)
        for name, array in (state or {}).items():
            self._arrays[name][...] = array
        self._listed = tuple([self._arrays[name] for name in self.loop.Memory._fields])

    def _state(self) -> State:
        return dict(self._arrays)

    def _kept(self) -> npt.NDArray[np.int64]:
        return self._memory.copy()

    def _put_back(self, kept: npt.NDArray[np.int64]) -> None:
        self._memory[:] = kept

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        values, status, source, scale, units = outputs = self._empty(len(matrix))
        try:
            with self.ledger.begin_batch(0) as batch:  # where all steps add up, an account keeps no rows
                self._repeat(matrix, length, batch, outputs)
        finally:
            self._memory[:] = self._beginning
        charge(units)
        source += np.where(source > 0, np.arange(len(matrix)) // length * length, 0)
        return Releases(1, values, status, source, scale, units, self.ledger.unit)

    def _repeat(self, matrix: Matrix, length: int, batch: Batch, outputs: Outputs) -> None:
        self._afresh = length, self._memory, self._beginning, batch.state.copy()
        try:
            self._release(matrix, 1, batch, outputs)
        finally:
            self._afresh = None

    def _length(self, step: int, batch: Batch) -> int:
        if self._afresh is None:
            return super()._length(step, batch)
        period: int = self._afresh[0]
        whole = CELLS // (self._columns * period) if self._columns <= INLINE else CELLS // period
        return max(1, whole) * period

    def _randomness(self, block: Block) -> tuple[Any, ...]:
        """What the loop takes its noise from."""
        return (block.drawn.words,)

    def _arguments(self, block: Block) -> tuple[Any, ...]:
        rules = (self._rule[:], self._model[:], self._control[:])
        own = (self._afresh, rules, *self._randomness(block), self._work[:])
        return *own, block.batch.account, self._listed, block.outputs
