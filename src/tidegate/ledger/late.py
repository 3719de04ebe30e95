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
    if window and first <= now - window:
        raise LedgerError(
            f"step {first} cannot be charged any more: the ledger stands at step {now} and only the last "
            f"{window} steps are open; charge a step before its window has passed."
        )
    outcome = np.zeros(3, dtype=np.int64)
    empty = np.concatenate([account.state[: k.TOTAL], np.zeros(k.SPANS - k.TOTAL, dtype=np.int64)])
    refused = int(k.account_check_batch(account.entries, empty, first, units, outcome))
    if refused >= 0:  # too much even for an empty account; from here on no sum can leave 64 bits
        return Overspent(first + refused, now, account.total(now - window + 1, now), int(units[refused]))
    if not window:
        return _place_total(account, first, int(outcome[0]))
    charged = np.flatnonzero(units)
    rows = np.vstack([account.rows(), np.column_stack([first + charged, units[charged]])])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = np.unique(np.concatenate([rows[:, 0], account.spans()[:, 0], [first, now]]))
    ends = ends[ends >= first]
    totals = account.window_totals(rows, ends)
    fullest = int(np.argmax(totals))
    worst, end = int(totals[fullest]), int(ends[fullest])
    if worst > account[k.LIMIT]:
        asked = int(units[max(0, end - window + 1 - first) : end + 1 - first].sum())
        return Overspent(min(end, first + len(units) - 1), end, worst - asked, asked)
    if worst > account[k.WORST]:
        account.state[k.WORST], account.state[k.WORST_END] = worst, end
    account.replace_rows(rows)
    account.state[k.TOTAL] = totals[-1]  # the window that ends at the last step
    return None


def _place_total(account: Account, step: int, units: int) -> Overspent | None:
    """Charge where everything ever charged adds up, so the order of steps is of no account."""
    if units > account[k.LIMIT] - account[k.TOTAL]:
        return Overspent(step, account[k.LAST], account[k.TOTAL], units)
    account.state[k.TOTAL] += units
    if account[k.TOTAL] > account[k.WORST]:
        account.state[k.WORST], account.state[k.WORST_END] = account[k.TOTAL], account[k.LAST]
    return None
