"""ClippedSum: running sums of values whose bound is far above nearly all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.clipping.clipped_releases import ClippedReleases
from tidegate._mechanisms.clipping.nested import Nested, Rows
from tidegate._mechanisms.counters.binary_tree import BinaryTree
from tidegate._mechanisms.counters.tree import Trees
from tidegate.core.arrays import Array
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import ByLaw, Fold
from tidegate.mechanisms.clipping import clipped_sum as configured
from tidegate.mechanisms.counters.tree_run import refuse_beyond
from tidegate.noise import laplace_one, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.releases import Releases, Status

SUM, VARIANCE = 0, 1  # positions in `State.first`


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any  # steps that were pushed, and the clip in grid units, 0 before it is known
    sample: Rows  # SECRET: the first m values, cut to [0, B]; forgotten at step m
    steps: Rows  # their steps, where their sums are released
    first: Any  # the released sum of the sample, in grid units, and its variance
    tree: Nested  # SECRET: the sums of open nodes


PUSHED, CLIP = 0, 1  # positions in `State.numbers`


@dataclass(frozen=True)
class ClippedSum(configured.ClippedSum):
    """Running sums of clipped values; :class:`tidegate.mechanisms.ClippedSum` has parameters and privacy.

    A step is an observation when it is pushed. Steps that are passed over are none, so any w steps are at most w
    observations that follow each other. Releases have `clip`, where values are clipped; with `first_sums` those of step m
    have the sums of the first m steps as `revised`.
    """

    more: ClassVar[tuple[str, ...]] = ("clip",)
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False  # a node gets its noise when it is complete

    def validate(self) -> None:
        """Check the parameters; what is printed in the paper has no account that could hold it."""
        super().validate()
        if not self.enforced:
            raise InvalidParameter("calibration", self.calibration, "'sound'", "leave it out")

    @property
    def revised(self) -> tuple[str, ...]:
        """The sums of the first m steps, where they are asked for."""
        return ("steps", "sums", "deviations") if self.first_sums else ()

    def counter(self, clip: int) -> BinaryTree:
        """The tree of the steps after the lag."""
        tree = self.tree(clip)
        return BinaryTree(**{each.name: getattr(tree, each.name) for each in fields(tree)})

    def begin(self, first: int) -> State:
        """An empty sample; where there is no lag, the tree begins at once."""
        nothing = np.zeros(0, dtype=np.int64)
        return State(
            np.array([0, 0 if self.waits else self.largest]),
            Rows(nothing),
            Rows(nothing),
            np.zeros(2),
            Nested(self.counter, self.largest),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, for at most `horizon` of them."""
        refuse_beyond(self.length, int(state.numbers[PUSHED]), count)
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

    def intervals(self) -> Fold:
        """Every value is that of the clipped stream and noise."""
        assert self.law is not None
        return ByLaw(self.outputs, self.law)
