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
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.clipping.kernels import clip_values
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Run, State
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Releases, Status, Values

ROOM = 3  # observations left above the threshold by default, in units of the rank's noise scale


@dataclass(frozen=True)
class LearnedClip(Mechanism):
    """Learn a threshold from the first m observations; from then on release a statistic of the clipped values.

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

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> LearnedClipRun:
        """Begin, or go on with, a run."""
        return LearnedClipRun(self, ledger, state)

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


class LearnedClipRun(Run):
    """A statistic with a learnt threshold at work.

    Attributes
    ----------
    outside
        How many values lay outside [0, B] and were clipped. Private: never publish it.
    """

    mechanism: LearnedClip

    def _begin(self, state: State | None) -> None:
        saved, mechanism = state or {}, self.mechanism
        self.outside = int(saved.get("outside", 0))
        self._sample: npt.NDArray[np.int64] = np.zeros((mechanism.lag, 1), dtype=np.int64)
        sample = saved.get("sample", np.zeros((0, 1), dtype=np.int64))
        self._sample[: len(sample)] = sample
        self._limit = int(saved.get("limit", 0))
        self._kept: Values = saved.get("kept", mechanism.fresh)
        self._counter: Run | None = None
        if self._limit:
            self._count_from(saved["counter"].tobytes())

    def _count_from(self, state: bytes | None) -> None:
        """Start the counter. It has an account of its own, since every step is charged here; both agree."""
        self._counter = self.mechanism.counter(self._limit).start(state=state)
        self._counter.source = self.source

    @property
    def clip(self) -> float | None:
        """The clip that is applied, in the values' unit, once it is known. Public."""
        return self._limit * self._grid if self._limit else None

    def reach(self, step: int) -> float:
        """By how much one observation can change what is released at a step after the lag, given the threshold."""
        return self.mechanism.reach(self._limit, step - self.origin - self.mechanism.lag)

    def _state(self) -> State:
        state: State = {"outside": self.outside, "limit": self._limit}
        if self._counter is None:
            return {**state, "sample": self._sample[: self.step - self.origin]}
        counter = np.frombuffer(self._counter.snapshot(), dtype=np.uint8)
        return {**state, "kept": self._kept, "counter": counter}

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        mechanism, steps = self.mechanism, len(matrix)
        units = np.broadcast_to(np.int64(self.ledger.units // mechanism.units), steps)
        self.ledger.charge_batch(first_step, units)
        own = first_step - self.origin
        early = min(steps, max(0, mechanism.lag - own + 1))
        values, deviations = np.zeros((steps, mechanism.outputs)), np.zeros(steps)
        status = np.full(steps, np.int8(Status.FRESH))
        source = np.arange(first_step, first_step + steps)
        status[:early], source[:early] = Status.APPROXIMATED, 0
        if early:
            self._collect(matrix[:early], own)
        if early < steps:
            values[early:], deviations[early:] = self._count(matrix[early:], own + early - mechanism.lag)
        return Releases(first_step, values, status, source, deviations, units, self.ledger.unit)

    def _collect(self, rows: Matrix, own: int) -> None:
        """Put observations into the sample; the last one of it buys the threshold."""
        mechanism = self.mechanism
        bound, end = mechanism.largest, own - 1 + len(rows)
        self.outside += clip_values(rows, bound, bound, self._sample[own - 1 : end])
        if end == mechanism.lag:
            released = mechanism.finder.draw(self._sample[:, 0], self.source, end)
            self._limit = mechanism.clip_of(released.grid_units)
            self._sample[:] = 0
            self._count_from(None)

    def _count(self, rows: Matrix, first: int) -> tuple[Values, Values]:
        assert self._counter is not None
        clipped = np.empty_like(rows)
        self.outside += clip_values(rows, self._limit, self.mechanism.largest, clipped)
        counted = self._counter.push_batch(self.mechanism.entered(clipped, self._limit))
        values, deviations, self._kept = self.mechanism.answers(counted, first, self._kept)
        return values, deviations
