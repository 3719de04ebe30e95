"""OptStream at work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.mechanism import Matrix, State
from tidegate.mechanisms.optstream import opt_stream as loop
from tidegate.mechanisms.optstream.feature_fit import fit_features
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler
from tidegate.mechanisms.optstream.opt_stream import add_to_sums
from tidegate.mechanisms.optstream.period_blocks_run import Block, Floats, Integers
from tidegate.mechanisms.optstream.period_noise_run import PeriodNoise
from tidegate.mechanisms.optstream.periods_run import PeriodicRun
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.mechanisms.optstream.sampling_times import read_times
from tidegate.mechanisms.shared_noise import Saved, SharedNoise, begin_noise
from tidegate.noise import variance_laplace
from tidegate.structures.clamping import summable

if TYPE_CHECKING:
    from tidegate.mechanisms.optstream.opt_stream import OptStream


@kernel
def add_periods_to_sums(rows: Any, labels: Any, sums: Any) -> None:
    """The same for whole periods: sums (periods, parts, columns)."""
    length = labels.shape[1]
    for period in range(sums.shape[0]):
        add_to_sums(rows[period * length : (period + 1) * length], 0, labels, sums[period])


class OptStreamRun(PeriodicRun):
    """OptStream at work on one stream."""

    mechanism: OptStream

    def _prepare(self) -> None:
        mechanism = self.mechanism
        self._tree = mechanism.tree
        self._sampler = L1Sampler(mechanism.sampling, self._watched_columns) if mechanism.adaptive else None
        self._reconstruction = lru_cache(maxsize=4)(self._reconstruct)

    @property
    def _watched_columns(self) -> int:
        """The columns whose scores decide about adaptive samples."""
        return self._columns

    def _watch(self, rows: Matrix, measured: Matrix) -> Matrix:
        return rows

    # public constants ------------------------------------------------------------------------------------------

    def _reconstruct(self, times: tuple[int, ...], length: int) -> tuple[Reconstruction, Floats, Floats]:
        """The curve through samples, the variances of its steps, and the precisions of the sums."""
        mechanism = self.mechanism
        curve = Reconstruction.through(np.array(times, dtype=np.int64), length, mechanism.reconstruction)
        tree = self._tree.until(length)
        if mechanism.weights == "size":
            parts = np.bincount(tree.level, minlength=len(mechanism.features))
            return curve, np.full(length, float(length)), 1.0 / parts[tree.level]
        if not mechanism.features:
            return curve, np.ones(length), np.zeros(0)
        ratio = mechanism.sample_variance / variance_laplace(mechanism.sum_scale)
        precisions = np.where(tree.size > 0, ratio, 0.0)
        return curve, curve.spread, precisions

    # hooks of periods ------------------------------------------------------------------------------------------

    def _begin_noise(self, saved: Saved | None) -> SharedNoise | PeriodNoise | None:
        sharing = self.mechanism.sharing
        if sharing is None:
            return None
        if not self.mechanism.adaptive:
            own = int(self.mechanism.shares[2] * self.ledger.units)
            return begin_noise(self, sharing, "samples", saved, distance=0, own=own)
        noise = PeriodNoise(self, sharing, saved)
        if noise.dropped:
            self._memory["torn"] = 1  # nothing more is measured of this period
        return noise

    def _more_state(self) -> State:
        return self._sampler.state() if self._sampler is not None else {}

    def _restore_more(self) -> None:
        if self._sampler is not None:
            self._sampler.restore(self._memory)

    def _choose(self, block: Block, measured: Matrix) -> None:
        sampler, w, memory, step = self._sampler, self._w, self._memory, block.first_step
        assert sampler is not None
        period, position = divmod(step - 1, w)
        if position == 0:
            self._open(period)
            sampler.begin(self.source, period)
            if isinstance(self._noise, PeriodNoise):
                self._noise.begin()
        if not memory[
            "torn"
        ]:  # else what was chosen before is not known: nothing is measured until the next period
            block.chosen[:] = sampler.choose(self.source, step, self._watch(block.rows, measured))[:, 0]

    def _add_to_sums(self, measured: Matrix, position: int, sums: Integers) -> None:
        if len(sums):
            loop.add_to_sums(summable(measured, self._w), position, self._tree.labels, sums)

    def _add_periods_to_sums(self, measured: Matrix, sums: Integers) -> None:
        if sums.shape[1]:
            add_periods_to_sums(summable(measured, self._w), self._tree.labels, sums)

    def _finish(self, known: Floats, times: Integers, sums: Integers, length: int) -> Floats:
        return self._fit(known, times, sums, length, self.mechanism.nonnegative)

    def _fit(self, known: Floats, times: Integers, sums: Integers, length: int, nonnegative: bool) -> Floats:
        """Reconstruct each column and fit it to its sums."""
        curve, variances, precisions = self._reconstruction(tuple(times.tolist()), length)
        return fit_features(
            self._tree, curve, variances, precisions, known, self._leaf_sums(sums), nonnegative
        )

    def _leaf_sums(self, sums: Integers) -> Floats:
        """The noised sums (periods × sums × measured columns) as estimates for the stream's own columns."""
        return sums.astype(np.float64)

    # what users may change -------------------------------------------------------------------------------------

    def change_times(self, times: Sequence[int]) -> None:
        """Sample at other public positions from the next period on; as many as before, the last one w.

        A window that straddles the change could contain too many samples, so the first period with the new times
        leaves out those that do not fit; see `sampling_times.fitting`. Choose the times from public data or from
        earlier releases only.
        """
        mechanism = self.mechanism
        if mechanism.adaptive:
            raise InvalidParameter("times", "given", "absent where adaptive=True", "use public times instead")
        read = read_times(times, self._w)
        if len(read) != mechanism.sample_count:
            raise InvalidParameter(
                "times", list(read), f"{mechanism.sample_count} positions", "keep the number of samples"
            )
        self._memory["pending"] = np.array(read, dtype=np.int64)
