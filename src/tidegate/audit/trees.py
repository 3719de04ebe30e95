"""Small decision trees on binned features: what tells two streams apart only together with something else.

The additive classifier of `events` weighs each feature for itself. A difference that means one thing under a small noise
scale and another under a large one, or a decision that is surprising only after what was seen before it, needs a rule of
several features. Trees are grown one after the other on what the additive score leaves unexplained (gradient boosting).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import kernels

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TREES, DEPTH = 40, 3
RATE, RIDGE = 0.2, 2.0
LEAST = 0.01  # of all transcripts, and at least FEWEST of them, are on each side of a question
FEWEST = 12
MOST = 40_000  # transcripts from which trees are grown


@dataclass(frozen=True)
class Trees:
    """Questions, from the root level by level, and what each end of them counts.

    Attributes
    ----------
    features, cuts
        For each tree and question: the feature, and the last bin of the left side; −1 where nothing is asked.
    counts
        For each tree and end, how much it adds to the score.
    """

    features: Integers
    cuts: Integers
    counts: Floats

    def add(self, codes: Any, scores: Floats) -> None:
        """Add what the trees say of each transcript to its score."""
        kernels.add_trees(codes, self.features, self.cuts, self.counts, scores)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {name: getattr(self, name).tolist() for name in ("features", "cuts", "counts")}

    @classmethod
    def read(cls, described: dict[str, Any]) -> Trees:
        """What `describe` wrote."""
        asked = [np.array(described[name], dtype=np.int64) for name in ("features", "cuts")]
        return cls(asked[0], asked[1], np.array(described["counts"], dtype=np.float64))


def grow(codes: Any, labels: Floats, scores: Floats) -> Trees:
    """Trees that explain what `scores` leaves open; transcripts of both sides stand side by side, as many of each."""
    half = codes.shape[1] // 2
    some = min(half, MOST // 2)
    chosen = np.concatenate([np.arange(some), half + np.arange(some)])
    few = np.ascontiguousarray(codes[:, chosen])
    asked = (1 << DEPTH) - 1
    trees = Trees(
        np.full((TREES, asked), -1, dtype=np.int64),
        np.zeros((TREES, asked), dtype=np.int64),
        np.zeros((TREES, 1 << DEPTH)),
    )
    least = max(FEWEST, int(LEAST * len(chosen)))
    kernels.grow_trees(
        few, labels[chosen], scores[chosen], RATE, RIDGE, least, trees.features, trees.cuts, trees.counts
    )
    return trees
