"""Sample: one step in every so many is measured, and the steps between repeat the last measurement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import Fold, Held
from tidegate.mechanisms.kernels.values import hold
from tidegate.mechanisms.plain import sample as configured
from tidegate.noise.laws import SharedLaw, exact_units, most_live
from tidegate.releases import Status

STREAM = "sample"


class State(NamedTuple):
    """All that is carried from step to step. It is released, but for the law's part."""

    last: Any  # the last measurement of each column, in grid units
    source: Any  # its step; 0 before there was any
    law: Any  # SECRET: the law that measurements share; empty where each has noise of its own


@dataclass(frozen=True)
class Sample(configured.Sample):
    """Measure every so many steps; :class:`tidegate.mechanisms.Sample` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the measurements of a window share; None where each has its own noise."""
        if self.sharing is None:
            return None
        units = exact_units(self.sharing.group_part, self.units)
        return SharedLaw(self.sharing.law, units, self.policy.window, self.period, self.policy.horizon)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return 0 if self.shared is None else most_live(self.shared.law, self.policy.window, self.period)

    @property
    def noise_in_state(self) -> bool:
        """Only what measurements share."""
        return self.shared is not None

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        law = () if self.shared is None else self.shared.start()
        return State(np.zeros(self.columns, dtype=np.int64), np.zeros(1, dtype=np.int64), law)

    def public(self, state: State, first: int, count: int) -> Charges:
        """Measurements are at public steps and cost the same."""
        return Charges(first, self._units(first, count))

    def _units(self, first: int, count: int) -> Integers:
        units = np.zeros(count, dtype=np.int64)
        if self.shared is None:
            units[(1 - first) % self.period :: self.period] = 1
        return units

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure the steps 1, 1 + period, …, and repeat the last measurement at all others."""
        count, period = len(rows), self.period
        measured = np.arange((1 - first) % period, count, period)
        number, spans = (first + int(measured[0]) - 1) // period if measured.size else 0, NO_SPANS
        if self.shared is not None:
            drawn, spans = self.shared.measure(state.law, noise.source, STREAM, number, first + measured)
        else:
            drawn = self.own_noise.draw(
                noise.source, STREAM, number, self.scale, (measured.size, self.columns)
            )
        source = np.full(count, state.source[0])
        source[measured] = first + measured
        np.maximum.accumulate(source, out=source)
        values = np.empty(rows.shape)
        state.last[:] = hold(rows, drawn, measured, state.last, float(Fraction(self.grid)), values)
        state.source[:] = source[-1:] if count else state.source
        fresh = source == np.arange(first, first + count)
        return Output(
            values,
            np.where(fresh, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED)),
            source,
            np.where(source > 0, self.shown_scale, 0.0),
            self._units(first, count),
            spans,
        )

    def intervals(self) -> Fold:
        """Values stay until the next measurement."""
        assert self.law is not None
        return Held(self.outputs, replace(self.law, rounded=self.rounded_by), self.law)
