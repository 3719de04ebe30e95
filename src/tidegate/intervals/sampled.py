"""Periods of which some steps are sampled: first answers, and final values when a period has ended."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from tidegate.intervals.fold import State
from tidegate.intervals.held import Held
from tidegate.intervals.kernels import COUNT, GAPS, WALK
from tidegate.noise.law import AnyLaw
from tidegate.releases import Radii, Releases, Status, Values

# rows of the state after those of a walk; then come the first answers of the steps of the open period
CORRECTED = WALK  # Σ over periods of the mean squared difference of first answers and final values
PERIODS = WALK + 1  # how many they are
ANSWERS = WALK + 2


class Sampled(Held):
    """A walk since the last sample, and what final values have corrected so far.

    Samples have noise, and the stream walks away from them at the pace that samples have shown. A first answer of a step
    that is no sample is also off by as much as final values have corrected such answers so far. A final value is made
    from samples on both sides; where it was fitted to sums, samples too are moved by what curves between them miss.

    Parameters
    ----------
    columns, law, released
        As for every fold.
    window
        The steps of a period.
    fitted
        Whether final values are fitted to sums.
    apart
        Whether leaves have sampling times of their own, except for the first and the last step of a period.
    own
        Whether final values follow a curve of one's own: how far it is off is not known, so their intervals are infinite.
    """

    some_columns = False  # a node of which some leaves are sampled is not

    def __init__(
        self,
        columns: int,
        law: AnyLaw,
        released: AnyLaw | None,
        window: int,
        *,
        fitted: bool,
        apart: bool,
        own: bool = False,
    ) -> None:
        super().__init__(columns, law, released, ANSWERS + window)
        self._w, self._fitted, self._apart, self._own = window, fitted, apart, own

    def learn(self, state: State, releases: Releases) -> State:
        """Go through the samples, and compare final values with first answers."""
        after, steps = super().learn(state, releases), len(releases)
        after[[CORRECTED, PERIODS]] = self._corrections(state, releases)[-1]
        last = min(steps, self._w)
        at = (releases.first_step - 1 + np.arange(steps - last, steps)) % self._w
        known = releases.source[steps - last :, np.newaxis] > 0
        after[ANSWERS + at] = np.where(known, releases.values[steps - last :], np.nan)
        return after

    def _corrections(self, before: State, releases: Releases) -> Values:
        """(CORRECTED, PERIODS) before and after each period that ends, periods + 1 × 2 × columns."""
        first = before[np.newaxis, CORRECTED:ANSWERS]
        revised = releases.revised
        if revised is None or not len(revised):
            return first
        begin = revised.first_step - releases.first_step
        answers = np.where(releases.source[:, np.newaxis] > 0, releases.values, np.nan)[max(begin, 0) :]
        if begin < 0:
            at = (revised.first_step - 1 + np.arange(-begin)) % self._w
            answers = np.concatenate([before[ANSWERS + at], answers])
        answers = answers[: len(revised)]
        between = np.not_equal(revised.status, Status.FRESH)[:, np.newaxis] & ~np.isnan(answers)
        squares = np.where(between, (revised.values - answers) ** 2, 0.0)
        # the first period of a query and the last one of a stream may be shorter
        lead = (revised.first_step - 1) % self._w
        whole = ((lead, -(lead + len(revised)) % self._w), (0, 0))
        periods = (-1, self._w, squares.shape[1])
        counts = np.pad(between, whole).reshape(periods).sum(axis=1)
        means = np.pad(squares, whole).reshape(periods).sum(axis=1) / np.maximum(counts, 1)
        later = first[0] + np.cumsum(np.stack([means, (counts > 0).astype(np.float64)], axis=1), axis=0)
        return np.concatenate([first, later])

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """Of a walk, and of a step that is no sample at least what was corrected."""
        walked = super().radius(state, releases, confidence)
        known = self._corrections(state, releases)
        first = releases.first_step
        at = np.clip((releases.steps - 1) // self._w - (first - 1) // self._w, 0, len(known) - 1)
        corrected, periods = known[at, 0], known[at, 1]
        variance = self.law.variance(releases.scale)[:, np.newaxis]
        moved = (corrected + variance) / (periods + 1)
        noise = self.law.radius(releases.scale, confidence)[:, np.newaxis]
        least = np.hypot(noise, np.sqrt(moved) * NormalDist().inv_cdf(0.5 + confidence / 2))
        fresh = np.equal(releases.status, Status.FRESH)[:, np.newaxis]
        return np.where(fresh | ~np.isfinite(walked), walked, np.fmax(walked, least))

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """Final values lie between samples on both sides; nothing is known of curves of one's own."""
        if self._own:
            return Radii(lambda confidence: np.full(revised.values.shape, np.inf))
        return super().revised(state, revised)

    def gaps(self, state: State, revised: Releases) -> Values:
        """Steps to a sample; where curves were fitted to sums, at least half of what samples are apart."""
        steps = revised.steps[:, np.newaxis]
        gaps = np.abs(steps - revised.source[:, np.newaxis]).astype(np.float64)
        if self._apart:
            position = (steps - 1) % self._w
            gaps = np.minimum(position, self._w - 1 - position).astype(np.float64)
        if self._fitted:
            gaps = np.maximum(gaps, state[GAPS] / np.maximum(state[COUNT], 1) / 2)
        return np.asarray(gaps)
