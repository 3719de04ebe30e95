"""ClippedDecay: sums in which old values fade, of values whose bound is far above nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate._mechanisms.clipping.learned_clip import LearnedClip
from tidegate._mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.clipping import clipped_decay as configured


@dataclass(frozen=True)
class ClippedDecay(LearnedClip, configured.ClippedDecay):
    """Sums that fade by observation; :class:`tidegate.mechanisms.ClippedDecay` has parameters and privacy."""

    def counter(self, clip: int) -> SlidingWindowTree:
        """Single values."""
        return SlidingWindowTree(self.policy_for(clip), window=1)
