"""Which contributions of a unit count: the first of each step, by a rule that looks at its own events only."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tidegate import process
from tidegate.ingest import kernels
from tidegate.ingest.arrays import frozen

Integers = npt.NDArray[np.int64]


@cache
def _secret() -> np.uint64:
    """The odd number of this process by which units are hashed: nobody who sends events can know which collide."""
    return np.uint64(int.from_bytes(process.secret(8), "little") | 1)


def bounded(
    steps: Integers,
    times: Integers,
    units: Integers,
    columns: npt.NDArray[np.int32],
    values: Integers,
    most: int,
    distinct: bool,
    width: int,
) -> npt.NDArray[np.bool_]:
    """Which events count: at most `most` of each unit in each step.

    Parameters
    ----------
    steps
        Of each event; they must not decrease.
    times, units, columns, values
        Of each event. Events in a negative column do not count; without values the array is empty.
    most
        The most contributions of a unit in a step. The first ones by time are kept, at equal times those of the first
        columns, then of the smallest values.
    distinct
        Whether a unit counts once in a column.
    width
        How many columns there are.
    """
    kept = np.zeros(len(steps), dtype=np.bool_)
    kernels.first_contributions(
        frozen(steps),
        frozen(times),
        frozen(units),
        frozen(columns),
        frozen(values),
        most,
        distinct,
        width,
        _secret(),
        kept,
    )
    return kept
