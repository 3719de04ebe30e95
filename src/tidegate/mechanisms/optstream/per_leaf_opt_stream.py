"""PerLeafOptStream: every leaf of a hierarchy chooses its own samples. For units that stay in one leaf.

The nodes above the leaves are measured at k equally spaced times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tidegate.core.charges import NO_SPANS, Integers
from tidegate.core.mechanism import Floats, Matrix
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.feature_fit import TOLERANCE
from tidegate.mechanisms.optstream.feature_trees import equal_parts, whole_period
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.node_curves import fit_nodes
from tidegate.mechanisms.optstream.opt_stream import (
    BEGAN,
    CAUSAL,
    HAS_CURVE,
    NUMBERS,
    TORN,
    OptStream,
    Sampler,
    State,
    Steps,
    add_to_sums,
    causal_values,
)
from tidegate.mechanisms.optstream.periods import Revised
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.mechanisms.optstream.sampling_times import equally_spaced
from tidegate.noise import laplace
from tidegate.noise.entropy import Source
from tidegate.policy import WEvent
from tidegate.releases import Status
from tidegate.structures.clamping import summable
from tidegate.structures.hierarchy import Hierarchy

UNKNOWN = 1e100  # the variance of a curve that nothing is known of


@dataclass(frozen=True)
class PerLeafOptStream(HierarchicalOptStream):
    """Let every leaf of a hierarchy choose its own samples, and measure the nodes above at k equally spaced times.

    Leaves that bend at different times get their samples where they bend. All else as for
    :class:`HierarchicalOptStream`: the released leaves fit all measurements best, and all nodes add up.

    Parameters
    ----------
    policy, columns, grid, rounding, samples, threshold, features, split, reconstruction, weights, nonnegative, causal
        As for :class:`OptStream`. Samples are adaptive, and features nested.
    hierarchy, levels
        As for :class:`HierarchicalOptStream`. All leaves have the budget of the one that has least.

    Privacy
    -------
    Unit and neighbours: the policy's, with ``mobility="fixed"``: a unit changes one leaf and the nodes above it. So each
    leaf has a sparse vector of its own with all of ε_S, and the leaves' part r of ε_P for its own samples, of which a
    window has at most m = min(2k − 2, w); of those of the other nodes it has k, so their noise has the scale
    kΔ/(r·ε_P·m/k). Together 2ε_S + (r + (1 − r))·m/k·ε_P + ε_O = ε. A replaced unit may change two leaves, each by half
    of the sensitivity. All charges are public and cover every leaf. With units that move, a window could meet a sample of
    some leaf at each of its steps. Proof: docs/proofs/hierarchical_opt_stream.md.

    Departure: the paper lets every node choose its own samples, which is not private for units that move.

    Error
    -----
    At the leaves about that of :class:`OptStream` with adaptive times and the leaves' part of the budget. Time
    O(n·w log w) a period for n leaves; with features of S parts O(n³·(S³ + w)) for each of a few rounds.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> tree = Hierarchy.from_parents({"France": None, "north": "France", "south": "France"})
    >>> mechanism = PerLeafOptStream(WEvent(epsilon="1", window=12, mobility="fixed"), hierarchy=tree, samples=3)
    >>> Session(mechanism).push_batch(np.full((24, 2), 500)).final.values.shape
    (24, 3)

    References
    ----------
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019, section 5.2.
    """

    adaptive: bool = True

    def validate(self) -> None:
        """Check the parameters; units that move are refused, and features that are not nested."""
        if self.adaptive is False:
            raise InvalidParameter(
                "adaptive", False, "True: leaves choose their own samples", "use HierarchicalOptStream"
            )
        if self.policy.mobility != "fixed":
            raise InvalidParameter(
                "mobility", self.policy.mobility, '"fixed": with units that move it would not be private',
                'use HierarchicalOptStream, or declare mobility="fixed" if a unit stays in its leaf',
            )  # fmt: skip
        super().validate()
        if not self.tree.nested:
            raise InvalidParameter(
                "features", f"{len(self.features)} that are not nested", "nested for PerLeafOptStream",
                "let every feature be made of whole parts of a finer one, or use HierarchicalOptStream",
            )  # fmt: skip

    # the budget: leaves have samples of their own, the nodes above them public times --------------------------------

    @cached_property
    def node_shares(self) -> tuple[Fraction, ...]:
        """The part of the budget of each node; all leaves have that of the one which has least."""
        shares, leaves = super().node_shares, self.columns  # charges are the same whichever leaf a unit is in
        return (min(shares[:leaves]),) * leaves + shares[leaves:]

    @property
    def leaf_share(self) -> Fraction:
        """The part of the leaves, which choose for themselves."""
        return self.node_shares[0]

    @property
    def times_above(self) -> tuple[int, ...]:
        """The public sample times of the nodes above the leaves."""
        return equally_spaced(self.window, self.sample_count)

    def charges(self, times: Sequence[int]) -> tuple[int, Integers]:
        """The units of a period, and those of each of its steps."""
        return self.period.charges(times, self.times_above)

    @cached_property
    def sample_scales(self) -> Floats:
        """The noise scale of a sample of each node, in the solver's order, in grid units; rounded up."""
        scales = super().sample_scales
        public = self._scales(self.sensitivity / (self.period.public_sample * self._epsilon))
        return np.concatenate([scales[: self.columns], public[self.columns :]])

    @property
    def decisive_scale(self) -> float:
        """The noise scale of a sample of a leaf."""
        return float(self.sample_scales[0])

    @property
    def independent_period(self) -> int:
        """None where inner nodes have public times that leaves share."""
        return 0 if self.forest.height > 1 else super().independent_period

    # the state: of every node what OptStream has of all, in the solver's order ------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was measured. Numbers from NUMBERS on are the samples that each node has in this period."""
        nodes, k, whole = self.outputs, self.sample_count, OptStream.begin(self, first)
        return whole._replace(
            numbers=np.concatenate([whole.numbers, np.zeros(nodes, dtype=np.int64)]),
            points=np.zeros((nodes, k)),
            times=np.zeros((nodes, k), dtype=np.int64),
            before=np.zeros(nodes),
            recent=np.zeros((nodes, 2, 1)),
            recent_steps=np.zeros((nodes, 2), dtype=np.int64),
        )

    def _sampler(self) -> Sampler:
        return Sampler(self, 1, self.columns)

    @cached_property
    def precisions(self) -> Floats:
        """How precise samples are. Those above the leaves are fewer in a window, so they are more precise."""
        better = float(self.period.public_sample / self.shares[1]) ** 2
        return self.factors * np.where(np.arange(self.outputs) < self.columns, 1.0, better)

    @cached_property
    def factors(self) -> Floats:
        """How precise the sums of nodes are, compared with those that have the whole budget."""
        return np.array([float(share) ** 2 for share in self.node_shares])

    @cached_property
    def _leaf_variances(self) -> Floats:
        return 1 / self.precisions[: self.columns]

    @property
    def samples_apart(self) -> bool:
        """Leaves have sample times of their own, except for the first and the last step of a period."""
        return True

    def status_of(self, chosen: Any, first: int) -> Any:
        """The first and the last step of a period are samples of all leaves, others of some."""
        position = (first - 1 + np.arange(len(chosen))) % self.window
        every = (position == 0) | (position == self.window - 1)
        some = np.where(chosen, np.int8(Status.PARTIAL), np.int8(Status.APPROXIMATED))
        return np.where(chosen & every, np.int8(Status.FRESH), some)

    # the periods -------------------------------------------------------------------------------------------------

    def _open(self, state: State, source: Source, period: int) -> None:
        super()._open(state, source, period)
        state.numbers[NUMBERS:] = 0

    def _release(self, state: State, steps: Steps, source: Source) -> Integers:
        """Sample and perturb; the period has paid."""
        measured = self._measured(steps.rows)
        taken = self._taken(state, steps, measured, source)
        shown = self._shown(state, steps, measured, taken, source)
        self._at_once(state, steps, taken, shown)
        return NO_SPANS

    def _close(self, state: State, length: int) -> list[Revised]:
        """Reconstruct and optimise."""
        numbers = state.numbers
        if numbers[TORN]:
            return []
        final = self._fit_nodes(state, *self._curves(state, length))
        if len(state.curve) and length == self.window:
            state.curve[:], numbers[HAS_CURVE] = final, 1
        for node, count in enumerate(numbers[NUMBERS:].tolist()):
            if count:
                state.before[node] = state.points[node, count - 1]
        numbers[BEGAN] = 1
        return [self._final(state, final)]

    # the four steps of Algorithm 2, for nodes with different times -------------------------------------------------

    def _taken(self, state: State, steps: Steps, measured: Matrix, source: Source) -> Any:
        """1. Which nodes take a sample at which steps (steps × nodes)."""
        taken = np.zeros(measured.shape, dtype=np.bool_)
        position = (steps.first - 1) % self.window
        end = position + len(steps.rows)
        if not state.numbers[TORN]:
            own = np.ascontiguousarray(measured[:, : self.columns])
            taken[:, : self.columns] = state.sampler.chooser.choose(source, steps.first, own)
            taken[:, self.columns :] = self._public_times[position:end, np.newaxis]
        steps.chosen[:] = taken.any(axis=1)
        state.sampled[position:end] = steps.chosen
        return taken

    @cached_property
    def _public_times(self) -> Any:
        """Which steps of a period are samples of the nodes above the leaves."""
        return np.isin(np.arange(1, self.window + 1), self.times_above)

    def _shown(self, state: State, steps: Steps, measured: Matrix, taken: Any, source: Source) -> Floats:
        """2. Add noise, and keep the samples of each node behind those it has (steps × nodes).

        There is a draw for every step and node, so that noise does not depend on who takes a sample.
        """
        if state.numbers[TORN]:
            return np.zeros(measured.shape)
        position, counts = (steps.first - 1) % self.window, state.numbers[NUMBERS:]
        noise = laplace(source, "samples", steps.first, self.sample_scales, measured.shape)
        shown: Floats = (measured + noise).astype(np.float64)
        for node in range(self.outputs):
            at, count = np.flatnonzero(taken[:, node]), int(counts[node])
            state.points[node, count : count + len(at)] = shown[at, node]
            state.times[node, count : count + len(at)] = position + 1 + at
            counts[node] += len(at)
        if self.sum_count:
            add_to_sums(summable(measured, self.window), position, self.tree.labels, state.sums)
        return shown

    def _curves(self, state: State, length: int) -> tuple[Floats, Floats]:
        """3. The curve of each node through its own samples, and its variances (nodes × steps)."""
        curves, variances = np.empty((self.outputs, length)), np.empty((self.outputs, length))
        began = state.numbers[BEGAN]
        for node, count in enumerate(state.numbers[NUMBERS:].tolist()):
            points = state.points[node, :count]
            if not count and not began:
                curves[node], variances[node] = 0.0, UNKNOWN
                continue
            curve = Reconstruction.through(state.times[node, :count], length, str(self.reconstruction))
            points = np.concatenate([[state.before[node] if began else points[0]], points])
            curves[node] = (points[curve.columns] * curve.weights).sum(axis=1)
            spread = curve.spread if self.weights == "variance" else float(length)
            variances[node] = spread / self.precisions[node]
        return curves, variances

    def _fit_nodes(self, state: State, curves: Floats, variances: Floats) -> Floats:
        """4. The leaves (steps × leaves) that fit the curves of all nodes and their sums best."""
        length = curves.shape[1]
        _, _, precisions = self.weights_at((self.window,), length)
        final = np.empty((length, self.columns))
        fit_nodes(
            curves,
            variances,
            self.nodes.above,
            self.nodes.inner,
            state.sums.astype(np.float64),
            self.factors,
            self.tree.node_of[:length],
            self.tree.parents,
            precisions,
            self.nonnegative,
            TOLERANCE,
            final,
        )
        return final

    # what is known at once ---------------------------------------------------------------------------------------

    def _at_once(self, state: State, steps: Steps, taken: Any, shown: Floats) -> None:
        """What is known of each step at the step itself: of every node, then made to add up."""
        count, has_curve = len(steps.rows), bool(state.numbers[HAS_CURVE])
        known = np.empty(taken.shape)
        values, source = np.empty((count, 1)), np.empty(count, dtype=np.int64)
        curves = self.forest.sum(state.curve)[:, self.order] if has_curve else np.zeros((0, self.outputs))
        for node in range(self.outputs):
            chosen = np.ascontiguousarray(taken[:, node])
            causal_values(
                steps.first,
                self.window,
                chosen,
                shown[chosen, node][:, np.newaxis],
                state.recent[node],
                state.recent_steps[node],
                CAUSAL[self.causal],
                curves[np.newaxis, :, node, np.newaxis].copy(),
                has_curve,
                self.nonnegative,
                values,
                source,
            )
            known[:, node] = values[:, 0]
            np.maximum(steps.source, source, out=steps.source)
        steps.values[:] = self.reconciled(known, self.nonnegative)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        ragged = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b", "c/3/z/deep", "c/3/z/deeper"])
        day = (equal_parts(12, 3), whole_period(12))
        return [
            cls(
                WEvent(epsilon="99", window=12, mobility="fixed"),
                hierarchy=ragged,
                samples=5,
                threshold=60,
                features=day,
            ),
            cls(
                WEvent(epsilon="40", window=9, mobility="fixed", adjacency="replace"),
                hierarchy=Hierarchy.balanced(3),
                samples=7,
                causal="last period",
            ),
        ]
