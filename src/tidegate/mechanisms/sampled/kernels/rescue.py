"""The compiled loop of RescueDP: whether to measure, with how much budget, in which groups; then filter.

In the printed calibration each column has not only a controller but also an account of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.sampled.kernels.grouping import form_groups, measure_groups
from tidegate.mechanisms.sampled.kernels.measuring import DONE, NOISE, REFUSED, draw, restart, show
from tidegate.mechanisms.sampled.kernels.pid import feedback, rescue_interval
from tidegate.noise.kernels import constants

# positions in `rule`
WINDOW = 0  # steps in a window, 0: all steps
LIMIT = 1  # ledger units of a window
MOST = 2  # the most units of one measurement
LEAST = 3  # the fewest that are worth a measurement
FIXED = 4  # units of every measurement, 0: allocated
PERIOD = 5  # steps between measurements, 0: the controller decides
GROUPS = 6  # 0: every column is measured by itself
RULE = 7

# positions in `numbers`
WHOLE = 0  # a measurement with n units has noise of scale WHOLE / n, in grid units
GRID = 1
PORTION = 2  # φ
MOST_PORTION = 3  # p_max
VARIANCE = 4  # the filter's measurement noise, 0: that of the noise added
SMALL = 5  # τ₁, 0: the noise scale
ALIKE = 6  # τ₂
DIFFERENCE = 7  # τ₃, 0: as SMALL
PACE = 8  # units that a measurement may spend at most for each step of its interval
NUMBERS = 9

# the arrays that a run keeps, in the order of `state`
STATE = ("belief", "history", "due", "counts", "last", "intervals", "errors", "scales", "spent", "paid")


@kernel
def allocate(remaining: int, interval: float, rule: Any, numbers: Any) -> int:
    """Units of a measurement: the portion p = min(φ·ln(I + 1), p_max) of what remains, rounded down; 0: wait."""
    if rule[FIXED] > 0:
        amount = rule[FIXED]
        return amount if amount <= remaining else 0
    portion = min(numbers[PORTION] * np.log(interval + 1.0), numbers[MOST_PORTION])
    amount = min(int(portion * remaining), remaining, rule[MOST], int(numbers[PACE] * interval))
    return amount if amount >= rule[LEAST] else 0


@kernel
def _expire(rule: Any, step: int, spent: Any, paid: Any) -> None:
    """Forget what left each column's own window (printed calibration)."""
    if rule[WINDOW] > 0 and paid.size:
        slot = step % rule[WINDOW]
        for column in range(spent.size):
            spent[column] -= paid[column, slot]
            paid[column, slot] = 0


@kernel
def _choose(
    rule: Any,
    numbers: Any,
    step: int,
    remaining: int,
    due: Any,
    intervals: Any,
    spent: Any,
    chosen: Any,
    amounts: Any,
) -> int:
    """Which controllers measure, and with how many units; returns how many do."""
    fresh = 0
    for controller in range(due.size):
        chosen[controller] = False
        if step >= due[controller]:
            own = rule[LIMIT] - spent[controller] if due.size > 1 else remaining
            amounts[controller] = allocate(own, intervals[controller], rule, numbers)
            chosen[controller] = amounts[controller] > 0
            fresh += chosen[controller]
    return fresh


@kernel
def _group(
    rule: Any, numbers: Any, chosen: Any, history: Any, counts: Any, amounts: Any, pivot_of: Any, widths: Any
) -> int:
    """Form groups and their noise scales; a group spends the least that any member has. Returns the largest spend."""
    columns = pivot_of.size
    controllers = counts.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    dearest = 0
    for controller in range(controllers):
        if chosen[controller]:
            dearest = max(dearest, amounts[controller])
    if rule[GROUPS] > 0:
        scale = publication_scale(numbers[WHOLE], dearest)
        small = numbers[SMALL] if numbers[SMALL] > 0.0 else scale
        difference = numbers[DIFFERENCE] if numbers[DIFFERENCE] > 0.0 else small
        form_groups(chosen, history, counts, small, numbers[ALIKE], difference, pivot_of)
    if controllers > 1:
        for column in range(columns):
            if chosen[column]:
                pivot = pivot_of[column]
                amounts[pivot] = min(amounts[pivot], amounts[column])
        dearest = 0
        for column in range(columns):
            if chosen[column]:
                amounts[column] = amounts[pivot_of[column]]
                dearest = max(dearest, amounts[column])
    for column in range(columns):
        if chosen[column * apart]:
            widths[column] = publication_scale(numbers[WHOLE], amounts[column * apart])
    return dearest


@kernel
def release(
    rows: Any,
    begin: int,
    paused: bool,
    first_step: int,
    rule: Any,
    numbers: Any,
    model: Any,
    settings: Any,
    words: Any,
    given: Any,
    scratch: Any,
    account: Any,
    state: Any,
    outputs: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    chosen, amounts, pivot_of, widths, moved = scratch
    entries, total = account
    belief, history, due, counts, last, intervals, errors, scales, spent, paid = state
    values, status, source, scale, units = outputs
    columns = rows.shape[1]
    controllers = due.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    inline = words.shape[1] > 0
    grid = numbers[GRID]
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        row = rows[index]
        fresh = 0
        if not paused:
            _expire(rule, step, spent, paid)
            if controllers > 1 or step >= due[0]:
                remaining = account_remaining(entries, total, step)
                fresh = _choose(rule, numbers, step, remaining, due, intervals, spent, chosen, amounts)
            if fresh:
                dearest = _group(rule, numbers, chosen, history, counts, amounts, pivot_of, widths)
                if account_charge(entries, total, step, dearest) != ACCEPTED:
                    return index, REFUSED
                units[index] = dearest
                if not inline:
                    return index, NOISE
                for column in range(columns):
                    if chosen[column * apart] and pivot_of[column] == column:
                        part, factor, shift = constants(widths[column])
                        at = index * columns + column
                        if not draw(words, at, part, factor, shift, given, column):
                            return index, NOISE
        else:
            paused = False
            for controller in range(controllers):
                fresh += chosen[controller]
        if fresh:
            measure_groups(
                numbers[VARIANCE],
                model,
                step,
                row,
                given,
                chosen,
                pivot_of,
                widths,
                belief,
                history,
                counts,
                last,
                moved,
            )
            for controller in range(controllers):
                if chosen[controller]:
                    if controllers > 1:
                        error = abs(moved[pivot_of[controller]])
                        spent[controller] += amounts[controller]
                        if paid.size and rule[WINDOW] > 0:
                            paid[controller, step % rule[WINDOW]] = amounts[controller]
                        remaining = rule[LIMIT] - spent[controller]
                    else:
                        error, groups = 0.0, 0
                        for column in range(columns):
                            if pivot_of[column] == column:
                                error += abs(moved[column])
                                groups += 1
                        error /= groups
                        remaining = account_remaining(entries, total, step + 1)
                    counts[controller] += 1
                    gap = step - last[controller]
                    if rule[PERIOD] > 0:
                        intervals[controller] = rule[PERIOD]
                    elif counts[controller] > 1:
                        count = (
                            counts[controller] - 1
                        )  # what was not predicted is not an error of a prediction
                        signal = feedback(errors[controller], count, error, gap, settings)
                        following = max(
                            allocate(remaining, intervals[controller], rule, numbers), rule[LEAST]
                        )
                        expected = publication_scale(numbers[WHOLE], following)
                        intervals[controller] = rescue_interval(
                            intervals[controller], signal, expected, settings
                        )
                    last[controller] = step
                    due[controller] = step + int(intervals[controller])
                    scales[controller] = publication_scale(numbers[WHOLE], amounts[controller]) * grid
        show(index, fresh, last, belief, grid, values, status, source)
        scale[index] = scales.max()
    return rows.shape[0], DONE


@kernel
def release_blocks(rows: Any, begin: int, paused: bool, length: int, afresh: Any, *others: Any) -> Any:
    """`release` for blocks that begin afresh; `others` are its parameters from `rule` on."""
    memory, beginning, account, opened = afresh
    while begin < rows.shape[0]:
        first = begin - begin % length
        if not paused:  # else the step was charged already, and its noise is now given
            restart(memory, beginning, account, opened)
        begin, reason = release(rows[: first + length], begin, paused, 1 - first, *others)
        if reason != DONE:
            return begin, reason
        paused = False
    return begin, DONE
