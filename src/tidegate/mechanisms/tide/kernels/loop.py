"""The compiled loop of Tide: measure when it is due and the ledger allows it, else predict.

It pauses (returns) where Python must help: for a draw that floating point cannot decide or the noise of a wide
step, for hyper-parameters and a schedule that are due again, or because the ledger refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.noise.kernels import constants, laplace_draw
from tidegate.structures.kernels.smoothing import WIDER, smooth
from tidegate.structures.kernels.state_space import UNSEEN
from tidegate.structures.kernels.tracking import (
    COUNT,
    FACTOR,
    LAST,
    MISFIT,
    NEXT_FIT,
    one_step_on,
    take_in,
)

# why the loop returned
DONE = 0
NOISE = 1  # the caller supplies the noise of this step in `given`; the step is already charged
REFUSED = 2  # the ledger refused the step
FIT = 3  # hyper-parameters and schedule are due; the step's measurement is already taken in

# positions in `plan`
CHOICE = 0  # the row of the tables that is followed
DUE = 1  # the next step to be measured
REMAINDER = 2  # of the division that makes the gaps
ALARM = 3  # 1 while the model does not fit
TAKEN = 4  # the row of the tables of the measurement in hand
LAST_FIT = 5  # the number of measurements at the last estimate
STAGE = 6  # 1 where the first window looks again, at once, after its opening showed nothing
PLAN = 7

# positions in `rule`
OPENS_UNTIL = 0  # the last step of the first window of this run
DENSE = 1  # the row of the tables with a measurement at each step
OPENING = 2  # the row of the very first measurement; the next row is the second one
FIRST = 3  # rows until the same choice for the first window, and again until it after a second measurement
BLOCK = 4  # steps that are revised together, 0: none
RULE = 5

# columns of `shares` (whole numbers), one row for each choice
MEASUREMENTS = 0  # k in a window
SPAN = 1  # steps over which k gaps stretch
CHARGE = 2  # ledger units of one
SHARES = 3

# columns of `scales`
SCALE = 0  # of the noise, in grid units
VARIANCE = 1
SCALES = 2

SUSPECT = 4.0  # squared standardised innovations, recent mean, that raise the alarm
CALM = 1.5  # and that end it
PATIENCE = 16  # measurements, at least, between an estimate and the next that an alarm may cause

FRESH, APPROXIMATED = 1, 2


@kernel
def next_gap(shares: Any, choice: int, plan: Any) -> Any:
    """Steps to the next measurement: k of them make SPAN exactly, wherever one begins to count."""
    reached = plan[REMAINDER] + shares[choice, SPAN]
    gap = reached // shares[choice, MEASUREMENTS]
    plan[REMAINDER] = reached - gap * shares[choice, MEASUREMENTS]
    return max(1, gap)


@kernel
def _watch(plan: Any, clock: Any, health: Any, total: Any, dense_variance: float) -> None:
    """Notice that the model does not fit, where dense measurements would do better than it."""
    if plan[ALARM] == 0:
        if health[MISFIT] > SUSPECT and health[MISFIT] * total.max() > dense_variance:
            plan[ALARM] = 1
            waiting = (
                plan[LAST_FIT] + PATIENCE + plan[LAST_FIT] // 4
            )  # fits get rare even if nothing ever fits
            clock[NEXT_FIT] = min(clock[NEXT_FIT], max(clock[COUNT], waiting))
    elif health[MISFIT] < CALM:
        plan[ALARM] = 0


@kernel
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    rule: Any,
    shares: Any,
    scales: Any,
    words: Any,
    given: Any,
    measured: Any,
    entries: Any,
    account: Any,
    plan: Any,
    book: Any,
    once: Any,
    weight: Any,
    room: Any,
    grid: float,
    nonnegative: bool,
    kept_units: Any,
    kept_scale: Any,
    kept_source: Any,
    values: Any,
    status: Any,
    source: Any,
    scale: Any,
    units: Any,
    deviations: Any,
    revised: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why).

    `revised` = (values, deviations, source, scale, units, count): what became known of earlier steps.
    """
    columns = rows.shape[1]
    inline = words.shape[1] > 0
    clock, health, parameters = book[5], book[6], book[2]
    classes = parameters.shape[0]
    keep = kept_units.size
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        fresh = paused != DONE
        if paused == DONE:
            one_step_on(book, step, once, weight, room)
            if step >= plan[DUE]:
                choice = rule[DENSE] if plan[ALARM] else plan[CHOICE]
                if step <= rule[OPENS_UNTIL]:
                    choice += rule[FIRST] * (1 + plan[STAGE])
                if clock[COUNT] <= plan[STAGE]:
                    choice = rule[OPENING] + clock[COUNT]
                charge = shares[choice, CHARGE]
                if account_remaining(entries, account, step) >= charge:  # else the first step that allows it
                    if account_charge(entries, account, step, charge) != ACCEPTED:
                        return index, REFUSED
                    fresh = True
                    units[index] = charge
                    plan[TAKEN] = choice
                    if not inline:
                        return index, NOISE
                    part, factor, shift = constants(scales[choice, SCALE])
                    for column in range(columns):
                        at = index * columns + column
                        noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
                        if not decided:
                            return index, NOISE
                        given[column] = noise
        if fresh and paused != FIT:
            for column in range(columns):
                measured[column] = float(rows[index, column] + given[column])
            take_in(book, step, weight, scales[plan[TAKEN], VARIANCE], measured, room)
            _watch(plan, clock, health, room[3], scales[rule[DENSE], VARIANCE])
            follows = rule[DENSE] if plan[ALARM] else plan[CHOICE]
            plan[DUE] = step + next_gap(shares, follows, plan)
            if clock[COUNT] >= clock[NEXT_FIT]:
                return index, FIT
        paused = DONE
        # where the model is in doubt, a dense measurement stands for itself
        raw = (
            fresh
            and plan[ALARM] == 1
            and shares[plan[TAKEN], MEASUREMENTS] == shares[rule[DENSE], MEASUREMENTS]
        )
        status[index] = FRESH if fresh else APPROXIMATED
        source[index] = clock[LAST]
        scale[index] = scales[plan[TAKEN], SCALE] * grid if clock[LAST] > 0 else 0.0
        for c in range(classes):
            variance = scales[plan[TAKEN], VARIANCE] if raw else room[2][c] + parameters[c, UNSEEN]
            deviations[index, c] = (
                np.sqrt(max(variance, 0.0)) * health[FACTOR] * grid if clock[LAST] > 0 else np.inf
            )
        row = measured if raw else room[5]
        if nonnegative:
            for column in range(columns):
                values[index, column] = max(row[column], 0.0) * grid
        else:
            for column in range(columns):
                values[index, column] = row[column] * grid
        if keep:
            at = step % keep
            kept_units[at], kept_scale[at], kept_source[at] = units[index], scale[index], source[index]
            if step % rule[BLOCK] == 0 and step >= keep:
                revise(
                    step,
                    rule[BLOCK],
                    book,
                    once,
                    grid,
                    nonnegative,
                    kept_units,
                    kept_scale,
                    kept_source,
                    revised,
                )
    return rows.shape[0], DONE


@kernel
def revise(
    last: int,
    length: int,
    book: Any,
    once: Any,
    grid: float,
    nonnegative: bool,
    kept_units: Any,
    kept_scale: Any,
    kept_source: Any,
    revised: Any,
) -> None:
    """Write the smoothed values of the `length` oldest of the kept steps behind what `revised` has."""
    values, deviations, source, scale, units, count = revised
    keep = kept_units.size
    at = count[0]
    part, doubt = values[at : at + length], deviations[at : at + length]
    smooth(
        last,
        length,
        keep,
        book[2],
        book[3],
        once,
        book[11],
        book[12],
        book[13],
        book[14],
        book[15],
        book[16],
        part,
        doubt,
    )
    factor = book[6][FACTOR] * WIDER * grid
    for row in range(length):
        kept = (last - keep + 1 + row) % keep
        source[at + row], scale[at + row] = kept_source[kept], kept_scale[kept]
        units[at + row] = kept_units[kept]
        for c in range(doubt.shape[1]):
            doubt[row, c] = np.sqrt(doubt[row, c]) * factor
        for column in range(part.shape[1]):
            value = part[row, column]
            part[row, column] = (max(value, 0.0) if nonnegative else value) * grid
    count[0] = at + length
