"""HybridTree: running sums of a stream that never ends."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.mechanisms.counters.tree import Block, TreeCounter
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import prepare
from tidegate.policy import Event, WEvent

LEVELS = 41  # of the block that 2^40 steps reach


@dataclass(frozen=True)
class HybridTree(TreeCounter):
    """Release the running sum after every step, for ever, by a new tree whenever the last one is full.

    Block j has b^j steps and a tree of j + 1 levels; the estimate of its root serves the block once it is finished.
    For b = 2 the blocks are the steps [2^j, 2^(j+1)).

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`. For a sum of values in [0, B] the policy has ``max_change`` = B.
    branching, estimator
        As for :class:`BinaryTree`.

    Privacy
    -------
    Unit and neighbours: the policy's. Blocks are disjoint sets of steps, so each has the whole budget: a step of block j
    is in one node of each of j + 1 levels, with discrete Laplace noise of scale w(j+1)Δ/ε, and loses ε/w; a window of w
    steps loses ε even where it straddles two blocks (Chan, Shi and Song 2011, hybrid mechanism, with the logarithmic
    counter replaced by the blocks' roots). Under ρ, σ_j² = wΔ²·Σ_{l≤j} min(b^l, w)/(2ρ). Refused under `User`: an endless
    stream has no user-level guarantee; use BinaryTree. The state holds exact sums of open nodes: protect it like data.

    Error
    -----
    Unbiased, with the closed forms of :class:`BinaryTree`; on average over a stream 0.9 to 1.1 times the error of a tree
    that had known the length under ε, 1.2 times under ρ (10³ to 10⁶ steps). Time O(d) a step on average,
    memory O(d·log t).

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = HybridTree(Event(epsilon="1"))
    >>> [mechanism.block(step).levels for step in (1, 2, 3, 4, 1023, 1024)]
    [1, 2, 2, 3, 10, 11]
    >>> len(Session(mechanism).push_batch([1] * 1000))
    1000

    References
    ----------
    Chan, Shi, Song: Private and continual release of statistics. ACM TISSEC 2011.
    Honaker: Efficient use of differentially private binary trees. TPDP 2015.
    """

    def validate(self) -> None:
        """Check that noise can be drawn for every block up to 2^40 steps."""
        super().validate()
        prepare(self.scale_of(LEVELS))

    def block(self, step: int) -> Block:
        """The block that contains a step."""
        number, first, size = 0, 1, 1
        while first + size <= step:
            number, first, size = number + 1, first + size, size * self.branching
        return Block(number, first, size, number + 1)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1"), columns=3),
            cls(Event(epsilon="1/2"), branching=4, estimator="plain"),
            cls(WEvent(epsilon="1", window=6), grid="0.01"),
            cls(WEvent(rho="1", window=3), columns=2),
        ]
