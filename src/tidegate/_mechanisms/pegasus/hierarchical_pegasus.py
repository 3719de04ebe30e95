"""HierarchicalPeGaSus: PeGaSus on every node of a forest, small branches pruned (Chen et al. 2017, section 5).

At each step: sum up, prune, then measure, group and smooth what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.pegasus.pegasus import BLOCK, OpenGroups, refuse_closed_snapshots
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import Fold, Pruned
from tidegate.mechanisms.pegasus import hierarchical_pegasus as configured
from tidegate.mechanisms.pegasus import parameters as pegasus_parameters
from tidegate.mechanisms.pegasus.grouper import SMOOTHERS
from tidegate.mechanisms.pegasus.kernels import grouper as groups_of
from tidegate.mechanisms.pegasus.kernels import pruning as loop
from tidegate.noise import laplace
from tidegate.noise.entropy import Source
from tidegate.noise.law import Law
from tidegate.releases import Measured, Releases, Status
from tidegate.structures.kernels.hierarchy import sum_up


class State(NamedTuple):
    """All that is carried from step to step."""

    groups: OpenGroups  # SECRET: of each node


class Forest(NamedTuple):
    """The hierarchy as arrays."""

    leaves: Any  # the node of each column
    parents: Any
    levels: Any
    is_leaf: Any


@dataclass(frozen=True)
class HierarchicalPeGaSus(configured.HierarchicalPeGaSus):
    """Prune, perturb, group, smooth; :class:`tidegate.mechanisms.HierarchicalPeGaSus` has parameters and privacy."""

    # released besides: measurements, first steps of groups, and how precise measurements are; 0 where pruned
    more: ClassVar[tuple[str, ...]] = ("noisy", "groups", "weights")
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = True  # an open group has a noisy threshold

    def validate(self) -> None:
        """Refuse the printed test of pruning, which is not private; then check the parameters."""
        if self.calibration != "sound":
            raise InvalidParameter(
                "calibration", self.calibration, "'sound': the printed test is not private", "leave it out"
            )
        refuse_closed_snapshots(self.snapshots)
        super().validate()

    @cached_property
    def nodes(self) -> Forest:
        """Where the nodes stand."""
        forest = self.forest
        leaves, parents, levels = (
            np.array(part, dtype=np.int64) for part in (forest.leaves, forest.parents, forest.levels)
        )
        return Forest(leaves, parents, levels, forest.is_leaf)

    def begin(self, first: int) -> State:
        """No group is open."""
        return State(OpenGroups(self.outputs))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs one unit, whatever is pruned."""
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release all nodes at every step."""
        count, nodes = len(rows), self.outputs
        output, noisy = empty_output(count, nodes), np.empty((count, nodes))
        begun, weights = (np.empty((count, nodes), dtype=np.int64) for _ in range(2))
        output.source[:], output.units[:] = np.arange(first, first + count), 1
        state.groups.reserve(count)
        length = max(1, BLOCK // nodes)
        for start in range(0, count, length):
            part = slice(start, start + length)
            more = (noisy[part], begun[part], weights[part])
            self._release(state.groups, rows[part], first + start, noise.source, output.part(part), *more)
        return output._replace(more=(noisy, begun, weights))

    def _release(
        self,
        groups: OpenGroups,
        rows: Matrix,
        step: int,
        source: Source,
        out: Output,
        noisy: Any,
        begun: Any,
        weights: Any,
    ) -> None:
        grid, grouping, longest = float(Fraction(self.grid)), self.grouping, int(self.longest_group)
        counts = self._summed(rows)
        shape = counts.shape
        part = self._pruned(rows, counts, step, source)
        # what is left of a path's budget belongs to the node at which it ends
        scales, shown = np.empty(shape), (int(Status.FRESH), int(Status.PRUNED))
        loop.look_up(part, self.scales, self.weights, grid, shown, scales, weights, out.scale, out.status)
        measured = laplace(source, "perturber", step, scales, shape)
        loop.measure(part, counts, grid, measured, noisy)
        tests = laplace(source, "test", step, grouping.question_scale, shape)
        thresholds = laplace(source, "threshold", step, grouping.threshold_scale, shape)
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        rule = groups_of.Rule(self.limit, longest, 2**60 // longest, SMOOTHERS[self.smoothing], grid)
        taken = groups_of.Counts(counts, measured, weights, tests, thresholds)
        sets = (groups.sets.nodes, groups.sets.pool, groups.sets.path)
        groups_of.group_and_smooth(
            step, rule[:], taken[:], groups.memory, groups.moments, sets, out.values, begun
        )

    def _summed(self, rows: Matrix) -> Matrix:
        """The counts of all nodes."""
        counts = np.empty((len(rows), self.outputs), dtype=np.int64)
        sum_up(rows, self.nodes.leaves, self.nodes.parents, counts)
        return counts

    def _pruned(self, rows: Matrix, counts: Matrix, step: int, source: Source) -> Any:
        """How each node takes part in each step."""
        part = np.empty(counts.shape, dtype=np.int8)
        if not self.prunes:
            part[:] = np.where(self.nodes.is_leaf, loop.ENDS, loop.PASSES)
            return part
        tree = self.pruning == "privtree"
        # the proof of PrivTree needs counts that do not grow on the way down
        tested = self._summed(np.maximum(rows, 0)) if tree else counts
        noise = laplace(source, "pruning", step, self.prune_scale, counts.shape)
        _, parents, levels, is_leaf = self.nodes
        method = loop.PRIVTREE if tree else loop.COUNTS
        loop.prune(tested, noise, parents, levels, is_leaf, method, self.prune_limit, self.prune_decay, part)
        return part

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what they were smoothed from, for readers."""
        releases.measured = Measured(*more)
        return releases

    def intervals(self) -> Fold:
        """Less noise in larger groups, and what smoothing a group has flattened; tests bound what was pruned."""
        grid = float(Fraction(self.grid))
        scales = np.where(self.weights[1:] > 0, self.scales[1:] * grid, 0.0)[[loop.PASSES - 1, loop.ENDS - 1]]
        decay = self.prune_decay if self.pruning == "privtree" else 0
        most = (self.prune_limit + (self.forest.height - 1) * decay) * grid
        left = pegasus_parameters.noise_left(self.smoothing, shared=self.shares_noise)
        weights = self.weights[loop.PASSES]
        return Pruned(
            self.outputs, Law("laplace", grid), left, weights, scales, most, self.prune_scale * grid
        )
