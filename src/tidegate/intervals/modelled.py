"""Values of a model that releases how much it deviates, compared with its measurements."""

from __future__ import annotations

from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.intervals.fold import Errors, Learning, State
from tidegate.intervals.kernels import (
    AHEAD_AWAY,
    AHEAD_AWAY_SQUARES,
    AHEAD_CLAIMED,
    AHEAD_COUNT,
    AHEAD_ERRORS,
    AHEAD_PRECISION,
    AHEAD_SQUARES,
    AWAY,
    AWAY_SQUARES,
    FOLLOWED,
    FRESH_CLAIMED,
    FRESH_COUNT,
    FRESH_ERRORS,
    FRESH_SQUARES,
    LAST_VALUE,
    MODEL,
    PRECISION,
    PRODUCTS,
    SURPRISES,
    follow_model,
)
from tidegate.noise.law import AnyLaw
from tidegate.releases import Radii, Releases, Status, Values

# standard errors of a variance that intervals add to it: of values that stand out, and of those that noise hides among
# columns that share hyper-parameters, because some of these are larger than the others
STANDS_OUT, HIDDEN = 0.5, 2.0
NOWHERE = np.zeros((MODEL, 0, 0))
Mask = npt.NDArray[np.bool_]


class Learnt(NamedTuple):
    """What measurements say of errors: of those of measured steps, or of those of steps that are not measured.

    Attributes
    ----------
    square
        The mean squared error; as large as claimed where nothing is known.
    unsure
        The variance of that mean; infinite where nothing is known.
    claimed
        What the model claimed of the same steps.
    bias
        The mean of what measurements are beyond values.
    chance
        The variance that it has by chance.
    """

    square: Values
    unsure: Values
    claimed: Values
    bias: Values
    chance: Values


FRESH = (FRESH_ERRORS, FRESH_SQUARES, FRESH_CLAIMED, FRESH_COUNT, AWAY, AWAY_SQUARES, PRECISION)
AHEAD = (
    AHEAD_ERRORS,
    AHEAD_SQUARES,
    AHEAD_CLAIMED,
    AHEAD_COUNT,
    AHEAD_AWAY,
    AHEAD_AWAY_SQUARES,
    AHEAD_PRECISION,
)


def learnt(state: Values, rows: tuple[int, ...], claimed: Values) -> Learnt:
    """From the sums of a state, or of a trace of states."""
    errors, squares, before, weight, away, away_squares, precision = (state[row] for row in rows)
    known, sure = weight > 0, precision > 0
    count, precision = np.where(known, weight, 1.0), np.where(sure, precision, 1.0)
    # squared noise has twice its squared variance, where it is Gaussian
    unsure = np.where(known, np.maximum(2.0 / count, squares / count**2), np.inf)
    mean, before = np.where(known, errors / count, 0.0), np.where(known, before / count, claimed)
    return Learnt(
        mean,
        unsure,
        before,
        np.where(sure, away / precision, 0.0),
        np.where(sure, away_squares / precision**2, 0.0),
    )


def shown(found: Learnt, claimed: Values, usual: Values) -> tuple[Values, Values]:
    """What measurements show of a variance, and what is usual where they show little, each by its precision.

    What was beyond the claims of its time is added to the claim of now: a model that has since learnt from a jump claims
    it already, and one that claims less than before did not get better by that. Returns it with its standard error.
    """
    seen = 1.0 / found.unsure
    mean = found.square + claimed - found.claimed
    # a few columns are far from what is usual
    assumed = 1.0 / np.maximum(np.maximum(usual, mean - usual), 1e-9) ** 2
    sure = seen + assumed
    return (np.maximum(mean, 0.0) * seen + usual * assumed) / sure, 1.0 / np.sqrt(sure)


def gain_of(state: Values) -> Values:
    """Which part of a surprise values follow; all of it where nothing is known."""
    surprises = state[SURPRISES]
    followed = state[FOLLOWED] / np.where(surprises > 0, surprises, 1.0)
    return np.where(surprises > 0, np.clip(followed, 0.0, 1.0), 1.0)


class Modelled(Learning):
    """What the model claims, and more where its measurements say that it is further off.

    A model of many columns has one deviation for columns of similar size, and some of them are further off than the
    others. The measurements of each column tell: E(v − x)² = E(y − v)² − R + 2·K·R, where K is the part of a surprise
    that values follow. Where this is more than what was claimed, intervals are wider by as much; so they
    are where measurements lie on one side of the values for long. While there are few
    measurements a count is taken to scatter around its level by chance, and noise may hide an error of its size.

    Parameters
    ----------
    columns, law
        As for every fold.
    """

    law: AnyLaw
    says_more = True

    def __init__(self, columns: int, law: AnyLaw, *, alike: bool = False) -> None:
        super().__init__(columns, law, None, MODEL)
        self._hidden = HIDDEN if alike else STANDS_OUT

    def _follow(self, state: State, releases: Releases, trace: Values) -> None:
        assert releases.readings is not None
        follow_model(
            state,
            releases.modelled,
            releases.readings,
            releases.fresh,
            self._claimed(releases),
            self.law.variance(releases.scale),
            self.law.grid**2,
            trace,
        )

    def _claimed(self, releases: Releases) -> Values:
        deviation = releases.deviation
        assert deviation is not None
        return np.where(np.isfinite(deviation), deviation, 0.0) ** 2

    def learn(self, state: State, releases: Releases) -> State:
        """Compare measurements with values."""
        after = state.copy()
        self._follow(after, releases, NOWHERE)
        return after

    def _trace(self, state: State, releases: Releases) -> Values:
        """The state after each step."""
        trace = np.empty((MODEL, *releases.values.shape))
        self._follow(state.copy(), releases, trace)
        return trace

    def _parts(
        self, state: Values, values: Values, claimed: Values, fresh: Mask
    ) -> tuple[Values, Values, Values]:
        """The variance of the error of each value; how much of it may be the scatter of a count; and the mean error."""
        measured, ahead = learnt(state, FRESH, claimed), learnt(state, AHEAD, claimed)
        passed = ~fresh & np.isfinite(ahead.unsure)
        bias = np.where(passed, ahead.bias, measured.bias)
        chance = np.where(passed, ahead.chance, measured.chance)
        away, level = bias**2 + chance, np.abs(values + bias) + np.sqrt(chance)
        scatter = self.law.grid * level * np.where(fresh, (1 - gain_of(state)) ** 2, 1.0)
        usual = np.maximum(claimed, scatter + away)
        found, error = shown(measured, claimed, usual)
        later, later_error = shown(ahead, claimed, usual)
        more = passed & (later > found)
        found, error = np.where(more, later, found), np.where(more, later_error, error)
        out = np.clip(level / np.sqrt(9 * found) - 0.5, 0.0, 1.0)
        found = found + error * (STANDS_OUT * out + self._hidden * (1 - out))
        return np.maximum(found, claimed + away), scatter, bias

    def _known(self, state: State, releases: Releases) -> tuple[Values, Values, Values, Values]:
        """The state after each step, and what `_parts` says of it; infinite before anything was measured."""
        trace, fresh = self._trace(state, releases), releases.fresh[:, np.newaxis]
        found, scatter, bias = self._parts(trace, releases.modelled, self._claimed(releases), fresh)
        known = np.isfinite(np.asarray(releases.deviation))
        return trace, np.where(known, found, np.inf), scatter, bias

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """As wide as a Gaussian of that variance."""
        _, variance, _, _ = self._known(state, releases)
        return np.where(
            np.isnan(releases.values),
            np.nan,
            NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(variance),
        )

    def errors(self, state: State, releases: Releases) -> Errors:
        """Counts scatter from step to step; the level that a filter tracks is off by K·R, and fades by K.

        What else an error has may stay until the next measurement. Differences of measurements and values that follow
        each other are uncorrelated where a filter suits the stream; their covariance is the variance of errors that
        stay longer.
        """
        trace, variance, scatter, bias = self._known(state, releases)
        gain, count = gain_of(trace), trace[FRESH_COUNT]
        stays = np.where(count > 0, trace[PRODUCTS] / np.where(count > 0, count, 1.0), 0.0)
        lasting = np.minimum(bias**2, variance)
        rest = variance - lasting
        level = np.minimum(gain * self.law.variance(releases.scale)[:, np.newaxis], rest)
        known = np.isfinite(variance)
        left = np.where(known, rest - level, 0.0)
        # errors that are less than the scatter of a count are none
        own = left * np.minimum(scatter / np.maximum(left, 1e-9), left / np.maximum(scatter, 1e-9))
        shared = rest - own
        slow = np.clip(stays - lasting, 0.0, np.where(known, shared - level, 0.0))
        fades = ((1 - gain) * level + slow) / np.where(shared > 0, shared, 1.0)
        carry = np.where(releases.fresh[:, np.newaxis], np.where(known, fades, 0.0), 1.0)
        return Errors(own, shared, carry, lasting)

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """To what the model claims comes what errors of first values have beyond it, as far as is known by now."""
        return Radii(partial(self._radius_of_smoothed, state.copy(), revised))

    def _radius_of_smoothed(self, state: State, revised: Releases, confidence: float) -> Values:
        fresh = np.equal(revised.status, Status.FRESH)[:, np.newaxis]
        claimed, now = (
            self._claimed(revised),
            state[FRESH_CLAIMED] / np.where(state[FRESH_COUNT] > 0, state[FRESH_COUNT], 1.0),
        )
        found, _, _ = self._parts(state[:, np.newaxis], state[LAST_VALUE], now[np.newaxis], fresh)
        wide = claimed + np.maximum(found - now, 0.0)
        variance = np.where(np.isfinite(np.asarray(revised.deviation)), wide, np.inf)
        half = NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(variance)
        return np.where(np.isnan(revised.values), np.nan, half)
