"""What the tree counters share: blocks of steps, each with a tree of noisy sums over it."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import float_up, sqrt_up, whole
from tidegate.mechanisms.kernels.counters import count_on_tree
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Row, Run, State
from tidegate.noise import gaussian, laplace, variance_gaussian, variance_laplace
from tidegate.policy import Event, Policy, WEvent, ZeroConcentrated
from tidegate.queries.sums import gaussian_radius, laplace_mean_absolute, laplace_radius
from tidegate.releases import Release, Releases, Status, Values

CELLS = 1 << 17  # node sums that a batch handles at once: their noise stays in the cache


class Block(NamedTuple):
    """One tree: which steps it covers (first, first + 1, …) and how many levels it has."""

    number: int
    first: int
    size: int
    levels: int


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
    """

    branching: int = 2
    estimator: str = "honaker"

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")
    keeps_raw_values: ClassVar[bool] = True  # sums of nodes that are not complete yet

    def validate(self) -> None:
        """Check branching and estimator."""
        object.__setattr__(self, "branching", whole("branching", self.branching, least=2, most=1 << 20))
        if self.estimator not in ("honaker", "plain"):
            raise InvalidParameter(
                "estimator", self.estimator, "'honaker' or 'plain'", "leave it out: Honaker's is never worse"
            )

    @abstractmethod
    def block(self, step: int) -> Block:
        """The tree that covers a step."""

    @property
    def units(self) -> int:
        """One unit a step: what its value loses through all nodes that will ever contain it."""
        return self.policy.steps_charged

    def scale_of(self, levels: int) -> float:
        """The noise scale of each node of a tree of so many levels, in grid units; rounded up."""
        budget, window = self.policy.budget, self.policy.steps_charged
        if isinstance(budget, ZeroConcentrated):
            # a window changes a level of nodes of b^l steps by at most w·min(b^l, w)·Δ² in squared norm
            squares = sum(min(self.branching**level, window) for level in range(levels))
            return sqrt_up(Fraction(self.sensitivity**2 * window * squares) / (2 * budget.rho))
        return float_up(self.sensitivity * window * levels / budget.total)

    def noise_variance(self, levels: int) -> float:
        """The variance of the noise of one node, in squared grid units."""
        scale = self.scale_of(levels)
        return variance_gaussian(scale) if self._gaussian else variance_laplace(scale)

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
        return isinstance(self.policy.budget, ZeroConcentrated)

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

    def expected_error(self, step: int) -> float:
        """The mean absolute error of the running sum at a step, in the values' unit."""
        if self._gaussian:
            return math.sqrt(2 / math.pi) * self.standard_deviation(step)
        return laplace_mean_absolute(*self.noise_terms(step))

    def radius(self, step: int, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around the running sum at a step."""
        if self._gaussian:
            return gaussian_radius(self.standard_deviation(step), confidence)
        return laplace_radius(*self.noise_terms(step), confidence)

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of Σ_t weights[t−1]·(running sum of step t), for any linear answer."""
        given = np.asarray(weights, dtype=np.float64)
        variance, start = 0.0, 0
        while start < len(given):
            block = self.block(start + 1)
            inside = given[start : start + block.size]
            # the root of a finished block goes on to serve all later steps
            inside = (
                inside
                if len(inside) < block.size
                else np.append(inside[:-1], given[start + block.size - 1 :].sum())
            )
            variance += self._block_variance(block, inside)
            start += block.size
        return math.sqrt(variance) * float(Fraction(self.grid))

    def _block_variance(self, block: Block, weights: Values) -> float:
        """Σ of squared coefficients of every node's noise; coefficients flow from parents to children."""
        length, weight = len(weights), self.own_weights(block.levels)
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        total, parents = 0.0, np.zeros(0)
        for level in range(block.levels - 1, -1, -1):
            size = self.branching**level
            ends = np.arange(1, length // size + 1) * size
            # a node serves from its own end until its parent is complete
            parent_ends = -(-ends // (size * self.branching)) * size * self.branching
            until = (
                np.minimum(parent_ends - 1, length)
                if level + 1 < block.levels
                else np.full(len(ends), length)
            )
            coefficients = sums[until] - sums[ends - 1]
            if level + 1 < block.levels:
                passed = np.repeat(parents, self.branching)[: len(ends)]
                coefficients[: len(passed)] += (1.0 - weight[level + 1]) * passed
            total += float(np.sum((weight[level] * coefficients) ** 2))
            parents = coefficients
        return total * self.noise_variance(block.levels)

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


class TreeRun(Run):
    """A tree counter at work."""

    mechanism: TreeCounter

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        self._draw = gaussian if isinstance(mechanism.policy.budget, ZeroConcentrated) else laplace
        self._charge = self.ledger.units // mechanism.units
        if state is None:
            self._base = np.zeros(self._columns)
            self._base_variance = 0.0
            self._open(mechanism.block(1))
            return
        block = mechanism.block(max(self.step, 1))
        self._open(block)
        self._base, self._base_variance = state["base"], state["base_variance"]
        self._total, self._marks, self._siblings = state["total"], state["marks"], state["siblings"]
        # everything else follows from the position and the siblings
        self._digits[:] = mechanism.digits(self.step - block.first + 1, block.levels)
        for level in range(block.levels - 1, -1, -1):
            self._above[level] = self._above[level + 1] + self._siblings[level]
            self._spread[level] = self._spread[level + 1] + self._digits[level] * self._variances[level]

    def _open(self, block: Block) -> None:
        """Begin a tree."""
        mechanism, levels = self.mechanism, block.levels
        self._block = block
        self._weights = mechanism.own_weights(levels)
        self._variances = mechanism.node_variances(levels)
        self._scale = mechanism.scale_of(levels)
        self._digits = np.zeros(levels, dtype=np.int64)
        self._total = np.zeros(self._columns, dtype=np.int64)
        self._marks = np.zeros((levels, self._columns), dtype=np.int64)
        self._siblings = np.zeros((levels, self._columns))
        self._above = np.zeros((levels + 1, self._columns))
        self._spread = np.zeros(levels + 1)

    def _state(self) -> State:
        return {
            "base": self._base,
            "base_variance": float(self._base_variance),
            "total": self._total,
            "marks": self._marks,
            "siblings": self._siblings,
        }

    def _push(self, row: Row) -> Release:
        self.ledger.charge(self.step, self._charge)
        values, deviations = self._count(row[np.newaxis], self.step)
        return Release(
            self.step,
            values[0],
            Status.FRESH,
            self.step,
            float(deviations[0]),
            self._charge,
            self.ledger.unit,
        )

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps = len(matrix)
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        values, deviations = self._count(matrix, first_step)
        status = np.broadcast_to(np.int8(Status.FRESH), steps)
        return Releases(first_step, values, status, None, deviations, units, self.ledger.unit)

    def _count(self, matrix: Matrix, first_step: int) -> tuple[Values, Values]:
        """The running sums after each step, and their standard deviations; the ledger has agreed."""
        values = np.empty(matrix.shape)
        deviations = np.empty(len(matrix))
        at = 0
        while at < len(matrix):
            position = first_step + at - self._block.first
            if position == self._block.size:
                self._base = self._base + self._above[0]
                self._base_variance += float(self._spread[0])
                self._open(self.mechanism.block(first_step + at))
                position = 0
            stop = min(
                len(matrix), at + self._block.size - position, at + max(1, CELLS // (2 * self._columns))
            )
            noise, offsets = self._node_noise(position, stop - at)
            count_on_tree(
                matrix[at:stop],
                self.mechanism.branching,
                self._weights,
                self._variances,
                noise,
                offsets,
                self._digits,
                self._total,
                self._marks,
                self._siblings,
                self._above,
                self._spread,
                self._base,
                self._base_variance,
                self._grid,
                values[at:stop],
                deviations[at:stop],
            )
            at = stop
        return values, deviations

    def _node_noise(self, position: int, steps: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """The noise of all nodes that the next steps complete, level after level, and where each level begins."""
        pieces: list[Matrix] = []
        offsets = np.zeros(self._block.levels, dtype=np.int64)
        drawn = 0
        for level in range(self._block.levels):
            size = self.mechanism.branching**level
            first, last = position // size, (position + steps) // size
            offsets[level] = drawn
            if last == first:
                if size > position + steps:
                    break
                continue
            stream = f"tree {self._block.number} level {level}"
            pieces.append(self._draw(self.source, stream, first, self._scale, (last - first, self._columns)))
            drawn += last - first
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), offsets
