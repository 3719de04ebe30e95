"""The sliding account as plain arrays, so that a mechanism's own compiled loop can ask it before it draws.

`entries` is an int64 array of rows (step, units) with the charges that some window may still contain, in
order of steps; `state` is an int64 vector: the numbers named below, then the groups as triples (first,
last, units) in order of `last`. A kernel only ever appends to `entries`; making room, and taking a failed
batch back, is the business of `account.Account`. Work per step and per group is amortised O(1), whatever
the window.

A *group* is a run of steps that one mechanism reads together (noise that they share): its units count once in
every window that meets any of its steps. A compiled loop charges with `account_charge`, `account_charge_group`
and `account_extend_group`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.compiled import lean

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
GROUP_HEAD = 12  # first group that meets the window that ends at LAST
GROUP_END = 13  # one past the last group
RAISED_FROM = 16  # windows that end at this step or later may spend RAISED units; 0: none may
RAISED = 17
CARRIED = 18  # units of the fullest window that was taken over from an earlier promise
GROUPS = 24  # where the triples begin

LARGEST_SUM = 2**62  # of the units of a batch, so that no sum leaves 64 bits

# answers of account_charge
ACCEPTED = 0
REFUSED = 1  # the window would be overspent
FULL = 2  # no room in `entries`; nothing was charged
LATE = 3  # the step lies before the last charged one
TOO_LARGE = 4  # more units at once than the account can judge in a kernel
BEYOND = 5  # after the horizon
UNKNOWN = 6  # there is no such group


@lean
def _advance(entries: Integers, state: Integers, step: int) -> None:
    """Forget what leaves the window when it moves on to end at `step`."""
    oldest = step - state[WINDOW]
    head, end, total = state[HEAD], state[END], state[TOTAL]
    while head < end and entries[head, 0] <= oldest:
        total -= entries[head, 1]
        head += 1
    group = state[GROUP_HEAD]
    while group < state[GROUP_END] and state[GROUPS + 3 * group + 1] <= oldest:
        total -= state[GROUPS + 3 * group + 2]
        group += 1
    state[HEAD], state[TOTAL], state[GROUP_HEAD] = head, total, group


@lean
def limit_at(state: Integers, end: int) -> int:
    """Units that the window which ends at a step may spend."""
    limit: int = state[RAISED] if 0 < state[RAISED_FROM] <= end else state[LIMIT]
    return limit


@lean
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
    # judged before anything moves, so that a refusal leaves every window as it was; nothing may always be charged, also
    # where charges were taken over that are more than a later promise allows
    if units < 0 or (units > 0 and units > account_remaining(entries, state, step)):
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


@lean
def account_charge(entries: Integers, state: Integers, step: int, units: int) -> int:
    """Charge one step from inside a compiled loop: ACCEPTED (0), or the reason why nothing was charged.

    The arrays come from `ledger.begin_batch(count)`, which makes room for `count` charges.
    """
    if units > state[SINGLE]:
        return TOO_LARGE
    return account_place(entries, state, step, units)


@lean
def account_place_many(
    entries: Integers, state: Integers, steps: Integers, units: Integers, begin: int
) -> int:
    """Charge recorded steps again, from index `begin` on: the index of the first that was not accepted."""
    for index in range(begin, steps.shape[0]):
        if account_place(entries, state, steps[index], units[index]) != ACCEPTED:
            return index
    return len(steps)


@lean
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
        group = state[GROUP_HEAD]
        while group < state[GROUP_END] and state[GROUPS + 3 * group + 1] <= oldest:
            total -= state[GROUPS + 3 * group + 2]
            group += 1
    remaining: int = limit_at(state, step) - total
    return remaining


@lean
def _forget_groups(state: Integers, step: int) -> None:
    """Drop groups that no charge from `step` on, nor a late one to one of the w steps before it, can meet."""
    oldest = step - 2 * state[WINDOW] + 1
    dropped, end = 0, state[GROUP_END]
    while dropped < end and state[GROUPS + 3 * dropped + 1] <= oldest:
        dropped += 1
    if dropped:
        for place in range(GROUPS, GROUPS + 3 * (end - dropped)):
            state[place] = state[place + 3 * dropped]
        state[GROUP_END] = end - dropped
        state[GROUP_HEAD] -= dropped


@lean
def _keep_group(state: Integers, place: int, first: int, last: int, units: int) -> None:
    """Put a group into the free place with this number or, so that they stay in order of `last`, before it."""
    while place > 0 and state[GROUPS + 3 * place - 2] > last:
        for column in range(3):
            state[GROUPS + 3 * place + column] = state[GROUPS + 3 * place - 3 + column]
        place -= 1
    state[GROUPS + 3 * place] = first
    state[GROUPS + 3 * place + 1] = last
    state[GROUPS + 3 * place + 2] = units


@lean
def account_place_group(entries: Integers, state: Integers, first: int, last: int, units: int) -> int:
    """Charge a group that does not begin before the last step; see `account_charge_group`."""
    if first < state[LAST]:
        return LATE
    if state[HORIZON] > 0 and last > state[HORIZON]:
        return BEYOND
    stored = state[WINDOW] > 0 and units > 0
    if stored and GROUPS + 3 * (state[GROUP_END] + 1) > state.shape[0]:
        moved = state[
            LAST
        ]  # groups out of reach of windows from here on; the window itself has not moved yet
        _forget_groups(state, moved)
        if GROUPS + 3 * (2 * state[GROUP_END] + 1) > state.shape[0]:
            return FULL  # more room, so that groups are moved to the front rarely
    # the window that ends at `first` decides: later ones contain nothing that this one does not
    if units < 0 or last < first or (units > 0 and units > account_remaining(entries, state, first)):
        return REFUSED
    account_place(entries, state, first, 0)  # moves the window on
    state[TOTAL] += units
    if state[TOTAL] > state[WORST]:
        state[WORST] = state[TOTAL]
        state[WORST_END] = first
    if stored:
        _keep_group(state, state[GROUP_END], first, last, units)
        state[GROUP_END] += 1
    return ACCEPTED


@lean
def account_charge_group(entries: Integers, state: Integers, first: int, last: int, units: int) -> int:
    """Charge the steps first to last as one group, from inside a compiled loop; the answers are `account_charge`'s.

    The units count once in each window that meets the group. `first` is the present step or a later one, and the
    account then stands there. The arrays come from `ledger.begin_batch(count, groups)`.
    """
    if units > state[SINGLE]:
        return TOO_LARGE
    return account_place_group(entries, state, first, last, units)


@lean
def account_extend_group(
    entries: Integers, state: Integers, first: int, last: int, units: int, further: int
) -> int:
    """Let the group of the steps first to last reach on to the step `further`; the account stays at its step.

    A window that newly meets the group begins after `last`. While the group still meets the window that ends at the
    last charged step, those windows contain nothing that this one does not, so nothing has to be asked. A group
    that has just left it enters it again, for its units. UNKNOWN: there is no such group; LATE: its windows passed.
    """
    window = state[WINDOW]
    if further <= last or units < 0:
        return REFUSED
    if state[HORIZON] > 0 and further > state[HORIZON]:
        return BEYOND
    if window == 0 or units == 0:
        return ACCEPTED  # counted once and for all, or not at all
    if last < state[LAST] - window or last <= state[LAST] - 2 * window + 1:  # the latter is not kept
        return LATE
    place = state[GROUP_END] - 1
    while place >= 0 and state[GROUPS + 3 * place + 1] >= last:
        at = GROUPS + 3 * place
        if state[at] == first and state[at + 1] == last and state[at + 2] == units:
            break
        place -= 1
    if place < 0 or state[GROUPS + 3 * place + 1] < last:
        return UNKNOWN
    if last == state[LAST] - window:
        if units > limit_at(state, state[LAST]) - state[TOTAL]:
            return REFUSED
        state[TOTAL] += units
        state[GROUP_HEAD] -= 1
        if state[TOTAL] > state[WORST]:
            state[WORST] = state[TOTAL]
            state[WORST_END] = state[LAST]
    # close the gap it leaves, then put it where its new last step belongs
    for at in range(GROUPS + 3 * place, GROUPS + 3 * (state[GROUP_END] - 1)):
        state[at] = state[at + 3]
    _keep_group(state, state[GROUP_END] - 1, first, further, units)
    return ACCEPTED


@lean
def account_place_mixed(
    entries: Integers, state: Integers, first: int, units: Integers, groups: Integers, next_group: int
) -> tuple[int, int, int]:
    """Charge consecutive steps, and the groups that begin among them (in order), one after the other.

    Returns the answer of the last charge, and how many steps and groups were charged.
    """
    end = state[HORIZON] if state[HORIZON] > 0 else first + units.shape[0]
    for index in range(units.shape[0]):
        step = first + index
        due = next_group < groups.shape[0] and groups[next_group, 0] <= step
        if not due and units[index] == 0 and index + 1 < units.shape[0] and state[LAST] < step <= end:
            # nothing to be asked: the window moves on with the next charge, the last of the batch at the latest
            state[STEPS] += 1
            state[LAST] = step
            continue
        if state[WINDOW] > 0:
            _advance(entries, state, state[LAST])
        while next_group < groups.shape[0] and groups[next_group, 0] <= step:
            answer = account_place_group(
                entries, state, groups[next_group, 0], groups[next_group, 1], groups[next_group, 2]
            )
            if answer != ACCEPTED:
                return answer, index, next_group
            next_group += 1
        answer = account_place(entries, state, step, units[index])
        if answer != ACCEPTED:
            return answer, index, next_group
    return ACCEPTED, units.shape[0], next_group


@lean
def account_settle(entries: Integers, state: Integers, before: Integers, first: int, units: Integers) -> bool:
    """Keep what a compiled loop charged, if it is what it says: units[i] to the step first + i, and nothing else.

    `before` are the numbers when the arrays were lent; no step from `first` on may have been charged then. The account
    then stands at the last of the steps. False where anything differs: the caller must take all of it back.
    """
    last = first + units.shape[0] - 1
    if before[LAST] >= first or state[LAST] > last or state[GROUP_END] != before[GROUP_END]:
        return False
    if state[HORIZON] > 0 and last > state[HORIZON]:
        return False
    row, total = before[END], 0
    for index in range(units.shape[0]):
        amount = units[index]
        if amount < 0 or amount > LARGEST_SUM - total:
            return False
        total += amount
        if amount > 0 and state[WINDOW] > 0:
            if row >= state[END] or entries[row, 0] != first + index or entries[row, 1] != amount:
                return False
            row += 1
    if state[WINDOW] > 0:
        if row != state[END]:
            return False
        _advance(entries, state, last)
    elif state[TOTAL] != before[TOTAL] + total:
        return False
    state[STEPS] = before[STEPS] + units.shape[0]
    state[LAST] = last
    return True


@lean
def account_check_batch(
    entries: Integers, state: Integers, first: int, units: Integers, outcome: Integers
) -> int:
    """Judge a whole batch that begins after the last step, without charging it.

    Returns the index of the first refused step or -1; `outcome` receives the total of the last window, the
    fullest window's units and its end (at a refusal the total before the refused step).
    """
    window, total = state[WINDOW], state[TOTAL]
    row, end = state[HEAD], state[END]
    group, group_end = state[GROUP_HEAD], state[GROUP_END]
    worst, worst_end = state[WORST], state[WORST_END]
    limit, raised = state[LIMIT], units.shape[0]  # the index from which on windows may spend RAISED
    if state[RAISED_FROM] > 0:
        raised = max(0, state[RAISED_FROM] - first)
    for index in range(units.shape[0]):
        if window > 0:
            oldest = first + index - window
            while row < end and entries[row, 0] <= oldest:
                total -= entries[row, 1]
                row += 1
            while group < group_end and state[GROUPS + 3 * group + 1] <= oldest:
                total -= state[GROUPS + 3 * group + 2]
                group += 1
            if index >= window:
                total -= units[index - window]
        amount = units[index]
        if index == raised:
            limit = state[RAISED]
        if amount < 0 or (amount > limit - total and amount > 0):
            outcome[0] = total
            return index
        total += amount
        if total > worst:
            worst = total
            worst_end = first + index
    outcome[0], outcome[1], outcome[2] = total, worst, worst_end
    return -1


@lean
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
