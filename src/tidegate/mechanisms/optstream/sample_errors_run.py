"""How far values between samples may be off: a walk from the samples, and what final values have corrected so far."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.kernels.walks import COUNT, GAPS
from tidegate.mechanisms.uncertainty import Shown, Walk
from tidegate.noise.law import AnyLaw
from tidegate.releases import Releases, Status, Values

# rows of the state after those of a walk; then come the first answers of the steps of the open period
CORRECTED = 6  # Σ over periods of the mean squared difference of first answers and final values
PERIODS = 7  # how many they are
ANSWERS = 8


class Samples(Walk):
    """For periods of which some steps are sampled: first answers, and final values when a period has ended.

    Samples have noise, and the stream walks away from them at the pace that samples have shown. A first answer of a step
    that is no sample is also off by as much as final values have corrected such answers so far. A final value is made
    from samples on both sides; where it was fitted to sums, samples too are moved by what curves between them miss.

    Parameters
    ----------
    columns, law
        As for every :class:`Walk`.
    window
        The steps of a period.
    fitted
        Whether final values are fitted to sums.
    apart
        Whether leaves have sampling times of their own, except for the first and the last step of a period.
    """

    skips = False  # first answers of all steps are compared with final values

    def __init__(self, columns: int, law: AnyLaw, window: int, *, fitted: bool, apart: bool) -> None:
        self.rows = ANSWERS + window  # type: ignore[misc]  # as long as a period
        super().__init__(columns, law)
        self._w, self._fitted, self._apart = window, fitted, apart

    def _published(self, before: Values, shown: Shown) -> npt.NDArray[np.bool_]:
        fresh = np.equal(shown.status, Status.FRESH)[:, np.newaxis]
        return np.broadcast_to(fresh, shown.values.shape)  # a node of which some leaves are sampled is not

    def _learnt(self, before: Values, shown: Shown) -> Values:
        walk, steps = super()._learnt(before[:ANSWERS], self._without_partial(shown)), len(shown.values)
        after = np.concatenate([walk, before[ANSWERS:]])
        after[[CORRECTED, PERIODS]] = self._corrections(before, shown)[-1]
        last = min(steps, self._w)
        at = (shown.first_step - 1 + np.arange(steps - last, steps)) % self._w
        known = shown.source[steps - last :, np.newaxis] > 0
        after[ANSWERS + at] = np.where(known, shown.values[steps - last :], np.nan)
        return after

    def _without_partial(self, shown: Shown) -> Shown:
        return shown._replace(
            status=np.where(np.equal(shown.status, Status.FRESH), shown.status, np.int8(Status.APPROXIMATED))
        )

    def _corrections(self, before: Values, shown: Shown) -> Values:
        """(CORRECTED, PERIODS) before and after each period that ends, periods + 1 × 2 × columns."""
        first = before[np.newaxis, CORRECTED:ANSWERS]
        revised = shown.revised
        if revised is None or not len(revised):
            return first
        begin = revised.first_step - shown.first_step
        answers = np.where(shown.source[:, np.newaxis] > 0, shown.values, np.nan)[max(begin, 0) :]
        if begin < 0:
            answers = np.concatenate([before[ANSWERS : ANSWERS - begin], answers])
        answers = answers[: len(revised)]
        between = np.not_equal(revised.status, Status.FRESH)[:, np.newaxis] & ~np.isnan(answers)
        squares = np.where(between, (revised.values - answers) ** 2, 0.0)
        periods = (-1, self._w, squares.shape[1])
        counts = between.reshape(periods).sum(axis=1)
        means = squares.reshape(periods).sum(axis=1) / np.maximum(counts, 1)
        later = first[0] + np.cumsum(np.stack([means, (counts > 0).astype(np.float64)], axis=1), axis=0)
        return np.concatenate([first, later])

    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        walked = super()._radius(before[:CORRECTED], self._without_partial(shown), confidence)
        known = self._corrections(before, shown)
        first = shown.first_step
        at = np.clip((shown.steps[:, 0] - 1) // self._w - (first - 1) // self._w, 0, len(known) - 1)
        corrected, periods = known[at, 0], known[at, 1]
        variance = self.law.variance(shown.scale)[:, np.newaxis]
        moved = (corrected + variance) / (periods + 1)
        noise = self.law.radius(shown.scale, confidence)[:, np.newaxis]
        least = np.hypot(noise, np.sqrt(moved) * NormalDist().inv_cdf(0.5 + confidence / 2))
        fresh = np.equal(shown.status, Status.FRESH)[:, np.newaxis]
        return np.where(fresh | ~np.isfinite(walked), walked, np.fmax(walked, least))

    def _gaps(self, state: Values, releases: Releases) -> Values:
        steps = releases.steps[:, np.newaxis]
        gaps = np.abs(steps - releases.source[:, np.newaxis]).astype(np.float64)
        if self._apart:
            position = (steps - 1) % self._w
            gaps = np.minimum(position, self._w - 1 - position).astype(np.float64)
        if self._fitted:
            gaps = np.maximum(gaps, state[GAPS] / np.maximum(state[COUNT], 1) / 2)
        return np.asarray(gaps)
