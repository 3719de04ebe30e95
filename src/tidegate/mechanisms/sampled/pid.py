"""PID control of the sampling interval, shared by FAST and RescueDP: decided from noisy measurements alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.exact import whole
from tidegate.mechanisms.sampled.kalman import finite
from tidegate.mechanisms.sampled.kernels.pid import Control


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
