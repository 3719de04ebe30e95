"""OptStream (Fioretto and Van Hentenryck 2019, Algorithm 2): sample, perturb, reconstruct, optimise; period by period.

Every step is released at once, from the samples so far, and again when its period ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tidegate.core.arrays import Array
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.mechanisms.optstream import opt_stream as configured
from tidegate.mechanisms.optstream.feature_fit import fit_features
from tidegate.mechanisms.optstream.kernels import periods as loop
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler
from tidegate.mechanisms.optstream.periods import CAUSAL
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.noise import laplace, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.noise.laws import SharedLaw, exact_units, most_live
from tidegate.releases import Status

# positions in `State.numbers`
COUNT = 0  # samples of this period
BEGAN = 1  # whether there was a sample before it
HAS_CURVE = 2  # whether the period before has a curve
TORN = 3  # whether the beginning of this period was not seen, so that it gets no curve
DRAWN = 4  # samples with shared noise so far: where noise is found
NUMBERS = 5

SAMPLES, PERIODS = 0, 1  # the laws of spans: shared samples, and what a period costs as a whole


class Sampler:
    """Adaptive sample times: the raw steps since the last sample, and the noisy threshold of the period. SECRET."""

    def __init__(self, mechanism: OptStream) -> None:
        self.mechanism = mechanism
        self.chooser = L1Sampler(mechanism.sampling, mechanism.columns)

    def stored(self) -> tuple[Array, ...]:
        """Its memory, and the raw steps, padded to a period."""
        kept = self.chooser.state()
        segment = np.zeros((self.mechanism.window, self.mechanism.columns), dtype=np.int64)
        segment[: len(kept["segment"])] = kept["segment"]
        return kept["sampler"], segment

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same from what was stored."""
        found = type(self)(self.mechanism)
        found.chooser.restore({"sampler": next(stored), "segment": next(stored)})
        return found


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


@dataclass(frozen=True)
class OptStream(configured.OptStream):
    """Measure k steps of every period; :class:`tidegate.mechanisms.OptStream` has parameters and privacy."""

    more: ClassVar[tuple[str, ...]] = ("ended",)  # of each step: how many steps became final with it
    revised: ClassVar[tuple[str, ...]] = ("values", "status", "source", "scale")  # of these steps

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
        numbers[TORN] = int((first - 1) % w > 0)
        return State(
            numbers,
            np.zeros((k, d)),
            np.zeros(k, dtype=np.int64),
            np.zeros(d),
            np.zeros((self.sum_count, d), dtype=np.int64),
            np.zeros((2, d)),
            np.zeros(2, dtype=np.int64),
            np.zeros(w, dtype=np.bool_),
            np.zeros((w if CAUSAL[self.causal] == loop.LAST_PERIOD else 0, d)),
            Sampler(self) if self.adaptive else (),
            () if self.shared is None else self.shared.start(),
        )

    def public(self, state: State, first: int, count: int) -> Charges:
        """Steps and periods cost the same, whatever the data are."""
        span, steps = self.charges(self.sample_times)
        position = (first - 1) % self.window
        units = np.resize(np.roll(steps, -position), count)
        if state.numbers[TORN] and self.adaptive:
            units[: self.window - position] = 0  # nothing is measured of this period any more
        begins = np.arange(first + (1 - first) % self.window, first + count, self.window)
        spans = [
            [PERIODS, (step - 1) // self.window, step, self._last(step), span]
            for step in begins.tolist()
            if span
        ]
        return Charges(first, units, np.array(spans, dtype=np.int64).reshape(-1, 5))

    def _last(self, step: int) -> int:
        """The last step of the period that begins at a step."""
        end = step + self.window - 1
        return end if self.policy.horizon is None else min(end, self.policy.horizon)

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Algorithm 2 for the steps of one period after the other."""
        count, w, charges = len(rows), self.window, self.public(state, first, len(rows))
        values, source = np.empty(rows.shape), np.zeros(count, dtype=np.int64)
        chosen, spans = np.zeros(count, dtype=np.bool_), [charges.spans]
        revised, finals = np.zeros(count, dtype=np.int64), []
        start = 0
        while start < count:
            period, position = divmod(first + start - 1, w)
            part = slice(start, min(count, start + w - position))
            if position == 0:
                self._open(state, noise.source, period)
            shown, paid = self._sample_and_perturb(
                state, rows[part], first + start, chosen[part], noise.source
            )
            spans.append(paid)
            self._causal(state, first + start, chosen[part], shown, values[part], source[part])
            if position + len(rows[part]) == w:
                final = self._close(state, w)
                revised[part.stop - 1] = len(final[0])
                finals.append((period * w + 1, *final))
            start = part.stop
        grid = float(Fraction(self.grid))
        return Output(
            values * grid,
            np.where(chosen, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED)),
            source,
            np.where(source > 0, self.shown_scale, 0.0),
            charges.units,
            np.concatenate(spans),
            (revised,),
            self._final(finals),
        )

    # the four steps of Algorithm 2 -------------------------------------------------------------------------------

    def _open(self, state: State, source: Source, period: int) -> None:
        """Begin a period: its sums are their noise."""
        numbers = state.numbers
        numbers[COUNT] = numbers[TORN] = 0
        state.sampled[:] = False
        if self.sum_count:
            cells = (1, self.sum_count * self.columns)
            state.sums[:] = laplace(source, "sums", period, self.sum_scales, cells).reshape(state.sums.shape)
        if self.adaptive:
            state.sampler.chooser.begin(source, period)
            if self.shared is not None:  # a radius of its own
                for kept, new in zip(_arrays(state.law), _arrays(self.shared.start()), strict=True):
                    kept[...] = new

    def _sample_and_perturb(
        self, state: State, rows: Matrix, first: int, chosen: Any, source: Source
    ) -> tuple[Floats, Integers]:
        """Choose the samples among some steps of a period and add noise; they, and the spans that pay for it."""
        numbers, period, position = state.numbers, (first - 1) // self.window, (first - 1) % self.window
        torn, end = bool(numbers[TORN]), position + len(rows)
        if not self.adaptive:
            times = np.array(self.sample_times, dtype=np.int64) - 1
            chosen[times[(times >= position) & (times < end)] - position] = True
        elif not torn:  # else what was chosen before is not known
            chosen[:] = state.sampler.chooser.choose(source, first, rows)[:, 0]
        at, count, spans = np.flatnonzero(chosen), int(numbers[COUNT]), NO_SPANS
        shape, number = (len(at), self.columns), period * self.sample_count + count
        if self.shared is None:
            drawn = laplace(source, "samples", number, self.sample_scales, shape)
        elif self.adaptive:  # the period has paid
            drawn, _ = self.shared.measure(state.law, source, "samples", number, first + at)
        else:
            drawn, spans = self.shared.measure(state.law, source, "samples", int(numbers[DRAWN]), first + at)
        shown = (rows[at] + drawn).astype(np.float64)
        state.points[count : count + len(at)] = shown
        state.times[count : count + len(at)] = position + 1 + at
        numbers[COUNT] += len(at)
        numbers[DRAWN] += len(at)
        state.sampled[position:end] = chosen
        if self.sum_count and not torn:
            loop.add_to_sums(rows, position, self.tree.labels, state.sums)
        return shown, spans

    def _close(self, state: State, length: int) -> tuple[Floats, Any]:
        """Reconstruct and optimise: the curve of a period through its samples, fitted to its sums; and its samples."""
        numbers, count = state.numbers, int(state.numbers[COUNT])
        points, torn = state.points[:count], bool(numbers[TORN])
        before = state.before if numbers[BEGAN] or not count else points[0]
        final = np.empty((0, self.columns))
        if not torn:
            known = np.concatenate([before[np.newaxis], points])[np.newaxis]
            curve, variances, precisions = self._reconstruction(tuple(state.times[:count].tolist()), length)
            sums = state.sums[np.newaxis].astype(np.float64)
            fitted = fit_features(self.tree, curve, variances, precisions, known, sums, self.nonnegative)
            final = fitted.reshape(length, -1)
            if len(state.curve):
                state.curve[:], numbers[HAS_CURVE] = final, 1
        if count:
            state.before[:], numbers[BEGAN] = points[-1], 1
        return final, state.sampled[: len(final)].copy()

    @cached_property
    def _reconstruction(self) -> Any:
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

    # what is released --------------------------------------------------------------------------------------------

    def _causal(
        self, state: State, first: int, chosen: Any, shown: Floats, values: Floats, source: Integers
    ) -> None:
        """What is known of each step at the step itself."""
        mode, known = CAUSAL[self.causal], bool(state.numbers[HAS_CURVE])
        recent = (shown, state.recent, state.recent_steps)
        curves = state.curve[np.newaxis]
        loop.causal_values(
            first, self.window, chosen, *recent, mode, curves, known, self.nonnegative, values, source
        )

    def _final(self, finals: list[tuple[int, Floats, Any]]) -> tuple[Array, ...]:
        """Values, statuses, sources and scales of the steps whose period ended."""
        grid, values, status, source = float(Fraction(self.grid)), [], [], []
        for first, leaves, chosen in finals:
            steps = np.arange(first, first + len(leaves))
            last = np.maximum.accumulate(np.where(chosen, steps, 0))
            # before the first sample of its period a step rests on later ones
            source.append(np.where(last >= first, last, first + len(leaves) - 1))
            status.append(np.where(chosen, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED)))
            values.append(leaves * grid)
        found = np.concatenate([np.empty((0, self.columns)), *values])
        return (
            found,
            np.concatenate([np.zeros(0, dtype=np.int8), *status]),
            np.concatenate([np.zeros(0, dtype=np.int64), *source]),
            np.full(len(found), self.shown_scale),
        )


def _arrays(law: Any) -> tuple[Array, ...]:
    return (law.numbers, law.ahead, *law.inner)
