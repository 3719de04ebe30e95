"""ToPS: running sums of clipped values that are measured group by group, and guessed in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, float_up, one_of, positive, whole
from tidegate.mechanisms.clipping.learned_clip import PUSHED, LearnedClip
from tidegate.mechanisms.clipping.nested import Nested, Rows
from tidegate.mechanisms.counters.binary_tree import LONGEST, BinaryTree, levels_of
from tidegate.mechanisms.counters.tree import refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import laplace, prepare
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Policy
from tidegate.releases import Releases, Status, Values

WAIT = 50_000  # steps after which a default lag ends at the latest
BACK = 16  # groups of which a guess is the average
PLACES = 20  # binary places of a penalty
MOST = 1 << 60  # of a group's sum, in grid units
SUM, LAST = 0, 1  # positions in `State.group`


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # steps that were pushed, and the clip in grid units, 0 before it is known
    sample: Rows  # SECRET: the first m values, cut to [0, B]; forgotten at step m
    kept: Rows  # the last released sums of groups, and their deviations
    counter: Nested  # SECRET: the sums of open nodes
    group: Any  # SECRET: the sum of the open group; and the step of the last measured one


def best_score(counts: Matrix, noise: Matrix, penalties: list[int]) -> int:
    """The first position with the largest −2^20·(count + noise) − penalty, in exact integers.

    Examples
    --------
    >>> best_score(np.array([9, 4, 1]), np.array([0, 0, 0]), [1 << 20, 2 << 20, 6 << 20])
    1
    """
    noisy = [count + drawn for count, drawn in zip(counts.tolist(), noise.tolist(), strict=True)]
    return max(range(len(noisy)), key=lambda place: -(noisy[place] << PLACES) - penalties[place])


@dataclass(frozen=True)
class ToPS(LearnedClip):
    """Learn a threshold, clip, measure the sums of groups by a flat tree, and guess within a group.

    Three parts, after the paper. The first m observations buy a threshold. A tree with 16 children per node counts groups
    of s steps, with noise scaled to the threshold. A smoother stands for the tree's lowest levels: at the end of a group
    the running sum is measured, and within a group it grows by the average of the last 16 groups. So the tree has few
    levels and little noise. Sums over ranges and windows are differences of releases.

    Parameters
    ----------
    policy
        `Event`; ``max_change`` is B. One observation a step.
    lag
        The time lag m: steps up to m release 0, and are in no later sum. 0, the default: a tenth of the stream, at most
        50,000 steps.
    above, exceeding, multiplier, bound, per_doubling
        How the quantile is learnt; see :class:`ClippedSum`.
    horizon
        The number n of steps, public.
    threshold
        "quantile" (default; see :class:`Threshold`), or "balance": the paper's choice, by noisy scores.
    excess
        c, for "balance": by how much a value above the threshold exceeds it, in the values' unit. Public; 60 as printed.
    group
        s, the steps of a group. By default the power of 16 with the least noise and guess, from public numbers.
    branching
        Children of a node.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed. A step t ≤ m loses ε through the threshold and is in no sum. A
    later one is in one group and moves its sum by at most τ, so the tree loses ε: discrete Laplace noise of scale τL/ε on
    every node, for L levels. "balance" releases the candidate v with the largest −(#{σ > v} + ν) − λv, where ν ~ discrete
    Laplace(1/ε): a changed value moves all counts in one direction, by at most 1. Guesses are post-processing. Proof:
    docs/proofs/tops.md. Values outside [0, B] are clipped. The state holds the first m values, and then sums of open
    nodes and of the open group: protect it like data.

    Departures: releases are running sums; noise is discrete Laplace noise; a guess is the average of 16 groups, and 0
    before the first one is complete; the threshold is a quantile by default, since that needs no c.

    Error
    -----
    `release.scale` is the standard deviation of the last measured sum's noise. A guess adds what the stream varies within
    a group, so it has no finite interval. Clipping loses Σ max(0, x − τ), which no interval has. Measured:
    docs/experiments/counters.md. Time O(1) a step on average, memory m values until step m, then O(log n).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = ToPS(Event(epsilon="1", max_change=1440), horizon=5_000, lag=1000)
    >>> mechanism.group
    16
    >>> releases = Session(mechanism).push_batch([30] * 1500)
    >>> int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    (31, True)

    References
    ----------
    Wang, Chen, Zhang, Su, Cheng, Li, Li, Jha: Continuous release of data streams under both centralized and local
    differential privacy. CCS 2021.
    """

    lag: int = 0
    horizon: int | None = None
    threshold: str = "quantile"
    excess: ExactLike = 60
    group: int | None = None
    branching: int = 16

    supports: ClassVar[tuple[type[Policy], ...]] = (Event,)
    budgets: ClassVar[tuple[str, ...]] = ("Pure",)
    statistic: ClassVar[str] = "sums"

    def validate(self) -> None:
        """Check the parameters and fill in the defaults, from public numbers only."""
        put = object.__setattr__
        horizon = self.horizon if self.horizon is not None else self.policy.horizon
        if horizon is None:
            raise InvalidParameter("horizon", None, "the number of steps of the stream", "give one")
        put(self, "horizon", whole("horizon", horizon, least=2, most=self.policy.horizon or LONGEST))
        if self.lag == 0:
            put(self, "lag", max(1, min(self.length // 10, WAIT)))
        put(self, "lag", whole("lag", self.lag, most=self.length - 1))
        put(self, "branching", whole("branching", self.branching, least=2, most=1024))
        one_of("threshold", self.threshold, ("quantile", "balance"))
        positive("excess", self.excess)
        if self.group is None:
            powers = range(levels_of(self.length - self.lag, BACK))
            put(self, "group", min((BACK**power for power in powers), key=self._cost))
        put(self, "group", whole("group", self.group or 0, most=self.length - self.lag))
        super().validate()
        if self.steps_of_group * self.largest > MOST:
            raise InvalidParameter(
                "group", self.group, f"at most {MOST // self.largest} for this bound", "lower it"
            )
        if self.threshold == "balance":
            prepare(self.score_scale)

    def _cost(self, group: int) -> float:
        """The variance of a sum's noise, and of a guess among `group` values, with a clip of 1."""
        levels = levels_of(-(-(self.length - self.lag) // group), self.branching)
        return (self.branching - 1) * levels**3 / float(self._epsilon) ** 2 + group - 1

    @property
    def length(self) -> int:
        """The horizon."""
        assert self.horizon is not None
        return self.horizon

    @property
    def steps_of_group(self) -> int:
        """s."""
        assert self.group is not None
        return self.group

    # 1. the threshold ------------------------------------------------------------------------------------------

    @property
    def score_scale(self) -> float:
        """The noise scale of each score of "balance"; rounded up."""
        return float_up(1 / self._epsilon)

    @cached_property
    def penalties(self) -> list[int]:
        """⌊2^20·λv⌋ for each candidate v: noise of a sum, in exceeding observations of the sample."""
        levels, later = self.counter(1).levels, self.length - self.lag
        noise = math.sqrt(2 * (self.branching - 1) * levels**3) / float(self._epsilon)  # with a clip of 1
        slope = Fraction(noise) * 3 * self.lag / later * Fraction(self.grid) / positive("excess", self.excess)
        return [math.floor(slope * value * (1 << PLACES)) for value in self.finder.candidates.tolist()]

    def learn(self, sample: Matrix, source: Source) -> int:
        """A quantile, or the candidate with the best noisy balance of what is above it and what noise it brings."""
        if self.threshold == "quantile":
            return super().learn(sample, source)
        grid = self.finder.candidates
        above = len(sample) - np.searchsorted(np.sort(sample), grid, side="right")
        noise = laplace(source, "threshold score", self.lag, self.score_scale, (len(grid),))
        return int(grid[best_score(above, noise, self.penalties)])

    # 2. the tree over groups -----------------------------------------------------------------------------------

    def counter(self, clip: int) -> BinaryTree:
        """One leaf a group; a value is in one leaf and moves it by at most the clip."""
        leaves = -(-(self.length - self.lag) // self.steps_of_group)
        return BinaryTree(self.policy_for(clip), horizon=leaves, branching=self.branching)

    def _count(self, state: Any, rows: Matrix, first: int, noise: Draws) -> tuple[Floats, Floats]:
        """Add to the open group, measure the groups that are complete, and guess the others."""
        groups, before = state.counter, first - 1
        begun, filled = divmod(before, self.steps_of_group)
        places = (filled + np.arange(len(rows))) // self.steps_of_group
        sums = np.zeros(places[-1] + 2, dtype=np.int64)
        sums[0] = state.group[SUM]
        np.add.at(sums, places, np.clip(rows[:, 0], 0, groups.clip))
        ends = self.ends(first, len(rows))
        complete = int(ends.sum())
        found = groups.mechanism.advance(groups.state, sums[:complete, np.newaxis], begun + 1, noise)
        state.group[SUM] = sums[complete]
        new = np.column_stack([found.values[:, 0], found.scale])
        known = np.concatenate([state.kept.content, new])
        values, deviations = self._smooth(known, places + len(state.kept), filled, ends)
        state.kept.content = known[-BACK - 1 :]
        unit = float(Fraction(self.grid))
        return values[:, np.newaxis] * unit, deviations * unit

    def ends(self, first: int, count: int) -> Any:
        """Whether a group ends, for each observation from the `first` one after the lag on; the last one may be short."""
        numbers = np.arange(first, first + count)
        return (numbers % self.steps_of_group == 0) | (numbers == self.length - self.lag)

    # 3. the smoother -------------------------------------------------------------------------------------------

    def _smooth(self, known: Floats, places: Any, filled: int, ends: Any) -> tuple[Floats, Floats]:
        """Within a group, the sum before it and the average of the last groups; at its end, what was measured."""
        last = places - 1  # in `known`: the sum before each step's group
        far = np.maximum(last - BACK, 0)
        steps = np.maximum(last - far, 1) * self.steps_of_group
        slope = (known[last, 0] - known[far, 0]) / steps  # 0 before the first group is complete
        position = (filled + np.arange(len(places))) % self.steps_of_group + 1
        at = np.where(ends, np.minimum(last + 1, len(known) - 1), last)
        values = np.where(ends, known[at, 0], known[last, 0] + position * slope)
        return values, known[at, 1]

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def fresh(self) -> Values:
        """Before the first group the sum is 0, without noise."""
        return np.zeros((1, 2))

    def begin(self, first: int) -> State:  # type: ignore[override]  # one more array
        """An empty sample and an empty group."""
        return State(*super().begin(first), np.zeros(2, dtype=np.int64))

    def public(self, state: Any, first: int, count: int) -> Charges:
        """Every step costs the same, for at most `horizon` of them."""
        refuse_beyond(self.length, int(state.numbers[PUSHED]), count, "HybridTree")
        return super().public(state, first, count)

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Collect the sample, learn the clip at step m, and count from then on; only ends of groups are measured."""
        own = int(state.numbers[PUSHED]) - self.lag + 1  # the number of the first row after the lag
        output = super().advance(state, rows, first, noise)
        measured = self.ends(own, len(rows)) & (output.status == Status.FRESH)
        output.status[~measured] = int(Status.APPROXIMATED)
        steps = np.where(measured, np.arange(first, first + len(rows)), state.group[LAST])
        output.source[:] = np.maximum.accumulate(steps)
        state.group[LAST] = max(state.group[LAST], steps.max(initial=0))
        return output

    def answers(self, counted: Releases, first: int, kept: Values) -> tuple[Values, Values, Values]:
        """Not called: `_count` answers."""
        raise NotImplementedError

    def reach(self, clip: int, step: int) -> float:
        """The clip."""
        return clip * float(Fraction(self.grid))

    def ideal(self, steps: Values) -> Values:
        """The running sums of exact observations, 0 during the lag."""
        return np.concatenate([np.zeros_like(steps[: self.lag]), np.nancumsum(steps[self.lag :], axis=0)])

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        replaced = Event(epsilon="1", max_change=500, adjacency="replace")
        return [
            cls(event, horizon=2000, lag=35, group=5, branching=3),
            cls(event, horizon=2000, lag=24, above=4, group=1, grid="0.01"),
            cls(replaced, horizon=1999, lag=30, threshold="balance", group=16),
        ]
