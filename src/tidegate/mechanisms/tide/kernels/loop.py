"""The compiled loop of Tide: measure when it is due and the ledger allows it, else predict.

It pauses (returns) where Python must help: for a draw that floating point cannot decide or the noise of a wide
step, for hyper-parameters and a schedule that are due again, or because the ledger refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.mechanisms.kernels.loops import APPROXIMATED, DONE, FRESH, NOISE, OWN, REFUSED, Account
from tidegate.noise.kernels import constants, laplace_draw
from tidegate.structures.kernels.smoothing import WIDER, smooth
from tidegate.structures.kernels.state_space import UNSEEN
from tidegate.structures.kernels.tracking import (
    COUNT,
    FACTOR,
    LAST,
    MISFIT,
    NEXT_FIT,
    Book,
    Room,
    Season,
    one_step_on,
    take_in,
)

# why the loop returned, besides
FIT = OWN  # hyper-parameters and schedule are due; the step's measurement is already taken in

# positions in `plan`
CHOICE = 0  # the row of the tables that is followed
DUE = 1  # the next step to be measured
REMAINDER = 2  # of the division that makes the gaps
ALARM = 3  # 1 while the model does not fit
TAKEN = 4  # the row of the tables of the measurement in hand
LAST_FIT = 5  # the number of measurements at the last estimate
STAGE = 6  # 1 where the first window looks again, at once, after its opening showed nothing
PLAN = 7

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
BEYOND_NOISE = 12.0  # scales; noise is larger at 6 of a million measurements
PATIENCE = 16  # measurements, at least, between an estimate and the next that an alarm may cause


class Rule(NamedTuple):
    """What is public and stays as it is."""

    opens_until: int  # the last step of the first window of this run
    dense: int  # the row of the tables with a measurement at each step
    opening: int  # the row of the very first measurement; the next row is the second one
    first: (
        int  # rows until the same choice for the first window, and again until it after a second measurement
    )
    block: int  # steps that are revised together, 0: none
    grid: float
    nonnegative: bool
    shares: Any  # tables with a row for each choice, whole numbers
    scales: Any  # and real ones


class Work(NamedTuple):
    """What the loop and its caller hand to each other."""

    given: Any  # the noise of each column
    measured: Any  # its value with it


class Kept(NamedTuple):
    """Rings over the steps that are still to be revised."""

    units: Any
    scale: Any
    source: Any
    measured: Any  # of each column, with its noise; of use where units were spent


class TideOutputs(NamedTuple):
    """What the steps of a batch release: as `Outputs`, and the deviation of each class of columns."""

    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
    deviations: Any


class Revised(NamedTuple):
    """What became known of earlier steps; `count` is one number, of how many."""

    values: Any
    deviations: Any
    source: Any
    scale: Any
    units: Any
    count: Any


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
def _choice(rule: Any, plan: Any, measured: int, step: int) -> Any:
    """The row of the tables that a measurement at this step follows, after so many of them."""
    if measured <= plan[STAGE]:
        return rule.opening + measured
    choice = rule.dense if plan[ALARM] else plan[CHOICE]
    return choice + rule.first * (1 + plan[STAGE]) if step <= rule.opens_until else choice


@kernel
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    rule: Any,
    words: Any,
    work: Any,
    account: Any,
    plan: Any,
    book: Any,
    season: Any,
    room: Any,
    kept: Any,
    outputs: Any,
    revised: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    rule, book, season, room = Rule(*rule), Book(*book), Season(*season), Room(*room)
    # arrays are taken out once: a loop that looks them up in a tuple counts its references at each look
    given, measured = Work(*work)
    entries, numbers = Account(*account)
    kept_units, kept_scale, kept_source, kept_measured = kept = Kept(*kept)
    values, status, source, scale, units, deviations = TideOutputs(*outputs)
    shares, scales, clock, health, parameters = (
        rule.shares,
        rule.scales,
        book.clock,
        book.health,
        book.parameters,
    )
    kind, total, variances, believed = book.kind, room.total, room.variance, room.values
    keep, classes, grid = kept_units.size, parameters.shape[0], rule.grid
    columns = rows.shape[1]
    inline = words.shape[1] > 0
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        fresh = paused != DONE
        if paused == DONE:
            one_step_on(book, step, season, room)
            if step >= plan[DUE]:
                choice = _choice(rule, plan, clock[COUNT], step)
                charge = shares[choice, CHARGE]
                # else the first step that allows it
                if account_remaining(entries, numbers, step) >= charge:
                    if account_charge(entries, numbers, step, charge) != ACCEPTED:
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
            take_in(book, step, season, scales[plan[TAKEN], VARIANCE], measured, room)
            _watch(plan, clock, health, total, scales[rule.dense, VARIANCE])
            follows = rule.dense if plan[ALARM] else plan[CHOICE]
            plan[DUE] = step + next_gap(shares, follows, plan)
            if clock[COUNT] >= clock[NEXT_FIT]:
                return index, FIT
        paused = DONE
        # where the model is in doubt, a dense measurement stands for itself
        raw = (
            fresh
            and plan[ALARM] == 1
            and shares[plan[TAKEN], MEASUREMENTS] == shares[rule.dense, MEASUREMENTS]
        )
        status[index] = FRESH if fresh else APPROXIMATED
        source[index] = clock[LAST]
        scale[index] = scales[plan[TAKEN], SCALE] * grid if clock[LAST] > 0 else 0.0
        for c in range(classes):
            variance = scales[plan[TAKEN], VARIANCE] if raw else variances[c] + parameters[c, UNSEEN]
            deviations[index, c] = (
                np.sqrt(max(variance, 0.0)) * health[FACTOR] * grid if clock[LAST] > 0 else np.inf
            )
        shown = values[index]
        shown[:] = measured if raw else believed
        if fresh:
            _let_stand(measured, scale[index], grid, kind, shown, deviations[index])
        for column in range(columns):
            shown[column] = (max(shown[column], 0.0) if rule.nonnegative else shown[column]) * grid
        if keep:
            at = step % keep
            kept_units[at], kept_scale[at], kept_source[at] = units[index], scale[index], source[index]
            kept_measured[at] = measured
            if step % rule.block == 0 and step >= keep:
                revise(step, rule.block, grid, rule.nonnegative, book, season, kept, revised)
    return rows.shape[0], DONE


@kernel
def _let_stand(measured: Any, scale: float, grid: float, kind: Any, values: Any, deviations: Any) -> None:
    """Where a value is further from its measurement than noise can explain, the measurement is the better one.

    The model takes what comes once for noise; `scale` and deviations are in the unit of releases. Columns of a class
    have one deviation, so that it becomes wider for all of them.
    """
    for column in range(values.size):
        if abs(values[column] - measured[column]) * grid > BEYOND_NOISE * scale:
            values[column] = measured[column]
            deviations[kind[column]] = max(deviations[kind[column]], np.sqrt(2.0) * scale)


@kernel
def revise(
    last: int, length: int, grid: float, nonnegative: bool, book: Any, season: Any, kept: Any, revised: Any
) -> None:
    """Write the smoothed values of the `length` oldest of the kept steps behind what `revised` has."""
    book, season, kept, revised = Book(*book), Season(*season), Kept(*kept), Revised(*revised)
    kept_units, kept_scale, kept_source, kept_measured = kept
    values, deviations, source, scale, units, count = revised
    keep, kind = kept_units.size, book.kind
    at = count[0]
    part, doubt = values[at : at + length], deviations[at : at + length]
    rings = (
        book.kept_spread,
        book.kept_variance,
        book.kept_total,
        book.kept_innovation,
        book.kept_value,
    )
    smooth(last, length, book.parameters, book.kind, season.once, rings, book.settled, part, doubt)
    factor = book.health[FACTOR] * WIDER * grid
    for row in range(length):
        place = (last - keep + 1 + row) % keep
        source[at + row], scale[at + row] = kept_source[place], kept_scale[place]
        units[at + row] = kept_units[place]
        for c in range(doubt.shape[1]):
            doubt[row, c] = np.sqrt(doubt[row, c]) * factor
        if kept_units[place] > 0:
            _let_stand(kept_measured[place], kept_scale[place], grid, kind, part[row], doubt[row])
        for column in range(part.shape[1]):
            value = part[row, column]
            part[row, column] = (max(value, 0.0) if nonnegative else value) * grid
    count[0] = at + length
