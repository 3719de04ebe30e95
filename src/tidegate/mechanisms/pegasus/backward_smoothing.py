"""BackwardSmoothing: Laplace noise at every step, and the average of the last k + 1 noisy values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Run, State
from tidegate.mechanisms.uncertainty import Shown, Smoothed, Uncertainty
from tidegate.noise import Law, check_scale, laplace, variance_laplace
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Measured, Releases


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
    >>> mechanism.start().push_batch(np.ones(100, dtype=np.int64)).values.shape
    (100, 1)

    References
    ----------
    Chen, Machanavajjhala, Hay, Miklau: PeGaSus: Data-adaptive differentially private stream processing. CCS
    2017.
    """

    back: int = 5

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

    def uncertainty(self) -> Uncertainty:
        """Less noise in the mean of some values, and what the mean has flattened."""

        def sizes(shown: Shown, before: int) -> npt.NDArray[np.float64]:
            known = np.minimum(before + 1 + np.arange(len(shown.values)), self.back + 1)
            return np.broadcast_to(known[:, np.newaxis].astype(np.float64), shown.values.shape)

        return Smoothed(self.outputs, Law("laplace", float(Fraction(self.grid))), sizes)

    def error_on_constant(self) -> float:
        """The mean absolute error on a constant stream; taken from a normal distribution."""
        variance = variance_laplace(self.scale) / (self.back + 1)
        return math.sqrt(2 / math.pi * variance) * float(Fraction(self.grid))

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> BackwardSmoothingRun:
        """Begin, or go on with, a run."""
        return BackwardSmoothingRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1")),
            cls(WEvent(epsilon="1", w=3), columns=3, back=0),
            cls(User(epsilon="9", horizon=9000), columns=2, grid="0.1", back=30),
        ]


class BackwardSmoothingRun(Run):
    """BackwardSmoothing at work."""

    mechanism: BackwardSmoothing

    def _begin(self, state: State | None) -> None:
        self._charge = self.ledger.units // self.mechanism.units
        nothing = np.zeros((0, self._columns), dtype=np.int64)
        self._last: Matrix = (state or {}).get("last", nothing)  # the noisy values of the last k steps

    def _state(self) -> State:
        return {"last": self._last}

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps, back = len(matrix), self.mechanism.back
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        noisy = matrix + laplace(self.source, "backward", first_step, self.mechanism.scale, matrix.shape)
        known = np.concatenate([self._last, noisy])
        sums = np.concatenate([np.zeros((1, self._columns), dtype=np.int64), np.cumsum(known, axis=0)])
        ends = len(self._last) + 1 + np.arange(steps)
        begins = np.maximum(ends - back - 1, 0)
        counts = (ends - begins)[:, np.newaxis]
        values = (sums[ends] - sums[begins]) / counts * self._grid  # whole numbers: differences are exact
        self._last = known[max(0, len(known) - back) :].copy() if back else known[:0]
        numbers = np.arange(first_step, first_step + steps, dtype=np.int64)
        measured = Measured(
            noisy * np.float64(self._grid),
            np.repeat(numbers[:, np.newaxis], self._columns, axis=1),
            np.broadcast_to(np.int64(1), matrix.shape),
        )
        return self._all_fresh(first_step, values, self.mechanism.scale * self._grid, units, measured)
