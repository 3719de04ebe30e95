"""What measured sums of a period lose: how far a unit can move them all together, against the scale of their noise.

Many sums that each move a little lose more than any event shows that can be counted. Their noise is independent and of a
known scale, so that a single pair of neighbours proves its loss: Σ|change of a sum|/scale. The pair is searched for; the
mechanism is not asked which sensitivity it has taken.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit.neighbours import Choose, amount_of, chooser
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.policy import Pure

Floats = npt.NDArray[np.float64]
SWEEPS = 4
MOST_CELLS = 1 << 14  # of a period: beyond it the search takes long


def lost(mechanism: Any) -> float:
    """How many times its claim a mechanism loses by its sums, at least; 0 where it measures none or it is not known."""
    policy = mechanism.policy
    known = isinstance(mechanism, Fourier) and isinstance(policy.budget, Pure)
    if not known or policy.adjacency != "add-remove" or mechanism.rows.size * mechanism.columns > MOST_CELLS:
        return 0.0
    rows, scale = mechanism.rows.astype(np.float64), float(np.max(mechanism.sum_scales))
    columns = 1 if policy.mobility == "fixed" else mechanism.columns
    change = float(amount_of(policy) / Fraction(mechanism.grid))
    choose = chooser("projections")
    moved = max(largest_change(rows, columns, late, choose) for late in range(rows.shape[1]))
    return moved * change / scale / float(policy.budget.epsilon)


def largest_change(rows: Floats, columns: int, late: int, choose: Choose) -> float:
    """How far a unit that is in one column at each step can move the sums of two periods, found step by step.

    Parameters
    ----------
    rows
        How much each step counts in each sum (sums × steps).
    columns
        Columns that it may be in.
    late
        So many of its steps are in the second period.
    choose
        Where it begins.

    Examples
    --------
    >>> round(largest_change(np.array([[1.0, 1.0], [1.0, -1.0]]), 2, 0, chooser(0)))
    4
    """
    count, steps = rows.shape
    sums = np.zeros((2, columns, count))
    taken = [(0, 0.0)] * steps
    for sweep in range(SWEEPS):
        for step in range(steps):
            period, (column, sign) = int(step < late), taken[step]
            sums[period, column] -= sign * rows[:, step]
            found = [
                (
                    np.abs(sums[period, at] + side * rows[:, step]).sum() - np.abs(sums[period, at]).sum(),
                    at,
                    side,
                )
                for at in range(columns)
                for side in (1.0, -1.0)
            ]
            _, column, sign = found[choose(len(found))] if not sweep else max(found)
            sums[period, column] += sign * rows[:, step]
            taken[step] = column, sign
    return float(np.abs(sums).sum())
