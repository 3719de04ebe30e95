"""HierarchicalOptStream at work where every leaf chooses its own samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import State
from tidegate.mechanisms.optstream import feature_fit as solver
from tidegate.mechanisms.optstream import node_curves
from tidegate.mechanisms.optstream import opt_stream as loop
from tidegate.mechanisms.optstream.feature_fit import TOLERANCE
from tidegate.mechanisms.optstream.hierarchical_run import HierarchicalOptStreamRun
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler
from tidegate.mechanisms.optstream.period_blocks_run import Block, Floats, charge_periods
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.noise import laplace
from tidegate.releases import Status

UNKNOWN = 1e100  # the variance of a curve that nothing is known of


class PerLeafRun(HierarchicalOptStreamRun):
    """Leaves have sample times of their own, the nodes above them public ones; nodes stand in the solver's order."""

    def _prepare(self) -> None:
        super()._prepare()
        mechanism = self.mechanism
        nodes = mechanism.outputs
        self._choosing = nodes if mechanism.per_node else self._columns  # the first of the nodes
        self._sampler = L1Sampler(mechanism.sampling, 1, self._choosing)
        self._above = np.isin(np.arange(1, self._w + 1), mechanism.times_above)
        self._factors = np.array([float(share) ** 2 for share in mechanism.node_shares])
        # samples above the leaves are fewer in a window, so they are measured more precisely
        better = float(mechanism.period.public_sample / mechanism.shares[1]) ** 2
        self._precise = self._factors * np.where(np.arange(nodes) < self._columns, 1.0, better)
        self._variances, self._precisions = (
            1 / self._precise[: self._columns],
            self._precise[self._columns :],
        )
        self._share_of_nodes = np.sqrt(self._factors)
        paths = [set(mechanism.forest.path(leaf)) for leaf in mechanism.forest.leaves]
        self._on_path = np.array([[int(node) in path for path in paths] for node in self._order], dtype=float)
        # what a moving unit loses by the printed budgets depends on the data, and their ledger refuses nothing
        self._pays_afterwards = not mechanism.enforced and mechanism.policy.mobility == "moving"

    def _more_state(self) -> State:
        nodes, k = self.mechanism.outputs, self.mechanism.sample_count
        return {
            **super()._more_state(),
            "points": np.zeros((nodes, k)),
            "point_times": np.zeros((nodes, k), dtype=np.int64),
            "counts": np.zeros(nodes, dtype=np.int64),
            "before": np.zeros(nodes),
            "recent": np.zeros((nodes, 2, 1)),
            "recent_steps": np.zeros((nodes, 2), dtype=np.int64),
        }

    def _kept(self) -> State:
        assert self._sampler is not None
        return {**self._memory, **self._sampler.state()}

    # budget ----------------------------------------------------------------------------------------------------

    def _pay(self, block: Block) -> Block:
        return block if self._pays_afterwards else super()._pay(block)

    def _write_down(self, block: Block, taken: npt.NDArray[np.bool_]) -> None:
        """What a unit loses that is always in the leaf whose path takes the most, as far as the printed budgets say."""
        tests, sample, step = (share * self.ledger.units for share in self.mechanism.shares)
        lost = (taken * self._share_of_nodes) @ self._on_path * float(sample)
        block.units[:] = np.ceil(lost.max(axis=1) + float(step)).astype(np.int64)
        charge_periods(self.ledger, block.first_step, block.units, self._w, int(tests))

    # the work --------------------------------------------------------------------------------------------------

    def _some_steps(self, block: Block) -> list[Floats]:
        memory, w = self._memory, self._w
        period, position = divmod(block.first_step - 1, w)
        end = position + len(block.rows)
        measured = self._measure(block.rows)
        taken = np.zeros(measured.shape, dtype=np.bool_)
        assert self._sampler is not None
        if position == 0:
            self._open(period)
            memory["counts"][:] = 0
            self._sampler.begin(self.source, period)
        shown = np.zeros(measured.shape)
        if not memory["torn"]:
            own = np.ascontiguousarray(measured[:, : self._choosing])
            taken[:, : self._choosing] = self._sampler.choose(self.source, block.first_step, own)
            taken[:, self._choosing :] = self._above[position:end, np.newaxis]
            scales = self.mechanism.sample_scales
            # a draw for every step and node, so that noise does not depend on who takes a sample
            noise = laplace(self.source, "samples", block.first_step, scales, measured.shape)
            shown = (measured + noise).astype(np.float64)
            self._keep(taken, shown, position)
            self._add_to_sums(measured, position, memory["sums"])
        if self._pays_afterwards:
            self._write_down(block, taken)
        block.chosen[:] = taken.any(axis=1)
        memory["spent"][position:end] = block.units
        memory["sampled"][position:end] = block.chosen
        self._at_once(block, taken, shown)
        return self._close(w) if end == w else []

    def _keep(self, taken: npt.NDArray[np.bool_], shown: Floats, position: int) -> None:
        """Put the samples of each node behind those it has."""
        memory = self._memory
        for node in range(taken.shape[1]):
            at, count = np.flatnonzero(taken[:, node]), memory["counts"][node]
            memory["points"][node, count : count + len(at)] = shown[at, node]
            memory["point_times"][node, count : count + len(at)] = position + 1 + at
            memory["counts"][node] += len(at)

    def _at_once(self, block: Block, taken: npt.NDArray[np.bool_], shown: Floats) -> None:
        """What is known of each step at the step itself: of every node, then made to add up."""
        memory, steps = self._memory, len(block.rows)
        known = np.empty(taken.shape)
        values, source = np.empty((steps, 1)), np.empty(steps, dtype=np.int64)
        curves = self.mechanism.forest.sum(memory["curve"])[:, self._order] if memory["has_curve"] else None
        for node in range(taken.shape[1]):
            chosen = np.ascontiguousarray(taken[:, node])
            drawn = np.zeros((1, 0, 1)) if curves is None else curves[np.newaxis, :, node, np.newaxis].copy()
            loop.causal_values(
                block.first_step,
                self._w,
                chosen,
                shown[chosen, node][:, np.newaxis],
                memory["recent"][node],
                memory["recent_steps"][node],
                self._mode,
                drawn,
                curves is not None,
                self.mechanism.nonnegative,
                values,
                source,
            )
            known[:, node] = values[:, 0]
            np.maximum(block.source, source, out=block.source)
        solver.reconcile(
            known,
            self._columns,
            self._node_of,
            self._parents,
            self._precisions,
            self._variances,
            self.mechanism.nonnegative,
            block.values,
        )

    def _close(self, length: int) -> list[Floats]:
        memory = self._memory
        finals = []
        if not memory["torn"]:
            finals = [self._fit_nodes(length)]
            if self._mode == loop.LAST_PERIOD and length == self._w:
                memory["curve"], memory["has_curve"] = finals[0].copy(), 1
            for node, count in enumerate(memory["counts"]):
                if count:
                    memory["before"][node] = memory["points"][node, count - 1]
            memory["began"] = 1
        memory["torn"] = 0
        return finals

    def _fit_nodes(self, length: int) -> Floats:
        """The leaves (steps × leaves) that fit the curves of all nodes and their sums best."""
        memory, mechanism = self._memory, self.mechanism
        curves, variances = (np.empty((mechanism.outputs, length)) for _ in range(2))
        for node, count in enumerate(memory["counts"]):
            times, points = memory["point_times"][node, :count], memory["points"][node, :count]
            if not count and not memory["began"]:
                curves[node], variances[node] = 0.0, UNKNOWN
                continue
            curve = Reconstruction.through(times, length, mechanism.reconstruction)
            before = memory["before"][node] if memory["began"] else points[0]
            points = np.concatenate([[before], points])
            curves[node] = (points[curve.columns] * curve.weights).sum(axis=1)
            spread = curve.spread if mechanism.weights == "variance" else float(length)
            variances[node] = spread / self._precise[node]
        _, _, precisions = self._reconstruction((self._w,), length)
        final = np.empty((length, self._columns))
        node_curves.fit_nodes(
            curves,
            variances,
            self._node_of,
            self._parents,
            memory["sums"].astype(np.float64),
            self._factors,
            self._tree.node_of[:length],
            self._tree.parents,
            precisions,
            mechanism.nonnegative,
            TOLERANCE,
            final,
        )
        return final

    def _status(self, chosen: npt.NDArray[np.bool_], first_step: int) -> npt.NDArray[np.int8]:
        position = (first_step - 1 + np.arange(len(chosen))) % self._w
        every = (position == 0) | (position == self._w - 1)  # samples of all leaves
        status = np.where(chosen, np.int8(Status.PARTIAL), np.int8(Status.APPROXIMATED))
        return np.where(chosen & every, np.int8(Status.FRESH), status)
