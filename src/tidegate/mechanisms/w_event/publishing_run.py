"""Budget Distribution or Budget Absorption at work: blocks of steps, their random words, the account, the way back."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import BudgetExceeded
from tidegate.exact import float_up
from tidegate.ledger import Batch
from tidegate.ledger.kernels import account_remaining
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.run import Matrix, Row, Run, State, empty_outputs
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN
from tidegate.noise.discrete_laplace import decide, laplace_pieces
from tidegate.releases import Release, Releases

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing

INLINE = 16  # up to so many columns the compiled loop draws publication noise itself
CELLS = 1 << 16  # cells that a batch handles at once


class PublishingRun(Run):
    """Budget Distribution or Budget Absorption at work."""

    mechanism: Publishing
    restores = True

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        groups = mechanism.group_count
        factor = self.ledger.units // mechanism.units
        _, test, pool = (share * factor for share in mechanism.shares)
        self._whole = float_up(Fraction(mechanism.whole_scale) * factor)
        self._rule = np.array(
            [
                mechanism.kind,
                mechanism.window,
                test,
                pool // mechanism.window,
                pool,
                list(BUILT_IN).index(mechanism.measure.name) if mechanism.measure.name in BUILT_IN else -1,
            ],
            dtype=np.int64,
        )
        regroups = isinstance(mechanism.groups, int) and groups > 1
        self._regroup_every = (mechanism.regroup_every or mechanism.window) if regroups else 0
        self._repaid = mechanism.repaid()
        self._given = np.zeros(max(groups, self._columns if self._columns <= INLINE else 1), dtype=np.int64)
        self._chosen = np.zeros(groups, dtype=np.bool_)
        self._scores = np.zeros(groups, dtype=np.int64)
        memory = np.zeros(loop.MEMORY, dtype=np.int64)
        memory[loop.TAKEN] = 1
        memory[loop.LATEST] = memory[loop.SINCE] = self.origin  # steps before this run have given it nothing
        fresh = {
            "memory": memory,
            "paid": np.zeros((0, 2), dtype=np.int64),
            "last": np.zeros(self._columns, dtype=np.int64),
            "measured": np.zeros(groups, dtype=np.int64),
            "scales": np.zeros(groups),
            "group_of": mechanism.initial_groups(),
            "squares": np.zeros(self._columns if regroups else 0),
        }
        self._set_state({**fresh, **(state or {})})

    def _set_state(self, state: State) -> None:
        paid = state["paid"]
        self._memory = state["memory"]
        self._memory[loop.HEAD] = 0
        self._memory[loop.PHASE] = 0
        self._paid = paid if len(paid) else np.zeros((1, 2), dtype=np.int64)
        self._last = state["last"]
        self._measured = state["measured"]
        self._scales = state["scales"]
        if "group_of" in state:
            self._group_of = state["group_of"]
            self._squares = state["squares"]
        self._weigh()

    def _state(self) -> State:
        memory = self._memory.copy()
        memory[loop.HEAD] = 0  # as in `_live`: where publications lie says nothing
        state = {
            "memory": memory,
            "paid": self._live(),
            "last": self._last,
            "measured": self._measured,
            "scales": self._scales,
        }
        if self._regroup_every:
            state |= {"group_of": self._group_of, "squares": self._squares}
        return state

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        self._refuse_in_transaction()
        steps, columns = matrix.shape
        outputs = empty_outputs(steps, columns)
        units = outputs[-1]
        kept = {name: np.copy(array) for name, array in self._state().items()}
        try:
            with self.ledger.begin_batch(steps) as batch:  # charges to one step share a row
                start = 0
                while start < steps:
                    stop = min(steps, start + self._block_length(first_step + start, batch))
                    block = tuple(output[start:stop] for output in outputs)
                    self._release_block(matrix[start:stop], first_step + start, batch, block)
                    start = stop
                    if self._regroup_every and (first_step + stop - 1) % self._regroup_every == 0:
                        self._regroup(first_step + stop - 1)
                batch.record(first_step, units)
        except BudgetExceeded:
            self._set_state(kept)
            # where the refusal came depends on the decisions before it, so these stay paid
            self.ledger.charge_batch(first_step, np.trim_zeros(units, "b"))
            raise
        except BaseException:
            self._set_state(kept)
            raise
        return Releases(first_step, *outputs, self.ledger.unit)

    def _block_length(self, step: int, batch: Batch) -> int:
        """How many steps to handle at once, from this one on; the ledger must at least allow its test."""
        if account_remaining(batch.entries, batch.state, step) < self._rule[loop.TEST_UNITS]:
            batch.refuse(step, int(self._rule[loop.TEST_UNITS]))
        if self._rule[loop.MEASURE] < 0:
            return 1
        drawn = self._columns if self._columns <= INLINE else self.mechanism.group_count
        length = max(1, CELLS // drawn)
        if self._regroup_every:
            length = min(length, self._regroup_every - (step - 1) % self._regroup_every)
        return length

    def _release_block(self, rows: Matrix, first_step: int, batch: Batch, outputs: tuple[Any, ...]) -> None:
        steps, columns = rows.shape
        groups = self.mechanism.group_count
        draws = columns if columns <= INLINE else 0
        self._make_room(first_step, steps)
        if self._rule[loop.MEASURE] < 0:
            self._score(rows[0])
        score_words = self.source.words("dissimilarity", first_step, groups, range(steps * groups), 0, 2)
        cell_words = self.source.words("publication", first_step, max(draws, 1), range(steps * draws), 0, 2)
        index, reason = 0, loop.SCORE_NOISE
        while reason != loop.DONE:
            index, reason = loop.publish(
                rows,
                index,
                first_step,
                self._rule,
                self._whole,
                self.mechanism.score_scale,
                self._weights,
                self._group_of,
                score_words,
                cell_words,
                self._given,
                batch.entries,
                batch.state,
                self._memory,
                self._paid,
                self._repaid,
                self._last,
                self._measured,
                self._scales,
                self._squares,
                self._chosen,
                self._scores,
                self._grid,
                *outputs,
            )
            step = first_step + index
            if reason == loop.SCORE_NOISE:
                scale, given = self.mechanism.score_scale, self._given[:groups]
                self._draw("dissimilarity", first_step, groups, index * groups, scale, score_words, given)
            elif reason == loop.CELL_NOISE:
                self._publish(rows[index], first_step, index, draws, cell_words)
            elif reason == loop.REFUSED:
                batch.refuse(step, int(self._rule[loop.TEST_UNITS]))

    def _publish(
        self, row: Row, first_step: int, index: int, draws: int, words: npt.NDArray[np.uint64]
    ) -> None:
        """Overwrite what was last published by one step plus noise: a piece at a time, since d may be large."""
        step = first_step + index
        scale = publication_scale(self._whole, int(self._memory[loop.AMOUNT]))
        if draws:
            self._draw("publication", first_step, draws, index * draws, scale, words, self._given)
            pieces = iter([(0, self._given)])
        else:
            pieces = laplace_pieces(self.source, "publication", step, scale, len(row))
        for first, noise in pieces:
            loop.overwrite(
                row,
                first,
                noise,
                step,
                self._chosen,
                self._group_of,
                self._measured,
                self._memory,
                self._grid,
                self._last,
                self._squares,
            )

    def _draw(
        self,
        stream: str,
        first_step: int,
        draws: int,
        first: int,
        scale: float,
        words: npt.NDArray[np.uint64],
        out: npt.NDArray[np.int64],
    ) -> None:
        """Decide the noise of one step exactly, from the words that the compiled loop had for it."""
        for draw in range(len(out)):
            taken = words[:, first + draw].tolist()
            out[draw] = decide(self.source, stream, first_step, draws, first + draw, scale, taken)

    def _score(self, row: Row) -> None:
        """The scores of a dissimilarity that is not built in."""
        for group in range(len(self._scores)):
            columns = self._group_of == group if self._group_of.size else slice(None)
            score = int(self.mechanism.measure.score(row[columns], self._last[columns]))
            self._scores[group] = max(0, min(score, loop.MOST))

    def _make_room(self, first_step: int, steps: int) -> None:
        """Let `paid` hold every publication that the next steps can add to the window."""
        if self._rule[loop.KIND] != loop.DISTRIBUTION:
            return
        loop.offer(self._rule, self._memory, self._paid, first_step)  # forgets what has left the window
        needed = min(self.mechanism.window, int(self._memory[loop.COUNT]) + steps)
        if needed > len(self._paid):
            live = self._live()
            self._paid = np.zeros(
                (max(needed, min(2 * len(self._paid), self.mechanism.window)), 2), dtype=np.int64
            )
            self._paid[: len(live)] = live
            self._memory[loop.HEAD] = 0

    def _live(self) -> npt.NDArray[np.int64]:
        order = (self._memory[loop.HEAD] + np.arange(self._memory[loop.COUNT])) % len(self._paid)
        live: npt.NDArray[np.int64] = self._paid[order]
        return live

    def _weigh(self) -> None:
        """The score that noise of scale 1 would cause by itself, for each group."""
        sizes = np.bincount(self._group_of) if self._group_of.size else np.array([self._columns])
        self._weights = np.array([self.mechanism.measure.expected(int(size)) for size in sizes])

    def _regroup(self, step: int) -> None:
        """Form groups of equal size by the root mean square of the releases since the last time."""
        groups = self.mechanism.group_count
        stood = step - np.maximum(self._measured[self._group_of], self._memory[loop.SINCE])
        squares = self._squares + (self._last * self._grid) ** 2 * stood
        order = np.argsort(squares, kind="stable")
        measured, scales = self._measured[self._group_of], self._scales[self._group_of]
        self._group_of[order] = np.arange(self._columns) * groups // self._columns
        for group in range(groups):  # a mixed group is as old, and as noisy, as its worst column
            members = self._group_of == group
            self._measured[group] = measured[members].max()
            self._scales[group] = scales[members].max()
        self._squares[:] = 0
        self._memory[loop.SINCE] = step
        self._weigh()
