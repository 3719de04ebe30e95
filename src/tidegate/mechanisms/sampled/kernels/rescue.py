"""The compiled loop of RescueDP: whether to measure, with how much budget, in which groups; then filter.

In the printed calibration each column has not only a controller but also an account of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.mechanisms.kernels.loops import DONE, NOISE, REFUSED, Account, Outputs, largest
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.sampled.kernels.grouping import form_groups, measure_groups
from tidegate.mechanisms.sampled.kernels.kalman import Model
from tidegate.mechanisms.sampled.kernels.measuring import draw, restart, show
from tidegate.mechanisms.sampled.kernels.pid import Control, feedback, rescue_interval
from tidegate.noise.kernels import constants


class Rule(NamedTuple):
    """What is public and stays as it is."""

    window: int  # steps in a window, 0: all steps
    limit: int  # ledger units of a window
    most: int  # units of one measurement
    least: int  # units that are worth a measurement
    fixed: int  # units of every measurement, 0: allocated
    period: int  # steps between measurements, 0: the controller decides
    groups: bool  # else every column is measured by itself
    whole: float  # a measurement with n units has noise of the scale whole / n, in grid units
    grid: float
    portion: float  # φ
    most_portion: float  # p_max
    variance: float  # the filter's measurement noise, 0: that of the noise added
    small: float  # τ₁, 0: the noise scale
    alike: float  # τ₂
    difference: float  # τ₃, 0: as `small`
    pace: float  # units that a measurement may spend at most for each step of its interval


class Memory(NamedTuple):
    """The arrays that a run keeps: of each column what is believed, of each controller the rest."""

    belief: Any  # the filter's, see `kalman`
    history: Any  # a ring of recent estimates, for grouping
    due: Any  # the next step to be measured
    counts: Any  # measurements so far
    last: Any  # the step of the last one
    intervals: Any  # to the next one
    errors: Any  # a ring of recent errors of predictions
    scales: Any  # of the last measurement's noise
    spent: Any  # units of a column's own window (printed calibration)
    paid: Any  # and of its steps


class Work(NamedTuple):
    """What the loop and its caller hand to each other, and what a step needs room for."""

    given: Any  # the noise of each column
    chosen: Any  # of each controller: whether it measures at this step
    amounts: Any  # and with how many units
    pivot_of: Any  # of each column: the first of its group
    widths: Any  # and its noise scale
    moved: Any  # of each group: the change of its estimate


@lean
def allocate(remaining: int, interval: float, rule: Any) -> int:
    """Units of a measurement: the portion p = min(φ·ln(I + 1), p_max) of what remains, rounded down; 0: wait."""
    rule = Rule(*rule)
    if rule.fixed > 0:
        return rule.fixed if rule.fixed <= remaining else 0
    portion = min(rule.portion * np.log(interval + 1.0), rule.most_portion)
    amount = min(int(portion * remaining), remaining, rule.most, int(rule.pace * interval))
    return amount if amount >= rule.least else 0


@lean
def _expire(rule: Any, step: int, spent: Any, paid: Any) -> None:
    """Forget what left each column's own window (printed calibration)."""
    if rule.window > 0 and paid.size:
        slot = step % rule.window
        for column in range(spent.size):
            spent[column] -= paid[column, slot]
            paid[column, slot] = 0


@lean
def _choose(rule: Any, state: Any, work: Any, step: int, remaining: int) -> int:
    """Which controllers measure, and with how many units; returns how many do."""
    chosen, amounts, due = work.chosen, work.amounts, state.due
    intervals, spent = state.intervals, state.spent
    fresh = 0
    for controller in range(due.size):
        chosen[controller] = False
        if step >= due[controller]:
            own = rule.limit - spent[controller] if due.size > 1 else remaining
            amounts[controller] = allocate(own, intervals[controller], rule)
            chosen[controller] = amounts[controller] > 0
            fresh += chosen[controller]
    return fresh


@lean
def _largest(chosen: Any, amounts: Any) -> int:
    """The most units that any of the chosen spends."""
    largest = 0
    for controller in range(chosen.size):
        if chosen[controller]:
            largest = max(largest, amounts[controller])
    return largest


@lean
def _group(rule: Any, state: Any, work: Any) -> int:
    """Form groups and their noise scales; a group spends the least that any member has. Returns the largest spend."""
    chosen, amounts, pivot_of, widths = work.chosen, work.amounts, work.pivot_of, work.widths
    columns = pivot_of.size
    controllers = chosen.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    largest = _largest(chosen, amounts)
    if rule.groups:
        scale = publication_scale(rule.whole, largest)
        small = rule.small if rule.small > 0.0 else scale
        difference = rule.difference if rule.difference > 0.0 else small
        form_groups(chosen, state.history, state.counts, small, rule.alike, difference, pivot_of)
    if controllers > 1:
        for column in range(columns):
            if chosen[column]:
                pivot = pivot_of[column]
                amounts[pivot] = min(amounts[pivot], amounts[column])
        for column in range(columns):
            if chosen[column]:
                amounts[column] = amounts[pivot_of[column]]
        largest = _largest(chosen, amounts)
    for column in range(columns):
        if chosen[column * apart]:
            widths[column] = publication_scale(rule.whole, amounts[column * apart])
    return largest


@lean
def _mean_change(pivot_of: Any, moved: Any) -> float:
    """The mean change of all groups."""
    change, groups = 0.0, 0
    for column in range(pivot_of.size):
        if pivot_of[column] == column:
            change += abs(moved[column])
            groups += 1
    return change / groups


@lean
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    afresh: Any,
    rules: Any,
    words: Any,
    work: Any,
    account: Any,
    state: Any,
    outputs: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    rule, model, control = Rule(*rules[0]), Model(*rules[1]), Control(*rules[2])
    work, state = Work(*work), Memory(*state)
    given, chosen, amounts, pivot_of, widths, moved = work
    entries, numbers = Account(*account)
    belief, _, due, counts, last, intervals, errors, scales, spent, paid = state
    values, status, source, scale, units = Outputs(*outputs)
    columns = rows.shape[1]
    controllers = chosen.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    inline = words.shape[1] > 0
    if afresh is not None:  # decided when the loop is compiled
        length, memory, beginning, opened = afresh
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        if afresh is not None:
            step = 1 + index % length
            if step == 1 and paused == DONE:  # else the step was charged already, and its noise is now given
                restart(memory, beginning, numbers, opened)
        row = rows[index]
        fresh = 0
        if paused == DONE:
            _expire(rule, step, spent, paid)
            if controllers > 1 or step >= due[0]:
                remaining = account_remaining(entries, numbers, step)
                fresh = _choose(rule, state, work, step, remaining)
            if fresh:
                charge = _group(rule, state, work)
                if account_charge(entries, numbers, step, charge) != ACCEPTED:
                    return index, REFUSED
                units[index] = charge
                if not inline:
                    return index, NOISE
                for column in range(columns):
                    if chosen[column * apart] and pivot_of[column] == column:
                        law = constants(widths[column])
                        if not draw(words, index * columns + column, law, given, column):
                            return index, NOISE
        else:
            paused = DONE
            for controller in range(controllers):
                fresh += chosen[controller]
        if fresh:
            measure_groups(rule.variance, model, step, row, state, work)
            for controller in range(controllers):
                if chosen[controller]:
                    if controllers > 1:
                        error = abs(moved[pivot_of[controller]])
                        spent[controller] += amounts[controller]
                        if paid.size and rule.window > 0:
                            paid[controller, step % rule.window] = amounts[controller]
                        remaining = rule.limit - spent[controller]
                    else:
                        error = _mean_change(pivot_of, moved)
                        remaining = account_remaining(entries, numbers, step + 1)
                    counts[controller] += 1
                    interval = intervals[controller]
                    if rule.period > 0:
                        interval = float(rule.period)
                    elif counts[controller] > 1:
                        # what was not predicted is not an error of a prediction
                        count, gap = counts[controller] - 1, step - last[controller]
                        signal = feedback(errors[controller], count, error, gap, control)
                        following = max(allocate(remaining, interval, rule), rule.least)
                        expected = publication_scale(rule.whole, following)
                        interval = rescue_interval(interval, signal, expected, control)
                    intervals[controller] = interval
                    last[controller] = step
                    due[controller] = step + int(interval)
                    scales[controller] = publication_scale(rule.whole, amounts[controller]) * rule.grid
        show(index, fresh, last, belief, rule.grid, values, status, source)
        scale[index] = largest(scales)
    return rows.shape[0], DONE
