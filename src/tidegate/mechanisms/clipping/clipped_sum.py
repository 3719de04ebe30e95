"""ClippedSum: running sums of values whose bound is far above nearly all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.core.arrays import Array
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, proper, whole
from tidegate.mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate.mechanisms.clipping.nested import Nested, Rows
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.tree import Trees, refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import laplace_one, prepare, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.policy import Approximate, Event, Policy, User, WEvent
from tidegate.queries.sums import laplace_radius
from tidegate.releases import Releases, Status

WAIT = 50_000  # steps after which a default lag ends at the latest
ROOM = 3  # observations left above the threshold by default, in units of the rank's noise scale
TARGET = 100  # observations of the whole stream that the default multiplier leaves above, over ε
PUSHED, CLIP = 0, 1  # positions in `State.numbers`
SUM, VARIANCE = 0, 1  # positions in `State.first`


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # steps that were pushed, and the clip in grid units, 0 before it is known
    sample: Rows  # SECRET: the first m values, cut to [0, B]; forgotten at step m
    steps: Rows  # their steps, where their sums are released
    first: Any  # the released sum of the sample, in grid units, and its variance
    tree: Nested  # SECRET: the sums of open nodes


@dataclass(frozen=True)
class ClippedCounter:
    """The noise of answers that are linear in the running sums, for :func:`tidegate.queries.sums.answer`.

    What clipping has taken away is not noise, and is in no interval.

    Attributes
    ----------
    mechanism
        What released the sums.
    clip
        Where values were clipped, in grid units.
    """

    mechanism: ClippedSum
    clip: int

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of the noise of Σ_t weights[t−1]·(running sum of step t)."""
        given, lag = np.asarray(weights, dtype=np.float64), self.mechanism.waits
        return math.hypot(self._first(given), self.mechanism.tree(self.clip).deviation_of(given[lag:]))

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around it."""
        given, lag = np.asarray(weights, dtype=np.float64), self.mechanism.waits
        scales, counts = self.mechanism.tree(self.clip).terms_of(given[lag:])
        # the first sum is one Laplace draw, or has nearly the law of one
        first = self._first(given) / math.sqrt(2)
        return laplace_radius(np.append(scales, first), np.append(counts, 1.0), confidence)

    def _first(self, weights: Floats) -> float:
        """The deviation of the sum of the first m in an answer: it is part of all sums from step m on."""
        part = float(weights[max(self.mechanism.waits - 1, 0) :].sum())
        return abs(part) * math.sqrt(self.mechanism.first_variance(self.clip))


@dataclass(frozen=True)
class ClippedSum(Mechanism):
    """Learn a threshold from the first m observations, clip every value at it, and add up with noise scaled to it.

    A tree whose noise is scaled to a cautious bound B drowns a stream that hardly ever comes near B. Here the first m
    observations buy a threshold τ̂; all values, these m included, are clipped at τ = min(r·τ̂, B); the sum of the first m
    is released at step m, and from then on every running sum by a :class:`BinaryTree` with Δ = τ.

    A step is an observation when it is pushed; steps that are passed over are none, so any w steps are at most w
    observations that follow each other. Releases have `clip`, where values are clipped.

    Parameters
    ----------
    policy
        `Event` or `WEvent`; ``max_change`` is B. One observation a step.
    horizon
        The number n of steps, public.
    lag
        The time lag m: steps before m release 0 and have the status "approximated". By default a tenth of the
        stream, at most 50,000 steps; where that is too short for a threshold (a public fact), there is no lag and
        the tree runs with B from the first step.
    threshold
        How τ̂ is found: "quantile" (default, no δ), "smooth" or "smooth-gaussian" (need δ); see :class:`Threshold`.
    above
        How many of the m observations may exceed τ̂; by default three noise scales of the rank.
    exceeding
        The same as a fraction λp.
    multiplier
        r ≥ 1; by default so that of a light-tailed stream about 100/ε observations in all exceed r·τ̂.
    share
        ε₁/ε, what the threshold costs; the sum of the first m has the rest.
    bound
        B; by default the policy's ``max_change``. "unknown": the threshold is sought on a grid up to 2^44 grid units.
    first_sums
        Release each of the first m sums as well, by a tree: the releases of step m have them as `revised`.
    branching, estimator
        Of the trees; see :class:`BinaryTree`. With 16 children, the default, levels are few and the error of a long
        stream is two thirds of that with 2, as in the paper. Where only ranges matter, :class:`ToPS` is nearer still.
    per_doubling, too_low
        See :class:`Threshold`.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed (`WEvent`: one in each of w steps). A step t ≤ m loses ε₁/w through
    the threshold and ε₂/w through the first sum, Lap(wτ/ε₂); a later step ε/w through the tree, scale wτL/ε with
    L = ⌊log_b(n − m)⌋ + 1. Departures from the paper, each of which its guarantee needs: the first m values are clipped
    too, L is not one level short, τ is what is applied, min(r·τ̂, B), and the rank of the quantile is fixed. Refused under
    `User` (one user may own the whole sample). Values outside [0, B] are clipped. The state holds the first m values and
    then the sums of open nodes: protect it like data.

    Error
    -----
    Noise: `noise_deviation(step, clip)`, √Var of the first sum's Lap(τ/ε₂) and of the tree; clipping loses
    Σ max(0, x − τ), which only the data know. Against a tree with B the error falls by about B/τ. Time O(1) a step on
    average, O(m·log m) once; memory m values until step m, then O(log n).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = ClippedSum(Event(epsilon="1", max_change=1440), horizon=10_000, lag=1000)
    >>> releases = Session(mechanism).push_batch([30] * 1500)
    >>> int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    (501, True)

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019.
    """

    horizon: int | None = None
    lag: int | None = None
    threshold: str = "quantile"
    above: int | None = None
    exceeding: ExactLike | None = None
    multiplier: ExactLike | None = None
    share: ExactLike = "0.8"
    bound: ExactLike | None = None
    first_sums: bool = False
    branching: int = 16
    estimator: str = "honaker"
    per_doubling: int = 32
    too_low: float = 0.005

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "Approximate")
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # the sample of the threshold, then sums of open nodes
    more: ClassVar[tuple[str, ...]] = ("clip",)

    def __post_init__(self) -> None:
        if isinstance(self.policy, User):
            raise InvalidParameter(
                "policy",
                "User",
                "Event or WEvent, since one user could own the whole sample of the threshold",
                "use Event or WEvent, or BinaryTree with a public bound",
            )
        super().__post_init__()

    def validate(self) -> None:
        """Check the parameters and fill in the defaults, from public numbers only."""
        put = object.__setattr__
        if self.columns != 1:
            raise InvalidParameter("columns", self.columns, "1 for ClippedSum", "run one for each column")
        if isinstance(self.policy.budget, Approximate) and not isinstance(self.policy, Event):
            raise InvalidParameter(
                "policy", "WEvent with a delta", "WEvent with ε alone, or Event", "drop delta"
            )
        horizon = self.horizon if self.horizon is not None else self.policy.horizon
        if horizon is None:
            raise InvalidParameter("horizon", None, "the number of steps of the stream", "give one")
        put(self, "horizon", whole("horizon", horizon, least=2, most=self.policy.horizon or 1 << 40))
        share = exact("share", self.share)
        put(self, "share", proper("share", share, 'write for example share="0.8"'))
        room = math.ceil(ROOM * 2 * self.policy.steps_charged / self.epsilons[0])
        if self.lag is None:
            waited = min(self.length // 10, WAIT)
            needed = 4 * room if self.exceeding is None else math.ceil(4 / exact("exceeding", self.exceeding))
            put(self, "lag", waited if waited >= needed else 0)
        put(self, "lag", whole("lag", self.lag or 0, least=0, most=self.length - 1))
        if self.lag and self.above is None and self.exceeding is None:
            if 2 * room > self.waits:
                raise InvalidParameter(
                    "lag", self.lag, f"at least {2 * room} for this ε", "wait longer, or raise epsilon"
                )
            put(self, "above", room)
        if self.multiplier is None:
            put(self, "multiplier", self._default_multiplier())
        multiplier = exact("multiplier", self.multiplier or 0)
        if multiplier < 1:
            raise InvalidParameter("multiplier", self.multiplier, "at least 1", 'write multiplier="1"')
        put(self, "multiplier", multiplier)
        self.tree(self.largest)  # these check what they are made of
        prepare(self.first_scale(self.largest))
        if self.waits:
            prepare(self.finder.scales[1])

    def _default_multiplier(self) -> Fraction:
        """r with p^r = 100/(εn) for the fraction p that may exceed τ̂: x_{p^r} ≤ r·x_p on light tails (Proposition 1)."""
        if not self.waits:
            return Fraction(1)
        p = float(Fraction(self.exceeding)) if self.exceeding is not None else (self.above or 0) / self.waits
        target = min(
            0.5, TARGET * self.policy.steps_charged / (float(self.policy.budget.total) * self.length)
        )
        if p <= 0.0 or p <= target:
            return Fraction(1)
        return Fraction(math.ceil(64 * math.log(target) / math.log(p)), 64)

    @property
    def length(self) -> int:
        """The horizon."""
        assert self.horizon is not None
        return self.horizon

    @property
    def waits(self) -> int:
        """The time lag m; 0 where the tree runs with B from the first step."""
        assert self.lag is not None
        return self.lag

    @property
    def epsilons(self) -> tuple[Fraction, Fraction]:
        """(ε₁ of the threshold, ε₂ of the sum of the first m)."""
        epsilon = Fraction(self.policy.epsilon or 0)
        first = Fraction(self.share) * epsilon
        return first, epsilon - first

    @cached_property
    def finder(self) -> Threshold:
        """The threshold's own configuration, with its part of the budget."""
        return Threshold(
            replace(self.policy, epsilon=self.epsilons[0]),
            sample=self.waits,
            above=self.above if self.exceeding is None else None,
            exceeding=self.exceeding,
            bound=self.bound,
            grid=self.grid,
            method=self.threshold,
            per_doubling=self.per_doubling,
            too_low=self.too_low,
        )

    @cached_property
    def largest(self) -> int:
        """B in grid units."""
        if self.waits:
            return self.finder.largest
        bound = Fraction(
            self.policy.max_change if self.bound in (None, "unknown") else exact("bound", self.bound or 0)
        )
        return max(1, math.floor(bound / Fraction(self.grid)))

    def clip_of(self, threshold: int) -> int:
        """The clip that is applied: min(r·τ̂, B), in grid units."""
        return max(1, min(math.floor(Fraction(self.multiplier or 1) * threshold), self.largest))

    def tree(self, clip: int, steps: int | None = None, epsilon: Fraction | None = None) -> BinaryTree:
        """The tree of the steps after the lag (or of other steps) when values are clipped at so many grid units."""
        total = Fraction(self.policy.epsilon or 0) if epsilon is None else epsilon
        count = steps or self.length - self.waits
        clipped = clip * Fraction(self.grid)  # values lie in [0, clip]
        policy = replace(self.policy, epsilon=total, delta=0, max_change=clipped, signed=False, horizon=None)
        return BinaryTree(
            policy,
            grid=self.grid,
            branching=self.branching,
            estimator=self.estimator,
            horizon=count,
        )

    def first_scale(self, clip: int) -> float:
        """The noise scale of the sum of the first m, in grid units; rounded up."""
        return self.tree(clip, 1, self.epsilons[1]).scale

    def first_variance(self, clip: int) -> float:
        """The variance of the sum of the first m, in the values' unit, when values are clipped at so many grid units."""
        if not self.waits:
            return 0.0
        if self.first_sums:
            return self.tree(clip, self.waits, self.epsilons[1]).standard_deviation(self.waits) ** 2
        return variance_laplace(self.first_scale(clip)) * float(Fraction(self.grid)) ** 2

    def noise_deviation(self, step: int, clip: ExactLike) -> float:
        """The standard deviation of the running sum at a step if values are clipped at `clip`; 0 before step m."""
        limit = max(1, math.floor(exact("clip", clip) / Fraction(self.grid)))
        if step < max(self.waits, 1):
            return 0.0
        variance = self.first_variance(limit)
        if step > self.waits:
            variance += self.tree(limit).standard_deviation(step - self.waits) ** 2
        return math.sqrt(variance)

    def counter_at(self, clip: float) -> ClippedCounter:
        """What knows the noise of linear answers from the running sums, once the clip is known: ``releases.clip[-1]``."""
        if not 0 < clip < math.inf:
            raise InvalidParameter("clip", clip, "a clip that is known", "wait until the lag has passed")
        return ClippedCounter(self, max(1, round(Fraction(clip) / Fraction(self.grid))))

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def revises(self) -> bool:
        """Whether the sums of the first m steps are released again at step m."""
        return self.first_sums

    @property
    def revised(self) -> tuple[str, ...]:
        """The sums of the first m steps, where they are asked for."""
        return ("steps", "sums", "deviations") if self.first_sums else ()

    def begin(self, first: int) -> State:
        """An empty sample; where there is no lag, the tree begins at once."""
        nothing = np.zeros(0, dtype=np.int64)
        return State(
            np.array([0, 0 if self.waits else self.largest]),
            Rows(nothing),
            Rows(nothing),
            np.zeros(2),
            Nested(self.tree, self.largest),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, for at most `horizon` of them."""
        refuse_beyond(self.length, int(state.numbers[PUSHED]), count, "HybridTree")
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Collect the sample, release its sum at step m, and count from then on."""
        count, own = len(rows), int(state.numbers[PUSHED])
        early = min(count, max(0, self.waits - own))
        output = Output(
            np.zeros((count, 1)),
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
            np.zeros(count),
            np.ones(count, dtype=np.int64),
        )
        clips, revised = np.full(count, state.numbers[CLIP]), self._nothing_revised()
        if early:
            self._collect(state, rows[:early, 0], first)
            output.status[:early], output.source[:early] = int(Status.APPROXIMATED), 0
            if own + early == self.waits:
                revised = self._learn(state, noise.source)
                last = early - 1
                output.status[last], output.source[last] = int(Status.FRESH), first + last
                output.values[last] = state.first[SUM] * float(Fraction(self.grid))
                output.scale[last] = math.sqrt(state.first[VARIANCE])
                clips[last:] = state.numbers[CLIP]
        if early < count:
            self._count(state, rows[early:], noise, output.values[early:], output.scale[early:])
        state.numbers[PUSHED] += count
        return output._replace(more=(clips,), revised=revised)

    def _collect(self, state: State, values: Integers, first: int) -> None:
        state.sample.append(np.clip(values, 0, self.largest))
        if self.first_sums:
            state.steps.append(np.arange(first, first + len(values)))

    def _learn(self, state: State, source: Source) -> tuple[Array, ...]:
        """At step m: the threshold, then the sum of the first m, clipped like all others; returns what is revised."""
        lag, grid = self.waits, float(Fraction(self.grid))
        clip = self.clip_of(self.finder.draw(state.sample.content, source, lag).grid_units)
        clipped, revised = np.minimum(state.sample.content, clip), self._nothing_revised()
        if self.first_sums:
            trees = Trees(self.tree(clip, lag, self.epsilons[1]), "first sums")
            sums, deviations = trees.count(clipped[:, np.newaxis], source)
            revised = (state.steps.content, sums[:, 0], deviations)
            state.first[:] = sums[-1, 0] / grid, deviations[-1] ** 2
        else:
            scale = self.first_scale(clip)
            # in two halves, because the sum must not wrap around before the noise is added
            total = (int((clipped >> 32).sum()) << 32) + int((clipped & 0xFFFFFFFF).sum())
            state.first[:] = (
                total + laplace_one(source, "first sum", lag, 0, scale),
                variance_laplace(scale) * grid**2,
            )
        state.numbers[CLIP] = clip
        state.tree.begin(clip)
        state.sample.forget()
        state.steps.forget()
        return revised

    def _count(self, state: State, rows: Matrix, noise: Draws, values: Floats, deviations: Floats) -> None:
        """Add the running sum of the tree to that of the sample."""
        clipped = np.clip(rows, 0, state.numbers[CLIP])
        own = int(state.tree.state.trees.step) + 1
        found = state.tree.mechanism.advance(state.tree.state, clipped, own, noise)
        np.add(found.values, state.first[SUM] * float(Fraction(self.grid)), out=values)
        np.sqrt(found.scale**2 + state.first[VARIANCE], out=deviations)

    def _nothing_revised(self) -> tuple[Array, ...]:
        return (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)) if self.first_sums else ()

    def attach(self, releases: Releases, more: Any, revised: Any) -> ClippedReleases:
        """Releases with the clip, and with the sums of the first m steps, for readers."""
        if revised and len(revised[0]):
            steps, sums, deviations = revised
            count, rows = int(steps[-1] - steps[0]) + 1, steps - steps[0]
            values, scale = np.full((count, 1), np.nan), np.zeros(count)
            status = np.full(count, int(Status.SILENT), dtype=np.int8)  # steps that were passed over
            values[rows, 0], scale[rows], status[rows] = sums, deviations, int(Status.FRESH)
            nothing, ends = np.zeros(count, dtype=np.int64), np.full(count, steps[-1])
            releases.revised = Releases(
                int(steps[0]), values, status, None, scale, nothing, releases.unit, count - 1, ends=ends
            )
        return ClippedReleases.with_clip(releases, more[0], float(Fraction(self.grid)))

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        approximate = Event(epsilon="4", delta="1e-3", max_change=500, adjacency="replace")
        return [
            cls(event, horizon=2000, lag=35, branching=2),
            cls(event, horizon=2000, lag=24, above=4, first_sums=True, branching=3, grid="0.01"),
            cls(
                WEvent(epsilon="3", max_change=500, window=3),
                horizon=2000,
                lag=41,
                above=5,
                bound="unknown",
                branching=2,
            ),
            cls(
                approximate,
                horizon=2000,
                lag=30,
                threshold="smooth",
                exceeding="0.1",
                too_low=0.1,
                branching=2,
            ),
            cls(Event(epsilon="1/8", max_change=500), horizon=1600, branching=2),  # too short for a threshold
            cls(event, horizon=2000, lag=40),
        ]
