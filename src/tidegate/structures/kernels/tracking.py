"""Compiled bookkeeping around the filter: one step on, one measurement in, with what fitting and smoothing need later.

A tracker's arrays travel as plain tuples, which get their names back here: `Book(*book)` costs nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.structures.kernels.hearing import effective_noise, heard
from tidegate.structures.kernels.state_space import (
    UNSEEN,
    absorb,
    expected,
    follow,
    look_ahead,
    phase_at,
    turn_to,
)


class Book(NamedTuple):
    """What a tracker keeps; all of it comes from measurements."""

    state: Any  # columns × states, as of the last measurement
    covariance: Any  # classes × states × states, as of the last measurement
    parameters: Any  # classes × PARAMETERS
    kind: Any  # the class of each column
    phase: Any  # cosines and sines of the harmonics at the present step
    clock: Any  # whole numbers, below
    health: Any  # real numbers, below
    history_steps: Any  # of the measurements that hyper-parameters are estimated from
    history_values: Any
    history_noise: Any  # as `hearing` takes it
    sampled: Any  # the columns that the history has
    kept_spread: Any  # rings over the last steps, for smoothing
    kept_variance: Any
    kept_total: Any
    kept_innovation: Any
    kept_value: Any
    settled: Any  # variances of smoothed values, while nothing changes
    excess: Any  # of each class: sums over measurements, below
    load: Any  # how much each column has of what all have in common; empty where nothing is taken to be that


class Season(NamedTuple):
    """What is public about harmonics: how each turns in one step, and its weight."""

    once: Any
    weight: Any


class Room(NamedTuple):
    """What the present step needs room for."""

    work: Any
    spread: Any  # of each class: covariances of its states with the value
    variance: Any  # of each class: that of the value
    total: Any  # and of its measurement
    made: Any  # of each class: how its value is made of the states
    values: Any  # of each column: what is expected, then what is believed
    before: Any
    claimed: (
        Any  # of each class: the variance of a value that intervals claim, which is no less than the model's
    )


# positions in `clock`
GAP = 0  # steps since the last measurement
COUNT = 1  # measurements so far
LAST = 2  # the step of the last one; 0 before any
NEXT_FIT = 3  # the number of measurements at which hyper-parameters are estimated again
ROWS = 4  # measurements in the history
DROPPED = 5  # measurements that the history has forgotten
LAPLACE = 6  # 1 where noise is taken as Laplace, 0 where as Gaussian
FITTED = 7  # the number of measurements at the last estimate
BLIND = 8  # the number of measurements at the last estimate at which nothing was visible; counted where columns share
CLOCK = 9

# positions in `health`
MISFIT = 0  # recent mean of squared standardised innovations: 1 where the model fits
FACTOR = 1  # by how much intervals are wider than the model says
LEARNT = 2  # measurements so far, each counted by how much of it is not noise: what hyper-parameters are known from
SIZE_FITTED = 3  # the squared level at the last estimate
# What columns have in common is followed as one more column, the last one, which is a class by itself. A column is its
# own part and its load of what that is beyond its usual level. Here are
USUAL = 4  # that level
LOADS = 5  # the sum of squared loads
SURPRISED = 6  # the misfit of what is common
FITTED_TO = 7  # and its squared level at the last estimate
HEALTH = 8

RECENT = 8.0  # measurements that the misfit looks back on
# a square counts no more than SURPRISE: Laplace noise alone exceeds it at one of 300 steps; but it never does IMPOSSIBLE
SURPRISE, IMPOSSIBLE = 16.0, 100.0
# positions in `excess`: sums with weights 1/total², which squares are known by
WEIGHT = 0
BEYOND = 1  # of what squared innovations are beyond their variance
UNSURE = 2  # of the variance of that
SIZES = 3  # of the squared level
SIZE = 4  # of the squared level, over few measurements
FEW = 5  # how many those are
EXCESS = 6

MEMORY = 128.0  # measurements that those sums look back on
GROWTH = 16.0  # times, at most, that what was beyond the model grows with the squared level
POSSIBLE = 0.5  # standard errors of the excess that count as if they were there
DOUBT = (
    8.0  # times the variance more while one measurement is known: young hyper-parameters are often too small
)
# hyper-parameters are estimated again where the squared level has become so many times as large, or squared innovations
# are so many times what is expected; after so many measurements at least, and an eighth of those at the last estimate
OUTGROWN, MISFITTING, SOONEST = 1.5, 3.0, 8
LEARNING = 0.05  # how fast the factor follows the share of innovations outside
OUTSIDE, EDGE = 0.1, 1.6448536269514722  # 10 % of a Gaussian are beyond so many deviations
LEAST_FACTOR, LARGEST_FACTOR = 0.5, 5.0


@lean
def one_step_on(book: Any, step: int, season: Any, room: Any) -> None:
    """Predict the next step."""
    covariance, parameters, phase, clock = book.covariance, book.parameters, book.phase, book.clock
    rings, once, weight = book.kept_spread, season.once, season.weight
    work, spread, variance, _, made, values, _, claimed = room
    keep = rings.shape[0]
    gap = 0
    if clock[LAST] > 0:
        clock[GAP] += 1
        gap = clock[GAP]
        turn_to(once, step, phase)
    else:
        phase_at(once, step, phase)
    for c in range(parameters.shape[0]):
        variance[c] = look_ahead(covariance[c], parameters[c], weight, gap, phase, work, spread[c])
        claimed[c] = doubted(book, c, variance[c])
    expected(book.state, parameters, book.kind, gap, phase, made, values)
    if keep:
        at = step % keep
        kept_variance, kept_total, kept_value = book.kept_variance, book.kept_total, book.kept_value
        for c in range(parameters.shape[0]):
            kept_variance[at, c], kept_total[at, c] = variance[c], 0.0
            for i in range(spread.shape[1]):
                rings[at, c, i] = spread[c, i]
        for j in range(values.size):
            kept_value[at, j] = values[j]


@lean
def beyond_usual(book: Any, values: Any) -> Any:
    """What columns have in common now, beyond its usual level; 0 where they share nothing."""
    return values[values.size - 1] - book.health[USUAL] if book.load.size else 0.0


@lean
def claimed_of_common(book: Any, claimed: Any) -> Any:
    """The variance that intervals claim of it."""
    return claimed[claimed.size - 1] if book.load.size else 0.0


@lean
def add_up(load: Any, weight: float, measured: Any) -> None:
    """The last one becomes a measurement of what is common: the weighted sum of all others."""
    total = 0.0
    for j in range(load.size):
        total += load[j] * measured[j]
    measured[load.size] = total / weight


@lean
def possible(excess: Any) -> float:
    """The variance that may be there beside the model's: what innovations show, and what they could not show."""
    if excess[WEIGHT] <= 0.0:
        return 0.0
    found = (excess[BEYOND] + POSSIBLE * np.sqrt(excess[UNSURE])) / excess[WEIGHT]
    # a stream that grows is wrong by more than it was
    before = excess[SIZES] / excess[WEIGHT]
    grown = excess[SIZE] / excess[FEW] / before if before > 0.0 else 1.0
    return float(max(found, 0.0) * min(max(grown, 1.0), GROWTH))


@lean
def doubted(book: Any, c: int, variance: float) -> float:
    """What intervals claim of a prediction with this variance."""
    health = book.health
    doubt = 1.0 + DOUBT / health[LEARNT]
    beside = max(possible(book.excess[c]), book.parameters[c, UNSEEN])
    return float((doubt * variance + beside) * health[FACTOR] ** 2)


@lean
def take_in(book: Any, step: int, season: Any, noise: float, measured: Any, room: Any) -> None:
    """Correct by the measurements of the present step, made with this noise (see `hearing`); values become corrected."""
    covariance, parameters, kind = book.covariance, book.parameters, book.kind
    clock, health, weight = book.clock, book.health, season.weight
    _, spread, variance, total, made, values, before, claimed = room
    excess = book.excess
    keep = book.kept_spread.shape[0]
    columns = kind.size
    gap = clock[GAP]
    squares, outside, told = 0.0, 0, 0.0
    laplace = clock[LAPLACE] == 1
    load = book.load
    common = load.size if load.size else columns  # its column
    if load.size:
        add_up(load, health[LOADS], measured)
    for c in range(parameters.shape[0]):
        total[c] = variance[c] + (effective_noise(variance[c], noise) if laplace else noise)
        if load.size and c == kind[common]:
            total[c] = variance[c] + abs(noise) / health[LOADS]  # the noise of a sum of many is nearly normal
        health[LEARNT] += variance[c] / total[c] / parameters.shape[0]
        told += variance[c] / total[c] / parameters.shape[0]
        excess[c, WEIGHT] *= 1.0 - 1.0 / MEMORY
        excess[c, BEYOND] *= 1.0 - 1.0 / MEMORY
        excess[c, UNSURE] *= (1.0 - 1.0 / MEMORY) ** 2
        excess[c, SIZES] *= 1.0 - 1.0 / MEMORY
        excess[c, SIZE] *= 1.0 - 1.0 / RECENT
        excess[c, FEW] *= 1.0 - 1.0 / RECENT
    beyond = 0.0  # what is common, as soon as it is corrected
    if load.size:
        c = kind[common]
        innovation = measured[common] - values[common]
        beyond = values[common] + variance[c] / total[c] * innovation - health[USUAL]
        if clock[COUNT] > 0:
            health[SURPRISED] += (innovation * innovation / total[c] - health[SURPRISED]) / RECENT
    for j in range(columns):
        c = kind[j]
        innovation = measured[j] - values[j]
        if j < load.size:
            innovation -= load[j] * beyond
        both = total[c] if j == common else variance[c] + abs(noise)
        square = innovation * innovation / both
        if j != common:
            squares += square if square > IMPOSSIBLE else min(square, SURPRISE)
            outside += innovation * innovation > EDGE * EDGE * (claimed[c] + abs(noise))
        if clock[COUNT] > 0:
            # the variance of a squared Laplace number is 5 times its squared variance, of a normal one twice
            share = max(noise, 0.0) / both if laplace and j != common else 0.0
            excess[c, WEIGHT] += 1.0 / (both * both)
            excess[c, BEYOND] += (min(square, SURPRISE) - 1.0) / both
            excess[c, UNSURE] += (2.0 + 3.0 * share * share) / (both * both)
            size = book.state[j, 0] ** 2 + covariance[c, 0, 0]
            excess[c, SIZES] += size / (both * both)
            excess[c, SIZE] += size
            excess[c, FEW] += 1.0
        before[j] = values[j]
        values[j] = innovation
        if laplace and j != common:
            values[j] = heard(innovation, variance[c], noise) * total[c] / variance[c]
    if keep:
        at = step % keep
        for c in range(parameters.shape[0]):
            book.kept_total[at, c] = total[c]
        for j in range(columns):
            book.kept_innovation[at, j] = values[j]
    follow(book.state, kind, made, spread, total, values)
    for j in range(columns):
        c = kind[j]
        values[j] = before[j] + variance[c] / total[c] * values[j]
    for c in range(parameters.shape[0]):
        absorb(covariance[c], parameters[c], weight, gap, spread[c], total[c])
        rest = 1.0 - variance[c] / total[c]
        # the error of a corrected value: what is left of that of the prediction, and a part of the noise, which is known
        claimed[c] = rest * rest * claimed[c] + (1.0 - rest) * rest * variance[c]
        variance[c] *= rest
    if clock[COUNT] > 0:
        health[MISFIT] += (squares / common - health[MISFIT]) / RECENT
        # innovations that are mostly noise say little about intervals
        moved = health[FACTOR] * np.exp(LEARNING * told * (outside / common - OUTSIDE))
        health[FACTOR] = min(max(moved, LEAST_FACTOR), LARGEST_FACTOR)
    _remember(book, step, noise, measured)
    clock[GAP] = 0
    clock[COUNT] += 1
    clock[LAST] = step
    seen = clock[FITTED] - clock[BLIND]
    soonest = SOONEST + seen // SOONEST
    if clock[COUNT] >= clock[FITTED] + soonest and _outgrown(book):
        clock[NEXT_FIT] = min(clock[NEXT_FIT], clock[COUNT])


@lean
def _outgrown(book: Any) -> Any:
    """Whether hyper-parameters are those of a smaller stream, or of another one."""
    excess, health = book.excess, book.health
    size, few = 0.0, 0.0
    classes = excess.shape[0]
    if book.load.size:
        classes -= 1
        one = excess[classes]
        if health[SURPRISED] > MISFITTING or one[SIZE] > OUTGROWN * health[FITTED_TO] * one[FEW]:
            return True
    for c in range(classes):
        size += excess[c, SIZE]
        few += excess[c, FEW]
    return health[MISFIT] > MISFITTING or size > OUTGROWN * health[SIZE_FITTED] * few


@lean
def _remember(book: Any, step: int, noise: float, measured: Any) -> None:
    """Keep a measurement for estimates; a full history forgets its oldest quarter."""
    clock, sampled = book.clock, book.sampled
    times, values, variances = book.history_steps, book.history_values, book.history_noise
    rows = clock[ROWS]
    if rows == times.size:
        forgotten = max(1, rows // 4)
        for row in range(rows - forgotten):
            times[row] = times[row + forgotten]
            variances[row] = variances[row + forgotten]
            for at in range(sampled.size):
                values[row, at] = values[row + forgotten, at]
        rows -= forgotten
        clock[DROPPED] += forgotten
    times[rows] = step
    variances[rows] = noise
    for at in range(sampled.size):
        values[rows, at] = measured[sampled[at]]
    clock[ROWS] = rows + 1


@lean
def refreshed(book: Any, season: Any, room: Any) -> None:
    """Value and variance now, after hyper-parameters or states were replaced at a measured step."""
    book, season, room = Book(*book), Season(*season), Room(*room)
    parameters, phase = book.parameters, book.phase
    expected(book.state, parameters, book.kind, 0, phase, room.made, room.values)
    for c in range(parameters.shape[0]):
        variance = look_ahead(
            book.covariance[c], parameters[c], season.weight, 0, phase, room.work, room.spread[c]
        )
        room.variance[c] = max(variance, 0.0)
        room.claimed[c] = doubted(book, c, room.variance[c])


@lean
def track(
    steps_first: int,
    given: Any,
    noise: Any,
    begin: int,
    book: Any,
    season: Any,
    room: Any,
    values: Any,
    deviations: Any,
) -> Any:
    """Filter rows given[begin:]; noise[i] ≥ 0 where row i is a measurement, else negative. Stops for a fit."""
    book, season, room = Book(*book), Season(*season), Room(*room)
    clock = book.clock
    for index in range(begin, given.shape[0]):
        step = steps_first + index
        one_step_on(book, step, season, room)
        fit = False
        if noise[index] >= 0.0:
            take_in(book, step, season, noise[index], given[index], room)
            fit = clock[COUNT] >= clock[NEXT_FIT]
        if fit:
            return index
        write(book, room, values[index], deviations[index])
    return given.shape[0]


@lean
def write(book: Any, room: Any, values: Any, deviations: Any) -> None:
    """Copy the present values and their standard deviations out; infinite deviations before any measurement."""
    book, room = Book(*book), Room(*room)
    kind, clock, believed = book.kind, book.clock, room.values
    for j in range(kind.size):
        c = kind[j]
        values[j] = believed[j]
        sure = np.sqrt(room.claimed[c])
        deviations[j] = sure if clock[COUNT] > 0 else np.inf
