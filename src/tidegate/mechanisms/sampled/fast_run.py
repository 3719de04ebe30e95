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
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun
from tidegate.noise import variance_laplace

if TYPE_CHECKING:
    from tidegate.mechanisms.sampled.fast import Fast


class FastRun(SampledRun):
    """FAST at work on the sliding ledger."""

    mechanism: Fast
    stream: ClassVar[str] = "fast"
    _rule: loop.Rule
    loop: ClassVar[Any] = loop

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        length, samples = mechanism.policy.steps_charged, mechanism.measurements
        controllers = self._columns if mechanism.printed else 1
        control = mechanism.adaptive if isinstance(mechanism.adaptive, Pid) else None
        filter_ = mechanism.filter if isinstance(mechanism.filter, Kalman) else None
        known = filter_.measurement_noise if filter_ else None
        self._rule = loop.Rule(
            charge=self.ledger.units // mechanism.units,
            samples=samples,
            window=mechanism.policy.window or 0,
            period=0 if control else -(-length // samples),
            scale=mechanism.scale,
            variance=float(known / self._grid**2 if known else variance_laplace(mechanism.scale)),
            grid=self._grid,
            sanity=float(mechanism.sanity / self._grid),
        )
        self._model = kalman.model(filter_, Fraction(mechanism.grid))
        self._control = (control or Pid()).settings(*mechanism.bounds)
        self._given = np.zeros(self._columns, dtype=np.int64)
        self._work = loop.Work(given=self._given, chosen=np.zeros(controllers, dtype=np.bool_))
        fresh = {
            "belief": np.zeros((FIELDS, self._columns)),
            "due": np.ones(controllers, dtype=np.int64),
            "counts": np.zeros(controllers, dtype=np.int64),
            "last": np.zeros(controllers, dtype=np.int64),
            "intervals": np.full(controllers, self._control.shortest),
            "errors": np.zeros((controllers, (control or Pid()).recent)),
            "taken": np.zeros((controllers, samples if controllers > 1 else 1), dtype=np.int64),
        }
        self._remember(fresh, state)

    def _scale(self) -> float:
        return self._rule.scale

    def _requested(self) -> int:
        return self._rule.charge
