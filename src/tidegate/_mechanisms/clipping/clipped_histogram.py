"""ClippedHistogram: how values are distributed, in bins that end where values do."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate._mechanisms.clipping.learned_clip import LearnedClip
from tidegate._mechanisms.counters.hybrid_tree import HybridTree
from tidegate._mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.clipping import clipped_histogram as configured


@dataclass(frozen=True)
class ClippedHistogram(LearnedClip, configured.ClippedHistogram):
    """Counts in bins up to the clip; :class:`tidegate.mechanisms.ClippedHistogram` has parameters and privacy.

    `edges(clip)` are the lower ends of the bins, for a clip in grid units.
    """

    def counter(self, clip: int) -> HybridTree | SlidingWindowTree:
        """Counts of all bins, of which a changed observation changes two."""
        policy = self.policy_for(1, "replace")
        if self.window is None:
            return HybridTree(policy, columns=self.outputs)
        return SlidingWindowTree(policy, columns=self.outputs, window=self.window)
