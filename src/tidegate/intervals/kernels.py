"""The compiled loop over steps of values that stay until the next measurement."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import lean

# rows of the state of a walk
SQUARES = 0  # Σ of squared movements, less what noise explains
GAPS = 1  # Σ of the steps that they took
COUNT = 2  # how many they are
VALUE = 3  # what was last measured
STEP = 4  # and when; 0 before anything was
VARIANCE = 5  # and the variance of its noise
DRIFT = 6  # Σ of movements with their signs
DIFFERENCES = 7  # Σ of squared movements
SIZES = 8  # Σ of the sizes of measured values
WALK = 9

REMEMBERED = 1.0 - 1.0 / 32.0  # of a walk's sums after each movement: a stream that grows moves more and more

# statuses
FRESH = 1
PARTIAL = 5


@lean
def _follow_all(state: Any, now: Any, step: int, variance: float, subtracts: bool) -> None:
    """What `follow` does of a step that measured all columns again, in loops that become vector instructions."""
    squares, gaps, count = state[SQUARES], state[GAPS], state[COUNT]
    last, at, noise = state[VALUE], state[STEP], state[VARIANCE]
    drift, differences, sizes = state[DRIFT], state[DIFFERENCES], state[SIZES]
    for column in range(now.size):
        moved = now[column] - last[column]
        explained = variance + noise[column] if subtracts else 0.0
        squares[column] = squares[column] * REMEMBERED + (moved * moved - explained)
    for column in range(now.size):
        gaps[column] = gaps[column] * REMEMBERED + (step - at[column])
        count[column] = count[column] * REMEMBERED + 1.0
    for column in range(now.size):
        moved = now[column] - last[column]
        drift[column] = drift[column] * REMEMBERED + moved
        differences[column] = differences[column] * REMEMBERED + moved * moved
    for column in range(now.size):
        sizes[column] = sizes[column] * REMEMBERED + abs(last[column])
        last[column] = now[column]
    for column in range(now.size):
        at[column], noise[column] = step, variance


@lean
def follow(
    state: Any,
    values: Any,
    status: Any,
    first: int,
    variances: Any,
    subtracts: bool,
    partial: bool,
    trace: Any,
) -> None:
    """Learn from the steps that were measured; `trace` gets the state after each step, unless it is empty.

    Of a step that measured some columns those count that changed, and noise explains nothing of them: its scale is the
    largest of several.
    """
    squares, gaps, count = state[SQUARES], state[GAPS], state[COUNT]
    last, at, noise = state[VALUE], state[STEP], state[VARIANCE]
    traced = trace.shape[1] > 0
    for index in range(values.shape[0]):
        fresh = status[index] == FRESH
        some = partial and status[index] == PARTIAL
        if fresh or some:
            step, variance = first + index, variances[index]
            known = 0
            for column in range(at.size):
                known += at[column] > 0
            everything = fresh and known == at.size
            if everything:
                _follow_all(state, values[index], step, variance, subtracts)
            for column in range(0 if everything else values.shape[1]):
                value = values[index, column]
                if fresh or value != (values[index - 1, column] if index > 0 else last[column]):
                    if at[column] > 0:
                        moved = value - last[column]
                        explained = variance + noise[column] if subtracts and fresh else 0.0
                        for row in (SQUARES, GAPS, COUNT, DRIFT, DIFFERENCES, SIZES):
                            state[row, column] *= REMEMBERED
                        squares[column] += moved * moved - explained
                        gaps[column] += step - at[column]
                        count[column] += 1.0
                        state[DRIFT, column] += moved
                        state[DIFFERENCES, column] += moved * moved
                        state[SIZES, column] += abs(last[column])
                    last[column], at[column], noise[column] = value, step, variance
        if traced:
            for row in range(trace.shape[0]):
                for column in range(values.shape[1]):
                    trace[row, index, column] = state[row, column]


# rows of the state of a model, of each column
FRESH_ERRORS = 0  # at measured steps: Σ of the squared errors that measurements show
FRESH_CLAIMED = 1  # Σ of what the model claimed
FRESH_COUNT = 2  # of their weights; all sums fade
AHEAD_ERRORS = 3  # the same one step ahead, where the step before a measurement was not measured
AHEAD_CLAIMED = 4
AHEAD_COUNT = 5
FOLLOWED = 6  # Σ of changes of values times surprises: how much of a surprise values follow
SURPRISES = 7  # Σ of squared surprises
LAST_VALUE = 8
LAST_CLAIMED = 9
LAST_KNOWN = 10  # 0: nothing was released yet; 1: without a measurement; 2: with one
AWAY = 11  # Σ of what measurements are beyond values, by precision
AWAY_SQUARES = 12
PRODUCTS = 13  # Σ of products of two such differences that follow each other
LAST_AWAY = 14
PRECISION = 15  # Σ of the weights of means
FRESH_SQUARES = 16  # Σ of the squares of what is added to `FRESH_ERRORS`
AHEAD_SQUARES = 17
AHEAD_AWAY = (
    18  # the same three as of what measurements are beyond values, of what they are beyond the step before
)
AHEAD_AWAY_SQUARES = 19
AHEAD_PRECISION = 20
MODEL = 21

FADE = 1.0 - 1.0 / 64.0


@lean
def follow_model(
    state: Any, values: Any, readings: Any, fresh: Any, claimed: Any, variances: Any, least: float, trace: Any
) -> None:
    """Compare a model with its measurements; `trace` gets the state after each step, unless it is empty.

    A measurement y = x + n and a value v that follows a part K of it differ by n − (v − x), so that
    E(v − x)² = E(y − v)² − R + 2·K·R for noise of variance R. K is the regression of changes on surprises. Measurements
    have very different noise, and count by their precision; `least` is a variance that none of them is better than.
    """
    traced = trace.shape[1] > 0
    for index in range(values.shape[0]):
        noise = variances[index]
        for column in range(values.shape[1]):
            value, claim = values[index, column], claimed[index, column]
            precision = 1.0 / (noise + claim + least)
            weight = precision * precision
            if fresh[index]:
                reading = readings[index, column]
                if state[LAST_KNOWN, column] > 0:
                    surprise = reading - state[LAST_VALUE, column]
                    state[FOLLOWED, column] *= FADE
                    state[SURPRISES, column] *= FADE
                    state[FOLLOWED, column] += weight * (value - state[LAST_VALUE, column]) * surprise
                    state[SURPRISES, column] += weight * surprise * surprise
                    if state[LAST_KNOWN, column] == 1:
                        for row in (AHEAD_ERRORS, AHEAD_CLAIMED, AHEAD_COUNT, AHEAD_SQUARES):
                            state[row, column] *= FADE
                        for row in (AHEAD_AWAY, AHEAD_AWAY_SQUARES, AHEAD_PRECISION):
                            state[row, column] *= FADE
                        state[AHEAD_AWAY, column] += precision * surprise
                        state[AHEAD_AWAY_SQUARES, column] += weight * surprise * surprise
                        state[AHEAD_PRECISION, column] += precision
                        shown = surprise * surprise - noise
                        state[AHEAD_ERRORS, column] += weight * shown
                        state[AHEAD_SQUARES, column] += (weight * shown) ** 2
                        state[AHEAD_CLAIMED, column] += weight * state[LAST_CLAIMED, column]
                        state[AHEAD_COUNT, column] += weight
                gain = 1.0
                if state[SURPRISES, column] > 0.0:
                    gain = min(max(state[FOLLOWED, column] / state[SURPRISES, column], 0.0), 1.0)
                state[FRESH_ERRORS, column] *= FADE
                state[FRESH_CLAIMED, column] *= FADE
                state[FRESH_COUNT, column] *= FADE
                away = reading - value
                for row in (AWAY, AWAY_SQUARES, PRODUCTS, PRECISION, FRESH_SQUARES):
                    state[row, column] *= FADE
                state[AWAY, column] += precision * away
                state[AWAY_SQUARES, column] += weight * away * away
                state[PRECISION, column] += precision
                state[PRODUCTS, column] += weight * away * state[LAST_AWAY, column]
                state[LAST_AWAY, column] = away
                shown = away * away - noise + 2.0 * min(gain * noise, claim)
                state[FRESH_ERRORS, column] += weight * shown
                state[FRESH_SQUARES, column] += (weight * shown) ** 2
                state[FRESH_CLAIMED, column] += weight * claim
                state[FRESH_COUNT, column] += weight
            state[LAST_VALUE, column], state[LAST_CLAIMED, column] = value, claim
            if state[FRESH_COUNT, column] > 0.0:
                state[LAST_KNOWN, column] = 2.0 if fresh[index] else 1.0
        if traced:
            for row in range(trace.shape[0]):
                for column in range(values.shape[1]):
                    trace[row, index, column] = state[row, column]
