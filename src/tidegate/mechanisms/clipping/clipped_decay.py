"""ClippedDecay: sums in which old values fade, of values whose bound is far above nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tidegate.exact import ExactLike, exact, proper
from tidegate.mechanisms.clipping.learned_clip import LearnedClip
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Event, WEvent
from tidegate.releases import Releases, Values


@dataclass(frozen=True)
class ClippedDecay(LearnedClip):
    """Release at every step Σ_j γ^j·x_{t−j}, of observations that are clipped at a learnt threshold.

    The first m observations buy a threshold; every later one is clipped at τ = min(r·τ̂, B), measured once with noise
    scaled to τ, and fades: what is released is γ times the sum before and the new value. Runs for ever.

    Parameters
    ----------
    policy
        `Event` or `WEvent`; ``max_change`` is B. One observation a step.
    lag, above, exceeding, multiplier, bound, per_doubling
        m and how the threshold is learnt; see :class:`ClippedSum`.
    factor
        γ, what is left of a value's weight after one step; above 0 and below 1.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed (`WEvent`: one in each of w steps). A step t ≤ m loses ε/w through
    the threshold and is in no sum; a later one ε/w through its value with noise of scale wτ/ε, once: fading is
    post-processing. Proof: docs/proofs/learned_clip.md. Values outside [0, B] are clipped. The state holds the first m
    values and then the last released sum.

    Departure: the paper names this statistic (section VIII) without working it out.

    Error
    -----
    `release.scale` is the standard deviation of the noise, √2·wτ/ε·√((1 − γ^2k)/(1 − γ²)) after k values. What clipping
    loses is in no release. Time O(1) a step, memory m values until step m, then O(1).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = ClippedDecay(Event(epsilon="1", max_change=1440), lag=1000, factor="0.9")
    >>> releases = Session(mechanism).push_batch([30] * 1500)
    >>> int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    (500, True)

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019, section VIII.
    Bolot, Fawaz, Muthukrishnan, Nikolov, Taft: Private decayed predicate sums on streams. ICDT 2013.
    """

    factor: ExactLike = "0.99"

    statistic: ClassVar[str] = "decayed"

    def validate(self) -> None:
        """Check the factor as well."""
        factor = proper("factor", exact("factor", self.factor), 'write for example factor="0.99"')
        object.__setattr__(self, "factor", factor)
        super().validate()

    def counter(self, clip: int) -> SlidingWindowTree:
        """Single values."""
        return SlidingWindowTree(self.policy_for(clip), window=1)

    def answers(self, counted: Releases, first: int, kept: Values) -> tuple[Values, Values, Values]:
        """Each sum from the one before."""
        gamma, unit = float(Fraction(self.factor)), float(Fraction(self.grid))
        sums, kept = _faded(counted.values[:, 0], gamma, kept)
        ages = np.arange(first, first + len(sums), dtype=np.float64)
        spread = np.sqrt((1 - gamma ** (2 * ages)) / (1 - gamma**2))
        return sums[:, np.newaxis] * unit, counted.scale * spread * unit, kept

    @property
    def fresh(self) -> Values:
        """Nothing has been added."""
        return np.zeros(1)

    def reach(self, clip: int, step: int) -> float:
        """The clip."""
        return clip * float(Fraction(self.grid))

    def ideal(self, steps: Values) -> Values:
        """The decayed sums of exact observations, 0 during the lag."""
        later = np.nan_to_num(steps[self.lag :, 0])
        faded = _faded(later, float(Fraction(self.factor)), self.fresh)[0]
        return np.concatenate([np.zeros_like(steps[: self.lag]), faded[:, np.newaxis]])

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        return [
            cls(event, lag=35, factor="0.9"),
            cls(event, lag=24, above=4, multiplier=2, grid="0.01"),
            cls(WEvent(epsilon="3", max_change=500, window=3), lag=41, exceeding="1/8", factor="1/3"),
        ]


def _faded(values: Values, gamma: float, before: Values) -> tuple[Values, Values]:
    """(γ·last + value at each step, what is left of the last one)."""
    from scipy.signal import lfilter  # slow to import, needed here only

    sums, left = lfilter([1.0], [1.0, -gamma], values, zi=before)
    return np.asarray(sums), np.asarray(left)
