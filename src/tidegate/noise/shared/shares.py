"""Of how many exponential variables a value of the semiorder law consists: for variances and intervals."""

from __future__ import annotations

from functools import cache

import numpy as np

from tidegate.noise.shared import kernels
from tidegate.noise.shared.orders import MANY_STATES, Floats, Order, order
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


@cache
def largest_shares(width: int, columns: int = 1) -> tuple[float, ...]:
    """The same of the last step of the first window, when nothing was placed before: K is at no step larger.

    P(K > k) from any state that a step can enter the window in is at most P(K > k) from state 0 as its last step, for
    every k: computed for every width and number of columns that there is (noise_semiorder.md).

    Examples
    --------
    >>> [round(share, 4) for share in largest_shares(2)]
    [0.382, 0.382, 0.2361]
    """
    semiorder = order(width, columns)
    before = np.zeros(semiorder.states)
    before[columns - 1] = 1.0  # one placement before state 0, with nothing but the oldest step placed
    return tuple(_first_placements(width, columns, _chances(semiorder), before).tolist())


def _shares(width: int, columns: int) -> Floats:
    semiorder = order(width, columns)
    chances = _chances(semiorder)
    stationary = np.full(semiorder.states, 1 / semiorder.states)
    for _ in range(_STATIONARY_STEPS):
        moved = np.zeros(semiorder.states + 1)
        kernels.move(semiorder._padded, chances, stationary, moved)
        stationary = (stationary + moved[:-1]) / 2 if columns > 1 else moved[:-1]
    return _first_placements(width, columns, chances, stationary)


def _chances(semiorder: Order) -> Floats:
    """The probability of each successor of each state."""
    values = np.append(semiorder._approximate, 0.0)[semiorder._padded]
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def _first_placements(width: int, columns: int, chances: Floats, before: Floats) -> Floats:
    semiorder = order(width, columns)
    found = np.zeros((2 * width - 1) * columns)
    kernels.first_placements(semiorder._padded, chances, semiorder.counts, columns, before, found)
    return np.asarray(found / found.sum())
