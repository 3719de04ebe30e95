"""Of how many exponential variables a value of the semiorder law consists: for variances and intervals."""

from __future__ import annotations

from functools import cache

import numpy as np

from tidegate.noise.shared import kernels
from tidegate.noise.shared.orders import MANY_STATES, Floats, order
from tidegate.noise.shared.tables import kept

_STATIONARY_STEPS = 600


@cache
def shares(width: int, columns: int = 1) -> tuple[float, ...]:
    """P(K = 1), P(K = 2), …: a value long after the start is a sum of K exponential variables.

    K counts the placements from that which ends all steps up to t − width to the first one of step t. The
    first column stands for all, since they are exchangeable.

    Examples
    --------
    >>> [round(share, 4) for share in shares(2)]
    [0.4472, 0.382, 0.1708]
    """
    if order(width, columns).states < MANY_STATES:
        return tuple(_shares(width, columns).tolist())
    return tuple(kept(f"shares-{width}-{columns}", lambda: _shares(width, columns)).tolist())


def _shares(width: int, columns: int) -> Floats:
    semiorder = order(width, columns)
    values = np.append(semiorder._approximate, 0.0)
    padded = semiorder._padded
    chances = values[padded] / values[padded].sum(axis=1, keepdims=True)
    stationary = np.full(semiorder.states, 1 / semiorder.states)
    for _ in range(_STATIONARY_STEPS):
        moved = np.zeros(semiorder.states + 1)
        kernels.move(padded, chances, stationary, moved)
        stationary = (stationary + moved[:-1]) / 2 if columns > 1 else moved[:-1]
    found = np.zeros((2 * width - 1) * columns)
    kernels.first_placements(padded, chances, semiorder.counts, columns, stationary, found)
    return np.asarray(found / found.sum())
