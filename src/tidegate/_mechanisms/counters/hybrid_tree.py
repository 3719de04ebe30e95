"""HybridTree: running sums of a stream that never ends, by a larger tree whenever the last one is full."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate._mechanisms.counters.tree import TreeCounter
from tidegate.mechanisms.counters import hybrid_tree as configured


@dataclass(frozen=True)
class HybridTree(TreeCounter, configured.HybridTree):
    """Running sums for ever; :class:`tidegate.mechanisms.HybridTree` has parameters and privacy."""
