"""ClippedSum: running sums of values whose bound is far above nearly all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, one_of, proper, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.clipping.clipped_sum_run import ClippedSumRun
from tidegate.mechanisms.clipping.threshold import PRINTED_LOSS, Threshold
from tidegate.mechanisms.counters.binary_tree import BinaryTree, levels_of
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import prepare, variance_laplace
from tidegate.policy import Approximate, Event, Policy, User, WEvent

WAIT = 50_000  # steps after which a default lag ends at the latest
ROOM = 3  # observations left above the threshold by default, in units of the rank's noise scale
TARGET = 100  # observations of the whole stream that the default multiplier leaves above, over ε


@dataclass(frozen=True)
class ClippedSum(Mechanism):
    """Learn a threshold from the first m observations, clip every value at it, and add up with noise scaled to it.

    A tree whose noise is scaled to a cautious bound B drowns a stream that hardly ever comes near B. Here the first m
    observations buy a threshold τ̂; all values, these m included, are clipped at τ = min(r·τ̂, B); the sum of the first m
    is released at step m, and from then on every running sum by a :class:`BinaryTree` with Δ = τ.

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
        Release each of the first m sums as well, at step m, by a tree: ``run.first_sums``.
    branching, estimator
        Of the trees; see :class:`BinaryTree`.
    per_doubling, too_low
        See :class:`Threshold`.
    calibration
        "sound", or "paper" for Mechanism 1 as it is printed, which is not private: for reproduction.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed (`WEvent`: one in each of w steps). A step t ≤ m loses ε₁/w through
    the threshold and ε₂/w through the first sum, Lap(wτ/ε₂); a later step ε/w through the tree, scale wτL/ε with
    L = ⌊log_b(n − m)⌋ + 1. Departures from the paper, each of which its guarantee needs: the first m values are clipped
    too, L is not one level short, τ is what is applied, min(r·τ̂, B), and the rank of the quantile is fixed;
    ``calibration="paper"`` makes none of them, and its guarantee states a loss. Refused under `User` (one user may own
    the whole sample). Values outside [0, B] are clipped and counted; the count is not released. The state holds the first
    m values and then the sums of open nodes: protect it like data.

    Error
    -----
    Noise: `noise_deviation(step, clip)`, √Var of the first sum's Lap(τ/ε₂) and of the tree; clipping loses
    Σ max(0, x − τ), which only the data know. Against a tree with B the error falls by about B/τ. Time O(1) a step on
    average, O(m·log m) once; memory m values until step m, then O(log n).

    Examples
    --------
    >>> mechanism = ClippedSum(Event(epsilon="1", max_change=1440), horizon=10_000, lag=1000)
    >>> run = mechanism.start()
    >>> releases = run.push_batch([30] * 1500)
    >>> releases.fresh.sum(), run.clip < 1440
    (np.int64(501), True)

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
    branching: int = 2
    estimator: str = "honaker"
    per_doubling: int = 32
    too_low: float = 0.005
    calibration: str = "sound"

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "Approximate")
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # the sample of the threshold, then sums of open nodes

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
        one_of("calibration", self.calibration, ("sound", "paper"))
        if self.calibration == "paper" and self.threshold == "quantile":
            raise InvalidParameter(
                "threshold",
                self.threshold,
                "'smooth' or 'smooth-gaussian' as printed",
                'use threshold="smooth"',
            )
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
            calibration=self.calibration,
        )

    def printed_loss(self) -> Fraction:
        """How many times ε was exhibited."""
        return PRINTED_LOSS

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
        """The clip that is applied: min(r·τ̂, B), in grid units; r·τ̂ as printed."""
        clip = max(1, math.floor(Fraction(self.multiplier or 1) * threshold))
        return min(clip, self.largest) if self.enforced else clip

    def tree(self, clip: int, steps: int | None = None, epsilon: Fraction | None = None) -> BinaryTree:
        """The tree of the steps after the lag (or of other steps) when values are clipped at so many grid units."""
        total = Fraction(self.policy.epsilon or 0) if epsilon is None else epsilon
        count = steps or self.length - self.waits
        if not self.enforced and count > 1:  # log₂ n levels, as printed, are fewer than a step is in
            total *= Fraction(levels_of(count, self.branching) / math.log(count, self.branching))
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

    def noise_deviation(self, step: int, clip: ExactLike) -> float:
        """The standard deviation of the running sum at a step if values are clipped at `clip`; 0 before step m."""
        limit = max(1, math.floor(exact("clip", clip) / Fraction(self.grid)))
        unit = float(Fraction(self.grid))
        if step < max(self.waits, 1):
            return 0.0
        variance = 0.0
        if self.waits and self.first_sums:
            variance += (self.tree(limit, self.waits, self.epsilons[1]).standard_deviation(self.waits)) ** 2
        elif self.waits:
            variance += variance_laplace(self.first_scale(limit)) * unit**2
        if step > self.waits:
            variance += self.tree(limit).standard_deviation(step - self.waits) ** 2
        return math.sqrt(variance)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> ClippedSumRun:
        """Begin, or go on with, a run."""
        return ClippedSumRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        approximate = Event(epsilon="4", delta="1e-3", max_change=500, adjacency="replace")
        return [
            cls(event, horizon=2000, lag=35),
            cls(event, horizon=2000, lag=24, above=4, first_sums=True, branching=3, grid="0.01"),
            cls(WEvent(epsilon="3", max_change=500, w=3), horizon=2000, lag=41, above=5, bound="unknown"),
            cls(approximate, horizon=2000, lag=30, threshold="smooth", exceeding="0.1", too_low=0.1),
            cls(Event(epsilon="1/8", max_change=500), horizon=1600),  # too short for a threshold
        ]
