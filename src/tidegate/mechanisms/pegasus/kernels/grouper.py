"""The compiled loop of PeGaSus: group raw counts, smooth noisy ones. All noise is drawn before it starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels.ordered import clear, deviation, insert, median

# columns of `memory`, one row for each stream of counts
OPEN = 0  # whether the last group is open
START = 1  # the first step of the last group
SIZE = 2  # its steps
SUM = 3  # of its raw counts
THRESHOLD = 4  # its noisy threshold
RAW = 5  # the root of the set of its raw counts
NOISY = 6  # the root of the set of its noisy counts
MEMORY = 7

# columns of `moments`: Σ weight² · noisy and Σ weight² of the last group
MOMENTS = 2

MEDIAN = 0
AVERAGE = 1
JAMES_STEIN = 2

MOST = 2**61  # of a deviation


@kernel
def close_group(nodes: Any, pool: Any, path: Any, memory: Any, moments: Any) -> None:
    """Close the last group and forget its raw counts."""
    clear(nodes, pool, path, memory[RAW])
    clear(nodes, pool, path, memory[NOISY])
    memory[OPEN] = 0
    memory[SIZE] = 0
    memory[SUM] = 0
    memory[THRESHOLD] = 0
    memory[RAW] = 0
    memory[NOISY] = 0
    moments[:] = 0.0


@kernel
def group_and_smooth(
    first_step: int,
    counts: Any,
    noisy: Any,
    weights: Any,
    tests: Any,
    thresholds: Any,
    limit: int,
    longest: int,
    bound: int,
    smoother: int,
    grid: float,
    memory: Any,
    moments: Any,
    nodes: Any,
    pool: Any,
    path: Any,
    values: Any,
    groups: Any,
) -> None:
    """Algorithm 2 and the Smoothers, for each stream (column) with weight above 0 at each step.

    `tests` is the noise ν of each test, `thresholds` the noise ρ for groups that begin, `limit` the public θ.
    """
    for index in range(counts.shape[0]):
        step = first_step + index
        for column in range(counts.shape[1]):
            weight = weights[index, column]
            if weight == 0:  # pruned: it belongs to no group, and open groups skip it
                values[index, column] = 0.0
                groups[index, column] = 0
                continue
            state = memory[column]
            moment = moments[column]
            count = min(max(counts[index, column], -bound), bound)
            measured = noisy[index, column]
            begins = state[OPEN] == 0
            state[RAW] = insert(nodes, pool, path, state[RAW], count, 1)
            state[SUM] += count
            state[SIZE] += 1
            if begins:
                state[OPEN] = 1
                state[START] = step
                state[THRESHOLD] = limit + thresholds[index, column]
            else:
                score = min(deviation(nodes, state[RAW], state[SIZE], state[SUM]), MOST)
                if score + tests[index, column] >= state[THRESHOLD]:
                    # the count that fails is a closed group of its own
                    close_group(nodes, pool, path, state, moment)
                    state[START] = step
                    values[index, column] = measured * grid
                    groups[index, column] = step
                    continue
            squared = np.float64(weight) * np.float64(weight)
            moment[0] += squared * measured
            moment[1] += squared
            if smoother == MEDIAN:
                state[NOISY] = insert(nodes, pool, path, state[NOISY], measured, weight)
                estimate = median(nodes, state[NOISY])
            else:
                average = moment[0] / moment[1]
                estimate = average
                if smoother == JAMES_STEIN:
                    estimate = (measured - average) / state[SIZE] + average
            values[index, column] = estimate * grid
            groups[index, column] = state[START]
            if state[SIZE] >= longest:
                close_group(nodes, pool, path, state, moment)
