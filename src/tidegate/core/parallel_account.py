"""Accounts side by side: for units that stay in one part of the columns, each part has the whole budget, or its own.

A step costs each part what its own mechanism spends. `Charges.units` has the most of any part, for people to read; what
is judged are rows of `Charges.spans`, one for each part and step: (part, 0, step, step, units). They are not spans
here: a part is charged by steps alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegate.core.account import Account, After, Checked
from tidegate.core.charges import FIRST, LAST, LAW, SPAN_FIELDS, UNITS, Charges, Integers
from tidegate.core.errors import AccountRefused, Held

# kinds of accounts whose spans are what their parts were charged, and what a part is called
PARTED = {"parallel": "column group", "personal": "requirement"}
NO_SUM = After(0, {}, {}, 0)  # each part has its own


def charges_of_parts(first: int, units: Integers) -> Charges:
    """Charges of consecutive steps from their units, steps × parts.

    Examples
    --------
    >>> charges = charges_of_parts(4, np.array([[1, 5]]))
    >>> charges.units.tolist(), charges.spans.tolist()
    ([5], [[0, 0, 4, 4, 1], [1, 0, 4, 4, 5]])
    """
    steps, parts = units.shape
    rows = np.zeros((steps, parts, SPAN_FIELDS), dtype=np.int64)
    rows[..., LAW] = np.arange(parts)
    rows[..., FIRST] = rows[..., LAST] = first + np.arange(steps)[:, np.newaxis]
    rows[..., UNITS] = units
    return Charges(first, units.max(axis=1, initial=0), rows.reshape(-1, SPAN_FIELDS))


def charges_of_part(charges: Charges, part: int) -> Charges:
    """What one part was charged.

    Examples
    --------
    >>> charges_of_part(charges_of_parts(4, np.array([[1, 5], [2, 0]])), 0).units.tolist()
    [1, 2]
    """
    units, rows = np.zeros_like(charges.units), charges.spans[charges.spans[:, LAW] == part]
    units[rows[:, FIRST] - charges.first] = rows[:, UNITS]
    return Charges(charges.first, units)


class ParallelAccount(Account):
    """An account for each part: for column groups of fixed units, or for requirements with limits of their own.

    Parameters
    ----------
    limits
        The units of a window, and its steps, of each part; units are worth the same in all.
    horizon
        The last step that may be charged; None: there is none.
    kind
        What the parts are: "parallel", groups of columns with the same limits; "personal", requirements.

    Examples
    --------
    >>> account = ParallelAccount([(8, 4), (8, 4)], horizon=None)
    >>> account.apply(account.check(charges_of_parts(1, np.array([[8, 0], [0, 8]]))))
    >>> account.check(charges_of_parts(3, np.array([[0, 1]])))
    Traceback (most recent call last):
    ...
    tidegate.core.errors.AccountRefused: column group 1: the charge of 1 units at step 3 is refused: steps 1 to 3 ...

    >>> account = ParallelAccount([(8, 2), (4, 3)], horizon=None, kind="personal")
    >>> account.apply(account.check(charges_of_parts(1, np.array([[8, 2], [0, 2], [8, 0]]))))
    >>> account.recent().tolist()
    [[0, 2], [0, 2], [8, 0]]
    """

    def __init__(
        self, limits: Sequence[tuple[int, int]], horizon: int | None, kind: str = "parallel"
    ) -> None:
        longest = max(window for _, window in limits)
        super().__init__(max(limit for limit, _ in limits), longest, horizon)
        self.kind, self.parts = kind, [Account(limit, window, horizon) for limit, window in limits]

    def check(self, charges: Charges) -> Checked:
        """Judge charges by the account of each part."""
        parts = zip(self._moved(), self._apart(charges), strict=True)
        for number, (part, own) in enumerate(parts):
            try:
                part.check(own)
            except AccountRefused as error:
                raise error.of(f"{PARTED[self.kind]} {number}") from None
        if charges.first <= self.step:
            raise AccountRefused.order(charges.first, self.step)
        return Checked(charges, NO_SUM)

    def apply(self, checked: Checked) -> None:
        """Take over charges that were checked, and committed, last."""
        for part, own in zip(self._moved(), self._apart(checked.charges), strict=True):
            part.load(own)
        self.step = checked.charges.last

    def load(self, charges: Charges) -> None:
        """Take over units that were committed before, for an account that is opened again."""
        self.apply(Checked(charges, NO_SUM))

    def spent(self) -> int:
        """Units that the fullest part has spent in the last window."""
        return max(part.spent() for part in self._moved())

    def remaining(self) -> int:
        """Units that every part has left."""
        return min(part.remaining() for part in self.parts)

    def fill(self, first: int, last: int) -> Charges:
        """All that is left to each part: what a halt charges."""
        filled = [part.fill(first, last).units for part in self._moved()]
        return charges_of_parts(first, np.stack(filled, axis=1))

    def held(self, step: int) -> list[Held]:
        """What the fullest part holds in the window that ends at a step."""
        parts = [part.held(step) for part in self._moved()]
        return max(parts, key=lambda held: sum(each.units for each in held))

    def first_fit(self, units: int, step: int) -> int | None:
        """The first step at which every part may be charged so many units."""
        found = [part.first_fit(units, step) for part in self._moved()]
        return None if None in found else max(each for each in found if each is not None)

    def _moved(self) -> list[Account]:
        """The parts at the present step: a log that is opened says where accounts stand."""
        for part in self.parts:
            part.step = self.step
        return self.parts

    def recent(self) -> Integers:
        """The units of the last steps of the longest window, steps × parts; 0 for those that a window has left."""
        found = np.zeros((len(super().recent()), len(self.parts)), dtype=np.int64)
        for own, part in enumerate(self.parts):
            found[-part.recent().size :, own] = part.recent()
        return found

    def describe(self) -> dict[str, Any]:
        """The public numbers of the account."""
        limits = {"limits": [[part.limit, part.window] for part in self.parts]}
        parts = {"parts": len(self.parts)} if self.kind == "parallel" else limits
        return {"kind": self.kind, **super().describe(), **parts}

    def _apart(self, charges: Charges) -> list[Charges]:
        """What each part is charged. Rows of steps before the first one are left out: they were cut off."""
        steps, parts = len(charges.units), len(self.parts)
        rows = charges.spans[charges.spans[:, FIRST] >= charges.first]
        units = rows[:, UNITS].reshape(-1, parts) if len(rows) % parts == 0 else np.zeros((0, parts))
        expected = charges_of_parts(charges.last - len(units) + 1, units.astype(np.int64))
        silent = steps - len(units)  # steps that cost nothing have no rows
        if silent < 0 or not np.array_equal(expected.spans, rows) or charges.units[:silent].any():
            raise AccountRefused("charges of parts are one row for each part of each step, in order.")
        if not np.array_equal(expected.units, charges.units[silent:]):
            raise AccountRefused("charges of parts say the most of any part.")
        every = np.concatenate([np.zeros((silent, parts), dtype=np.int64), units.astype(np.int64)])
        return [Charges(charges.first, np.ascontiguousarray(own)) for own in every.T]
