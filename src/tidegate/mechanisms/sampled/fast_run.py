"""FAST at work: the settings and arrays that the compiled loop works on."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tidegate.mechanisms.kernels.loops import Outputs
from tidegate.mechanisms.loop_run import Block, Drawn
from tidegate.mechanisms.run import State
from tidegate.mechanisms.sampled import kalman
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.kernels import fast as loop
from tidegate.mechanisms.sampled.kernels.kalman import FIELDS
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun
from tidegate.mechanisms.shared_noise import begin_noise
from tidegate.noise import gaussian
from tidegate.policy import ZeroConcentrated

if TYPE_CHECKING:
    from tidegate.mechanisms.sampled.fast import Fast


UNITS = Outputs._fields.index("units")


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
        sharing = mechanism.sharing
        control = mechanism.adaptive if isinstance(mechanism.adaptive, Pid) else None
        filter_ = mechanism.filter if isinstance(mechanism.filter, Kalman) else None
        known = filter_.measurement_noise if filter_ else None
        self._rule = loop.Rule(
            charge=self.ledger.units // mechanism.units,
            samples=samples,
            window=mechanism.policy.window or 0,
            period=0 if control else -(-length // samples),
            scale=mechanism.scale,
            shown=mechanism.shown_scale,
            variance=float(known / self._grid**2 if known else mechanism.noise_variance),
            grid=self._grid,
            sanity=float(mechanism.sanity / self._grid),
            shares=sharing is not None,
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
            "taken": np.zeros((controllers, samples if sharing or controllers > 1 else 1), dtype=np.int64),
        }
        state = dict(state or {})
        saved = state.pop("noise", None)
        self._remember(fresh, state)
        if sharing is not None:
            self.restores = False
            self._noise = begin_noise(self, sharing, self.stream, saved, distance=0)
            self._noise.patient_until = sys.maxsize  # it waits for room whoever takes it

    def _state(self) -> State:
        return (
            super()._state() if self._noise is None else {**super()._state(), "noise": self._noise.numbers()}
        )

    def _draw(self, block: Block) -> Any:
        """No words where the loop draws nothing itself."""
        if self._noise is None and not self._gaussian:
            return super()._draw(block)
        return Drawn(self.source, self.stream, block.first_step, len(block.rows), 0)

    @property
    def _gaussian(self) -> bool:
        return isinstance(self.mechanism.policy.budget, ZeroConcentrated)

    def _help(self, block: Block, index: int, reason: int) -> None:
        step, noise = block.first_step + index, self._noise
        if noise is not None:
            units = noise.pay(step)
            self._work.chosen[0] = units >= 0
            if units >= 0:
                noise.ledger.charge(step, 0)
                block.outputs[UNITS][index] = units
                self._given[:] = noise.draw(int(self._arrays["counts"][0]))
        elif self._gaussian:
            self._given[:] = gaussian(self.source, self.stream, step, self._rule.scale, (self._columns,))
        else:
            super()._help(block, index, reason)

    def _scale(self) -> float:
        return self._rule.scale

    def _requested(self) -> int:
        return self._rule.charge
