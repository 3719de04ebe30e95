"""L1 sampling: take a sample where the straight line from the last one has strayed too far from the stream.

The score of the steps a < b is Σ|line(i) − xᵢ| over the steps in between (OptStream paper, equation 3). With
u = i − a and y = xᵢ − xₐ, step i lies |u·s − y| from the line of slope s, so steps on one side of it are
those whose own slope y/u is on one side of s. A search tree of the steps by slope, with the sums of u and of
y below each node, gives the score of each further b in O(log n). Slopes are compared as y·u′ against y′·u, in
integers, so every score is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import Source, laplace

# columns of a node
RISE = 0  # y
RUN = 1  # u
LEFT = 2
RIGHT = 3
RISES = 4  # the sum of y over the node and all below it
RUNS = 5  # the sum of u
RANK = 6  # nodes of higher rank stand above: a treap, balanced because ranks look random
NODE = 7


@kernel
def _rank(number: int) -> int:
    """A fixed hash of a step's number."""
    mixed = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    rank: Any = np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1))
    return int(rank)


@kernel
def _add_up(nodes: Any, node: int) -> None:
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    rises, runs = nodes[node, RISE], nodes[node, RUN]
    if left >= 0:
        rises += nodes[left, RISES]
        runs += nodes[left, RUNS]
    if right >= 0:
        rises += nodes[right, RISES]
        runs += nodes[right, RUNS]
    nodes[node, RISES] = rises
    nodes[node, RUNS] = runs


@kernel
def insert(nodes: Any, path: Any, root: int, new: int, rise: int, run: int) -> int:
    """Put a step into the tree as node `new`; returns the root."""
    rank = _rank(run)
    nodes[new, RISE], nodes[new, RUN], nodes[new, RANK] = rise, run, rank
    parent, side, node = -1, RIGHT, root
    while node >= 0 and nodes[node, RANK] >= rank:
        nodes[node, RISES] += rise
        nodes[node, RUNS] += run
        parent, side = node, (RIGHT if nodes[node, RISE] * run <= rise * nodes[node, RUN] else LEFT)
        node = nodes[node, side]
    # what stood here is split by slope into the two sides of the new node
    lower, lower_side, upper, upper_side, top = new, LEFT, new, RIGHT, 0
    while node >= 0:
        path[top] = node
        top += 1
        if nodes[node, RISE] * run <= rise * nodes[node, RUN]:
            nodes[lower, lower_side] = node
            lower, lower_side = node, RIGHT
        else:
            nodes[upper, upper_side] = node
            upper, upper_side = node, LEFT
        node = nodes[node, RIGHT] if lower == node else nodes[node, LEFT]
    nodes[lower, lower_side] = -1
    nodes[upper, upper_side] = -1
    while top > 0:
        top -= 1
        _add_up(nodes, path[top])
    _add_up(nodes, new)
    if parent < 0:
        return new
    nodes[parent, side] = new
    return root


@kernel
def score(nodes: Any, root: int, rise: int, run: int) -> int:
    """run · Σ|line − x| over the steps in the tree, for the line that rises by `rise` over `run` steps."""
    if root < 0:
        return 0
    rises, runs = 0, 0  # of the steps below the line or on it
    node = root
    while node >= 0:
        if nodes[node, RISE] * run <= rise * nodes[node, RUN]:
            left = nodes[node, LEFT]
            rises += nodes[node, RISE]
            runs += nodes[node, RUN]
            if left >= 0:
                rises += nodes[left, RISES]
                runs += nodes[left, RUNS]
            node = nodes[node, RIGHT]
        else:
            node = nodes[node, LEFT]
    below = rise * runs - run * rises
    above = run * (nodes[root, RISES] - rises) - rise * (nodes[root, RUNS] - runs)
    found: int = below + above
    return found


# what the sampler remembers within a period
POSITION = 0  # of the last step seen, from 1; 0 before any
TAKEN = 1  # samples so far
START = 2  # the position of the last sample
LIMIT = 3  # the noisy threshold
MEMORY = 4


class Rule(NamedTuple):
    """What is public and stays as it is."""

    samples: int  # of a period
    length: int  # steps of a period
    bound: int  # values are clipped to it for the scores


class Memory(NamedTuple):
    """The arrays that a sampler keeps; of several groups one entry a group, but for the path."""

    counts: Any  # as named above
    values: Any  # the steps since the last sample
    nodes: Any  # of the search trees, one a column
    roots: Any
    path: Any  # room for the way to a node


@kernel
def choose_steps(rows: Any, noise: Any, rule: Any, memory: Any, chosen: Any) -> None:
    """Algorithm 3 on some steps of one period: which of them are samples.

    The first and the last step always are; a step between them is if its noisy score since the last sample
    reaches the noisy threshold, or if all that are left are needed.
    """
    samples, length, bound = Rule(*rule)
    counts, values, nodes, roots, path = Memory(*memory)
    columns = rows.shape[1]
    for index in range(rows.shape[0]):
        counts[POSITION] += 1
        position, left = counts[POSITION], samples - counts[TAKEN]
        run = position - counts[START]
        if position == 1 or position == length:
            hit = True
        elif left == 1:
            hit = False  # the last one is kept for the end of the period
        elif length - position + 1 <= left:
            hit = True
        else:
            total = 0
            for column in range(columns):
                value = min(max(rows[index, column], -bound), bound)
                total += score(nodes[column], roots[column], value - values[0, column], run)
            hit = total // run + noise[index] >= counts[LIMIT]
        chosen[index] = hit
        if hit:
            counts[TAKEN] += 1
            counts[START] = position
            roots[:] = -1
            run = 0
        elif left == 1:
            continue
        for column in range(columns):
            value = min(max(rows[index, column], -bound), bound)
            values[run, column] = value
            if not hit:
                roots[column] = insert(
                    nodes[column], path, roots[column], run - 1, value - values[0, column], run
                )


@kernel
def choose_apart(rows: Any, noise: Any, rule: Any, memories: Any, chosen: Any) -> None:
    """The same for groups of columns, each with its own tests and samples (steps × groups), and its own memory."""
    counts, values, nodes, roots, path = Memory(*memories)
    steps, groups = chosen.shape
    columns = rows.shape[1] // groups
    own = np.empty((steps, columns), dtype=np.int64)
    draws, hits = np.empty(steps, dtype=np.int64), np.empty(steps, dtype=np.bool_)
    for group in range(groups):
        for step in range(steps):
            draws[step] = noise[step, group]
            for column in range(columns):
                own[step, column] = rows[step, group * columns + column]
        memory = (counts[group], values[group], nodes[group], roots[group], path)
        choose_steps(own, draws, rule, memory, hits)
        for step in range(steps):
            chosen[step, group] = hits[step]


@kernel
def rebuild(values: Any, count: int, nodes: Any, roots: Any, path: Any) -> None:
    """The search trees of the steps since the last sample, values[1] to values[count − 1]."""
    for column in range(values.shape[1]):
        roots[column] = -1
        for run in range(1, count):
            rise = values[run, column] - values[0, column]
            roots[column] = insert(nodes[column], path, roots[column], run - 1, rise, run)


def line_score(values: Sequence[int]) -> Fraction:
    """Σ|line − value| for the line from the first to the last value, exactly (OptStream paper, equation 3).

    Changing each value by at most a changes it by at most 2a for each value in between.

    Examples
    --------
    >>> line_score([0, 5, 2]), line_score([0, 1, 2, 3])
    (Fraction(4, 1), Fraction(0, 1))
    """
    run = len(values) - 1
    slope = Fraction(values[-1] - values[0], run) if run else Fraction(0)
    return sum((abs(values[0] + slope * u - value) for u, value in enumerate(values)), Fraction(0))


@dataclass(frozen=True)
class L1Sampling:
    """The rule for one period: its first and last step are samples, and k − 2 steps in between.

    Parameters
    ----------
    length, samples
        Steps and samples of a period.
    epsilon
        The budget of the sparse vector over one period.
    sensitivity
        By how many grid units one unit can change one step.
    limit
        The public threshold θ, in grid units.

    Privacy
    -------
    The score from the last sample to a tested step has at most w − k − 1 steps in between, because a test is
    made only while more steps are left than samples, so it changes by at most 2Δ·(w − k − 1); the sums over
    columns are rounded down once, which does not change that. The sparse vector ends after k − 2 hits; all
    other choices follow from earlier ones (docs/proofs/l1_sampling.md).
    """

    length: int
    samples: int
    epsilon: Fraction
    sensitivity: int
    limit: int

    @property
    def tests(self) -> bool:
        """Whether any step is tested at all."""
        return self.certain < self.samples < self.length

    @property
    def certain(self) -> int:
        """How many steps of a period are samples whatever the data are: its first and its last."""
        return 2

    @cached_property
    def sparse_vector(self) -> SparseVector:
        """The noise scales of the tests of one period."""
        widest = max(1, self.length - self.samples - 1)
        return SparseVector(self.epsilon, 2 * self.sensitivity * widest, self.samples - 2)


def chosen_steps(values: Sequence[int], noise: Sequence[int], rule: L1Sampling, limit: int) -> list[int]:
    """The positions that one period of one column chooses, step by step and in plain words: the reference.

    `noise` has a draw for each step, `limit` is the noisy threshold.

    Examples
    --------
    >>> chosen_steps([0, 0, 0, 9, 9, 9], [0] * 6, L1Sampling(6, 3, Fraction(1), 1, 5), 5)
    [1, 4, 6]
    """
    w, times = rule.length, [1]
    for position in range(2, w + 1):
        left = rule.samples - len(times)
        if position == w or (left > 1 and w - position + 1 <= left):
            times.append(position)
        elif left > 1:
            score = math.floor(line_score(values[times[-1] - 1 : position]))
            if score + noise[position - 1] >= limit:
                times.append(position)
    return times


class L1Sampler:
    """The sampler at work: it keeps the steps since the last sample, raw.

    Parameters
    ----------
    rule
        What it follows.
    columns
        The columns whose scores are added up.
    groups
        How many times so many columns there are, each group with tests and samples of its own.
    """

    def __init__(self, rule: L1Sampling, columns: int, groups: int = 1) -> None:
        self.rule = rule
        w = rule.length
        # scores of w steps stay below 2^60; clipping moves no two values apart
        self.bound = 2**58 // (w * w * columns)
        self.memory = np.zeros((groups, MEMORY), dtype=np.int64)
        self._values = np.zeros((groups, w, columns), dtype=np.int64)
        self._nodes = np.zeros((groups, columns, w, NODE), dtype=np.int64)
        self._roots = np.full((groups, columns), -1, dtype=np.int64)
        self._path = np.zeros(w, dtype=np.int64)

    def begin(self, source: Source, period: int) -> None:
        """Begin a period: draw its thresholds."""
        rule = self.rule
        self.memory[:] = 0
        if rule.tests:
            shape = (1, len(self.memory))
            noise = laplace(source, "threshold", period, rule.sparse_vector.threshold_scale, shape)
            self.memory[:, LIMIT] = rule.limit + noise[0]

    def choose(self, source: Source, first_step: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of some steps are samples, of each group (steps × groups)."""
        rule, shape = self.rule, (len(rows), len(self.memory))
        noise = np.zeros(shape, dtype=np.int64)
        if rule.tests:
            noise = laplace(source, "tests", first_step, rule.sparse_vector.question_scale, shape)
        chosen = np.zeros(shape, dtype=np.bool_)
        kept = (self.memory, self._values, self._nodes, self._roots, self._path)
        choose_apart(rows, noise, (rule.samples, rule.length, self.bound), kept, chosen)
        return chosen

    def _open_steps(self) -> npt.NDArray[np.int64]:
        """How many raw steps each group needs: those since its last sample, where they may still be tested."""
        left = self.rule.samples - self.memory[:, TAKEN]
        open_ = self.rule.tests & (left > self.rule.certain - 1) & (left < self.rule.samples)
        return np.where(open_, self.memory[:, POSITION] - self.memory[:, START] + 1, 0)

    def state(self) -> dict[str, Any]:
        """The state, with the raw steps since the last sample where they may still be tested."""
        kept = [values[:count] for values, count in zip(self._values, self._open_steps(), strict=True)]
        return {"sampler": self.memory, "segment": np.concatenate(kept)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.memory = state["sampler"].copy()
        self._roots[:] = -1
        begin = 0
        for group, count in enumerate(self._open_steps()):
            self._values[group, :count] = state["segment"][begin : begin + count]
            begin += int(count)
            if count:
                rebuild(self._values[group], count, self._nodes[group], self._roots[group], self._path)
