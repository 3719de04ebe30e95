"""Households, rivals and errors of the Swellfish paper's experiments."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.datasets import households
from tidegate.mechanisms import Mechanism, RescueDP, Swellfish, Uniform
from tidegate.policy import Specification, User
from tidegate.policy import Swellfish as SwellfishPolicy
from tidegate.queries.truncation import SmoothWhereNoisy

Values = npt.NDArray[np.float64]
DAY, WEEK = 96, 672  # steps of a quarter of an hour
ZONES = 20
WHOLE = 157_680  # steps of the paper's streams, for which user-level privacy must last
DELTA = Fraction(1, 117_716_237)
HIGHEST = 48  # kW: the most that a household can draw, for user-level privacy
GRID = "0.01"

PRINTED, WINDOWED, LOOSE, JOINT = "Swellfish, printed", "Swellfish", "Swellfish, δ", "Swellfish, joint"
UNIFORM, UNIFORM_LOOSE = "Uniform w-event", "Uniform w-event, δ"
USER, USER_LOOSE = "Uniform user-level", "Uniform user-level, δ"
RESCUE, RESCUE_FREE = "RescueDP", "RescueDP, no pace"
ORDER = (WINDOWED, PRINTED, LOOSE, JOINT, UNIFORM, UNIFORM_LOOSE, RESCUE, USER, USER_LOOSE)
RIVALS = (UNIFORM, UNIFORM_LOOSE, RESCUE, USER, USER_LOOSE)

LOADS = (
    "Loads of the 20 zones of GEFCom 2012 (kW, hours interpolated to quarters; competition data, terms not stated), and "
    "generated households whose every appliance use is a secret."
)
NOTES = (
    "“Swellfish” hides one placement of one secret at a time (scale Δ_t·max T/ε); “printed” is Theorem 8's scale "
    "Δ_t·max T/min ε, sound for the same promise; “joint” keeps the literal definition, one occurrence of every event "
    "at once, which Theorem 8's proof does not cover. Every household has a baseline secret besides, since steps "
    "without any would be released exactly. With δ: exact optimal composition, never above the pure scale, instead of "
    "the printed bound. Rivals have the parameters of Theorem 7 for the generated households. Post-processing as in the "
    "paper: cut at 0, and a day's moving average (not for RescueDP) at steps whose noise is above a fifth of the zone's "
    "public size, its mean load in one digit. Errors are relative to the load, or to 1 % of that size where meters "
    "failed."
)


@lru_cache(maxsize=2)
def houses(count: int, days: int) -> tuple[Specification, ...]:
    """Generated households with a secret for every use of an appliance."""
    return households.recorded(count, days)


def sizes(loads: Values) -> Values:
    """The size of each zone in one digit, as its operator would publish it."""
    digits = [10.0 ** math.floor(math.log10(mean)) for mean in loads.mean(axis=0)]
    return np.asarray(np.round(loads.mean(axis=0) / digits) * digits)


def average_case(count: int, days: int) -> SwellfishPolicy:
    """The policy of Experiment 1."""
    return SwellfishPolicy(specifications=houses(count, days), horizon=days * DAY, derived=True)


def with_holiday(count: int, days: int) -> SwellfishPolicy:
    """The policy of Experiment 2: one household also hides a week of holidays, the first."""
    plain = average_case(count, days)
    holiday = households.dominant(height=str(float(Fraction(plain.max_change or 1))))
    first = replace(houses(count, days)[0], secrets=(*houses(count, days)[0].secrets, holiday))
    specifications = (first, *houses(count, days)[1:])
    return SwellfishPolicy(specifications=specifications, horizon=days * DAY, derived=True)


def mechanism(name: str, policy: SwellfishPolicy) -> Mechanism:
    """One of the mechanisms for all zones, RescueDP for one zone at a time."""
    w_event = policy.as_w_event()
    user = User(epsilon=w_event.epsilon, horizon=WHOLE, max_change=HIGHEST)
    fish: dict[str, Any] = {"grid": GRID, "experiment": True, "columns": ZONES}
    plain: dict[str, Any] = {"grid": GRID, "columns": ZONES}
    makers: dict[str, Any] = {
        PRINTED: lambda: Swellfish(policy, schedule="printed", **fish),
        WINDOWED: lambda: Swellfish(policy, **fish),
        LOOSE: lambda: Swellfish(replace(policy, delta=DELTA), **fish),
        JOINT: lambda: Swellfish(replace(policy, promise="joint"), **fish),
        UNIFORM: lambda: Uniform(w_event, noise="laplace", **plain),
        UNIFORM_LOOSE: lambda: Uniform(replace(w_event, delta=DELTA), **plain),
        USER: lambda: Uniform(user, noise="laplace", **plain),
        USER_LOOSE: lambda: Uniform(replace(user, delta=DELTA), **plain),
        RESCUE: lambda: RescueDP(w_event, grid=GRID),
        RESCUE_FREE: lambda: RescueDP(w_event, grid=GRID, pace=None),
    }
    made: Mechanism = makers[name]()
    return made


def relative_errors(name: str, chosen: Mechanism, loads: Values) -> Values:
    """|released − true| / true of one run at each step and zone, after the paper's post-processing."""
    size = sizes(loads)
    answers = np.empty_like(loads)
    if name in (RESCUE, RESCUE_FREE):
        for zone in range(loads.shape[1]):
            answers[:, zone] = chosen.start().push_batch(loads[:, [zone]]).values[:, 0]
        answers = np.maximum(answers, 0.0)
    else:
        releases = chosen.start().push_batch(loads)
        raw, smooth = (
            SmoothWhereNoisy(columns=loads.shape[1], threshold=limit).push_batch(releases)
            for limit in (np.inf, 0.0)
        )
        noisy = releases.scale[:, np.newaxis] > size / 5
        answers = np.where(noisy, smooth, raw)
    return np.asarray(np.abs(answers - loads) / np.maximum(loads, size / 100))
