"""BackwardSmoothing: Laplace noise at every step, and the average of the last k + 1 noisy values.

The average is a function of noisy values, all of which are released. It is a mechanism and no operator on the releases of
Uniform because it is compared with PeGaSus as one: with its own error and its own intervals. No value is said again
later, so it needs neither revised values nor an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import whole
from tidegate.intervals import Averaged, Fold
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import Law, check_scale, laplace
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Measured, Releases, Status


class State(NamedTuple):
    """All that is carried from step to step; all of it is released."""

    noisy: Any  # the values of the last k steps, in grid units, the latest at the end
    steps: Any  # and their numbers; 0: there is none


@dataclass(frozen=True)
class BackwardSmoothing(Mechanism):
    """Measure every step as :class:`Uniform` does, and release the average of it and the k steps before: BS_k.

    The simplest smoothing there is, blind to the data: the yardstick for :class:`PeGaSus`.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    back
        k: how many earlier steps are averaged in (fewer at the beginning); at most 511.

    Privacy
    -------
    Unit and neighbours: the policy's. The noisy values are those of the Laplace mechanism with scale wΔ/ε,
    and averaging them is post-processing.

    Error
    -----
    Noise with 1/(k+1) of the variance, and the bias of a stream that has moved in k steps, which only the
    data know. Time O(d) a step, memory O(k·d).

    Examples
    --------
    >>> mechanism = BackwardSmoothing(Event(epsilon="1"), back=4)
    >>> from tidegate.core.session import Session
    >>> Session(mechanism).push_batch(np.ones(100, dtype=np.int64)).values.shape
    (100, 1)

    References
    ----------
    Chen, Machanavajjhala, Hay, Miklau: PeGaSus: Data-adaptive differentially private stream processing. CCS
    2017.
    """

    back: int = 5

    more: ClassVar[tuple[str, ...]] = ("noisy",)
    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)

    def validate(self) -> None:
        """Check k."""
        object.__setattr__(self, "back", whole("back", self.back, least=0, most=511))
        check_scale(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @cached_property
    def scale(self) -> float:
        """The noise scale in grid units; rounded up."""
        return self.noise_scale(self.units)

    # what a session asks -----------------------------------------------------------------------------------------

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

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1")),
            cls(WEvent(epsilon="1", window=3), columns=3, back=0),
            cls(User(epsilon="9", horizon=9000), columns=2, grid="0.1", back=30),
        ]
