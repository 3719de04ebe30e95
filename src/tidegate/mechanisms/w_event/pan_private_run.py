"""Pan-private Budget Distribution and Budget Absorption: events arrive one by one, and no raw count is ever kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.errors import BudgetExceeded, InvalidInput, LedgerMismatch
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED
from tidegate.mechanisms.w_event.publishing_run import live_rows, rule_of
from tidegate.noise import expected_absolute_laplace, laplace
from tidegate.noise.entropy import SYSTEM, UNBUFFERED
from tidegate.releases import Release, Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing


class PanPrivateRun(Run):
    """A run that an intruder may look into.

    Between any two events the whole state is: the last release, public counters, and two histograms of the step
    in progress whose cells carried noise before the first event was added. At the end of the step the decision and the
    release add fresh noise of the same scale, so that what arrives after an intrusion is protected too.

    The public clock calls :meth:`open_step` and :meth:`close_step`, and every event between them is handed to
    :meth:`arrive`; :meth:`push` does all of it for a whole step. A step is open whether or not anything arrives:
    otherwise the state would tell whether somebody was there. After a noticed intrusion call
    :meth:`announce_intrusion`.
    """

    mechanism: Publishing
    _memory: npt.NDArray[np.int64]  # the budget rule's counters, public
    _paid: npt.NDArray[np.int64]  # publications of the last w steps, public
    _last: npt.NDArray[np.int64]  # the last release
    _counts: npt.NDArray[np.int64]  # noised cells of the step in progress, for its publication
    _differences: npt.NDArray[np.int64]  # the same with other noise, for its dissimilarity
    _scale: float
    _amount: int  # units of a publication at the step in progress
    _intrusions: int  # announced at the step in progress
    _open: bool

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        if self.source is SYSTEM:  # words that wait in its pool would tell an intruder the noise to come
            self.source = UNBUFFERED
        factor = self.ledger.units // mechanism.units
        self._rule = rule_of(mechanism, factor)
        self._fixed = self._rule.test_units + mechanism.reserve * factor  # charged to every step
        self._printed = mechanism.calibration != "sound"
        memory = np.zeros(loop.MEMORY, dtype=np.int64)
        memory[loop.TAKEN] = 1
        memory[loop.LATEST] = self.origin  # steps before this run have given it nothing
        fresh: State = {
            "memory": memory,
            "paid": np.zeros((0, 2), dtype=np.int64),
            "last": np.zeros(self._columns, dtype=np.int64),
            "counts": np.zeros(0, dtype=np.int64),
            "differences": np.zeros(0, dtype=np.int64),
            "scale": 0.0,
            "amount": 0,
            "intrusions": 0,
            "open": False,
        }
        for name, value in {**fresh, **(state or {})}.items():
            setattr(self, f"_{name}", value)

    def _state(self) -> State:
        return self.memory()

    def memory(self) -> State:
        """Everything that the run keeps between two events; what an intruder would find."""
        memory = self._memory.copy()
        memory[loop.HEAD] = 0
        return {
            "memory": memory,
            "paid": live_rows(self._memory, self._paid),
            "last": self._last,
            "counts": self._counts,
            "differences": self._differences,
            "scale": self._scale,
            "amount": self._amount,
            "intrusions": self._intrusions,
            "open": self._open,
        }

    # events ------------------------------------------------------------------------------------------------------

    def arrive(self, column: int, value: float = 1) -> None:
        """Add one contribution to the step in progress; it is kept nowhere but in the noised cells."""
        if not 0 <= column < self._columns:
            raise InvalidInput(
                f"column {column} does not exist: columns are 0 to {self._columns - 1}; check the input."
            )
        amount = int(self._on_grid(self._as_array([value]))[0])
        if self._unusable:
            raise LedgerMismatch(self._unusable)
        if not self._open:
            raise InvalidInput("no step is open; call open_step() when the public clock begins one.")
        if self._counts.size:
            self._counts[column] += amount
            self._differences[column] += amount

    def announce_intrusion(self) -> None:
        """Tell the run that somebody has seen its state: the step is charged as published, all cells get new noise."""
        if self.mechanism.pan_private != ANNOUNCED:
            raise InvalidInput(
                'this run was promised at most one intrusion, unannounced; use pan_private="announced" for several.'
            )
        with self._at_work():
            self._refuse_in_transaction()
            self._renew_cells()

    def _renew_cells(self) -> None:
        if not self._counts.size:
            return  # no cell of the state depends on the step in progress
        step = self.step + 1
        if not self._intrusions:
            try:
                self.ledger.charge(step, self._amount, scope="intrusion")
            except BudgetExceeded:  # on a shared ledger: nothing more of this step may be seen or collected
                self._forget_cells()
                raise
        self._intrusions += 1
        stream = f"after intrusion {self._intrusions}"
        self._counts += laplace(
            self.source, f"counts {stream}", step, self._publication_scale(), (self._columns,)
        )
        scale = self.mechanism.score_scale
        self._differences += laplace(self.source, f"differences {stream}", step, scale, (self._columns,))

    def close_step(self) -> Release:
        """End the step by the public clock: decide, and publish or approximate."""
        if not self._open:
            raise InvalidInput("no step is open; call open_step() when the public clock begins one.")
        with self._at_work():
            self._refuse_in_transaction()
            release = self._close_step()
            self._accompany(release)
            return release

    def _close_step(self) -> Release:
        step = self.step + 1
        if self._counts.size and not (self.alone or self._intrusions):
            self._give_up_if_spent(step)  # before the decision, so that no refusal tells of it
        units, amount = self._fixed, self._amount
        status = Status.NULLIFIED if amount < 0 else Status.APPROXIMATED
        if self._counts.size and self._decide(step):
            if not self._intrusions:  # else it is charged already
                self.ledger.charge(step, amount, scope="publication")
            noise = self._output_noise("output", step, self._publication_scale(), self._columns)
            self._last = np.clip(self._counts + noise, -loop.FURTHEST, loop.FURTHEST)
            # of two draws, and one more for each intrusion
            self._scale = self._publication_scale() * self._grid * math.sqrt(1 + self._intrusions / 2)
            status = Status.FRESH
        if self._counts.size and (status is Status.FRESH or self._intrusions):
            units += amount
            self._remember(step, amount)
        self._forget_cells()
        self._open, self._intrusions, self._amount = False, 0, 0
        self.step = step
        latest = int(self._memory[loop.LATEST])
        source = latest if latest > self.origin else 0
        values = np.multiply(self._last, self._grid, dtype=np.float64)
        return Release(step, values, status, source, self._scale, units, self.ledger.unit)

    def _forget_cells(self) -> None:
        self._counts = self._differences = np.zeros(0, dtype=np.int64)

    def open_step(self) -> None:
        """Begin a step by the public clock: charge it and lay out its cells, noised before anything arrives."""
        if self._open:
            raise InvalidInput(
                "a step is in progress; close it with close_step() before the next one is opened."
            )
        with self._at_work(1):
            self._refuse_in_transaction()
            self._open_step()

    def _open_step(self) -> None:
        step = self.step + 1
        self._make_room()
        amount = int(loop.offer(self._rule[:], self._memory, self._paid, step))
        if self._printed and self.mechanism.kind == loop.DISTRIBUTION:
            amount = amount * 2 // 3  # printed: a third of what remains
        if amount > 0 and self._rule.whole > loop.WIDEST * amount:
            amount = 0
        self.ledger.charge(step, self._fixed)
        self._amount, self._open, self._intrusions = amount, True, 0
        if amount > 0:
            self._give_up_if_spent(step)
        if self._amount > 0:
            shape = (self._columns,)
            self._counts = laplace(self.source, "counts", step, self._publication_scale(), shape)
            self._differences = laplace(self.source, "differences", step, self.mechanism.score_scale, shape)

    def _give_up_if_spent(self, step: int) -> None:
        """Collect nothing about a step whose publication could not be paid for, because somebody else spent it."""
        if self.ledger.remaining(step) < self._amount * self.ledger.unit:
            self._amount = 0
            self._forget_cells()

    def _decide(self, step: int) -> bool:
        """Compare the dissimilarity of the noised cells with the error of a publication, under fresh noise."""
        if self._intrusions:
            return True
        scale = self.mechanism.score_scale
        distance = np.abs(self._differences - self._last)
        score = int(np.minimum(distance, loop.MOST // max(64, self._columns)).sum())
        score += int(self._output_noise("decision", step, scale, 1)[0])
        # the cells' own noise adds this much to the dissimilarity, whatever the data
        own = self._columns * expected_absolute_laplace(scale)
        return score - own > self._columns * self._publication_scale()

    def _output_noise(self, stream: str, step: int, scale: float, count: int) -> npt.NDArray[np.int64]:
        if self._printed:  # printed: what is in the cells is published as it is
            return np.zeros(count, dtype=np.int64)
        return laplace(self.source, stream, step, scale, (count,))

    def _publication_scale(self) -> float:
        return float(publication_scale(self._rule.whole, self._amount))

    def _remember(self, step: int, amount: int) -> None:
        self._make_room()  # again: the run may have been restored in mid-step
        loop.remember(self._rule[:], self._memory, self._paid, self.mechanism.repaid(), step, amount)

    def _make_room(self) -> None:
        if self._rule.kind == loop.DISTRIBUTION and self._memory[loop.COUNT] + 1 >= len(self._paid):
            live = self.memory()["paid"]
            self._paid = np.zeros((2 * len(live) + 4, 2), dtype=np.int64)
            self._paid[: len(live)] = live
            self._memory[loop.HEAD] = 0

    # whole steps -------------------------------------------------------------------------------------------------

    def _push(self, row: Row) -> Release:
        if self._open:
            raise InvalidInput(
                "a step is in progress; close it with close_step() before a whole step is pushed."
            )
        self._refuse_in_transaction()
        self.step -= 1  # closing advances it
        try:
            self._open_step()
        except BudgetExceeded:
            self.step += 1  # as the caller, who takes it back, expects
            raise
        if self._counts.size:
            self._counts += row
            self._differences += row
        return self._close_step()

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        releases = []
        before = self.step
        try:
            for row in matrix:
                self.step += 1
                releases.append(self._push(row))
        except BaseException:
            # where a refusal comes depends on decisions before it: their charges, and the steps they belong to, stay
            self.step = before + len(releases)
            raise
        self.step = before  # the caller advances it
        return Releases.of(releases, first_step, self._columns, self.ledger.unit)
