"""RescueDP at work: the settings and arrays that the compiled loop works on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.run import State
from tidegate.mechanisms.sampled import kalman
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.kernels import rescue as loop
from tidegate.mechanisms.sampled.kernels.kalman import FIELDS
from tidegate.mechanisms.sampled.kernels.pid import SHORTEST
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun
from tidegate.noise import laplace

if TYPE_CHECKING:
    from tidegate.mechanisms.sampled.rescue_dp import RescueDP

CONTROL = Pid(recent=3)


class RescueRun(SampledRun):
    """RescueDP at work on one ledger."""

    mechanism: RescueDP
    stream: ClassVar[str] = "rescue"
    loop: ClassVar[Any] = loop

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        columns, units = self._columns, self.ledger.units
        length, window = mechanism.policy.steps_charged, mechanism.policy.window or 0
        printed = mechanism.printed
        controllers = columns if printed else 1
        control = mechanism.adaptive if isinstance(mechanism.adaptive, Pid) else None
        groups = mechanism.grouping if isinstance(mechanism.grouping, Grouping) else None
        filter_ = mechanism.filter if isinstance(mechanism.filter, Kalman) else None
        assert mechanism.samples is not None
        rule = self._rule = np.zeros(loop.RULE, dtype=np.int64)
        rule[loop.WINDOW] = window
        rule[loop.LIMIT] = units
        rule[loop.MOST] = int(Fraction(mechanism.most) * units)
        rule[loop.LEAST] = (
            1 if printed else units // length
        )  # less than Uniform's share is not worth a measurement
        rule[loop.FIXED] = 0 if mechanism.allocation else units // mechanism.samples
        rule[loop.PERIOD] = 0 if control else -(-length // mechanism.samples)
        rule[loop.GROUPS] = groups is not None and columns > 1
        numbers = self._numbers = np.zeros(loop.NUMBERS)
        numbers[loop.WHOLE] = mechanism.whole_scale(units)
        numbers[loop.GRID] = self._grid
        numbers[loop.PORTION] = mechanism.portion
        numbers[loop.MOST_PORTION] = mechanism.most_portion
        numbers[loop.PACE] = units if mechanism.pace is None or printed else mechanism.pace * units / length
        numbers[loop.VARIANCE] = ((filter_.measurement_noise if filter_ else None) or 0.0) / self._grid**2
        if groups is not None:
            numbers[loop.SMALL] = (groups.small or 0.0) / self._grid
            numbers[loop.ALIKE] = groups.similarity
            numbers[loop.DIFFERENCE] = (groups.difference or 0.0) / self._grid
        self._model = kalman.model(filter_, Fraction(mechanism.grid))
        self._settings = (control or CONTROL).settings(1, length)
        self._scratch = (
            np.zeros(controllers, dtype=np.bool_),  # chosen
            np.zeros(controllers, dtype=np.int64),  # amounts
            np.arange(columns, dtype=np.int64),  # pivot_of
            np.ones(columns),  # widths
            np.zeros(columns),  # moved
        )
        fresh = {
            "belief": np.zeros((FIELDS, columns)),
            "history": np.zeros((groups.recent if groups else 1, columns)),
            "due": np.ones(controllers, dtype=np.int64),
            "counts": np.zeros(controllers, dtype=np.int64),
            "last": np.zeros(controllers, dtype=np.int64),
            "intervals": np.full(
                controllers, float(self._settings[SHORTEST] if printed else -(-length // mechanism.samples))
            ),
            "errors": np.zeros((controllers, (control or CONTROL).recent)),
            "scales": np.zeros(controllers),
            "spent": np.zeros(controllers if printed else 0, dtype=np.int64),
            "paid": np.zeros((controllers, window) if printed else (0, 0), dtype=np.int64),
        }
        self._remember(fresh, state)

    def _scale(self, column: int) -> float:
        return float(self._scratch[3][column])

    def _requested(self) -> int:
        return int(self._scratch[1].max())

    def _wide_noise(self, step: int) -> npt.NDArray[np.int64]:
        widths = self._scratch[3] if self.mechanism.printed else float(self._scratch[3][0])
        return laplace(self.source, self.stream, step, widths, (self._columns,))
