"""Swellfish at work: charge what the schedule says, add noise of that scale; specifications may come and go."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ledger.amendments import add_specification, specifications_of, withdraw_specification
from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.mechanisms.swellfish.schedules import Schedule
from tidegate.noise import laplace
from tidegate.policy import Specification
from tidegate.policy.promises import Promises
from tidegate.releases import Release, Releases, Status

if TYPE_CHECKING:
    from tidegate.mechanisms.swellfish.swellfish import Swellfish

AHEAD = 1024  # steps whose schedule a push prepares for the next ones


class SwellfishRun(Run):
    """A Swellfish mechanism on one stream."""

    mechanism: Swellfish

    def _begin(self, state: State | None) -> None:
        self._hold = np.zeros(self._columns)  # the last released values, for gaps
        self._held_at = 0
        if state:
            self._hold, self._held_at = np.asarray(state["hold"], dtype=np.float64), int(state["held_at"])
        self._gaps: npt.NDArray[np.bool_] | None = None
        self._quick = (
            self._quick and self.mechanism.fill is None
        )  # gaps of the step before are not those of this one
        self._in_force: tuple[Specification, ...] | None = None
        self._plan()

    def _plan(self) -> None:
        """Schedule the specifications that the ledger has in force; those of the configuration share its plan."""
        in_force = specifications_of(self.ledger)
        if in_force is self._in_force:
            return
        mechanism = self.mechanism
        policy = mechanism.secrets_policy
        as_written = in_force == policy.specifications
        for specification in () if as_written else in_force:
            mechanism.check_specification(
                specification
            )  # another run, with another grid or gaps, may have added it
        if self.ledger.units == mechanism.units and as_written:
            self._schedule = mechanism.plan
        else:
            self._windowed_only()
            self._schedule = Schedule(mechanism, Promises(policy, self.ledger.units, in_force))
        self._ahead_from, self._ahead = 1, np.zeros(0, dtype=np.int64)
        self._in_force = in_force

    def _state(self) -> State:
        if self.mechanism.fill is None:
            return {}
        return {"hold": self._hold, "held_at": self._held_at}

    # specifications come and go

    def add(self, specification: Specification) -> Specification:
        """Hide the secrets of one more household from the next step on.

        Returns the specification with the step at which it begins. The ledger records it, and refuses secrets that
        lie in the past of the stream.
        """
        self.mechanism.check_specification(specification)
        self._windowed_only()
        with self._at_work(hands_out=False):
            added = add_specification(self.ledger, specification)
            self._plan()
        return added

    def withdraw(self, label: str) -> Specification:
        """Stop hiding the secrets of a household as soon as no event that may have begun can still go on.

        Returns the specification with the step at which it ends.
        """
        self._windowed_only()
        with self._at_work(hands_out=False):
            left = withdraw_specification(self.ledger, label)
            self._plan()
        return left

    def _windowed_only(self) -> None:
        if self.mechanism.schedule == "optimal":
            raise InvalidParameter(
                "schedule",
                "optimal",
                "'windowed' where specifications come and go",
                "use the windowed schedule",
            )

    # pushing

    def _as_array(self, values: Any, grid_units: bool = False) -> npt.NDArray[Any]:
        """Remember where readings are missing, and put zeros there for now."""
        array, self._gaps = super()._as_array(values, grid_units), None
        if self.mechanism.fill is None or array.dtype.kind != "f" or not np.isnan(array).any():
            return array
        self._gaps = np.isnan(array).reshape(-1, self._columns) if array.size % self._columns == 0 else None
        return np.where(np.isnan(array), 0.0, array)

    def _units(self, first: int, last: int) -> npt.NDArray[np.int64]:
        self._plan()  # another run may have amended the specifications of a shared ledger
        begin = first - self._ahead_from
        if begin < 0 or begin + last - first >= len(self._ahead):
            until = max(last, first + AHEAD)
            horizon = self.mechanism.policy.horizon
            until = until if horizon is None else max(last, min(until, horizon))
            self._ahead_from, self._ahead = first, self._schedule.units(first, until)
            begin = 0
        return self._ahead[begin : begin + last - first + 1]

    def _push(self, row: Row) -> Release:
        gaps = self._gaps
        if gaps is not None:
            return self._release(row[np.newaxis], self.step, gaps)[0]
        units = self._units(self.step, self.step)
        scale = self._schedule.scales(units)
        self.ledger.charge(self.step, int(units[0]))
        noise = laplace(self.source, "swellfish", self.step, scale, (self._columns,))
        values = np.multiply(row + noise, self._grid, dtype=np.float64)
        self._remember(values, self.step)
        shown = float(scale[0]) * self._grid
        return Release(self.step, values, Status.FRESH, self.step, shown, int(units[0]), self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        return self._release(matrix, first_step, self._gaps)

    def _release(self, matrix: Matrix, first: int, gaps: npt.NDArray[np.bool_] | None) -> Releases:
        steps = len(matrix)
        units = self._units(first, first + steps - 1).copy() if steps else np.zeros(0, dtype=np.int64)
        scales = self._schedule.scales(units)
        status = np.full(steps, Status.FRESH, dtype=np.int8)
        shown = scales * self._grid
        if gaps is not None and not self.mechanism.hides_gaps:  # whole steps that are missing need no noise
            missing = gaps.all(axis=1)
            units[missing], shown[missing], status[missing] = 0, 0.0, Status.APPROXIMATED
        self.ledger.charge_batch(first, units)
        noise = laplace(self.source, "swellfish", first, scales[:, np.newaxis], matrix.shape)
        source = None
        if gaps is None:
            values = add_noise(matrix, noise, self._grid)
        else:
            values, source = self._filled(matrix, noise, gaps, status, first)
        if steps:
            self._remember(values[-1], first + steps - 1 if source is None else int(source[-1]))
        return Releases(first, values, status, source, shown, units, self.ledger.unit)

    def _filled(
        self,
        matrix: Matrix,
        noise: Matrix,
        gaps: npt.NDArray[np.bool_],
        status: npt.NDArray[np.int8],
        first: int,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Values with gaps filled from what was released before, or from a public number."""
        fill = self.mechanism.fill
        hold = self._hold if fill == "released" else np.full(self._columns, float(Fraction(fill or 0)))
        values = np.empty(matrix.shape)
        source = np.empty(len(matrix), dtype=np.int64)
        from tidegate.mechanisms.swellfish.swellfish import fill_gaps

        if gaps.shape != matrix.shape:
            raise InvalidInput("a batch with missing readings has the wrong shape; push steps × columns.")
        fill_gaps(
            matrix, noise, gaps, status == Status.APPROXIMATED, hold.copy(), fill == "released", self._grid,
            first, self._held_at, values, source,
        )  # fmt: skip
        return values, source

    def _remember(self, values: npt.NDArray[np.float64], source: int) -> None:
        if self.mechanism.fill is not None:
            self._hold, self._held_at = values.copy(), source
