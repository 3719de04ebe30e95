"""The compiled loop of Budget Distribution and Budget Absorption.

It asks the ledger's account before each use of noise, and pauses (returns) where Python must help: for a draw
that floating point cannot decide, for the noise of a wide publication, or because the ledger refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.ledger.kernels import ACCEPTED, account_charge, account_remaining
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.noise.kernels import constants, laplace_draw

# why the loop returned
DONE = 0
SCORE_NOISE = 1  # a dissimilarity's noise is undecided: the caller supplies the row of scores' noise
CELL_NOISE = 2  # the caller draws the noise of the columns that are published, and overwrites these in `last`
REFUSED = 3  # the ledger refused the test of a step

# budget rules
ABSORPTION = 0
DISTRIBUTION = 1

# positions in `memory`
PHASE = 0  # 0: a new step; SCORE_NOISE or CELL_NOISE: the caller has done what was asked for
LATEST = 1  # the step of the last publication (l)
TAKEN = 2  # its units, in multiples of the publication unit (n_l)
POOL_USED = 3  # units of the publications in the window, for the distribution rule
HEAD = 4  # first live row of `paid`
COUNT = 5  # live rows of `paid`
AMOUNT = 6  # ledger units of the publication in progress
SINCE = 7  # the step after which `squares` were last cleared
MEMORY = 8

# positions in `rule`
KIND = 0
WINDOW = 1
TEST_UNITS = 2  # ledger units of one dissimilarity test
STEP_UNITS = 3  # ledger units of one step's publication share (absorption)
POOL_UNITS = 4  # ledger units that publications share in a window (distribution)
MEASURE = 5  # 0: L1, 1: largest difference, -1: the caller computes the scores

FRESH, APPROXIMATED, NULLIFIED, PARTIAL = 1, 2, 3, 5
MOST = 2**61  # of a score
FURTHEST = 2**54  # of a published value: truncating it is post-processing


@kernel
def offer(rule: Any, memory: Any, paid: Any, step: int) -> Any:
    """Units that a publication at this step would spend; 0: it must be skipped, -1: the step is nullified."""
    if rule[KIND] == ABSORPTION:
        waited = step - memory[LATEST]
        if waited <= memory[TAKEN] - 1:
            return -1
        return rule[STEP_UNITS] * min(waited - memory[TAKEN] + 1, rule[WINDOW])
    while memory[COUNT] > 0 and paid[memory[HEAD], 0] <= step - rule[WINDOW]:
        memory[POOL_USED] -= paid[memory[HEAD], 1]
        memory[HEAD] = (memory[HEAD] + 1) % paid.shape[0]
        memory[COUNT] -= 1
    return (rule[POOL_UNITS] - memory[POOL_USED]) // 2


@kernel
def remember(rule: Any, memory: Any, paid: Any, repaid: Any, step: int, units: int) -> None:
    """Note a publication; the caller made sure that `paid` has room.

    `repaid` is empty: n shares are repaid by n − 1 nullified steps. Printed variants look up other numbers there.
    """
    memory[LATEST] = step
    if rule[KIND] == ABSORPTION:
        shares = units // rule[STEP_UNITS]
        memory[TAKEN] = repaid[shares] if repaid.size else shares
        return
    at = (memory[HEAD] + memory[COUNT]) % paid.shape[0]
    paid[at, 0] = step
    paid[at, 1] = units
    memory[COUNT] += 1
    memory[POOL_USED] += units


@kernel
def _group(group_of: Any, column: int) -> Any:
    """The group of a column; an empty array stands for one group of all columns."""
    return group_of[column] if group_of.size else 0


@kernel
def _scores(row: Any, last: Any, group_of: Any, measure: int, scores: Any) -> None:
    """The dissimilarity of each group; sums stop at MOST, which keeps their sensitivity and 64 bits."""
    scores[:] = 0
    if scores.size == 1 and measure == 0:
        total: Any = np.int64(0)
        for start in range(0, row.size, 64):  # 64 differences below 2^55 cannot leave 64 bits
            piece = np.int64(0)
            for column in range(start, min(start + 64, row.size)):
                piece += abs(row[column] - last[column])
            total = min(total + piece, MOST)
        scores[0] = total
    elif measure == 0:
        for column in range(row.size):
            group = _group(group_of, column)
            scores[group] = min(scores[group] + abs(row[column] - last[column]), MOST)
    elif measure > 0:
        for column in range(row.size):
            group = _group(group_of, column)
            scores[group] = max(scores[group], abs(row[column] - last[column]))


@kernel
def overwrite(
    row: Any,
    first: int,
    noise: Any,
    step: int,
    chosen: Any,
    group_of: Any,
    measured: Any,
    memory: Any,
    grid: float,
    last: Any,
    squares: Any,
) -> None:
    """Publish the columns from `first` on, as many as there is noise for: those of the chosen groups change in `last`."""
    for at in range(noise.size):
        column = first + at
        if chosen[_group(group_of, column)]:
            if squares.size:  # how large the value was that is now replaced, for each step it stood
                stood = step - max(measured[_group(group_of, column)], memory[SINCE])
                squares[column] += (last[column] * grid) ** 2 * stood
            last[column] = min(max(row[column] + noise[at], -FURTHEST), FURTHEST)


@kernel
def _write(values: Any, grid: float, out: Any) -> None:
    for column in range(values.size):
        out[column] = values[column] * grid


@kernel
def publish(
    rows: Any,
    begin: int,
    first_step: int,
    rule: Any,
    whole: float,
    score_scale: float,
    weights: Any,
    group_of: Any,
    score_words: Any,
    cell_words: Any,
    given: Any,
    entries: Any,
    account: Any,
    memory: Any,
    paid: Any,
    repaid: Any,
    last: Any,
    measured: Any,
    scales: Any,
    squares: Any,
    chosen: Any,
    scores: Any,
    grid: float,
    values: Any,
    status: Any,
    source: Any,
    scale: Any,
    units: Any,
) -> Any:
    """Release the steps rows[begin:], until something is needed; returns (index of the step, why)."""
    part, factor, shift = constants(score_scale)
    groups = scores.size
    inline = cell_words.shape[1] > 0
    for index in range(begin, rows.shape[0]):
        step = first_step + index
        row = rows[index]
        fresh = 0
        amount = offer(rule, memory, paid, step)
        if memory[PHASE] == 0 and amount > 0:
            # on a shared ledger: what cannot be paid is not even considered, so that no refusal tells of a decision
            if account_remaining(entries, account, step) < rule[TEST_UNITS] + amount:
                memory[AMOUNT] = 0
            else:
                memory[AMOUNT] = amount
        elif memory[PHASE] == 0:
            memory[AMOUNT] = amount
        amount = memory[AMOUNT]
        if memory[PHASE] != CELL_NOISE:
            if memory[PHASE] == 0:
                if account_charge(entries, account, step, rule[TEST_UNITS]) != ACCEPTED:
                    return index, REFUSED
                units[index] = rule[TEST_UNITS]
            chosen[:] = False
            if amount > 0:
                if rule[MEASURE] >= 0:  # else the caller has filled in the scores of this one step
                    _scores(row, last, group_of, rule[MEASURE], scores)
                limit = publication_scale(whole, amount)
                for group in range(groups):
                    if memory[PHASE] == SCORE_NOISE:
                        noise = given[group]
                    else:
                        at = index * groups + group
                        noise, decided = laplace_draw(
                            score_words[0, at], score_words[1, at], part, factor, shift
                        )
                        if not decided:
                            memory[PHASE] = SCORE_NOISE
                            return index, SCORE_NOISE
                    chosen[group] = scores[group] + noise > weights[group] * limit
            memory[PHASE] = 0
            for group in range(groups):
                fresh += chosen[group]
            if fresh:
                account_charge(
                    entries, account, step, amount
                )  # there is room: it was asked for before the test
                units[index] += amount
                if not inline:
                    memory[PHASE] = CELL_NOISE
                    return index, CELL_NOISE
        else:
            for group in range(groups):
                fresh += chosen[group]
        if fresh:
            width = publication_scale(whole, amount)
            if memory[PHASE] != CELL_NOISE:
                cell_part, cell_factor, cell_shift = constants(width)
                for column in range(row.size):
                    if chosen[_group(group_of, column)]:
                        at = index * row.size + column
                        noise, decided = laplace_draw(
                            cell_words[0, at], cell_words[1, at], cell_part, cell_factor, cell_shift
                        )
                        if not decided:
                            memory[PHASE] = CELL_NOISE
                            return index, CELL_NOISE
                        given[column] = noise
                overwrite(row, 0, given, step, chosen, group_of, measured, memory, grid, last, squares)
            memory[PHASE] = 0
            for group in range(groups):
                if chosen[group]:
                    measured[group] = step
                    scales[group] = width * grid
            remember(rule, memory, paid, repaid, step, amount)
        if fresh == groups:
            status[index] = FRESH
        elif fresh:
            status[index] = PARTIAL
        elif amount < 0:
            status[index] = NULLIFIED
        else:
            status[index] = APPROXIMATED
        source[index] = measured.max()
        scale[index] = scales.max()
        _write(last, grid, values[index])
    return rows.shape[0], DONE
