"""Runs that work in periods: every step is answered at once, and again, better, when its period ends.

`push` returns what is known at the step itself: a fresh sample, or an estimate from earlier ones. The last step of a
period brings, as `release.revised`, the final values of all steps of the period; `push_batch` returns those
of all periods that ended in the batch. Both come from the same measurements, so the second answer costs no
further budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput
from tidegate.mechanisms.mechanism import Matrix, Row, State
from tidegate.mechanisms.optstream import opt_stream as loop
from tidegate.mechanisms.optstream.period_blocks_run import (
    Block,
    Floats,
    Integers,
    charge_periods,
    public_steps,
)
from tidegate.mechanisms.optstream.period_noise_run import PeriodNoise
from tidegate.mechanisms.optstream.period_revisions_run import RevisingRun
from tidegate.mechanisms.optstream.sampling_times import fitting
from tidegate.mechanisms.shared_noise import Saved, SharedNoise
from tidegate.noise import laplace
from tidegate.releases import Release, Releases

CELLS = 1 << 18  # cells of whole periods that are handled at once


class PeriodicRun(RevisingRun):
    """A run whose stream is cut into periods of w steps, the first of which begins at step 1.

    Sums over the period begin with their noise and grow with the steps, and samples are noised when they are
    taken, so that no raw value is kept. A mechanism says what is measured and how curves follow from it.
    """

    restores = True
    _noise: SharedNoise | PeriodNoise | None = None  # that samples share

    if TYPE_CHECKING:
        mechanism: Any

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        self._w: int = mechanism.window
        self._factor = self.ledger.units // mechanism.units
        self._mode = loop.CAUSAL[mechanism.causal]
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
            "drawn": 0,  # how many samples had noise that they share
        }
        saved = dict(state or {})
        noise = saved.pop("noise", None)
        self._set_state({**fresh, **self._more_state(), **saved})
        self._noise = self._begin_noise(noise)
        self.restores = self._noise is None

    def _set_state(self, state: State) -> None:
        self._memory = {
            name: value.copy() if isinstance(value, np.ndarray) else value for name, value in state.items()
        }
        self._restore_more()

    def _kept(self) -> State:
        """The state without noise that is still to come."""
        return {**self._memory, **self._more_state()}

    def _state(self) -> State:
        return self._kept() if self._noise is None else {**self._kept(), "noise": self._noise.numbers()}

    # what a mechanism adds -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Compute public constants; called once."""

    def _begin_noise(self, saved: Saved | None) -> SharedNoise | PeriodNoise | None:
        """The noise that samples share, where they do."""
        return None

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
            for name, value in self._kept().items()
        }
        noise = None if self._noise is None else vars(self._noise).copy()
        try:
            with self.ledger.transaction():
                releases = self._release(matrix, first_step)
        except BaseException:
            self._set_state(kept)
            if self._noise is not None and noise is not None:
                self._noise.put_back(noise)
            raise
        return releases

    def _release(self, matrix: Matrix, first_step: int) -> Releases:
        memory, w = self._memory, self._w
        block = Block.of(matrix, first_step)
        certain = not self.mechanism.adaptive and not self._patient(first_step)
        block = self._pay(block)
        earlier = (memory["spent"].copy(), memory["sampled"].copy())
        finals: list[Floats] = []
        start, steps = 0, len(matrix)
        while start < steps:
            position = (first_step + start - 1) % w
            many = (steps - start) // w if position == 0 and certain and not len(memory["pending"]) else 0
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

    def _pay(self, block: Block) -> Block:
        """Charge steps, and the periods that begin among them, before their data are looked at: whatever they are."""
        memory, w = self._memory, self._w
        block.units[:] = self._public(block, lambda times: self._units_of(times)[1])
        if memory["torn"] and self.mechanism.adaptive:
            block.units[: w - (block.first_step - 1) % w] = 0  # nothing is measured of this period any more
        if isinstance(self._noise, SharedNoise):
            return self._pay_shared(block, self._noise)
        span, _ = self._units_of(memory["times"])  # whatever the times
        charge_periods(self.ledger, block.first_step, block.units, w, span)
        return block

    def _public(self, block: Block, steps_of: Callable[[Integers], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        memory = self._memory
        times = (memory["times"], memory["times"][memory["fits"]], memory["pending"])
        return public_steps(block.first_step, len(block.rows), self._w, steps_of, times)

    def _pay_shared(self, block: Block, noise: SharedNoise) -> Block:
        """Charge steps, and groups of the samples among them, and draw the noise of those that need not be silent."""
        first, steps = block.first_step, len(block.rows)
        samples = self._public(block, self._sampled)
        drawn = np.zeros((steps, self._columns), dtype=np.int64)
        together = 1 if self._patient(first) else max(1, steps)
        for begin in range(0, steps, together):
            part = slice(begin, begin + together)
            at = first + begin + np.flatnonzero(samples[part])
            if together == 1 and at.size and noise.silent(first + begin):
                # others have used the budget, or nobody can tell what was seen of a group
                samples[part], at = False, at[:0]
            block.units[part] = noise.pay_at(first + begin, block.units[part], at)
            if at.size:
                drawn[at - first] = self._draw_samples(noise, at.size)
        return block._replace(samples=samples, noise=drawn)

    def _draw_samples(self, noise: SharedNoise, count: int) -> Integers:
        """The noise of the next samples, which are paid for."""
        number = self._memory["drawn"]
        self._memory["drawn"] = number + count
        if count == 1 and self._columns == 1:
            return np.array([[noise.draw_one(number)]], dtype=np.int64)
        return noise.draw_all(number, count)

    def _patient(self, first_step: int) -> bool:
        """Whether samples from this step on may have to be silent: no new group can be paid for yet."""
        return isinstance(self._noise, SharedNoise) and first_step <= self._noise.patient_until

    def _sampled(self, times: Integers) -> npt.NDArray[np.bool_]:
        """Which steps of a period are samples."""
        sampled = np.zeros(self._w, dtype=np.bool_)
        sampled[times - 1] = True
        return sampled

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
            sampled = self._sampled(memory["times"][memory["fits"]])[position:end]
            block.chosen[:] = sampled if block.samples is None else block.samples
        at, count = np.flatnonzero(block.chosen), memory["count"]
        shown = np.zeros((0, self._columns))
        if len(at):
            shown = self._leaves(measured[at] + self._noise_at(block, at, period * k + count))
            memory["points"][count : count + len(at)] = shown
            memory["point_times"][count : count + len(at)] = position + 1 + at
            memory["count"] = count + len(at)
        if not memory["torn"]:
            self._add_to_sums(measured, position, memory["sums"])
        memory["spent"][position:end] = block.units
        memory["sampled"][position:end] = block.chosen
        self._causal(block, shown, memory["curve"][np.newaxis])
        return self._close(w) if end == w else []

    def _noise_at(self, block: Block, at: npt.NDArray[np.intp], number: int) -> Integers:
        """The noise of some steps, the first of which is the sample of this number."""
        if block.noise is not None:
            return block.noise[at]
        if isinstance(self._noise, PeriodNoise):
            return self._noise.draw_all(number, len(at))
        shape = (len(at), self.mechanism.measured_columns)
        return laplace(self.source, "samples", number, self.mechanism.sample_scales, shape)

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
            at = np.flatnonzero(block.chosen)
            shown = self._leaves(measured[at] + self._noise_at(block, at, period * k))
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
