"""The threshold's quantile and constants as printed, which are not private: for the record, not for people's data."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from tidegate.mechanisms.clipping.smooth_sensitivity import Constants, Integers


def printed_constants(epsilon: float, delta: float, too_low: float, *, gaussian: bool) -> Constants:
    """The paper's a and b, for reproduction and audit."""
    b = epsilon / (-2.0 * math.log(delta))
    if gaussian:
        return Constants(
            epsilon / math.sqrt(-math.log(delta)), b, NormalDist().inv_cdf(1.0 - too_low)
        ).checked()
    return Constants(epsilon / 2.0, b, -math.log(2.0 * too_low)).checked()


def printed_quantile(ordered: Integers, exceeding: float, bound: int) -> tuple[int, int]:
    """(value, rank) as printed: the least element with at least (1 − p)·m elements strictly below it, else B.

    With ties the value can jump to B when one observation changes, which its local sensitivity does not see.
    """
    below = np.searchsorted(ordered, ordered, side="left")
    found = np.flatnonzero(below >= (1.0 - exceeding) * len(ordered))
    return (int(ordered[found[0]]), int(found[0]) + 1) if len(found) else (bound, len(ordered) + 1)
