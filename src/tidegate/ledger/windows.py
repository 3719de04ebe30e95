"""What every window was charged, one by one, from the rows of a ledger.

The account refuses by the same sums; here they are worked out again for all windows at once, for people to look at.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.ledger.kernels import Integers
from tidegate.ledger.rows import Row, decode_arrays, decode_batch
from tidegate.ledger.rules import Rule

CHARGES = ("step", "batch", "span", "group", "groups", "extend")  # kinds of rows that cost anything


def window_units(rows: Iterable[Row], rule: Rule, first: int, last: int) -> Integers:
    """The units of the windows that end at the steps first to last; of everything before where there is no window.

    A group of steps counts once in every window that meets it, however many of its steps the window has.

    Parameters
    ----------
    rows
        The rows of one account, in their order.
    rule
        How its charges compose.
    first, last
        The last steps of the first and of the last window.

    Examples
    --------
    >>> from tidegate.policy import WEvent
    >>> rule = Rule(WEvent(epsilon="1", w=2), 2, "adaptive")
    >>> rows = [Row("step", 1, 1, 1, "", "", None), Row("group", 3, 4, 1, "", "", None)]
    >>> window_units(rows, rule, 1, 6).tolist()
    [1, 1, 1, 1, 1, 0]
    """
    window = rule.policy.window
    changes = np.zeros(last - first + 2, dtype=np.int64)  # of the sum, from one window to the next

    def add(begin: Integers, end: Integers, units: Integers) -> None:
        """Units that the windows have that meet the steps begin to end."""
        after = end + window if window is not None else np.full(len(end), last + 1)
        np.add.at(changes, np.clip(begin, first, last + 1) - first, units)
        np.subtract.at(changes, np.clip(after, first, last + 1) - first, units)

    def extend(groups: Integers) -> None:
        """Units of groups (first, last, units, further) in the windows that only their further steps meet."""
        if window is not None:
            add(groups[:, 1] + window, groups[:, 3], rule.costs(groups[:, 2]))

    for row in rows:
        if row.kind not in CHARGES:
            continue
        if row.kind in ("batch", "groups"):
            detail = row.detail or b""
            units = decode_batch(detail) if row.kind == "batch" else decode_arrays(detail)[0]
            steps = np.arange(row.first, row.last + 1)
            add(steps, steps, rule.costs(units))
            if row.kind == "groups":
                _, groups, extended = decode_arrays(detail)
                add(groups[:, 0], groups[:, 1], rule.costs(groups[:, 2]))
                extend(extended)
        elif row.kind == "extend":
            extend(np.array([[0, row.first - 1, row.units, row.last]], dtype=np.int64))
        else:
            cost = sum(rule.cost(size) for size in row.charge().sizes)
            add(np.array([row.first]), np.array([row.last]), np.array([cost]))
    return np.cumsum(changes[:-1])
