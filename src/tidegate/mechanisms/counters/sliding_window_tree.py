"""SlidingWindowTree: sums over the last n steps from binary trees on consecutive blocks of n steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.exact import one_of, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.counters.kernels import sliding_window as trees
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Run, State, mean_over_steps
from tidegate.mechanisms.run import summable
from tidegate.noise import check_scale
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Releases

LONGEST = 2**24
CELLS = 1 << 16  # cells that a batch handles at once


@dataclass(frozen=True)
class SlidingWindowTree(Mechanism):
    """Release at every step the sum over the last `window` steps (over fewer at the beginning).

    The stream is cut into blocks of n = `window` steps, with a binary tree over each. A window is a suffix
    of the block before and a prefix of the present one, each the sum of at most one node on every level. A
    node's measurement is averaged with what its children say, which costs no budget.

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

    A node's sum begins with its noise, so the state holds no exact sum. But a snapshot and a later release, or
    two snapshots, of the same unfinished node differ by what arrived in between: guard snapshots like data.

    Error
    -----
    Unbiased; :meth:`standard_deviation` is exact and needs no data. Between log₂ n and 2·log₂ n nodes of
    the scale above, with variances averaged down to about half. Time O(d·log n) a step, memory O(d·n).

    Examples
    --------
    >>> mechanism = SlidingWindowTree(Event(epsilon="1"), window=24)
    >>> mechanism.levels, mechanism.scale
    (5, 5.0)
    >>> mechanism.start().push_batch(np.ones(100, dtype=np.int64)).values.shape
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
        trees.variances(self.window, self.offsets, self.estimator == "honaker", found)
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

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> SlidingWindowTreeRun:
        """Begin, or go on with, a run."""
        return SlidingWindowTreeRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1"), window=8),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=3, window=7, grid="0.5"),
            cls(WEvent(epsilon="2", w=4), columns=2, window=13, estimator="plain"),
            cls(WEvent(rho="1/2", w=3), window=1),
            cls(Event(rho="1/2"), window=2),
            cls(User(epsilon="100", horizon=9000), window=24),
        ]


class SlidingWindowTreeRun(Run):
    """SlidingWindowTree at work."""

    mechanism: SlidingWindowTree

    def _begin(self, state: State | None) -> None:
        mechanism, columns = self.mechanism, self._columns
        self._draw = mechanism.own_noise.draw
        self._charge = self.ledger.units // mechanism.units
        fresh: State = {
            "sums": np.zeros((mechanism.levels, columns), dtype=np.int64),
            "nodes": np.zeros((int(mechanism.offsets[-1]), columns)),
            "prefix": np.zeros((mechanism.window, columns)),
            "suffix": np.zeros((mechanism.window, columns)),
        }
        self._tree = {**fresh, **(state or {})}

    def _state(self) -> State:
        return self._tree

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        mechanism, steps = self.mechanism, len(matrix)
        own = first_step - self.origin  # nodes and blocks are counted from the first step of this run
        units = np.broadcast_to(np.int64(self._charge), steps)
        self.ledger.charge_batch(first_step, units)
        values = np.empty(matrix.shape)
        length = max(1, CELLS // self._columns)
        blocks = tuple(self._tree[name] for name in trees.Blocks._fields)
        averages = mechanism.estimator == "honaker"
        shape = (mechanism.window, mechanism.offsets, mechanism.node_variances, averages, self._grid)
        for start in range(0, steps, length):
            rows = summable(matrix[start : start + length], mechanism.window)
            noise, starts = self._noise(own + start, len(rows))
            piece = values[start : start + length]
            trees.slide(rows, own + start, shape, noise, starts, blocks, piece)
        at = own - 1 + np.arange(steps)
        scale = mechanism.deviations[at % mechanism.window]
        young = at < mechanism.window
        scale[young] = mechanism.first_deviations[at[young]]
        return self._all_fresh(first_step, values, scale, units)

    def _noise(self, step: int, steps: int) -> tuple[Matrix, npt.NDArray[np.int64]]:
        """The noise of all nodes that begin in these steps, level after level, and where each level's begins."""
        mechanism = self.mechanism
        drawn, starts = [], [0]
        for level in range(mechanism.levels):
            first, last = self._begun(level, step - 1), self._begun(level, step + steps - 1)
            shape = (last - first, self._columns)
            if last > first:
                drawn.append(self._draw(self.source, f"level {level}", first + 1, mechanism.scale, shape))
            starts.append(starts[-1] + last - first)
        if not drawn:
            return np.zeros((0, self._columns), dtype=np.int64), np.array(starts[:-1], dtype=np.int64)
        return np.concatenate(drawn), np.array(starts[:-1], dtype=np.int64)

    def _begun(self, level: int, step: int) -> int:
        """How many nodes of a level have begun by the end of a step."""
        blocks, inside = divmod(step, self.mechanism.window)
        return blocks * -(-self.mechanism.window >> level) + -(-inside >> level)
