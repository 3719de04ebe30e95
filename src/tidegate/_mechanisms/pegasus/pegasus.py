"""PeGaSus (Chen et al. 2017): the Perturber adds noise, the Grouper finds steps alike, the Smoother averages them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.core.arrays import Array
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import Fold, Smoothed
from tidegate.mechanisms.pegasus import pegasus as configured
from tidegate.mechanisms.pegasus.grouper import SMOOTHERS
from tidegate.mechanisms.pegasus.kernels import grouper as loop
from tidegate.mechanisms.pegasus.parameters import noise_left
from tidegate.noise import laplace
from tidegate.noise.laws import SharedLaw, exact_units, most_live
from tidegate.releases import Measured, Releases, Status
from tidegate.structures.ordered import OrderedSets

BLOCK = 1 << 13  # cells that are handled at once: their noise stays in the cache


class OpenGroups:
    """The open group of each column: its raw counts as a sorted multiset, and what smooths them. SECRET.

    Stored are lists of counts, not trees. Their length says how many counts are open, which is released. It is padded to
    what the next steps could add, so that it does not depend on how they are grouped.

    Parameters
    ----------
    columns
        How many streams of counts.
    """

    def __init__(self, columns: int) -> None:
        self.memory: Integers = np.zeros((columns, loop.MEMORY), dtype=np.int64)
        self.moments = np.zeros((columns, loop.MOMENTS))
        self.sets = OrderedSets()
        self.room = 0  # counts that are stored of each kind

    def reserve(self, steps: int) -> None:
        """Make room for more steps."""
        self.sets.make_room(2 * steps * len(self.memory))
        self.room = int(self.memory[:, loop.SIZE].sum()) + steps * len(self.memory)

    def stored(self) -> tuple[Array, ...]:
        """Memory, moments, and the raw and noisy counts of all open groups, one behind the other."""
        memory, lists = self.memory.copy(), []
        for kind in (loop.RAW, loop.NOISY):
            listed = [self.sets.listing(int(root)) for root in self.memory[:, kind]]
            memory[:, kind] = [len(keys) for keys, _ in listed]
            counts = np.zeros((2, self.room), dtype=np.int64)
            found = np.concatenate([np.stack(each) for each in listed], axis=1)
            counts[:, : found.shape[1]] = found
            lists.append(counts)
        return (memory, self.moments, *lists)

    def loaded(self, stored: Iterator[Array]) -> Self:
        """Open groups from what was stored."""
        groups = type(self)(len(self.memory))
        groups.memory, groups.moments, *lists = (next(stored) for _ in range(4))
        groups.room = lists[0].shape[1]
        for kind, counts in zip((loop.RAW, loop.NOISY), lists, strict=True):
            begin = 0
            for memory in groups.memory:
                end = begin + int(memory[kind])
                memory[kind] = groups.sets.build(*counts[:, begin:end])
                begin = end
        return groups


class State(NamedTuple):
    """All that is carried from step to step."""

    groups: OpenGroups
    perturber: Any  # SECRET: the law that the Perturber's steps share; empty for Laplace noise


def refuse_closed_snapshots(snapshots: str) -> None:
    """Every commit stores the open groups; closing them each time would leave no groups."""
    if snapshots != "open":
        raise InvalidParameter(
            "snapshots", snapshots, "'open': a log holds open groups", "leave it out, and protect the log"
        )


@dataclass(frozen=True)
class PeGaSus(configured.PeGaSus):
    """Perturb, group, smooth; :class:`tidegate.mechanisms.PeGaSus` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ("noisy", "groups")  # measurements, and first steps of groups

    def validate(self) -> None:
        """Refuse what a session cannot promise; then check the parameters."""
        refuse_closed_snapshots(self.snapshots)
        super().validate()

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the measurements of a window share; None where each has its own noise."""
        if self.sharing is None:
            return None
        units = exact_units(self.sharing.group_part, self.units)
        return SharedLaw(self.sharing.law, units, self.policy.window, 1, self.policy.horizon)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return 0 if self.shared is None else most_live(self.shared.law, self.policy.window, 1)

    @property
    def noise_in_state(self) -> bool:
        """An open group has a noisy threshold."""
        return True

    @cached_property
    def step_units(self) -> int:
        """What each step costs by itself: all of it, or its grouping where spans pay for measurements."""
        return 1 if self.shared is None else exact_units(self.grouping_part, self.units)

    def begin(self, first: int) -> State:
        """No group is open."""
        return State(OpenGroups(self.columns), () if self.shared is None else self.shared.start())

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, whatever the data are."""
        return Charges(first, np.full(count, self.step_units, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure, group and smooth every step."""
        count, grid, groups, spans = len(rows), float(Fraction(self.grid)), state.groups, NO_SPANS
        if self.shared is not None:
            steps = np.arange(first, first + count)
            drawn, spans = self.shared.measure(state.perturber, noise.source, "perturber", first, steps)
        groups.reserve(count)
        longest = int(self.longest_group)
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        rule = loop.Rule(self.limit, longest, 2**60 // longest, SMOOTHERS[self.smoothing], grid)
        values, noisy, begun = np.empty(rows.shape), np.empty(rows.shape), np.empty_like(rows)
        length = max(1, BLOCK // self.columns)
        for start in range(0, count, length):
            part = slice(start, start + length)
            step, shape = first + start, rows[part].shape
            if self.shared is not None:
                measured = rows[part] + drawn[part]
            else:
                measured = rows[part] + laplace(noise.source, "perturber", step, self.scale, shape)
            tests = laplace(noise.source, "test", step, self.grouping.question_scale, shape)
            thresholds = laplace(noise.source, "threshold", step, self.grouping.threshold_scale, shape)
            counts = loop.Counts(rows[part], measured, np.ones(shape, dtype=np.int64), tests, thresholds)
            sets = (groups.sets.nodes, groups.sets.pool, groups.sets.path)
            loop.group_and_smooth(
                step, rule[:], counts[:], groups.memory, groups.moments, sets, values[part], begun[part]
            )
            np.multiply(measured, grid, out=noisy[part])
        return Output(
            values,
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
            np.full(count, self.laplace_scale),
            np.full(count, self.step_units, dtype=np.int64),
            spans,
            (noisy, begun),
        )

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what they were smoothed from, for readers."""
        noisy, begun = more
        releases.measured = Measured(noisy, begun, (begun > 0).astype(np.int64))
        return releases

    def intervals(self) -> Fold:
        """Less noise in larger groups, and what smoothing a group has flattened."""
        left = noise_left(self.smoothing, shared=self.shares_noise)
        return Smoothed(self.outputs, replace(self.measured_law, rounded=self.rounded_by), left)
