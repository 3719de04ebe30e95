"""FAST (Fan and Xiong 2014): measure where a PID controller expects news, predict in between, filter measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import NO_SPANS, Charges, Integers, Span, span_rows
from tidegate.core.mechanism import Matrix, Output, empty_output
from tidegate.core.rows import DONE, Draws, draw_row
from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.intervals import Filtered, Fold, Held
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.plain.blocks import blocks_met, of_block
from tidegate.mechanisms.plain.measuring import Measuring
from tidegate.mechanisms.sampled.kalman import (
    ESTIMATE,
    FIELDS,
    Kalman,
    Model,
    correct_all,
    finite,
    model,
    switched,
)
from tidegate.mechanisms.sampled.pid import Control, Pid, fast_interval, feedback
from tidegate.mechanisms.sharing import Sharing
from tidegate.noise import check_scale, gaussian
from tidegate.noise.laws import Ahead, most_named, take_row
from tidegate.policy import Policy, User, WEvent

# which part of the steps is measured, if nothing else is said
SLIDING_SHARE = Fraction(1, 4)
FINITE_SHARE = Fraction(15, 100)  # Fan and Xiong's choice

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

    belief: Any  # the filter's, see `kalman.py`
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
class Fast(Measuring):
    """Measure the steps that a PID controller chooses, smooth the measurements by a Kalman filter, and hold in between.

    How far a measurement has moved the estimate is the error of the prediction; where it is large the next
    interval is short. All columns are measured at the same steps, so a unit that moves between columns costs what a
    unit in one column costs. M of the steps of any window may be measured, with ε/M each; when the controller asks for
    more, the first step that the window allows is taken. Between measurements the estimate is the prediction.

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
    noise
        "auto": the best law for M measurements in a window (docs/mechanisms/noise.md). "laplace": noise of its own for
        each, as in the papers. "cube", "semiorder": this law.

    Privacy
    -------
    Unit and neighbours: the policy's (w-event, or user level). A measured step is an (ε/M)-differentially private
    function of its own data (discrete Laplace noise of scale MΔ/ε on the whole vector), given earlier measurements;
    which steps are measured, the filter and its process noise are functions of earlier measurements and
    public constants; at most M steps of any window are measured (docs/proofs/fast.md). Measurements share
    noise where that gains: those of a window lose ε together, and the state is secret (docs/mechanisms/noise.md). With ρ,
    Gaussian noise of variance MΔ²/(2ρ). Departures from the
    papers: sample times are shared by all columns (separate ones lose up to
    min(w, dM)/M times ε when units move); sliding windows replace ε/2 on blocks, which halves the noise; the
    noise variance of the filter is the one of the noise really added, and its process noise, a constant in the
    paper, is by default estimated from the measurements; the first T_i samples are not forced to be consecutive.

    Error
    -----
    MΔ/ε for an unfiltered measurement with Laplace noise, about six tenths of it with shared noise and few columns
    (:meth:`noise_error`), plus the drift in between, which only the data know.
    Time O(d) at measured steps and the writing of d values at the others, memory 6 vectors of d.

    What the parts are worth: mean absolute error with Laplace noise, ε = 1, negative values cut off, mean of 100 runs (10
    for the bus); docs/mechanisms/w_event.md has more streams:

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
    >>> mechanism = Fast(WEvent(epsilon="1", window=120))
    >>> mechanism.measurements, Fast(WEvent(epsilon="1", window=120), noise="laplace").scale
    (30, 30.0)
    >>> from tidegate.core.session import Session
    >>> releases = Session(mechanism).push_batch(np.full((500, 1), 40))
    >>> bool(releases.fresh.sum() <= 30 * 5)
    True

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

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, User)
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
        if self.blocks and isinstance(self.policy, User):
            raise InvalidParameter(
                "blocks", True, "False under a User policy", "a finite stream is one block"
            )
        check_scale(self.scale)  # refuses, while nothing is charged, what noise could not be drawn for

    @property
    def sliding(self) -> bool:
        """Whether measurements are limited by any w consecutive steps, not by a block or a whole stream."""
        return not self.blocks and self.policy.window is not None

    @property
    def measurements(self) -> int:
        """M: how many measurements a window, a block or the whole finite stream may have."""
        assert self.samples is not None
        return self.samples

    @property
    def distance(self) -> int:
        """0: the controller decides when it measures."""
        return 0

    def measured_in(self, steps: int) -> int:
        """The most measurements that so many consecutive steps can contain."""
        return min(steps, self.measurements)

    @cached_property
    def sharing(self) -> Sharing | None:
        """The law that measurements share, those of each block for themselves."""
        return self.inner.sharing if self.blocks else super().sharing

    @property
    def units(self) -> int:
        """One unit a measurement, or group of them that shares noise, of as many blocks as a window can meet."""
        return (blocks_met(self.policy.steps_charged) if self.blocks else 1) * super().units

    @property
    def sharing_units(self) -> int:
        """Those of one block."""
        return super().units

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

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was measured: the first step is. Blocks are counted from it."""
        return State(np.array([first - 1]), self._begun(first), self.begin_shared())

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

    @property
    def skips_steps(self) -> bool:
        """Steps between measurements are not looked at."""
        return True

    def intervals(self) -> Fold:
        """A walk since the last measurement, whose noise the filter has lessened."""
        law = replace(self.measured_law, rounded=self.rounded_by)
        return (Filtered if self.filter else Held)(self.outputs, law, self.law)

    @classmethod
    def as_published(cls, policy: Policy, **options: Any) -> Self:
        """On blocks, as the w-event paper runs it."""
        return super().as_published(policy, **{"blocks": True} | options)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", window=10), columns=3, samples=4),
            cls(WEvent(epsilon="4", window=10), columns=3, samples=4, noise="laplace"),
            cls(WEvent(epsilon="4", window=40), samples=20, noise="cube"),
            cls(WEvent(rho="1", window=10), columns=2, samples=4),
            cls(WEvent(epsilon="1/3", window=1, adjacency="replace"), columns=20, grid="0.5"),
            cls(
                User(epsilon="2", horizon=6000),
                filter=Kalman(process_noise=4.0),
                adaptive=Pid(derivative=0.1),
            ),
            cls(WEvent(epsilon="1", window=12), columns=2, blocks=True, samples=3, noise="laplace"),
            cls(WEvent(epsilon="1", window=12), blocks=True, samples=6, adaptive=False),
            cls(
                WEvent(epsilon="2", window=8), columns=2, samples=2, filter=False, adaptive=False, grid="0.01"
            ),
        ]
