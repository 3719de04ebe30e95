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
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.run import SampledRun

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
        self._rule = loop.Rule(
            window=window,
            limit=units,
            most=int(Fraction(mechanism.most) * units),
            least=1 if printed else units // length,  # less than Uniform's share is not worth a measurement
            fixed=int(mechanism.fixed_part * units),
            period=0 if control else -(-length // mechanism.samples),
            groups=groups is not None and columns > 1,
            whole=mechanism.whole_scale(units),
            grid=self._grid,
            portion=float(mechanism.portion),
            most_portion=float(mechanism.most_portion),
            variance=((filter_.measurement_noise if filter_ else None) or 0.0) / self._grid**2,
            small=((groups.small if groups else None) or 0.0) / self._grid,
            alike=float(groups.similarity if groups else 0.0),
            difference=((groups.difference if groups else None) or 0.0) / self._grid,
            pace=float(units if mechanism.pace is None or printed else mechanism.pace * units / length),
        )
        self._model = kalman.model(filter_, Fraction(mechanism.grid))
        self._control = (control or CONTROL).settings(1, length)
        self._given = np.zeros(columns, dtype=np.int64)
        self._work = loop.Work(
            given=self._given,
            chosen=np.zeros(controllers, dtype=np.bool_),
            amounts=np.zeros(controllers, dtype=np.int64),
            pivot_of=np.arange(columns, dtype=np.int64),
            widths=np.ones(columns),
            moved=np.zeros(columns),
        )
        fresh = {
            "belief": np.zeros((FIELDS, columns)),
            "history": np.zeros((groups.recent if groups else 1, columns)),
            "due": np.ones(controllers, dtype=np.int64),
            "counts": np.zeros(controllers, dtype=np.int64),
            "last": np.zeros(controllers, dtype=np.int64),
            "intervals": np.full(
                controllers, float(self._control.shortest if printed else -(-length // mechanism.samples))
            ),
            "errors": np.zeros((controllers, (control or CONTROL).recent)),
            "scales": np.zeros(controllers),
            "spent": np.zeros(controllers if printed else 0, dtype=np.int64),
            "paid": np.zeros((controllers, window) if printed else (0, 0), dtype=np.int64),
        }
        self._remember(fresh, state)

    def _scale(self) -> float | npt.NDArray[np.float64]:
        widths: npt.NDArray[np.float64] = self._work.widths
        return widths if self.mechanism.printed else float(widths[0])

    def _requested(self) -> int:
        return int(self._work.amounts.max())
