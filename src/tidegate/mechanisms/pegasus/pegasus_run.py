"""PeGaSus on a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import Matrix, Row, State
from tidegate.mechanisms.pegasus.grouper_run import BLOCK, GrouperRun
from tidegate.mechanisms.shared_noise import SharedNoise, SharingRun
from tidegate.noise import laplace, laplace_one
from tidegate.releases import Measured, Release, Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.pegasus import PeGaSus

ALONE = (1, 1)  # the shape of one step with one column


class PeGaSusRun(GrouperRun, SharingRun):
    """PeGaSus at work."""

    mechanism: PeGaSus

    def _begin(self, state: State | None) -> None:
        super()._begin(state)
        self._shown_scale = self.mechanism.laplace_scale
        self._one = np.ones(ALONE, dtype=np.int64)
        own = int(self.mechanism.grouping_part * self.ledger.units)
        self._begin_measuring("perturber", state, np.zeros(self._columns), own=own)

    def _state(self) -> State:
        state = super()._state()
        if self._noise is None:
            return state
        return {**state, "noise": self._noise.numbers(), "last": self._last, "measured": self._measured_at}

    def _push(self, row: Row) -> Release:
        if self._noise is not None and not self._noise.steady:
            return self._push_shared(row, self._noise)
        return self._push_measured(row)

    def _push_measured(self, row: Row) -> Release:
        """One step that is measured, without the cost of a batch."""
        step, rows = self.step, row[np.newaxis]
        if self._noise is None:
            units = self._charge
            self.ledger.charge(step, units)
        else:
            units = self._noise.pay_one(step)
        values, noisy, groups = np.empty(rows.shape), np.empty(rows.shape), np.empty_like(rows)
        with self._closing_groups():
            self._release(rows, step, values, noisy, groups)
        self._last, self._measured_at = values[0], step
        fields = (step, values[0].copy(), Status.FRESH, step, self._shown_scale, units, self.ledger.unit)
        return Release(*fields, measured=Measured(noisy[0], groups[0], np.ones_like(row)))

    def _push_one_by_one(self, matrix: Matrix, noise: SharedNoise) -> Releases:
        groups = {name: value.copy() for name, value in self._grouper.state().items()}
        try:
            return super()._push_one_by_one(matrix, noise)
        except BaseException:
            self._grouper.restore(groups)  # no group may hold steps that were not released
            raise

    def _push_shared(self, row: Row, noise: SharedNoise) -> Release:
        if not noise.silent(self.step):
            return self._push_measured(row)
        # the step's grouping is paid for as well: what it leaves would tempt a group that later steps cannot pay for
        unit = self.ledger.unit
        units = noise.own if self.ledger.remaining(self.step) >= noise.own * unit else 0
        self.ledger.charge(self.step, units)
        values, at = np.array(self._last), self._measured_at
        groups = np.full(self._columns, self.step)
        scale = self._shown_scale if at else 0.0
        fields = (self.step, values, Status.APPROXIMATED, at, scale, units, unit)
        return Release(*fields, measured=Measured(values, groups, np.ones_like(groups)))

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._noise is not None and not self._noise.steady:
            return self._push_one_by_one(matrix, self._noise)
        return self._measured(matrix, first_step)

    def _measured(self, matrix: Matrix, first_step: int) -> Releases:
        """Steps that are all measured."""
        steps = len(matrix)
        if self._noise is None:
            units = np.broadcast_to(np.int64(self._charge), steps)
            self.ledger.charge_batch(first_step, units)
        else:
            units = self._noise.pay_all(first_step, steps, first_step, steps)
        values, noisy = np.empty(matrix.shape), np.empty(matrix.shape)
        groups = np.empty(matrix.shape, dtype=np.int64)
        length = max(1, BLOCK // self._columns)
        with self._closing_groups():
            for start in range(0, steps, length):
                block = slice(start, start + length)
                self._release(matrix[block], first_step + start, values[block], noisy[block], groups[block])
        if steps:
            self._last, self._measured_at = values[-1].copy(), first_step + steps - 1
        measured = Measured(noisy, groups, np.broadcast_to(np.int64(1), matrix.shape))
        return self._all_fresh(first_step, values, self._shown_scale, units, measured)

    def _release(
        self,
        rows: Matrix,
        step: int,
        values: npt.NDArray[np.float64],
        noisy: npt.NDArray[np.float64],
        groups: Matrix,
    ) -> None:
        grouping, shape = self.mechanism.grouping, rows.shape
        measured = rows + self._perturbed(step, shape)
        tests = self._laplace("test", step, grouping.question_scale, shape)
        thresholds = self._laplace("threshold", step, grouping.threshold_scale, shape)
        weights = self._one if shape == ALONE else np.ones(shape, dtype=np.int64)
        self._grouper.advance(step, rows, measured, weights, tests, thresholds, values, groups)
        np.multiply(measured, self._grid, out=noisy)

    def _perturbed(self, step: int, shape: tuple[int, ...]) -> Matrix | int:
        """The Perturber's noise."""
        if self._noise is None:
            return self._laplace("perturber", step, self.mechanism.scale, shape)
        if shape == ALONE:
            return self._noise.draw_one(step)
        return self._noise.draw_all(step, shape[0])

    def _laplace(self, stream: str, step: int, scale: float, shape: tuple[int, ...]) -> Matrix:
        if shape == ALONE:  # the quick way for single values
            return np.array(((laplace_one(self.source, stream, step, 0, scale),),), dtype=np.int64)
        return laplace(self.source, stream, step, scale, shape)
