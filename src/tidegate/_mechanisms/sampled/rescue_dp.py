"""RescueDP (Wang et al. 2016): adaptive sampling, adaptive budgets, groups of small columns and a filter."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.core.spent import Spent
from tidegate.errors import InvalidParameter
from tidegate.intervals import Filtered, Fold, Held
from tidegate.mechanisms.kernels.publication_scale import publication_scale
from tidegate.mechanisms.sampled import rescue_dp as configured
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.mechanisms.sampled.kalman import Kalman, model
from tidegate.mechanisms.sampled.kernels.grouping import form_groups, measure_groups
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE, FIELDS, Model
from tidegate.mechanisms.sampled.kernels.pid import Control, feedback, rescue_interval
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.rescue_run import CONTROL
from tidegate.noise import Law

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
    whole: float  # a measurement of n units has noise of the scale whole/n, in grid units
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

    belief: Any  # the filter's, see `kernels/kalman.py`
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
    scale = publication_scale(constants.whole, amount)
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
    return rescue_interval(interval, signal, publication_scale(constants.whole, following), control)


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
class RescueDP(configured.RescueDP):
    """Measure when the data move; :class:`tidegate.mechanisms.RescueDP` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False

    def validate(self) -> None:
        """Check the switches; columns with times of their own are not private, and no account can hold them."""
        super().validate()
        if self.printed:
            raise InvalidParameter("calibration", "paper", "'sound' with several columns", "leave it out")

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
            whole=self.whole_scale(units),
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

    def intervals(self) -> Fold:
        """A walk since the last measurement, whose noise the filter has lessened."""
        law = Law("laplace", float(Fraction(self.grid)), self.rounded_by)
        return (Filtered if self.filter else Held)(self.outputs, law, self.law)
