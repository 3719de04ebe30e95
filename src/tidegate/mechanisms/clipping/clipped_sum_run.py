"""The clipped sum at work: collect the sample, buy the threshold, then count on a tree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.clipping.learned_clip_run import clip_values
from tidegate.mechanisms.clipping.threshold import PRINTED_LOSS
from tidegate.mechanisms.counters.tree import refuse_beyond
from tidegate.mechanisms.counters.tree_run import TreeRun
from tidegate.mechanisms.mechanism import Matrix, Row, Run, State
from tidegate.noise import laplace_one, variance_laplace
from tidegate.queries.sums import laplace_radius
from tidegate.releases import Release, Releases, Status, Values

if TYPE_CHECKING:
    from tidegate.mechanisms.clipping.clipped_sum import ClippedSum

BLOCK = 1 << 16  # steps that a batch handles at once


class FirstSumsRun(TreeRun):
    """The tree of the first m sums, whose noise has streams of its own."""

    label = "first sums"


class ClippedSumRun(Run):
    """ClippedSum at work.

    Attributes
    ----------
    clip
        The clip τ that is applied, in the values' unit, once it was released; None before. Public.
    outside
        How many values lay outside [0, B] and were clipped. Private: never publish it.
    first_sums
        The sums of the first m steps, if asked for, from step m on. Public.
    """

    mechanism: ClippedSum

    def _begin(self, state: State | None) -> None:
        saved = state or {}
        self.outside = int(saved.get("outside", 0))
        self.first_sums: Releases | None = None
        self._sample: npt.NDArray[np.int64] = np.zeros((self.mechanism.waits, 1), dtype=np.int64)
        kept = saved.get("sample", np.zeros((0, 1), dtype=np.int64))
        self._sample[: len(kept)] = kept
        self._first = float(saved.get("first", 0.0))
        self._first_variance = float(saved.get("first_variance", 0.0))
        self._limit = int(saved.get("limit", 0))
        self._tree: TreeRun | None = None
        if not self.mechanism.waits and not self._limit:
            self._limit = self.mechanism.largest
        if self._limit:
            tree_state = {name[5:]: value for name, value in saved.items() if name.startswith("tree.")}
            self._grow(tree_state or None)
        if "first_values" in saved:
            self.first_sums = self._as_releases(saved["first_values"], saved["first_deviations"])

    def _grow(self, state: State | None) -> None:
        """Make the tree of the steps after the lag; it asks no ledger, since each step is charged here."""
        self._tree = self.mechanism.tree(self._limit).start()
        self._tree.source = self.source
        self._tree.step = max(0, self.step - self.origin - self.mechanism.waits)
        self._tree._begin(state)

    @property
    def clip(self) -> float | None:
        """The clip that is applied, once it is known."""
        return self._limit * self._grid if self._limit else None

    @property
    def limit(self) -> int:
        """The same in grid units; 0 before it is known."""
        return self._limit

    def reach(self, step: int) -> float:
        """By how much one observation can change a running sum: the clip, once it is known."""
        return min(super().reach(step), self._limit * self._grid or math.inf)

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of the noise of Σ_t weights[t−1]·(running sum of step t), once the clip is known."""
        if self._tree is None:
            return 0.0
        given, lag = np.asarray(weights, dtype=np.float64), self.mechanism.waits
        first = float(given[max(lag - 1, 0) :].sum()) ** 2 * self._first_variance
        return math.sqrt(first + self._tree.mechanism.deviation_of(given[lag:]) ** 2)

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around a linear answer; it knows the noise, not what was clipped."""
        if self._tree is None:
            return 0.0
        given, lag = np.asarray(weights, dtype=np.float64), self.mechanism.waits
        scales, counts = self._tree.mechanism.terms_of(given[lag:])
        # the first sum is one Laplace draw, or has nearly the law of one
        first = abs(float(given[max(lag - 1, 0) :].sum())) * math.sqrt(self._first_variance / 2)
        return laplace_radius(np.append(scales, first), np.append(counts, 1.0), confidence)

    def _state(self) -> State:
        state: State = {
            "outside": self.outside,
            "first": self._first,
            "first_variance": self._first_variance,
            "limit": self._limit,
        }
        if self._tree is None:
            state["sample"] = self._sample[: self.step - self.origin]
        else:
            state |= {f"tree.{name}": value for name, value in self._tree._state().items()}
        if self.first_sums is not None:
            state["first_values"], state["first_deviations"] = self.first_sums.values, self.first_sums.scale
        return state

    @property
    def _charge(self) -> int:
        """What a step costs; as printed, what it has been shown to lose, on a ledger that writes it down."""
        times = 1 if self.mechanism.enforced else int(PRINTED_LOSS)
        return times * self.ledger.units // self.mechanism.units

    def _within_horizon(self, steps: int) -> None:
        refuse_beyond(self.mechanism.length, self.step - self.origin, steps)
        super()._within_horizon(steps)

    def _push(self, row: Row) -> Release:
        charge = self._charge
        self.ledger.charge(self.step, charge)
        return self._release(row[np.newaxis], self.step, np.full(1, charge))[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        units = np.broadcast_to(np.int64(self._charge), len(matrix))
        self.ledger.charge_batch(first_step, units)
        return self._release(matrix, first_step, units)

    def _release(self, matrix: Matrix, first_step: int, units: npt.NDArray[np.int64]) -> Releases:
        """Release steps that the ledger has agreed to."""
        steps, lag = len(matrix), self.mechanism.waits
        own = first_step - self.origin  # the number of the first step among those of this run
        values, deviations = np.zeros((steps, 1)), np.zeros(steps)
        status = np.full(steps, np.int8(Status.FRESH))
        source = np.arange(first_step, first_step + steps)
        early = min(steps, max(0, lag - own + 1))
        if early:
            self._collect(matrix[:early], own)
            waiting = early - (own + early - 1 == lag)
            status[:waiting], source[:waiting] = Status.APPROXIMATED, 0
            if waiting < early:
                self._measure_first()
                values[waiting], deviations[waiting] = (
                    self._first * self._grid,
                    math.sqrt(self._first_variance),
                )
        for start in range(early, steps, BLOCK):
            stop = min(steps, start + BLOCK)
            self._count(matrix[start:stop], own + start, values[start:stop], deviations[start:stop])
        return Releases(first_step, values, status, source, deviations, units, self.ledger.unit)

    def _collect(self, rows: Matrix, first_step: int) -> None:
        bound = self.mechanism.largest
        into = self._sample[first_step - 1 : first_step - 1 + len(rows)]
        self.outside += clip_values(rows, bound, bound, into)

    def _measure_first(self) -> None:
        """At step m: the threshold, then the sum of the first m, clipped like all others."""
        mechanism, lag = self.mechanism, self.mechanism.waits
        released = mechanism.finder.draw(self._sample[:, 0], self.source, lag)
        self._limit = mechanism.clip_of(released.grid_units)
        clipped = np.minimum(self._sample, self._limit) if mechanism.enforced else self._sample
        if mechanism.first_sums:
            run = FirstSumsRun(mechanism.tree(self._limit, lag, mechanism.epsilons[1]), None, None)
            run.source = self.source
            values, deviations = run.count(clipped, 1)
            self.first_sums = self._as_releases(values, deviations)
            self._first, self._first_variance = float(values[-1, 0]) / self._grid, float(deviations[-1]) ** 2
        else:
            scale = mechanism.first_scale(self._limit)
            # in two halves, because the sum must not wrap around before the noise is added
            total = (int((clipped >> 32).sum()) << 32) + int((clipped & 0xFFFFFFFF).sum())
            self._first = float(total + laplace_one(self.source, "first sum", lag, 0, scale))
            self._first_variance = variance_laplace(scale) * self._grid**2
        self._sample = np.zeros((0, 1), dtype=np.int64)
        stands, self.step = self.step, self.origin + lag  # the tree begins after the lag
        self._grow(None)
        self.step = stands

    def _as_releases(self, values: Values, deviations: Values) -> Releases:
        count = len(values)
        units = np.zeros(count, dtype=np.int64)  # charged with the steps themselves
        status = np.full(count, np.int8(Status.FRESH))
        first = self.origin + 1
        return Releases(first, values, status, None, deviations, units, self.ledger.unit, delay=count - 1)

    def _count(self, rows: Matrix, first_step: int, values: Values, deviations: Values) -> None:
        assert self._tree is not None
        clipped = np.empty_like(rows)
        self.outside += clip_values(rows, self._limit, self.mechanism.largest, clipped)
        sums, spread = self._tree.count(clipped, first_step - self.mechanism.waits)
        self._tree.step = first_step - self.mechanism.waits + len(rows) - 1
        np.add(sums, self._first * self._grid, out=values)
        np.sqrt(spread**2 + self._first_variance, out=deviations)
