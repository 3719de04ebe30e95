"""Uniform: the same share of the budget at every step. Plain, always valid, and hard to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.composition import largest_step
from tidegate.core.charges import NO_SPANS, Charges, Integers, Span
from tidegate.core.mechanism import EveryStep, Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import float_up
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.measuring import Measuring
from tidegate.noise import add_laplace, check_scale, laplace, laplace_one
from tidegate.policy import Approximate, Event, Policy, User, WEvent
from tidegate.releases import Status

STREAM = "uniform"  # the name under which noise is drawn


class State(NamedTuple):
    """All that is carried from step to step."""

    law: Any  # SECRET: noise that steps share; empty where each has noise of its own


@dataclass(frozen=True)
class Uniform(Measuring):
    """Add noise of one law to every column of every step.

    A window of w steps shares the budget equally. If each step has noise of its own, it is measured with ε/w. The steps
    of a window may share noise instead, with the same guarantee and about six tenths of the error
    (docs/mechanisms/noise.md); this is done where the error gets smaller. Under a user-level policy all steps share the
    budget. Under an event-level policy every step has the whole of ε.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    noise
        "auto": the best law for the policy and the columns. "laplace": noise of its own at each step, as in the papers.
        "cube", "semiorder": noise that steps share, with this law.

    Privacy
    -------
    Unit and neighbours: the policy's. With Laplace noise each step is an (ε/w)-differentially private function of its own
    data (discrete Laplace noise of scale wΔ/ε, w-event paper, section 4.2), and a window of w steps composes to ε.
    With shared noise a change anywhere in a window, however many of its steps it touches, costs ε
    (docs/mechanisms/noise.md). The state is secret then. A copy of a log does not use its noise: it restarts, silent
    until no window meets a step before the copy. With δ, the step's share ε₀ is the largest for which the optimal
    composition of w steps is (ε, δ) (Kairouz, Oh and Viswanath 2015; Swellfish paper, Theorem 10, with the exact
    composition in place of the printed bound). With ρ, discrete Gaussian noise of variance wΔ²/(2ρ) (Canonne, Kamath and
    Steinke 2020). The paper's version is sound as printed.

    Error
    -----
    Mean absolute error close to wΔ/ε in each column with Laplace noise; 0.69 of it at w = 8, 0.57 at w = 240 with shared
    noise and one column. Time O(d) a step.

    Examples
    --------
    >>> mechanism = Uniform(WEvent(epsilon="1", window=24), columns=3)
    >>> mechanism.sharing.choice.law, round(mechanism.expected_error(), 1)
    ('semiorder', 21.2)
    >>> Uniform(WEvent(epsilon="1", window=24), noise="laplace").scale
    24.0
    >>> from tidegate.core.session import Session
    >>> session = Session(mechanism)
    >>> session.push([12, 0, 7]).values.shape
    (3,)
    >>> session.push_batch(np.zeros((100, 3), dtype=np.int64)).values.shape
    (100, 3)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    plain: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "Approximate", "ZeroConcentrated")

    def validate(self) -> None:
        """Refuse, while nothing is charged, a budget whose noise could not be drawn."""
        budget = self.policy.budget
        if isinstance(budget, Approximate):  # the scale without δ: that with δ is smaller, and takes long
            check_scale(self.noise_scale(self.units))
        else:
            check_scale(self.scale)

    @property
    def measurements(self) -> int:
        """Every step is measured."""
        return self.policy.steps_charged

    @cached_property
    def scale(self) -> float:
        """The noise scale in grid units: b of the Laplace, σ of the Gaussian, s of shared noise; rounded up."""
        budget = self.policy.budget
        if isinstance(budget, Approximate):
            return float_up(self.sensitivity / largest_step(self.units, budget.epsilon, budget.delta))
        return super().scale

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of a released value, the same at every step."""
        return self.noise_error

    def begin(self, first: int) -> State:
        """The state before the first measurement."""
        return State(self.begin_shared())

    def public(self, state: State, first: int, count: int) -> Charges:
        """What every step costs by itself. Spans are judged when they are charged."""
        return Charges(first, self._units(count))

    def _units(self, count: int) -> Integers:
        """What steps cost by themselves: one unit, or nothing where they share noise and spans are charged."""
        return np.full(count, 0 if self.shared is not None else 1, dtype=np.int64)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure every step."""
        count, grid, spans = len(rows), float(Fraction(self.grid)), NO_SPANS
        if self.shared is not None:
            steps = np.arange(first, first + count)
            drawn, spans = self.shared.measure(state.law, noise.source, STREAM, first, steps)
            values = np.multiply(rows + drawn, grid, dtype=np.float64)
        elif self.own_noise.draw is not laplace:
            drawn = self.own_noise.draw(noise.source, STREAM, first, self.scale, rows.shape)
            values = np.multiply(rows + drawn, grid, dtype=np.float64)
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
            self._units(count),
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
        """Measure one step: the fast path of single pushes, with the same draws as `advance`."""
        spans: Sequence[Span] = ()
        if self.shared is not None:
            drawn, named = self.shared.measure_one(state.law, noise.source, STREAM, step, step)
            spans = [Span(*each) for each in named]
        elif self._draw is laplace and self.columns == 1:
            return np.array(((row + noise.laplace(STREAM, step, self.scale)) * self._grid,)), spans
        else:
            drawn = self._draw(noise.source, STREAM, step, self.scale, (self.columns,))
        return np.multiply(row + drawn, self._grid, dtype=np.float64), spans

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="1", window=5), columns=3),
            cls(WEvent(epsilon="1", window=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="1", window=1)),
            cls(WEvent(epsilon="1", delta="1e-6", window=40), columns=2),
            cls(WEvent(rho="1/2", window=7), columns=2),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=2, grid="0.01"),
            cls(WEvent(epsilon="1", window=12), noise="cube"),
            cls(User(epsilon="2", horizon=5000)),
            cls(User(epsilon="2", horizon=5000), noise="laplace"),
        ]
