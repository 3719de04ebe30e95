"""Runs that work in periods: every step is answered at once, and again, better, when its period ends.

`push` returns what is known at the step itself: a fresh sample, or an estimate from earlier ones. The last step of a
period brings, as `release.revised`, the final values of all steps of the period; `push_batch` returns those
of all periods that ended in the batch. Both come from the same measurements, so the second answer costs no
further budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.errors import InvalidInput
from tidegate.mechanisms.mechanism import Matrix, Row, State
from tidegate.mechanisms.optstream.kernels import periods as loop
from tidegate.mechanisms.optstream.period_blocks import Block, Floats, Integers, charge_periods, public_units
from tidegate.mechanisms.optstream.period_revisions import RevisingRun
from tidegate.mechanisms.optstream.sampling_times import fitting
from tidegate.noise import laplace
from tidegate.releases import Release, Releases

CAUSAL = {"hold": loop.HOLD, "line": loop.LINE, "last period": loop.LAST_PERIOD}
CELLS = 1 << 18  # cells of whole periods that are handled at once


class PeriodicRun(RevisingRun):
    """A run whose stream is cut into periods of w steps, the first of which begins at step 1.

    Sums over the period begin with their noise and grow with the steps, and samples are noised when they are
    taken, so that no raw value is kept. A mechanism says what is measured and how curves follow from it.
    """

    restores = True

    if TYPE_CHECKING:
        mechanism: Any

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        self._w: int = mechanism.window
        self._factor = self.ledger.units // mechanism.units
        self._mode = CAUSAL[mechanism.causal]
        self._untaken = None
        self._known_units: dict[bytes, tuple[int, Integers]] = {}
        self._prepare()
        k, leaves = mechanism.sample_count, self._columns
        fresh: State = {
            "points": np.zeros((k, leaves)),  # the samples of this period
            "point_times": np.zeros(k, dtype=np.int64),  # and their positions, from 1
            "count": 0,
            "before": np.zeros(leaves),  # the last sample of the period before
            "began": 0,  # whether there is one
            "sums": np.zeros((mechanism.sum_count, mechanism.measured_columns), dtype=np.int64),
            "recent": np.zeros((2, leaves)),
            "recent_steps": np.zeros(2, dtype=np.int64),
            "spent": np.zeros(self._w, dtype=np.int64),  # units of this period's steps
            "sampled": np.zeros(self._w, dtype=np.bool_),  # which of them are samples
            "curve": np.zeros((self._w if self._mode == loop.LAST_PERIOD else 0, leaves)),
            "has_curve": 0,
            "times": np.array(mechanism.sample_times, dtype=np.int64),
            "fits": np.ones(len(mechanism.sample_times), dtype=np.bool_),  # which of them this period has
            "pending": np.zeros(0, dtype=np.int64),  # other times, from the next period on
            "torn": int(self.step % self._w > 0),  # a period whose beginning this run has not seen
            "ended": 0,
        }
        self._set_state({**fresh, **self._more_state(), **(state or {})})

    def _set_state(self, state: State) -> None:
        self._memory = {
            name: value.copy() if isinstance(value, np.ndarray) else value for name, value in state.items()
        }
        self._restore_more()

    def _state(self) -> State:
        return self._memory

    # what a mechanism adds -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Compute public constants; called once."""

    def _more_state(self) -> State:
        """Further fields of the state."""
        return {}

    def _restore_more(self) -> None:
        """Rebuild what is derived from the state."""

    def _units_of(self, times: Integers) -> tuple[int, Integers]:
        """The public charges of a period with samples at the given positions, and of its w steps."""
        key = times.tobytes()
        if key not in self._known_units:  # few are: times seldom change
            span, steps = self.mechanism.charges(times.tolist())
            self._known_units = {key: (span * self._factor, steps * self._factor)}
        return self._known_units[key]

    def _measure(self, rows: Matrix) -> Matrix:
        """What is measured of each step (steps × measured columns)."""
        return rows

    def _leaves(self, noisy: Integers) -> Floats:
        """Noised measurements (n × measured columns) as estimates of the stream's own columns."""
        return noisy.astype(np.float64)

    def _add_to_sums(self, measured: Matrix, position: int, sums: Integers) -> None:
        """Add steps from a position on to the running sums."""

    def _add_periods_to_sums(self, measured: Matrix, sums: Integers) -> None:
        """The same for whole periods."""

    def _finish(self, known: Floats, times: Integers, sums: Integers, length: int) -> Floats:
        """The curves of periods (periods × length × columns) from their points and noised sums."""
        raise NotImplementedError

    def _choose(self, block: Block, measured: Matrix) -> None:
        """For sample times that depend on the data: fill in `chosen`. The steps are paid for."""
        raise NotImplementedError

    # the work --------------------------------------------------------------------------------------------------

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        if self._memory["ended"]:
            raise InvalidInput(
                "the run was flushed in the middle of a period and has ended; start a new run for further steps."
            )
        kept = {
            name: np.copy(value) if isinstance(value, np.ndarray) else value
            for name, value in self._state().items()
        }
        try:
            with self.ledger.transaction():
                releases = self._release(matrix, first_step)
        except BaseException:
            self._set_state(kept)
            raise
        return releases

    def _release(self, matrix: Matrix, first_step: int) -> Releases:
        memory, w = self._memory, self._w
        block = Block.of(matrix, first_step)
        public = not self.mechanism.adaptive
        self._pay(block)
        earlier = (memory["spent"].copy(), memory["sampled"].copy())
        finals: list[Floats] = []
        start, steps = 0, len(matrix)
        while start < steps:
            position = (first_step + start - 1) % w
            many = (steps - start) // w if position == 0 and public and not len(memory["pending"]) else 0
            if many > 1:
                stop = start + min(many, max(2, CELLS // (w * self.mechanism.measured_columns))) * w
                finals.append(self._whole_periods(block.part(start, stop)))
            else:
                stop = min(steps, start + w - position)
                finals += self._some_steps(block.part(start, stop))
            start = stop
        values = self._expand(block.values * self._grid)
        scale = np.where(block.source > 0, self.mechanism.shown_scale, 0.0)
        status = self._status(block.chosen, first_step)
        revised = self._revised(finals, block, earlier)
        fields = (first_step, values, status, block.source, scale, block.units, self.ledger.unit, 0)
        return Releases(*fields, revised=revised)

    def _pay(self, block: Block) -> None:
        """Charge steps, and the periods that begin among them, before their data are looked at: whatever they are."""
        memory, w = self._memory, self._w
        times = (memory["times"], memory["times"][memory["fits"]], memory["pending"])
        span, block.units[:] = public_units(block.first_step, len(block.rows), w, self._units_of, times)
        if memory["torn"] and self.mechanism.adaptive:
            block.units[: w - (block.first_step - 1) % w] = 0  # nothing is measured of this period any more
        charge_periods(self.ledger, block.first_step, block.units, w, span)

    def _open(self, period: int) -> None:
        """Begin a period: its sums are their noise."""
        memory = self._memory
        memory["count"], memory["torn"] = 0, 0
        memory["spent"] = np.zeros(self._w, dtype=np.int64)
        memory["sampled"] = np.zeros(self._w, dtype=np.bool_)
        if len(memory["pending"]):
            memory["fits"] = fitting(memory["times"].tolist(), memory["pending"].tolist())
            memory["times"], memory["pending"] = memory["pending"], np.zeros(0, dtype=np.int64)
        memory["sums"] = self._sum_noise(period, 1)[0]

    def _sum_noise(self, period: int, periods: int) -> Integers:
        mechanism = self.mechanism
        shape = (mechanism.sum_count, mechanism.measured_columns)
        if not mechanism.sum_count:
            return np.zeros((periods, *shape), dtype=np.int64)
        cells = (periods, shape[0] * shape[1])
        return laplace(self.source, "sums", period, mechanism.sum_scales, cells).reshape(periods, *shape)

    def _some_steps(self, block: Block) -> list[Floats]:
        """Some steps of one period; returns its final curve if they complete it."""
        memory, w, k = self._memory, self._w, self.mechanism.sample_count
        period, position = divmod(block.first_step - 1, w)
        end = position + len(block.rows)
        measured = self._measure(block.rows)
        if self.mechanism.adaptive:
            self._choose(block, measured)
        else:
            if position == 0:
                self._open(period)
            sampled = np.zeros(w, dtype=np.bool_)
            sampled[memory["times"][memory["fits"]] - 1] = True
            block.chosen[:] = sampled[position:end]
        at, count = np.flatnonzero(block.chosen), memory["count"]
        shown = np.zeros((0, self._columns))
        if len(at):
            shape = (len(at), self.mechanism.measured_columns)
            noise = laplace(self.source, "samples", period * k + count, self.mechanism.sample_scales, shape)
            shown = self._leaves(measured[at] + noise)
            memory["points"][count : count + len(at)] = shown
            memory["point_times"][count : count + len(at)] = position + 1 + at
            memory["count"] = count + len(at)
        if not memory["torn"]:
            self._add_to_sums(measured, position, memory["sums"])
        memory["spent"][position:end] = block.units
        memory["sampled"][position:end] = block.chosen
        self._causal(block, shown, memory["curve"][np.newaxis])
        return self._close(w) if end == w else []

    def _close(self, length: int) -> list[Floats]:
        """The curve of the first `length` steps of the period, from what is known of them."""
        memory = self._memory
        count, torn = memory["count"], memory["torn"]
        points = memory["points"][:count]
        before = memory["before"] if memory["began"] or not count else points[0]
        finals = []
        if not torn:
            known = np.concatenate([before[np.newaxis], points])[np.newaxis]
            times = memory["point_times"][:count]
            final = self._finish(known, times, memory["sums"][np.newaxis], length)
            finals = [final.reshape(length, -1)]
            if self._mode == loop.LAST_PERIOD and length == self._w:
                memory["curve"], memory["has_curve"] = finals[0].copy(), 1
        if count:
            memory["before"], memory["began"] = points[-1].copy(), 1
        memory["torn"] = 0
        memory["fits"][:] = True
        return finals

    def _whole_periods(self, block: Block) -> Floats:
        """Many periods at once, with public sample times; returns their final curves."""
        memory, w, times = self._memory, self._w, self._memory["times"]
        periods, k = len(block.rows) // w, len(times)
        period = (block.first_step - 1) // w
        measured = self._measure(block.rows)
        block.chosen.reshape(periods, w)[:, times - 1] = True
        shown = np.zeros((0, self._columns))
        if k:
            taken = measured.reshape(periods, w, -1)[:, times - 1].reshape(periods * k, -1)
            noise = laplace(self.source, "samples", period * k, self.mechanism.sample_scales, taken.shape)
            shown = self._leaves(taken + noise)
        sums = self._sum_noise(period, periods)
        self._add_periods_to_sums(measured, sums)
        points = shown.reshape(periods, k, self._columns)
        known = np.empty((periods, k + 1, self._columns))
        known[:, 1:] = points
        if k:
            known[1:, 0] = points[:-1, -1]
            known[0, 0] = memory["before"] if memory["began"] else points[0, 0]
        final = self._finish(known, times, sums, w)
        curves = final[:0]
        if self._mode == loop.LAST_PERIOD:
            curves = np.concatenate([memory["curve"][np.newaxis], final[:-1]])
        self._causal(block, shown, curves)
        if self._mode == loop.LAST_PERIOD:
            memory["curve"], memory["has_curve"] = final[-1].copy(), 1
        if k:
            memory["points"], memory["before"], memory["began"] = points[-1].copy(), points[-1, -1].copy(), 1
        memory["point_times"], memory["count"], memory["torn"] = times.copy(), k, 0
        memory["sums"] = sums[-1].copy()
        memory["spent"], memory["sampled"] = block.units[-w:].copy(), block.chosen[-w:].copy()
        return final.reshape(periods * w, -1)

    def _causal(self, block: Block, shown: Floats, curves: Floats) -> None:
        """What is known of each step at the step itself."""
        memory = self._memory
        loop.causal_values(
            block.first_step,
            self._w,
            block.chosen,
            shown,
            memory["recent"],
            memory["recent_steps"],
            self._mode,
            curves,
            bool(memory["has_curve"]),
            self.mechanism.nonnegative,
            block.values,
            block.source,
        )
