"""Column groups of units that stay in one of them: an instance for each group, with the whole budget and an account each.

`Publishing` has these for a policy with mobility="fixed". Nesting is composition: every instance is called with its own
columns, and its charges go to its own part of a `ParallelAccount`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.parallel_account import charges_of_parts
from tidegate.core.rows import Draws
from tidegate.releases import Status

if TYPE_CHECKING:
    from tidegate.mechanisms.w_event.publishing import Publishing


def instances(mechanism: Publishing) -> list[tuple[Integers, Any]]:
    """The columns of each group, and what runs on them."""
    group_of = mechanism.initial_groups()
    found = []
    for group in range(mechanism.group_count):
        members = np.flatnonzero(group_of == group)
        one = replace(
            mechanism,
            columns=len(members),
            groups=None,
            noise="laplace",
            # a replaced unit may leave one group for another: each counts with the change of the whole step
            step_columns=mechanism.step_columns or mechanism.columns,
        )
        assert one.units == mechanism.units, "the budget of an instance is that of the whole"
        found.append((members, one))
    return found


def public(parts: list[tuple[Integers, Any]], state: Any, first: int, count: int) -> Charges:
    """What each instance charges whatever the data are."""
    units = [one.public(own, first, count).units for (_, one), own in zip(parts, state, strict=True)]
    return charges_of_parts(first, np.stack(units, axis=1))


def advance(
    parts: list[tuple[Integers, Any]], state: Any, rows: Matrix, first: int, noise: list[Draws]
) -> Output:
    """Release steps, the columns of one group after the other."""
    count = len(rows)
    output, fresh = empty_output(*rows.shape), np.zeros(count, dtype=np.int64)
    output.source[:], output.scale[:] = 0, 0.0
    nullified, units = np.ones(count, dtype=np.bool_), np.zeros((count, len(parts)), dtype=np.int64)
    for number, ((members, one), own, draws) in enumerate(zip(parts, state, noise, strict=True)):
        found = one.advance(own, np.ascontiguousarray(rows[:, members]), first, draws)
        output.values[:, members] = found.values
        fresh += found.status == int(Status.FRESH)
        nullified &= found.status == int(Status.NULLIFIED)
        np.maximum(output.source, found.source, out=output.source)
        np.maximum(output.scale, found.scale, out=output.scale)
        units[:, number] = found.units
    output.status[:] = int(Status.APPROXIMATED)
    output.status[nullified] = int(Status.NULLIFIED)
    output.status[fresh > 0] = int(Status.PARTIAL)
    output.status[fresh == len(parts)] = int(Status.FRESH)
    charges = charges_of_parts(first, units)
    return output._replace(units=charges.units, spans=charges.spans)
