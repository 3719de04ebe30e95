"""SlidingWindowTree: sums over the last n steps from binary trees on consecutive blocks of n steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel, lean
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import one_of, whole
from tidegate.mechanisms.counters.tree import every_step
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise import check_scale
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.structures.clamping import summable

LONGEST = 2**24
CELLS = 1 << 16  # cells that a batch handles at once

ORIGIN, STEP = 0, 1  # positions in `State.numbers`


@lean
def lowest_bit(number: int) -> int:
    """The position of the lowest bit that is set."""
    bit = 0
    while (number >> bit) & 1 == 0:
        bit += 1
    return bit


@lean
def variances(window: int, offsets: Any, averages: bool, out: Any) -> None:
    """The variance of every node's estimate, that of one measurement being 1.

    A measurement of variance 1 and the children's estimates of variance v are averaged to v/(1 + v).
    """
    for level in range(offsets.size - 1):
        for node in range(offsets[level + 1] - offsets[level]):
            below = 0.0
            if averages and level > 0:
                below = out[offsets[level - 1] + 2 * node]
                if 2 * node + 1 < offsets[level] - offsets[level - 1]:
                    below += out[offsets[level - 1] + 2 * node + 1]
            out[offsets[level] + node] = below / (1.0 + below) if below > 0.0 else 1.0


class Shape(NamedTuple):
    """What is public about the tree of a block."""

    window: int
    offsets: Any  # where the nodes of each level begin
    variance: Any  # of each node's estimate
    averages: bool  # whether a node's estimate uses those of its children
    grid: float


class Blocks(NamedTuple):
    """The present block and the one before."""

    sums: Any  # of each level: the noisy sum of the node that grows
    nodes: Any  # estimates of the present block's nodes
    prefix: Any  # sums from the beginning of the present block
    suffix: Any  # sums up to the end of the one before


@kernel
def slide(rows: Any, first_step: int, shape: Any, noise: Any, starts: Any, blocks: Any, values: Any) -> None:
    """Add steps to the block and write the window sums.

    `noise[starts[level] + i]` is the noise of the i-th node of a level that begins in these steps: a node's
    sum begins with its noise, so that `sums` never holds a raw one. `nodes`, `prefix` are of the present
    block and `suffix` of the one before.
    """
    window, offsets, variance, averages, grid = Shape(*shape)
    sums, nodes, prefix, suffix = Blocks(*blocks)
    levels = offsets.size - 1
    used = starts.copy()
    columns = rows.shape[1]
    for index in range(rows.shape[0]):
        at = (first_step + index - 1) % window
        for level in range(levels):
            if at % (1 << level) == 0:
                for column in range(columns):
                    sums[level, column] = noise[used[level], column]
                used[level] += 1
            for column in range(columns):
                sums[level, column] += rows[index, column]
            if (at + 1) % (1 << level) == 0 or at + 1 == window:
                node = at >> level
                place = offsets[level] + node
                own = variance[place] if averages and level > 0 else 1.0
                for column in range(columns):
                    estimate = own * sums[level, column]
                    if own < 1.0:  # the children say the same with the other weight
                        child = offsets[level - 1] + 2 * node
                        below = nodes[child, column]
                        if child + 1 < offsets[level]:
                            below += nodes[child + 1, column]
                        estimate += (1.0 - own) * below
                    nodes[place, column] = estimate
        done = at + 1
        if done < window:
            bit = lowest_bit(done)
            place = offsets[bit] + ((done - 1) >> bit)
            for column in range(columns):
                prefix[done, column] = prefix[done - (1 << bit), column] + nodes[place, column]
                values[index, column] = (prefix[done, column] + suffix[done, column]) * grid
        else:
            top = offsets[levels - 1]
            for column in range(columns):
                total = nodes[top, column]
                for place in range(top + 1, offsets[levels]):
                    total += nodes[place, column]
                values[index, column] = total * grid
            for begin in range(window - 1, 0, -1):
                bit = lowest_bit(begin)
                end = begin + (1 << bit)
                place = offsets[bit] + (begin >> bit)
                for column in range(columns):
                    rest = suffix[end, column] if end < window else 0.0
                    suffix[begin, column] = nodes[place, column] + rest


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # the step before the first block, and the last step that is in a block
    sums: Any  # SECRET: of each level, the noise and the sum so far of the node that grows
    nodes: Any  # estimates of the present block's nodes
    prefix: Any  # sums from the beginning of the present block
    suffix: Any  # sums up to the end of the one before


@dataclass(frozen=True)
class SlidingWindowTree(Mechanism):
    """Release at every step the sum over the last `window` steps (over fewer at the beginning).

    The stream is cut into blocks of n = `window` steps, with a binary tree over each. A window is a suffix
    of the block before and a prefix of the present one, each the sum of at most one node on every level. A
    node's measurement is averaged with what its children say, which costs no budget. A step that is passed over is in
    the window like every other one, and is empty.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    window
        The length n of the released windows, in steps; it has nothing to do with the w of a w-event policy.
    estimator
        "honaker" averages each measurement with its children's; "plain" is the paper's, for comparison.

    Privacy
    -------
    Unit and neighbours: the policy's. A step's value is in one node of each of L = max(1, ⌈log₂ n⌉) levels,
    and every node has discrete Laplace noise of scale wLΔ/ε, so a step loses ε/w (w is 1 at event level,
    the horizon at user level). Under ρ, Gaussian noise of σ² = wΔ²·Σ_l min(2^l, w)/(2ρ). Departure: the
    root over the whole block is not measured, since its two children serve the one window in n that would
    use it; that saves one level. Nodes cut off by the end of a block whose length is not a power of two are
    measured as they are, one a level as all others.

    A node's sum begins with its noise, so the state holds no exact sum. But a state and a later release, or two states,
    of the same unfinished node differ by what arrived in between: protect the state like data.

    Error
    -----
    Unbiased; :meth:`standard_deviation` is exact and needs no data. Between log₂ n and 2·log₂ n nodes of
    the scale above, with variances averaged down to about half. Time O(d·log n) a step, memory O(d·n).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = SlidingWindowTree(Event(epsilon="1"), window=24)
    >>> mechanism.levels, mechanism.scale
    (5, 5.0)
    >>> Session(mechanism).push_batch(np.ones(100, dtype=np.int64)).values.shape
    (100, 1)

    References
    ----------
    Bolot, Fawaz, Muthukrishnan, Nikolov, Taft: Private decayed predicate sums on streams. ICDT 2013.
    Honaker: Efficient use of differentially private binary trees. TPDP 2015.
    """

    window: int = 24
    estimator: str = "honaker"

    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")
    statistic: ClassVar[str] = "windows"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = (
        True  # noised sums of open nodes, which later releases complete; see Privacy
    )
    noise_in_state: ClassVar[bool] = True  # a node's sum begins with its noise

    def validate(self) -> None:
        """Check the window and the estimator."""
        object.__setattr__(self, "window", whole("window", self.window, most=LONGEST))
        one_of("estimator", self.estimator, ("honaker", "plain"))
        check_scale(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @property
    def levels(self) -> int:
        """The number of measured levels: ⌈log₂ n⌉, and 1 for windows of one step."""
        return max(1, (self.window - 1).bit_length())

    @cached_property
    def scale(self) -> float:
        """The noise scale of a node in grid units: b of the Laplace, σ of the Gaussian; rounded up."""
        together = self.levels
        if self.noise_kind == "gaussian":
            together = sum(min(2**level, self.units) for level in range(self.levels))
        return self.noise_scale(self.units * together)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where the nodes of each level begin, and one past the last."""
        counts = [-(-self.window >> level) for level in range(self.levels)]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @cached_property
    def node_variances(self) -> npt.NDArray[np.float64]:
        """The variance of every node's estimate, that of one measurement being 1."""
        found = np.empty(int(self.offsets[-1]))
        variances(self.window, self.offsets, self.estimator == "honaker", found)
        return found

    @cached_property
    def deviations(self) -> npt.NDArray[np.float64]:
        """The standard deviation of a window that ends at each position of a block (the first block's are less)."""
        return self._deviations(complete=True)

    def _deviations(self, complete: bool) -> npt.NDArray[np.float64]:
        n, offsets, variance = self.window, self.offsets, self.node_variances
        prefix, suffix = np.zeros(n + 1), np.zeros(n + 1)
        for done in range(1, n):
            bit = (done & -done).bit_length() - 1
            prefix[done] = prefix[done - (1 << bit)] + variance[offsets[bit] + ((done - 1) >> bit)]
        prefix[n] = variance[offsets[-2] :].sum()
        for begin in range(n - 1, 0, -1):
            bit = (begin & -begin).bit_length() - 1
            suffix[begin] = variance[offsets[bit] + (begin >> bit)] + suffix[min(begin + (1 << bit), n)]
        one = self.own_noise.variance(self.scale)
        total = prefix[1:] + (suffix[1:] if complete else 0.0)
        return np.sqrt(one * total) * float(Fraction(self.grid))

    @cached_property
    def first_deviations(self) -> npt.NDArray[np.float64]:
        """The same for the first block, which has none before it."""
        return self._deviations(complete=False)

    def standard_deviation(self, step: int) -> float:
        """How far the sum released at a step is off: its exact standard deviation."""
        at = whole("step", step) - 1
        table = self.first_deviations if at < self.window else self.deviations
        return float(table[at % self.window])

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of a window, by default averaged over a block; taken from a normal distribution."""
        if first is None:
            return float(np.mean(self.deviations)) * math.sqrt(2 / math.pi)
        mean = mean_over_steps(self.standard_deviation, first, first if last is None else last)
        return mean * math.sqrt(2 / math.pi)

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """No block has begun."""
        columns = self.columns
        return State(
            np.array([first - 1, first - 1]),
            np.zeros((self.levels, columns), dtype=np.int64),
            np.zeros((int(self.offsets[-1]), columns)),
            np.zeros((self.window, columns)),
            np.zeros((self.window, columns)),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same: it is in one node of each level."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Add every step to its block, and those that were passed over before as empty ones."""
        passed = self._pass_over(state, first) if len(rows) else 0
        given = np.concatenate([np.zeros((passed, self.columns), dtype=np.int64), rows]) if passed else rows
        own = (
            int(state.numbers[STEP] - state.numbers[ORIGIN]) + 1
        )  # nodes and blocks are counted from the origin
        values = self._slide(state, given, own, noise.source)
        state.numbers[STEP] += len(given)
        return every_step(first, values[passed:], self._spread(own + passed, len(rows)))

    def _pass_over(self, state: State, first: int) -> int:
        """How many empty steps come before `first`; where no window contains an earlier one, blocks restart."""
        passed = first - 1 - int(state.numbers[STEP])
        if state.numbers[STEP] > state.numbers[ORIGIN] and passed < self.window:
            return passed
        for kept, new in zip(state, self.begin(first), strict=True):
            kept[...] = new
        return 0

    def _slide(self, state: State, rows: Matrix, own: int, source: Source) -> Floats:
        values, length = np.empty(rows.shape), max(1, CELLS // self.columns)
        averages, grid = self.estimator == "honaker", float(Fraction(self.grid))
        shape = Shape(self.window, self.offsets, self.node_variances, averages, grid)
        blocks = Blocks(state.sums, state.nodes, state.prefix, state.suffix)
        for start in range(0, len(rows), length):
            part = slice(start, start + length)
            piece = summable(rows[part], self.window)
            drawn, starts = self._noise(own + start, len(piece), source)
            slide(piece, own + start, shape[:], drawn, starts, blocks[:], values[part])
        return values

    def _noise(self, own: int, steps: int, source: Source) -> tuple[Matrix, Integers]:
        """The noise of all nodes that begin in these steps, level after level, and where each level's begins."""
        draw, drawn, starts = self.own_noise.draw, [np.zeros((0, self.columns), dtype=np.int64)], [0]
        for level in range(self.levels):
            first, last = self._begun(level, own - 1), self._begun(level, own + steps - 1)
            if last > first:
                shape = (last - first, self.columns)
                drawn.append(draw(source, f"level {level}", first + 1, self.scale, shape))
            starts.append(starts[-1] + last - first)
        return np.concatenate(drawn), np.array(starts[:-1], dtype=np.int64)

    def _begun(self, level: int, own: int) -> int:
        """How many nodes of a level have begun by the end of a step."""
        blocks, inside = divmod(own, self.window)
        return blocks * -(-self.window >> level) + -(-inside >> level)

    def _spread(self, own: int, steps: int) -> Floats:
        """The standard deviations of the sums; those of the first block are less."""
        at = own - 1 + np.arange(steps)
        spread, young = self.deviations[at % self.window], at < self.window
        spread[young] = self.first_deviations[at[young]]
        return spread

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1"), window=8),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=3, window=7, grid="0.5"),
            cls(WEvent(epsilon="2", window=4), columns=2, window=13, estimator="plain"),
            cls(WEvent(rho="1/2", window=3), window=1),
            cls(Event(rho="1/2"), window=2),
            cls(User(epsilon="100", horizon=9000), window=24),
        ]
