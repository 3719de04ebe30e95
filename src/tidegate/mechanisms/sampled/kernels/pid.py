"""PID control of the sampling interval, compiled: from the errors of past predictions to the next interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel

# positions in `settings`
PROPORTIONAL = 0
INTEGRAL = 1
DERIVATIVE = 2
REACH = 3  # θ: how far one step of control can go
SET_POINT = 4  # ξ: the error that leaves the interval as it is (FAST)
SHORTEST = 5
LONGEST = 6
SETTINGS = 7


@kernel
def feedback(errors: Any, count: int, error: float, gap: int, settings: Any) -> float:
    """Note the newest error (number `count`, from 1) in the ring and return the PID error."""
    recent = errors.size
    errors[(count - 1) % recent] = error
    known = min(count, recent)
    total = 0.0
    for back in range(known):
        total += errors[(count - 1 - back) % recent]
    signal: float = settings[PROPORTIONAL] * error + settings[INTEGRAL] * total / known
    if known > 1:
        signal += settings[DERIVATIVE] * (error - errors[(count - 2) % recent]) / gap
    return signal


@kernel
def bounded(interval: float, settings: Any) -> float:
    """The interval within its public bounds; also where arithmetic went wrong."""
    if not interval > settings[SHORTEST]:
        return float(settings[SHORTEST])
    return float(min(interval, settings[LONGEST]))


@kernel
def fast_interval(interval: float, signal: float, settings: Any) -> float:
    """Fan and Xiong: I + θ(1 − exp((Δ − ξ)/ξ))."""
    strain = min((signal - settings[SET_POINT]) / settings[SET_POINT], 50.0)
    return bounded(interval + settings[REACH] * (1.0 - np.exp(strain)), settings)


@kernel
def rescue_interval(interval: float, signal: float, scale: float, settings: Any) -> float:
    """Wang et al.: I + θ(1 − (δ/λ)²), where λ is the noise scale that a measurement would have."""
    strain = signal / scale
    return bounded(interval + settings[REACH] * (1.0 - strain * strain), settings)
