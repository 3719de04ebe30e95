"""GradualTree: running sums of which recent releases say little about an event, and late ones more."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import float_up, whole
from tidegate.mechanisms.counters.tree import CELLS, every_step, refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise import prepare
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Guarantee, Policy
from tidegate.queries.sums import laplace_mean_absolute, laplace_radius, merged
from tidegate.structures.clamping import summable

LONGEST = 1 << 40
MOST_GROWTH = 2
STREAM = "gradual level"


def levels_of(steps: int) -> int:
    """The levels that so many steps need: the digits of their number, written with the digits 1 and 2.

    Examples
    --------
    >>> [levels_of(steps) for steps in (1, 2, 3, 6, 7, 1022, 1023)]
    [1, 1, 2, 2, 3, 9, 10]
    """
    return (steps + 1).bit_length() - 1


def measured(level: int, steps: int) -> int:
    """How many nodes of a level are measured within so many steps: the i-th, from 0, at step (i + 2)·2^level − 1.

    Examples
    --------
    >>> [measured(1, steps) for steps in (1, 2, 3, 4, 5, 6, 7)]
    [0, 0, 1, 1, 2, 2, 3]
    """
    return max(0, ((steps + 1) >> level) - 1)


class State(NamedTuple):
    """All that is carried from step to step. SECRET: exact sums."""

    steps: Any  # how many were counted
    held: Any  # of each level: how many nodes make up the running sum, 0 to 2
    sums: Any  # levels × 2 × columns: their exact sums
    estimates: Any  # levels × 2 × columns: their estimates
    above: Any  # levels + 1 × columns: the sum of the estimates from a level upwards
    spread: Any  # levels + 1: its variance


class Shape(NamedTuple):
    """What is public about the nodes, by level."""

    own_weight: Any  # how much a node's own measurement counts against what its children say
    node_variance: Any  # of a node's estimate
    grid: float


@lean
def count_gradually(
    rows: Any, shape: Any, noise: Any, offsets: Any, state: Any, values: Any, deviations: Any
) -> None:
    """Add steps and write the running sum after each of them.

    A step is a new node of level 0. Where a third node would stand on a level, the two older ones become one node of
    the level above, which is measured then. So every level has one or two nodes, and none above the highest.
    """
    own_weight, node_variance, grid = Shape(*shape)
    _, held, sums, estimates, above, spread = State(*state)
    for index in range(rows.shape[0]):
        top = 0
        while held[top] == 2:
            top += 1
        for column in range(rows.shape[1]):
            exact = rows[index, column]
            estimate = float(exact + noise[offsets[0], column])
            for level in range(top):
                below = sums[level, 0, column] + sums[level, 1, column]
                children = estimates[level, 0, column] + estimates[level, 1, column]
                sums[level, 0, column] = exact
                estimates[level, 0, column] = estimate
                exact = below
                own = float(exact + noise[offsets[level + 1], column])
                estimate = children + own_weight[level + 1] * (own - children)
            sums[top, held[top], column] = exact
            estimates[top, held[top], column] = estimate
        held[top] += 1
        for level in range(top, -1, -1):
            if level < top:
                held[level] = 1
            offsets[level] += 1
            spread[level] = spread[level + 1] + held[level] * node_variance[level]
            for column in range(rows.shape[1]):
                running = above[level + 1, column] + estimates[level, 0, column]
                if held[level] == 2:
                    running += estimates[level, 1, column]
                above[level, column] = running
        for column in range(rows.shape[1]):
            values[index, column] = above[0, column] * grid
        deviations[index] = spread[0] ** 0.5 * grid


@dataclass(frozen=True)
class GradualTree(Mechanism):
    """Release the running sum after every step; what releases say about an event grows with their distance to it.

    A running sum is put together from one or two nodes on each level. Where a third node would stand on a level, the two
    older ones become one node of the level above. So a node of 2^l steps is measured 2^l − 1 steps after its last one,
    and releases near an event contain only its nodes of low levels. This is gradual privacy expiration: outputs up to d
    steps after an event lose at most ε·g(d) about it, and g grows.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`. The policy's ε is what all outputs together may lose, however late they are.
    horizon
        The number n of steps, public; by default the policy's. A step beyond it is refused before anything is charged.
    growth
        How g grows, 0 to 2: level l has a part of ε in proportion to (l + 1)^growth. With 0, g(d) is ⌊log₂(d + 1)⌋ + 1
        times g(0). With more, recent outputs lose less, and releases have more noise.

    Privacy
    -------
    Unit and neighbours: the policy's. A step's value is in at most one node of each of L = ⌊log₂(n + 1)⌋ levels. A node
    of level l has discrete Laplace noise of scale Δ/ε_l, where the ε_l add up to ε. So all outputs together are
    ε-differentially private, which is what a step is charged when it is pushed. Outputs up to d steps later contain its
    nodes of the levels l with 2^l − 1 ≤ d only, and lose at most `loss_within(d)`, the sum of their ε_l: the guarantee is
    weaker for older events. Departure: the paper states ε and a g, which may exceed 1. Here ε is the whole loss, at the
    horizon, so an account never holds less than what is lost; `loss_within(0)` is the paper's ε where its g(0) is 1.
    Averaging is post-processing. The state holds exact sums: protect it like data.

    Error
    -----
    Unbiased; `standard_deviation(step)`, `expected_error(step)` and `radius(step)` need no data. On average over 10⁶
    steps the error is 1.6 times that of :class:`BinaryTree` with the same ε, and 5.5 times with growth 1; in units of
    Δ/`loss_within(0)` it is 4.2, and 1.4 with growth 1. Time O(d) a step on average, memory O(d·log n).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = GradualTree(Event(epsilon="1"), horizon=1022)
    >>> [str(mechanism.loss_within(steps)) for steps in (0, 1, 2, 3, 255)]
    ['1/9', '2/9', '2/9', '1/3', '1']
    >>> Session(mechanism).push_batch([12, 50, 7, 3]).values.shape
    (4, 1)

    References
    ----------
    Andersson, Henzinger, Pagh, Steiner, Upadhyay: Continual counting with gradual privacy expiration. NeurIPS 2024.
    Honaker: Efficient use of differentially private binary trees. TPDP 2015.
    """

    horizon: int | None = None
    growth: int = 0

    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event,)
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # sums of nodes

    def validate(self) -> None:
        """Check the horizon, and that noise can be drawn on all levels."""
        horizon = self.horizon if self.horizon is not None else self.policy.horizon
        if horizon is None:
            raise InvalidParameter(
                "horizon",
                None,
                "the number of steps of the stream, since the loss about an event grows with it",
                "give one, or use HybridTree on an endless stream",
            )
        put = object.__setattr__
        put(self, "horizon", whole("horizon", horizon, most=self.policy.horizon or LONGEST))
        put(self, "growth", whole("growth", self.growth, least=0, most=MOST_GROWTH))
        for scale in self.scales:
            prepare(scale)

    @property
    def length(self) -> int:
        """The horizon."""
        assert self.horizon is not None
        return self.horizon

    @property
    def levels(self) -> int:
        """⌊log₂(n + 1)⌋."""
        return levels_of(self.length)

    @cached_property
    def losses(self) -> tuple[Fraction, ...]:
        """ε_l: what the nodes of each level lose."""
        parts = [(level + 1) ** self.growth for level in range(self.levels)]
        return tuple(self.policy.budget.total * Fraction(part, sum(parts)) for part in parts)

    @cached_property
    def scales(self) -> tuple[float, ...]:
        """The noise scale of the nodes of each level, in grid units; rounded up."""
        return tuple(float_up(self.sensitivity / loss) for loss in self.losses)

    def loss_within(self, steps: int) -> Fraction:
        """ε·g(d): what outputs up to so many steps after an event lose at most about it."""
        return sum(self.losses[: levels_of(whole("steps", steps, least=0)) + 1], Fraction(0))

    @property
    def guarantee(self) -> Guarantee:
        """That of event level, and how the loss grows."""
        grows = tuple((2**level - 1, self.loss_within(2**level - 1)) for level in range(self.levels))
        return replace(super().guarantee, gradually=grows)

    @cached_property
    def shape(self) -> Shape:
        """A node's measurement and the sum of its children's estimates, weighted by their variances (Honaker)."""
        own = np.array([self.own_noise.variance(scale) for scale in self.scales])
        weights, variances = np.ones(self.levels), own.copy()
        for level in range(1, self.levels):
            below = 2.0 * variances[level - 1]
            if own[level] + below > 0.0:  # at a very large ε neither has noise, and both are the exact sum
                weights[level] = below / (own[level] + below)
            variances[level] = weights[level] * own[level]
        return Shape(weights, variances, float(Fraction(self.grid)))

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was counted."""
        levels, d = self.levels, self.columns
        return State(
            np.zeros(1, dtype=np.int64),
            np.zeros(levels, dtype=np.int64),
            np.zeros((levels, 2, d), dtype=np.int64),
            np.zeros((levels, 2, d)),
            np.zeros((levels + 1, d)),
            np.zeros(levels + 1),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step is charged at once what all outputs will ever lose about it."""
        refuse_beyond(self.length, int(state.steps[0]), count, "HybridTree")
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Count every step; not too many at a time."""
        values, deviations = np.empty(rows.shape), np.empty(len(rows))
        limited, room = summable(rows, self.length), max(1, CELLS // (2 * self.columns))
        for at in range(0, len(rows), room):
            part = slice(at, at + room)
            steps = len(limited[part])
            drawn, offsets = self._noise(int(state.steps[0]), steps, noise.source)
            count_gradually(
                limited[part], self.shape[:], drawn, offsets, state[:], values[part], deviations[part]
            )
            state.steps[0] += steps
        return every_step(first, values, deviations)

    def _noise(self, before: int, steps: int, source: Source) -> tuple[Matrix, Integers]:
        """The noise of all nodes that the next steps measure, level after level, and where each level begins."""
        pieces: list[Matrix] = []
        offsets = np.zeros(self.levels, dtype=np.int64)
        drawn = 0
        for level, scale in enumerate(self.scales):
            begun = measured(level, before)
            count = measured(level, before + steps) - begun
            offsets[level] = drawn
            if count:
                shape = (count, self.columns)
                pieces.append(self.own_noise.draw(source, f"{STREAM} {level}", begun, scale, shape))
                drawn += count
        return np.concatenate(pieces), offsets

    # closed forms, before anything is released ---------------------------------------------------------------

    def held(self, step: int) -> list[int]:
        """How many nodes of each level make up the running sum of a step: its digits, each 1 or 2, and 0 above them."""
        counts = []
        for level in range(self.levels):
            later = measured(level + 1, step) if level + 1 < self.levels else 0
            counts.append(measured(level, step) - 2 * later)
        return counts

    def standard_deviation(self, step: int) -> float:
        """The standard deviation of the running sum released at a step, in the values' unit."""
        variance = float(np.dot(self.held(whole("step", step, most=self.length)), self.shape.node_variance))
        return math.sqrt(variance) * self.shape.grid

    def noise_terms(self, step: int) -> tuple[Floats, Floats]:
        """The running sum's noise as independent draws: (scales in the values' unit, how many of each)."""
        scales, counts = [], []
        for level, held in enumerate(self.held(whole("step", step, most=self.length))):
            passed_on = 1.0
            for below in range(level, -1, -1):
                if held and passed_on:
                    scales.append(passed_on * self.shape.own_weight[below] * self.scales[below])
                    counts.append(float(held * 2 ** (level - below)))
                passed_on *= 1.0 - self.shape.own_weight[below]
        return np.array(scales) * self.shape.grid, np.array(counts)

    @property
    def long_run(self) -> int:
        """The horizon."""
        return self.length

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of the running sum; by default over all steps."""
        if first is None:
            first, last = 1, last or self.long_run
        return mean_over_steps(self._error, first, first if last is None else last)

    def _error(self, step: int) -> float:
        return laplace_mean_absolute(*self.noise_terms(step))

    def radius(self, step: int, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around the running sum at a step, a multiple of the grid."""
        grid = self.shape.grid
        return math.ceil(laplace_radius(*self.noise_terms(step), confidence) / grid) * grid

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of Σ_t weights[t−1]·(running sum of step t), for any linear answer."""
        variance = sum(
            float(c @ c) * self.own_noise.variance(scale)
            for c, scale in zip(self._coefficients(weights), self.scales, strict=True)
        )
        return math.sqrt(variance) * self.shape.grid

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around a linear answer."""
        found = self._coefficients(weights)
        scales = [np.abs(c[c != 0.0]) * scale for c, scale in zip(found, self.scales, strict=True)]
        return laplace_radius(*merged(np.concatenate(scales) * self.shape.grid), confidence)

    def _coefficients(self, weights: npt.ArrayLike) -> list[Floats]:
        """The coefficients of each level's noise in a linear answer: a node serves until its parent is measured."""
        given = np.asarray(weights, dtype=np.float64)
        length, sums = len(given), np.concatenate([[0.0], np.cumsum(given)])
        found: list[Floats] = []
        parents = np.zeros(0)
        for level in range(self.levels - 1, -1, -1):
            nodes = np.arange(measured(level, length))
            until = np.full(len(nodes), length)
            if level + 1 < self.levels:
                until = np.minimum(((nodes // 2 + 2) << (level + 1)) - 2, length)
            coefficients = sums[until] - sums[((nodes + 2) << level) - 2]
            if len(parents):
                share = 1.0 - self.shape.own_weight[level + 1]
                coefficients[: 2 * len(parents)] += share * np.repeat(parents, 2)
            found.append(self.shape.own_weight[level] * coefficients)
            parents = coefficients
        return found[::-1]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1"), columns=3, horizon=2000),
            cls(Event(epsilon="2", adjacency="replace"), columns=2, grid="0.01", horizon=2000, growth=1),
        ]
