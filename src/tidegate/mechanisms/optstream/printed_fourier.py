"""The noise of Fourier coefficients as the OptStream paper prints it: for reproduction and audit, not for people's data.

The printed transform is not normalised: coefficient j of a period is Σ x_t·exp(2πi·jt/w), and the inverse divides by w.
Noise of scale √K·Δ/ε on its real and imaginary parts is, on the orthonormal real rows that are measured here, noise of
1/√w times that for the mean and of √(2/w) times that for a cosine or sine.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

from tidegate.core.mechanism import Floats

if TYPE_CHECKING:
    from tidegate.mechanisms.optstream.fourier import Fourier


def printed_scales(mechanism: Fourier, unit: int) -> Floats:
    """The noise scale of each real number that is measured, where the rows are multiples of one over `unit`."""
    assert mechanism.coefficients is not None
    w, count = mechanism.window, mechanism.sum_count
    ones = np.ones(count)
    ones[1:] = math.sqrt(2)
    if count == w and w % 2 == 0:
        ones[-1] = 1.0  # the highest frequency of an even period has a cosine alone
    printed = math.sqrt(mechanism.coefficients) * mechanism.sensitivity / float(mechanism.policy.budget.total)
    return ones * printed / math.sqrt(w) * unit


def printed_loss(mechanism: Fourier, unit: int) -> Fraction:
    """How many times ε some change of one period by at most Δ a step loses: the best that changing signs has found.

    The loss of a change x is Σ_j |row_j·x|/scale_j.
    """
    weighed = mechanism.rows / printed_scales(mechanism, unit)[:, np.newaxis]
    starts = (one + other for one, other in combinations_with_replacement(weighed[:9], 2))
    found = max(_grown(weighed, np.where(start >= 0, 1.0, -1.0)) for start in starts)
    times = found * mechanism.sensitivity / float(mechanism.policy.budget.total)
    return max(Fraction(1), Fraction(math.floor(10 * times), 10))


def _grown(weighed: Floats, change: Floats) -> float:
    """Σ_j |row_j·x| of a change of signs, turned to the signs of what it moves and then sign by sign while it grows."""
    moved, lost = weighed @ change, 0.0
    while np.abs(moved).sum() > lost * (1 + 1e-12):
        lost = float(np.abs(moved).sum())
        change = np.where(np.sign(moved) @ weighed >= 0, 1.0, -1.0)
        moved = weighed @ change
        for step, column in enumerate(weighed.T):
            other = moved - 2 * change[step] * column
            if np.abs(other).sum() > np.abs(moved).sum():
                moved, change[step] = other, -change[step]
    return lost
