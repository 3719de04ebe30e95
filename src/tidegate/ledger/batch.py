"""Batches: many steps charged at once, also by a mechanism's own compiled loop."""

from __future__ import annotations

from collections.abc import Collection
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from tidegate.errors import InvalidInput
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Mark
from tidegate.ledger.events import MOST_UNITS, Charge, Group
from tidegate.ledger.kernels import Integers
from tidegate.ledger.late import late_refusal, still_open

if TYPE_CHECKING:
    from tidegate.ledger.ledger import Ledger


class Batch:
    """The account, lent to a compiled loop that asks it step by step with `kernels.account_charge`.

    `record` keeps what the loop charged, where the ledger is in memory and it is what the loop says. Elsewhere it is a
    rehearsal: `record` takes it back and charges the same amounts for good, all of them or none, with whatever
    else the ledger does at a charge. Leaving the block without `record` charges nothing.

    Parameters
    ----------
    ledger
        Whose account it is.
    count
        How many steps may be charged, at most.
    groups
        How many groups of steps may be charged, at most.

    Examples
    --------
    >>> from tidegate.ledger import MemoryLedger
    >>> from tidegate.ledger.kernels import account_charge
    >>> from tidegate.policy import WEvent
    >>> ledger = MemoryLedger(WEvent(epsilon="1", w=2), units=2)
    >>> with ledger.begin_batch(3) as batch:
    ...     answers = [account_charge(batch.entries, batch.state, step, 1) for step in (1, 2, 3)]
    ...     batch.record(1, [1, 1, 1])
    >>> answers, ledger.step
    ([0, 0, 0], 3)
    """

    def __init__(self, ledger: Ledger, count: int, groups: int = 0) -> None:
        self._ledger, self._count, self._groups = ledger, count, groups
        self._before: Mark | None = None
        self.thread = get_ident()

    def leave(self) -> None:
        """Take back what was not recorded."""
        ledger = self._ledger
        if ledger._batch is self:
            if self._before is not None:
                ledger._account.undo_arrays(self._before)
            ledger._batch = None
        self._before = None

    def record(
        self,
        first: int,
        units: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        extended: ArrayLike | None = None,
        scope: str = "",
    ) -> None:
        """Charge what the loop charged: units[i] to step first + i, and its groups; see `Ledger.charge_batch`."""
        with self._ledger._lock:
            if groups is None and extended is None and self._kept(first, units):
                return
            self.leave()
            self._ledger.charge_batch(first, units, groups=groups, extended=extended, scope=scope)

    def record_one(
        self, step: int, units: int, groups: Collection[Group] = (), extended: Collection[Group] = ()
    ) -> None:
        """The same for a single step, which groups begin at or reach on to: quicker in memory, which counts rows only.

        Each is a charge of its own. None is refused that the loop was granted; an interruption may leave some of them.
        """
        with self._ledger._lock:
            if not groups and not extended and self._kept(step, np.array([units])):
                return
            self.leave()
            for group in extended:
                self._ledger.extend_group(group, step)
            for group in groups:
                self._ledger.charge_group(*group)
            self._ledger.charge(step, units)

    def _kept(self, first: int, units: ArrayLike) -> bool:
        """Keep what the loop charged, if it is all that this ledger does at a charge."""
        ledger = self._ledger
        if not ledger.keeps_batches or self._before is None or ledger._batch is not self:
            return False
        if not isinstance(units, np.ndarray) or units.dtype != np.int64 or not units.size:
            return False
        if not k.account_settle(self.entries, self.state, self._before.state, first, units):
            return False
        ledger._batch = self._before = None  # from here on nothing is taken back
        ledger._rows += 1
        return True

    def refuse(self, step: int, units: int) -> None:
        """Take the whole batch back and raise the refusal of one step in it."""
        with self._ledger._lock:
            account = self._ledger._account
            late = step < account.last
            refusal = None if late else account.overspent(step, step, units)
            self.leave()
            still_open(account, step)
            self._ledger._refuse(refusal or late_refusal(account, step, step, units), units)

    def __enter__(self) -> Self:
        ledger = self._ledger
        with ledger._lock:
            ledger._check()
            ledger._batch = (
                self  # before the account is looked at: what a handler charged since would be taken back
            )
            try:
                account = ledger._account
                account.make_room(self._count)
                if self._groups:
                    account.make_group_room(self._groups)
                self._before = account.mark_arrays()
            except BaseException:
                self.leave()
                raise
            self.entries: Integers = account.entries
            self.state: Integers = account.state
            self.account = account.entries, account.state
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


def batch_charge(first: int, units: Integers, scope: str, more: int = 0) -> Charge:
    """The charge that stands for a whole batch: its steps and the sum of its units, and of `more` that groups have."""
    charge = Charge(first, first + len(units) - 1, 0, scope)
    # a sum over many steps may exceed what one charge may have
    object.__setattr__(charge, "units", min(batch_total(units) + more, 2**63 - 1))
    return charge


def batch_total(amounts: Integers) -> int:
    """The sum of a batch's units, at most 2^63 − 1: a number for people, which no check depends on."""
    if repeats(amounts):
        return min(int(amounts[0]) * len(amounts), 2**63 - 1)
    largest = int(amounts.max(initial=0))
    exact = int(amounts.sum()) if largest * len(amounts) < 2**62 else sum(amounts.tolist())
    return min(exact, 2**63 - 1)


def whole_units(units: ArrayLike) -> Integers:
    """Read an array of units: one-dimensional, whole numbers, none negative."""
    amounts = np.asarray(units)
    if amounts.ndim != 1 or (amounts.size and amounts.dtype.kind not in "iu"):
        raise InvalidInput(
            "units of a batch must be a one-dimensional array of whole numbers; pass int64 units."
        )
    different = amounts[:1] if repeats(amounts) else amounts
    if amounts.size and (int(different.min()) < 0 or int(different.max()) > MOST_UNITS):
        raise InvalidInput(
            f"units of a batch must lie between 0 and {MOST_UNITS}; check how they were computed."
        )
    if repeats(amounts):
        return np.broadcast_to(np.int64(amounts[0]), amounts.shape)
    return np.ascontiguousarray(amounts, dtype=np.int64)


def whole_groups(groups: ArrayLike | None, columns: int, first: int, last: int) -> Integers:
    """Read the groups of a batch: rows (first, last, units), or those and the step to which a group reaches on."""
    if groups is None:
        return np.zeros((0, columns), dtype=np.int64)
    rows = np.asarray(groups)
    if not rows.size:
        return np.zeros((0, columns), dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype.kind not in "iu":
        raise InvalidInput(
            f"groups of a batch must be an array of whole numbers with {columns} columns; pass int64 rows."
        )
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    begins, ends = (rows[:, 0], rows[:, 1]) if columns == 3 else (rows[:, 1] + 1, rows[:, 3])
    if (
        int(rows[:, 2].min()) < 0
        or int(rows[:, 2].max()) > MOST_UNITS
        or (ends < begins).any()
        or begins.min() < 1
    ):
        raise InvalidInput(
            "a group of a batch ends before it begins, or has negative or too many units; check how it was computed."
        )
    if columns == 3 and (int(begins.min()) < first or int(begins.max()) > last):
        raise InvalidInput(
            f"groups of a batch must begin at its steps, {first} to {last}; charge others by themselves."
        )
    order = np.argsort(begins, kind="stable")
    return rows if (order[1:] > order[:-1]).all() else np.ascontiguousarray(rows[order])


def repeats(amounts: Integers) -> bool:
    """Whether an array is one number said many times (numpy.broadcast_to), which costs no time to charge."""
    return amounts.size > 1 and amounts.strides == (0,)
