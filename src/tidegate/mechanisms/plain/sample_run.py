"""Sample on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.mechanisms.kernels.values import hold
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Row, State
from tidegate.mechanisms.shared_noise import SharedNoise, SharingRun
from tidegate.releases import Release, Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.plain.sample import Sample

FRESH, REPEATED = Status.FRESH, Status.APPROXIMATED  # named once: to look one up takes as long as a call


class SampleRun(SharingRun):
    """Sample at work."""

    mechanism: Sample

    def _begin(self, state: State | None) -> None:
        self._period = self.mechanism.period
        self._draw = self.mechanism.own_noise.draw
        self._shown_scale = self.mechanism.shown_scale
        nothing = np.zeros(self._columns, dtype=np.int64)
        self._begin_measuring("sample", state, nothing, self._period)

    def _state(self) -> State:
        state = {"last": self._last, "measured": self._measured_at}
        return state if self._noise is None else {**state, "noise": self._noise.numbers()}

    @property
    def _last(self) -> Row:
        """The last measurement, in grid units."""
        return self._kept

    @_last.setter
    def _last(self, row: Row) -> None:
        # what silent steps repeat is multiplied once
        self._kept, self._repeated = row, np.multiply(row, self._grid, dtype=np.float64)

    def _push(self, row: Row) -> Release:
        number, since = divmod(self.step - 1, self._period)
        if since:
            return self._silent()
        if self._noise is not None:
            return self._push_shared(row, self._noise)
        self.ledger.charge(self.step, self._charge)
        self._last = row + self._draw(self.source, "sample", number, self.mechanism.scale, (self._columns,))
        self._measured_at = self.step
        return self._release(FRESH, self._charge)

    def _push_shared(self, row: Row, noise: SharedNoise) -> Release:
        number, since = divmod(self.step - 1, self._period)
        if since:
            return self._silent()
        units = noise.pay(self.step)
        if units < 0:  # silent: others have used the budget, or nobody can tell what was seen of a group
            return self._release(REPEATED, 0)
        self._last = row + noise.draw(number)
        self._measured_at = self.step
        return self._release(FRESH, units)

    def _silent(self) -> Release:
        """A step between two measurements."""
        # it costs nothing, but the ledger stands where the stream stands: others who join begin there
        self.ledger.charge(self.step)
        return self._release(REPEATED, 0)

    def _release(self, status: Status, units: int) -> Release:
        """The last measurement, at the present step."""
        measured = self._measured_at
        scale = self._shown_scale if measured else 0.0
        return Release(self.step, self._repeated.copy(), status, measured, scale, units, self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._noise is not None and not self._noise.steady:
            return self._push_one_by_one(matrix, self._noise)
        steps, period = len(matrix), self._period
        first = min((1 - first_step) % period, steps)  # steps before the first measurement
        measured = np.arange(first, steps, period)
        count = len(measured)
        if self._noise is None:
            units = np.zeros(steps, dtype=np.int64)
            units[first::period] = self._charge
            self.ledger.charge_batch(first_step, units)
        else:
            units = self._noise.pay_all(first_step, steps, first_step + first if count else first_step, count)
        noise = np.zeros((0, self._columns), dtype=np.int64)
        status, scale = np.full(steps, np.int8(REPEATED)), np.full(steps, self._shown_scale)
        source = np.full(steps, self._measured_at, dtype=np.int64)
        if not self._measured_at:
            scale[:first] = 0.0
        if count:
            noise = self._drawn((first_step + first - 1) // period, count)
            status[first::period] = FRESH
            source[first:] = np.repeat(first_step + measured, period)[: steps - first]
            self._measured_at = first_step + int(measured[-1])
        values = np.empty(matrix.shape)
        self._last = hold(matrix, noise, measured, self._last, self._grid, values)
        return Releases(first_step, values, status, source, scale, units, self.ledger.unit)

    def _drawn(self, number: int, count: int) -> Matrix:
        """The noise of so many measurements that were paid for."""
        if self._noise is not None:
            return self._noise.draw_all(number, count)
        return self._draw(self.source, "sample", number, self.mechanism.scale, (count, self._columns))

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        steps, measurements = len(matrix), self.mechanism.measurements
        since = np.arange(steps) % length % self.mechanism.period
        fresh = since == 0
        if self._noise is None:
            units = np.where(fresh, self._charge, 0)
            charge(units)
        else:
            reach = (measurements - 1) * self.mechanism.period + 1
            units = self._charge_blocks(steps, length, reach, charge)
        # measurements are numbered from the first step of their block; where every step is one, blocks join
        joined = steps if measurements == length else length
        drawn = [
            self._block_noise(first, joined // length * measurements) for first in range(0, steps, joined)
        ]
        values = np.empty(matrix.shape)
        hold(matrix, np.concatenate(drawn), np.flatnonzero(fresh), self._last, self._grid, values)
        return Releases(
            1,
            values,
            np.where(fresh, np.int8(FRESH), np.int8(REPEATED)),
            1 + np.arange(steps) - since,
            np.full(steps, self._shown_scale),
            units,
            self.ledger.unit,
        )

    def _block_noise(self, number: int, count: int) -> Matrix:
        """The noise of whole blocks, each of which begins afresh."""
        if self._noise is None:
            return self._drawn(number, count)
        law = self._noise.law
        drawn: Matrix = law.draw(self.source, "sample", number, law.start(), count)[0]
        return drawn
