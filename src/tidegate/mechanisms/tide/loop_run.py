"""The compiled loop of Tide: measure when it is due and the ledger allows it, else predict.

It pauses (returns) where Python must help: for a draw that floating point cannot decide, the noise of a wide
step or of a new group, for hyper-parameters and a schedule that are due again, or because the ledger refused.

A *group* is what measurements that share noise are charged as: it is charged with its first measurement, reaches on with
every other one, and ends when it has all of its measurements, when another choice is followed, or after a window
without any. A semiorder begins with as many eighths of its budget as the window has left, and takes the others as soon as
they come back: its noise is larger until then, and each part is a group that reaches on to its last measurement.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.ledger.kernels import (
    ACCEPTED,
    account_charge,
    account_charge_group,
    account_extend_group,
    account_remaining,
)
from tidegate.mechanisms.kernels.loops import (
    APPROXIMATED,
    DONE,
    FRESH,
    NOISE,
    OWN,
    REFUSED,
    Account,
    largest,
)
from tidegate.noise.kernels import constants, laplace_draw
from tidegate.structures.kernels.smoothing import WIDER, smooth
from tidegate.structures.kernels.state_space import UNSEEN
from tidegate.structures.kernels.tracking import (
    COUNT,
    LAST,
    MISFIT,
    NEXT_FIT,
    Book,
    Room,
    Season,
    doubted,
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
GROUP_ROW = 7  # the row of the tables that the open group, or the last one, follows
GROUP_FIRST = 8  # its first step
GROUP_LAST = 9  # and its last one so far
LEFT = 10  # measurements that the open group may still have; 0 where none is open
NUMBER = (
    11  # measurements with shared noise so far, and those that groups were left without: where noise is found
)
PLACED = 12  # measurements of the open group
PLACE = 13  # its number, of the groups that follow one choice: not all of them are equally long
PARTS = 14  # charges that the open group has, a semiorder several of them; see `Work.parts`
LEVEL = 15  # eighths of its budget that they are
PLAN = 16

# columns of `parts`
PART_FIRST = 0  # the first step that was charged
PART_UNITS = 1
PART_BEGUN = 2  # its row in `begun`; -1 where it was begun before this batch
PART_NUMBERS = 3
EIGHTHS = 8

# columns of `shares` (whole numbers), one row for each choice
MEASUREMENTS = 0  # k in a window
SPAN = 1  # steps over which k gaps stretch
CHARGE = 2  # ledger units of one, or of a group of them
LENGTH = 3  # measurements of a group, at most; 0 where each has noise of its own, ENDLESS for a semiorder
BREADTH = 4  # measurements of a semiorder that a window may contain; else 0
PERIOD = 5  # of so many groups in turn
LONGER = 6  # the first so many have one measurement more
STAIRS = 7  # of a semiorder: the row of its first eighth, and six more follow
SHARES = 8
ENDLESS = 1 << 60

# columns of `scales`
SCALE = 0  # of Laplace noise with this variance, in grid units; the standard deviation of Gaussian noise
VARIANCE = 1
KNOWN_AS = 2  # the noise as the filter takes it: the variance, negative where it is shared
SCALES = 3

# positions in `taken`
POSITION = 0  # of the next value in `pool`
END = 1  # of its values
POOL_ROW = 2  # the row of the tables whose law they are of
BEGUN = 3  # groups that were begun in this batch
FURTHER = 4  # the step to which the group reaches on that was open before it; 0 if it does not
TAKEN_NUMBERS = 5

# answers of `_pay`
WAIT, PAID, OVERSPENT = 0, 1, 2

SUSPECT = 4.0  # squared standardised innovations, recent mean, that raise the alarm
CALM = 1.5  # and that end it
# scales that noise exceeds at 6 of a million measurements, and that are its standard deviation
BEYOND_LAPLACE, OF_LAPLACE = 12.0, 2.0**0.5
BEYOND_GAUSSIAN, OF_GAUSSIAN = 4.5, 1.0
PATIENCE = 16  # measurements, at least, between an estimate and the next that an alarm may cause


class Rule(NamedTuple):
    """What is public and stays as it is."""

    opens_until: int  # the last step of the first window of this run
    dense: int  # the row of the tables with a measurement at each step, for a time in which the model does not fit
    opening: int  # the row of the very first measurement; the next row is the second one
    first: (
        int  # rows until the same choice for the first window, and again until it after a second measurement
    )
    block: int  # steps that are revised together, 0: none
    rows: int  # of the tables, before they are repeated for a first window
    window: int  # steps after which budget comes back; 0: never
    grid: float
    nonnegative: bool
    gaussian: (
        bool  # whether noise that is not shared is Gaussian, which is drawn ahead and taken out of the pool
    )
    beyond: float  # scales that no noise exceeds
    deviation: float  # scales that are the standard deviation of noise
    shares: Any  # tables with a row for each choice, whole numbers
    scales: Any  # and real ones


class Work(NamedTuple):
    """What the loop and its caller hand to each other."""

    given: Any  # the noise of each column
    measured: Any  # its value with it
    pool: Any  # SECRET: noise of the next measurements that share it, or have Gaussian noise, one row each
    taken: Any  # what of it is used, and which groups were charged; whole numbers, above
    marks: Any  # the last steps of an open semiorder
    begun: Any  # the groups of this batch: first step, last step, units
    parts: Any  # what the open group was charged as


class Kept(NamedTuple):
    """Rings over the steps that are still to be revised."""

    units: Any
    scale: Any
    source: Any
    measured: Any  # of each column, with its noise; of use where units were spent


class Memory(NamedTuple):
    """What a run knows: each of these is a plain tuple as well, but for the plan."""

    plan: Any  # numbers, above
    book: Any  # of the tracker, see `structures/kernels/tracking`
    season: Any
    room: Any
    kept: Any  # `Kept`


class TideOutputs(NamedTuple):
    """What the steps of a batch release: as `Outputs`, the deviation of each class, and what the ledger hears."""

    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
    deviations: Any
    charged: Any  # units of each step by itself, without those of groups


class Revised(NamedTuple):
    """What became known of earlier steps; `count` is one number, of how many."""

    values: Any
    deviations: Any
    source: Any
    scale: Any
    units: Any
    count: Any


@lean
def next_gap(shares: Any, choice: int, plan: Any) -> Any:
    """Steps to the next measurement: k of them make SPAN exactly, wherever one begins to count."""
    reached = plan[REMAINDER] + shares[choice, SPAN]
    gap = reached // shares[choice, MEASUREMENTS]
    plan[REMAINDER] = reached - gap * shares[choice, MEASUREMENTS]
    return max(1, gap)


@lean
def _follows(rule: Any, plan: Any) -> Any:
    """The choice that is followed now: one with a measurement at each step where the model does not fit."""
    shares = rule.shares
    sparse = shares[plan[CHOICE], MEASUREMENTS] < shares[rule.dense, MEASUREMENTS]
    return rule.dense if plan[ALARM] and sparse else plan[CHOICE]


@lean
def _watch(rule: Any, plan: Any, clock: Any, health: Any, total: Any) -> None:
    """Notice that the model does not fit, where dense measurements would do better than it."""
    if plan[ALARM] == 0:
        if health[MISFIT] > SUSPECT and health[MISFIT] * largest(total) > rule.scales[rule.dense, VARIANCE]:
            plan[ALARM] = 1
            if rule.shares[plan[CHOICE], LENGTH] == ENDLESS:
                plan[CHOICE] = _follows(rule, plan)  # a semiorder that was left needs a window to begin again
            waiting = (
                plan[LAST_FIT] + PATIENCE + plan[LAST_FIT] // 4
            )  # fits get rare even if nothing ever fits
            clock[NEXT_FIT] = min(clock[NEXT_FIT], max(clock[COUNT], waiting))
    elif health[MISFIT] < CALM:
        plan[ALARM] = 0


@lean
def _choice(rule: Any, plan: Any, measured: int, step: int) -> Any:
    """The row of the tables that a measurement at this step follows, after so many of them."""
    if measured <= plan[STAGE]:
        return rule.opening + measured
    choice = _follows(rule, plan)
    return choice + rule.first * (1 + plan[STAGE]) if step <= rule.opens_until else choice


@lean
def _goes_on(rule: Any, plan: Any, choice: int, step: int) -> Any:
    """Whether a measurement at this step, which would follow `choice`, belongs to the group that is open."""
    if plan[LEFT] == 0:
        return False
    if rule.window == 0:
        return True  # what is charged never comes back
    # rows for the first window are the same choices with less budget
    same = choice < 3 * rule.rows and choice % rule.rows == plan[GROUP_ROW] % rule.rows
    # before a semiorder begins a group has all of its measurements: what it costs is not there for others before
    lengths = rule.shares[:, LENGTH]
    same = same or (lengths[choice] == ENDLESS and lengths[plan[GROUP_ROW]] < ENDLESS)
    return same and step - plan[GROUP_LAST] < rule.window


@lean
def group_length(shares: Any, row: int, place: int) -> Any:
    """How many measurements the group in this place has, of those that follow one row."""
    return shares[row, LENGTH] + (1 if place % shares[row, PERIOD] < shares[row, LONGER] else 0)


@lean
def leave_group(plan: Any, taken: Any, shares: Any) -> None:
    """End the open group before it has all of its measurements: the rest of its noise is never used."""
    if plan[LEFT] > 0:
        if shares[plan[GROUP_ROW], LENGTH] < ENDLESS:
            taken[POSITION] += plan[LEFT]
            plan[NUMBER] += plan[LEFT]
        else:
            taken[POSITION] = taken[END]
        plan[LEFT] = 0


@lean
def _pay(rule: Any, plan: Any, work: Any, account: Any, choice: int, step: int) -> Any:
    """Charge a measurement at this step, before it has any noise: PAID, OVERSPENT, or WAIT where it must not be made."""
    shares, taken, entries, numbers = rule.shares, work.taken, account.entries, account.numbers
    if shares[choice, LENGTH] == ENDLESS:
        choice %= rule.rows  # it takes what is left in a first window, too
    if _goes_on(rule, plan, choice, step):
        row = plan[GROUP_ROW]
        breadth = shares[row, BREADTH]
        # no window may contain more measurements of a semiorder than it was made for
        if breadth and plan[PLACED] >= breadth and step - work.marks[plan[PLACED] % breadth] < rule.window:
            return WAIT
        if account_charge(entries, numbers, step, 0) != ACCEPTED:
            return OVERSPENT
        answer = _reach_on(plan, work, account, step)
        if answer == OVERSPENT:
            return OVERSPENT
        if answer == PAID:
            if breadth and plan[LEVEL] < EIGHTHS:
                _climb(rule, plan, work, account, row, step)
            else:
                plan[TAKEN] = row
            return PAID
    leave_group(plan, taken, shares)
    if shares[choice, LENGTH] == ENDLESS:
        plan[LEVEL], plan[PARTS] = 0, 0
        _climb(rule, plan, work, account, choice, step)
        if plan[LEVEL] == 0:
            return WAIT
        plan[GROUP_ROW], plan[GROUP_FIRST] = choice, step
        plan[LEFT], plan[PLACED] = ENDLESS, 0
        taken[POSITION] = taken[END]  # it begins anew
        return PAID
    charge = shares[choice, CHARGE]
    if account_remaining(entries, numbers, step) < charge:
        return WAIT  # the first step that allows it
    plan[TAKEN] = choice
    if shares[choice, LENGTH] == 0:
        return PAID if account_charge(entries, numbers, step, charge) == ACCEPTED else OVERSPENT
    plan[PARTS] = 0
    if not _begin(plan, work, account, step, charge):
        return WAIT  # no room for it in this batch
    plan[PLACE] = plan[PLACE] + 1 if plan[GROUP_ROW] == choice else 0
    plan[GROUP_ROW], plan[GROUP_FIRST] = choice, step
    plan[LEFT], plan[PLACED] = group_length(shares, choice, plan[PLACE]), 0
    return PAID


@lean
def _begin(plan: Any, work: Any, account: Any, step: int, units: int) -> Any:
    """Charge one more part of the open group, from this step on; whether there is room for it."""
    if account_charge_group(account.entries, account.numbers, step, step, units) != ACCEPTED:
        return False
    at, part = work.taken[BEGUN], work.parts[plan[PARTS]]
    work.begun[at, 0], work.begun[at, 1], work.begun[at, 2] = step, step, units
    part[PART_FIRST], part[PART_UNITS], part[PART_BEGUN] = step, units, at
    work.taken[BEGUN] = at + 1
    plan[PARTS] += 1
    return True


@lean
def _climb(rule: Any, plan: Any, work: Any, account: Any, row: int, step: int) -> None:
    """Charge as many more eighths of a semiorder as the window has left, for the measurement in hand and later ones."""
    eighth = rule.shares[row, CHARGE] // EIGHTHS
    left = account_remaining(account.entries, account.numbers, step) // eighth
    more = min(EIGHTHS - plan[LEVEL], left)
    if more > 0 and _begin(plan, work, account, step, more * eighth):
        plan[LEVEL] += more
    if plan[LEVEL] > 0:
        plan[TAKEN] = row if plan[LEVEL] == EIGHTHS else rule.shares[row, STAIRS] + plan[LEVEL] - 1


@lean
def _reach_on(plan: Any, work: Any, account: Any, step: int) -> Any:
    """Let all parts of the open group reach on to this step: PAID, WAIT where none can, OVERSPENT where only some can."""
    for at in range(plan[PARTS]):
        part = work.parts[at]
        answer = account_extend_group(
            account.entries, account.numbers, part[PART_FIRST], plan[GROUP_LAST], part[PART_UNITS], step
        )
        if answer != ACCEPTED:
            return OVERSPENT if at else WAIT
        if part[PART_BEGUN] >= 0:
            work.begun[part[PART_BEGUN], 1] = step
        else:
            work.taken[FURTHER] = step
    return PAID


@lean
def _take(plan: Any, work: Any) -> None:
    """Take the noise of a measurement out of the pool."""
    at = work.taken[POSITION]
    for column in range(work.given.size):
        work.given[column] = work.pool[at, column]
        work.pool[at, column] = 0
    work.taken[POSITION] = at + 1
    plan[NUMBER] += 1


@lean
def _place(rule: Any, plan: Any, work: Any, step: int) -> None:
    """Count a measurement of the open group."""
    breadth = rule.shares[plan[GROUP_ROW], BREADTH]
    if breadth:
        work.marks[plan[PLACED] % breadth] = step
    else:
        plan[LEFT] -= 1
    plan[PLACED] += 1
    plan[GROUP_LAST] = step


@lean
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    rule: Any,
    words: Any,
    work: Any,
    account: Any,
    state: Any,
    outputs: Any,
    revised: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    plan, book, season, room, kept = Memory(*state)
    rule, book, season, room = Rule(*rule), Book(*book), Season(*season), Room(*room)
    work, account = Work(*work), Account(*account)
    given, measured, taken = work.given, work.measured, work.taken
    kept_units, kept_scale, kept_source, kept_measured = kept = Kept(*kept)
    values, status, source, scale, units, deviations, charged = TideOutputs(*outputs)
    shares, scales, clock, health, parameters = (
        rule.shares,
        rule.scales,
        book.clock,
        book.health,
        book.parameters,
    )
    kind, total, claimed, believed = book.kind, room.total, room.claimed, room.values
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
                begun, shared = taken[BEGUN], False
                answer = _pay(rule, plan, work, account, choice, step)
                if answer == OVERSPENT:
                    return index, REFUSED
                if answer == PAID:
                    fresh = True
                    row = plan[TAKEN]
                    shared = shares[row, LENGTH] > 0
                    # a group is paid for with its first measurement
                    units[index] = 0 if shared else shares[row, CHARGE]
                    if taken[BEGUN] > begun:
                        units[index] = work.begun[begun, 2]
                    charged[index] = 0 if shared else shares[row, CHARGE]
                    pooled = shared or rule.gaussian
                    empty = taken[POSITION] >= taken[END] or taken[POOL_ROW] != row
                    if empty if pooled else not inline:
                        return index, NOISE
                if answer == PAID and not shared and not rule.gaussian:
                    part, factor, shift = constants(scales[choice, SCALE])
                    for column in range(columns):
                        at = index * columns + column
                        noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
                        if not decided:
                            return index, NOISE
                        given[column] = noise
        if fresh and paused != FIT:
            if shares[plan[TAKEN], LENGTH] > 0:
                _take(plan, work)
                _place(rule, plan, work, step)
            elif rule.gaussian:
                _take(plan, work)
            for column in range(columns):
                measured[column] = float(rows[index, column] + given[column])
            take_in(book, step, season, scales[plan[TAKEN], KNOWN_AS], measured, room)
            _watch(rule, plan, clock, health, total)
            plan[DUE] = step + next_gap(shares, _follows(rule, plan), plan)
            if clock[COUNT] >= clock[NEXT_FIT]:
                return index, FIT
        paused = DONE
        # where the model is in doubt, a dense measurement stands for itself
        raw = (
            fresh
            and plan[ALARM] == 1
            and shares[plan[TAKEN], MEASUREMENTS] == shares[rule.dense, MEASUREMENTS]
            and plan[TAKEN] < 3 * rule.rows  # and has not the noise of a semiorder that has only begun
        )
        status[index] = FRESH if fresh else APPROXIMATED
        source[index] = clock[LAST]
        scale[index] = scales[plan[TAKEN], SCALE] * grid if clock[LAST] > 0 else 0.0
        for c in range(classes):
            variance = scales[plan[TAKEN], VARIANCE] if raw else claimed[c]
            deviations[index, c] = np.sqrt(max(variance, 0.0)) * grid if clock[LAST] > 0 else np.inf
        shown = values[index]
        for column in range(columns):
            shown[column] = measured[column] if raw else believed[column]
        if fresh:
            _let_stand(rule, measured, scale[index], kind, shown, deviations[index])
        for column in range(columns):
            shown[column] = (max(shown[column], 0.0) if rule.nonnegative else shown[column]) * grid
        if keep:
            at = step % keep
            kept_units[at], kept_scale[at], kept_source[at] = units[index], scale[index], source[index]
            for column in range(columns):
                kept_measured[at, column] = measured[column]
            if step % rule.block == 0 and step >= keep:
                revise(step, rule.block, rule, book, season, kept, revised)
    return rows.shape[0], DONE


@lean
def _let_stand(rule: Any, measured: Any, scale: float, kind: Any, values: Any, deviations: Any) -> None:
    """Where a value is further from its measurement than noise can explain, the measurement is the better one.

    The model takes what comes once for noise; `scale` and deviations are in the unit of releases. Columns of a class
    have one deviation, so that it becomes wider for all of them. A column by itself deviates by no more than it is away
    from its measurement, and the measurement from the truth: its noise is known, however much the model is in doubt.
    """
    alone, noise = deviations.size == values.size, rule.deviation * scale
    for column in range(values.size):
        away = abs(values[column] - measured[column]) * rule.grid
        if away > rule.beyond * scale:
            values[column], away = measured[column], 0.0
            deviations[kind[column]] = max(deviations[kind[column]], noise)
        if alone:
            deviations[kind[column]] = min(deviations[kind[column]], away + noise)


@lean
def revise(
    last: int,
    length: int,
    rule: Any,
    book: Any,
    season: Any,
    kept: Any,
    revised: Any,
) -> None:
    """Write the smoothed values of the `length` oldest of the kept steps behind what `revised` has."""
    rule, book, season = Rule(*rule), Book(*book), Season(*season)
    kept, revised = Kept(*kept), Revised(*revised)
    kept_units, kept_scale, kept_source, kept_measured = kept
    values, deviations, source, scale, units, count = revised
    keep, kind, grid = kept_units.size, book.kind, rule.grid
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
    for row in range(length):
        place = (last - keep + 1 + row) % keep
        source[at + row], scale[at + row] = kept_source[place], kept_scale[place]
        units[at + row] = kept_units[place]
        for c in range(doubt.shape[1]):
            # what is left of the error of a prediction, and a part of the noise, as for values at once
            predicted, known = book.kept_variance[place, c], doubt[row, c] - book.parameters[c, UNSEEN]
            rest = min(1.0, known / predicted) if predicted > 0.0 else 1.0
            claimed = rest * rest * doubted(book, c, predicted) + (1.0 - rest) * known
            doubt[row, c] = np.sqrt(max(claimed, 0.0)) * WIDER * grid
        if kept_source[place] == last - keep + 1 + row:  # it was measured
            _let_stand(rule, kept_measured[place], kept_scale[place], kind, part[row], doubt[row])
        for column in range(part.shape[1]):
            value = part[row, column]
            part[row, column] = (max(value, 0.0) if rule.nonnegative else value) * grid
        if kept_source[place] == 0:  # nothing had been measured yet, and nothing was believed but the prior
            for column in range(part.shape[1]):
                part[row, column] = 0.0
            for c in range(doubt.shape[1]):
                doubt[row, c] = np.inf
    count[0] = at + length
