"""Tide at work: a compiled loop, with estimates and schedules in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Batch
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.mechanisms.tide.kernels import loop
from tidegate.mechanisms.tide.schedule import replan
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.releases import ClassDeviations, Kinds, Release, Releases, Status
from tidegate.structures.kernels.tracking import refreshed
from tidegate.structures.state_space_tracker import Tracker

if TYPE_CHECKING:
    from tidegate.mechanisms.tide.tide import Tide

INLINE = 16  # up to so many columns the compiled loop draws the noise itself
CELLS = 1 << 16  # cells that a batch handles at once
STREAM = "tide"


class TideRun(Run):
    """Tide on one stream."""

    mechanism: Tide
    restores = True

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        tables = mechanism.choices
        self._tables = tables
        self._shares = tables.shares.copy()
        self._shares[:, loop.CHARGE] *= self.ledger.units // mechanism.units
        self._block = mechanism.revision // 2
        keep = 2 * self._block
        self._tracker = Tracker(mechanism.structure, self._columns, keep)
        self._rule = np.zeros(loop.RULE, dtype=np.int64)
        self._rule[loop.OPENS_UNTIL] = self.origin + mechanism.policy.steps_charged
        self._rule[loop.OPENING] = len(tables.shares) - 2
        self._rule[loop.FIRST] = tables.rows
        self._rule[loop.BLOCK] = self._block
        plan = np.zeros(loop.PLAN, dtype=np.int64)
        plan[loop.DUE] = self.step + 1
        self._own: State = {
            "plan": plan,
            "kept_units": np.zeros(keep, dtype=np.int64),
            "kept_scale": np.zeros(keep),
            "kept_source": np.zeros(keep, dtype=np.int64),
            "begun": np.array(
                [self.step + 1]
            ),  # the first step of this run: what is before it is not revised
        }
        self._given = np.zeros(self._columns, dtype=np.int64)
        self._measured = np.zeros(self._columns)
        if state:
            self._tracker.restore(state)
            self._own = {name: state[name].copy() for name in self._own}

    def _state(self) -> State:
        return {**self._tracker.memory, **self._own}

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        before = {name: value.copy() for name, value in self._state().items()}
        try:
            return self._release(matrix, first_step)
        except BaseException:
            self._tracker.restore(before)
            self._own = {name: before[name] for name in self._own}
            raise

    def _release(self, matrix: Matrix, first_step: int) -> Releases:
        steps, columns = matrix.shape
        classes = self._tracker.classes
        units = np.zeros(steps, dtype=np.int64)
        outputs = (
            np.empty((steps, columns)),
            np.empty(steps, dtype=np.int8),
            np.empty(steps, dtype=np.int64),
            np.empty(steps),
            units,
            np.empty((steps, classes)),
        )
        revised = self._room_for_revised(first_step, steps)
        kinds: Kinds = [(0, self._tracker.memory["kind"].copy())]
        changes: Kinds = [(0, kinds[0][1])]
        length = max(1, CELLS // columns) if columns <= INLINE else max(1, steps)
        with self.ledger.begin_batch(steps) as batch:
            for start in range(0, steps, length):
                block = tuple(output[start : start + length] for output in outputs)
                rows = matrix[start : start + length]
                self._release_block(rows, first_step + start, batch, block, revised, (start, kinds, changes))
            batch.record(first_step, units)
        values, status, source, scale, units, by_class = outputs
        return Releases(
            first_step,
            values,
            status,
            source,
            scale,
            units,
            self.ledger.unit,
            0,
            revised=self._revised(first_step, revised, changes),
            deviation=ClassDeviations(by_class, kinds),
        )

    def _release_block(
        self,
        rows: Matrix,
        first_step: int,
        batch: Batch,
        outputs: tuple[Any, ...],
        revised: tuple[Any, ...],
        kinds: tuple[int, Kinds, Kinds],
    ) -> None:
        steps, columns = rows.shape
        draws = columns if columns <= INLINE else 0
        words = self.source.words(STREAM, first_step, max(draws, 1), range(steps * draws), 0, 2)
        tracker, own = self._tracker, self._own
        values, status, source, scale, units, deviations = outputs
        index, reason = 0, loop.DONE
        while True:
            index, reason = loop.release(
                rows,
                index,
                reason,
                first_step,
                self._rule,
                self._shares,
                self._tables.scales,
                words,
                self._given,
                self._measured,
                batch.entries,
                batch.state,
                own["plan"],
                tracker.book,
                tracker.structure.once,
                tracker.structure.weight,
                tracker.room,
                self._grid,
                self.mechanism.nonnegative,
                own["kept_units"],
                own["kept_scale"],
                own["kept_source"],
                values,
                status,
                source,
                scale,
                units,
                deviations,
                revised,
            )
            if reason == loop.DONE:
                return
            taken = int(own["plan"][loop.TAKEN])
            if reason == loop.REFUSED:
                batch.refuse(first_step + index, int(self._shares[taken, loop.CHARGE]))
            elif reason == loop.FIT:
                self._refit(kinds[0] + index, int(revised[5][0]), kinds)
            else:
                self._supply(words, draws, first_step, index, float(self._tables.scales[taken, loop.SCALE]))

    def _refit(self, at: int, revised: int, kinds: tuple[int, Kinds, Kinds]) -> None:
        """New hyper-parameters and a new schedule, from measurements alone."""
        tracker = self._tracker
        tracker.refit()
        refreshed(tracker.book, tracker.structure.weight, tracker.room)
        mechanism = self.mechanism
        later = mechanism.aim == "revised"
        window = mechanism.policy.steps_charged
        replan(self._tables, tracker, self._own["plan"], window, later, self.origin)
        if self._columns > INLINE:
            kinds[1].append((at, tracker.memory["kind"].copy()))
            kinds[2].append((revised, kinds[1][-1][1]))

    def _supply(self, words: Any, draws: int, first_step: int, index: int, scale: float) -> None:
        """The noise that the loop could not draw itself."""
        if not draws:
            self._given[:] = laplace(self.source, STREAM, first_step + index, scale, (self._columns,))
        for draw in range(draws):
            element = index * draws + draw
            taken = words[:, element].tolist()
            self._given[draw] = decide(self.source, STREAM, first_step, draws, element, scale, taken)

    # smoothed values -------------------------------------------------------------------------------------------

    def _room_for_revised(self, first_step: int, steps: int) -> tuple[Any, ...]:
        block, classes = self._block, self._tracker.classes
        blocks = (first_step + steps - 1) // block - (first_step - 1) // block if block else 0
        return self._empty(blocks * block, classes)

    def _empty(self, room: int, classes: int) -> tuple[Any, ...]:
        return (
            np.empty((room, self._columns)),
            np.empty((room, classes)),
            np.empty(room, dtype=np.int64),
            np.empty(room),
            np.empty(room, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
        )

    def _revised(self, first_step: int, revised: tuple[Any, ...], kinds: Kinds) -> Releases | None:
        """The steps that were smoothed in a batch from `first_step` on."""
        count, block = int(revised[5][0]), self._block
        if not count:
            return None
        ends_first = max(-(-first_step // block), 2) * block  # the first end of a block that revises
        first = ends_first - 2 * block + 1
        steps = np.arange(first, first + count)
        ends = (-(-steps // block) + 1) * block
        return self._smoothed(first, revised, count, ends, kinds)

    def _smoothed(
        self, first: int, revised: tuple[Any, ...], count: int, ends: npt.NDArray[np.int64], kinds: Kinds
    ) -> Releases | None:
        values, by_class, source, scale, units = (array[:count] for array in revised[:5])
        steps = np.arange(first, first + count)
        status = np.where(units > 0, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED))
        torn = max(0, int(self._own["begun"][0]) - first)  # steps that this run has not seen
        if torn >= count:
            return None
        kinds = [(max(0, begin - torn), kind) for begin, kind in kinds]
        return Releases(
            first + torn,
            values[torn:],
            status[torn:],
            source[torn:],
            scale[torn:],
            units[torn:],
            self.ledger.unit,
            int((ends - steps).max()),
            ends=ends[torn:],
            deviation=ClassDeviations(by_class[torn:], kinds),
        )

    def flush(self) -> Releases | None:
        """Smoothed values of the last steps, whose delay is not over, as far as they can be known now."""
        self._may_go_on(0)
        block, keep = self._block, 2 * self._block
        done = (self.step // block - 1) * block if block and self.step >= keep else 0
        begun = int(self._own["begun"][0])
        rest = self.step - max(done, begun - 1)
        if not block or rest <= 0:
            return None
        revised = self._empty(keep, self._tracker.classes)
        tracker, own = self._tracker, self._own
        loop.revise(
            self.step,
            keep,
            tracker.book,
            tracker.structure.once,
            self._grid,
            self.mechanism.nonnegative,
            own["kept_units"],
            own["kept_scale"],
            own["kept_source"],
            revised,
        )
        last = tuple(array[keep - rest :] for array in revised[:5])
        ends = np.full(rest, self.step)
        return self._smoothed(
            self.step - rest + 1, (*last, revised[5]), rest, ends, [(0, tracker.memory["kind"].copy())]
        )
