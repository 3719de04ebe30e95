"""The sliding account as plain arrays, so that a mechanism's own compiled loop can ask it before it draws.

`entries` is an int64 array of rows (step, units) with the charges that some window may still contain, in
order of steps; `state` is an int64 vector: the numbers named below, then the open spans as triples (first,
last, units) in order of `last`. A kernel only ever appends to `entries`; making room, and taking a failed
batch back, is the business of `account.Account`. Work per step is amortised O(1), whatever the window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.compiled import kernel

Integers = NDArray[np.int64]

# positions in `state`
WINDOW = 0  # steps in a window; 0: everything ever charged adds up
LIMIT = 1  # units that a window may spend
TOTAL = 2  # units spent in the window that ends at LAST
LAST = 3  # the last charged step; steps are numbered from 1
HEAD = 4  # first row of `entries` inside the window that ends at LAST
END = 5  # one past the last row of `entries`
WORST = 6  # units of the fullest window so far
WORST_END = 7  # last step of that window
STEPS = 8  # number of steps charged
SINGLE = 9  # the most units that one charge from a kernel may have
HORIZON = 10  # the last step that may be charged; 0: there is none
MERGES = 11  # 1: charges to the same step share a row
SPAN_HEAD = 12  # first open span
SPAN_END = 13  # one past the last span
SPANS = 16  # where the triples begin

# answers of account_charge
ACCEPTED = 0
REFUSED = 1  # the window would be overspent
FULL = 2  # no room in `entries`; nothing was charged
LATE = 3  # the step lies before the last charged one
TOO_LARGE = 4  # more units at once than the account can judge in a kernel
BEYOND = 5  # after the horizon


@kernel
def _advance(entries: Integers, state: Integers, step: int) -> None:
    """Forget what leaves the window when it moves on to end at `step`."""
    oldest = step - state[WINDOW]
    head, end, total = state[HEAD], state[END], state[TOTAL]
    while head < end and entries[head, 0] <= oldest:
        total -= entries[head, 1]
        head += 1
    span = state[SPAN_HEAD]
    while span < state[SPAN_END] and state[SPANS + 3 * span + 1] <= oldest:
        total -= state[SPANS + 3 * span + 2]
        span += 1
    state[HEAD], state[TOTAL], state[SPAN_HEAD] = head, total, span


@kernel
def account_place(entries: Integers, state: Integers, step: int, units: int) -> int:
    """Charge a step that is not before the last one; see `account_charge`."""
    if step < state[LAST]:
        return LATE
    if state[HORIZON] > 0 and step > state[HORIZON]:
        return BEYOND
    end = state[END]
    same = state[MERGES] == 1 and end > state[HEAD] and entries[end - 1, 0] == step
    stored = state[WINDOW] > 0 and units > 0
    if stored and not same and end == entries.shape[0]:
        return FULL
    # judged before anything moves, so that a refusal leaves every window as it was
    if units < 0 or units > account_remaining(entries, state, step):
        return REFUSED
    if state[WINDOW] > 0:
        _advance(entries, state, step)
    state[TOTAL] += units
    if stored:
        if same:
            entries[end - 1, 1] += units
        else:
            entries[end, 0] = step
            entries[end, 1] = units
            state[END] = end + 1
    if state[TOTAL] > state[WORST]:
        state[WORST] = state[TOTAL]
        state[WORST_END] = step
    if step > state[LAST]:
        state[STEPS] += 1
        state[LAST] = step
    return ACCEPTED


@kernel
def account_charge(entries: Integers, state: Integers, step: int, units: int) -> int:
    """Charge one step from inside a compiled loop: ACCEPTED (0), or the reason why nothing was charged.

    The arrays come from `ledger.begin_batch(count)`, which makes room for `count` charges.
    """
    if units > state[SINGLE]:
        return TOO_LARGE
    return account_place(entries, state, step, units)


@kernel
def account_place_many(
    entries: Integers, state: Integers, steps: Integers, units: Integers, begin: int
) -> int:
    """Charge recorded steps again, from index `begin` on: the index of the first that was not accepted."""
    for index in range(begin, steps.shape[0]):
        if account_place(entries, state, steps[index], units[index]) != ACCEPTED:
            return index
    return len(steps)


@kernel
def account_remaining(entries: Integers, state: Integers, step: int) -> int:
    """Units that a charge to `step` (not before the last one) may have; -1 for an earlier step."""
    if step < state[LAST]:
        return -1
    total = state[TOTAL]
    if state[WINDOW] > 0:
        oldest = step - state[WINDOW]
        row = state[HEAD]
        while row < state[END] and entries[row, 0] <= oldest:
            total -= entries[row, 1]
            row += 1
        span = state[SPAN_HEAD]
        while span < state[SPAN_END] and state[SPANS + 3 * span + 1] <= oldest:
            total -= state[SPANS + 3 * span + 2]
            span += 1
    remaining: int = state[LIMIT] - total
    return remaining


@kernel
def account_check_batch(
    entries: Integers, state: Integers, first: int, units: Integers, outcome: Integers
) -> int:
    """Judge a whole batch that begins after the last step, without charging it.

    Returns the index of the first refused step or -1; `outcome` receives the total of the last window, the
    fullest window's units and its end (at a refusal the total before the refused step).
    """
    window, limit, total = state[WINDOW], state[LIMIT], state[TOTAL]
    row, end = state[HEAD], state[END]
    span, span_end = state[SPAN_HEAD], state[SPAN_END]
    worst, worst_end = state[WORST], state[WORST_END]
    for index in range(units.shape[0]):
        if window > 0:
            oldest = first + index - window
            while row < end and entries[row, 0] <= oldest:
                total -= entries[row, 1]
                row += 1
            while span < span_end and state[SPANS + 3 * span + 1] <= oldest:
                total -= state[SPANS + 3 * span + 2]
                span += 1
            if index >= window:
                total -= units[index - window]
        amount = units[index]
        if amount < 0 or amount > limit - total:
            outcome[0] = total
            return index
        total += amount
        if total > worst:
            worst = total
            worst_end = first + index
    outcome[0], outcome[1], outcome[2] = total, worst, worst_end
    return -1


@kernel
def account_apply_batch(
    entries: Integers, state: Integers, first: int, units: Integers, begin: int, outcome: Integers
) -> None:
    """Charge a batch that account_check_batch allowed; rows are kept from index `begin` on."""
    count = units.shape[0]
    last = first + count - 1
    if state[WINDOW] > 0:
        _advance(entries, state, last)
        end = state[END]
        for index in range(begin, count):
            if units[index] > 0:
                entries[end, 0] = first + index
                entries[end, 1] = units[index]
                end += 1
        state[END] = end
        oldest = last - state[WINDOW]
        head = state[HEAD]
        while head < end and entries[head, 0] <= oldest:
            head += 1
        state[HEAD] = head
    state[TOTAL], state[WORST], state[WORST_END] = outcome[0], outcome[1], outcome[2]
    state[STEPS] += count
    state[LAST] = last
