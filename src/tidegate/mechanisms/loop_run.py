"""A run around a compiled loop: blocks of steps, their random words, pauses, the account, and the way back."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import BudgetExceeded
from tidegate.ledger import Batch
from tidegate.mechanisms.kernels.loops import DONE, REFUSED, Outputs
from tidegate.mechanisms.run import Matrix, Run
from tidegate.mechanisms.shared_noise import SharedNoise
from tidegate.noise import Source, laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.releases import Releases

INLINE = 16  # up to so many columns a loop draws the noise itself
CELLS = 1 << 16  # cells that a batch handles at once
NO_WORDS = np.empty((2, 0), dtype=np.uint64)


class Drawn:
    """The random words of one kind of noise for consecutive steps, so many draws a step.

    Attributes
    ----------
    words
        2 × steps·draws words, for the compiled loop.
    """

    __slots__ = ("_address", "_source", "draws", "words")

    def __init__(self, source: Source, stream: str, first_step: int, steps: int, draws: int) -> None:
        self._source, self._address, self.draws = source, (stream, first_step, max(draws, 1)), draws
        self.words = source.words(*self._address, range(steps * draws), 0, 2) if draws else NO_WORDS

    def decide(self, index: int, scale: float | npt.NDArray[np.float64], out: npt.NDArray[np.int64]) -> None:
        """The noise of one step exactly, from the words that the loop had for it."""
        scales = np.broadcast_to(scale, (self.draws,)).tolist()
        for draw in range(self.draws):
            element = index * self.draws + draw
            taken = self.words[:, element].tolist()
            out[draw] = decide(self._source, *self._address, element, scales[draw], taken)


@dataclass(slots=True)
class Block:
    """Consecutive steps that a loop releases in one go."""

    rows: Matrix
    first_step: int
    batch: Batch
    outputs: tuple[npt.NDArray[Any], ...]
    drawn: Any = None  # the random words that it takes


class LoopRun(Run):
    """A run around a compiled loop, which pauses where Python must help; see `mechanisms/kernels/loops.py`."""

    restores = True
    _noise: SharedNoise | None = None  # that measurements share
    stream: ClassVar[str]
    """The name of its noise."""

    _given: npt.NDArray[np.int64]  # noise that is handed to the loop

    # what a family writes

    @abstractmethod
    def _kept(self) -> Any:
        """A copy of all that the loop changes."""

    @abstractmethod
    def _put_back(self, kept: Any) -> None:
        """Be as when this copy was made."""

    loop: ClassVar[Any]
    """The module of its compiled loop: `release` and the names of what it works on."""

    @abstractmethod
    def _arguments(self, block: Block) -> tuple[Any, ...]:
        """What the loop takes besides the steps, and where it paused."""

    @abstractmethod
    def _requested(self) -> int:
        """The units of a step that was refused."""

    @abstractmethod
    def _scale(self) -> float | npt.NDArray[np.float64]:
        """The noise scale of the step that the loop stands at, in grid units: one, or one for each column."""

    def _refused(self, first_step: int, units: npt.NDArray[np.int64]) -> None:
        """Charge what a refusal tells of the steps before it, which are taken back."""

    def _draw(self, block: Block) -> Any:
        """The random words of a block."""
        draws = self._columns if self._columns <= INLINE else 0
        return Drawn(self.source, self.stream, block.first_step, len(block.rows), draws)

    def _help(self, block: Block, index: int, reason: int) -> None:
        """Do what the loop paused for; here: supply the noise of a step that it could not draw itself."""
        if block.drawn.draws:
            block.drawn.decide(index, self._scale(), self._given)
        else:
            step, shape = block.first_step + index, (self._columns,)
            self._given[:] = laplace(self.source, self.stream, step, self._scale(), shape)

    def _empty(self, steps: int) -> Any:
        """Arrays for the loop to fill; the field `units`, what each step is charged, begins at 0."""
        return Outputs(
            np.empty((steps, self._columns)),
            np.empty(steps, dtype=np.int8),
            np.empty(steps, dtype=np.int64),
            np.empty(steps),
            np.zeros(steps, dtype=np.int64),
        )

    def _length(self, step: int, batch: Batch) -> int:
        """How many steps to handle at once, from this one on."""
        return max(1, CELLS // self._columns) if self._columns <= INLINE else CELLS

    def _most_groups(self) -> int:
        """How many groups of steps the loop may charge, at most."""
        return 0

    def _given_up(self, error: BaseException, first_step: int, outputs: Any) -> None:
        """Charge what an error tells of noise that was drawn, before the state is put back."""

    def _record(self, batch: Batch, first_step: int, outputs: Any) -> None:
        """Charge what the loop charged."""
        batch.record(first_step, outputs.units)

    # what they share

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._noise is not None:
            return self._push_batch_shared(matrix, first_step, self._noise)
        outputs, kept = self._empty(len(matrix)), self._kept()
        try:
            with self.ledger.begin_batch(len(matrix), self._most_groups()) as batch:
                self._release(matrix, first_step, batch, outputs)
                self._record(batch, first_step, outputs)
        except BaseException as error:
            try:
                self._given_up(error, first_step, outputs)
            except BaseException:
                # a charge that failed: what was drawn is seen by nobody, and nobody goes on with it
                self.taken_back()
                raise
            finally:
                self._put_back(kept)
            if isinstance(error, BudgetExceeded):
                self._refused(first_step, outputs.units)
            raise
        return self._releases(first_step, outputs)

    def _push_batch_shared(self, matrix: Matrix, first_step: int, noise: SharedNoise) -> Releases:
        """The same where measurements share noise: whoever draws and fails is not used again, nor are its snapshots."""
        outputs, kept = self._empty(len(matrix)), self._kept()
        before, state, account = noise.state, vars(noise).copy(), None
        try:
            with self.ledger.begin_batch(len(matrix), noise.most_groups(len(matrix))) as batch:
                with noise.lent(batch) as account:
                    self._release(matrix, first_step, batch, outputs)
                if len(matrix) != 1 or self.ledger.durable:  # a batch may be empty
                    account.record(first_step, outputs.units, batch.record)
                else:
                    account.record_one(first_step, int(outputs.units[0]))
        except BaseException:
            drawn = noise.state is not before
            noise.put_back(state)
            self._put_back(kept)
            # what led here may depend on noise, so it stays paid
            if drawn and account is not None:
                stands = self.ledger.rows, self.ledger.step
                if stands == (self.charges, account.stood):
                    account.record(first_step, outputs.units, self.ledger.charge_batch)
            raise
        return self._releases(first_step, outputs)

    def _releases(self, first_step: int, outputs: Any) -> Releases:
        values, status, source, scale, units = outputs
        return Releases(first_step, values, status, source, scale, units, self.ledger.unit)

    def _release(self, matrix: Matrix, first_step: int, batch: Batch, outputs: tuple[Any, ...]) -> None:
        """Release all steps, block by block."""
        start, steps = 0, len(matrix)
        while start < steps:
            stop = min(steps, start + self._length(first_step + start, batch))
            cut = tuple([output[start:stop] for output in outputs])
            self._release_block(Block(matrix[start:stop], first_step + start, batch, cut))
            start = stop

    def _go_on(self, block: Block, index: int, reason: int) -> tuple[int, int]:
        """Let the loop release the steps from `index` on, where it paused for a reason; the answer is the next pause."""
        index, reason = self.loop.release(
            block.rows, index, reason, block.first_step, *self._arguments(block)
        )
        return index, reason

    def _release_block(self, block: Block) -> None:
        """The one driver of compiled loops: let it run, help where it pauses, until it is done."""
        block.drawn = self._draw(block)
        index, reason = self._go_on(block, 0, DONE)
        while reason != DONE:
            if reason == REFUSED:
                block.batch.refuse(block.first_step + index, self._requested())
            self._help(block, index, reason)
            index, reason = self._go_on(block, index, reason)
