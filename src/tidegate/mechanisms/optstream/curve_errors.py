"""How far the curves of Fourier may be off: noise, frequencies that are not measured, and periods that differ."""

from __future__ import annotations

from functools import partial
from statistics import NormalDist

import numpy as np

from tidegate.mechanisms.uncertainty import Shown, Uncertainty
from tidegate.noise.law import Law
from tidegate.releases import Radii, Releases, Values

# rows of the state; after them comes the last curve
SQUARES = 0  # Σ over periods of the mean squared difference from the period before
COUNT = 1  # of such differences
HIGHEST = 2  # mean square of the highest frequency that was measured last
KNOWN = 3  # whether a period has ended
CURVE = 4


class Curves(Uncertainty):
    """For curves of whole periods, the last of which is shown until the next is known.

    A final curve is off by its noise and by the frequencies that were not measured: each of them is taken to be as strong
    as the highest one that was, noise included, which holds of streams whose frequencies fade. A curve that is shown for
    the next period is also off by as much as curves of successive periods have differed so far.

    Parameters
    ----------
    columns
        The columns of a release.
    basis
        The transform, measured frequencies × steps of a period.
    variances
        Of the noise of the coefficients, in the values' unit squared.
    """

    waits = False  # what is revised is looked at with its step

    def __init__(self, columns: int, basis: Values, variances: Values) -> None:
        self.rows = CURVE + basis.shape[1]  # type: ignore[misc]  # as long as a period
        super().__init__(columns, Law("laplace", 1.0))
        self._noise = variances @ basis**2
        self._strongest = float(np.max(variances))
        count, self._w = basis.shape
        self._missing = 1 - count / self._w
        self._high = basis[max(1, count - 2) :]

    def _learnt(self, before: Values, shown: Shown) -> Values:
        trace = self._trace(before, shown)
        if len(trace) == 1:
            return before
        assert shown.revised is not None
        return np.concatenate([trace[-1], shown.revised.values[-self._w :]])

    def _trace(self, before: Values, shown: Shown) -> Values:
        """What is known before and after each period that ends (periods + 1 × CURVE × columns)."""
        first = before[np.newaxis, :CURVE]
        if shown.revised is None:
            return first
        curves = shown.revised.values.reshape(-1, self._w, before.shape[1])
        earlier = np.concatenate([before[np.newaxis, CURVE:], curves[:-1]])
        moved = ((curves - earlier) ** 2).mean(axis=1)
        counted = np.ones(len(moved))
        if not before[KNOWN, 0]:
            moved[0], counted[0] = 0.0, 0.0
        highest = np.full(moved.shape, self._strongest)
        if len(self._high):
            highest = (np.einsum("kt,ptc->pkc", self._high, curves) ** 2).mean(axis=1)
        counts = np.broadcast_to((before[COUNT, 0] + np.cumsum(counted))[:, np.newaxis], moved.shape)
        squares = before[SQUARES] + np.cumsum(moved, axis=0)
        later = np.stack([squares, counts, highest, np.ones(moved.shape)], axis=1)
        return np.concatenate([first, later])

    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        trace = self._trace(before, shown)
        steps = shown.steps[:, 0]
        # a step knows the periods that have ended before its own began
        known = trace[np.clip((steps - 1) // self._w - (shown.first_step - 1) // self._w, 0, len(trace) - 1)]
        final = self._variance_of(steps, known[:, HIGHEST])
        moved = (known[:, SQUARES] + final) / (known[:, COUNT] + 1)
        half = np.sqrt(final + moved) * NormalDist().inv_cdf(0.5 + confidence / 2)
        return np.where(known[:, KNOWN] > 0, half, np.inf)

    def _variance_of(self, steps: np.ndarray, highest: Values) -> Values:
        noise = self._noise[(steps - 1) % self._w][:, np.newaxis]
        return np.asarray(noise + self._missing * highest)

    def revised(self, releases: Releases) -> Radii:
        """For final curves, with the strength of frequencies as it is known by now."""
        return Radii(partial(self._radius_of_final, self.state.copy(), releases))

    def _radius_of_final(self, state: Values, releases: Releases, confidence: float) -> Values:
        highest = state[HIGHEST] if state[KNOWN, 0] else np.full(state.shape[1], self._strongest)
        variance = self._variance_of(releases.steps, highest[np.newaxis])
        return np.asarray(np.sqrt(variance) * NormalDist().inv_cdf(0.5 + confidence / 2))
