"""RescueDP (Wang et al. 2016): adaptive sampling, adaptive budgets, groups of small columns and a filter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.core.spent import Spent
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, whole
from tidegate.intervals import Filtered, Fold, Held
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.losses import noise_losses
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.sampled.grouping import Grouping, form_groups, measure_groups
from tidegate.mechanisms.sampled.kalman import ESTIMATE, FIELDS, Kalman, Model, finite, model, switched
from tidegate.mechanisms.sampled.pid import Control, Pid, feedback, rescue_interval
from tidegate.noise import Law
from tidegate.policy import Policy, User, WEvent
from tidegate.releases import Releases

CONTROL = Pid(recent=3)  # if nothing else is said
FINEST = 2**20  # units of the budget: a portion of what remains is rounded down to one of them
FRESH, APPROXIMATED = 1, 2  # as in `releases.Status`
NO_RING: Integers = np.zeros(0, dtype=np.int64)  # at user level, where nothing returns


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    limit: int  # units of a window
    most: int  # units of one measurement
    least: int  # units that are worth a measurement: less than Uniform's share is not
    fixed: int  # units of every measurement; 0: they are allocated
    period: int  # steps between measurements; 0: the controller decides
    groups: bool  # else every column is measured by itself
    unit_scale: (
        float  # the noise scale of a measurement that spends one unit, in grid units; n units: unit_scale/n
    )
    grid: float
    portion: float  # φ
    most_portion: float  # p_max
    variance: float  # the filter's measurement noise; 0: that of the noise added
    small: float  # τ₁; 0: the noise scale
    alike: float  # τ₂
    difference: float  # τ₃; 0: as `small`
    pace: float  # units that a measurement may spend at most for each step of its interval


class Sampling(NamedTuple):
    """What follows from noisy measurements, which are paid for; nothing of it is secret."""

    belief: Any  # the filter's, see `kalman.py`
    history: Any  # a ring of recent estimates, for grouping
    due: Any  # the next step to be measured
    counts: Any  # measurements so far
    last: Any  # the step of the last one; 0 before there was any
    interval: Any  # to the next one
    errors: Any  # a ring of recent errors of predictions
    scale: Any  # of the last measurement's noise, in the unit of the values


class State(NamedTuple):
    """All that is carried from step to step; nothing of it is secret."""

    spent: Any  # what the last window was charged; empty at user level
    total: Any  # what all steps were charged, at user level; else empty
    sampling: Sampling


class Work(NamedTuple):
    """Room that a step needs."""

    given: Any  # the noise of each column
    chosen: Any  # one number: that all columns are measured
    pivot_of: Any  # of each column: the first of its group
    widths: Any  # and its noise scale
    moved: Any  # of each group: the change of its estimate


@lean
def allocate(remaining: int, interval: float, constants: Any) -> Any:
    """Units of a measurement: the portion p = min(φ·ln(I + 1), p_max) of what remains, rounded down; 0: wait."""
    if constants.fixed > 0:
        return constants.fixed if constants.fixed <= remaining else 0
    portion = min(constants.portion * np.log(interval + 1.0), constants.most_portion)
    amount = min(int(portion * remaining), remaining, constants.most, int(constants.pace * interval))
    return amount if amount >= constants.least else 0


@lean
def left_at(step: int, limit: int, ring: Any, total: Any) -> Any:
    """What the steps before this one have left of the window that ends with it; an empty ring: of all steps."""
    return limit - total[0] + (ring[step % ring.size] if ring.size else 0)


@lean
def group(amount: int, constants: Any, sampling: Any, work: Any) -> None:
    """Form groups of columns that are small beside the noise of this many units and move alike."""
    scale = publication_scale(constants.unit_scale, amount)
    if constants.groups:
        small = constants.small if constants.small > 0.0 else scale
        difference = constants.difference if constants.difference > 0.0 else small
        form_groups(
            work.chosen, sampling.history, sampling.counts, small, constants.alike, difference, work.pivot_of
        )
    work.widths[:] = scale


@lean
def mean_change(work: Any) -> Any:
    """By how much a measurement has changed the estimates, as a mean over groups: the error of the prediction."""
    change, groups = 0.0, 0
    for column in range(work.pivot_of.size):
        if work.pivot_of[column] == column:
            change += abs(work.moved[column])
            groups += 1
    return change / groups


@lean
def next_interval(step: int, error: float, left: int, constants: Any, control: Any, sampling: Any) -> Any:
    """The interval after a measurement, when so many units are left at the next step."""
    interval = sampling.interval[0]
    if constants.period > 0:
        return float(constants.period)
    if sampling.counts[0] == 1:
        return interval  # what was not predicted is not an error of a prediction
    signal = feedback(sampling.errors, sampling.counts[0] - 1, error, step - sampling.last[0], control)
    following = max(allocate(left, interval, constants), constants.least)
    return rescue_interval(interval, signal, publication_scale(constants.unit_scale, following), control)


@lean
def rescue(
    rows: Any,
    begin: int,
    first: int,
    settings: Any,
    pool: Any,
    slot: Any,
    ring: Any,
    total: Any,
    sampling: Any,
    work: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise.

    `ring` has the units of the last w steps, by step modulo w, and `total` their sum; an empty ring: of all steps.
    """
    constants, filter_, control = Constants(*settings[0]), Model(*settings[1]), Control(*settings[2])
    sampling, work, out = Sampling(*sampling), Work(*work), Output(*out)
    for index in range(begin, rows.shape[0]):
        step, amount = first + index, 0
        if step >= sampling.due[0]:
            left = left_at(step, constants.limit, ring, total)
            amount = allocate(left, sampling.interval[0], constants)
        if amount > 0:
            group(amount, constants, sampling, work)
            wanted = draw_row(pool, slot, step, work.widths[0])
            if wanted != DONE:
                return index, wanted
        if ring.size:
            total[0] -= ring[step % ring.size]
            ring[step % ring.size] = amount
        total[0] += amount
        if amount > 0:
            measure_groups(constants.variance, filter_, step, rows[index], sampling, work)
            sampling.counts[0] += 1
            left = left_at(step + 1, constants.limit, ring, total)
            interval = next_interval(step, mean_change(work), left, constants, control, sampling)
            sampling.interval[0], sampling.last[0] = interval, step
            sampling.due[0] = step + int(interval)
            sampling.scale[0] = work.widths[0] * constants.grid
        out.status[index] = FRESH if amount > 0 else APPROXIMATED
        out.source[index], out.scale[index] = sampling.last[0], sampling.scale[0]
        out.units[index] = amount
        for column in range(rows.shape[1]):
            out.values[index, column] = sampling.belief[ESTIMATE, column] * constants.grid
    return rows.shape[0], DONE


@dataclass(frozen=True)
class RescueDP(Mechanism):
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

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or user level). All columns are measured at the same steps; disjoint
    groups of columns, formed from earlier releases, are summed, and a unit changes the vector of sums by at most Δ in L1,
    so noise of scale Δ/ε_t on each sum makes the step ε_t-private whatever the groups; ε_t is a whole number of units,
    rounded down, and one account for all columns refuses more than ε in any window (docs/proofs/rescue_dp.md).
    Intervals, budgets, groups and the filter's process noise come from earlier measurements and public constants.
    Departures from the paper: one schedule and one account for all columns (separate ones
    add up to several times ε when units move, docs/proofs/rescue_dp.md); the process noise is not computed from the raw
    stream; `pace`, without which long windows are starved after a few dear measurements; a budget below ε/w is not spent,
    and in windows of a few steps, where no portion reaches it, every measurement has ε/w; θ = 5 in place of 10; grouping
    thresholds are by default the noise scale of the measurement. For units that stay in one column the separate accounts
    would be sound; they are not offered.

    Error
    -----
    No closed form. Time O(d log d) at measured steps and the writing of d values at the others, memory about
    15 vectors of d. What the parts are worth: mean absolute error, ε = 1, negative values cut off, mean of
    100 runs (10 for the two wide streams; see docs/mechanisms/w_event.md):

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
    >>> from tidegate.core.session import Session
    >>> session = Session(RescueDP(WEvent(epsilon="1", window=24), columns=50))
    >>> session.push_batch(np.zeros((200, 50), dtype=np.int64)).values.shape
    (200, 50)

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
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, User)

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
        widest = self.unit_scale(self.units) * length / self.units
        if self.units >= 2**50 or widest > 2**50:
            raise InvalidParameter(
                "window", length, "small enough for the noise to be counted on the grid", "shorten the window"
            )

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
        return share if portion < share else Fraction(0)

    def unit_scale(self, units: int) -> float:
        """The noise scale, in grid units, of a measurement that spends one of so many units; k units: this over k."""
        return self.noise_scale(units)

    def step_losses(self, releases: Releases) -> npt.NDArray[np.float64] | None:
        """What each measured step lost, from its scale."""
        return noise_losses(self, releases)

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was measured: the first step is."""
        window, columns = self.policy.window, self.columns
        control = self.adaptive if isinstance(self.adaptive, Pid) else CONTROL
        recent = self.grouping.recent if isinstance(self.grouping, Grouping) else 1
        sampling = Sampling(
            np.zeros((FIELDS, columns)),
            np.zeros((recent, columns)),
            np.array([first]),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.array([float(self.first_interval)]),
            np.zeros(control.recent),
            np.zeros(1),
        )
        spent = () if window is None else Spent(window)
        return State(spent, np.zeros(int(window is None), dtype=np.int64), sampling)

    @property
    def first_interval(self) -> int:
        """The steps between measurements where nothing is known, or that are not adaptive."""
        assert self.samples is not None
        return -(-self.policy.steps_charged // self.samples)

    def resume(self, state: State, step: int, recent: Integers) -> None:
        """What the last window has spent, from its charges."""
        if self.policy.window is not None:
            state.spent.fill(step, recent)

    def public(self, state: State, first: int, count: int) -> Charges:
        """Nothing is charged that does not depend on earlier measurements."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    @cached_property
    def settings(self) -> tuple[tuple[Any, ...], ...]:
        """What the loop knows of the configuration: `Constants`, the filter's `Model` and the `Control`."""
        units, length, grid = self.units, self.policy.steps_charged, float(Fraction(self.grid))
        control = self.adaptive if isinstance(self.adaptive, Pid) else None
        groups = self.grouping if isinstance(self.grouping, Grouping) else None
        filter_ = self.filter if isinstance(self.filter, Kalman) else None
        constants = Constants(
            limit=units,
            most=int(Fraction(self.most) * units),
            least=units // length,
            fixed=int(self.fixed_part * units),
            period=0 if control else self.first_interval,
            groups=groups is not None and self.columns > 1,
            unit_scale=self.unit_scale(units),
            grid=grid,
            portion=float(self.portion),
            most_portion=float(self.most_portion),
            variance=((filter_.measurement_noise if filter_ else None) or 0.0) / grid**2,
            small=((groups.small if groups else None) or 0.0) / grid,
            alike=float(groups.similarity if groups else 0.0),
            difference=((groups.difference if groups else None) or 0.0) / grid,
            pace=float(units if self.pace is None else self.pace * units / length),
        )
        walk, controls = model(filter_, Fraction(self.grid)), (control or CONTROL).settings(1, length)
        return constants[:], walk[:], controls[:]

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps: measure those that the controller asks for and the window has budget for."""
        columns, spent = self.columns, state.spent
        out, drawn = empty_output(len(rows), columns), noise.rows(rescue=columns)
        slot, chosen = drawn.slots[0], np.ones(1, dtype=np.bool_)
        work = Work(slot.row, chosen, np.arange(columns), np.empty(columns), np.empty(columns))
        account = (NO_RING, state.total)
        if self.policy.window is not None:
            spent.move_to(first)
            account = (spent.ring, spent.total)
        fixed = (first, self.settings, drawn.pool, slot, *account, state.sampling[:], work[:], out[:5])
        drawn.run_loop(lambda begin: rescue(rows, begin, *fixed), first)
        if self.policy.window is not None:
            spent.step = first + len(rows) - 1
        return out

    @property
    def skips_steps(self) -> bool:
        """Steps between measurements are not looked at."""
        return True

    def intervals(self) -> Fold:
        """A walk since the last measurement, whose noise the filter has lessened."""
        law = Law("laplace", float(Fraction(self.grid)), self.rounded_by)
        return (Filtered if self.filter else Held)(self.outputs, law, self.law)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", window=10), columns=6),
            cls(WEvent(epsilon="1/3", window=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(WEvent(epsilon="1", window=24), columns=30, grouping=Grouping(small=300.0, similarity=-0.5)),
            cls(User(epsilon="2", horizon=6000), filter=Kalman(process_noise=4.0)),
            cls(
                WEvent(epsilon="2", window=8),
                columns=2,
                adaptive=False,
                allocation=False,
                grouping=False,
                filter=False,
            ),
        ]
