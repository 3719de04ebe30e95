"""What the tree counters share: blocks of steps, each with a tree of noisy sums over it."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.exact import one_of, whole
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.policy import Event, Policy, WEvent
from tidegate.queries.sums import gaussian_radius, laplace_mean_absolute, laplace_radius, merged
from tidegate.releases import Values

LONG_RUN = 1_000_000


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
