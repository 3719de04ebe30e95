"""The compiled loop of Budget Distribution and Budget Absorption.

It asks the ledger's account before each use of noise, and pauses (returns) where Python must help: for a draw
that floating point cannot decide, for the noise of a wide publication, or because the ledger refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_charge_group, account_remaining
from tidegate.mechanisms.kernels.loops import (
    APPROXIMATED,
    DONE,
    FRESH,
    NULLIFIED,
    OWN,
    PARTIAL,
    REFUSED,
    Account,
    Outputs,
    largest,
)
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.noise.kernels import constants, laplace_draw

# why the loop returned, besides
SCORE_NOISE = OWN  # a dissimilarity's noise is undecided: the caller supplies that of all groups in `given`
CELL_NOISE = (
    OWN + 1
)  # the caller draws the noise of the columns that are published, and overwrites these in `last`

# budget rules
ABSORPTION = 0
DISTRIBUTION = 1

# dissimilarities
L1 = 0
LARGEST = 1
GIVEN = -1  # the caller computes the scores

# positions in `memory`, which snapshots keep
LATEST = 1  # the step of the last publication (l)
TAKEN = 2  # its units, in multiples of the publication unit (n_l)
POOL_USED = 3  # units of the publications in the window, for the distribution rule
HEAD = 4  # first live row of `paid`
COUNT = 5  # live rows of `paid`
AMOUNT = 6  # ledger units of the publication in progress
SINCE = 7  # the step after which `squares` were last cleared
MEMORY = 8

MOST = 2**61  # of a score
FURTHEST = 2**54  # of a published value: truncating it is post-processing
WIDEST = 2.0**55  # of noise: a publication with more, which could not be drawn, is not even considered


class Rule(NamedTuple):
    """What is public and stays as it is."""

    kind: int  # ABSORPTION or DISTRIBUTION
    window: int
    test_units: int  # ledger units of one dissimilarity test
    step_units: int  # ledger units of one step's publication share (absorption)
    pool_units: int  # ledger units that publications share in a window (distribution)
    measure: int  # L1, LARGEST or GIVEN
    whole: float  # a publication of n units has noise of the scale whole / n
    score_scale: float  # of a dissimilarity's noise
    grid: float


class Memory(NamedTuple):
    """What a run keeps from step to step; all of it is public or released."""

    memory: Any  # numbers, above
    paid: Any  # a ring of (step, units): the publications of the window, for the distribution rule
    last: Any  # what was last published
    measured: Any  # of each group: the step of its last publication
    scales: Any  # of each group: its noise scale
    group_of: Any  # the group of each column; empty: all columns are one group
    squares: (
        Any  # of each column: squared releases since groups were formed; empty where they stay as they are
    )


class Work(NamedTuple):
    """What a loop and its caller hand to each other, and what a step needs room for."""

    weights: Any  # of each group: the score that noise of scale 1 would cause by itself
    repaid: Any  # empty, or what printed variants remember instead of the shares of a publication
    given: Any  # noise
    chosen: Any  # of each group: whether it is published at this step
    scores: Any  # of each group: its dissimilarity


class Words(NamedTuple):
    """Random words: 2 × draws."""

    scores: Any  # without draws where tests share noise
    cells: Any  # without draws where the caller draws the noise of a publication


class Shared(NamedTuple):
    """Noise that tests share, steps × groups of columns, and what pays for it.

    None is handed over where each has its own: the loop is then compiled without a look at it.
    """

    drawn: Any  # looked at only where it is paid for
    due: Any  # (first, last, units): what is charged, in this order, when the loop comes to their first steps
    charged: Any  # how many of them were


@lean
def offer(rule: Any, memory: Any, paid: Any, step: int) -> Any:
    """Units that a publication at this step would spend; 0: it must be skipped, -1: the step is nullified."""
    rule = Rule(*rule)
    if rule.kind == ABSORPTION:
        return _absorbed(rule, memory, step)
    return _half_of_the_rest(rule, memory, paid, step)


@lean
def _absorbed(rule: Any, memory: Any, step: int) -> Any:
    """`budget_absorption.shares_offered`, in units."""
    waited = step - memory[LATEST]
    if waited <= memory[TAKEN] - 1:
        return -1
    return rule.step_units * min(waited - memory[TAKEN] + 1, rule.window)


@lean
def _half_of_the_rest(rule: Any, memory: Any, paid: Any, step: int) -> Any:
    """`budget_distribution.units_offered`, with a running sum of what the window has published."""
    while memory[COUNT] > 0 and paid[memory[HEAD], 0] <= step - rule.window:
        memory[POOL_USED] -= paid[memory[HEAD], 1]
        memory[HEAD] = (memory[HEAD] + 1) % paid.shape[0]
        memory[COUNT] -= 1
    return (rule.pool_units - memory[POOL_USED]) // 2


@lean
def remember(rule: Any, memory: Any, paid: Any, repaid: Any, step: int, units: int) -> None:
    """Note a publication; the caller made sure that `paid` has room.

    `repaid` is empty: n shares are repaid by n − 1 nullified steps. Printed variants look up other numbers there.
    """
    rule = Rule(*rule)
    memory[LATEST] = step
    if rule.kind == ABSORPTION:
        shares = units // rule.step_units
        memory[TAKEN] = repaid[shares] if repaid.size else shares
        return
    at = (memory[HEAD] + memory[COUNT]) % paid.shape[0]
    paid[at, 0] = step
    paid[at, 1] = units
    memory[COUNT] += 1
    memory[POOL_USED] += units


@lean
def _group(group_of: Any, column: int) -> Any:
    """The group of a column; an empty array stands for one group of all columns."""
    return group_of[column] if group_of.size else 0


@lean
def _next_due(due: Any, charged: Any) -> Any:
    """The step at which the next group of tests is charged; 0 where there is none."""
    return due[charged[0], 0] if charged[0] < due.shape[0] else 0


@lean
def _scores(row: Any, last: Any, group_of: Any, measure: int, scores: Any) -> None:
    """The dissimilarity of each group; sums stop at MOST, which keeps their sensitivity and 64 bits."""
    scores[:] = 0
    if scores.size == 1 and measure == L1:
        total: Any = np.int64(0)
        for start in range(0, row.size, 64):  # 64 differences below 2^55 cannot leave 64 bits
            piece = np.int64(0)
            for column in range(start, min(start + 64, row.size)):
                piece += abs(row[column] - last[column])
            total = min(total + piece, MOST)
        scores[0] = total
    elif measure == L1:
        for column in range(row.size):
            group = _group(group_of, column)
            scores[group] = min(scores[group] + abs(row[column] - last[column]), MOST)
    elif measure == LARGEST:
        for column in range(row.size):
            group = _group(group_of, column)
            scores[group] = max(scores[group], abs(row[column] - last[column]))


@lean
def overwrite(state: Any, chosen: Any, row: Any, first: int, noise: Any, step: int, grid: float) -> None:
    """Publish the columns from `first` on, as many as there is noise for: those of the chosen groups change in `last`."""
    memory, _, last, measured, _, group_of, squares = Memory(*state)
    for at in range(noise.size):
        column = first + at
        if chosen[_group(group_of, column)]:
            if squares.size:  # how large the value was that is now replaced, for each step it stood
                stood = step - max(measured[_group(group_of, column)], memory[SINCE])
                squares[column] += (last[column] * grid) ** 2 * stood
            last[column] = min(max(row[column] + noise[at], -FURTHEST), FURTHEST)


@lean
def _decide(index: int, law: Any, words: Any, scores: Any, weights: Any, limit: float, chosen: Any) -> bool:
    """Which groups have a noisy score that noise of scale `limit` hardly causes; False where a draw is undecided."""
    part, factor, shift = law
    for group in range(scores.size):
        at = index * scores.size + group
        noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
        if not decided:
            return False
        chosen[group] = scores[group] + noise > weights[group] * limit
    return True


@lean
def _draw_cells(
    index: int, law: Any, words: Any, group_of: Any, chosen: Any, given: Any, columns: int
) -> bool:
    """Draw the noise of the columns that are published; False where floating point cannot decide it."""
    part, factor, shift = law
    for column in range(columns):
        if chosen[_group(group_of, column)]:
            at = index * columns + column
            noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
            if not decided:
                return False
            given[column] = noise
    return True


@lean
def _write(values: Any, grid: float, out: Any) -> None:
    for column in range(values.size):
        out[column] = values[column] * grid


@lean
def release(
    rows: Any,
    begin: int,
    paused: int,
    first_step: int,
    rule: Any,
    words: Any,
    shared: Any,
    work: Any,
    account: Any,
    state: Any,
    outputs: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    rule = Rule(*rule)
    score_words, cell_words = Words(*words)
    weights, repaid, given, chosen, scores = Work(*work)
    entries, numbers = Account(*account)
    memory, paid, last, measured, scales, group_of, _ = kept = Memory(*state)
    values, status, source, scale, units = Outputs(*outputs)
    law = constants(rule.score_scale)
    groups = scores.size
    inline = cell_words.shape[1] > 0
    if shared is not None:
        drawn, due, charged = Shared(*shared)
        next_due = _next_due(due, charged)
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        row = rows[index]
        if paused == DONE:
            if shared is not None:  # noqa: SIM102  one condition is decided by the compiler
                if step == next_due:
                    cost = due[charged[0], 2]
                    if account_charge_group(entries, numbers, step, due[charged[0], 1], cost) != ACCEPTED:
                        return index, REFUSED
                    units[index] += cost
                    charged[0] += 1
                    next_due = _next_due(due, charged)
            amount = offer(rule, memory, paid, step)
            # on a shared ledger: what cannot be paid is not even considered, so that no refusal tells of a decision
            if amount > 0 and account_remaining(entries, numbers, step) < rule.test_units + amount:
                amount = 0
            if amount > 0 and rule.whole > WIDEST * amount:
                amount = 0
            memory[AMOUNT] = amount
            if account_charge(entries, numbers, step, rule.test_units) != ACCEPTED:
                return index, REFUSED
            units[index] += rule.test_units
        amount = memory[AMOUNT]
        if paused != CELL_NOISE:
            chosen[:] = False
            if amount > 0:
                if rule.measure != GIVEN:  # else the caller has filled in the scores of this one step
                    _scores(row, last, group_of, rule.measure, scores)
                limit = np.nextafter(rule.whole / amount, np.inf)  # at least the scale that a publication has
                if shared is not None:
                    for group in range(groups):
                        chosen[group] = scores[group] + drawn[index, group] > weights[group] * limit
                elif paused == SCORE_NOISE:
                    for group in range(groups):
                        chosen[group] = scores[group] + given[group] > weights[group] * limit
                elif not _decide(index, law, score_words, scores, weights, limit, chosen):
                    return index, SCORE_NOISE
        fresh = 0
        for group in range(groups):
            fresh += chosen[group]
        if fresh:
            width = publication_scale(rule.whole, amount)
            if paused != CELL_NOISE:
                account_charge(
                    entries, numbers, step, amount
                )  # there is room: it was asked for before the test
                units[index] += amount
                if not inline or not _draw_cells(
                    index, constants(width), cell_words, group_of, chosen, given, row.size
                ):
                    return index, CELL_NOISE
                overwrite(kept, chosen, row, 0, given[: row.size], step, rule.grid)
            for group in range(groups):
                if chosen[group]:
                    measured[group] = step
                    scales[group] = width * rule.grid
            remember(rule, memory, paid, repaid, step, amount)
        paused = DONE
        if fresh == groups:
            status[index] = FRESH
        elif fresh:
            status[index] = PARTIAL
        elif amount < 0:
            status[index] = NULLIFIED
        else:
            status[index] = APPROXIMATED
        source[index] = largest(measured)
        scale[index] = largest(scales)
        _write(last, rule.grid, values[index])
    return rows.shape[0], DONE
