"""Budget Distribution (BD): each publication takes half of what the window has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.kernels import DISTRIBUTION
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import Event, WEvent

FINENESS = 30  # binary places of a publication's share of the pool


def units_offered(published: Sequence[int], pool: int) -> int:
    """The rule of the paper in whole units: how many a publication would spend; 0: it is skipped.

    Half of what the w − 1 steps before have left of the window's pool, rounded down. What leaves the window is there
    again. The compiled loop has the same rule and is compared with this one.

    Parameters
    ----------
    published
        What each of the last w − 1 steps spent on its publication.
    pool
        What the publications of a window may spend.

    Examples
    --------
    >>> units_offered([], pool=64), units_offered([32, 0, 16], pool=64), units_offered([0, 16, 8], pool=64)
    (32, 8, 20)
    """
    return (pool - sum(published)) // 2


@dataclass(frozen=True)
class BudgetDistribution(Publishing):
    """Spend half of the window's remaining budget on each publication, and recycle what leaves the window.

    At each step a noisy dissimilarity between the step and the last publication is compared with the error that
    a new publication would have. Streams that change rarely get accurate publications; where every step
    differs the budget decreases exponentially and :class:`BudgetAbsorption` is the better choice. How much a publication
    takes is :func:`units_offered`.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity, groups, regroup_every, shift, pan_private, calibration, step_columns, noise
        As for :class:`Publishing`.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or event level as w = 1). Half of ε pays for the dissimilarities,
    ε/(2w) at each step, or for all of a window together where they share noise (docs/noise.md); a publication at step i
    spends half of ε/2 minus what the last w − 1 steps spent, so the window's
    publications never exceed ε/2 (w-event paper, Theorem 4; docs/proofs/budget_distribution.md).
    Departures from the paper: the half is rounded DOWN to a unit of the ledger, because exact denominators double with
    each publication, and a publication that rounds to nothing is skipped; a row that may change column has
    Δ = 2; before the first publication the release is 0. Groups of columns share one pool.

    Error
    -----
    :meth:`expected_error` is the bound of Theorem 6. Time O(d) a step, memory 3 vectors of d and the publications of
    the last w steps.

    Examples
    --------
    >>> import numpy as np
    >>> run = BudgetDistribution(WEvent(epsilon="1", w=120), columns=3).start()
    >>> releases = run.push_batch(np.full((500, 3), 40))
    >>> releases.values.shape, run.ledger.verify().ok
    ((500, 3), True)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    kind: ClassVar[int] = DISTRIBUTION

    @property
    def separate_shares(self) -> tuple[int, int, int]:
        """`shares` where every test is charged for itself."""
        w, d = self.window, self.columns
        if self.pan_private == SINGLE:  # a pool of ε/3 (printed: ε/2), and ε/6 kept for the intrusion
            fine = 1 << max(0, min(FINENESS, 46 - w.bit_length()))
            return 6 * w * fine, 3 * fine, (2 if self.enforced else 3) * w * fine
        if not self.shift:
            fine = 1 << max(0, min(FINENESS, 48 - w.bit_length()))
            return 2 * w * fine, fine, w * fine
        fine = 1 << max(0, min(FINENESS, 48 - d.bit_length()))
        pool = d if self.calibration == "paper" else d - w  # printed: the pool is not re-budgeted
        return d * fine, fine, pool * fine

    @property
    def reserve(self) -> int:
        """An unnoticed intrusion costs at most half of the pool: as much in every window, spread over its steps."""
        return self.shares[2] // (2 * self.window) if self.pan_private == SINGLE and self.enforced else 0

    def printed_loss(self) -> Fraction | None:
        """How many times ε the printed calibration loses."""
        if self.pan_private == SINGLE:
            return Fraction(7, 6)
        return 1 + Fraction(self.window, self.columns) if self.shift else None

    def error_bound(self, publications: int) -> float:
        """Theorem 6: a bound on the mean absolute error of a column per step.

        Parameters
        ----------
        publications
            How many publications m occur in a window.
        """
        grid = float(Fraction(self.grid))
        half = 2 * self.whole_scale / self.shares[2] * grid  # the scale of a window's first publication
        return half * (2.0**publications - 1) / publications + self.score_scale * grid / self.columns

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", w=5), columns=3),
            cls(WEvent(epsilon="4", w=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="2", w=1), columns=20, grid="0.5"),
            cls(WEvent(epsilon="3", w=6), columns=18, groups=4, regroup_every=7),
            cls(WEvent(epsilon="9", w=4, adjacency="replace"), columns=20, shift=True),
            cls(WEvent(epsilon="3", w=6, mobility="fixed", adjacency="replace"), columns=3, groups=3),
            cls(WEvent(epsilon="6", w=50)),
            cls(WEvent(epsilon="4", w=3), columns=2, pan_private="single"),
            cls(WEvent(epsilon="4", w=3), columns=2, pan_private="announced"),
            cls(Event(epsilon="1")),
        ]
