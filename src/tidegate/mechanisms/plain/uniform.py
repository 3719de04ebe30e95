"""Uniform: the same share of the budget at every step. Plain, always valid, and hard to beat."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from tidegate.composition import largest_step
from tidegate.exact import float_up, sqrt_up
from tidegate.ledger import Ledger
from tidegate.mechanisms.kernels.values import add_noise
from tidegate.mechanisms.losses import Floats, noise_losses
from tidegate.mechanisms.mechanism import ChargeAll, Matrix, Mechanism, Row, Run
from tidegate.noise import (
    add_laplace,
    check_scale,
    expected_absolute_gaussian,
    expected_absolute_laplace,
    gaussian,
    laplace,
    laplace_one,
)
from tidegate.policy import Approximate, Event, Policy, Pure, User, WEvent, ZeroConcentrated
from tidegate.releases import Release, Releases, Status


@dataclass(frozen=True)
class Uniform(Mechanism):
    """Add noise of one scale to every column of every step.

    A window of w steps shares the budget equally, so that each step is measured with ε/w. Under a user-level
    policy the share is ε/horizon, under an event-level policy every step has the whole of ε.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.

    Privacy
    -------
    Unit and neighbours: the policy's. Each step is an (ε/w)-differentially private function of its own data
    (discrete Laplace noise of scale wΔ/ε, w-event paper, section 4.2), and a window of w steps composes to ε.
    With δ, the step's share ε₀ is the largest for which the optimal composition of w steps is (ε, δ) (Kairouz,
    Oh and Viswanath 2015; Swellfish paper, Theorem 10, with the exact composition in place of the printed bound).
    With ρ, discrete Gaussian noise of variance wΔ²/(2ρ) (Canonne, Kamath and Steinke 2020). Sound as printed.

    Error
    -----
    Mean absolute error close to wΔ/ε in each column. Time O(d) a step, no state but the ledger's window.

    Examples
    --------
    >>> mechanism = Uniform(WEvent(epsilon="1", w=24), columns=3)
    >>> mechanism.scale
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
    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "Approximate", "ZeroConcentrated")

    def validate(self) -> None:
        """Refuse, while nothing is charged, a budget whose noise could not be drawn."""
        budget = self.policy.budget
        if isinstance(budget, Approximate):  # δ lowers the scale; by how much takes long to find out
            check_scale(float_up(self.sensitivity * self.units / budget.epsilon))
        else:
            check_scale(self.scale)

    @property
    def units(self) -> int:
        """One unit a step."""
        return self.policy.steps_charged

    @cached_property
    def scale(self) -> float:
        """The noise scale in grid units: b of the Laplace, σ of the Gaussian; rounded up."""
        budget = self.policy.budget
        match budget:
            case Pure():
                return float_up(self.sensitivity * self.units / budget.epsilon)
            case Approximate():
                return float_up(self.sensitivity / largest_step(self.units, budget.epsilon, budget.delta))
            case ZeroConcentrated():
                return sqrt_up(Fraction(self.sensitivity**2 * self.units) / (2 * budget.rho))

    def expected_error(self) -> float:
        """The mean absolute error of every released value."""
        if isinstance(self.policy.budget, ZeroConcentrated):
            return expected_absolute_gaussian(self.scale) * float(Fraction(self.grid))
        return expected_absolute_laplace(self.scale) * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost, from its scale."""
        return noise_losses(self, releases)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> UniformRun:
        """Begin, or go on with, a run."""
        return UniformRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="1", w=5), columns=3),
            cls(WEvent(epsilon="1", w=1)),
            cls(WEvent(epsilon="1", delta="1e-6", w=40), columns=2),
            cls(WEvent(rho="1/2", w=7), columns=2),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=2, grid="0.01"),
            cls(User(epsilon="2", horizon=5000)),
        ]


class UniformRun(Run):
    """Uniform at work."""

    mechanism: Uniform

    def _begin(self, state: object) -> None:
        mechanism = self.mechanism
        self._draw = gaussian if isinstance(mechanism.policy.budget, ZeroConcentrated) else laplace
        self._single = self._draw is laplace and self._columns == 1
        self._charge = self.ledger.units // mechanism.units
        self._shown_scale = mechanism.scale * self._grid

    def _push(self, row: Row) -> Release:
        step, scale = self.step, self.mechanism.scale
        self.ledger.charge(step, self._charge)
        if self._single:  # the quick way for scalar streams
            noise = laplace_one(self.source, "uniform", step, 0, scale)
            values = np.array(((row.item() + noise) * self._grid,))
        else:
            drawn = self._draw(self.source, "uniform", step, scale, (self._columns,))
            values = np.multiply(row + drawn, self._grid, dtype=np.float64)
        return Release(step, values, Status.FRESH, step, self._shown_scale, self._charge, self.ledger.unit)

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        self.ledger.charge_batch(first_step, np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, first_step)

    def repeat(self, matrix: Matrix, length: int, charge: ChargeAll) -> Releases:
        """Release many blocks in one go; see `tidegate.mechanisms.plain.blocks.Repeating`."""
        charge(np.broadcast_to(np.int64(self._charge), len(matrix)))
        return self._measured(matrix, 1)  # one step is as good as another: nothing begins afresh

    def _measured(self, matrix: Matrix, first_step: int) -> Releases:
        """Every step with noise, when it is paid for."""
        steps = len(matrix)
        if self._draw is laplace:
            values = add_laplace(self.source, "uniform", first_step, self.mechanism.scale, matrix, self._grid)
        else:
            noise = self._draw(self.source, "uniform", first_step, self.mechanism.scale, matrix.shape)
            values = add_noise(matrix, noise, self._grid)
        return Releases(
            first_step,
            values,
            np.broadcast_to(np.int8(Status.FRESH), steps),
            None,
            np.broadcast_to(np.float64(self._shown_scale), steps),
            np.broadcast_to(np.int64(self._charge), steps),
            self.ledger.unit,
        )
