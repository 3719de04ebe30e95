"""PID control of the sampling interval, shared by FAST and RescueDP: decided from noisy measurements alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.exact import whole
from tidegate.mechanisms.sampled.kalman import finite


class Control(NamedTuple):
    """The settings of a controller."""

    proportional: float
    integral: float
    derivative: float
    reach: float  # θ: how far one step of control can go
    set_point: float  # ξ: the error that leaves the interval as it is (FAST)
    shortest: float
    longest: float


@dataclass(frozen=True)
class Pid:
    """How the interval to the next measurement follows from the errors of past predictions.

    The PID error is Δ = C_p·E + C_i·(mean of the recent E) + C_d·(change of E per step), where E is how far a
    measurement has moved the published value. FAST sets the interval to I + θ(1 − exp((Δ − ξ)/ξ)).

    Parameters
    ----------
    proportional, integral, derivative
        The gains C_p, C_i and C_d.
    recent
        T_i: over how many measurements the integral is the mean.
    reach
        θ: how much longer the next interval may be at most.
    set_point
        ξ: the relative error that leaves the interval as it is. RescueDP compares with the noise instead.
    shortest, longest
        Bounds of the interval in steps; None leaves them to the mechanism.

    Examples
    --------
    >>> Pid().describe()["reach"]
    5.0
    """

    proportional: float = 0.9
    integral: float = 0.1
    derivative: float = 0.0
    recent: int = 5
    reach: float = 5.0
    set_point: float = 0.1
    shortest: int | None = None
    longest: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("proportional", "integral", "derivative"):
            put(self, name, finite(name, getattr(self, name), 0.0))
        put(self, "reach", finite("reach", self.reach, 0.0))
        put(self, "set_point", finite("set_point", self.set_point, 1e-9))
        put(self, "recent", whole("recent", self.recent, least=2, most=10_000))
        if self.shortest is not None:
            put(self, "shortest", whole("shortest", self.shortest))
        if self.longest is not None:
            put(self, "longest", whole("longest", self.longest, least=self.shortest or 1))

    def describe(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)

    def settings(self, shortest: int, longest: int) -> Control:
        """The settings for the compiled loops, with bounds where none are set."""
        least = self.shortest or shortest
        return Control(
            proportional=float(self.proportional),
            integral=float(self.integral),
            derivative=float(self.derivative),
            reach=float(self.reach),
            set_point=float(self.set_point),
            shortest=float(least),
            longest=float(max(self.longest or longest, least)),
        )


@lean
def feedback(errors: Any, count: int, error: float, gap: int, control: Any) -> float:
    """Note the newest error (number `count`, from 1) in the ring and return the PID error."""
    recent = errors.size
    errors[(count - 1) % recent] = error
    known = min(count, recent)
    total = 0.0
    for back in range(known):
        total += errors[(count - 1 - back) % recent]
    signal: float = control.proportional * error + control.integral * total / known
    if known > 1:
        signal += control.derivative * (error - errors[(count - 2) % recent]) / gap
    return signal


@lean
def bounded(interval: float, control: Any) -> float:
    """The interval within its public bounds; also where arithmetic went wrong."""
    if not interval > control.shortest:
        return float(control.shortest)
    return float(min(interval, control.longest))


@lean
def fast_interval(interval: float, signal: float, control: Any) -> float:
    """Fan and Xiong: I + θ(1 − exp((Δ − ξ)/ξ))."""
    strain = min((signal - control.set_point) / control.set_point, 50.0)
    return bounded(interval + control.reach * (1.0 - np.exp(strain)), control)


@lean
def rescue_interval(interval: float, signal: float, scale: float, control: Any) -> float:
    """Wang et al.: I + θ(1 − (δ/λ)²), where λ is the noise scale that a measurement would have."""
    strain = signal / scale
    return bounded(interval + control.reach * (1.0 - strain * strain), control)
