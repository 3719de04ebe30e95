"""PID control of the sampling interval, compiled: from the errors of past predictions to the next interval."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean


class Control(NamedTuple):
    """The settings of a controller."""

    proportional: float
    integral: float
    derivative: float
    reach: float  # θ: how far one step of control can go
    set_point: float  # ξ: the error that leaves the interval as it is (FAST)
    shortest: float
    longest: float


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
