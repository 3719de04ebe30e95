"""Values that stay until the next measurement, and values that a Kalman filter makes of measurements."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidegate.intervals.fold import Errors, Learning, State, student
from tidegate.intervals.kernels import (
    COUNT,
    DIFFERENCES,
    DRIFT,
    GAPS,
    SIZES,
    SQUARES,
    STEP,
    VALUE,
    VARIANCE,
    WALK,
    follow,
)
from tidegate.noise.law import AnyLaw, SharedLaw, spread_radius
from tidegate.releases import Radii, Releases, Values

UNSEEN = 0.6  # of the variance of noise: one standard error of what 40 faded differences say of a walk
MOST_GROWN = 4.0  # times that a stream may move more than it did, because it has grown
NOWHERE = np.zeros((WALK, 0, 0))


class Held(Learning):
    """The noise of a measurement, and a movement since then that is learnt.

    Two measurements differ by their noise and by what the stream moved: E(z′ − z)² = D + both noise variances. So D is
    the mean of what noise does not explain of squared differences; of noise that steps share nothing is subtracted. All
    of D counts from the first step after a measurement: counts that scatter around a level have moved by it at once, a
    stream that walks by less. After more steps than measurements are apart on average D grows like the variance of a
    walk. To it comes what both noises would hide, half a standard error, and Student's quantiles where differences are
    few. Before there is any, the stream is taken to scatter as a count of so many grid units does by chance. At the step
    of a measurement only noise counts, and its law is exact.

    Parameters
    ----------
    columns, law, released
        As for every fold.
    rows
        Of the state, where there are more than those of a walk.
    """

    says_more = True
    some_columns = True  # whether a step may have measured some columns only

    def __init__(self, columns: int, law: AnyLaw, released: AnyLaw | None, rows: int = WALK) -> None:
        super().__init__(columns, law, released, rows)

    @property
    def subtracts(self) -> bool:
        """Whether noises of two measurements are independent, so that their variances add up."""
        return not isinstance(self.law, SharedLaw)

    def learn(self, state: State, releases: Releases) -> State:
        """Go through the measurements."""
        after = state.copy()
        self._follow(after, releases, NOWHERE)
        return after

    def _follow(self, state: State, releases: Releases, trace: Values) -> None:
        follow(
            state,
            releases.values,
            releases.status,
            releases.first_step,
            self.law.variance(releases.scale),
            self.subtracts,
            self.some_columns,
            trace,
        )

    def trace(self, state: State, releases: Releases) -> Values:
        """What is known after each step, rows × T × d."""
        trace = np.empty((WALK, *releases.values.shape))
        self._follow(state.copy(), releases, trace)
        return trace

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """The noise, and what has moved since the measurement."""
        trace = self.trace(state, releases)
        noise = self.noise(releases.scale, confidence)[:, np.newaxis] * self.share(trace)
        variance = self.law.variance(releases.scale)[:, np.newaxis]
        gap = releases.steps[:, np.newaxis] - trace[STEP]
        found = np.hypot(noise, self.moved(trace, gap, variance, confidence))
        found = np.where(trace[STEP] > 0, found, np.inf)
        return np.where(np.isnan(releases.values), np.nan, found)

    def errors(self, state: State, releases: Releases) -> Errors:
        """Steps that repeat a measurement share its noise, and half of the movement: the scatter of that step."""
        trace = self.trace(state, releases)
        variance = self.law.variance(releases.scale)[:, np.newaxis]
        gap = releases.steps[:, np.newaxis] - trace[STEP]
        moved = self.movement(trace, gap, variance)
        shared = np.where(trace[STEP] > 0, variance * self.share(trace) ** 2 + moved / 2, np.inf)
        return Errors(moved / 2, shared, self.carry(trace, gap), np.minimum(self.lasting(trace, gap), 1e300))

    def lasting(self, trace: Values, gap: Values) -> Values:
        """The square of what a trend has moved since the measurement, as far as it is no chance."""
        return np.asarray(self.trend(trace) * (gap * trace[COUNT] / np.maximum(trace[GAPS], 1.0)) ** 2)

    def trend(self, trace: Values) -> Values:
        """The square of the mean movement, as far as it is no chance."""
        count = np.maximum(trace[COUNT], 1.0)
        return np.asarray(np.maximum((trace[DRIFT] / count) ** 2 - trace[DIFFERENCES] / count**2, 0.0))

    def carry(self, trace: Values, gap: Values) -> Values:
        """A measurement has an error of its own; what repeats it has the same error."""
        return np.where(gap > 0, 1.0, 0.0)

    def moved(self, trace: Values, gap: Values, variance: Values, confidence: float) -> Values:
        """Half-widths for what the stream has moved in a gap since it was measured."""
        return np.sqrt(self.movement(trace, gap, variance)) * student(confidence, trace[COUNT])

    def movement(self, trace: Values, gap: Values, variance: Values) -> Values:
        """The variance of it."""
        count = trace[COUNT]
        chance = np.where(count > 0, 0.0, 2 * self.law.grid * np.abs(trace[VALUE]))
        longer = np.maximum(gap * count / np.maximum(trace[GAPS], 1.0), 1.0)
        # a stream that has grown moves more than it did
        grown = np.abs(trace[VALUE]) * count / np.maximum(trace[SIZES], self.law.grid)
        moved = (self.between(trace, variance) + chance) * longer * np.clip(grown, 1.0, MOST_GROWN)
        return np.where(gap > 0, moved, 0.0)

    def between(self, trace: Values, variance: Values) -> Values:
        """The variance of what the stream moves between two measurements."""
        count = trace[COUNT]
        return np.asarray(
            np.maximum(trace[SQUARES], 0.0) / np.maximum(count, 1.0) + variance / np.sqrt(count + 1.0)
        )

    def noise(self, scale: Values, confidence: float) -> Values:
        """Half-widths for the noise of a measurement."""
        return self.law.radius(scale, confidence)

    def share(self, trace: Values) -> Values | float:
        """Which part of a measurement's noise is left in what is released."""
        return 1.0

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """Better values of earlier steps lie between measurements on both sides."""
        return Radii(partial(self._radius_between, state.copy(), revised))

    def gaps(self, state: State, revised: Releases) -> Values:
        """How many steps better values are away from a measurement."""
        return np.asarray(np.abs(revised.steps - revised.source)[:, np.newaxis], dtype=np.float64)

    def _radius_between(self, state: State, revised: Releases, confidence: float) -> Values:
        trace, gap = state[:, np.newaxis, :], self.gaps(state, revised)
        noise = self.law.radius(revised.scale, confidence)[:, np.newaxis]
        variance = self.law.variance(revised.scale)[:, np.newaxis]
        found = np.hypot(noise, self.moved(trace, gap, variance, confidence))
        return np.where(state[STEP] > 0, found, np.inf)


class Filtered(Held):
    """The noise that a Kalman filter leaves, and the walk since the last measurement.

    In the long run the corrections of such a filter have the variance Q = q·gap of the walk itself, so the pace is the
    mean of squared changes of released values. The gain K that belongs to it solves K²·R + K·Q = Q for noise of variance
    R, and what is left of the noise is K·R. A filter that learns its pace from noisy differences cannot see a walk of
    less than a part of R between measurements, and stands still meanwhile; that much is added to Q. Columns that were
    measured together are taken to be alike: what they differ by is in no interval.
    """

    subtracts = False

    def between(self, trace: Values, variance: Values) -> Values:
        """The same of filtered values."""
        count = trace[COUNT]
        return np.asarray(
            trace[SQUARES] / np.maximum(count, 1.0) + variance / (count + 1.0) + UNSEEN * variance
        )

    def noise(self, scale: Values, confidence: float) -> Values:
        """As wide as its deviation says: filtered values lie between grid points, even where noise is mostly 0."""
        spread = spread_radius(np.sqrt(self.law.variance(scale)), confidence)
        return np.maximum(self.law.radius(scale, confidence), spread)

    def share(self, trace: Values) -> Values:
        """The root of the gain; the first measurement is taken as it is."""
        noise = trace[VARIANCE]
        ratio = self.between(trace, noise) / np.where(noise > 0, noise, 1.0)
        gain = (np.sqrt(ratio * ratio + 4 * ratio) - ratio) / 2
        return np.asarray(np.sqrt(np.where(trace[COUNT] > 0, gain, 1.0)))

    def lasting(self, trace: Values, gap: Values) -> Values:
        """A filter follows a trend late: by (1 − K)/K of what moves between two measurements."""
        gain = np.maximum(np.asarray(self.share(trace)) ** 2, 1e-6)
        late = (1 - gain) / gain + gap * trace[COUNT] / np.maximum(trace[GAPS], 1.0)
        return np.asarray(self.trend(trace) * late**2)

    def carry(self, trace: Values, gap: Values) -> Values:
        """A measurement corrects a part of the error, by the gain."""
        return np.where(gap > 0, 1.0, 1.0 - np.asarray(self.share(trace)) ** 2)
