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
    window, now = account[k.WINDOW], account[k.LAST]
    still_open(account, first)
    outcome = np.zeros(3, dtype=np.int64)
    empty = np.zeros_like(account.state)
    kept = [k.WINDOW, k.LIMIT, k.RAISED_FROM, k.RAISED]
    empty[kept] = account.state[kept]
    refused = int(k.account_check_batch(account.entries, empty, first, units, outcome))
    if refused >= 0:  # too much even for an empty account; from here on no sum can leave 64 bits
        return Overspent(first + refused, now, account.total(now - window + 1, now), int(units[refused]))
    if not window:
        return _place_total(account, first, int(outcome[0]))
    charged = np.flatnonzero(units)
    rows = np.vstack([account.rows(), np.column_stack([first + charged, units[charged]])])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = np.unique(np.concatenate([rows[:, 0], account.groups()[:, 0], [first, now]]))
    ends = ends[ends >= first]
    totals = account.window_totals(rows, ends)
    fullest = int(np.argmax(totals - account.limits(ends)))
    worst, end = int(totals[fullest]), int(ends[fullest])
    if worst > account.limit_at(end) and len(charged):
        asked = int(units[max(0, end - window + 1 - first) : end + 1 - first].sum())
        return Overspent(min(end, first + len(units) - 1), end, worst - asked, asked)
    account.replace_rows(rows)
    _remember(account, ends, totals)
    return None


def place_late_group(account: Account, first: int, last: int, units: int) -> Overspent | None:
    """Charge a group that begins before the last step: every window that meets it is checked.

    The sum over a window changes upwards only where a step was charged or a group begins, so that the windows
    which end there, at the group's own first step and at the last step are all that could be the fullest.
    """
    window, now = account[k.WINDOW], account[k.LAST]
    still_open(account, first)
    if not window:
        return _place_total(account, first, units)
    ends = np.unique(np.concatenate([account.rows()[:, 0], account.groups()[:, 0], [first, now]]))
    ends = ends[ends >= first]
    totals = account.window_totals(account.rows(), ends)
    meets = ends < last + window  # all of them begin after `first` does
    room = np.where(meets, account.limits(ends) - totals, 2**62)
    least = int(np.argmin(room))
    if units and units > int(room[least]):
        return Overspent(first, int(ends[least]), int(totals[least]), units)
    totals = totals + np.where(meets, units, 0)
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
    if units > account[k.LIMIT] - account[k.TOTAL]:
        return Overspent(step, account[k.LAST], account[k.TOTAL], units)
    account.state[k.TOTAL] += units
    if account[k.TOTAL] > account[k.WORST]:
        account.state[k.WORST], account.state[k.WORST_END] = account[k.TOTAL], account[k.LAST]
    return None
