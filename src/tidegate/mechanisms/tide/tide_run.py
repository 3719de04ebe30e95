"""Tide at work: a compiled loop, with estimates and schedules in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import BudgetExceeded
from tidegate.ledger import Batch, Group
from tidegate.mechanisms.loop_run import INLINE, Block, Drawn, LoopRun
from tidegate.mechanisms.mechanism import Matrix, State
from tidegate.mechanisms.tide import loop_run as loop
from tidegate.mechanisms.tide.noise_run import TideNoise
from tidegate.mechanisms.tide.schedule import replan
from tidegate.releases import ClassDeviations, Kinds, Releases, Status
from tidegate.structures.kernels.tracking import refreshed
from tidegate.structures.state_space_tracker import Tracker

if TYPE_CHECKING:
    from tidegate.mechanisms.tide.tide import Tide


class TideRun(LoopRun):
    """Tide on one stream."""

    mechanism: Tide
    # first step, last step and units of each part of the group that was open before a batch
    _open_before: list[list[int]]
    stream: ClassVar[str] = "tide"
    loop: ClassVar[Any] = loop

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        tables = mechanism.choices
        self._tables = tables
        shares = tables.shares.copy()
        shares[:, loop.CHARGE] *= self.ledger.units // mechanism.units
        self._block = mechanism.revision // 2
        keep = 2 * self._block
        self._tracker = Tracker(mechanism.structure, self._columns, keep, laplace=not tables.gaussian)
        self._rule = loop.Rule(
            opens_until=self.origin + mechanism.policy.steps_charged,
            dense=tables.dense,
            opening=len(tables.shares) - 2,
            first=tables.rows,
            block=self._block,
            rows=tables.rows,
            window=mechanism.policy.window or 0,
            grid=self._grid,
            nonnegative=mechanism.nonnegative,
            gaussian=tables.gaussian,
            beyond=loop.BEYOND_GAUSSIAN if tables.gaussian else loop.BEYOND_LAPLACE,
            deviation=loop.OF_GAUSSIAN if tables.gaussian else loop.OF_LAPLACE,
            shares=shares,
            scales=tables.scales,
        )
        plan = np.zeros(loop.PLAN, dtype=np.int64)
        plan[loop.DUE] = self.step + 1
        self._own: State = {
            "plan": plan,
            "marks": np.zeros(int(tables.shares[:, loop.BREADTH].max(initial=0)), dtype=np.int64),
            "parts": np.zeros((loop.EIGHTHS, loop.PART_NUMBERS), dtype=np.int64),
            "kept_units": np.zeros(keep, dtype=np.int64),
            "kept_scale": np.zeros(keep),
            "kept_source": np.zeros(keep, dtype=np.int64),
            "kept_measured": np.full((keep, self._columns), np.nan),
            "begun": np.array(
                [self.step + 1]
            ),  # the first step of this run: what is before it is not revised
        }
        self._given = np.zeros(self._columns, dtype=np.int64)
        self._measured = np.zeros(self._columns)
        self._begun = np.zeros((0, 3), dtype=np.int64)
        saved = state or {}
        if state:
            self._tracker.restore(state)
            # snapshots of version 0.1 have no measurements: unknown ones, which are no numbers, let nothing stand
            self._own = {name: {**self._own, **state}[name].copy() for name in self._own}
            self._own["plan"] = np.zeros(
                loop.PLAN, dtype=np.int64
            )  # earlier versions have fewer numbers there
            self._own["plan"][: len(state["plan"])] = state["plan"]
            if "parts" not in state:  # then a group was charged at once
                self._own["plan"][[loop.PARTS, loop.LEVEL]] = 1, loop.EIGHTHS
                row, first = self.plan[[loop.GROUP_ROW, loop.GROUP_FIRST]]
                self._own["parts"][0] = first, shares[row, loop.CHARGE], -1
        # noise that steps share may suit somebody: what was raised while it was drawn ends the run
        self.restores = not mechanism.shares_noise
        self._pool = TideNoise(self, saved.get("noise"))

    @property
    def plan(self) -> npt.NDArray[np.int64]:
        """What is followed, and where: the numbers of `loop.PLAN`."""
        plan: npt.NDArray[np.int64] = self._own["plan"]
        return plan

    @property
    def holds_noise(self) -> bool:
        """Whether a group is open."""
        return bool(self.plan[loop.LEFT])

    def _state(self) -> State:
        state = self._numbers()
        return {**state, "noise": self._pool.numbers()} if self.mechanism.shares_noise else state

    def _numbers(self) -> State:
        return {**self._tracker.memory, **self._own}

    def _kept(self) -> tuple[State, tuple[Any, ...]]:
        return {name: value.copy() for name, value in self._numbers().items()}, self._pool.kept()

    def _put_back(self, kept: tuple[State, tuple[Any, ...]]) -> None:
        numbers, noise = kept
        self._tracker.restore(numbers)
        self._own = {name: numbers[name] for name in self._own}
        self._pool.put_back(noise)

    @property
    def _rings(self) -> tuple[npt.NDArray[Any], ...]:
        """What is kept of the steps that are still to be revised, in the order of `loop.Kept`."""
        own = self._own
        return own["kept_units"], own["kept_scale"], own["kept_source"], own["kept_measured"]

    def _empty(self, steps: int) -> loop.TideOutputs:
        charged = np.zeros(steps, dtype=np.int64) if self.mechanism.shares_noise else None
        outputs = super()._empty(steps)
        by_class = np.empty((steps, self._tracker.classes))
        return loop.TideOutputs._make([*outputs, by_class, outputs.units if charged is None else charged])

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        kind = self._tracker.memory["kind"].copy()
        self._revisions = self._room_for_revised(first_step, len(matrix))
        # the classes of the columns, from which step of the batch and from which revised step on
        self._kinds, self._revised_kinds = [(0, kind)], [(0, kind)]
        self._first = first_step
        if self.mechanism.shares_noise:
            parts, last = self._own["parts"][: self.plan[loop.PARTS]], int(self.plan[loop.GROUP_LAST])
            self._open_before = [[first, last, units] for first, units, _ in parts.tolist()]
            parts[:, loop.PART_BEGUN] = -1
            self._begun = np.empty((len(matrix), 3), dtype=np.int64)  # never more groups than steps
        releases = super()._push_batch(matrix, first_step)
        self._pool.forget()
        return releases

    def _most_groups(self) -> int:
        # groups are kept for two windows, and the account wants as much room again
        return 6 * self._tables.groups

    def _given_up(self, error: BaseException, first_step: int, outputs: Any) -> None:
        if isinstance(error, BudgetExceeded) or self.ledger.rows != self.charges:
            return
        begun, extended = self._groups()
        if len(begun) or len(extended):  # what led here may depend on noise that was drawn, so it stays paid
            self.ledger.charge_batch(first_step, outputs.charged, groups=begun, extended=extended)

    def _groups(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The groups that were begun in a batch, and the one that reached on."""
        taken = self._pool.taken
        further = int(taken[loop.FURTHER])
        extended = [[*part, further] for part in self._open_before] if further else []
        return self._begun[: taken[loop.BEGUN]], np.array(extended, dtype=np.int64).reshape(-1, 4)

    def _record(self, batch: Batch, first_step: int, outputs: Any) -> None:
        taken, charged = self._pool.taken, outputs.charged
        if not taken[loop.BEGUN] and not taken[loop.FURTHER]:
            batch.record(first_step, charged)
        elif len(charged) > 1 or self.ledger.durable:
            begun, extended = self._groups()
            batch.record(first_step, charged, groups=begun, extended=extended)
        else:
            opened = [Group(*row) for row in self._begun[: taken[loop.BEGUN]].tolist()]
            before = [Group(*part) for part in self._open_before] if taken[loop.FURTHER] else []
            batch.record_one(first_step, int(charged[0]), opened, before)

    def _releases(self, first_step: int, outputs: Any) -> Releases:
        values, status, source, scale, units, by_class, _ = outputs
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

    def _arguments(self, block: Block) -> tuple[Any, ...]:
        tracker, noise, own = self._tracker, self._pool, self._own
        work = loop.Work(
            self._given, self._measured, noise.pool, noise.taken, own["marks"], self._begun, own["parts"]
        )
        memory = loop.Memory(own["plan"], tracker.book[:], tracker.season[:], tracker.room[:], self._rings)
        given = (self._rule[:], block.drawn.words, work[:])
        return *given, block.batch.account, memory[:], block.outputs, self._revisions[:]

    def _draw(self, block: Block) -> Any:
        """No words where the loop draws nothing itself, or a single step will hardly need any: then it asks."""
        due = self.plan[loop.DUE] <= block.first_step and self._tables.laws[self.plan[loop.CHOICE]] is None
        if self._tables.gaussian or (len(block.rows) == 1 and not due):
            return Drawn(self.source, self.stream, block.first_step, len(block.rows), 0)
        return super()._draw(block)

    def _help(self, block: Block, index: int, reason: int) -> None:
        if reason == loop.FIT:
            self._refit(block.first_step + index - self._first)
        elif self._tables.gaussian or self._tables.laws[int(self.plan[loop.TAKEN])] is not None:
            self._pool.draw(len(block.rows) - index - 1)
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
        status = np.where(source == steps, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED))
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
        learnt = tracker.book[:], tracker.season[:]
        loop.revise(self.step, keep, rule[:], *learnt, self._rings, revised[:])
        last = loop.Revised._make([*(array[keep - rest :] for array in revised[:5]), revised.count])
        ends = np.full(rest, self.step)
        kinds: Kinds = [(0, tracker.memory["kind"].copy())]
        return self._smoothed(self.step - rest + 1, last, rest, ends, kinds)
