"""BackwardSmoothing: Laplace noise at every step, and the average of the last k + 1 noisy values.

The average is a function of noisy values, all of which are released. It is a mechanism and no operator on the releases of
Uniform because it is compared with PeGaSus as one: with its own error and its own intervals. No value is said again
later, so it needs neither revised values nor an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.intervals import Averaged, Fold
from tidegate.mechanisms.pegasus import backward_smoothing as configured
from tidegate.noise import laplace
from tidegate.noise.law import Law
from tidegate.releases import Measured, Releases, Status


class State(NamedTuple):
    """All that is carried from step to step; all of it is released."""

    noisy: Any  # the values of the last k steps, in grid units, the latest at the end
    steps: Any  # and their numbers; 0: there is none


@dataclass(frozen=True)
class BackwardSmoothing(configured.BackwardSmoothing):
    """Average the last k + 1 steps; :class:`tidegate.mechanisms.BackwardSmoothing` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ("noisy",)
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        return State(np.zeros((self.back, self.columns), dtype=np.int64), np.zeros(self.back, dtype=np.int64))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs one unit."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure every step, and average it with those of the k steps before that were measured."""
        count, back, grid = len(rows), self.back, float(Fraction(self.grid))
        steps = np.arange(first, first + count)
        noisy = rows + laplace(noise.source, "backward", first, self.scale, rows.shape)
        known, numbers = np.concatenate([state.noisy, noisy]), np.concatenate([state.steps, steps])
        sums = np.concatenate([np.zeros((1, self.columns), dtype=np.int64), np.cumsum(known, axis=0)])
        ends = back + 1 + np.arange(count)
        begins = np.searchsorted(numbers, np.maximum(steps - back, 1))
        values = (sums[ends] - sums[begins]) / (ends - begins)[:, np.newaxis] * grid  # differences are exact
        state.noisy[:], state.steps[:] = known[len(known) - back :], numbers[len(known) - back :]
        return Output(
            values,
            np.full(count, int(Status.FRESH), dtype=np.int8),
            steps,
            np.full(count, self.scale * grid),
            np.ones(count, dtype=np.int64),
            more=(noisy * np.float64(grid),),
        )

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what was averaged, for readers."""
        (noisy,) = more
        measured = np.isfinite(noisy)  # all but silent steps
        groups = np.where(measured, np.asarray(releases.steps)[:, np.newaxis], 0)
        releases.measured = Measured(noisy, groups, measured.astype(np.int64))
        return releases

    def intervals(self) -> Fold:
        """Less noise in the mean of some values, and what the mean has flattened."""
        return Averaged(self.outputs, Law("laplace", float(Fraction(self.grid))), self.back + 1)
