"""BinaryTree: running sums of a stream of known length, with an error that grows like a power of log n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.core.charges import Charges
from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.mechanisms.counters.tree import Block, State, TreeCounter, refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import prepare
from tidegate.policy import Event, Policy, User, WEvent

LONGEST = 1 << 40


def levels_of(steps: int, branching: int = 2) -> int:
    """The levels of a tree over so many steps: ⌊log_b n⌋ + 1.

    Examples
    --------
    >>> [levels_of(steps) for steps in (1, 2, 3, 4, 1023, 1024)]
    [1, 2, 2, 3, 10, 11]
    """
    levels, size = 1, branching
    while size <= steps:
        levels, size = levels + 1, size * branching
    return levels


@dataclass(frozen=True)
class BinaryTree(TreeCounter):
    """Release the running sum after every step, for at most `horizon` steps.

    Steps are the leaves of a tree; every node's sum is measured once, when its last leaf has arrived, and a running
    sum is put together from at most b − 1 nodes on each of ⌊log_b n⌋ + 1 levels. Each measurement is averaged with
    what the nodes below it say (Honaker), which uses every node released so far and costs no budget.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`. For a sum of values in [0, B] the policy has ``max_change`` = B.
    branching
        Children of a node, 2 by default; the error is nearly flat between 2 and 6 under ε, and 2 to 3 is best under ρ.
    estimator
        "honaker" (default) or "plain", the papers' estimator, for comparison.
    horizon
        The number n of steps, public; by default the policy's. A step beyond it is refused before anything is charged.

    Privacy
    -------
    Unit and neighbours: the policy's. A step's value is in one node of each of L = ⌊log_b n⌋ + 1 levels, and every node
    has discrete Laplace noise of scale wLΔ/ε, so a step loses ε/w and a window of w steps ε (Dwork, Naor, Pitassi and
    Rothblum 2010; Chan, Shi and Song 2011). The printed scale log₂ n is one level short of that and is not used. Under
    ρ, Gaussian noise of σ² = wΔ²·Σ_l min(b^l, w)/(2ρ). A step is charged its whole loss when it is pushed.
    Averaging is post-processing. The state holds exact sums of nodes that are not complete yet: protect it like data.

    Error
    -----
    Unbiased; standard deviation (Σ_l digit_l(t)·v_l)^½ of one node's, with v_0 = 1 and v_l = b·v_{l−1}/(1 + b·v_{l−1});
    `expected_error(step)`, `standard_deviation(step)` and `radius(step)`, rounded up to the grid, need no data. Time
    O(d) a step on average, memory O(d·log n). A release's `scale` is the standard deviation of its running sum.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = BinaryTree(Event(epsilon="1", max_change=50), horizon=1_000_000)
    >>> mechanism.levels, mechanism.scale
    (20, 1000.0)
    >>> Session(mechanism).push_batch([12, 50, 7, 3]).values.shape
    (4, 1)
    >>> plain = BinaryTree(mechanism.policy, horizon=1_000_000, estimator="plain")
    >>> mechanism.standard_deviation(999_999) < 0.8 * plain.standard_deviation(999_999)
    True

    References
    ----------
    Dwork, Naor, Pitassi, Rothblum: Differential privacy under continual observation. STOC 2010.
    Chan, Shi, Song: Private and continual release of statistics. ACM TISSEC 2011.
    Honaker: Efficient use of differentially private binary trees. TPDP 2015.
    """

    horizon: int | None = None

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)

    def validate(self) -> None:
        """Check the horizon as well."""
        super().validate()
        horizon = self.horizon if self.horizon is not None else self.policy.horizon
        if horizon is None:
            raise InvalidParameter(
                "horizon",
                None,
                "the number of steps of the stream",
                f"give one, or use {self.endless} on an endless stream",
            )
        object.__setattr__(self, "horizon", whole("horizon", horizon, most=self.policy.horizon or LONGEST))
        prepare(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @property
    def endless(self) -> str:
        """What counts without a horizon under such a budget."""
        return "EndlessSum" if self._gaussian else "HybridTree"

    @property
    def long_run(self) -> int:
        """The horizon."""
        return self.length

    @property
    def length(self) -> int:
        """The horizon."""
        assert self.horizon is not None
        return self.horizon

    @property
    def levels(self) -> int:
        """⌊log_b n⌋ + 1."""
        return levels_of(self.length, self.branching)

    @property
    def scale(self) -> float:
        """The noise scale of each node in grid units: b of the Laplace, σ of the Gaussian; rounded up."""
        return self.scale_of(self.levels)

    def block(self, step: int) -> Block:
        """One tree for all steps."""
        return Block(0, 1, self.length, self.levels)

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, and the tree has `horizon` leaves."""
        refuse_beyond(self.length, state.trees.step, count, self.endless)
        return super().public(state, first, count)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1"), columns=3, horizon=2000),
            cls(Event(epsilon="1", adjacency="replace"), grid="0.01", branching=3, horizon=2000),
            cls(WEvent(epsilon="1", window=5), columns=2, branching=5, horizon=2000),
            cls(Event(rho="1/2"), horizon=2000, estimator="plain"),
            cls(WEvent(rho="1/2", window=7), columns=2, horizon=2000),
            cls(User(epsilon="2", horizon=5000)),
        ]
