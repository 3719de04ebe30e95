"""How far the curves of Fourier may be off: noise, frequencies that are not measured, and periods that differ."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidegate.mechanisms.uncertainty import Shown, Uncertainty, student
from tidegate.noise.law import Law
from tidegate.releases import Radii, Releases, Values

# rows of the state; after them comes the last curve
SQUARES = 0  # Σ over periods of the mean squared difference from the period before
COUNT = 1  # of such differences
MISSING = 2  # Σ over periods of what they say of the square of a frequency that is not measured
KNOWN = 3  # how many periods have ended
CHANGE = 4  # of the mean's coefficient from the last period but one to the last
CURVE = 5


class Curves(Uncertainty):
    """For curves of whole periods, the last of which is shown until the next is known.

    A final curve is off by its noise and by the frequencies that were not measured: each of them is taken to be as strong
    as the highest ones that were, noise included, which holds of streams whose frequencies fade. Where only the mean is
    measured, two things are taken from how it changes. What goes back and forth, −E(c″ − c′)(c′ − c), is the variance of
    steps around a level; it begins with what a count of so many grid units has by chance. And a stream whose mean walks
    by a variance of V from period to period strays from it by V/4 within a period. A curve that is shown for the next
    period is also off by as much as curves of successive periods have differed so far. Each period counts as two numbers
    that a variance is learnt from.

    Parameters
    ----------
    columns
        The columns of a release.
    basis
        The transform, measured frequencies × steps of a period.
    variances
        Of the noise of the coefficients, in the values' unit squared.
    grid
        The resolution of values, in their own unit.
    """

    waits = False  # what is revised is looked at with its step

    def __init__(self, columns: int, basis: Values, variances: Values, grid: float) -> None:
        self.rows = CURVE + basis.shape[1]  # type: ignore[misc]  # as long as a period
        super().__init__(columns, Law("laplace", grid))
        self._noise = variances @ basis**2
        self._strongest = float(np.max(variances))
        count, self._w = basis.shape
        self._missing = 1 - count / self._w
        self._mean, self._high = basis[0], basis[max(1, count - 2) :]
        self._strays = 0.0 if len(self._high) else 0.25 * (count < self._w)

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
        counts = np.broadcast_to((before[COUNT, 0] + np.cumsum(counted))[:, np.newaxis], moved.shape)
        numbers = np.broadcast_to(
            before[KNOWN, 0] + np.arange(1.0, len(moved) + 1)[:, np.newaxis], moved.shape
        )
        means = np.einsum("t,ptc->pc", self._mean, np.concatenate([before[np.newaxis, CURVE:], curves]))
        changes = np.where(numbers > 1, np.diff(means, axis=0), 0.0)
        if len(self._high):
            strengths = (np.einsum("kt,ptc->pkc", self._high, curves) ** 2).mean(axis=1)
        else:
            chance = self._strongest + self.law.grid * np.abs(means[1:]) / np.sqrt(self._w)
            back = -changes * np.concatenate([before[np.newaxis, CHANGE], changes[:-1]])
            strengths = np.where(numbers > 2, back, np.where(numbers > 1, changes**2 / 2, chance))
        squares = before[SQUARES] + np.cumsum(moved, axis=0)
        missing = before[MISSING] + np.cumsum(strengths, axis=0)
        later = np.stack([squares, counts, missing, numbers, changes], axis=1)
        return np.concatenate([first, later])

    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        trace = self._trace(before, shown)
        steps = shown.steps[:, 0]
        # a step knows the periods that have ended before its own began
        known = trace[np.clip((steps - 1) // self._w - (shown.first_step - 1) // self._w, 0, len(trace) - 1)]
        final = self._variance_of(steps, known)
        moved = (known[:, SQUARES] + final) / (known[:, COUNT] + 1)
        half = np.sqrt(final + moved) * student(confidence, 2 * known[:, KNOWN])
        return np.where(known[:, KNOWN] > 0, half, np.inf)

    def _variance_of(self, steps: np.ndarray, known: Values) -> Values:
        noise = self._noise[(steps - 1) % self._w][:, np.newaxis]
        periods = known[:, KNOWN]
        learnt = np.maximum(known[:, MISSING], 0.0) / np.maximum(periods, 1.0)
        missing = self._missing * np.where(periods > 0, learnt, self._strongest)
        strays = self._strays * known[:, SQUARES] / np.maximum(known[:, COUNT], 1.0)
        return np.asarray(noise + missing + strays)

    def revised(self, releases: Releases) -> Radii:
        """For final curves, with the strength of frequencies as it is known by now."""
        return Radii(partial(self._radius_of_final, self.state.copy(), releases))

    def _radius_of_final(self, state: Values, releases: Releases, confidence: float) -> Values:
        variance = self._variance_of(releases.steps, state[np.newaxis])
        return np.asarray(np.sqrt(variance) * student(confidence, 2 * state[KNOWN]))
