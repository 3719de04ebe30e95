"""OptStream (Fioretto and Van Hentenryck 2019, Algorithm 2): sample, perturb, reconstruct, optimise; period by period.

Every step is released at once, from the samples so far, and again when its period ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from tidegate._mechanisms.optstream.periods import Periods, Revised
from tidegate.core.arrays import Array
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.intervals import Fold, Sampled
from tidegate.mechanisms.optstream import opt_stream as configured
from tidegate.mechanisms.optstream.feature_fit import fit_features
from tidegate.mechanisms.optstream.kernels import periods as loop
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler
from tidegate.mechanisms.optstream.periods import CAUSAL
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.noise import laplace, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.noise.laws import SharedLaw, exact_units, most_live
from tidegate.structures.clamping import summable

# positions in `State.numbers`
COUNT = 0  # samples of this period
BEGAN = 1  # whether there was a sample before it
HAS_CURVE = 2  # whether the period before has a curve
TORN = 3  # whether steps of this period were not seen, so that it gets no curve
DRAWN = 4  # samples with shared noise so far: where noise is found
LAST = 5  # the last step that was released, or may not be released any more
NUMBERS = 6

SAMPLES = 0  # the law of spans that samples share; `periods.PERIODS` is the other one


class Sampler:
    """Adaptive sample times: the raw steps since the last sample, and the noisy threshold of the period. SECRET.

    Parameters
    ----------
    mechanism
        Whose rule it follows.
    columns
        The columns whose scores are added up.
    groups
        How many times so many columns there are, each with samples of its own.
    """

    def __init__(self, mechanism: OptStream, columns: int, groups: int = 1) -> None:
        self.mechanism, self.columns, self.groups = mechanism, columns, groups
        self.chooser = L1Sampler(mechanism.sampling, columns, groups)

    def stored(self) -> tuple[Array, ...]:
        """Its memory, and the raw steps, padded to a period."""
        kept = self.chooser.state()
        segment = np.zeros((self.groups * self.mechanism.window, self.columns), dtype=np.int64)
        segment[: len(kept["segment"])] = kept["segment"]
        return kept["sampler"], segment

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same from what was stored."""
        found = type(self)(self.mechanism, self.columns, self.groups)
        found.chooser.restore({"sampler": next(stored), "segment": next(stored)})
        return found

    def forget(self) -> None:
        """Drop the raw steps: nothing is chosen until the next period."""
        self.chooser = L1Sampler(self.mechanism.sampling, self.columns, self.groups)


class State(NamedTuple):
    """All that is carried from step to step."""

    numbers: Any
    points: Any  # the noisy samples of this period
    times: Any  # and their positions, from 1
    before: Any  # the last sample of the period before
    sums: Any  # SECRET: of each part of a feature: its noise, and what has arrived since the period began
    recent: Any  # the last two samples
    recent_steps: Any
    sampled: Any  # which steps of this period are samples
    curve: Any  # of the period before, where causal values follow it
    sampler: Any  # adaptive times; else empty
    law: Any  # SECRET: what samples share; empty where each has noise of its own


class Steps(NamedTuple):
    """What is filled in for some steps of one period."""

    first: int
    rows: Matrix
    values: Floats  # known at the step itself, in grid units
    source: Integers  # the last measured step
    chosen: Any  # which of them are samples


@dataclass(frozen=True)
class OptStream(Periods, configured.OptStream):
    """Measure k steps of every period; :class:`tidegate.mechanisms.OptStream` has parameters and privacy."""

    def validate(self) -> None:
        """Refuse the printed scales, which are not private; then check the parameters."""
        if self.calibration != "sound":
            raise InvalidParameter(
                "calibration", self.calibration, "'sound': printed scales are not private", "leave it out"
            )
        super().validate()

    # what a session asks -----------------------------------------------------------------------------------------

    @cached_property
    def shared(self) -> SharedLaw | None:
        """The law of samples; adaptive ones have one radius per period, which the period pays for."""
        if self.sharing is None:
            return None
        units = exact_units(self.sharing.group_part, self.units)
        return SharedLaw(self.sharing.law, units, self.window, 0, self.policy.horizon, SAMPLES)

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window: periods, and groups of samples."""
        groups = 0 if self.shared is None else most_live(self.shared.law, self.window, 1)
        return 3 + groups

    @property
    def noise_in_state(self) -> bool:
        """Sums begin with their noise, samples may share theirs, and adaptive times have a noisy threshold."""
        return bool(self.sum_count) or self.shared is not None or self.adaptive

    def begin(self, first: int) -> State:
        """Nothing was measured; a period that has begun before `first` gets no curve."""
        k, d, w = self.sample_count, self.columns, self.window
        numbers = np.zeros(NUMBERS, dtype=np.int64)
        numbers[TORN], numbers[LAST] = int((first - 1) % w > 0), first - 1
        return State(
            numbers,
            np.zeros((k, d)),
            np.zeros(k, dtype=np.int64),
            np.zeros(d),
            np.zeros((self.sum_count, self.measured_columns), dtype=np.int64),
            np.zeros((2, d)),
            np.zeros(2, dtype=np.int64),
            np.zeros(w, dtype=np.bool_),
            np.zeros((w if CAUSAL[self.causal] == loop.LAST_PERIOD else 0, d)),
            self._sampler() if self.adaptive else (),
            () if self.shared is None else self.shared.start(),
        )

    def _sampler(self) -> Sampler:
        return Sampler(self, self.columns)

    @cached_property
    def period_charges(self) -> tuple[int, Integers]:
        """What a period costs as a whole, and what each of its steps costs."""
        return self.charges(self.sample_times)

    def public(self, state: State, first: int, count: int) -> Charges:
        """Steps and periods cost the same, whatever the data are."""
        charges = self.charged(first, count, *self.period_charges)
        if self.adaptive and self._torn(state, first):
            charges.units[: self.window - (first - 1) % self.window] = 0  # nothing is measured any more
        return charges

    def _torn(self, state: State, first: int) -> bool:
        """Whether the period of a step has begun and was not seen as a whole."""
        inside = (first - 1) % self.window > 0
        return inside and bool(state.numbers[TORN] or state.numbers[LAST] != first - 1)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Algorithm 2 for the steps of one period after the other."""
        count, w, source = len(rows), self.window, noise.source
        charges = self.public(state, first, count)
        values, at = np.empty((count, self.columns)), np.zeros(count, dtype=np.int64)
        chosen, spans, finals = np.zeros(count, dtype=np.bool_), [charges.spans], []
        start = 0
        while start < count:
            period, position = divmod(first + start - 1, w)
            part = slice(start, min(count, start + w - position))
            steps = Steps(first + start, rows[part], values[part], at[part], chosen[part])
            if position == 0:
                self._open(state, source, period)
            elif self._torn(state, steps.first):
                self._tear(state, period)
            spans.append(self._release(state, steps, source))
            state.numbers[LAST] = first + part.stop - 1
            if position + len(steps.rows) == w:
                finals += self._close(state, w)
            start = part.stop
        return Output(
            self._nodes(values * float(Fraction(self.grid))),
            self.status_of(chosen, first),
            at,
            np.where(at > 0, self.shown_scale, 0.0),
            charges.units,
            np.concatenate(spans),
            revised=tuple(self.together(finals)),
        )

    def finish(self, state: State, last: int, noise: Draws) -> Output | None:
        """The final values of a period that the end of the stream cuts short, from what is known of it."""
        length = int(state.numbers[LAST]) % self.window
        finals = self._close(state, length) if length else []
        return self.at_the_end(finals[0] if finals else None)

    # the periods -------------------------------------------------------------------------------------------------

    def _open(self, state: State, source: Source, period: int) -> None:
        """Begin a period: its sums are their noise."""
        numbers = state.numbers
        numbers[COUNT] = numbers[TORN] = 0
        state.sampled[:] = False
        if self.sum_count:
            cells = (1, state.sums.size)
            state.sums[:] = laplace(source, "sums", period, self.sum_scales, cells).reshape(state.sums.shape)
        if self.adaptive:
            state.sampler.chooser.begin(source, period)
            if self.shared is not None:  # a radius of its own
                self.shared.renew(state.law)

    def _tear(self, state: State, period: int) -> None:
        """Steps were passed over: the period gets no curve, and if its times are adaptive, no further sample."""
        numbers = state.numbers
        if (numbers[LAST] - 1) // self.window != period:  # none of this period's samples was seen
            numbers[COUNT], state.sampled[:] = 0, False
        numbers[TORN], state.sums[:] = 1, 0
        if self.adaptive:
            state.sampler.forget()

    def _release(self, state: State, steps: Steps, source: Source) -> Integers:
        """Some steps of one period at once: sample and perturb; the spans that pay for it."""
        measured = self._measured(steps.rows)
        self._sample(state, steps, measured, source)
        shown, spans = self._perturb(state, steps, measured, source)
        self._causal(state, steps, shown)
        return spans

    def _close(self, state: State, length: int) -> list[Revised]:
        """The final values of the first steps of a period: reconstruct and optimise; none where it is torn."""
        numbers, count = state.numbers, int(state.numbers[COUNT])
        finals = []
        if not numbers[TORN]:
            curve = self._reconstruct(state, length)
            final = self._optimise(state, *curve)
            if len(state.curve) and length == self.window:
                state.curve[:], numbers[HAS_CURVE] = final, 1
            finals = [self._final(state, final)]
        if count:
            state.before[:], numbers[BEGAN] = state.points[count - 1], 1
        return finals

    def _final(self, state: State, final: Floats) -> Revised:
        """Final values as they are released."""
        length, last = len(final), int(state.numbers[LAST])
        values, chosen = self._nodes(final * float(Fraction(self.grid))), state.sampled[:length]
        return self.final(last - length + 1, values, chosen, self.period_charges[1])

    # the four steps of Algorithm 2 -------------------------------------------------------------------------------

    def _sample(self, state: State, steps: Steps, measured: Matrix, source: Source) -> None:
        """1. Choose the samples: at public times, or where the line from the last one strays from the stream."""
        position = (steps.first - 1) % self.window
        end = position + len(steps.rows)
        if not self.adaptive:
            steps.chosen[:] = self._is_sample[position:end]
        elif not state.numbers[TORN]:  # else what was chosen before is not known
            steps.chosen[:] = state.sampler.chooser.choose(source, steps.first, self._watched(measured))[:, 0]
        state.sampled[position:end] = steps.chosen

    @cached_property
    def _is_sample(self) -> Any:
        """Which steps of a period are samples, where that is public."""
        found = np.zeros(self.window, dtype=np.bool_)
        found[np.array(self.sample_times, dtype=np.int64) - 1] = True
        return found

    def _perturb(
        self, state: State, steps: Steps, measured: Matrix, source: Source
    ) -> tuple[Floats, Integers]:
        """2. Add noise to the samples, and let the noisy sums grow; the samples, and the spans that pay for them."""
        numbers, (period, position) = state.numbers, divmod(steps.first - 1, self.window)
        at, count, spans = np.flatnonzero(steps.chosen), int(state.numbers[COUNT]), NO_SPANS
        number = period * self.sample_count + count
        if self.shared is None:
            shape = (len(at), self.measured_columns)
            drawn = laplace(source, "samples", number, self.sample_scales, shape)
        elif self.adaptive:  # the period has paid
            drawn, _ = self.shared.measure(state.law, source, "samples", number, steps.first + at)
        else:
            begin = int(numbers[DRAWN])
            drawn, spans = self.shared.measure(state.law, source, "samples", begin, steps.first + at)
        shown = self._leaves(measured[at] + drawn)
        state.points[count : count + len(at)] = shown
        state.times[count : count + len(at)] = position + 1 + at
        numbers[COUNT] += len(at)
        numbers[DRAWN] += len(at)
        if self.sum_count and not numbers[TORN]:
            loop.add_to_sums(summable(measured, self.window), position, self.tree.labels, state.sums)
        return shown, spans

    def _reconstruct(self, state: State, length: int) -> tuple[Floats, Reconstruction, Floats, Floats]:
        """3. Draw a curve through the samples: its points, their weights at each step, and what to trust how much."""
        count = int(state.numbers[COUNT])
        points = state.points[:count]
        before = state.before if state.numbers[BEGAN] or not count else points[0]
        return np.concatenate([before[np.newaxis], points]), *self._weights(
            tuple(state.times[:count].tolist()), length
        )

    def _optimise(
        self, state: State, known: Floats, curve: Reconstruction, variances: Floats, precisions: Floats
    ) -> Floats:
        """4. Fit the curve to the noisy sums, weighted (Algorithm 4); steps × columns."""
        sums = self._leaves(state.sums)
        return self._fitted(known, curve, variances, precisions, sums, self.nonnegative)

    def _fitted(
        self,
        known: Floats,
        curve: Reconstruction,
        variances: Floats,
        precisions: Floats,
        sums: Floats,
        nonnegative: bool,
    ) -> Floats:
        one = (known[np.newaxis], sums[np.newaxis])  # period
        fitted: Floats = fit_features(self.tree, curve, variances, precisions, *one, nonnegative)[0]
        return fitted

    @cached_property
    def _weights(self) -> Any:
        """The curve through samples at given times, the variances of its steps, and the precisions of the sums."""

        def found(times: tuple[int, ...], length: int) -> tuple[Reconstruction, Floats, Floats]:
            curve = Reconstruction.through(np.array(times, dtype=np.int64), length, self.reconstruction)
            tree = self.tree.until(length)
            if self.weights == "size":
                parts = np.bincount(tree.level, minlength=len(self.features))
                return curve, np.full(length, float(length)), 1.0 / parts[tree.level]
            if not self.features:
                return curve, np.ones(length), np.zeros(0)
            ratio = self.sample_variance / variance_laplace(self.sum_scale)
            return curve, curve.spread, np.where(tree.size > 0, ratio, 0.0)

        return lru_cache(maxsize=4)(found)

    # what is known at once ---------------------------------------------------------------------------------------

    def _causal(self, state: State, steps: Steps, shown: Floats) -> None:
        """What is known of each step at the step itself."""
        loop.causal_values(
            steps.first,
            self.window,
            steps.chosen,
            shown,
            state.recent,
            state.recent_steps,
            CAUSAL[self.causal],
            state.curve[np.newaxis],
            bool(state.numbers[HAS_CURVE]),
            self.nonnegative,
            steps.values,
            steps.source,
        )

    # columns are measured as they are; a hierarchy measures nodes ------------------------------------------------

    def _measured(self, rows: Matrix) -> Matrix:
        """What is measured of each step."""
        return rows

    def _watched(self, measured: Matrix) -> Matrix:
        """What adaptive times depend on."""
        return measured

    def _leaves(self, noisy: Matrix) -> Floats:
        """Noisy measurements as estimates of the columns."""
        return noisy.astype(np.float64)

    def intervals(self) -> Fold:
        """A walk since the last sample or between two, and what final values have corrected."""
        law = replace(self.measured_law, rounded=self.rounded_by)
        return Sampled(self.outputs, law, self.law, self.window, fitted=bool(self.features), apart=False)

    def _nodes(self, values: Floats) -> Floats:
        """What is released, from the columns."""
        return values
