"""The compiled loop of FAST: measure where the controller asks for it and the ledger allows it, else predict."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.compiled import lean
from tidegate.ledger.kernels import (
    ACCEPTED,
    account_charge,
    account_charge_group,
    account_extend_group,
    account_remaining,
)
from tidegate.mechanisms.kernels.loops import DONE, NOISE, REFUSED, Account, Outputs
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE, Model, correct, correct_all
from tidegate.mechanisms.sampled.kernels.measuring import draw, restart, show
from tidegate.mechanisms.sampled.kernels.pid import Control, fast_interval, feedback
from tidegate.noise.kernels import constants


class Rule(NamedTuple):
    """What is public and stays as it is."""

    charge: int  # ledger units of a measured step, or of a group of them that shares noise
    samples: int  # measurements that a window allows
    window: int  # steps in a window, 0: all steps
    period: int  # steps between measurements without control, 0: the controller decides
    scale: float  # of the noise, in grid units
    shown: float  # what releases say of it
    variance: float  # that the filter takes the noise to have
    grid: float
    sanity: float  # the least denominator of a relative error, in grid units
    shares: bool  # whether measurements share noise, which the caller draws
    silent_until: int  # up to this step no group opens, because a state was dropped


class Memory(NamedTuple):
    """The arrays that a run keeps: of each column what is believed, of each controller the rest."""

    belief: Any  # the filter's, see `kalman`
    due: Any  # the next step to be measured
    counts: Any  # measurements so far
    last: Any  # the step of the last one
    intervals: Any  # to the next one
    errors: Any  # a ring of recent errors of predictions
    taken: Any  # a ring of the steps that were measured (printed calibration, shared noise)


class Work(NamedTuple):
    """What the loop and its caller hand to each other."""

    given: Any  # the noise of each column
    chosen: Any  # of each controller: whether it measures at this step
    changes: Any  # of each column: by how much its estimate is corrected


# positions in `progress`
USED = 0  # measurements that have taken noise
OPENED = 1  # groups that they have opened
CHARGED = 2  # rows of `groups`


class Shared(NamedTuple):
    """Noise that the next measurements share, and what pays for it; None is handed over where each has its own."""

    noise: Any  # measurements × columns, looked at only where it is paid for
    opens: Any  # which of these measurements open a group
    groups: Any  # (first, last, units) of groups that were charged: the open one, and those that follow
    progress: Any  # numbers, above


# what `_pay` answers besides units
WAITS = -1
REFUSES = -2


@lean
def _pay(rule: Any, opens: Any, groups: Any, progress: Any, entries: Any, numbers: Any, step: int) -> Any:
    """Pay for a measurement that shares noise: units, or that it waits for room, or that the ledger refuses.

    An open group reaches on to the measurement or, where no window meets both, is charged anew for it.
    """
    opened, last = progress[OPENED], progress[CHARGED] - 1
    opening = opened < opens.size and opens[opened] == progress[USED]
    if opening and (step <= rule.silent_until or account_remaining(entries, numbers, step) < rule.charge):
        return WAITS
    cost = 0
    if opening or (rule.window > 0 and step - groups[last, 1] > rule.window):
        if account_charge_group(entries, numbers, step, step, rule.charge) != ACCEPTED:
            return REFUSES
        cost = rule.charge
        groups[last + 1, 0] = groups[last + 1, 1] = step
        groups[last + 1, 2] = cost
        progress[CHARGED] += 1
        progress[OPENED] += opening
    else:
        if (
            account_extend_group(entries, numbers, groups[last, 0], groups[last, 1], rule.charge, step)
            != ACCEPTED
        ):
            return REFUSES
        groups[last, 1] = step
    account_charge(entries, numbers, step, 0)  # the account stands at the step that is measured
    return cost


@lean
def _room(rule: Any, taken: Any, controller: int, count: int, step: int) -> bool:
    """Whether any window that ends with this step has another measurement left, by this controller's own count."""
    oldest = taken[controller, count % rule.samples]  # 0: fewer than so many were taken
    return bool(oldest == 0 or (rule.window > 0 and oldest <= step - rule.window))


@lean
def _control(
    rule: Any, control: Any, errors: Any, count: int, change: float, size: float, gap: int, interval: float
) -> float:
    """The next interval after measurement number `count`."""
    if rule.period > 0:
        return float(rule.period)
    # what was not predicted is not an error of a prediction
    error = change / size if count > 1 else 0.0
    signal = feedback(errors, count, error, gap, control)
    return fast_interval(interval, signal, control) if count > 1 else interval


@lean
def _wanted(rule: Any, due: Any, counts: Any, taken: Any, step: int, chosen: Any) -> int:
    """Which controllers want to measure; returns how many do."""
    fresh = 0
    for controller in range(chosen.size):
        wanted = step >= due[controller]
        if wanted and (rule.shares or chosen.size > 1):
            wanted = _room(rule, taken, controller, counts[controller], step)
        chosen[controller] = wanted
        fresh += wanted
    return fresh


@lean
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    afresh: Any,
    rules: Any,
    words: Any,
    shared: Any,
    work: Any,
    account: Any,
    state: Any,
    outputs: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    rule, model, control = Rule(*rules[0]), Model(*rules[1]), Control(*rules[2])
    given, chosen, changes = Work(*work)
    entries, numbers = Account(*account)
    belief, due, counts, last, intervals, errors, taken = Memory(*state)
    values, status, source, scale, units = Outputs(*outputs)
    law = constants(rule.scale)
    columns = rows.shape[1]
    controllers = chosen.size
    apart = 1 if controllers > 1 else 0  # column · apart is the controller of a column
    inline = words.shape[1] > 0
    if shared is not None:  # decided when the loop is compiled
        noise, opens, groups, progress = Shared(*shared)
    if afresh is not None:  # likewise
        length, memory, beginning, opened = afresh
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        if afresh is not None:
            step = 1 + index % length
            if step == 1 and paused == DONE:  # else the step was charged already, and its noise is now given
                restart(memory, beginning, numbers, opened)
        row = rows[index]
        fresh = 0
        if shared is not None:
            paused = DONE  # what it paused for is paid when it goes on
            fresh = _wanted(rule, due, counts, taken, step, chosen)
            if fresh:
                used = progress[USED]
                if used == noise.shape[0]:
                    return index, NOISE  # for this measurement and more
                cost = _pay(rule, opens, groups, progress, entries, numbers, step)
                if cost == REFUSES:
                    return index, REFUSED
                if cost == WAITS:
                    chosen[0] = False
                    fresh = 0
                else:
                    for column in range(columns):
                        given[column] = noise[used, column]
                    progress[USED] = used + 1
                    units[index] = cost
        elif paused == DONE:
            fresh = _wanted(rule, due, counts, taken, step, chosen)
            if fresh and account_remaining(entries, numbers, step) < rule.charge:
                fresh = 0  # wait: the first step that the ledger allows is taken
            if fresh:
                if account_charge(entries, numbers, step, rule.charge) != ACCEPTED:
                    return index, REFUSED
                units[index] = rule.charge
                if not inline:
                    return index, NOISE
                for column in range(columns):
                    at = index * columns + column
                    if chosen[column * apart] and not draw(words, at, law, given, column):
                        return index, NOISE
        else:
            paused = DONE
            for controller in range(controllers):
                fresh += chosen[controller]
        if fresh:
            for controller in range(controllers):
                if chosen[controller]:
                    gap = step - last[controller]
                    first = counts[controller] == 0
                    change, size = 0.0, 0.0
                    if controllers == 1:
                        correct_all(belief, row, given, rule.variance, gap, model, first, changes)
                        for column in range(columns):
                            change += changes[column]
                            size += max(belief[ESTIMATE, column], 0.0)
                    else:
                        measurement = row[controller] + given[controller]
                        change = abs(
                            correct(belief, controller, measurement, rule.variance, gap, model, first)
                        )
                        size = max(belief[ESTIMATE, controller], 0.0)
                    if rule.shares or controllers > 1:
                        taken[controller, counts[controller] % rule.samples] = step
                    counts[controller] += 1
                    intervals[controller] = _control(
                        rule,
                        control,
                        errors[controller],
                        counts[controller],
                        change,
                        max(size, rule.sanity),
                        gap,
                        intervals[controller],
                    )
                    last[controller] = step
                    due[controller] = step + int(intervals[controller])
        show(index, fresh, last, belief, rule.grid, values, status, source)
        scale[index] = rule.shown if source[index] > 0 else 0.0
    return rows.shape[0], DONE
