"""FAST at work: the settings and arrays that the compiled loop works on."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tidegate.mechanisms.run import State
from tidegate.mechanisms.sampled import kalman
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.kernels import fast as loop
from tidegate.mechanisms.sampled.kernels.kalman import FIELDS
from tidegate.mechanisms.sampled.kernels.pid import SHORTEST
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun
from tidegate.noise import variance_laplace

if TYPE_CHECKING:
    from tidegate.mechanisms.sampled.fast import Fast


class FastRun(SampledRun):
    """FAST at work on the sliding ledger."""

    mechanism: Fast
    stream: ClassVar[str] = "fast"
    loop: ClassVar[Any] = loop

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        length, samples = mechanism.policy.steps_charged, mechanism.measurements
        controllers = self._columns if mechanism.printed else 1
        control = mechanism.adaptive if isinstance(mechanism.adaptive, Pid) else None
        filter_ = mechanism.filter if isinstance(mechanism.filter, Kalman) else None
        known = filter_.measurement_noise if filter_ else None
        self._rule = np.zeros(loop.RULE, dtype=np.int64)
        self._rule[loop.CHARGE] = self.ledger.units // mechanism.units
        self._rule[loop.SAMPLES] = samples
        self._rule[loop.WINDOW] = mechanism.policy.window or 0
        self._rule[loop.PERIOD] = 0 if control else -(-length // samples)
        self._numbers = np.zeros(loop.NUMBERS)
        self._numbers[loop.SCALE] = mechanism.scale
        self._numbers[loop.VARIANCE] = known / self._grid**2 if known else variance_laplace(mechanism.scale)
        self._numbers[loop.GRID] = self._grid
        self._numbers[loop.SANITY] = mechanism.sanity / self._grid
        self._model = kalman.model(filter_, Fraction(mechanism.grid))
        self._settings = (control or Pid()).settings(*mechanism.bounds)
        self._scratch = (np.zeros(controllers, dtype=np.bool_),)  # chosen
        fresh = {
            "belief": np.zeros((FIELDS, self._columns)),
            "due": np.ones(controllers, dtype=np.int64),
            "counts": np.zeros(controllers, dtype=np.int64),
            "last": np.zeros(controllers, dtype=np.int64),
            "intervals": np.full(controllers, self._settings[SHORTEST]),
            "errors": np.zeros((controllers, (control or Pid()).recent)),
            "taken": np.zeros((controllers, samples if controllers > 1 else 1), dtype=np.int64),
        }
        self._remember(fresh, state)

    def _scale(self, column: int) -> float:
        return self.mechanism.scale

    def _requested(self) -> int:
        return int(self._rule[loop.CHARGE])
