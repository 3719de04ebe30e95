"""The compiled loop of FAST: measure where the controller asks for it and the ledger allows it, else predict."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE, correct, correct_all
from tidegate.mechanisms.sampled.kernels.measuring import DONE, NOISE, REFUSED, draw, restart, show
from tidegate.mechanisms.sampled.kernels.pid import fast_interval, feedback
from tidegate.noise.kernels import constants

# positions in `rule`
CHARGE = 0  # ledger units of a measured step
SAMPLES = 1  # measurements that a window allows
WINDOW = 2  # steps in a window, 0: all steps
PERIOD = 3  # steps between measurements without control, 0: the controller decides
RULE = 4

# positions in `numbers`
SCALE = 0  # of the noise, in grid units
VARIANCE = 1  # that the filter takes the noise to have
GRID = 2
SANITY = 3  # the least denominator of a relative error, in grid units
NUMBERS = 4

# the arrays that a run keeps, in the order of `state`
STATE = ("belief", "due", "counts", "last", "intervals", "errors", "taken")


@kernel
def _room(rule: Any, taken: Any, controller: int, count: int, step: int) -> bool:
    """Whether a column's own window allows another measurement (printed calibration)."""
    oldest = taken[controller, count % rule[SAMPLES]]  # 0: fewer than SAMPLES were taken
    return bool(oldest == 0 or (rule[WINDOW] > 0 and oldest <= step - rule[WINDOW]))


@kernel
def _control(
    rule: Any, settings: Any, errors: Any, count: int, change: float, size: float, gap: int, interval: float
) -> float:
    """The next interval after measurement number `count`."""
    if rule[PERIOD] > 0:
        return float(rule[PERIOD])
    # what was not predicted is not an error of a prediction
    error = change / size if count > 1 else 0.0
    signal = feedback(errors, count, error, gap, settings)
    return fast_interval(interval, signal, settings) if count > 1 else interval


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
    (chosen,) = scratch
    entries, spent = account
    belief, due, counts, last, intervals, errors, taken = state
    values, status, source, scale, units = outputs
    part, factor, shift = constants(numbers[SCALE])
    columns = rows.shape[1]
    controllers = due.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    inline = words.shape[1] > 0
    changes = np.empty(columns)
    grid = numbers[GRID]
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        row = rows[index]
        fresh = 0
        if not paused:
            for controller in range(controllers):
                wanted = step >= due[controller]
                if wanted and controllers > 1:
                    wanted = _room(rule, taken, controller, counts[controller], step)
                chosen[controller] = wanted
                fresh += wanted
            if fresh and account_remaining(entries, spent, step) < rule[CHARGE]:
                fresh = 0  # wait: the first step that the ledger allows is taken
            if fresh:
                if account_charge(entries, spent, step, rule[CHARGE]) != ACCEPTED:
                    return index, REFUSED
                units[index] = rule[CHARGE]
                if not inline:
                    return index, NOISE
                for column in range(columns):
                    if chosen[column * apart]:
                        at = index * columns + column
                        if not draw(words, at, part, factor, shift, given, column):
                            return index, NOISE
        else:
            paused = False
            for controller in range(controllers):
                fresh += chosen[controller]
        if fresh:
            for controller in range(controllers):
                if chosen[controller]:
                    gap = step - last[controller]
                    first = counts[controller] == 0
                    change, size = 0.0, 0.0
                    if controllers == 1:
                        correct_all(belief, row, given, numbers[VARIANCE], gap, model, first, changes)
                        for column in range(columns):
                            change += changes[column]
                            size += max(belief[ESTIMATE, column], 0.0)
                    else:
                        measurement = row[controller] + given[controller]
                        change = abs(
                            correct(belief, controller, measurement, numbers[VARIANCE], gap, model, first)
                        )
                        size = max(belief[ESTIMATE, controller], 0.0)
                    if controllers > 1:
                        taken[controller, counts[controller] % rule[SAMPLES]] = step
                    counts[controller] += 1
                    intervals[controller] = _control(
                        rule,
                        settings,
                        errors[controller],
                        counts[controller],
                        change,
                        max(size, numbers[SANITY]),
                        gap,
                        intervals[controller],
                    )
                    last[controller] = step
                    due[controller] = step + int(intervals[controller])
        show(index, fresh, last, belief, grid, values, status, source)
        scale[index] = numbers[SCALE] * grid if source[index] > 0 else 0.0
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
