"""FAST (Fan and Xiong 2014): measure where a PID controller expects news, predict in between, filter measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import NO_SPANS, Charges, Integers, Span, span_rows
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.errors import InvalidParameter
from tidegate.intervals import Filtered, Fold, Held
from tidegate.mechanisms.plain.blocks import blocks_met
from tidegate.mechanisms.sampled import fast as configured
from tidegate.mechanisms.sampled.kalman import Kalman, model
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE, FIELDS, Model, correct_all
from tidegate.mechanisms.sampled.kernels.pid import Control, fast_interval, feedback
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.noise import gaussian
from tidegate.noise.laws import Ahead, SharedLaw, exact_units, most_live, most_named, take_row

FRESH, APPROXIMATED = 1, 2  # as in `releases.Status`
OWN, GAUSSIAN, SHARED = 0, -1, -2  # whose noise a measurement has; the last two are drawn outside of the loop
STREAM = "fast"
NO_NOISE = Ahead(np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.int64), None)


class Constants(NamedTuple):
    """Functions of the configuration alone."""

    samples: int  # M: measurements that a window, a block or a finite stream may have
    window: int  # w; 0: nothing returns before the block, or the stream, ends
    period: int  # steps between measurements; 0: the controller decides
    noise: int  # OWN, GAUSSIAN or SHARED
    cost: int  # units of a measurement; 0 where spans pay
    scale: float  # of the noise, in grid units
    shown: float  # what releases say of it
    variance: float  # that the filter takes the noise to have
    grid: float
    sanity: float  # the least denominator of a relative error, in grid units


class Sampling(NamedTuple):
    """What follows from noisy measurements, which are paid for; nothing of it is secret."""

    belief: Any  # the filter's, see `kernels/kalman.py`
    due: Any  # the next step to be measured
    count: Any  # measurements so far
    last: Any  # the step of the last one; 0 before there was any
    interval: Any  # to the next one
    errors: Any  # a ring of recent errors of predictions
    taken: Any  # a ring of the last M steps that were measured; empty without a window


class State(NamedTuple):
    """All that is carried from step to step. Only the law's part is secret."""

    before: Any  # the last step before the stream, or its present block, began
    sampling: Sampling
    law: Any  # SECRET: the law that measurements share; empty where each has noise of its own


@lean
def allowed(step: int, constants: Any, sampling: Any) -> Any:
    """Whether the window that ends with this step has another measurement left."""
    count, taken = sampling.count[0], sampling.taken
    if count < constants.samples:
        return True
    return constants.window > 0 and taken[count % constants.samples] <= step - constants.window


@lean
def draw(step: int, constants: Any, pool: Any, slot: Any, numbers: Any, ahead: Any) -> Any:
    """The noise of a measurement into the slot's row: DONE, or what is wanted first."""
    if constants.noise == OWN:
        return draw_row(pool, slot, step, constants.scale)
    if constants.noise == SHARED:
        return DONE if take_row(numbers, ahead, slot.row) else SHARED
    return DONE if slot.step[0] == step else GAUSSIAN


@lean
def measure(
    step: int, row: Any, given: Any, changes: Any, constants: Any, filter_: Any, control: Any, sampling: Any
) -> None:
    """Correct the estimates by a measurement, and choose the next interval by how far it has moved them."""
    belief, count, gap = sampling.belief, sampling.count[0], step - sampling.last[0]
    correct_all(belief, row, given, constants.variance, gap, filter_, count == 0, changes)
    change, size = 0.0, 0.0
    for column in range(row.size):
        change += changes[column]
        size += max(belief[ESTIMATE, column], 0.0)
    if sampling.taken.size:
        sampling.taken[count % constants.samples] = step
    interval = sampling.interval[0]
    if constants.period > 0:
        interval = float(constants.period)
    else:
        # what was not predicted is not an error of a prediction
        error = change / max(size, constants.sanity) if count > 0 else 0.0
        signal = feedback(sampling.errors, count + 1, error, gap, control)
        if count > 0:
            interval = fast_interval(interval, signal, control)
    sampling.count[0], sampling.last[0], sampling.interval[0] = count + 1, step, interval
    sampling.due[0] = step + int(interval)


@lean
def sample(
    rows: Any,
    begin: int,
    first: int,
    settings: Any,
    pool: Any,
    slot: Any,
    numbers: Any,
    ahead: Any,
    changes: Any,
    sampling: Any,
    out: Any,
) -> Any:
    """Release rows[begin:]; returns (index, what is wanted). A step writes nothing before it has its noise."""
    constants, filter_, control = Constants(*settings[0]), Model(*settings[1]), Control(*settings[2])
    sampling, out = Sampling(*sampling), Output(*out)
    for index in range(begin, rows.shape[0]):
        step = first + index
        # where the controller asks for more than M, the first step that the window allows is taken
        measured = step >= sampling.due[0] and allowed(step, constants, sampling)
        if measured:
            wanted = draw(step, constants, pool, slot, numbers, ahead)
            if wanted != DONE:
                return index, wanted
            measure(step, rows[index], slot.row, changes, constants, filter_, control, sampling)
        out.status[index] = FRESH if measured else APPROXIMATED
        out.source[index] = sampling.last[0]
        out.scale[index] = constants.shown if sampling.last[0] > 0 else 0.0
        out.units[index] = constants.cost if measured else 0
        for column in range(rows.shape[1]):
            out.values[index, column] = sampling.belief[ESTIMATE, column] * constants.grid
    return rows.shape[0], DONE


@dataclass(frozen=True)
class Fast(configured.Fast):
    """Measure the steps that a controller chooses; :class:`tidegate.mechanisms.Fast` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ()

    def validate(self) -> None:
        """Check the switches; columns with times of their own are not private, and no account can hold them."""
        super().validate()
        if self.printed:
            raise InvalidParameter("calibration", "paper", "'sound' with several columns", "leave it out")

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law that the measurements of a window, or of a block, share; None where each has its own noise."""
        if self.sharing is None:
            return None
        units = self.units // (blocks_met(self.policy.steps_charged) if self.blocks else 1)
        cost = exact_units(self.sharing.group_part, units)
        return SharedLaw(self.sharing.law, cost, self.policy.window, 0, self.policy.horizon)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window."""
        return 0 if self.shared is None else most_live(self.shared.law, self.policy.window, 0)

    @property
    def noise_in_state(self) -> bool:
        """Only what measurements share."""
        return self.shared is not None

    def begin(self, first: int) -> State:
        """Nothing was measured: the first step is. Blocks are counted from it."""
        law = () if self.shared is None else self.shared.start()
        return State(np.array([first - 1]), self._begun(first), law)

    def _begun(self, first: int) -> Sampling:
        control = self.adaptive if isinstance(self.adaptive, Pid) else Pid()
        return Sampling(
            np.zeros((FIELDS, self.columns)),
            np.array([first]),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.array([control.settings(*self.bounds).shortest]),
            np.zeros(control.recent),
            np.zeros(self.measurements if self.sliding else 0, dtype=np.int64),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Nothing is charged that does not depend on earlier measurements."""
        return Charges(first, np.zeros(count, dtype=np.int64))

    @cached_property
    def settings(self) -> tuple[tuple[Any, ...], ...]:
        """What the loop knows of the configuration: `Constants`, the filter's `Model` and the `Control`."""
        grid = float(Fraction(self.grid))
        control = self.adaptive if isinstance(self.adaptive, Pid) else None
        filter_ = self.filter if isinstance(self.filter, Kalman) else None
        known = filter_.measurement_noise if filter_ else None
        own = GAUSSIAN if self.noise_kind == "gaussian" else OWN
        constants = Constants(
            samples=self.measurements,
            window=self.policy.steps_charged if self.sliding else 0,
            period=0 if control else -(-self.policy.steps_charged // self.measurements),
            noise=own if self.shared is None else SHARED,
            cost=int(self.shared is None),
            scale=self.scale,
            shown=self.shown_scale,
            variance=float(known / grid**2 if known else self.noise_variance),
            grid=grid,
            sanity=float(self.sanity / grid),
        )
        walk = model(filter_, Fraction(self.grid))
        return constants[:], walk[:], (control or Pid()).settings(*self.bounds)[:]

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release steps, those of one block after the other."""
        out, spans, count = empty_output(len(rows), self.columns), [NO_SPANS], len(rows)
        length, start = self.policy.steps_charged, 0
        while start < count:
            stop = count
            if self.blocks:
                passed = first + start - 1 - int(state.before[0])
                if passed >= length:
                    self._begin_block(state, int(state.before[0]) + passed // length * length)
                stop = min(count, int(state.before[0]) + length + 1 - first)
            spans.append(
                self._release(state, rows[start:stop], first + start, noise, out.part(slice(start, stop)))
            )
            start = stop
        if self.shared is None:
            return out
        found = [Span(*row) for part in spans for row in part.tolist()]
        return out._replace(spans=span_rows(found, most_named(self.shared.law, self.policy.window, count)))

    def _begin_block(self, state: State, before: int) -> None:
        """Nothing is known of earlier blocks, and no noise is shared with them."""
        state.before[0] = before
        for kept, new in zip(state.sampling, self._begun(before + 1), strict=True):
            kept[...] = new
        if self.shared is not None:
            self.shared.renew(state.law)

    def _release(self, state: State, rows: Matrix, first: int, noise: Draws, out: Output) -> Integers:
        """Steps of one block; the spans that they cost."""
        drawn, source, shared = noise.rows(fast=self.columns), noise.source, self.shared
        slot, sampling = drawn.slots[0], state.sampling
        ahead = NO_NOISE if shared is None else shared.waiting(state.law)

        def outside(index: int, wanted: int) -> None:
            """Noise that the loop does not draw itself."""
            nonlocal ahead
            if shared is not None:
                number, most = state.before[0] + sampling.count[0], self._most(len(rows) - index)
                ahead = shared.ahead(state.law, source, STREAM, int(number), most)
            else:
                slot.row[:] = gaussian(source, STREAM, first + index, self.scale, (self.columns,))
                slot.step[0] = first + index

        fixed = (first, self.settings, drawn.pool, slot)
        rest = (np.empty(self.columns), sampling[:], out[:5])
        drawn.run_loop(
            lambda begin: sample(rows, begin, *fixed, ahead.numbers, ahead.rows, *rest), first, outside
        )
        if shared is None:
            return NO_SPANS
        return shared.settle(state.law, ahead, first + np.flatnonzero(out.status == FRESH))

    def _most(self, steps: int) -> int:
        """The most measurements of so many steps."""
        windows = steps // self.policy.steps_charged + 1 if self.sliding else 1
        return min(steps, windows * self.measurements)

    def intervals(self) -> Fold:
        """A walk since the last measurement, whose noise the filter has lessened."""
        law = replace(self.measured_law, rounded=self.rounded_by)
        return (Filtered if self.filter else Held)(self.outputs, law, self.law)
