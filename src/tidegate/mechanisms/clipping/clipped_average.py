"""ClippedAverage: averages over a sliding window, of values whose bound is far above nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from tidegate.exact import whole
from tidegate.mechanisms.clipping.learned_clip import LearnedClip
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Event, WEvent
from tidegate.releases import Releases, Values


@dataclass(frozen=True)
class ClippedAverage(LearnedClip):
    """Release at every step the average of the last `window` observations, clipped at a learnt threshold.

    The first m observations buy a threshold; every later one is clipped at τ = min(r·τ̂, B), and the average over the
    last n of them (over fewer at the beginning) has noise scaled to τ. Short windows add up values with noise of their
    own, long ones take sums of a :class:`SlidingWindowTree`, whichever has less noise, a public fact. Runs for ever.

    Parameters
    ----------
    policy
        `Event` or `WEvent`; ``max_change`` is B. One observation a step.
    lag, above, exceeding, multiplier, bound, per_doubling
        m and how the threshold is learnt; see :class:`ClippedSum`.
    window
        n, the observations of an average.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed (`WEvent`: one in each of w steps). A step t ≤ m loses ε/w through
    the threshold and is in no average; a later one ε/w through the counter, whose values lie in [0, τ]: noise of scale
    wτ/ε on each value, or of wτ·⌈log₂ n⌉/ε on each node. The number of observations in a window is public. Proof:
    docs/proofs/learned_clip.md. Values outside [0, B] are clipped. The state holds
    the first m values and then what the counter keeps: protect it like data.

    Departure: the paper names this statistic (section VIII) without working it out.

    Error
    -----
    `release.scale` is the standard deviation of the average's noise: √2·wτ/(ε√n) with noise on each value. What clipping
    loses is in no release. Time O(log n) a step, memory m values until step m, then O(n).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = ClippedAverage(Event(epsilon="1", max_change=1440), lag=1000, window=60)
    >>> releases = Session(mechanism).push_batch([30] * 1500)
    >>> int(releases.fresh.sum()), bool(releases.clip[-1] < 1440)
    (500, True)

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019, section VIII.
    """

    window: int = 24

    statistic: ClassVar[str] = "averages"

    def validate(self) -> None:
        """Check the window as well."""
        object.__setattr__(self, "window", whole("window", self.window, most=2**24))
        super().validate()

    @cached_property
    def adds_values(self) -> bool:
        """Whether values with noise of their own, added up, have less noise than a tree: for short windows."""
        policy = self.policy_for(1)
        tree, value = (SlidingWindowTree(policy, window=length) for length in (self.window, 1))
        return bool(np.mean(tree.deviations) >= value.deviations[0] * np.sqrt(self.window))

    def counter(self, clip: int) -> SlidingWindowTree:
        """Sums of windows, or single values."""
        return SlidingWindowTree(self.policy_for(clip), window=1 if self.adds_values else self.window)

    def answers(self, counted: Releases, first: int, kept: Values) -> tuple[Values, Values, Values]:
        """Sums of windows over the number of their observations."""
        unit = float(Fraction(self.grid))
        sizes = np.minimum(np.arange(first, first + len(counted)), self.window).astype(np.float64)
        sums, deviations = counted.values[:, 0], counted.scale
        if self.adds_values:
            known = np.concatenate([kept, sums])  # whole numbers: their sums are exact
            total = np.concatenate([[0.0], np.cumsum(known)])
            ends = np.arange(len(kept) + 1, len(known) + 1)
            sums, deviations = total[ends] - total[ends - sizes.astype(np.int64)], deviations * np.sqrt(sizes)
            kept = known[max(0, len(known) - self.window + 1) :]
        return (sums / sizes * unit)[:, np.newaxis], deviations / sizes * unit, kept

    def reach(self, clip: int, step: int) -> float:
        """The clip, over the observations of the window."""
        return clip * float(Fraction(self.grid)) / min(step, self.window)

    def ideal(self, steps: Values) -> Values:
        """The averages of exact observations, 0 during the lag."""
        later = steps[self.lag :]
        total = np.concatenate([np.zeros_like(steps[:1]), np.nancumsum(later, axis=0)])
        ends = np.arange(1, len(later) + 1)
        sizes = np.minimum(ends, self.window)
        averages = (total[ends] - total[ends - sizes]) / sizes[:, np.newaxis]
        return np.concatenate([np.zeros_like(steps[: self.lag]), averages])

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        return [
            cls(event, lag=35, window=5),
            cls(event, lag=24, above=4, window=400, multiplier="1.5", grid="0.01"),
            cls(WEvent(epsilon="3", max_change=500, window=3), lag=41, above=5, bound="unknown", window=7),
        ]
