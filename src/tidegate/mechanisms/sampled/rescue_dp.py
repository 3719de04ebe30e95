"""RescueDP: adaptive sampling, adaptive budgets, groups of small columns and a filter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, one_of, positive, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.losses import noise_losses
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.mechanisms.sampled.kalman import Kalman, finite, switched
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.printed_times import Sampled
from tidegate.mechanisms.sampled.rescue_run import CONTROL, RescueRun
from tidegate.mechanisms.uncertainty import Filtered, Uncertainty, Walk
from tidegate.noise import Law
from tidegate.policy import User, WEvent
from tidegate.releases import Releases

FINEST = 2**20  # units of the budget: a portion of what remains is rounded down to one of them


@dataclass(frozen=True)
class RescueDP(Sampled):
    """Measure when the data move, spend by how long nothing was measured, and measure small columns in groups.

    A PID controller compares what the last measurements have changed with the noise that the next one would have,
    and chooses the next interval. A measurement after an interval I spends the portion min(φ·ln(I + 1), p_max) of
    what remains in the window. Columns that are small beside the noise and move alike are summed, measured
    once, and share the result. A Kalman filter smooths each column; between measurements it predicts.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    adaptive
        True, a :class:`Pid` with other settings, or False to measure at equal distances.
    allocation
        Whether budgets are adaptive; False spends the same, one of `samples` parts, on each measurement.
    grouping
        True, a :class:`Grouping` with other thresholds, or False to measure every column by itself.
    filter
        True, a :class:`Kalman` with other settings, or False to release measurements as they are.
    portion, most_portion, most
        φ, p_max and the largest part of the budget that one measurement may spend.
    pace
        A measurement spends at most this times I/w of the budget; None sets no such limit, as printed.
    samples
        Measurements in a window where they are not adaptive, and the first interval; by default 15 % of the steps.
    calibration
        "sound", or "paper" for each column with sampling times and an account of its own, which is not private for
        moving units.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or user level). All columns are measured at the same steps; disjoint
    groups of columns, formed from earlier releases, are summed, and a unit changes the vector of sums by at most Δ in L1,
    so noise of scale Δ/ε_t on each sum makes the step ε_t-private whatever the groups; ε_t is a whole number of units,
    rounded down, and one ledger for all columns refuses more than ε in any window (docs/proofs/rescue_dp.md).
    Intervals, budgets, groups and the filter's process noise come from earlier measurements and public constants.
    Departures from the paper: one schedule and one ledger for all columns (separate ones, ``calibration="paper"``,
    add up to :attr:`guarantee`.loss times ε when units move); the process noise is not computed from the raw
    stream; `pace`, without which long windows are starved after a few dear measurements; a budget below ε/w is not spent,
    and in windows of a few steps, where no portion reaches it, every measurement has ε/w; θ = 5 in place of 10; grouping
    thresholds are by default the noise scale of the measurement. For units that stay in one column the separate accounts
    would be sound; they are not offered.

    Error
    -----
    No closed form. Time O(d log d) at measured steps and the writing of d values at the others, memory about
    15 vectors of d. What the parts are worth: mean absolute error, ε = 1, negative values cut off, mean of
    100 runs (10 for the two wide streams; see docs/w_event.md):

    ======================= ===== ======== ========== ====== ======== ====== ======= ======= ======
    stream                  Resc. adaptive allocation pace   grouping filter none of Uniform Sample
                            DP    =False   =False     =None  =False   =False them
    ======================= ===== ======== ========== ====== ======== ====== ======= ======= ======
    unemployed, w = 120      61.9     64.9       63.6   72.0     61.9   84.7    67.4     114   60.9
    taxi, d = 10, w = 24     21.5     28.1       27.1   20.8     21.8   23.6    27.8    21.2   38.9
    taxi, d = 10, w = 168    34.6     33.3       35.9   38.3     34.7   51.6    36.6     107   39.9
    web requests, w = 120     189      520        628    212      189    187     520     120  2,629
    web requests, w = 1000    532      549        840  3,219      532    632     574     933  7,414
    people at a door, 48     4.67     4.76       4.85   4.72     4.73   7.36    5.49    25.6   3.86
    bus, d = 675, w = 24     1.03     1.09       1.00   1.11     1.92   1.29    2.00    12.3   1.03
    taxi, d = 900, w = 168   7.21     7.75       8.29   7.08     7.27   10.8    16.4    87.7   6.53
    ======================= ===== ======== ========== ====== ======== ====== ======= ======= ======

    Examples
    --------
    >>> import numpy as np
    >>> run = RescueDP(WEvent(epsilon="1", w=24), columns=50).start()
    >>> releases = run.push_batch(np.zeros((200, 50), dtype=np.int64))
    >>> releases.values.shape, run.ledger.verify().ok
    ((200, 50), True)

    References
    ----------
    Wang, Zhang, Lu, Wang, Qin, Ren: RescueDP: Real-time spatio-temporal crowd-sourced data publishing with
    differential privacy. INFOCOM 2016.
    """

    adaptive: Pid | bool = True
    allocation: bool = True
    grouping: Grouping | bool = True
    filter: Kalman | bool = True
    portion: float = 0.2
    most_portion: float = 0.6
    most: ExactLike = Fraction(1, 5)
    pace: float | None = 1.0
    samples: int | None = None
    calibration: str = "sound"

    def validate(self) -> None:
        """Check the switches and fill in the number of samples."""
        put = object.__setattr__
        length = self.policy.steps_charged
        default = max(1, int(Fraction(15, 100) * length))
        put(self, "samples", default if self.samples is None else whole("samples", self.samples, most=length))
        put(self, "adaptive", switched("adaptive", self.adaptive, CONTROL))
        put(self, "grouping", switched("grouping", self.grouping, Grouping()))
        put(self, "filter", switched("filter", self.filter, Kalman()))
        put(self, "portion", finite("portion", self.portion, 1e-6, 1.0))
        put(self, "most_portion", finite("most_portion", self.most_portion, 1e-6, 1.0))
        if self.pace is not None:
            put(self, "pace", finite("pace", self.pace, 1.0))
        most = positive("most", self.most)
        if most > 1:
            raise InvalidParameter(
                "most", self.most, "at most the whole budget, 1", 'write for example most="1/5"'
            )
        put(self, "most", most)
        if not isinstance(self.allocation, bool):
            raise InvalidParameter("allocation", self.allocation, "True or False", "leave it out")
        one_of("calibration", self.calibration, ("sound", "paper"))
        widest = self.whole_scale(self.units) * (1 if self.printed else length / self.units)
        if self.units >= 2**50 or widest > 2**50:
            raise InvalidParameter(
                "w", length, "small enough for the noise to be counted on the grid", "shorten the window"
            )

    @property
    def printed(self) -> bool:
        """Whether each column has sampling times and an account of its own: not if there is nothing to choose."""
        return self.calibration == "paper" and self.columns > 1 and isinstance(self.adaptive, Pid)

    @property
    def units(self) -> int:
        """Fine enough for portions, and for the share of one step to be many units."""
        return max(FINEST, 64 * self.policy.steps_charged)

    @property
    def fixed_part(self) -> Fraction:
        """The part of the budget that every measurement spends; 0 where it is a portion of what remains.

        In windows so short that the portion after one step would be less than Uniform's share, and therefore never be
        spent, every measurement has that share.
        """
        if not self.allocation:
            assert self.samples is not None
            return Fraction(1, self.samples)
        share = Fraction(1, self.policy.steps_charged)
        portion = min(self.portion * math.log(2.0), self.most_portion, float(Fraction(self.most)))
        return share if portion < share and not self.printed else Fraction(0)

    def whole_scale(self, units: int) -> float:
        """The noise scale of a measurement that spends k of so many units is this over k, in grid units."""
        return self.noise_scale(units)

    def printed_loss(self) -> Fraction | None:
        """What separate accounts of the columns can add up to for a moving unit (docs/proofs/rescue_dp.md)."""
        length, portion = self.policy.steps_charged, Fraction(self.most_portion)
        # after this interval a column spends the largest portion of what remains of its own budget
        interval = math.ceil(math.expm1(min(self.most_portion / self.portion, 40.0)))
        longest = self.adaptive.longest if isinstance(self.adaptive, Pid) else None
        if not self.allocation or (longest or length) < interval:
            return None
        spends, left = [], Fraction(1)
        for _ in range(min(64, -(-length // interval))):
            spends.append(min(Fraction(self.most), portion * left))
            left -= spends[-1]
        # every step another column that was idle for a window; or few columns, interleaved, that spend all they have
        loss = max(
            min(self.columns, length) * spends[0], min(self.columns, interval) * sum(spends, Fraction(0))
        )
        return loss if loss > 1 else None

    def uncertainty(self) -> Uncertainty:
        """A walk since the last measurement, whose noise the filter has lessened."""
        return (Filtered if self.filter else Walk)(self.outputs, Law("laplace", float(Fraction(self.grid))))

    def step_losses(self, releases: Releases) -> npt.NDArray[np.float64] | None:
        """What each measured step lost, from its scale; printed columns lose each for itself."""
        return None if self.printed else noise_losses(self, releases)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> RescueRun:
        """Begin, or go on with, a run."""
        return RescueRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", w=10), columns=6),
            cls(WEvent(epsilon="1/3", w=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(WEvent(epsilon="1", w=24), columns=30, grouping=Grouping(small=300.0, similarity=-0.5)),
            cls(User(epsilon="2", horizon=6000), filter=Kalman(process_noise=4.0)),
            cls(
                WEvent(epsilon="2", w=8),
                columns=2,
                adaptive=False,
                allocation=False,
                grouping=False,
                filter=False,
            ),
        ]
