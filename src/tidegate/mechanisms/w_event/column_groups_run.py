"""Independent instances of BD or BA on groups of columns: sound for fixed units, printed for moving ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import InvalidParameter
from tidegate.ledger import Ledger, MemoryLedger
from tidegate.ledger.parallel import ParallelLedger
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms.mechanism import Matrix, Run, State
from tidegate.mechanisms.run import without_account
from tidegate.noise.readdressed import Readdressed
from tidegate.releases import Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing


class GroupedRun(Run):
    """One run for each group of columns, each with its own account.

    For fixed units a window's loss is that of the one group the unit is in, so each group has the full budget. For moving
    units (``calibration="paper"``) it is the sum over steps of the largest group's spend, which the
    unenforced ledger writes down.
    """

    mechanism: Publishing

    def _ledger(self, given: Ledger | Path | str | None, saved: State | None, resumed: bool) -> Ledger:
        mechanism = self.mechanism
        if not mechanism.enforced:
            return super()._ledger(given, saved, resumed)
        if given is None:
            if resumed and saved is None:
                raise without_account()
            parts = [MemoryLedger(mechanism.policy, mechanism.units) for _ in range(mechanism.group_count)]
            given = ParallelLedger(parts)
            if saved is not None:
                given.restore(saved)
        if not isinstance(given, ParallelLedger) or len(given.parts) != mechanism.group_count:
            raise InvalidParameter(
                "ledger",
                type(given).__name__,
                "None or a ParallelLedger with a part for each group",
                "open one ledger for each group and put them side by side",
            )
        return given

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        group_of = mechanism.initial_groups()
        self._members = [np.flatnonzero(group_of == group) for group in range(mechanism.group_count)]
        self._runs = []
        for number, members in enumerate(self._members):
            one = replace(
                mechanism,
                columns=len(members),
                groups=None,
                regroup_every=None,
                shift=False,
                calibration="sound",
                noise="laplace",
                # a replaced unit may leave one group for another: each must count with the change of the whole step
                step_columns=mechanism.step_columns or mechanism.columns,
            )
            ledger = self.ledger.parts[number] if isinstance(self.ledger, ParallelLedger) else None
            part = (state or {}).get(f"run {number}")
            run = one.start(ledger=ledger, state=None if part is None else part.tobytes())
            if part is None:
                run.begin_at(self.step + 1)  # where the whole begins, wherever its own account stands
            run.source = Readdressed(self.source, f"group {number}: ")
            self._runs.append(run)

    def _state(self) -> State:
        return {
            f"run {number}": np.frombuffer(run.snapshot(), dtype=np.uint8)
            for number, run in enumerate(self._runs)
        }

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps = len(matrix)
        values, fresh = np.empty(matrix.shape), np.zeros(steps, dtype=np.int64)
        nullified = np.ones(steps, dtype=np.bool_)
        source, units = np.zeros(steps, dtype=np.int64), np.zeros(steps, dtype=np.int64)
        scale = np.zeros(steps)
        for members, run in zip(self._members, self._runs, strict=True):
            run._may_go_on(steps)
            releases = run._push_batch(np.ascontiguousarray(matrix[:, members]), first_step)
            run.step += steps
            run.charges = run.ledger.rows
            values[:, members] = releases.values
            fresh += releases.fresh
            nullified &= releases.status == Status.NULLIFIED
            np.maximum(source, releases.source, out=source)
            np.maximum(scale, releases.scale, out=scale)
            np.maximum(units, releases.units, out=units)
        if isinstance(self.ledger, UnenforcedLedger):
            self.ledger.charge_batch(first_step, units)
        status = np.full(steps, Status.APPROXIMATED, dtype=np.int8)
        status[nullified] = Status.NULLIFIED
        status[fresh > 0] = Status.PARTIAL
        status[fresh == len(self._runs)] = Status.FRESH
        return Releases(first_step, values, status, source, scale, units, self.ledger.unit)
