"""The parameters of Factorization: what is refused, and the integers of C where none are given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import InvalidParameter
from tidegate.exact import one_of, whole
from tidegate.mechanisms.counters import blt_design, toeplitz
from tidegate.noise import prepare
from tidegate.policy import Approximate, Event
from tidegate.queries.decayed import Decay

if TYPE_CHECKING:
    from tidegate.mechanisms.counters.factorization import Factorization

MOST_BUFFERS = 12
METHODS = ("blt", "square-root", "banded")
LONGEST = {"blt": 1 << 28, "square-root": 1 << 17, "banded": 1 << 20}


def check(mechanism: Factorization) -> None:
    """Check the method, the horizon and the policy, and fill in C."""
    put = object.__setattr__
    one_of("method", mechanism.method, METHODS, "leave it out: BLT is best")
    horizon = mechanism.horizon if mechanism.horizon is not None else mechanism.policy.horizon
    if horizon is None:
        raise InvalidParameter(
            "horizon", None, "the number of steps", "give one, or use EndlessSum on an endless stream"
        )
    most = min(mechanism.policy.horizon or LONGEST[mechanism.method], LONGEST[mechanism.method])
    put(mechanism, "horizon", whole("horizon", horizon, most=most))
    put(mechanism, "buffers", whole("buffers", mechanism.buffers, most=MOST_BUFFERS))
    if isinstance(mechanism.policy.budget, Approximate) and not isinstance(mechanism.policy, Event):
        raise InvalidParameter(
            "policy",
            str(mechanism.policy.budget),
            "in ρ for windows and users, since an (ε, δ) budget cannot be split into steps of Gaussian noise",
            'write rho="…", which implies an (ε, δ)',
        )
    if mechanism.decay is not None and (mechanism.method == "blt" or not isinstance(mechanism.decay, Decay)):
        raise InvalidParameter(
            "decay", mechanism.decay, "a Decay, with the method 'square-root' or 'banded'", "set method"
        )
    count = mechanism.length
    if mechanism.method == "banded":
        bands = whole("bands", mechanism.bands or 4 * math.isqrt(count - 1) + 4, most=LONGEST["square-root"])
        put(mechanism, "bands", bands)
        count = min(count, bands)
    if mechanism.strategy is None:
        put(mechanism, "strategy", _design(mechanism, count))
    elif not _usable(mechanism, count):
        raise InvalidParameter(
            "strategy",
            "the given integers",
            "those of another mechanism with these parameters",
            "leave it out",
        )
    if (
        mechanism.method != "blt"
        and mechanism.policy.steps_charged > 1
        and np.any(np.diff(np.abs(mechanism.coefficients)) > 0)
    ):
        raise InvalidParameter(
            "policy",
            type(mechanism.policy).__name__,
            "Event for this decay, whose C is not falling",
            "use Event",
        )
    prepare(mechanism.sigma, "sigma")  # refuses, while nothing is charged, what noise could not be drawn for


def _design(mechanism: Factorization, count: int) -> tuple[int, ...]:
    if mechanism.method == "blt":
        return blt_design.design(mechanism.length, mechanism.buffers)
    series = np.ones(count) if mechanism.decay is None else mechanism.decay.by_age(count)
    return tuple(toeplitz.rounded(toeplitz.square_root(series)).tolist())


def _usable(mechanism: Factorization, count: int) -> bool:
    """Whether given integers are a C that the proof covers."""
    if mechanism.method == "blt":
        return len(mechanism.coefficients) == 2 * mechanism.buffers and mechanism.buffered.usable
    given = np.abs(mechanism.coefficients)
    return len(given) == count and int(mechanism.coefficients[0]) == int(given.max()) == 1 << toeplitz.PLACES
