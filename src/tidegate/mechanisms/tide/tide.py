"""Tide: measure when it pays, filter by a model, spend nothing on deciding.

Tide is alone on its account. So it knows what a window has left: it keeps its own charges, which are public.

A *group* is measurements that share noise. It is charged as spans: one for a cube; for a semiorder one for each part of
its budget, because it begins with as many eighths as the window has left and takes the others as soon as they come back
(`ramp_up`). Spans of the open group are extended with every measurement of it. A group ends when it has all of its
measurements, when another choice is followed, or after a window without any.

The loop is `follow`. `schedule.py` has the choices and which of them is best, `forecast.py` what the model says of each,
`ahead.py` noise that is drawn in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.core.charges import SPAN_FIELDS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.errors import InvalidParameter
from tidegate.exact import one_of, whole
from tidegate.intervals import Fold, Modelled
from tidegate.mechanisms.losses import noise_losses
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.sharing import NOISES, Sharing, SharingMechanism, columns_apart
from tidegate.mechanisms.tide.ahead import STREAM, Ahead, Secret, empty_secret
from tidegate.mechanisms.tide.plan import (
    ALARM,
    BREADTH,
    CHARGE,
    CHOICE,
    DUE,
    EIGHTHS,
    END,
    ENDLESS,
    GROUP_FIRST,
    GROUP_LAST,
    GROUP_ROW,
    KNOWN_AS,
    LAST_FIT,
    LEFT,
    LENGTH,
    LEVEL,
    MEASUREMENTS,
    NUMBER,
    PARTS,
    PLACE,
    PLACED,
    PLAN,
    POOL_ROW,
    POSITION,
    RAMP,
    SCALE,
    STAGE,
    TAKEN,
    VARIANCE,
    group_length,
    leave_group,
    next_gap,
)
from tidegate.mechanisms.tide.schedule import Choices, choices, replan
from tidegate.noise import Law
from tidegate.policy import Event, Policy, User, WEvent, ZeroConcentrated
from tidegate.releases import ClassDeviations, Releases, Status
from tidegate.structures.kernels.smoothing import WIDER, smooth
from tidegate.structures.kernels.state_space import SQUARED_LOAD, UNSEEN, phase_at
from tidegate.structures.kernels.tracking import (
    COUNT,
    GAP,
    LAST,
    MISFIT,
    NEXT_FIT,
    SURPRISED,
    Book,
    Room,
    Season,
    beyond_usual,
    claimed_of_common,
    doubted,
    one_step_on,
    refreshed,
    take_in,
)
from tidegate.structures.state_space_model import Structure, read_periods
from tidegate.structures.state_space_tracker import ALL_COLUMNS, SINGLE, Tracker, classes_of

FEW_HARMONICS = 2  # of each period, where many columns share their gains
SUSPECT = 4.0  # squared standardised innovations, recent mean, that raise the alarm
CALM = 1.5  # and that end it
# scales that noise exceeds at 6 of a million measurements, and that are its standard deviation
BEYOND_LAPLACE, OF_LAPLACE = 12.0, 2.0**0.5
BEYOND_GAUSSIAN, OF_GAUSSIAN = 4.5, 1.0
PATIENCE = 16  # measurements, at least, between an estimate and the next that an alarm may cause

FRESH, APPROXIMATED = 1, 2  # as in `releases.Status`

# what the loop wants besides: new hyper-parameters and a schedule, or noise that is drawn in Python
FIT, LAW = -1, -2

# positions in `State.plan`, behind those that the schedule reads
ORIGIN = PLAN  # the step before the first one
STEP = PLAN + 1  # the last step
TOTAL = PLAN + 2  # units of the window that ends there, with its spans
HEAD = PLAN + 3  # the ordinal of the first span that meets it
ORDINAL = PLAN + 4  # the ordinal of the next span
PLAN_NUMBERS = PLAN + 5

# columns of `State.live`; the span with ordinal o is in row o modulo their number
SPAN_FIRST, SPAN_LAST, SPAN_UNITS = 0, 1, 2
SPAN_ROW = 3  # its row in the batch's spans; −1 where the batch has not named it
LIVE_FIELDS = 4

# positions in `Work.numbers`
PHASE = 0  # how far the present step is
SPANS = 1  # spans that the batch has named
REVISED = 2  # revised steps that it has written
WORK_NUMBERS = 3

AHEAD_OF, PAID, MEASURED = 0, 1, 2  # phases of a step: nothing was done; charged, without noise; measured
ENDED = 3  # there is no further step
PASSED = -1  # the source of a step that was passed over: nothing is said of it


class Kept(NamedTuple):
    """Rings over the steps that are still to be revised."""

    units: Any
    scale: Any
    source: Any
    measured: Any  # of each column, with its noise


class State(NamedTuple):
    """All that is carried from step to step. It follows from releases, but for `secret`."""

    plan: Any  # whole numbers: what is followed, and where
    ring: Any  # units of each of the last w steps, at step modulo w; empty where nothing comes back
    live: Any  # spans that meet the last window
    marks: Any  # the last steps of an open semiorder
    kept: Kept
    book: Book  # of the tracker
    searched: Any  # its last estimates
    secret: Secret


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    limit: int  # units of a window
    window: int  # steps after which budget comes back; 0: never
    first_window: int  # steps for which the budget is shared at first
    dense: int  # the row of the tables with a measurement at each step, for a time in which the model does not fit
    opening: int  # the row of the very first measurement; the next row is the second one
    rows: int  # of the tables, before they are repeated for a first window
    block: int  # steps that are revised together; 0: none
    grid: float
    nonnegative: bool
    gaussian: bool  # whether noise that is not shared is Gaussian, which is drawn in Python
    beyond: float  # scales that no noise exceeds
    deviation: float  # scales that are the standard deviation of noise
    shares: Any  # tables with a row for each choice, whole numbers
    scales: Any  # and real ones


class Working(NamedTuple):
    """What the present step needs room for. Nothing of it is kept."""

    numbers: Any
    measured: Any  # the last measurement, and that of what columns have in common
    smoothed: Any  # smoothed values, and that
    room: Any  # of the tracker


class Released(NamedTuple):
    """What the loop writes for each step; see `Output` and `Tide.more`."""

    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
    spans: Any
    spent: Any
    deviation: Any
    classes: Any
    measured: Any  # of steps that were measured; else NaN


class Revised(NamedTuple):
    """What became known of earlier steps, one row each; see `Tide.revised`."""

    steps: Any
    values: Any
    status: Any
    source: Any
    scale: Any
    spent: Any
    deviation: Any
    classes: Any


# what a window has left ------------------------------------------------------------------------------------------------


@lean
def largest(numbers: Any) -> Any:
    """The largest of some numbers."""
    found = numbers[0]
    for at in range(1, numbers.size):
        found = max(found, numbers[at])
    return found


@lean
def move_window(constants: Any, state: Any, step: int) -> None:
    """Let the window end at the next step: what has left it can be spent again."""
    plan, ring, live = state.plan, state.ring, state.live
    window = constants.window
    if window > 0:
        at = step % window
        plan[TOTAL] -= ring[at]
        ring[at] = 0
        while plan[HEAD] < plan[ORDINAL] and live[plan[HEAD] % live.shape[0], SPAN_LAST] <= step - window:
            plan[TOTAL] -= live[plan[HEAD] % live.shape[0], SPAN_UNITS]
            plan[HEAD] += 1
    plan[STEP] = step


@lean
def name_span(state: Any, numbers: Any, spans: Any, ordinal: int) -> None:
    """Tell of a span that begins or is extended."""
    span = state.live[ordinal % state.live.shape[0]]
    if span[SPAN_ROW] < 0:
        span[SPAN_ROW] = numbers[SPANS]
        numbers[SPANS] += 1
    row = spans[span[SPAN_ROW]]
    row[0], row[1], row[2], row[3], row[4] = 0, ordinal, span[SPAN_FIRST], span[SPAN_LAST], span[SPAN_UNITS]


@lean
def begin_span(state: Any, numbers: Any, spans: Any, step: int, units: int) -> None:
    """Charge one more part of the open group, from this step on."""
    plan = state.plan
    span = state.live[plan[ORDINAL] % state.live.shape[0]]
    span[SPAN_FIRST], span[SPAN_LAST], span[SPAN_UNITS], span[SPAN_ROW] = step, step, units, -1
    name_span(state, numbers, spans, plan[ORDINAL])
    plan[ORDINAL] += 1
    plan[PARTS] += 1
    plan[TOTAL] += units


@lean
def extend_spans(state: Any, numbers: Any, spans: Any, step: int) -> None:
    """Let all parts of the open group reach this step. They meet its window already, so this costs nothing more."""
    plan, live = state.plan, state.live
    for ordinal in range(plan[ORDINAL] - plan[PARTS], plan[ORDINAL]):
        live[ordinal % live.shape[0], SPAN_LAST] = step
        name_span(state, numbers, spans, ordinal)


# when, and with which noise --------------------------------------------------------------------------------------------


@lean
def followed(constants: Any, plan: Any) -> Any:
    """The choice that is followed now: one with a measurement at each step where the model does not fit."""
    shares = constants.shares
    sparse = shares[plan[CHOICE], MEASUREMENTS] < shares[constants.dense, MEASUREMENTS]
    return constants.dense if plan[ALARM] and sparse else plan[CHOICE]


@lean
def update_alarm(constants: Any, plan: Any, book: Any, total: Any) -> None:
    """Notice that the model does not fit, where dense measurements would do better than it."""
    clock, misfit, noise = book.clock, book.health[MISFIT], constants.scales[constants.dense, VARIANCE]
    common = book.health[SURPRISED] if book.load.size else 0.0
    if plan[ALARM] == 0:
        apart = misfit > SUSPECT and misfit * largest(total) > noise
        if apart or (common > SUSPECT and common * total[total.size - 1] > noise):
            plan[ALARM] = 1
            if constants.shares[plan[CHOICE], LENGTH] == ENDLESS:
                plan[CHOICE] = followed(
                    constants, plan
                )  # a semiorder that was left needs a window to begin again
            # fits get rare even if nothing ever fits
            waiting = plan[LAST_FIT] + PATIENCE + plan[LAST_FIT] // 4
            clock[NEXT_FIT] = min(clock[NEXT_FIT], max(clock[COUNT], waiting))
    elif misfit < CALM and common < CALM:
        plan[ALARM] = 0


@lean
def chosen_row(constants: Any, plan: Any, measured: int, step: int) -> Any:
    """The row of the tables that a measurement at this step follows, after so many of them."""
    if measured <= plan[STAGE]:
        return constants.opening + measured
    choice = followed(constants, plan)
    first = step <= plan[ORIGIN] + constants.first_window
    return choice + constants.rows * (1 + plan[STAGE]) if first else choice


@lean
def continues_group(constants: Any, plan: Any, choice: int, step: int) -> Any:
    """Whether a measurement at this step, which would follow `choice`, belongs to the group that is open."""
    if plan[LEFT] == 0:
        return False
    if constants.window == 0:
        return True  # what is charged never comes back
    # rows for the first window are the same choices with less budget
    rows = constants.rows
    same = choice < 3 * rows and choice % rows == plan[GROUP_ROW] % rows
    # before a semiorder begins a group has all of its measurements: what it costs is not there for others before
    lengths = constants.shares[:, LENGTH]
    same = same or (lengths[choice] == ENDLESS and lengths[plan[GROUP_ROW]] < ENDLESS)
    return same and step - plan[GROUP_LAST] < constants.window


@lean
def ramp_up(constants: Any, state: Any, numbers: Any, spans: Any, row: int, step: int) -> None:
    """Charge as many more eighths of a semiorder as the window has left, for this measurement and later ones."""
    plan, shares = state.plan, constants.shares
    eighth = shares[row, CHARGE] // EIGHTHS
    more = min(EIGHTHS - plan[LEVEL], (constants.limit - plan[TOTAL]) // eighth)
    if more > 0:
        begin_span(state, numbers, spans, step, more * eighth)
        plan[LEVEL] += more
    if plan[LEVEL] > 0:
        plan[TAKEN] = row if plan[LEVEL] == EIGHTHS else shares[row, RAMP] + plan[LEVEL] - 1


@lean
def pay(constants: Any, state: Any, numbers: Any, spans: Any, choice: int, step: int) -> Any:
    """Charge a measurement at this step, before it has any noise; False where it must not be made."""
    plan, shares, pool = state.plan, constants.shares, state.secret[0]
    if shares[choice, LENGTH] == ENDLESS:
        choice %= constants.rows  # it takes what is left in a first window, too
    if continues_group(constants, plan, choice, step):
        row = plan[GROUP_ROW]
        breadth = shares[row, BREADTH]
        # no window may contain more measurements of a semiorder than it was made for
        if (
            breadth
            and plan[PLACED] >= breadth
            and step - state.marks[plan[PLACED] % breadth] < constants.window
        ):
            return False
        extend_spans(state, numbers, spans, step)
        if breadth and plan[LEVEL] < EIGHTHS:
            ramp_up(constants, state, numbers, spans, row, step)
        else:
            plan[TAKEN] = row
        return True
    leave_group(plan, pool, shares)
    if shares[choice, LENGTH] == ENDLESS:
        plan[LEVEL], plan[PARTS] = 0, 0
        ramp_up(constants, state, numbers, spans, choice, step)
        if plan[LEVEL] == 0:
            return False
        plan[GROUP_ROW], plan[GROUP_FIRST] = choice, step
        plan[LEFT], plan[PLACED] = ENDLESS, 0
        pool[POSITION] = pool[END]  # all words are used
        return True
    charge = shares[choice, CHARGE]
    if constants.limit - plan[TOTAL] < charge:
        return False  # the first step that has so much
    plan[TAKEN] = choice
    if shares[choice, LENGTH] == 0:
        plan[TOTAL] += charge
        if constants.window > 0:
            state.ring[step % constants.window] = charge
        return True
    plan[PARTS] = 0
    begin_span(state, numbers, spans, step, charge)
    plan[PLACE] = plan[PLACE] + 1 if plan[GROUP_ROW] == choice else 0
    plan[GROUP_ROW], plan[GROUP_FIRST] = choice, step
    plan[LEFT], plan[PLACED] = group_length(shares, choice, plan[PLACE]), 0
    return True


@lean
def count_measurement(constants: Any, state: Any, step: int) -> None:
    """Count a measurement of the open group."""
    plan = state.plan
    breadth = constants.shares[plan[GROUP_ROW], BREADTH]
    if breadth:
        state.marks[plan[PLACED] % breadth] = step
    else:
        plan[LEFT] -= 1
    plan[PLACED] += 1
    plan[GROUP_LAST] = step


# the loop --------------------------------------------------------------------------------------------------------------


@lean
def follow(
    rows: Any,
    begin: int,
    first: int,
    constants: Any,
    words: Any,
    slot: Any,
    pool: Any,
    working: Any,
    season: Any,
    state: Any,
    out: Any,
    revised: Any,
) -> Any:
    """Release the steps rows[begin:]; (index, what is wanted). Steps with a negative index are passed over.

    A step is charged, gets its noise, is taken in and perhaps fitted. Where it waits for one of these, `PHASE` says how
    far it is, and the loop continues there. Behind the last step of a stream all kept steps are revised.
    """
    constants, state, out, season = Constants(*constants), State(*state), Released(*out), Season(*season)
    working = Working(*working)
    numbers, measured, room = working.numbers, working.measured, Room(*working.room)
    plan, book, kept = state.plan, Book(*state.book), Kept(*state.kept)
    secret = state.secret[0]
    shares, scales, grid = constants.shares, constants.scales, constants.grid
    clock, load = book.clock, book.load
    keep, columns, classes = kept.units.size, out.values.shape[1], book.parameters.shape[0]
    smoothed = working.smoothed
    if numbers[PHASE] == ENDED:
        numbers[REVISED] = revise(first - 1, keep, 0, constants, book, season, smoothed, kept, revised)
    for index in range(begin, rows.shape[0]):
        step = first + index
        if numbers[PHASE] == AHEAD_OF:
            move_window(constants, state, step)
            one_step_on(book, step, season, room)
            if index >= 0 and step >= plan[DUE]:
                before, total = plan[ORDINAL], plan[TOTAL]
                if pay(
                    constants,
                    state,
                    numbers,
                    out.spans,
                    chosen_row(constants, plan, clock[COUNT], step),
                    step,
                ):
                    numbers[PHASE] = PAID
                    out.spent[index] = plan[TOTAL] - total
                    if plan[ORDINAL] == before:
                        out.units[index] = plan[TOTAL] - total
        if numbers[PHASE] == PAID:
            row = plan[TAKEN]
            shared = shares[row, LENGTH] > 0
            if shared or constants.gaussian:
                at = secret[POSITION]
                if at >= secret[END] or secret[POOL_ROW] != row:
                    return index, LAW
                for column in range(columns):
                    measured[column] = float(rows[index, column] + pool[at, column])
                    pool[at, column] = 0  # used noise would remove itself from a release
                secret[POSITION] = at + 1
                plan[NUMBER] += 1
                if shared:
                    count_measurement(constants, state, step)
            else:
                wanted = draw_row(words, slot, step, scales[row, SCALE])
                if wanted != DONE:
                    return index, wanted
                for column in range(columns):
                    measured[column] = float(rows[index, column] + slot.row[column])
            take_in(book, step, season, scales[row, KNOWN_AS], measured, room)
            update_alarm(constants, plan, book, room.total)
            plan[DUE] = step + next_gap(shares, followed(constants, plan), plan)
            numbers[PHASE] = MEASURED
            if clock[COUNT] >= clock[NEXT_FIT]:
                return index, FIT
        fresh = numbers[PHASE] == MEASURED
        numbers[PHASE] = AHEAD_OF
        scale = scales[plan[TAKEN], SCALE] * grid if clock[LAST] > 0 else 0.0
        if index >= 0:
            # where the model is in doubt, a dense measurement stands for itself
            raw = (
                fresh
                and plan[ALARM] == 1
                and shares[plan[TAKEN], MEASUREMENTS] == shares[constants.dense, MEASUREMENTS]
                and plan[TAKEN]
                < 3 * constants.rows  # and has not the noise of a semiorder that has only begun
            )
            beyond, unsure = beyond_usual(book, room.values), claimed_of_common(book, room.claimed)
            out.status[index] = FRESH if fresh else APPROXIMATED
            out.source[index], out.scale[index] = clock[LAST], scale
            for c in range(classes):
                variance = room.claimed[c] + book.parameters[c, SQUARED_LOAD] * unsure
                variance = scales[plan[TAKEN], VARIANCE] if raw else variance
                out.deviation[index, c] = np.sqrt(max(variance, 0.0)) * grid if clock[LAST] > 0 else np.inf
            shown = out.values[index]
            for column in range(columns):
                shown[column] = measured[column] if raw else room.values[column]
            for column in range(0 if raw else load.size):
                shown[column] += load[column] * beyond
            if fresh:
                prefer_measurement(constants, measured, scale, book.kind, shown, out.deviation[index])
            for column in range(columns):
                shown[column] = (max(shown[column], 0.0) if constants.nonnegative else shown[column]) * grid
            for column in range(out.classes.shape[1]):
                out.classes[index, column] = book.kind[column]
            for column in range(columns):
                out.measured[index, column] = measured[column] * grid if fresh else np.nan
        if keep:
            at = step % keep
            kept.units[at] = out.spent[index] if index >= 0 else 0
            kept.scale[at], kept.source[at] = scale, clock[LAST] if index >= 0 else PASSED
            for column in range(columns):
                kept.measured[at, column] = measured[column]
            if step % constants.block == 0 and step >= keep:
                numbers[REVISED] = revise(
                    step, constants.block, numbers[REVISED], constants, book, season, smoothed, kept, revised
                )
    return rows.shape[0], DONE


@lean
def prefer_measurement(
    constants: Any, measured: Any, scale: float, kind: Any, values: Any, deviations: Any
) -> None:
    """Where a value is further from its measurement than noise can explain, the measurement is the better one.

    The model takes what comes once for noise; `scale` and deviations are in the unit of releases. Columns of a class
    have one deviation, so that it becomes wider for all of them. A column by itself deviates by no more than it is away
    from its measurement, and the measurement from the truth: its noise is known, however much the model is in doubt.
    """
    alone, noise = deviations.size == values.size, constants.deviation * scale
    for column in range(values.size):
        away = abs(values[column] - measured[column]) * constants.grid
        if away > constants.beyond * scale:
            values[column], away = measured[column], 0.0
            deviations[kind[column]] = max(deviations[kind[column]], noise)
        if alone:
            deviations[kind[column]] = min(deviations[kind[column]], away + noise)


@lean
def revise(
    last: int,
    length: int,
    at: int,
    constants: Any,
    book: Any,
    season: Any,
    smoothed: Any,
    kept: Any,
    revised: Any,
) -> Any:
    """Write the smoothed values of the `length` oldest of the kept steps from row `at` on; the next free row.

    Steps that were passed over, or come before the first one, are left out.
    """
    constants, book, season = Constants(*constants), Book(*book), Season(*season)
    kept, revised = Kept(*kept), Revised(*revised)
    keep, kind, grid = kept.units.size, book.kind, constants.grid
    some = False
    for row in range(length):
        some = some or kept.source[(last - keep + 1 + row) % keep] != PASSED
    if not some:
        return at
    values, doubt = smoothed[:length], revised.deviation[at : at + length]
    rings = (book.kept_spread, book.kept_variance, book.kept_total, book.kept_innovation, book.kept_value)
    smooth(last, length, book.parameters, kind, season.once, rings, book.settled, values, doubt)
    for row in range(length):
        step = last - keep + 1 + row
        place = step % keep
        source = kept.source[place]
        if source == PASSED:
            continue
        for c in range(doubt.shape[1]):
            # what is left of the error of a prediction, and a part of the noise, as for values at once
            predicted, known = book.kept_variance[place, c], doubt[row, c] - book.parameters[c, UNSEEN]
            rest = min(1.0, known / predicted) if predicted > 0.0 else 1.0
            doubt[row, c] = rest * rest * doubted(book, c, predicted) + (1.0 - rest) * known
        unsure = claimed_of_common(book, doubt[row])
        for c in range(doubt.shape[1]):
            claimed = doubt[row, c] + book.parameters[c, SQUARED_LOAD] * unsure
            doubt[row, c] = np.sqrt(max(claimed, 0.0)) * WIDER * grid
        beyond = beyond_usual(book, values[row])
        for column in range(book.load.size):
            values[row, column] += book.load[column] * beyond
        if source == step:  # it was measured
            prefer_measurement(
                constants,
                kept.measured[place],
                kept.scale[place],
                kind,
                values[row, : revised.values.shape[1]],
                doubt[row],
            )
        revised.steps[at], revised.source[at], revised.scale[at] = step, source, kept.scale[place]
        revised.status[at] = FRESH if source == step else APPROXIMATED
        revised.spent[at] = kept.units[place]
        for column in range(revised.values.shape[1]):
            value = values[row, column]
            value = (max(value, 0.0) if constants.nonnegative else value) * grid
            # before anything was measured nothing was believed but the prior
            revised.values[at, column] = value if source > 0 else 0.0
        for c in range(doubt.shape[1]):
            revised.deviation[at, c] = doubt[row, c] if source > 0 else np.inf
        for column in range(revised.classes.shape[1]):
            revised.classes[at, column] = kind[column]
        at += 1
    return at


class Bound:
    """What is made once for a state: the tracker that works on its arrays, noise drawn ahead, room for the loop."""

    def __init__(self, mechanism: Tide, state: State) -> None:
        self.tracker = mechanism.tracker()
        self.tracker.work_on({**state.book._asdict(), "searched": state.searched})
        self.ahead = Ahead(mechanism.choices, state.plan, state.secret)
        self.numbers = np.zeros(WORK_NUMBERS, dtype=np.int64)
        followed = self.tracker.followed
        smoothed = np.zeros((2 * mechanism.block, followed))
        self.working = (self.numbers, np.zeros(followed), smoothed, self.tracker.room[:])
        plain = (*state[:4], state.kept[:], state.book[:], (), state.secret[:2])
        self.fixed = (self.working, self.tracker.season[:], plain)


@dataclass(frozen=True)
class Tide(SharingMechanism):
    """Measure some steps of each window precisely, follow a model in between, and choose how many from releases.

    k measurements in a window, each with ε/k, say more about what stays the same than many weak ones. What changes is
    bridged by a structural model (a level that wanders, short memory, harmonics of public periods) whose
    hyper-parameters come from the measurements themselves. The model predicts the error of each k, and the best
    is followed; when innovations are too large for the model, every step is measured until it fits again. Deciding
    looks at past releases only, so it costs nothing, and all of ε is spent on measurements.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    periods
        Public periods of the stream in steps, such as (24, 168) for hours of days and weeks. None by default: then the
        model is a level and its residuals.
    harmonics
        How many harmonics each period has: 2 where more than 16 columns share their gains, else 8, and 16 for a
        week after a day, so that the days of a week may differ.
    delay
        After how many steps, at most, smoothed values of a step are known (`release.revised`); 0 for never. By default
        w under a w-event policy, else 0.
    aim
        Which error the schedule makes small: that of values "now", or that of the "revised" ones. These are better
        with fewer, stronger measurements.
    nonnegative
        Whether the stream is known not to be negative: then no release is. Counts are; centred sums are not. A
        configuration file derives it from its query.
    noise
        "auto": measurements share noise where the model says that it gains. "laplace": each has noise of its own. "cube",
        "semiorder": they may share this kind. With ρ each has Gaussian noise of its own, and there is nothing to choose.

    Privacy
    -------
    Unit and neighbours: the policy's. Every measurement is a discrete Laplace mechanism on the whole vector of its
    step, charged to that step before its noise is used, and the account allows no window more than ε. Which steps are
    measured, with which share, all hyper-parameters and the model's state are functions of earlier measurements and
    public constants. Releases, smoothed values and intervals are post-processing.
    Measurements that share noise are one mechanism together, charged as one group: before its first measurement, for
    that step; and before every other one for all steps up to it. A group of at most L measurements with noise of the cube
    loses its share, a semiorder all of ε in every window that it meets, or, while it has a part of its budget only, as
    much as it was charged. So a window is charged with the opening and
    whatever has noise of its own inside of it, and once with each group that meets it; the account allows no more than ε.
    The state is secret then (docs/mechanisms/noise.md). With ρ a measurement that costs the part s of the budget has
    discrete Gaussian noise of variance Δ²/(2sρ), and no window is charged with more than ρ. Proof: docs/proofs/tide.md.

    Error
    -----
    Every release says its own (`release.deviation`, `release.interval(0.9)`). Time O(n²) a step for n states, and
    O(n·d) for d columns; memory O(n² + n·d) and a bounded history, independent of the length of the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from tidegate.core.session import Session
    >>> mechanism = Tide(WEvent(epsilon="0.1", window=48), periods=(48, 336))
    >>> mechanism.structure.states
    48
    >>> releases = Session(mechanism).push_batch(np.full((500, 1), 5000))
    >>> releases.values.shape, releases.deviation.shape, releases.revised[0].delay
    ((500, 1), (500, 1), 47)

    References
    ----------
    Harvey: Forecasting, structural time series models and the Kalman filter. Cambridge University Press 1989.
    Durbin, Koopman: Time series analysis by state space methods. Oxford University Press 2012.
    Fan, Xiong: An adaptive approach to real-time aggregate monitoring with differential privacy. TKDE 2014.
    """

    periods: Sequence[float] = ()
    harmonics: int | Sequence[int] | None = None
    delay: int | None = None
    aim: str = "now"
    nonnegative: bool = False

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")
    more: ClassVar[tuple[str, ...]] = ("spent", "deviation", "classes", "measured")
    """Further arrays with one row per step.

    spent: units of the step and of spans that begin there. deviation: of each class of columns. classes: of each column;
    empty where every column is a class. measured: what the model was given, NaN where nothing was measured; intervals are
    learnt from it.
    """
    revised: ClassVar[tuple[str, ...]] = (*Revised._fields, "ends")
    """Arrays with one row per smoothed step, most of them earlier than the batch: as `Output` and `more` have them, and
    the step at which each became known."""

    def validate(self) -> None:
        """Check the model and the delay."""
        put = object.__setattr__
        put(self, "periods", read_periods(self.periods))
        few = None if self.columns <= SINGLE else FEW_HARMONICS
        wanted = few if self.harmonics is None else self.harmonics
        put(self, "harmonics", tuple(wanted) if isinstance(wanted, Sequence) else wanted)
        put(self, "harmonics", self.structure.harmonics)
        one_of("noise", self.noise, NOISES, 'write noise="auto"')
        if self.noise not in ("auto", "laplace") and isinstance(self.policy.budget, ZeroConcentrated):
            raise InvalidParameter("noise", self.noise, "'auto' where rho is given", "drop it")
        _ = self.choices  # built here, so that what it refuses is refused before anything is charged
        usual = self.policy.steps_charged if isinstance(self.policy, WEvent) and self.policy.window > 1 else 0
        delay = usual if self.delay is None else whole("delay", self.delay, least=0, most=2**20)
        if delay == 1:
            raise InvalidParameter("delay", 1, "0 or at least 2", "write delay=0 for no smoothed values")
        put(self, "delay", delay)
        if self.aim not in ("now", "revised") or (self.aim == "revised" and not delay):
            raise InvalidParameter(
                "aim",
                self.aim,
                "'now', or 'revised' where there is a delay",
                "write aim='now' or give a delay",
            )
        if not isinstance(self.nonnegative, bool):
            raise InvalidParameter("nonnegative", self.nonnegative, "True or False", "choose one of them")

    @cached_property
    def structure(self) -> Structure:
        """The model's public part."""
        counts = self.harmonics
        return Structure(tuple(self.periods), tuple(counts) if isinstance(counts, Sequence) else counts)

    @cached_property
    def choices(self) -> Choices:
        """How many measurements a window may have, and what each costs."""
        policy = self.policy
        gaussian = isinstance(policy.budget, ZeroConcentrated)
        auto = () if gaussian else ("cube", "semiorder")
        kinds = {"laplace": (), "auto": auto}.get(self.noise, (self.noise,))
        apart = columns_apart(policy, self.columns)
        return choices(
            policy.steps_charged,
            policy.window is not None,
            self.periods,
            self.sensitivity,
            Fraction(policy.budget.total),
            1 if apart else self.columns,
            self.columns if apart else 1,
            kinds,
            gaussian,
        )

    @property
    def shares_noise(self) -> bool:
        """Whether the state is secret."""
        return self.choices.shared

    @property
    def columns_independent(self) -> bool:
        """Columns have a schedule in common."""
        return False

    @property
    def sharing(self) -> Sharing | None:
        """No law that all measurements share."""
        return None

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly; without shared noise as it was described before there was any."""
        described = super().describe()
        return {**described, "noise": self.choices.describe()} if self.shares_noise else described

    @property
    def revises(self) -> bool:
        """Whether there are smoothed values."""
        return bool(self.delay)

    @property
    def revision(self) -> int:
        """The delay of smoothed values."""
        assert self.delay is not None
        return self.delay

    @property
    def units(self) -> int:
        """Small ones, so that all shares are whole numbers of them."""
        return self.choices.units

    @property
    def noise_error(self) -> float:
        """The mean absolute error where the model cannot help at all: that of measuring every step."""
        tables = self.choices
        law = tables.laws[tables.dense]
        scale = float(tables.scales[tables.dense, SCALE])
        own = self.own_noise.expected_absolute
        expected = own(scale) if law is None else law.law.expected_absolute()
        return expected * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> npt.NDArray[np.float64] | None:
        """What each measured step lost, from its scale; measurements that share noise lose together."""
        return None if self.shares_noise else noise_losses(self, releases)

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return self.choices.groups

    @property
    def noise_in_state(self) -> bool:
        """Only what measurements share."""
        return self.choices.shared

    @property
    def block(self) -> int:
        """Steps that are revised together; 0: none."""
        return self.revision // 2

    def tracker(self) -> Tracker:
        """A new one."""
        laplace = not self.choices.gaussian
        return Tracker(self.structure, self.columns, 2 * self.block, laplace, shares=True)

    @property
    def tracker_classes(self) -> int:
        """Columns of a class have one deviation; what all columns have in common is a class by itself."""
        return classes_of(self.columns, self.columns <= ALL_COLUMNS)

    @cached_property
    def constants(self) -> Constants:
        """What the loop knows of the configuration."""
        tables = self.choices
        return Constants(
            limit=tables.units,
            window=self.policy.window or 0,
            first_window=self.policy.steps_charged,
            dense=tables.dense,
            opening=len(tables.shares) - 2,
            rows=tables.rows,
            block=self.block,
            grid=float(Fraction(self.grid)),
            nonnegative=self.nonnegative,
            gaussian=tables.gaussian,
            beyond=BEYOND_GAUSSIAN if tables.gaussian else BEYOND_LAPLACE,
            deviation=OF_GAUSSIAN if tables.gaussian else OF_LAPLACE,
            shares=tables.shares,
            scales=tables.scales,
        )

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        tracker, tables, keep = self.tracker(), self.choices, 2 * self.block
        plan = np.zeros(PLAN_NUMBERS, dtype=np.int64)
        state = State(
            plan,
            np.zeros(self.policy.window or 0, dtype=np.int64),
            np.zeros((max(1, self.most_spans), LIVE_FIELDS), dtype=np.int64),
            np.zeros(int(tables.shares[:, BREADTH].max(initial=0)), dtype=np.int64),
            Kept(
                np.zeros(keep, dtype=np.int64),
                np.zeros(keep),
                np.full(keep, PASSED, dtype=np.int64),
                np.zeros((keep, self.columns)),
            ),
            tracker.book,
            tracker.memory["searched"],
            empty_secret(tables, self.columns),
        )
        self._begin_at(state, first)
        return state

    def _begin_at(self, state: State, first: int) -> None:
        state.plan[[ORIGIN, STEP, DUE]] = first - 1, first - 1, first

    def public(self, state: State, first: int, count: int) -> Charges:
        """Which steps are measured follows from measurements: nothing is charged whatever these are."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps. Steps that were passed over are predicted, as steps between two measurements are."""
        bound: Bound = noise.bound(state, lambda: Bound(self, state))
        if state.plan[STEP] == state.plan[ORIGIN]:  # nothing was released: it begins here
            self._begin_at(state, first)
        count, ahead, constants = len(rows), bound.ahead, self.constants[:]
        out = self._empty_released(count)
        passed = first - 1 - int(state.plan[STEP])
        revised = self._empty_revised(self._revised_room(first, count, passed))
        state.live[:, SPAN_ROW] = -1
        bound.numbers[:] = 0
        drawing = noise.rows(**{STREAM: self.columns})
        words, slot = drawing.pool, drawing.slots[0]

        def loop(begin: int, rows: Matrix = rows, first: int = first) -> tuple[int, int]:
            index, wanted = follow(
                rows, begin, first, constants, words, slot, ahead.pool, *bound.fixed, out[:], revised[:]
            )
            return index, wanted

        def at_boundary(index: int, wanted: int) -> None:
            if wanted == FIT:
                self._refit(state, bound.tracker)
            else:
                ahead.draw(noise.source, count - index - 1)

        for part in self._pass_over(state, passed):
            loop(-part, rows[:0], int(state.plan[STEP]) + 1 + part)
        drawing.run_loop(loop, first, at_boundary)
        if count:
            ahead.settle()
        known = self._known(revised, int(bound.numbers[REVISED]), np.iinfo(np.int64).max)
        return Output(*out[:6], more=out[6:], revised=known)

    def _pass_over(self, state: State, passed: int) -> Iterator[int]:
        """How many steps to predict, one after the other, until so many are passed over: of a long gap only the ends."""
        ends = max(
            1, 2 * self.block, self.policy.window or 0
        )  # then no window, and no block, has anything of before
        if passed <= 2 * ends:
            yield from [passed] if passed else []
            return
        yield ends
        book, last = state.book, int(state.plan[STEP]) + passed - 2 * ends
        if book.clock[LAST]:
            book.clock[GAP] += last - int(state.plan[STEP])
            phase_at(self.structure.once, last, book.phase)
        state.plan[STEP] = last
        yield ends

    def _refit(self, state: State, tracker: Tracker) -> None:
        """New hyper-parameters and a new schedule, from measurements alone."""
        tracker.refit()
        refreshed(tracker.book[:], tracker.season[:], tracker.room[:])
        window, origin = self.policy.steps_charged, int(state.plan[ORIGIN])
        replan(self.choices, tracker, state.plan, window, self.aim == "revised", origin)

    def _span_room(self, count: int) -> int:
        """The most spans that a batch can begin or extend: its size is public, whatever happens."""
        window, most = self.policy.window, self.most_spans
        begun = most if window is None else most * -(-count // window)
        return min(begun, count) + min(most, EIGHTHS)

    # smoothed values -----------------------------------------------------------------------------------------------

    def _empty_classes(self, rows: int) -> Any:
        return np.empty((rows, 0 if self.columns <= SINGLE else self.columns), dtype=np.int8)

    def _revised_room(self, first: int, count: int, passed: int) -> int:
        """The most steps that are revised in a batch. Blocks of steps that were passed over are not."""
        block = self.block
        if not block:
            return 0
        blocks = (first + count - 1) // block - (first - 1) // block
        return (blocks + (3 if passed else 0)) * block  # of three there may be some steps from before

    def _empty_released(self, count: int) -> Released:
        return Released(
            *empty_output(count, self.columns)[:5],
            np.zeros((self._span_room(count), SPAN_FIELDS), dtype=np.int64),
            np.zeros(count, dtype=np.int64),
            np.empty((count, self.tracker_classes)),
            self._empty_classes(count),
            np.empty((count, self.columns)),
        )

    def _empty_revised(self, rows: int) -> Revised:
        return Revised(
            np.empty(rows, dtype=np.int64),
            np.empty((rows, self.columns)),
            np.empty(rows, dtype=np.int8),
            np.empty(rows, dtype=np.int64),
            np.empty(rows),
            np.empty(rows, dtype=np.int64),
            np.empty((rows, self.tracker_classes)),
            self._empty_classes(rows),
        )

    def _known(self, revised: Revised, count: int, step: int) -> tuple[Any, ...]:
        """What was revised, with the step at which it became known."""
        parts = tuple(part[:count] for part in revised)
        ends = np.minimum((-(-parts[0] // max(1, self.block)) + 1) * self.block, step)
        return *parts, ends

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """Smoothed values of the last steps, whose delay is not over, as far as they can be known now."""
        block, keep, step = self.block, 2 * self.block, int(state.plan[STEP])
        if not block:
            return None
        bound: Bound = noise.bound(state, lambda: Bound(self, state))
        drawing, rows = noise.rows(**{STREAM: self.columns}), np.zeros((0, self.columns), dtype=np.int64)
        out, found = self._empty_released(0), self._empty_revised(keep)
        bound.numbers[PHASE] = ENDED
        follow(
            rows, 0, step + 1, self.constants[:], drawing.pool, drawing.slots[0],
            bound.ahead.pool, *bound.fixed, out[:], found[:],
        )  # fmt: skip
        count = int(bound.numbers[REVISED])
        done = (step // block - 1) * block if step >= keep else 0
        known = found.steps[:count] > done
        revised = self._known(Revised(*(part[:count][known] for part in found)), int(known.sum()), step)
        return Output(*out[:5], more=out[6:], revised=revised)

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with deviations and smoothed values, for readers."""
        spent, deviation, classes, measured = more
        found = Releases(
            releases.first_step,
            releases.values,
            releases.status,
            releases.source,
            releases.scale,
            spent,
            releases.unit,
            revised=self.smoothed(revised, releases.unit),
            deviation=_deviations(deviation, classes),
        )
        found.readings = measured
        return found

    def smoothed(self, revised: Any, unit: Fraction) -> Releases | None:
        """Smoothed values for readers; consecutive steps, and silent where steps were passed over."""
        steps, *parts, ends = revised
        if not len(steps):
            return None
        first, rows = int(steps[0]), steps - steps[0]
        count = int(rows[-1]) + 1
        if count != len(steps):
            parts = [_spread(part, rows, count) for part in parts]
            quiet = np.setdiff1d(np.arange(count), rows)
            parts[1][quiet], ends = int(Status.SILENT), _spread(ends, rows, count)
            ends[quiet] = first + quiet
        values, status, source, scale, spent, deviation, classes = parts
        delay = int((ends - np.arange(first, first + count)).max())
        return Releases(
            first, values, status, source, scale, spent, unit, delay,
            ends=ends, deviation=_deviations(deviation, classes),
        )  # fmt: skip

    def intervals(self) -> Fold:
        """The model has released how much it deviates, and its measurements say whether that holds of each column."""
        law = Law(self.noise_kind, float(Fraction(self.grid)), self.rounded_by)
        return Modelled(self.outputs, law, alike=self.columns > SINGLE)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Days and weeks as periods where there are any, smoothed at once or for later."""
        periods = (season, 7 * season) if season is not None else ()
        return [cls(policy, columns=columns, periods=periods, nonnegative=True)]

    @classmethod
    def as_published(cls, policy: Policy, **options: Any) -> Self:
        """Of no paper: what it does by default."""
        return cls(policy, **options)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", window=10), columns=3, periods=(24,), harmonics=2, nonnegative=True),
            cls(WEvent(epsilon="2", window=12), periods=(24,), harmonics=2, noise="laplace"),
            cls(WEvent(epsilon="2", window=12), periods=(24,), harmonics=2),
            cls(WEvent(rho="1/2", window=20), columns=2, periods=(24,), harmonics=2),
            cls(WEvent(epsilon="1/3", window=24, adjacency="replace"), columns=20, grid="0.5", delay=7),
            cls(
                User(epsilon="2", horizon=6000), periods=(24, 168), harmonics=(3, 2), delay=10, aim="revised"
            ),
            cls(Event(epsilon="1"), columns=2),
        ]


def _spread(part: Any, rows: Integers, count: int) -> Any:
    """An array with its rows at these places; there is nothing at the others."""
    wide = np.full((count, *part.shape[1:]), np.nan if part.dtype == np.float64 else 0, dtype=part.dtype)
    wide[rows] = part
    return wide


def _deviations(deviation: Any, classes: Any) -> ClassDeviations:
    """One for each column; the classes of columns change now and then."""
    if not classes.size:  # no classes, or no steps
        return ClassDeviations(deviation, [(0, np.arange(deviation.shape[1]))])
    begins = [0, *(np.flatnonzero((classes[1:] != classes[:-1]).any(axis=1)) + 1).tolist()]
    return ClassDeviations(deviation, [(begin, classes[begin].astype(np.int64)) for begin in begins])
