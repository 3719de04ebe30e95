"""Values of a model that releases how much it deviates, compared with its measurements."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from tidegate.intervals.fold import Errors, Learning, State
from tidegate.intervals.kernels import (
    BIAS,
    BIAS_AHEAD,
    CHANCE,
    CHANCE_AHEAD,
    CLAIMED,
    CLAIMED_AHEAD,
    GAIN,
    LEARNT,
    MODEL,
    SHOWN,
    SHOWN_AHEAD,
    SLOW,
    UNSURE,
    UNSURE_AHEAD,
    follow_model,
)
from tidegate.noise.law import AnyLaw
from tidegate.releases import Radii, Releases, Values

# standard errors of a variance that intervals add to it: of values that stand out, and of those that noise hides among
# columns that share hyper-parameters, because some of these are larger than the others
STANDS_OUT, HIDDEN = 0.5, 1.5
NOWHERE = np.zeros((LEARNT, 0, 0))


def shown(found: Values, claimed: Values, usual: Values) -> tuple[Values, Values]:
    """What measurements show of a variance, and what is usual where they show little, each by its precision.

    Returns it with its standard error.
    """
    mean, of, unsure = found
    ratio = claimed / np.where(of > 0, of, 1.0)
    seen = 1.0 / (unsure * np.maximum(ratio, 1e-9) ** 2)
    # a few columns are far from what is usual
    assumed = 1.0 / np.maximum(np.maximum(usual, mean * ratio - usual), 1e-9) ** 2
    sure = seen + assumed
    return (np.maximum(mean * ratio, 0.0) * seen + usual * assumed) / sure, 1.0 / np.sqrt(sure)


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

    def __init__(self, columns: int, law: AnyLaw, *, alike: bool = False) -> None:
        super().__init__(columns, law, None, MODEL)
        self._hidden = HIDDEN if alike else STANDS_OUT

    def _follow(self, state: State, releases: Releases, out: Values) -> None:
        assert releases.readings is not None
        follow_model(
            state,
            releases.values,
            releases.readings,
            releases.fresh,
            self._claimed(releases),
            self.law.variance(releases.scale),
            self.law.grid**2,
            out,
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

    def _parts(self, state: State, releases: Releases) -> tuple[Values, Values, Values]:
        """The variance of the error of each value, how much of it may be the scatter of a count, and what was learnt."""
        learnt = np.empty((LEARNT, *releases.values.shape))
        self._follow(state.copy(), releases, learnt)
        claimed, fresh = self._claimed(releases), releases.fresh[:, np.newaxis]
        bias = np.where(fresh, learnt[BIAS], learnt[BIAS_AHEAD])
        chance = np.where(fresh, learnt[CHANCE], learnt[CHANCE_AHEAD])
        away, level = bias**2 + chance, np.abs(releases.values + bias) + np.sqrt(chance)
        scatter = self.law.grid * level * np.where(fresh, (1 - learnt[GAIN]) ** 2, 1.0)
        usual = np.maximum(claimed, scatter + away)
        found, error = shown(learnt[[SHOWN, CLAIMED, UNSURE]], claimed, usual)
        ahead, error_ahead = shown(learnt[[SHOWN_AHEAD, CLAIMED_AHEAD, UNSURE_AHEAD]], claimed, usual)
        more = ~fresh & np.isfinite(learnt[UNSURE_AHEAD]) & (ahead > found)
        found, error = np.where(more, ahead, found), np.where(more, error_ahead, error)
        out = np.clip(level / np.sqrt(9 * found) - 0.5, 0.0, 1.0)
        found = found + error * (STANDS_OUT * out + self._hidden * (1 - out))
        found = np.maximum(found, claimed + away)
        known = np.isfinite(np.asarray(releases.deviation))
        return np.where(known, found, np.inf), scatter, learnt

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """As wide as a Gaussian of that variance."""
        variance, _, _ = self._parts(state, releases)
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
        variance, scatter, learnt = self._parts(state, releases)
        gain = learnt[GAIN]
        bias = np.where(releases.fresh[:, np.newaxis], learnt[BIAS], learnt[BIAS_AHEAD])
        lasting = np.minimum(bias**2, variance)
        rest = variance - lasting
        level = np.minimum(gain * self.law.variance(releases.scale)[:, np.newaxis], rest)
        known = np.isfinite(variance)
        left = np.where(known, rest - level, 0.0)
        # errors that are less than the scatter of a count are none
        own = left * np.minimum(scatter / np.maximum(left, 1e-9), left / np.maximum(scatter, 1e-9))
        shared = rest - own
        slow = np.clip(learnt[SLOW] - lasting, 0.0, np.where(known, shared - level, 0.0))
        fades = ((1 - gain) * level + slow) / np.where(shared > 0, shared, 1.0)
        carry = np.where(releases.fresh[:, np.newaxis], np.where(known, fades, 0.0), 1.0)
        return Errors(own, shared, carry, lasting)

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """As the model claims."""
        return None
