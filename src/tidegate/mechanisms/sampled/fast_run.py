"""FAST at work: the settings and arrays that the compiled loop works on."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tidegate.ledger import Group
from tidegate.mechanisms.loop_run import Block, Drawn
from tidegate.mechanisms.run import State
from tidegate.mechanisms.sampled import kalman
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.kernels import fast as loop
from tidegate.mechanisms.sampled.kernels.kalman import FIELDS
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun
from tidegate.mechanisms.shared_noise import SharedNoise, begin_noise
from tidegate.noise import gaussian

if TYPE_CHECKING:
    from tidegate.mechanisms.sampled.fast import Fast


NOTHING = tuple([np.zeros(shape, dtype=np.int64) for shape in ((0, 0), 0, (0, 3), 3)])  # of `loop.Shared`
AHEAD = 1 << 12  # measurements whose shared noise is drawn at once


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
            silent_until=0,
        )
        self._model = kalman.model(filter_, Fraction(mechanism.grid))
        self._control = (control or Pid()).settings(*mechanism.bounds)
        self._given = np.zeros(self._columns, dtype=np.int64)
        self._work = loop.Work(
            given=self._given,
            chosen=np.zeros(controllers, dtype=np.bool_),
            changes=np.zeros(self._columns),
        )
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
            self._noise = noise = begin_noise(self, sharing, self.stream, saved, distance=0)
            noise.patient_until = sys.maxsize  # it waits for room whoever takes it
            self._rule = self._rule._replace(charge=noise.cost, silent_until=noise.silent_until)
        self._ahead = NOTHING

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
        return self.mechanism.noise_kind == "gaussian"

    def _randomness(self, block: Block) -> tuple[Any, ...]:
        return block.drawn.words, None if self._noise is None else self._ahead

    def _release_block(self, block: Block) -> None:
        try:
            super()._release_block(block)
        finally:
            self._settle()

    def _help(self, block: Block, index: int, reason: int) -> None:
        step, noise = block.first_step + index, self._noise
        if noise is not None:
            self._settle()
            self._draw_ahead(noise, len(block.rows) - index)
        elif self._gaussian:
            self._given[:] = gaussian(self.source, self.stream, step, self._rule.scale, (self._columns,))
        else:
            super()._help(block, index, reason)

    def _draw_ahead(self, noise: SharedNoise, steps: int) -> None:
        """Have noise for the measurements that the next steps may make: the first of them surely is one."""
        number, window = int(self._arrays["counts"][0]), self._rule.window
        most = self._rule.samples * (steps // window + 1) if window else self._rule.samples - number
        count = min(steps, most, AHEAD)
        opens = noise.opening(count)
        groups = np.zeros((count + 1, 3), dtype=np.int64)
        progress = np.zeros(3, dtype=np.int64)
        if noise.group is not None:
            groups[0], progress[loop.CHARGED] = noise.group, 1
        self._ahead = noise.draw_ahead(number, count), opens, groups, progress

    def _settle(self) -> None:
        """Let the noise stand where the loop has left it; what was drawn and not used is forgotten."""
        *_, groups, progress = self._ahead
        if self._noise is not None and len(groups):
            used, _, charged = progress.tolist()
            self._noise.settle(used, [Group(*row) for row in groups[:charged].tolist()])
            self._ahead = NOTHING

    def _scale(self) -> float:
        return self._rule.scale

    def _requested(self) -> int:
        return self._rule.charge
