"""Uniform: the same share of the budget at every step. Plain, always valid, and hard to beat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from tidegate.composition import largest_step
from tidegate.exact import float_up
from tidegate.ledger import Ledger
from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Mechanism, Row, State
from tidegate.mechanisms.plain.measuring import Measuring
from tidegate.mechanisms.shared_noise import SharedNoise, SharingRun
from tidegate.noise import add_laplace, check_scale, laplace, laplace_one
from tidegate.policy import Approximate, Event, Policy, User, WEvent
from tidegate.releases import Release, Releases, Status

FRESH = Status.FRESH  # named once: to look it up takes as long as a call


@dataclass(frozen=True)
class Uniform(Measuring):
    """Add noise of one law to every column of every step.

    A window of w steps shares the budget equally. With noise of its own each step is measured with ε/w; noise that the
    steps of a window share has the same guarantee and about six tenths of the error (docs/noise.md), and is used where it
    gains. Under a user-level policy all steps share it, under an event-level policy every step has the whole of ε.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    noise
        "auto": the best law for the policy and the columns. "laplace": noise of its own at each step, as in the papers.
        "cube", "semiorder": this law.

    Privacy
    -------
    Unit and neighbours: the policy's. With Laplace noise each step is an (ε/w)-differentially private function of its own
    data (discrete Laplace noise of scale wΔ/ε, w-event paper, section 4.2), and a window of w steps composes to ε.
    With shared noise a change anywhere in a window, however many of its steps it touches, costs ε (docs/noise.md); the
    state of a run is secret then, and a snapshot of a ledger in memory goes on in silence until it shares nothing.
    With δ, the step's share ε₀ is the largest for which the optimal composition of w steps is (ε, δ) (Kairouz,
    Oh and Viswanath 2015; Swellfish paper, Theorem 10, with the exact composition in place of the printed bound).
    With ρ, discrete Gaussian noise of variance wΔ²/(2ρ) (Canonne, Kamath and Steinke 2020). Sound as printed.

    Error
    -----
    Mean absolute error close to wΔ/ε in each column with Laplace noise; 0.69 of it at w = 8, 0.57 at w = 240 with shared
    noise and one column. Time O(d) a step.

    Examples
    --------
    >>> mechanism = Uniform(WEvent(epsilon="1", w=24), columns=3)
    >>> mechanism.sharing.choice.law, round(mechanism.expected_error(), 1)
    ('semiorder', 21.2)
    >>> Uniform(WEvent(epsilon="1", w=24), noise="laplace").scale
    24.0
    >>> run = mechanism.start()
    >>> run.push([12, 0, 7]).values.shape
    (3,)
    >>> run.push_batch(np.zeros((100, 3), dtype=np.int64)).values.shape
    (100, 3)
    >>> run.ledger.verify().ok
    True

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
        if isinstance(budget, Approximate):  # δ lowers the scale; by how much takes long to find out
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

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> UniformRun:
        """Begin, or go on with, a run."""
        return UniformRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="1", w=5), columns=3),
            cls(WEvent(epsilon="1", w=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="1", w=1)),
            cls(WEvent(epsilon="1", delta="1e-6", w=40), columns=2),
            cls(WEvent(rho="1/2", w=7), columns=2),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=2, grid="0.01"),
            cls(WEvent(epsilon="1", w=12), noise="cube"),
            cls(User(epsilon="2", horizon=5000)),
            cls(User(epsilon="2", horizon=5000), noise="laplace"),
        ]


class UniformRun(SharingRun):
    """Uniform at work."""

    mechanism: Uniform

    def _begin(self, state: State | None) -> None:
        self._draw = self.mechanism.own_noise.draw
        self._single = self._draw is laplace and self._columns == 1
        self._shown_scale = self.mechanism.shown_scale
        self._begin_measuring("uniform", state, np.zeros(self._columns, dtype=np.int64))

    def _state(self) -> State:
        if self._noise is None:
            return {}
        return {
            "noise": self._noise.numbers(),
            "last": np.atleast_1d(self._last),
            "measured": self._measured_at,
        }

    def _push(self, row: Row) -> Release:
        if self._noise is not None:
            return self._push_shared(row, self._noise)
        step, scale = self.step, self.mechanism.scale
        self.ledger.charge(step, self._charge)
        if self._single:  # the quick way for scalar streams
            noise = laplace_one(self.source, "uniform", step, 0, scale)
            values = np.array(((row.item() + noise) * self._grid,))
        else:
            drawn = self._draw(self.source, "uniform", step, scale, (self._columns,))
            values = np.multiply(row + drawn, self._grid, dtype=np.float64)
        return Release(step, values, FRESH, step, self._shown_scale, self._charge, self.ledger.unit)

    def _push_shared(self, row: Row, noise: SharedNoise) -> Release:
        step, grid = self.step, self._grid
        units = noise.pay(step)
        if units < 0:
            scale = self._shown_scale if self._measured_at else 0.0
            values = np.multiply(np.atleast_1d(self._last), grid, dtype=np.float64)
            return Release(step, values, Status.APPROXIMATED, self._measured_at, scale, 0, self.ledger.unit)
        if self._single:
            self._last = last = row.item() + noise.draw_one(step)
            values = np.array((last * grid,))
        else:
            self._last = row + noise.draw(step)
            values = np.multiply(self._last, grid, dtype=np.float64)
        self._measured_at = step
        return Release(step, values, FRESH, step, self._shown_scale, units, self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._noise is not None:
            return self._push_batch_shared(matrix, first_step, self._noise)
        self.ledger.charge_batch(first_step, np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, first_step)

    def _push_batch_shared(self, matrix: Matrix, first_step: int, noise: SharedNoise) -> Releases:
        if not noise.steady:
            return self._push_one_by_one(matrix, noise)
        steps = len(matrix)
        units = noise.pay_all(first_step, steps, first_step, steps)
        drawn = noise.draw_all(first_step, steps)
        if steps:
            self._last, self._measured_at = matrix[-1] + drawn[-1], first_step + steps - 1
        return self._all_fresh(first_step, add_noise(matrix, drawn, self._grid), self._shown_scale, units)

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        if self._noise is not None:
            return self._repeat_shared(matrix, length, charge, self._noise)
        charge(np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, 1)  # one step is as good as another: nothing begins afresh

    def _repeat_shared(self, matrix: Matrix, length: int, charge: ChargeAll, noise: SharedNoise) -> Releases:
        """Blocks whose steps share noise: each is one group, and the next one begins afresh."""
        units = self._charge_blocks(len(matrix), length, length, charge)
        drawn, _ = noise.law.draw(self.source, "uniform", 1, noise.law.start(), len(matrix))
        return self._all_fresh(1, add_noise(matrix, drawn, self._grid), self._shown_scale, units)

    def _measured(self, matrix: Matrix, first_step: int) -> Releases:
        """Every step with noise, when it is paid for."""
        if self._draw is laplace:
            values = add_laplace(self.source, "uniform", first_step, self.mechanism.scale, matrix, self._grid)
        else:
            noise = self._draw(self.source, "uniform", first_step, self.mechanism.scale, matrix.shape)
            values = add_noise(matrix, noise, self._grid)
        units = np.broadcast_to(np.int64(self._charge), len(matrix))
        return self._all_fresh(first_step, values, self._shown_scale, units)
