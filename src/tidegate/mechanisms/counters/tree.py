"""What the tree counters share: blocks of steps, the tree over each, its noise, and the sums that are read from it.

The loop is `count_on_tree`; `Trees` draws its noise and goes from block to block. A node of level l, the sum over b^l
steps, is a p-sum of Chan, Shi and Song (2011).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.core.arrays import Array, rebuilt
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput
from tidegate.exact import one_of, whole
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Policy, WEvent
from tidegate.queries.sums import gaussian_radius, laplace_mean_absolute, laplace_radius, merged
from tidegate.releases import Status, Values
from tidegate.structures.clamping import summable

LONG_RUN = 1_000_000
CELLS = 1 << 17  # node sums that a batch handles at once: their noise stays in the cache


class Block(NamedTuple):
    """One tree: which steps it covers (first, first + 1, …) and how many levels it has."""

    number: int
    first: int
    size: int
    levels: int


class Shape(NamedTuple):
    """What is public about a tree."""

    branching: int
    own_weight: Any  # of each level: how much a node's own measurement counts
    node_variance: Any  # of each level: the variance of a node's estimate
    grid: float


class Tree(NamedTuple):
    """A tree that grows."""

    digits: Any  # of the position, one a level
    total: Any  # of each column: the exact sum so far
    marks: Any  # levels × columns: that sum when the last node of a level was complete
    siblings: Any  # levels × columns: estimates of the complete nodes that are in no complete node above
    above: Any  # levels + 1 × columns: the sum of the siblings from a level upwards
    spread: Any  # levels + 1: its variance


@lean
def count_on_tree(
    rows: Any,
    shape: Any,
    noise: Any,
    offsets: Any,
    tree: Any,
    base: Any,
    base_variance: float,
    values: Any,
    deviations: Any,
) -> None:
    """Add the steps `rows` to one tree and write the running sum after each of them.

    A step completes the levels 0 to k whose digit of the position turns over. A completed node's noisy sum is
    averaged with the estimates of its children (its `own_weight` says how much it counts itself), and becomes one more
    sibling on its level; the running sum is the sum of the siblings over all levels. `above[l]` keeps that sum from
    level l upwards and `spread[l]` its variance, so that a step costs as much as the nodes that it completes.
    """
    branching, own_weight, node_variance, grid = Shape(*shape)
    digits, total, marks, siblings, above, spread = Tree(*tree)
    levels = own_weight.size
    for index in range(rows.shape[0]):
        top = 0
        digits[0] += 1
        while top + 1 < levels and digits[top] == branching:
            digits[top] = 0
            top += 1
            digits[top] += 1
        variance = spread[top + 1] + digits[top] * node_variance[top]
        for level in range(top + 1):
            spread[level] = variance
        for column in range(rows.shape[1]):
            total[column] += rows[index, column]
            estimate = 0.0
            for level in range(top + 1):
                noisy = float(total[column] - marks[level, column] + noise[offsets[level], column])
                marks[level, column] = total[column]
                if level == 0:
                    estimate = noisy
                else:
                    children = siblings[level - 1, column] + estimate
                    estimate = children + own_weight[level] * (noisy - children)
                    siblings[level - 1, column] = 0.0
            siblings[top, column] += estimate
            running = above[top + 1, column] + siblings[top, column]
            for level in range(top + 1):
                above[level, column] = running
            values[index, column] = (base[column] + running) * grid
        for level in range(top + 1):
            offsets[level] += 1
        deviations[index] = (base_variance + variance) ** 0.5 * grid


class Trees:
    """The tree that grows, and what the full ones before it say. SECRET: it holds exact sums of open nodes.

    Stored are O(log t) rows: what follows from the position and the siblings is computed again. Noise is drawn when a
    node is complete, so none is ahead of its use.

    Parameters
    ----------
    mechanism
        Whose blocks, scales and weights.
    label
        Of its streams of noise.
    """

    def __init__(self, mechanism: TreeCounter, label: str = "tree") -> None:
        self.mechanism, self.label = mechanism, label
        self.step = 0  # steps that were counted; a step that is passed over is none
        self.base = np.zeros(mechanism.columns)  # the sum of all full trees
        self.base_variance = 0.0
        self._open(mechanism.block(1))

    def _open(self, block: Block) -> None:
        """Begin a tree."""
        mechanism, levels, columns = self.mechanism, block.levels, self.mechanism.columns
        self.block, self.scale = block, mechanism.scale_of(levels)
        self.shape = Shape(
            branching=mechanism.branching,
            own_weight=mechanism.own_weights(levels),
            node_variance=mechanism.node_variances(levels),
            grid=float(Fraction(mechanism.grid)),
        )
        self.tree = Tree(
            digits=np.zeros(levels, dtype=np.int64),
            total=np.zeros(columns, dtype=np.int64),
            marks=np.zeros((levels, columns), dtype=np.int64),
            siblings=np.zeros((levels, columns)),
            above=np.zeros((levels + 1, columns)),
            spread=np.zeros(levels + 1),
        )

    def stored(self) -> tuple[Array, ...]:
        """The position, the full trees, and the one that grows; their sizes follow from the position."""
        tree = self.tree
        numbers = (np.array([self.step]), self.base, np.array([self.base_variance]))
        return (*numbers, tree.total, tree.marks, tree.siblings)

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same from what was stored."""
        step, base, variance, total, marks, siblings = rebuilt(self.stored(), stored)
        found = type(self)(self.mechanism, self.label)
        found.step, found.base_variance = int(step[0]), float(variance[0])
        found.base[:] = base
        block = self.mechanism.block(max(found.step, 1))
        found._open(block)
        tree = found.tree
        tree.total[:], tree.marks[:], tree.siblings[:] = total, marks, siblings
        tree.digits[:] = self.mechanism.digits(found.step - block.first + 1, block.levels)
        for level in range(block.levels - 1, -1, -1):
            tree.above[level] = tree.above[level + 1] + tree.siblings[level]
            own = tree.digits[level] * found.shape.node_variance[level]
            tree.spread[level] = tree.spread[level + 1] + own
        return found

    def count(self, rows: Matrix, source: Source) -> tuple[Floats, Floats]:
        """The running sums after each step, and their standard deviations."""
        values, deviations, at = np.empty(rows.shape), np.empty(len(rows)), 0
        while at < len(rows):
            position = self.step + 1 - self.block.first
            if position == self.block.size:
                self.base += self.tree.above[0]
                self.base_variance += float(self.tree.spread[0])
                self._open(self.mechanism.block(self.step + 1))
                position = 0
            room = max(1, CELLS // (2 * rows.shape[1]))
            stop = min(len(rows), at + self.block.size - position, at + room)
            noise, offsets = self._noise(position, stop - at, source)
            count_on_tree(
                summable(rows[at:stop], self.block.size),
                self.shape[:],
                noise,
                offsets,
                self.tree[:],
                self.base,
                self.base_variance,
                values[at:stop],
                deviations[at:stop],
            )
            self.step += stop - at
            at = stop
        return values, deviations

    def _noise(self, position: int, steps: int, source: Source) -> tuple[Matrix, Integers]:
        """The noise of all nodes that the next steps complete, level after level, and where each level begins."""
        mechanism, draw = self.mechanism, self.mechanism.own_noise.draw
        pieces: list[Matrix] = []
        offsets = np.zeros(self.block.levels, dtype=np.int64)
        drawn = 0
        for level in range(self.block.levels):
            size = mechanism.branching**level
            first, last = position // size, (position + steps) // size
            offsets[level] = drawn
            if size > position + steps:
                break
            if last > first:
                stream = f"{self.label} {self.block.number} level {level}"
                pieces.append(draw(source, stream, first, self.scale, (last - first, mechanism.columns)))
                drawn += last - first
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), offsets


class State(NamedTuple):
    """All that is carried from step to step."""

    trees: Trees


@dataclass(frozen=True)
class TreeCounter(Mechanism):
    """Running sums from noisy sums over the nodes of trees; the common part.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    branching
        Children of a node.
    estimator
        "honaker": every node is averaged with what its children say, which is free. "plain": the papers'.

    A step is a leaf when it is pushed. Steps that are passed over are none, so any w steps are at most w leaves that
    follow each other.
    """

    branching: int = 2
    estimator: str = "honaker"

    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # sums of nodes that are not complete yet

    def validate(self) -> None:
        """Check branching and estimator."""
        object.__setattr__(self, "branching", whole("branching", self.branching, least=2, most=1 << 20))
        one_of("estimator", self.estimator, ("honaker", "plain"), "leave it out: Honaker's is never worse")

    @abstractmethod
    def block(self, step: int) -> Block:
        """The tree that covers a step."""

    def scale_of(self, levels: int) -> float:
        """The noise scale of each node of a tree of so many levels, in grid units; rounded up."""
        window, together = self.policy.steps_charged, levels
        if self._gaussian:
            # a window changes a level of nodes of b^l steps by at most w·min(b^l, w)·Δ² in squared norm
            together = sum(min(self.branching**level, window) for level in range(levels))
        return self.noise_scale(window * together)

    def noise_variance(self, levels: int) -> float:
        """The variance of the noise of one node, in squared grid units."""
        return self.own_noise.variance(self.scale_of(levels))

    def own_weights(self, levels: int) -> Values:
        """How much a node's own measurement counts against what its children say together, by level."""
        weights = np.ones(levels)
        if self.estimator == "honaker":
            below = 1.0
            for level in range(1, levels):
                weights[level] = self.branching * below / (1.0 + self.branching * below)
                below = weights[level]  # the variance of the average, in units of one node's
        return weights

    def node_variances(self, levels: int) -> Values:
        """The variance of a node's estimate, by level, in squared grid units."""
        return self.own_weights(levels) * self.noise_variance(levels)

    @property
    def _gaussian(self) -> bool:
        return self.noise_kind == "gaussian"

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was counted."""
        return State(Trees(self))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same: it is in one node of each level."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Count every step."""
        return every_step(first, *state.trees.count(rows, noise.source))

    # closed forms, before anything is released ---------------------------------------------------------------

    def noise_terms(self, step: int) -> tuple[Values, Values]:
        """The running sum's noise as independent draws: (scales in the values' unit, how many of each)."""
        step, grid = whole("step", step), float(Fraction(self.grid))
        scales: list[float] = []
        counts: list[float] = []
        block = self.block(step)
        parts = [
            (self.block(first), [0] * (self.block(first).levels - 1) + [1]) for first in self._before(block)
        ]
        parts.append((block, self.digits(step - block.first + 1, block.levels)))
        for part, digits in parts:
            weights = self.own_weights(part.levels)
            scale = self.scale_of(part.levels) * grid
            for level, digit in enumerate(digits):
                passed_on = 1.0
                for below in range(level, -1, -1):
                    if digit and passed_on:
                        scales.append(passed_on * weights[below] * scale)
                        counts.append(digit * self.branching ** (level - below))
                    passed_on *= 1.0 - weights[below]
        return np.array(scales), np.array(counts)

    def standard_deviation(self, step: int) -> float:
        """The standard deviation of the running sum released at a step, in the values' unit."""
        step = whole("step", step)
        block = self.block(step)
        digits = self.digits(step - block.first + 1, block.levels)
        variance = float(np.dot(digits, self.node_variances(block.levels)))
        variance += sum(self.node_variances(self.block(first).levels)[-1] for first in self._before(block))
        return math.sqrt(variance) * float(Fraction(self.grid))

    @property
    def long_run(self) -> int:
        """How many steps are the whole: the horizon, or a million where there is none."""
        return self.policy.horizon or LONG_RUN

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of the running sum; by default over the horizon, or the first million steps."""
        if first is None:
            first, last = 1, last or self.long_run
        return mean_over_steps(self._error_at, first, first if last is None else last)

    def _error_at(self, step: int) -> float:
        if self._gaussian:
            return math.sqrt(2 / math.pi) * self.standard_deviation(step)
        return laplace_mean_absolute(*self.noise_terms(step))

    def radius(self, step: int, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around the running sum at a step, a multiple of the grid.

        That of noise that is not on a grid, rounded up: a sum of draws on the grid lies within it at least as often,
        since it is that sum less independent symmetric noise, and is most often in the middle of as many points. Of
        averages of nodes with their children, which are on no grid, the noise is taken as fine.
        """
        if self._gaussian:
            found = gaussian_radius(self.standard_deviation(step), confidence)
        else:
            found = laplace_radius(*self.noise_terms(step), confidence)
        grid = float(Fraction(self.grid))
        return math.ceil(found / grid) * grid

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of Σ_t weights[t−1]·(running sum of step t), for any linear answer."""
        parts = self._coefficients(np.asarray(weights, dtype=np.float64))
        variance = sum(float(np.sum(c * c)) * self.noise_variance(block.levels) for block, c in parts)
        return math.sqrt(variance) * float(Fraction(self.grid))

    def terms_of(self, weights: npt.ArrayLike) -> tuple[Values, Values]:
        """The noise of a linear answer as independent draws: (scales in the values' unit, how many of each)."""
        grid = float(Fraction(self.grid))
        scales = [
            np.abs(c[c != 0.0]) * self.scale_of(block.levels) * grid
            for block, c in self._coefficients(np.asarray(weights, dtype=np.float64))
        ]
        return merged(np.concatenate([*scales, np.zeros(0)]))

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around a linear answer."""
        if self._gaussian:
            return gaussian_radius(self.deviation_of(weights), confidence)
        return laplace_radius(*self.terms_of(weights), confidence)

    def _coefficients(self, weights: Values) -> list[tuple[Block, Values]]:
        """Each tree with the coefficients of its nodes' noise in a linear answer."""
        parts: list[tuple[Block, Values]] = []
        start = 0
        while start < len(weights):
            block = self.block(start + 1)
            inside = weights[start : start + block.size]
            if len(inside) == block.size:  # the root of a finished block goes on to serve all later steps
                inside = np.append(inside[:-1], weights[start + block.size - 1 :].sum())
            parts.append((block, self._block_coefficients(block, inside)))
            start += block.size
        return parts

    def _block_coefficients(self, block: Block, weights: Values) -> Values:
        """Coefficients of estimates flow from parents to children; own measurements take their share on the way."""
        length, weight = len(weights), self.own_weights(block.levels)
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        found: list[Values] = []
        parents = np.zeros(0)
        for level in range(block.levels - 1, -1, -1):
            size = self.branching**level
            ends = np.arange(1, length // size + 1) * size
            # a node serves from its own end until its parent is complete
            parent_ends = -(-ends // (size * self.branching)) * size * self.branching
            until = np.full(len(ends), length)
            if level + 1 < block.levels:
                until = np.minimum(parent_ends - 1, length)
            coefficients = sums[until] - sums[ends - 1]
            if level + 1 < block.levels:
                passed = np.repeat(parents, self.branching)[: len(ends)]
                coefficients[: len(passed)] += (1.0 - weight[level + 1]) * passed
            found.append(weight[level] * coefficients)
            parents = coefficients
        return np.concatenate(found)

    def digits(self, position: int, levels: int) -> list[int]:
        """How many nodes of each level make up the running sum at a position of a tree."""
        digits = []
        for _ in range(levels - 1):
            position, digit = divmod(position, self.branching)
            digits.append(digit)
        return [*digits, position]

    def _before(self, block: Block) -> list[int]:
        """First steps of the blocks before a block."""
        firsts: list[int] = []
        while block.first > 1:
            block = self.block(block.first - 1)
            firsts.append(block.first)
        return firsts


def every_step(first: int, values: Floats, deviations: Floats) -> Output:
    """The output of steps that are all measured and cost one unit each."""
    count = len(values)
    return Output(
        values,
        np.full(count, int(Status.FRESH), dtype=np.int8),
        np.arange(first, first + count),
        deviations,
        np.ones(count, dtype=np.int64),
    )


def refuse_beyond(horizon: int, step: int, steps: int, endless: str) -> None:
    """Refuse what exceeds a counter's horizon, before anything is charged; `endless` has a longer one."""
    if step + steps > horizon:
        raise InvalidInput(
            f"the counter was built for {horizon} steps and {steps} more would make {step + steps}; nothing was "
            f"charged: open a stream with a longer horizon, or use {endless}."
        )
