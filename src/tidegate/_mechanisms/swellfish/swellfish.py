"""Swellfish: at each step as much noise as the secrets that are relevant there need."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.values import MISSING, ValueReader
from tidegate.errors import InvalidInput
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.swellfish import swellfish as configured
from tidegate.mechanisms.swellfish.kernels.scales import fill_gaps
from tidegate.noise import laplace
from tidegate.releases import Status

STREAM = "swellfish"
AHEAD = 1024  # steps whose schedule is computed at once


class State(NamedTuple):
    """What fills missing readings; released. Nothing else is carried from step to step."""

    hold: Any  # the last released values
    source: Any  # the step that they were measured at; 0 before there was any


@dataclass(frozen=True)
class Swellfish(configured.Swellfish):
    """Noise by public specifications; :class:`tidegate.mechanisms.Swellfish` has parameters and privacy.

    Which specifications are in force is a part of the configuration: it does not change while a log is written.
    """

    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False

    @property
    def accepts_missing(self) -> bool:
        """Whether a reading may be missing (NaN)."""
        return self.fill is not None

    def reader(self) -> ValueReader:
        """Values of columns, of which some may be missing."""
        clamp = None if self.clamp is None else Fraction(self.clamp)
        return ValueReader(self.columns, Fraction(self.grid), self.rounding, clamp, self.accepts_missing)

    def account(self) -> SecretsAccount:
        """Judged by the secrets, not by windows alone."""
        return SecretsAccount(self.secrets_policy, self.units)

    def begin(self, first: int) -> State:
        """Nothing was released."""
        return State(np.zeros(self.columns), np.zeros(1, dtype=np.int64))

    def public(self, state: State, first: int, count: int) -> Charges:
        """The schedule is public. A step whose readings are all missing may cost less."""
        return Charges(first, self._scheduled(first, count))

    def _scheduled(self, first: int, count: int) -> Integers:
        """What the schedule spends; steps after the horizon have one unit, and the account refuses them."""
        begin: int
        units: Integers
        begin, units = self.__dict__.get("_ahead", (1, np.zeros(0, dtype=np.int64)))
        if first < begin or first + count > begin + len(units):
            horizon, last = self.policy.horizon, first + max(count, AHEAD) - 1
            try:
                known = self.plan.units(first, last if horizon is None else min(last, horizon))
            except (OverflowError, ValueError):
                raise InvalidInput(
                    f"step {last} lies beyond the end of the calendar of the policy's secrets; open a new stream."
                ) from None
            units = np.concatenate([known, np.ones(max(0, count - len(known)), dtype=np.int64)])
            begin, self.__dict__["_ahead"] = first, (first, units)
        return units[first - begin : first - begin + count].copy()

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure every step that has a reading."""
        count, grid = len(rows), float(Fraction(self.grid))
        units = self._scheduled(first, count)
        scales = self.plan.scales(units)
        drawn = laplace(noise.source, STREAM, first, scales[:, np.newaxis], rows.shape)
        status = np.full(count, int(Status.FRESH), dtype=np.int8)
        source, shown = np.arange(first, first + count), scales * grid
        gaps = rows == MISSING if self.accepts_missing else np.zeros((0, 0), dtype=np.bool_)
        if gaps.any():
            if not self.hides_gaps:  # a step that is missing altogether needs no noise
                missing = gaps.all(axis=1)
                units[missing], shown[missing], status[missing] = 0, 0.0, int(Status.APPROXIMATED)
            values = self._filled(state, rows, drawn, gaps, status, source)
        else:
            values = add_noise(rows, drawn, grid)
        if count and self.accepts_missing:
            state.hold[:], state.source[0] = values[-1], source[-1]
        return Output(values, status, source, shown, units)

    def _filled(
        self,
        state: State,
        rows: Matrix,
        drawn: Integers,
        gaps: npt.NDArray[np.bool_],
        status: npt.NDArray[np.int8],
        source: Integers,
    ) -> Floats:
        """Values whose gaps are filled from what was released before, or from a public number; writes `source`."""
        released = self.fill == "released"
        hold = state.hold.copy() if released else np.full(self.columns, float(Fraction(self.fill or 0)))
        values = np.empty(rows.shape)
        silent, grid = status == int(Status.APPROXIMATED), float(Fraction(self.grid))
        fill_gaps(
            np.where(gaps, 0, rows), drawn, gaps, silent, hold, released, grid,
            int(source[0]), int(state.source[0]), values, source,
        )  # fmt: skip
        return values

    def intervals(self) -> Fold:
        """Every step is measured, and its noise says all."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
