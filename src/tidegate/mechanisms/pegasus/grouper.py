"""The Grouper and the Smoothers of PeGaSus (Chen et al. 2017, Algorithm 2): open groups, and the loop over steps.

All noise is drawn before the loop starts. PeGaSus groups columns, and its hierarchical form groups nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from tidegate.compiled import lean
from tidegate.core.arrays import Array
from tidegate.core.charges import Integers
from tidegate.structures.kernels.ordered import clear, deviation, insert, median
from tidegate.structures.ordered import OrderedSets

LONGEST = 2**20  # steps of an open group
BLOCK = 1 << 18  # cells that are handled at once, whose noise takes 6 MiB

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
SMOOTHERS = {"median": MEDIAN, "average": AVERAGE, "james-stein": JAMES_STEIN}

MOST = 2**61  # of a deviation


@lean
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


class Rule(NamedTuple):
    """What is public and stays as it is."""

    limit: int  # θ
    longest: int  # a group of so many steps is closed
    bound: int  # of a count
    smoother: int
    grid: float


class Counts(NamedTuple):
    """Steps to take in, steps × streams."""

    raw: Any
    noisy: Any
    weights: Any  # 0: pruned
    tests: Any  # the noise ν of each test
    thresholds: Any  # the noise ρ for groups that begin


@lean
def group_and_smooth(
    first_step: int,
    rule: Any,
    counts: Any,
    memory: Any,
    moments: Any,
    sets: Any,
    values: Any,
    groups: Any,
) -> None:
    """Algorithm 2 and the Smoothers, for each stream (column) with weight above 0 at each step."""
    rule = Rule(*rule)
    raw, noisy, weights, tests, thresholds = Counts(*counts)
    nodes, pool, path = sets
    for column in range(raw.shape[1]):  # the last group of one stream after the other is in the cache
        state = memory[column]
        moment = moments[column]
        for index in range(raw.shape[0]):
            step = first_step + index
            weight = weights[index, column]
            if weight == 0:  # pruned: it belongs to no group, and open groups skip it
                values[index, column] = 0.0
                groups[index, column] = 0
                continue
            count = min(max(raw[index, column], -rule.bound), rule.bound)
            measured = noisy[index, column]
            begins = state[OPEN] == 0
            state[RAW] = insert(nodes, pool, path, state[RAW], count, 1)
            state[SUM] += count
            state[SIZE] += 1
            if begins:
                state[OPEN] = 1
                state[START] = step
                state[THRESHOLD] = rule.limit + thresholds[index, column]
            else:
                score = min(deviation(nodes, state[RAW], state[SIZE], state[SUM]), MOST)
                if score + tests[index, column] >= state[THRESHOLD]:
                    # the count that fails is a closed group of its own
                    close_group(nodes, pool, path, state, moment)
                    state[START] = step
                    values[index, column] = measured * rule.grid
                    groups[index, column] = step
                    continue
            squared = np.float64(weight) * np.float64(weight)
            moment[0] += squared * measured
            moment[1] += squared
            if rule.smoother == MEDIAN:
                state[NOISY] = insert(nodes, pool, path, state[NOISY], measured, weight)
                estimate = median(nodes, state[NOISY])
            else:
                average = moment[0] / moment[1]
                estimate = average
                if rule.smoother == JAMES_STEIN:
                    estimate = (measured - average) / state[SIZE] + average
            values[index, column] = estimate * rule.grid
            groups[index, column] = state[START]
            if state[SIZE] >= rule.longest:
                close_group(nodes, pool, path, state, moment)


class OpenGroups:
    """The open group of each column: its raw counts as a sorted multiset, and what smooths them. SECRET.

    Stored are lists of counts, not trees. Their length says how many counts are open, which is released. It is padded to
    what the next steps could add, so that it does not depend on how they are grouped.

    Parameters
    ----------
    columns
        How many streams of counts.
    """

    def __init__(self, columns: int) -> None:
        self.memory: Integers = np.zeros((columns, MEMORY), dtype=np.int64)
        self.moments = np.zeros((columns, MOMENTS))
        self.sets = OrderedSets()
        self.room = 0  # counts that are stored of each kind

    def reserve(self, steps: int) -> None:
        """Make room for more steps."""
        self.sets.make_room(2 * steps * len(self.memory))
        self.room = int(self.memory[:, SIZE].sum()) + steps * len(self.memory)

    def stored(self) -> tuple[Array, ...]:
        """Memory, moments, and the raw and noisy counts of all open groups, one behind the other."""
        memory, lists = self.memory.copy(), []
        for kind in (RAW, NOISY):
            found, memory[:, kind] = self.sets.listings(self.memory[:, kind])
            counts = np.zeros((2, self.room), dtype=np.int64)
            counts[:, : found.shape[1]] = found
            lists.append(counts)
        return (memory, self.moments, *lists)

    def loaded(self, stored: Iterator[Array]) -> Self:
        """Open groups from what was stored."""
        groups = type(self)(len(self.memory))
        groups.memory, groups.moments, *lists = (next(stored) for _ in range(4))
        groups.room = lists[0].shape[1]
        for kind, counts in zip((RAW, NOISY), lists, strict=True):
            begin = 0
            for memory in groups.memory:
                end = begin + int(memory[kind])
                memory[kind] = groups.sets.build(*counts[:, begin:end])
                begin = end
        return groups
