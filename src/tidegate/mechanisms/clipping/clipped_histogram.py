"""ClippedHistogram: how values are distributed, in bins that end where values do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidegate.core.mechanism import Matrix
from tidegate.exact import whole
from tidegate.mechanisms.clipping.learned_clip import LearnedClip
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Event, WEvent
from tidegate.releases import Releases, Values


@dataclass(frozen=True)
class ClippedHistogram(LearnedClip):
    """Release at every step how many observations lie in each of `bins` bins up to a learnt threshold, and above it.

    A histogram whose bins reach to a cautious bound B has nearly all values in its first ones. Here the first m
    observations buy a threshold τ = min(r·τ̂, B), public from then on; every later one is counted in its bin below τ or in
    the one above. `edges(clip)` are the lower ends of the bins, for a clip in grid units. Counts are of all observations
    since, or of the last `window`. Runs for ever. For use from Python: a configuration file has one value a column.

    Parameters
    ----------
    policy
        `Event` or `WEvent`; ``max_change`` is B. One observation a step.
    lag, above, exceeding, multiplier, bound, per_doubling
        m and how the threshold is learnt; see :class:`ClippedSum`.
    bins
        The number of bins between 0 and τ; a release has one value more, for what lies above.
    window
        Count the last so many observations; None counts all since the lag.

    Privacy
    -------
    One value in [0, B] replaced, or added or removed (`WEvent`: one in each of w steps). A step t ≤ m loses ε/w through
    the threshold and is in no bin. A later one moves from one bin to another, or, where it was absent, from the bin of 0:
    two counts by one each, Δ = 2, and a counter of that sensitivity loses ε/w a step (:class:`HybridTree`, or
    :class:`SlidingWindowTree`). Edges are functions of τ̂. Proof: docs/proofs/learned_clip.md. Values outside [0, B] are
    clipped. The state holds the first m values and then what the counter keeps.

    Departure: the paper names this statistic (section VIII) without working it out.

    Error
    -----
    `release.scale` is the standard deviation of each count, that of the counter with Δ = 2; clipping loses nothing but
    where above τ a value lies. Time O(bins) a step on average, memory m values until step m.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = ClippedHistogram(Event(epsilon="1", max_change=1440), lag=1000, bins=8)
    >>> releases = Session(mechanism).push_batch(np.arange(1500) % 40)
    >>> releases.values.shape, len(mechanism.edges(int(releases.clip[-1])))
    ((1500, 9), 9)

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019, section VIII.
    """

    bins: int = 16
    window: int | None = None

    statistic: ClassVar[str] = "histograms"

    def validate(self) -> None:
        """Check the bins and the window as well."""
        object.__setattr__(self, "bins", whole("bins", self.bins, most=2**16))
        if self.window is not None:
            object.__setattr__(self, "window", whole("window", self.window, most=2**24))
        super().validate()

    @property
    def outputs(self) -> int:
        """The bins up to the threshold, and the one above."""
        return self.bins + 1

    def counter(self, clip: int) -> HybridTree | SlidingWindowTree:
        """Counts of all bins, of which a changed observation changes two."""
        policy = self.policy_for(1, "replace")
        if self.window is None:
            return HybridTree(policy, columns=self.outputs)
        return SlidingWindowTree(policy, columns=self.outputs, window=self.window)

    def edges(self, clip: int) -> Values:
        """The lower ends of all bins, in grid units; the last is the threshold."""
        return np.linspace(0.0, clip, self.outputs)

    def entered(self, clipped: Matrix, clip: int) -> Matrix:
        """A 1 in the bin of each observation."""
        rows = np.zeros((len(clipped), self.outputs), dtype=np.int64)
        rows[np.arange(len(clipped)), clipped[:, 0] * self.bins // clip] = 1
        return rows

    def answers(self, counted: Releases, first: int, kept: Values) -> tuple[Values, Values, Values]:
        """The counts."""
        return counted.values, counted.scale, kept

    def reach(self, clip: int, step: int) -> float:
        """Two counts by one each."""
        return 2.0

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        event = Event(epsilon="1", max_change=500)
        return [
            cls(event, lag=35, bins=3),
            cls(event, lag=24, above=4, bins=5, window=12, grid="0.01"),
            cls(WEvent(epsilon="3", max_change=500, window=3, adjacency="replace"), lag=41, above=5, bins=1),
        ]
