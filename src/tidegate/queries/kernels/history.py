"""The compiled loop behind questions about past steps: estimates of the last ones, with groups as of now."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels.ordered import WEIGHT, clear, insert, pick

# columns of `memory`, one row for each stream
START = 0  # the first step of the last group; 0 before any
SIZE = 1  # its steps
ROOT = 2  # the root of the set of its noisy counts
INSIDE = 3  # how many of its steps are among the kept ones
MEMORY = 4

# columns of `sums`
CLOSED = 0  # Σ of the estimates of kept steps whose group is over
PRODUCT = 1  # Σ weight² · noisy of the last group
SQUARES = 2  # Σ weight² of the last group
SUMS = 3

MEDIAN = 0
AVERAGE = 1
JAMES_STEIN = 2

# Sums are added up again after so many steps, so that rounding errors do not add up for ever.
REFRESH = 1 << 16


@kernel
def as_number(key: int, bits: Any, number: Any) -> float:
    """The number whose sortable bits these are; `number` is the same memory as `bits`."""
    bits[0] = key if key >= 0 else key ^ np.int64(0x7FFFFFFFFFFFFFFF)
    return number[0]  # type: ignore[no-any-return]


@kernel
def estimate(smoother: int, nodes: Any, memory: Any, sums: Any, bits: Any, number: Any) -> float:
    """What all measurements of the last group say about a step of it."""
    if smoother != MEDIAN:
        return sums[PRODUCT] / sums[SQUARES] if sums[SQUARES] > 0.0 else 0.0
    root = memory[ROOT]
    weight = nodes[root, WEIGHT]
    if weight == 0:
        return 0.0
    lower = as_number(pick(nodes, root, (weight + 1) // 2), bits, number)
    if weight % 2 == 1:
        return lower
    return 0.5 * (lower + as_number(pick(nodes, root, weight // 2 + 1), bits, number))


@kernel
def _finish(step: int, ring_groups: Any, ring_values: Any, memory: Any, sums: Any, value: float) -> None:
    """Write the last group's final estimate to its kept steps: every step is written once in its life."""
    kept = ring_groups.size
    for past in range(max(memory[START], step - kept + 1), step):
        if ring_groups[past % kept] == memory[START]:
            ring_values[past % kept] = value
    sums[CLOSED] += value * memory[INSIDE]
    sums[PRODUCT] = 0.0
    sums[SQUARES] = 0.0
    memory[SIZE] = 0
    memory[INSIDE] = 0


@kernel
def _refresh(ring_groups: Any, ring_values: Any, memory: Any, sums: Any) -> None:
    total = 0.0
    for slot in range(ring_groups.size):
        if ring_groups[slot] != 0 and ring_groups[slot] != memory[START]:
            total += ring_values[slot]
    sums[CLOSED] = total


class Measured(NamedTuple):
    """Steps to take in: steps × columns."""

    keys: Any  # the sortable bits of `noisy`
    noisy: Any
    groups: Any  # the first step of the group of each; 0: it belongs to none
    weights: Any


class Kept(NamedTuple):
    """What is kept of each stream."""

    ring_groups: Any  # of the last steps: their groups
    ring_values: Any  # and their estimates
    memory: Any
    sums: Any


class Written(NamedTuple):
    """What is said of each step as of then: its estimate, that of the oldest kept one, and the sum of all kept ones."""

    latest: Any
    oldest: Any
    windows: Any


@kernel
def follow(
    first_step: int,
    begun: int,
    smoother: int,
    measured: Any,
    kept: Any,
    sets: Any,
    bits: Any,
    number: Any,
    written: Any,
) -> None:
    """Take in some steps; writes the estimate of each, of the oldest kept one as of then, and the sum.

    Steps before `begun` are unknown: the oldest kept one is then NaN. `number` is the same memory as `bits`.
    """
    keys, noisy, groups, weights = Measured(*measured)
    ring_groups, ring_values, memory, sums = Kept(*kept)
    latest, oldest, windows = Written(*written)
    nodes, pool, path = sets
    length = ring_groups.shape[1]
    for index in range(noisy.shape[0]):
        step = first_step + index
        slot = step % length
        last_slot = (step + 1) % length  # the slot of step − length + 1
        for column in range(noisy.shape[1]):
            state = memory[column]
            total = sums[column]
            ring_group = ring_groups[column]
            ring_value = ring_values[column]
            left = ring_group[slot]
            if left != 0:
                if left == state[START]:
                    state[INSIDE] -= 1
                else:
                    total[CLOSED] -= ring_value[slot]
            ring_group[slot] = 0
            ring_value[slot] = 0.0
            group = groups[index, column]
            shown = 0.0
            if group != 0:
                if group != state[START]:
                    if state[SIZE] > 0:
                        value = estimate(smoother, nodes, state, total, bits, number)
                        _finish(step, ring_group, ring_value, state, total, value)
                        clear(nodes, pool, path, state[ROOT])
                        state[ROOT] = 0
                    state[START] = group
                weight = weights[index, column]
                count = noisy[index, column]
                state[SIZE] += 1
                state[INSIDE] += 1
                ring_group[slot] = group
                squared = np.float64(weight) * np.float64(weight)
                total[PRODUCT] += squared * count
                total[SQUARES] += squared
                if smoother == MEDIAN:
                    state[ROOT] = insert(nodes, pool, path, state[ROOT], keys[index, column], weight)
                shown = estimate(smoother, nodes, state, total, bits, number)
                current = shown
                if smoother == JAMES_STEIN:
                    shown = (count - current) / state[SIZE] + current
            elif state[SIZE] > 0:
                current = estimate(smoother, nodes, state, total, bits, number)
            else:
                current = 0.0
            if step % max(REFRESH, length) == 0:
                _refresh(ring_group, ring_value, state, total)
            latest[index, column] = shown
            windows[index, column] = total[CLOSED] + current * state[INSIDE]
            if step - length + 1 < begun:
                oldest[index, column] = np.nan
            elif ring_group[last_slot] == state[START] and state[START] != 0:
                oldest[index, column] = current
            else:
                oldest[index, column] = ring_value[last_slot]
