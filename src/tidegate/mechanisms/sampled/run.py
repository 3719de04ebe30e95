"""FAST or RescueDP at work: around a compiled loop that measures some steps and predicts the others."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Batch
from tidegate.mechanisms.run import ChargeAll, Matrix, Outputs, Row, Run, State, empty_outputs
from tidegate.mechanisms.sampled.kernels.measuring import DONE, NOISE, REFUSED
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.releases import Release, Releases

INLINE = 16  # up to so many columns the compiled loop draws the noise itself
CELLS = 1 << 16  # cells that a batch handles at once

Words = npt.NDArray[np.uint64]


class SampledRun(Run):
    """A run around a compiled loop that asks the ledger at each step it measures."""

    restores = True
    stream: ClassVar[str]  # the name of its noise

    loop: ClassVar[Any]  # the module of its compiled loop: `release`, and the names of the arrays in `STATE`

    # what a mechanism writes, besides the arrays that the loop reads

    _rule: npt.NDArray[np.int64]
    _numbers: npt.NDArray[np.float64]
    _model: npt.NDArray[np.float64]
    _settings: npt.NDArray[np.float64]
    _scratch: tuple[npt.NDArray[Any], ...]

    @abstractmethod
    def _scale(self, column: int) -> float:
        """The noise scale of one column of the step that the loop stands at, in grid units."""

    @abstractmethod
    def _requested(self) -> int:
        """The units of a step that was refused."""

    def _wide_noise(self, step: int) -> npt.NDArray[np.int64]:
        """The noise of all columns of a step."""
        return laplace(self.source, self.stream, step, self._scale(0), (self._columns,))

    # what they share

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
        self._given = np.zeros(self._columns, dtype=np.int64)

    def _state(self) -> State:
        return dict(self._arrays)

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        outputs, kept = empty_outputs(*matrix.shape), self._memory.copy()
        try:
            with self.ledger.begin_batch(len(matrix)) as batch:
                self._release(matrix, first_step, batch, outputs)
                batch.record(first_step, outputs[-1])
        except BaseException:
            self._memory[:] = kept
            raise
        return Releases(first_step, *outputs, self.ledger.unit)

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        values, status, source, scale, units = outputs = empty_outputs(*matrix.shape)
        try:
            with self.ledger.begin_batch(0) as batch:  # where all steps add up, an account keeps no rows
                self._release(matrix, 1, batch, outputs, length)
        finally:
            self._memory[:] = self._beginning
        charge(units)
        source += np.where(source > 0, np.arange(len(matrix)) // length * length, 0)
        return Releases(1, values, status, source, scale, units, self.ledger.unit)

    def _release(
        self, matrix: Matrix, first_step: int, batch: Batch, outputs: Outputs, length: int = 0
    ) -> None:
        """Run the loop piece by piece; with a `length`, over blocks of so many steps that begin afresh."""
        steps, columns = matrix.shape
        piece, draws = max(1, steps), 0
        if columns <= INLINE:
            piece, draws = max(1, CELLS // (columns * max(1, length))) * max(1, length), columns
        afresh = (self._memory, self._beginning, batch.state, batch.state.copy())
        values, status, source, scale, units = outputs
        for start in range(0, steps, piece):
            part = slice(start, start + piece)
            cut = (values[part], status[part], source[part], scale[part], units[part])
            self._release_piece(matrix[part], first_step + start, draws, batch, cut, length, afresh)

    def _release_piece(
        self,
        rows: Matrix,
        first_step: int,
        draws: int,
        batch: Batch,
        outputs: Outputs,
        length: int,
        afresh: tuple[npt.NDArray[np.int64], ...],
    ) -> None:
        words = self.source.words(self.stream, first_step, max(draws, 1), range(len(rows) * draws), 0, 2)
        state = tuple(self._arrays[name] for name in self.loop.STATE)
        settings = (self._rule, self._numbers, self._model, self._settings)
        others = (*settings, words, self._given, self._scratch, (batch.entries, batch.state), state, outputs)
        index, reason = 0, DONE
        while True:
            here = rows, index, reason == NOISE
            if length:
                index, reason = self.loop.release_blocks(*here, length, afresh, *others)
            else:
                index, reason = self.loop.release(*here, first_step, *others)
            if reason == DONE:
                return
            if reason == REFUSED:
                batch.refuse(first_step + index, self._requested())
            if not draws:
                self._given[:] = self._wide_noise(first_step + index)
                continue
            # some draw was undecided: all of them exactly, from the words the loop had
            for draw in range(draws):
                element = index * draws + draw
                taken = words[:, element].tolist()
                self._given[draw] = decide(
                    self.source, self.stream, first_step, draws, element, self._scale(draw), taken
                )
