"""Curves of whole periods, the last of which is shown until the next is known."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidegate.intervals.fold import Errors, Learning, State, student
from tidegate.noise.law import AnyLaw
from tidegate.releases import Integers, Radii, Releases, Values

# rows of the state
SQUARES = 0  # Σ over periods of the mean squared change of the curve
COUNT = 1  # how many changes these are
MISSING = 2  # Σ over periods of what the highest measured frequencies are like
KNOWN = 3  # how many periods have ended
CHANGE = 4  # the last change of the mean
CURVE = 5  # here the last curve begins


class Curves(Learning):
    """Final values are fitted to a few coefficients of their period.

    A final curve is off by its noise and by the frequencies that were not measured. Each of those is taken to be as
    strong as the highest ones that were, noise included, which holds of streams whose frequencies fade. Where only the
    mean is measured, two things are taken from how it changes. What goes back and forth, −E(c″ − c′)(c′ − c), is the
    variance of steps around a level; it begins with what a count of so many grid units has by chance. And a stream
    whose mean walks by a variance of V from period to period strays from it by V/4 within a period. A curve that is
    shown for the next period is also off by as much as curves of successive periods have differed so far. Each period
    counts as two numbers that a variance is learnt from.

    Parameters
    ----------
    columns, law
        As for every fold.
    basis
        The transform, measured frequencies × steps of a period.
    variances
        Of the noise of the coefficients, in the unit of the values squared.
    """

    says_more = True

    def __init__(self, columns: int, law: AnyLaw, basis: Values, variances: Values) -> None:
        super().__init__(columns, law, None, CURVE + basis.shape[1])
        self._noise = variances @ basis**2
        self._strongest = float(np.max(variances))
        count, self._w = basis.shape
        self._missing = 1 - count / self._w
        self._mean, self._high = basis[0], basis[max(1, count - 2) :]
        self._strays = 0.0 if len(self._high) else 0.25 * (count < self._w)

    def learn(self, state: State, releases: Releases) -> State:
        """Look at the periods that have ended."""
        trace, curves = self._trace(state, releases), self._ended(releases)
        return state if len(trace) == 1 else np.concatenate([trace[-1], curves[-1]])

    def _ended(self, releases: Releases) -> Values:
        """Curves of whole periods, periods × steps × columns; the end of a stream may cut one short."""
        revised = releases.revised
        count = 0 if revised is None else len(revised) // self._w
        if revised is None or not count:
            return np.zeros((0, self._w, self.columns))
        return revised.values[: count * self._w].reshape(count, self._w, self.columns)

    def _trace(self, before: State, releases: Releases) -> Values:
        """What is known before and after each period that ends (periods + 1 × CURVE × columns)."""
        first, curves = before[np.newaxis, :CURVE], self._ended(releases)
        if not len(curves):
            return first
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
        return np.concatenate([first, np.stack([squares, counts, missing, numbers, changes], axis=1)])

    def _known(self, before: State, releases: Releases) -> tuple[Values, Values, Values]:
        """Variances of a final curve, and of how much the next one differs from it; and periods so far."""
        trace, steps = self._trace(before, releases), releases.steps
        # a step knows the periods that have ended before its own began
        at = np.clip((steps - 1) // self._w - (releases.first_step - 1) // self._w, 0, len(trace) - 1)
        known = trace[at]
        final = self._variance_of(steps, known)
        return final, (known[:, SQUARES] + final) / (known[:, COUNT] + 1), known[:, KNOWN]

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """Of a curve that is shown for the next period."""
        final, moved, periods = self._known(state, releases)
        half = np.sqrt(final + moved) * student(confidence, 2 * periods)
        return np.where(np.isnan(releases.values), np.nan, np.where(periods > 0, half, np.inf))

    def errors(self, state: State, releases: Releases) -> Errors:
        """All steps of a period are off together: the next period is another one."""
        final, moved, periods = self._known(state, releases)
        begins = (releases.steps - 1) % self._w == 0
        carry = np.broadcast_to(np.where(begins, 0.0, 1.0)[:, np.newaxis], final.shape)
        nothing = np.zeros(final.shape)
        return Errors(nothing, np.where(periods > 0, final + moved, np.inf), carry, nothing)

    def _variance_of(self, steps: Integers, known: Values) -> Values:
        noise = self._noise[(steps - 1) % self._w][:, np.newaxis]
        periods = known[:, KNOWN]
        learnt = np.maximum(known[:, MISSING], 0.0) / np.maximum(periods, 1.0)
        missing = self._missing * np.where(periods > 0, learnt, self._strongest)
        strays = self._strays * known[:, SQUARES] / np.maximum(known[:, COUNT], 1.0)
        return np.asarray(noise + missing + strays)

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """Of final curves, with the strength of frequencies as it is known by now."""
        return Radii(partial(self._radius_of_final, state.copy(), revised))

    def _radius_of_final(self, state: State, revised: Releases, confidence: float) -> Values:
        variance = self._variance_of(revised.steps, state[np.newaxis])
        return np.asarray(np.sqrt(variance) * student(confidence, 2 * state[KNOWN]))
