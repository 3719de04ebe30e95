"""What the test of pruning printed in the PeGaSus paper really loses: for the record, not for people's data."""

from __future__ import annotations

import math


def two_noise_loss(scale: float, limit: int, change: int) -> float:
    """The loss of "count + X ≥ limit + Y", X and Y discrete Laplace noise, between the counts 0 and `change`.

    With q = exp(−1/scale), P(X − Y = k) is ((1−q)/(1+q))² · q^|k| · (|k| + (1+q²)/(1−q²)).

    Examples
    --------
    >>> round(two_noise_loss(10.0, 1000, 1) * 10, 3)
    0.99
    """
    q = math.exp(-1 / scale)
    centre = (1 + q * q) / (1 - q * q)

    def log_tail(least: int) -> float:
        if least <= 0:
            return math.log1p(-math.exp(log_tail(1 - least)))
        inner = least + q / (1 - q) + centre
        return 2 * math.log((1 - q) / (1 + q)) + least * math.log(q) - math.log(1 - q) + math.log(inner)

    return log_tail(limit - change) - log_tail(limit)
