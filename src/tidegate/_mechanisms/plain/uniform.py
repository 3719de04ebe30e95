"""Uniform: every step is measured, and every measurement has the same part of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges, Integers, Span
from tidegate.core.mechanism import EveryStep, Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.plain import uniform as configured
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import add_laplace, laplace_one
from tidegate.noise.laws import SharedLaw, exact_units, most_live
from tidegate.releases import Status

STREAM = "uniform"


class State(NamedTuple):
    """Nothing but the law's; empty where every measurement has noise of its own."""

    law: Any


@dataclass(frozen=True)
class Uniform(configured.Uniform):
    """Add noise to every step; see :class:`tidegate.mechanisms.Uniform` for parameters, privacy and error."""

    more: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the steps of a window share; None where each has its own noise."""
        if self.sharing is None:
            return None
        units = exact_units(self.sharing.group_part, self.units)
        return SharedLaw(self.sharing.law, units, self.policy.window, 1, self.policy.horizon)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return 0 if self.shared is None else most_live(self.shared.law, self.policy.window, 1)

    @property
    def noise_in_state(self) -> bool:
        """Only what steps share."""
        return self.shared is not None

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        return State(() if self.shared is None else self.shared.start())

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same; what spans cost is refused with them."""
        return Charges(first, self._own(count))

    def _own(self, count: int) -> Integers:
        return np.full(count, 0 if self.shared is not None else 1, dtype=np.int64)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure every step."""
        count, grid = len(rows), float(Fraction(self.grid))
        units, spans = self._own(count), Charges(first, rows[:0, 0]).spans
        if self.shared is not None:
            steps = np.arange(first, first + count)
            drawn, spans = self.shared.measure(state.law, noise.source, STREAM, first, steps)
            values = add_noise(rows, drawn, grid)
        elif self.own_noise.draw is not laplace:
            values = add_noise(
                rows, self.own_noise.draw(noise.source, STREAM, first, self.scale, rows.shape), grid
            )
        elif rows.size == 1:  # the quick way for single values
            values = np.array(
                [[(rows.item() + laplace_one(noise.source, STREAM, first, 0, self.scale)) * grid]]
            )
        else:
            values = add_laplace(noise.source, STREAM, first, self.scale, rows, grid)
        return Output(
            values,
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
            np.full(count, self.shown_scale),
            units,
            spans,
        )

    @cached_property
    def every_step(self) -> EveryStep:
        """The same noise at every step."""
        return EveryStep(self.shown_scale, 0 if self.shared is not None else 1)

    @cached_property
    def _draw(self) -> Any:
        return self.own_noise.draw

    @cached_property
    def _grid(self) -> float:
        return float(Fraction(self.grid))

    def measure(self, state: State, row: Any, step: int, noise: Draws) -> tuple[Floats, Sequence[Span]]:
        """Measure one step."""
        spans: Sequence[Span] = ()
        if self.shared is not None:
            drawn, named = self.shared.measure_one(state.law, noise.source, STREAM, step, step)
            spans = [Span(*each) for each in named]
        elif self._draw is not laplace or self.columns > 1:
            drawn = self._draw(noise.source, STREAM, step, self.scale, (self.columns,))
        else:
            return np.array(((row + noise.laplace(STREAM, step, self.scale)) * self._grid,)), spans
        if self.columns == 1:
            return np.array(((row + drawn.item()) * self._grid,)), spans
        return np.multiply(row + drawn, self._grid, dtype=np.float64), spans

    def intervals(self) -> Fold:
        """Every value is the truth and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
