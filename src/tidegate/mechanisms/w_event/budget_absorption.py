"""Budget Absorption (BA): skipped steps leave their budget to the next publication."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.kernels import ABSORPTION
from tidegate.mechanisms.w_event.pan_private import SINGLE
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import Event, WEvent


def shares_offered(step: int, latest: int, taken: int, window: int) -> int:
    """The rule of the paper in whole shares: how many a publication at this step would spend; 0: the step is nullified.

    The last publication, at step l, spent n_l shares: its own, and those of steps that were skipped before it or come
    after it. The n_l − 1 steps after it repay them, and are nullified. A step i that is not absorbs the shares that
    nobody has used since, n = min(i − l − n_l + 1, w). Before the first publication l = 0 and n_l = 1.

    The compiled loop has the same rule and is compared with this one.

    Parameters
    ----------
    step
        The step i.
    latest, taken
        The step l of the last publication, and its shares n_l.
    window
        The w of the policy.

    Examples
    --------
    >>> [shares_offered(step, latest=10, taken=3, window=4) for step in range(11, 19)]
    [0, 0, 1, 2, 3, 4, 4, 4]
    """
    waited = step - latest
    if waited <= taken - 1:
        return 0
    return min(waited - taken + 1, window)


@dataclass(frozen=True)
class BudgetAbsorption(Publishing):
    """Give every step the same share, let a publication absorb the shares of skipped steps, and repay afterwards.

    At each step a noisy dissimilarity between the step and the last publication is compared with the error that
    a new publication would have. A publication spends its own share and those of the steps skipped since the last one
    (n shares, at most w), and the n − 1 steps after it are nullified: they cannot publish (:func:`shares_offered`).

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity, groups, regroup_every, shift, pan_private, calibration, step_columns, noise
        As for :class:`Publishing`.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or event level as w = 1). Half of ε pays for the dissimilarities,
    ε/(2w) at each step, or for all of a window together where they share noise (docs/noise.md); the other half is counted
    in whole units u = ε/(2w): a publication spends n·u. Any w
    consecutive steps publish at most w·u (w-event paper, Theorem 5, proved for the integer rule in
    docs/proofs/budget_absorption.md).
    Departures from the paper: the budget in line 5 is that of the LAST publication, as the prose says (read
    literally, with ``calibration="paper"``, it loses up to 1.5 ε); counted in integers, because in floating point the
    number of nullified steps can be off by one; a row that may change column has Δ = 2; before the first
    publication the release is 0. Groups of columns share one account (independent ones lose up to (w/2 + ½)ε).

    Error
    -----
    :meth:`expected_error` is the bound of Theorem 7. Time O(d) a step, memory 3 vectors of d.

    Examples
    --------
    >>> run = BudgetAbsorption(WEvent(epsilon="1", w=120), columns=3).start()
    >>> releases = run.push_batch(np.full((500, 3), 40))
    >>> releases.values.shape, run.ledger.verify().ok
    ((500, 3), True)

    References
    ----------
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    kind: ClassVar[int] = ABSORPTION
    calibrations: ClassVar[tuple[str, ...]] = ("sound", "paper", "paper-float")

    @property
    def separate_shares(self) -> tuple[int, int, int]:
        """`shares` where every test is charged for itself."""
        w, d = self.window, self.columns
        if self.pan_private == SINGLE:  # shares of ε/(4w): a quarter of ε is kept for the intrusion
            return 4 * w, 2, w
        if not self.shift:
            return 2 * w, 1, w
        if (
            self.calibration == "paper"
        ):  # ε/d for each test, but the pool is not re-budgeted: it takes all of ε
            return d * w, w, d * w
        return d * w, w, (d - w) * w

    @property
    def reserve(self) -> int:
        """An unnoticed intrusion costs at most the w shares of one publication: one share a step."""
        return 1 if self.pan_private == SINGLE and self.enforced else 0

    def repaid(self) -> npt.NDArray[np.int64]:
        """Line 5 read literally never repays; in floating point ε_{l,2}/(ε/2w) − 1 may be one short."""
        if self.calibration == "paper" and self.group_count == 1 and not self.shift and not self.pan_private:
            return np.ones(self.window + 1, dtype=np.int64)
        if self.calibration == "paper-float":
            shares = np.arange(self.window + 1)
            share = float(self.policy.budget.total) / (2 * self.window)
            return np.maximum((share * shares / share - 1).astype(np.int64) + 1, 1)
        return super().repaid()

    def printed_loss(self) -> Fraction | None:
        """How many times ε the printed calibration loses."""
        if self.calibration == "paper-float":
            return Fraction(9, 8)
        if self.pan_private:
            return None
        if self.shift:
            return 1 + Fraction(self.window, self.columns)
        if self.group_count > 1:
            return Fraction(self.window + 1, 2)
        return Fraction(3 * self.window - 1, 2 * self.window)

    def error_bound(self, absorbed: float, nullified_error: float = 0.0) -> float:
        """Theorem 7: a bound on the mean absolute error of a column per step.

        Parameters
        ----------
        absorbed
            The mean number α of shares that a publication absorbs.
        nullified_error
            The mean error of a nullified step, which depends on the data alone.
        """
        grid = float(Fraction(self.grid))
        whole, count = int(absorbed), absorbed + 1
        harmonic = sum(1 / k for k in range(1, whole + 2)) + (absorbed - whole) / (whole + 2)
        share = self.whole_scale / (self.shares[2] / self.window) * grid
        published = (share * harmonic + absorbed * nullified_error) / (absorbed + count)
        return published + self.score_scale * grid / self.columns

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", w=5), columns=3),
            cls(WEvent(epsilon="4", w=5), columns=3, noise="laplace"),
            cls(WEvent(epsilon="8", w=12), noise="cube"),
            cls(WEvent(epsilon="1/3", w=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(WEvent(epsilon="3", w=6), columns=18, groups=4, regroup_every=7),
            cls(
                WEvent(epsilon="3", w=3),
                columns=8,
                groups=((0, 2, 4), (1, 3, 5, 6), (7,)),
                dissimilarity="largest",
            ),
            cls(WEvent(epsilon="9", w=4), columns=20, shift=True),
            cls(WEvent(epsilon="3", w=6, mobility="fixed"), columns=5, groups=2),
            cls(WEvent(epsilon="3", w=6, mobility="fixed", adjacency="replace"), columns=2, groups=2),
            cls(WEvent(epsilon="4", w=3), columns=2, pan_private="single"),
            cls(WEvent(epsilon="4", w=3), columns=2, pan_private="announced"),
            cls(Event(epsilon="1")),
        ]
