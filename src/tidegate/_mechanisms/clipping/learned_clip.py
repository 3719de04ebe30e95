"""What averages, decayed sums and histograms of clipped values share: learn a threshold, then count below it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate._mechanisms.clipping.nested import Nested, Rows
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Floats, Matrix, Output, unit_of
from tidegate.core.rows import Draws
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.clipping import learned_clip as configured
from tidegate.releases import Releases, Status


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # steps that were pushed, and the clip in grid units, 0 before it is known
    sample: Rows  # SECRET: the first m values, cut to [0, B]; forgotten at step m
    kept: Rows  # what later answers need of earlier ones; all of it comes from releases
    counter: Nested  # SECRET: what the counter keeps of open nodes


PUSHED, CLIP = 0, 1  # positions in `State.numbers`


@dataclass(frozen=True)
class LearnedClip(configured.LearnedClip):
    """A statistic of clipped values; :class:`tidegate.mechanisms.clipping.learned_clip.LearnedClip` has parameters.

    A step is an observation when it is pushed. Steps that are passed over are none: windows and ages count observations.
    Releases have `clip`, where values are clipped.
    """

    more: ClassVar[tuple[str, ...]] = ("clip",)
    most_spans: ClassVar[int] = 0

    @property
    def noise_in_state(self) -> bool:
        """As for the counter."""
        return bool(getattr(self.counter(self.largest), "noise_in_state", False))

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
                found = self.finder.draw(state.sample.content, noise.source, self.lag)
                state.numbers[CLIP] = self.clip_of(found.grid_units)
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

    def intervals(self) -> Fold:
        """Every value is that of the clipped stream and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
