"""Tide at work: a compiled loop, with estimates and schedules in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.loop_run import INLINE, Block, LoopRun
from tidegate.mechanisms.mechanism import Matrix, State
from tidegate.mechanisms.tide.kernels import loop
from tidegate.mechanisms.tide.schedule import replan
from tidegate.releases import ClassDeviations, Kinds, Releases, Status
from tidegate.structures.kernels.tracking import refreshed
from tidegate.structures.state_space_tracker import Tracker

if TYPE_CHECKING:
    from tidegate.mechanisms.tide.tide import Tide


class TideRun(LoopRun):
    """Tide on one stream."""

    mechanism: Tide
    stream: ClassVar[str] = "tide"

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        tables = mechanism.choices
        self._tables = tables
        shares = tables.shares.copy()
        shares[:, loop.CHARGE] *= self.ledger.units // mechanism.units
        self._block = mechanism.revision // 2
        keep = 2 * self._block
        self._tracker = Tracker(mechanism.structure, self._columns, keep)
        self._rule = loop.Rule(
            opens_until=self.origin + mechanism.policy.steps_charged,
            dense=0,
            opening=len(tables.shares) - 2,
            first=tables.rows,
            block=self._block,
            grid=self._grid,
            nonnegative=mechanism.nonnegative,
            shares=shares,
            scales=tables.scales,
        )
        plan = np.zeros(loop.PLAN, dtype=np.int64)
        plan[loop.DUE] = self.step + 1
        self._own: State = {
            "plan": plan,
            "kept_units": np.zeros(keep, dtype=np.int64),
            "kept_scale": np.zeros(keep),
            "kept_source": np.zeros(keep, dtype=np.int64),
            "kept_measured": np.full((keep, self._columns), np.nan),
            "begun": np.array(
                [self.step + 1]
            ),  # the first step of this run: what is before it is not revised
        }
        self._given = np.zeros(self._columns, dtype=np.int64)
        self._work = loop.Work(given=self._given, measured=np.zeros(self._columns))
        if state:
            self._tracker.restore(state)
            # snapshots of version 0.1 have no measurements: unknown ones, which are no numbers, let nothing stand
            self._own = {name: {**self._own, **state}[name].copy() for name in self._own}

    def _state(self) -> State:
        return {**self._tracker.memory, **self._own}

    def _kept(self) -> State:
        return {name: value.copy() for name, value in self._state().items()}

    def _put_back(self, kept: State) -> None:
        self._tracker.restore(kept)
        self._own = {name: kept[name] for name in self._own}

    @property
    def _rings(self) -> tuple[npt.NDArray[Any], ...]:
        """What is kept of the steps that are still to be revised, in the order of `loop.Kept`."""
        own = self._own
        return own["kept_units"], own["kept_scale"], own["kept_source"], own["kept_measured"]

    def _empty(self, steps: int) -> loop.TideOutputs:
        return loop.TideOutputs._make([*super()._empty(steps), np.empty((steps, self._tracker.classes))])

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        kind = self._tracker.memory["kind"].copy()
        self._revisions = self._room_for_revised(first_step, len(matrix))
        # the classes of the columns, from which step of the batch and from which revised step on
        self._kinds, self._revised_kinds = [(0, kind)], [(0, kind)]
        self._first = first_step
        return super()._push_batch(matrix, first_step)

    def _releases(self, first_step: int, outputs: Any) -> Releases:
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
            revised=self._revised(first_step, self._revisions, self._revised_kinds),
            deviation=ClassDeviations(by_class, self._kinds),
        )

    def _go_on(self, block: Block, index: int, reason: int) -> tuple[int, int]:
        tracker = self._tracker
        index, reason = loop.release(
            block.rows,
            index,
            reason,
            block.first_step,
            self._rule[:],
            block.drawn.words,
            self._work[:],
            block.batch.account,
            self._own["plan"],
            tracker.book[:],
            tracker.season[:],
            tracker.room[:],
            self._rings,
            block.outputs,
            self._revisions[:],
        )
        return index, reason

    def _help(self, block: Block, index: int, reason: int) -> None:
        if reason == loop.FIT:
            self._refit(block.first_step + index - self._first)
        else:
            super()._help(block, index, reason)

    def _scale(self) -> float:
        return float(self._rule.scales[self._own["plan"][loop.TAKEN], loop.SCALE])

    def _requested(self) -> int:
        return int(self._rule.shares[self._own["plan"][loop.TAKEN], loop.CHARGE])

    def _refit(self, at: int) -> None:
        """New hyper-parameters and a new schedule, from measurements alone."""
        tracker = self._tracker
        tracker.refit()
        refreshed(tracker.book[:], tracker.season[:], tracker.room[:])
        mechanism = self.mechanism
        later = mechanism.aim == "revised"
        window = mechanism.policy.steps_charged
        replan(self._tables, tracker, self._own["plan"], window, later, self.origin)
        if self._columns > INLINE:
            kind = tracker.memory["kind"].copy()
            self._kinds.append((at, kind))
            self._revised_kinds.append((int(self._revisions.count[0]), kind))

    # smoothed values -------------------------------------------------------------------------------------------

    def _room_for_revised(self, first_step: int, steps: int) -> loop.Revised:
        block = self._block
        blocks = (first_step + steps - 1) // block - (first_step - 1) // block if block else 0
        return self._empty_revised(blocks * block)

    def _empty_revised(self, room: int) -> loop.Revised:
        return loop.Revised(
            values=np.empty((room, self._columns)),
            deviations=np.empty((room, self._tracker.classes)),
            source=np.empty(room, dtype=np.int64),
            scale=np.empty(room),
            units=np.empty(room, dtype=np.int64),
            count=np.zeros(1, dtype=np.int64),
        )

    def _revised(self, first_step: int, revised: loop.Revised, kinds: Kinds) -> Releases | None:
        """The steps that were smoothed in a batch from `first_step` on."""
        count, block = int(revised.count[0]), self._block
        if not count:
            return None
        ends_first = max(-(-first_step // block), 2) * block  # the first end of a block that revises
        first = ends_first - 2 * block + 1
        steps = np.arange(first, first + count)
        ends = (-(-steps // block) + 1) * block
        return self._smoothed(first, revised, count, ends, kinds)

    def _smoothed(
        self, first: int, revised: loop.Revised, count: int, ends: npt.NDArray[np.int64], kinds: Kinds
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
        revised = self._empty_revised(keep)
        tracker, rule = self._tracker, self._rule
        public = self.step, keep, rule.grid, rule.nonnegative
        loop.revise(*public, tracker.book[:], tracker.season[:], self._rings, revised[:])
        last = loop.Revised._make([*(array[keep - rest :] for array in revised[:5]), revised.count])
        ends = np.full(rest, self.step)
        kinds: Kinds = [(0, tracker.memory["kind"].copy())]
        return self._smoothed(self.step - rest + 1, last, rest, ends, kinds)
