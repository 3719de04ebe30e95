"""ClippedRecords at work on a ledger."""

from __future__ import annotations

import math
from contextvars import copy_context
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.exact import show
from tidegate.mechanisms.mechanism import Matrix, Run, State
from tidegate.mechanisms.run import Pushed
from tidegate.noise import install, laplace, variance_laplace
from tidegate.noise.law import AnyLaw
from tidegate.releases import ClassDeviations, Radii, Release, Releases, Status, Values

if TYPE_CHECKING:
    from tidegate.mechanisms.clipped_records import ClippedRecords

Integers = npt.NDArray[np.int64]
MOST_SUM = 1 << 53  # sums of the sample stay where they are exact


class ClippedRecordsRun(Run):
    """Learning, then a mechanism at work on clipped values.

    Attributes
    ----------
    clip
        Where values are clipped, in their unit, once it is learnt; None before. Public.
    """

    mechanism: ClippedRecords

    def _begin(self, state: State | None) -> None:
        saved, mechanism = state or {}, self.mechanism
        self._limit = int(saved.get("limit", 0))
        cells = mechanism.bins.width if mechanism.sums_of_sample else len(mechanism.bins.ends)
        self._sample: Integers = saved.get("sample", np.zeros(cells, dtype=np.int64)).copy()
        self._first: Values = saved.get("first", np.zeros(mechanism.outputs))
        self._first_variance = float(saved.get("first_variance", 0.0))
        self._inner: Run | None = None
        if "inner_origin" in saved:
            own = {name[6:]: value for name, value in saved.items() if name.startswith("inner.")}
            self._go_on_from(int(saved["inner_origin"]), bool(saved["inner_alone"]), own)

    def _state(self) -> State:
        state: State = {"limit": self._limit, "first": self._first, "first_variance": self._first_variance}
        if not self._limit:
            return {**state, "sample": self._sample}
        if self._inner is None:
            return state
        own = {f"inner.{name}": value for name, value in self._inner._whole_state().items()}
        return {**state, "inner_origin": self._inner.origin, "inner_alone": self._inner.alone, **own}

    @property
    def clip(self) -> float | None:
        """Where values are clipped, once it is learnt."""
        return self._limit * self._grid if self._limit else None

    @property
    def limit(self) -> int:
        """The same in grid units; 0 before it is known."""
        return self._limit

    def _started(self) -> Run:
        """A run of the mechanism on this ledger. It is part of this run, and nobody else hears of it."""
        released = self.mechanism.at(self._limit)
        self.ledger.admit(released.policy)

        def start() -> Run:
            with install(self.source):
                return released.start(self.ledger)

        run = copy_context().run(start)
        self.ledger.leave(run)
        run._part_of = self
        run.alone = self.alone  # what this run has charged before is nobody else's
        return run

    def _go_on_from(self, origin: int, alone: bool, state: State) -> None:
        """Go on with what a snapshot was made in the middle of."""
        run = self._started()
        run.step, run.origin, run.charges = self.step, origin, self.ledger.rows
        run.alone = alone and self.alone
        run._resumed = True
        run._begin_from(state)
        self._inner = run

    def push(self, values: Pushed, step: int | None = None, *, grid_units: bool = False) -> Release:
        """Release the next step; its noise has the law of the mechanism for what was learnt."""
        release = super().push(values, step, grid_units=grid_units)
        release.law = self._law
        return release

    def push_batch(self, matrix: npt.ArrayLike, *, grid_units: bool = False) -> Releases:
        """Release many steps at once."""
        releases = super().push_batch(matrix, grid_units=grid_units)
        releases.law = self._law
        return releases

    @property
    def _law(self) -> AnyLaw | None:
        return (self.mechanism if self._inner is None else self._inner.mechanism).law

    # pushing ---------------------------------------------------------------------------------------------------

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        own, mechanism = first_step - self.origin, self.mechanism
        ends = [mechanism.learn, mechanism.waits, own + len(matrix) - 1]
        parts, begin = [], 0
        for number, end in enumerate(ends):
            stop = min(end - own + 1, len(matrix))
            if stop <= begin:
                continue
            rows, step = matrix[begin:stop], first_step + begin
            parts.append((self._learn, self._wait, self._release)[number](rows, step))
            begin = stop
        return joined(parts) if parts else self._silent(0, first_step, np.zeros(0, dtype=np.int64))

    def _learn(self, rows: Matrix, step: int) -> Releases:
        """Take steps into the sample; the last of them buys the threshold."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        units = np.full(len(rows), self.ledger.units // mechanism.policy.steps_charged, dtype=np.int64)
        self.ledger.charge_batch(step, units, scope="learn")
        counts, _ = bins.apart(rows)
        added = rows if mechanism.sums_of_sample else counts.sum(axis=1)
        for each in added:  # nothing wraps around, and what is cut moves no further than what is not
            np.minimum(self._sample + np.minimum(each, MOST_SUM), MOST_SUM, out=self._sample)
        last = step + len(rows) - 1
        if last - self.origin == mechanism.learn:
            self._settle(last)
        return self._silent(len(rows), step, units)

    def _settle(self, step: int) -> None:
        """Draw the threshold, and where they are needed the sums of the sample; then forget it."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        sample = self._sample
        if mechanism.sums_of_sample:
            sample = bins.apart(self._sample[np.newaxis])[0].sum(axis=(0, 1))
        above = np.append(sample.sum(), sample.sum() - np.cumsum(sample))
        self._limit = mechanism.fitting(mechanism.clip_of(above, self.source, step), self.ledger.units)
        if mechanism.sums_of_sample:
            whole_sample = self._sample[np.newaxis]
            sums = bins.clipped(whole_sample, self._limit)
            total = mechanism.made.measured(sums, bins.totals(whole_sample), self._limit)[0]
            scale = mechanism.first_scale(self._limit)
            noise = laplace(self.source, "sums of the sample", step, scale, total.shape)
            self._first = (total + noise) * self._grid
            self._first_variance = variance_laplace(scale) * self._grid**2
        self._sample = np.zeros_like(self._sample)
        self.ledger.learnt(step, {"clip": show(self._limit * Fraction(mechanism.grid))})

    def _wait(self, rows: Matrix, step: int) -> Releases:
        """Let the charges of the sample leave the windows."""
        nothing = np.zeros(len(rows), dtype=np.int64)
        self.ledger.charge_batch(step, nothing)
        return self._silent(len(rows), step, nothing)

    def _silent(self, count: int, step: int, units: Integers) -> Releases:
        values = np.full((count, self.mechanism.outputs), np.nan)
        status = np.full(count, np.int8(Status.SILENT))
        return Releases(step, values, status, None, np.zeros(count), units, self.ledger.unit)

    def _release(self, rows: Matrix, step: int) -> Releases:
        """Release steps by the mechanism."""
        mechanism, bins = self.mechanism, self.mechanism.bins
        if self._inner is None:
            self._inner = self._started().begin_at(step)
        measured = mechanism.made.measured(bins.clipped(rows, self._limit), bins.totals(rows), self._limit)
        self._inner.alone = self._inner.alone and self.alone  # others may have charged since
        same = self._inner._per_one == self._per_one
        values = measured if same else measured / self._per_one
        found = self._inner.push_batch(np.ascontiguousarray(values), grid_units=same)
        if mechanism.sums_of_sample:
            found.values = found.values + self._first
            found.scale = np.sqrt(found.scale**2 + self._first_variance)
        return found

    def flush(self) -> Releases | None:
        """As for the mechanism."""
        return None if self._inner is None else self._inner.flush()


def joined(parts: list[Releases]) -> Releases:
    """Releases of consecutive steps as one; what smoothed values were made from stays with single parts."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    revised = [part.revised for part in parts if part.revised is not None]
    deviation = None
    if last.deviation is not None:
        columns = last.values.shape[1]
        by_column = [_deviations(part, columns) for part in parts]
        deviation = ClassDeviations(np.concatenate(by_column), [(0, np.arange(columns))])
    whole = Releases(
        parts[0].first_step,
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate([part.units for part in parts]),
        last.unit,
        max(part.delay for part in parts),
        revised=revised[-1] if revised else None,
        deviation=deviation,
    )
    if (radii := last.radii) is not None:  # the parts before it say nothing
        silent = np.full((len(whole) - len(last), last.values.shape[1]), np.nan)
        whole.radii = Radii(lambda confidence: np.concatenate([silent, radii(confidence)]))
    return whole


def _deviations(part: Releases, columns: int) -> Values:
    """The standard deviation of each value; of Laplace noise where there is nothing else."""
    if part.deviation is not None:
        return part.deviation
    return np.broadcast_to(math.sqrt(2) * part.scale[:, np.newaxis], (len(part), columns))
