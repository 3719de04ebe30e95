"""What statistics with a learnt threshold have in common: wait, learn where values end, then release what is clipped.

Section VIII of the paper: as long as a statistic is less sensitive where values are known to be small, its noise can be
scaled to a threshold that was learnt, not to a cautious bound.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges
from tidegate.core.mechanism import Floats, Matrix, Output, unit_of
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, whole
from tidegate.mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate.mechanisms.clipping.nested import Nested, Rows
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise.entropy import Source
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Releases, Status, Values

ROOM = 3  # observations left above the threshold by default, in units of the rank's noise scale
PUSHED, CLIP = 0, 1  # positions in `State.numbers`


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # steps that were pushed, and the clip in grid units, 0 before it is known
    sample: Rows  # SECRET: the first m values, cut to [0, B]; forgotten at step m
    kept: Rows  # what later answers need of earlier ones; all of it comes from releases
    counter: Nested  # SECRET: what the counter keeps of open nodes


@dataclass(frozen=True)
class LearnedClip(Mechanism):
    """Learn a threshold from the first m observations; from then on release a statistic of the clipped values.

    A step is an observation when it is pushed. Steps that are passed over are none: windows and ages count observations.
    Releases have `clip`, where values are clipped.

    Parameters
    ----------
    policy
        `Event` or `WEvent`; ``max_change`` is B. One observation a step.
    lag
        The time lag m. Steps up to m release 0 with the status "approximated", and are in no later release.
    above, exceeding
        How many of the m observations may exceed the threshold, as a number or as a fraction; by default three noise
        scales of the rank.
    multiplier
        r ≥ 1: values are clipped at min(r·τ̂, B).
    bound
        B; by default the policy's ``max_change``. "unknown": the threshold is sought on a grid up to 2^44 grid units.
    per_doubling
        See :class:`Threshold`.

    Privacy
    -------
    Unit and neighbours: one observation, the policy's. The first m steps are charged for the threshold alone, which may
    use all of ε there; the steps after them for the statistic. So every step loses ε/w, whichever side it is on
    (docs/proofs/learned_clip.md).
    """

    lag: int = 1000
    above: int | None = None
    exceeding: ExactLike | None = None
    multiplier: ExactLike = 1
    bound: ExactLike | None = None
    per_doubling: int = 32

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # the sample, and what a counter keeps of open nodes
    more: ClassVar[tuple[str, ...]] = ("clip",)

    def validate(self) -> None:
        """Check the parameters of the threshold, and that the noise of the statistic can be drawn."""
        put = object.__setattr__
        if self.columns != 1:
            raise InvalidParameter(
                "columns", self.columns, "1 where a threshold is learnt", "run one for each column"
            )
        put(self, "lag", whole("lag", self.lag, most=2**31))
        room = math.ceil(ROOM * self.policy.steps_charged * 2 / self._epsilon)
        if self.above is None and self.exceeding is None:
            if 2 * room > self.lag:
                raise InvalidParameter(
                    "lag", self.lag, f"at least {2 * room} for this ε", "wait longer, or raise epsilon"
                )
            put(self, "above", room)
        multiplier = exact("multiplier", self.multiplier)
        if multiplier < 1:
            raise InvalidParameter("multiplier", self.multiplier, "at least 1", "write multiplier=1")
        put(self, "multiplier", multiplier)
        self.counter(self.largest)  # checks what it is made of

    @property
    def _epsilon(self) -> Fraction:
        return self.policy.budget.total

    @cached_property
    def finder(self) -> Threshold:
        """The threshold's own configuration."""
        return Threshold(
            self.policy,
            sample=self.lag,
            above=self.above if self.exceeding is None else None,
            exceeding=self.exceeding,
            bound=self.bound,
            grid=self.grid,
            per_doubling=self.per_doubling,
        )

    @property
    def largest(self) -> int:
        """B in grid units."""
        return self.finder.largest

    def learn(self, sample: Matrix, source: Source) -> int:
        """τ̂ from the sample, in grid units."""
        return self.finder.draw(sample, source, self.lag).grid_units

    def clip_of(self, threshold: int) -> int:
        """The clip that is applied: min(r·τ̂, B), in grid units."""
        return max(1, min(math.floor(Fraction(self.multiplier) * threshold), self.largest))

    def policy_for(self, change: ExactLike, adjacency: str | None = None) -> Policy:
        """The policy of what is counted after the lag, where one observation changes it by at most `change`."""
        kind = adjacency or self.policy.adjacency
        return replace(self.policy, max_change=change, adjacency=kind, signed=False, horizon=None)

    @abstractmethod
    def counter(self, clip: int) -> Mechanism:
        """The mechanism that counts what is entered of values clipped at so many grid units, in grid units."""

    # the statistic ---------------------------------------------------------------------------------------------

    def entered(self, clipped: Matrix, clip: int) -> Matrix:
        """What the counter is given of clipped values."""
        return clipped

    @abstractmethod
    def answers(self, counted: Releases, first: int, kept: Values) -> tuple[Values, Values, Values]:
        """(values, standard deviations, what to keep) from the counter's releases of its steps from `first` on.

        `kept` is what the call before has returned last, or `fresh` before any; all of it comes from releases.
        """

    @abstractmethod
    def reach(self, clip: int, step: int) -> float:
        """By how much one observation can change the answer of the counter's step, in the unit of the answer."""

    @property
    def fresh(self) -> Values:
        """What is kept before any step."""
        return np.zeros(0)

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def noise_in_state(self) -> bool:
        """As for the counter."""
        return self.counter(self.largest).noise_in_state

    def begin(self, first: int) -> State:
        """An empty sample."""
        return State(
            np.zeros(2, dtype=np.int64),
            Rows(np.zeros(0, dtype=np.int64)),
            Rows(self.fresh),
            Nested(self.counter, self.largest),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Collect the sample, learn the clip at step m, and count from then on."""
        count, own = len(rows), int(state.numbers[PUSHED])
        early = min(count, max(0, self.lag - own))
        values, deviations = np.zeros((count, self.outputs)), np.zeros(count)
        status, source = (
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
        )
        status[:early], source[:early] = int(Status.APPROXIMATED), 0
        clips = np.full(count, state.numbers[CLIP])
        if early:
            state.sample.append(np.clip(rows[:early, 0], 0, self.largest))
            if own + early == self.lag:
                state.numbers[CLIP] = self.clip_of(self.learn(state.sample.content, noise.source))
                state.counter.begin(int(state.numbers[CLIP]))
                state.sample.forget()
                clips[early - 1 :] = state.numbers[CLIP]
        if early < count:
            values[early:], deviations[early:] = self._count(
                state, rows[early:], own + early - self.lag + 1, noise
            )
        state.numbers[PUSHED] += count
        return Output(values, status, source, deviations, np.ones(count, dtype=np.int64), more=(clips,))

    def _count(self, state: State, rows: Matrix, first: int, noise: Draws) -> tuple[Floats, Floats]:
        """Push clipped values to the counter, whose first step is the first observation after the lag."""
        clip, counter = int(state.numbers[CLIP]), state.counter
        entered = self.entered(np.clip(rows, 0, clip), clip)
        found = counter.mechanism.advance(counter.state, entered, first, noise)
        counted = Releases(
            first, found.values, found.status, found.source, found.scale, found.units, unit_of(self)
        )
        values, deviations, state.kept.content = self.answers(counted, first, state.kept.content)
        return values, deviations

    def attach(self, releases: Releases, more: Any, revised: Any) -> ClippedReleases:
        """Releases with the clip, for readers."""
        return ClippedReleases.with_clip(releases, more[0], float(Fraction(self.grid)))
