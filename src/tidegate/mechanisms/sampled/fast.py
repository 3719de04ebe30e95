"""FAST: measure where a PID controller expects news, predict in between, filter what was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tidegate.errors import InvalidParameter
from tidegate.exact import one_of, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.losses import Floats
from tidegate.mechanisms.mechanism import Mechanism, Run
from tidegate.mechanisms.plain.blocks import blocks_met, of_block
from tidegate.mechanisms.plain.blocks_run import BlocksRun
from tidegate.mechanisms.plain.measuring import Measuring
from tidegate.mechanisms.sampled.fast_run import FastRun
from tidegate.mechanisms.sampled.kalman import Kalman, finite, switched
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.printed_times import Sampled
from tidegate.mechanisms.shared_noise import Sharing
from tidegate.mechanisms.uncertainty import Filtered, Uncertainty, Walk
from tidegate.noise import check_scale
from tidegate.policy import User, WEvent
from tidegate.releases import Releases

# which part of the steps is measured, if nothing else is said
SLIDING_SHARE = Fraction(1, 4)
FINITE_SHARE = Fraction(15, 100)  # Fan and Xiong's choice


@dataclass(frozen=True)
class Fast(Sampled, Measuring):
    """Measure the steps that a PID controller chooses, smooth the measurements by a Kalman filter, and hold in between.

    How far a measurement has moved the estimate is the error of the prediction; where it is large the next
    interval is short. All columns are measured at the same steps, so a unit that moves between columns costs what a
    unit in one column costs. M of the steps of any window may be measured, with ε/M each; when the controller asks for
    more, the first step that the ledger allows is taken. Between measurements the estimate is the prediction.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    samples
        M; by default a quarter of the window, and 15 % of a finite stream or block (Fan and Xiong).
    adaptive
        True, a :class:`Pid` with other settings, or False to measure at equal distances. The interval is by default
        kept between w/(2M) and w/M steps on a sliding window, and between 1 and w on finite streams and blocks.
    filter
        True, a :class:`Kalman` with other settings, or False to release each measurement as it is.
    sanity
        The least denominator of relative errors, in the values' unit.
    blocks
        The w-event paper's FAST_w: run FAST with ε/2 on disjoint blocks of w steps (with ε for w = 1).
    calibration
        "sound", or "paper" for each column with sampling times of its own, which is not private for moving units.
    noise
        "auto": the best law for M measurements in a window (docs/noise.md). "laplace": noise of its own for each, as in
        the papers. "cube", "semiorder": this law.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or user level). A measured step is an (ε/M)-differentially private
    function of its own data (discrete Laplace noise of scale MΔ/ε on the whole vector), given earlier measurements;
    which steps are measured, the filter and its process noise are functions of earlier measurements and
    public constants; the ledger allows at most M measured steps in any window (docs/proofs/fast.md). Measurements share
    noise where that gains: those of a window lose ε together, and the state of a run is secret (docs/noise.md). With ρ,
    Gaussian noise of variance MΔ²/(2ρ). Departures from the
    papers: sample times are shared by all columns (separate ones, ``calibration="paper"``, lose up to
    min(w, dM)/M times ε when units move); the sliding ledger replaces ε/2 on blocks, which halves the noise; the
    noise variance of the filter is the one of the noise really added, and its process noise, a constant in the
    paper, is by default estimated from the measurements; the first T_i samples are not forced to be consecutive.

    Error
    -----
    MΔ/ε for an unfiltered measurement with Laplace noise, about six tenths of it with shared noise and few columns
    (:meth:`noise_error`), plus the drift in between, which only the data know.
    Time O(d) at measured steps and the writing of d values at the others, memory 6 vectors of d.

    What the parts are worth: mean absolute error with Laplace noise, ε = 1, negative values cut off, mean of 100 runs (10
    for the bus); docs/w_event.md has more streams:

    =========================== ===== ============ ============== ======= ====== ======= ======
    stream                       Fast filter=False adaptive=False neither blocks Uniform Sample
    =========================== ===== ============ ============== ======= ====== ======= ======
    unemployed, w = 120          56.8         61.9           53.3    58.7   68.2     114   60.9
    taxi, 10 columns, w = 24     20.2         20.2           19.2    19.3   41.6    21.2   38.9
    taxi, 10 columns, w = 168    34.8         44.9           33.1    40.6   38.1     107   39.9
    web requests, w = 120         395          396            395     396    666     120  2,629
    people at a door, w = 48     5.45         8.65           5.41    7.80   5.89    25.6   3.86
    bus, 675 columns, w = 24     1.62         3.40           1.70    3.36   2.55    12.3   1.03
    =========================== ===== ============ ============== ======= ====== ======= ======

    The filter pays; the controller mostly does not: equal distances do as well. On streams with large values, where
    noise is small beside the changes, Uniform is better, and on streams that hardly move Sample is.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = Fast(WEvent(epsilon="1", w=120))
    >>> mechanism.measurements, Fast(WEvent(epsilon="1", w=120), noise="laplace").scale
    (30, 30.0)
    >>> run = mechanism.start()
    >>> releases = run.push_batch(np.full((500, 1), 40))
    >>> bool(releases.fresh.sum() <= 30 * 5), run.ledger.verify().ok
    (True, True)

    References
    ----------
    Fan, Xiong: An adaptive approach to real-time aggregate monitoring with differential privacy. TKDE 2014.
    Kellaris, Papadopoulos, Xiao, Papadias: Differentially private event sequences over infinite streams. PVLDB 2014.
    """

    samples: int | None = None
    adaptive: Pid | bool = True
    filter: Kalman | bool = True
    sanity: float = 1.0
    blocks: bool = False
    calibration: str = "sound"

    columns_apart: ClassVar[bool] = False  # they are measured at the same steps
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")

    def validate(self) -> None:
        """Check the switches and fill in the number of samples."""
        put = object.__setattr__
        length = self.policy.steps_charged
        default = max(1, int((SLIDING_SHARE if self.sliding else FINITE_SHARE) * length))
        put(self, "samples", default if self.samples is None else whole("samples", self.samples, most=length))
        put(self, "adaptive", switched("adaptive", self.adaptive, Pid()))
        put(self, "filter", switched("filter", self.filter, Kalman()))
        put(self, "sanity", finite("sanity", self.sanity, 1e-9))
        one_of("calibration", self.calibration, ("sound", "paper"))
        if self.blocks and isinstance(self.policy, User):
            raise InvalidParameter(
                "blocks", True, "False under a User policy", "a finite stream is one block"
            )
        check_scale(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @property
    def printed(self) -> bool:
        """Whether each column has sampling times of its own: not if there is one column, or nothing to choose."""
        shortest, longest = self.bounds
        # on finite streams the first two steps are measured in every column
        free = (
            isinstance(self.adaptive, Pid) and shortest < longest and (self.sliding or self.measurements > 2)
        )
        return self.calibration == "paper" and self.columns > 1 and free

    @property
    def sliding(self) -> bool:
        """Whether measurements are limited by any w consecutive steps, not by a block or a whole stream."""
        return not self.blocks and self.policy.window is not None

    @property
    def measurements(self) -> int:
        """M: how many measurements a window, a block or the whole finite stream may have."""
        assert self.samples is not None
        return self.samples

    def measured_in(self, steps: int) -> int:
        """The most measurements that so many consecutive steps can contain."""
        return min(steps, self.measurements)

    @property
    def may_share(self) -> bool:
        """Not where columns have sampling times of their own."""
        return not self.printed

    @cached_property
    def sharing(self) -> Sharing | None:
        """The law that measurements share, those of each block for themselves."""
        return self.inner.sharing if self.blocks else super().sharing

    @property
    def units(self) -> int:
        """One unit a measurement, or group of them that shares noise, of as many blocks as a window can meet."""
        return (blocks_met(self.policy.steps_charged) if self.blocks else 1) * super().units

    @property
    def noise_variance(self) -> float:
        """The variance of the noise of a measurement, in grid units."""
        own = self.own_noise.variance
        return own(self.scale) if self.sharing is None else self.sharing.law.variance()

    @property
    def bounds(self) -> tuple[int, int]:
        """The shortest and the longest interval, where the controller does not set them."""
        length, samples = self.policy.steps_charged, self.measurements
        if not self.sliding:
            return 1, length  # as printed
        # budget that a sliding window does not use is lost, and budget spent in a hurry leaves a gap of w steps
        return max(1, length // (2 * samples)), -(-length // samples)

    @property
    def inner(self) -> Fast:
        """What runs on each block: the same with a block's part of the budget, as if the stream ended there."""
        return replace(self, policy=of_block(self.policy), blocks=False)

    def printed_loss(self) -> Fraction | None:
        """What a moving unit can lose on a sliding window: some column is measured at almost every step."""
        if not self.sliding:
            return None  # more than ε, see docs/proofs/fast.md
        most = min(self.policy.steps_charged, self.columns * self.measurements)
        return Fraction(most, self.measurements)

    def uncertainty(self) -> Uncertainty:
        """A walk since the last measurement, whose noise the filter has lessened."""
        return (Filtered if self.filter else Walk)(self.outputs, self.measured_law)

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each measured step lost; printed columns lose each for itself."""
        return None if self.printed else super().step_losses(releases)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> Run:
        """Begin, or go on with, a run."""
        return BlocksRun(self, ledger, state) if self.blocks else FastRun(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", w=10), columns=3, samples=4),
            cls(WEvent(epsilon="4", w=10), columns=3, samples=4, noise="laplace"),
            cls(WEvent(epsilon="4", w=40), samples=20, noise="cube"),
            cls(WEvent(rho="1", w=10), columns=2, samples=4),
            cls(WEvent(epsilon="1/3", w=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(
                User(epsilon="2", horizon=6000),
                filter=Kalman(process_noise=4.0),
                adaptive=Pid(derivative=0.1),
            ),
            cls(WEvent(epsilon="1", w=12), columns=2, blocks=True, samples=3, noise="laplace"),
            cls(WEvent(epsilon="1", w=12), blocks=True, samples=6, adaptive=False),
            cls(WEvent(epsilon="2", w=8), columns=2, samples=2, filter=False, adaptive=False, grid="0.01"),
        ]
