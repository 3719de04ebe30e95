"""What the runs of FAST and RescueDP share: a compiled loop that measures some steps and predicts the others."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Batch
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.releases import Release, Releases

INLINE = 16  # up to so many columns the compiled loop draws the noise itself
CELLS = 1 << 16  # cells that a batch handles at once

# why a loop returned
DONE = 0
NOISE = 1  # it needs the noise of this step, which is already charged
REFUSED = 2  # the ledger refused the step

Words = npt.NDArray[np.uint64]


class SampledRun(Run):
    """A run around a compiled loop that asks the ledger at each step it measures."""

    stream: ClassVar[str]  # the name of its noise

    # what a mechanism writes

    @abstractmethod
    def _loop(
        self,
        rows: Matrix,
        index: int,
        paused: bool,
        first_step: int,
        words: Words,
        batch: Batch,
        outputs: tuple[Any, ...],
    ) -> tuple[int, int]:
        """Go on with the compiled loop at rows[index]; (index of the step where it returned, why)."""

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
        values = np.empty((steps, columns))
        status = np.empty(steps, dtype=np.int8)
        source = np.empty(steps, dtype=np.int64)
        scale = np.empty(steps)
        units = np.zeros(steps, dtype=np.int64)
        outputs = (values, status, source, scale, units)
        kept = {name: np.copy(array) for name, array in self._memory.items()}
        length = max(1, CELLS // columns) if columns <= INLINE else max(1, steps)
        try:
            with self.ledger.begin_batch(steps) as batch:
                for start in range(0, steps, length):
                    block = tuple(output[start : start + length] for output in outputs)
                    self._release_block(matrix[start : start + length], first_step + start, batch, block)
                batch.record(first_step, units)
        except BaseException:
            self._memory = kept
            raise
        return Releases(first_step, values, status, source, scale, units, self.ledger.unit)

    def _release_block(self, rows: Matrix, first_step: int, batch: Batch, outputs: tuple[Any, ...]) -> None:
        steps, columns = rows.shape
        draws = columns if columns <= INLINE else 0
        words = self.source.words(self.stream, first_step, max(draws, 1), range(steps * draws), 0, 2)
        index, reason = 0, DONE
        while True:
            index, reason = self._loop(rows, index, reason == NOISE, first_step, words, batch, outputs)
            if reason == DONE:
                return
            if reason == REFUSED:
                batch.refuse(first_step + index, self._requested())
            if not draws:
                self._given[:] = self._wide_noise(first_step + index)
                continue
            for draw in range(
                draws
            ):  # some draw was undecided: all of them exactly, from the words the loop had
                element = index * draws + draw
                taken = words[:, element].tolist()
                self._given[draw] = decide(
                    self.source, self.stream, first_step, draws, element, self._scale(draw), taken
                )
