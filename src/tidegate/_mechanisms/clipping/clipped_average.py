"""ClippedAverage: averages over a sliding window, of values whose bound is far above nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate._mechanisms.clipping.learned_clip import LearnedClip
from tidegate._mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.clipping import clipped_average as configured


@dataclass(frozen=True)
class ClippedAverage(LearnedClip, configured.ClippedAverage):
    """Averages of the last observations; :class:`tidegate.mechanisms.ClippedAverage` has parameters and privacy."""

    def counter(self, clip: int) -> SlidingWindowTree:
        """Sums of windows, or single values."""
        return SlidingWindowTree(self.policy_for(clip), window=1 if self.adds_values else self.window)
