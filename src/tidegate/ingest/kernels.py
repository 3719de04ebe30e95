"""Compiled contribution bounding: a hash table per step, one pass over the events."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel

# A row of the table: which step it belongs to, the unit, how many contributions it holds, then (time, column,
# value) of each. Rows of earlier steps count as empty, so nothing is ever cleared.
_STEP, _UNIT, _HELD, _FIRST = 0, 1, 2, 3


@kernel
def add_bounded(
    steps: Any,
    times: Any,
    units: Any,
    columns: Any,
    values: Any,
    weight: int,
    also: int,
    most: int,
    distinct: bool,
    out: Any,
) -> None:
    """Add to `out` the first `most` contributions of each unit in each step.

    Contributions are ordered by (time, column, value); with `distinct` a unit contributes once to a column,
    with its earliest event there. Steps must not decrease and are rows of `out`; a negative column is left
    out. Without values each contribution adds `weight`. If `also` is not 0 it is added `width` columns
    further right, where width is half of the columns of `out`.
    """
    count = steps.size
    has_values = values.size > 0
    width = out.shape[1] // 2
    row_size = _FIRST + 3 * most
    table = np.full((16, row_size), -1, dtype=np.int64)
    begin = 0
    while begin < count:
        step = steps[begin]
        end = begin
        while end < count and steps[end] == step:
            end += 1
        capacity = 16
        shift = np.uint64(60)
        while capacity < 2 * (end - begin):
            capacity *= 2
            shift -= np.uint64(1)
        if capacity > table.shape[0]:
            table = np.full((capacity, row_size), -1, dtype=np.int64)
        mask = capacity - 1
        for at in range(begin, end):
            column = np.int64(columns[at])
            if column < 0:
                continue
            unit = units[at]
            time = times[at]
            value = values[at] if has_values else np.int64(weight)
            # Fibonacci hashing: the high bits of a product with 2^64/φ
            slot = np.int64((np.uint64(unit) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
            while table[slot, _STEP] == step and table[slot, _UNIT] != unit:
                slot = (slot + 1) & mask
            row = table[slot]
            if row[_STEP] != step:
                row[_STEP] = step
                row[_UNIT] = unit
                row[_HELD] = 0
            held = row[_HELD]
            # where it goes: the place of the same column (distinct), a free one, or that of the last in order
            place = -1
            last = -1
            for other in range(held):
                here = _FIRST + 3 * other
                if distinct and row[here + 1] == column:
                    place = here
                if last < 0 or (
                    row[here] > row[last]
                    or (row[here] == row[last] and row[here + 1] > row[last + 1])
                    or (
                        row[here] == row[last]
                        and row[here + 1] == row[last + 1]
                        and row[here + 2] > row[last + 2]
                    )
                ):
                    last = here
            if place < 0 and held < most:
                place = _FIRST + 3 * held
                row[_HELD] = held + 1
            else:
                if place < 0:
                    place = last
                if not (
                    time < row[place]
                    or (time == row[place] and column < row[place + 1])
                    or (time == row[place] and column == row[place + 1] and value < row[place + 2])
                ):
                    continue
                out[step, row[place + 1]] -= row[place + 2]
                if also != 0:
                    out[step, width + row[place + 1]] -= also
            row[place] = time
            row[place + 1] = column
            row[place + 2] = value
            out[step, column] += value
            if also != 0:
                out[step, width + column] += also
        begin = end


@kernel
def add_records(steps: Any, columns: Any, values: Any, weight: int, also: int, out: Any) -> None:
    """Add every record, for streams in which each record is a unit of its own."""
    has_values = values.size > 0
    width = out.shape[1] // 2
    for at in range(steps.size):
        column = columns[at]
        if column >= 0:
            out[steps[at], column] += values[at] if has_values else np.int64(weight)
            if also != 0:
                out[steps[at], width + column] += also


@kernel
def put_readings(steps: Any, columns: Any, values: Any, missing: Any, out: Any) -> int:
    """Write readings into their cells, the last one wins; return how many were written twice."""
    repeated = 0
    for at in range(steps.size):
        column = columns[at]
        if column >= 0:
            if not missing[steps[at], column]:
                repeated += 1
            missing[steps[at], column] = False
            out[steps[at], column] = values[at]
    return repeated


@kernel
def in_order(times: Any, previous: int) -> bool:
    """Whether times never decrease, starting from the previous one."""
    for time in times:
        if time < previous:
            return False
        previous = time
    return True
