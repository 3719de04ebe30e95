"""FAST or RescueDP at work: around a compiled loop that measures some steps and predicts the others."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Batch
from tidegate.mechanisms.kernels.sampled import DONE, NOISE, REFUSED
from tidegate.mechanisms.run import Matrix, Outputs, Row, Run, State, empty_outputs
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.releases import Release, Releases

INLINE = 16  # up to so many columns the compiled loop draws the noise itself
CELLS = 1 << 16  # cells that a batch handles at once

Words = npt.NDArray[np.uint64]


class SampledRun(Run):
    """A run around a compiled loop that asks the ledger at each step it measures."""

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

    def _remember(self, state: State) -> None:
        """Take over the arrays that the loop works on."""
        self._memory: State = dict(state)
        self._given = np.zeros(self._columns, dtype=np.int64)

    def _state(self) -> State:
        return dict(self._memory)

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps, columns = matrix.shape
        outputs = empty_outputs(steps, columns)
        kept = {name: np.copy(array) for name, array in self._memory.items()}
        length = max(1, CELLS // columns) if columns <= INLINE else max(1, steps)
        try:
            with self.ledger.begin_batch(steps) as batch:
                for start in range(0, steps, length):
                    block = slice(start, start + length)
                    values, status, source, scale, units = outputs
                    cut = (values[block], status[block], source[block], scale[block], units[block])
                    self._release_block(matrix[block], first_step + start, batch, cut)
                batch.record(first_step, outputs[-1])
        except BaseException:
            self._memory = kept
            raise
        return Releases(first_step, *outputs, self.ledger.unit)

    def _release_block(self, rows: Matrix, first_step: int, batch: Batch, outputs: Outputs) -> None:
        steps, columns = rows.shape
        draws = columns if columns <= INLINE else 0
        words = self.source.words(self.stream, first_step, max(draws, 1), range(steps * draws), 0, 2)
        account, state = (batch.entries, batch.state), tuple(self._memory[name] for name in self.loop.STATE)
        index, reason = 0, DONE
        while True:
            index, reason = self.loop.release(
                rows,
                index,
                reason == NOISE,
                first_step,
                self._rule,
                self._numbers,
                self._model,
                self._settings,
                words,
                self._given,
                self._scratch,
                account,
                state,
                outputs,
            )
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
