"""Compiled contribution bounding: the events of each step are grouped by unit, and of each group the first are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def _precedes(one: int, other: int, times: Any, columns: Any, values: Any) -> bool:
    """Whether a contribution comes before another: by time, then by column, then by value."""
    if times[one] != times[other]:
        return bool(times[one] < times[other])
    if columns[one] != columns[other] or values.size == 0:
        return bool(columns[one] < columns[other])
    return bool(values[one] < values[other])


@kernel
def _sink(heap: Any, root: int, size: int, times: Any, columns: Any, values: Any) -> None:
    """Let a contribution sink to its place in a heap whose root comes last."""
    moving = heap[root]
    while 2 * root + 1 < size:
        child = 2 * root + 1
        if child + 1 < size and _precedes(heap[child], heap[child + 1], times, columns, values):
            child += 1
        if not _precedes(moving, heap[child], times, columns, values):
            break
        heap[root] = heap[child]
        root = child
    heap[root] = moving


@kernel
def _sort(found: Any, times: Any, columns: Any, values: Any) -> None:
    """Put contributions in order in place: nothing to do where they came in order, else a heap sort."""
    at = 1
    while at < found.size and not _precedes(found[at], found[at - 1], times, columns, values):
        at += 1
    if at >= found.size:
        return
    for root in range(found.size // 2 - 1, -1, -1):
        _sink(found, root, found.size, times, columns, values)
    for size in range(found.size - 1, 0, -1):
        found[0], found[size] = found[size], found[0]
        _sink(found, 0, size, times, columns, values)


@kernel
def first_contributions(
    steps: Any,
    times: Any,
    units: Any,
    columns: Any,
    values: Any,
    most: Any,
    distinct: Any,
    width: Any,
    secret: Any,
    kept: Any,
) -> None:
    """Mark in `kept` the first `most` contributions of each unit in each step.

    Contributions are ordered by (time, column, value); with `distinct` a unit contributes once to a column, with its
    earliest event there. Steps must not decrease; a negative column is left out, all others are below `width`.
    Units are hashed by the high bits of their product with `secret`, a random odd number: two of them, whatever they are,
    meet in a table of n slots with a probability of at most 2/n, so that nobody can craft long chains. Beyond the events
    this takes about 40 bytes for each event of the largest step, and time that grows like sorting the contributions of
    each unit, whatever the units are.
    """
    bits = 10
    table = np.full(
        2**bits, -1, dtype=np.int64
    )  # the first group of each chain; of earlier steps: below `base`
    owner = np.empty(2**bits, dtype=np.int64)  # the unit of each group of this step
    chain = np.empty(2**bits, dtype=np.int64)  # the next group of the same slot
    first = np.empty(2**bits + 1, dtype=np.int64)  # its best contribution, or where its members begin
    seen = np.full(width if distinct and most > 1 else 0, -1, dtype=np.int64)
    base = np.int64(0)
    begin = 0
    while begin < steps.size:
        end = begin
        while end < steps.size and steps[end] == steps[begin]:
            end += 1
        group_of = np.empty(end - begin, dtype=np.int64)
        groups = 0
        for at in range(begin, end):
            if columns[at] < 0:
                group_of[at - begin] = -1
                continue
            unit = units[at]
            slot = np.int64((np.uint64(unit) * secret) >> np.uint64(64 - bits))
            group = table[slot] - base
            while group >= 0 and owner[group] != unit:
                group = chain[group]
            if group < 0:
                if groups == owner.size:  # grow: new chains for all groups
                    bits += 1
                    table = np.full(2**bits, -1, dtype=np.int64)
                    owner = np.concatenate((owner, np.empty(groups, dtype=np.int64)))
                    chain = np.empty(2 * groups, dtype=np.int64)
                    first = np.concatenate((first, np.empty(groups, dtype=np.int64)))
                    for other in range(groups):
                        slot = np.int64((np.uint64(owner[other]) * secret) >> np.uint64(64 - bits))
                        chain[other] = table[slot] - base
                        table[slot] = base + other
                    slot = np.int64((np.uint64(unit) * secret) >> np.uint64(64 - bits))
                group = groups
                chain[group] = table[slot] - base
                table[slot] = base + group
                owner[group] = unit
                first[group] = at
                groups += 1
            group_of[at - begin] = group
            if most == 1 and first[group] != at and _precedes(at, first[group], times, columns, values):
                first[group] = at
        if most == 1:
            for group in range(groups):
                kept[first[group]] = True
        else:
            first[: groups + 1] = 0
            for group in group_of:
                if group >= 0:
                    first[group + 1] += 1
            for group in range(groups):
                first[group + 1] += first[group]
            members = np.empty(first[groups], dtype=np.int64)
            for at in range(end - 1, begin - 1, -1):
                group = group_of[at - begin]
                if group >= 0:
                    first[group + 1] -= 1
                    members[first[group + 1]] = at
            for group in range(groups):  # now first[group + 1] is where the members of this group begin
                low = first[group + 1]
                high = first[group + 2] if group + 1 < groups else members.size
                mine = members[low:high]
                if mine.size > most or distinct:
                    _sort(mine, times, columns, values)
                count = 0
                for at in mine:
                    if distinct:
                        if seen[columns[at]] == base + group:
                            continue
                        seen[columns[at]] = base + group
                    kept[at] = True
                    count += 1
                    if count == most:
                        break
        base += groups
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
