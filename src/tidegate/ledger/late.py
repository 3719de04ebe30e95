"""Charges to steps up to the last one: every window that contains such a step is checked again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import LedgerError
from tidegate.ledger import kernels as k
from tidegate.ledger.events import Overspent
from tidegate.ledger.kernels import Integers

if TYPE_CHECKING:
    from tidegate.ledger.account import Account


def place_late(account: Account, first: int, units: Integers) -> Overspent | None:
    """Charge steps up to the last one: every window that contains one of them is checked."""
    still_open(account, first)
    if _placed(account, first, units):
        return None
    if len(units) > 1:
        return first_refused(account, first, units)
    return late_refusal(account, first, first, int(units[0]))


def _placed(account: Account, first: int, units: Integers) -> bool:
    """Charge the steps if no window refuses them."""
    window, now = account[k.WINDOW], account[k.LAST]
    outcome = np.zeros(3, dtype=np.int64)
    empty = np.zeros_like(account.state)
    kept = [k.WINDOW, k.LIMIT, k.RAISED_FROM, k.RAISED]
    empty[kept] = account.state[kept]
    if int(k.account_check_batch(account.entries, empty, first, units, outcome)) >= 0:
        return False  # too much even for an empty account; from here on no sum can leave 64 bits
    if not window:
        return _place_total(account, first, int(outcome[0])) is None
    charged = np.flatnonzero(units)
    rows = np.vstack([account.rows(), np.column_stack([first + charged, units[charged]])])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = np.unique(np.concatenate([rows[:, 0], account.groups()[:, 0], [first, now]]))
    ends = ends[ends >= first]
    totals = account.window_totals(rows, ends)
    fullest = int(np.argmax(totals - account.limits(ends)))
    if int(totals[fullest]) > account.limit_at(int(ends[fullest])) and len(charged):
        return False
    account.replace_rows(rows)
    _remember(account, ends, totals)
    return True


def first_refused(account: Account, first: int, units: Integers) -> Overspent:
    """Of steps that cannot be charged together, the first that cannot be charged after those before it."""
    before, half = account.mark(), len(units) // 2
    refusal = account.place_batch(first, units[:half])
    if refusal is None:
        refusal = account.place_batch(first + half, units[half:])
        account.undo(before)
    if refusal is None:  # what is refused together never passes in parts; if it did, nothing may be charged
        raise LedgerError("a charge was refused for a reason that no step of it has; nothing was charged.")
    return refusal


def late_refusal(account: Account, first: int, last: int, units: int) -> Overspent:
    """The refusal of a charge to the steps first to last, by the window that has the least room for it.

    The sum over a window changes upwards only where a step was charged or a group begins, so that the windows
    which end there, at the first step and at the last charged one are all that could be the fullest.
    """
    if not account[k.WINDOW]:
        return account.overspent(first, account[k.LAST], units)
    now = account[k.LAST]
    ends = np.unique(np.concatenate([account.rows()[:, 0], account.groups()[:, 0], [first, now]]))
    ends = ends[(ends >= first) & (ends < last + account[k.WINDOW])]
    totals = account.window_totals(account.rows(), ends)
    room = account.limits(ends) - totals
    least = int(np.argmin(room))
    return Overspent(first, int(ends[least]), int(totals[least]), units, max(int(room[least]), 0))


def place_late_group(account: Account, first: int, last: int, units: int) -> Overspent | None:
    """Charge a group that begins before the last step: every window that meets it is checked."""
    window, now = account[k.WINDOW], account[k.LAST]
    still_open(account, first)
    if not window:
        return _place_total(account, first, units)
    refusal = late_refusal(account, first, last, units)
    if units and units > refusal.remaining:
        return refusal
    ends = np.unique(np.concatenate([account.rows()[:, 0], account.groups()[:, 0], [first, now]]))
    ends = ends[ends >= first]
    totals = account.window_totals(account.rows(), ends)
    totals = totals + np.where(ends < last + window, units, 0)  # all of them begin after `first` does
    if units:
        account.keep_group(first, last, units)
    _remember(account, ends, totals)
    return None


def still_open(account: Account, first: int) -> None:
    """Refuse a step whose windows are no longer known."""
    window, now = account[k.WINDOW], account[k.LAST]
    if window and first <= now - window:
        raise LedgerError(
            f"step {first} cannot be charged any more: the ledger stands at step {now} and only the last "
            f"{window} steps are open; charge a step before its window has passed."
        )


def _remember(account: Account, ends: Integers, totals: Integers) -> None:
    """Keep the fullest window, and what the one that ends at the last step has spent; it is the last of them."""
    fullest = int(np.argmax(totals))
    if totals[fullest] > account[k.WORST]:
        account.state[k.WORST], account.state[k.WORST_END] = totals[fullest], ends[fullest]
    account.state[k.TOTAL] = totals[-1]


def _place_total(account: Account, step: int, units: int) -> Overspent | None:
    """Charge where everything ever charged adds up, so the order of steps is of no account."""
    if units and units > account[k.LIMIT] - account[k.TOTAL]:  # nothing may always be charged
        return account.overspent(step, account[k.LAST], units)
    account.state[k.TOTAL] += units
    if account[k.TOTAL] > account[k.WORST]:
        account.state[k.WORST], account.state[k.WORST_END] = account[k.TOTAL], account[k.LAST]
    return None
