"""OptStream (Fioretto and Van Hentenryck 2019, Algorithm 2): sample, perturb, reconstruct, optimise; period by period.

Every step is released at once, from the samples so far, and again when its period ends. The four steps of Algorithm 2
are `_sample`, `_perturb`, `_reconstruct` and `_optimise`; `l1_sampling.py` has Algorithm 3, `feature_fit.py` Algorithm 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.core.arrays import Array
from tidegate.core.charges import NO_SPANS, Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, one_of, show, whole
from tidegate.intervals import Fold, Sampled
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.choose_samples import Prediction, best_for_profile, best_for_slope
from tidegate.mechanisms.optstream.feature_fit import fit_features
from tidegate.mechanisms.optstream.feature_trees import (
    Feature,
    FeatureTree,
    parts,
    parts_of_day,
    read_features,
    whole_period,
)
from tidegate.mechanisms.optstream.l1_sampling import L1Sampler, L1Sampling
from tidegate.mechanisms.optstream.period_budget import PeriodBudget
from tidegate.mechanisms.optstream.periods import Periodic, Revised
from tidegate.mechanisms.optstream.reconstruction import CURVES, Curve, Reconstruction
from tidegate.mechanisms.optstream.sampling_times import (
    PlannedTimes,
    SampleTimes,
    equally_spaced,
    read_times,
)
from tidegate.mechanisms.sharing import Laws, SharingMechanism
from tidegate.noise import check_scale, laplace, variance_laplace
from tidegate.noise.entropy import Source
from tidegate.noise.laws import most_live
from tidegate.noise.shared.choice import LONGEST_GROUP, Choice, cube_choice
from tidegate.policy import Policy, WEvent
from tidegate.structures.clamping import summable

WEIGHTS = ("variance", "size")
PRINTED_SAMPLES, PRINTED_THRESHOLD = 10, 1000  # k and θ of section 6
# of a period of 12 steps: a feature across the day's parts
ODD_EVEN = (tuple(range(1, 13, 2)), tuple(range(2, 13, 2)))

# positions in `State.numbers`
COUNT = 0  # samples of this period
BEGAN = 1  # whether there was a sample before it
HAS_CURVE = 2  # whether the period before has a curve
TORN = 3  # whether steps of this period were not seen, so that it gets no curve
DRAWN = 4  # samples with shared noise so far: where noise is found
LAST = 5  # the last step that was released, or may not be released any more
NUMBERS = 6

# what stands for a step that is not a sample, until its period ends
HOLD = 0  # the last sample
LINE = 1  # the line through the last two samples, prolonged
LAST_PERIOD = 2  # the curve of the period before, moved to the last sample
CAUSAL = {"hold": HOLD, "line": LINE, "last period": LAST_PERIOD}


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


@kernel
def add_to_sums(rows: Any, position: int, labels: Any, sums: Any) -> None:
    """Add steps from `position` (0-based) of a period on to the sum of every part that contains them."""
    for index in range(rows.shape[0]):
        for level in range(labels.shape[0]):
            part = labels[level, position + index]
            for column in range(rows.shape[1]):
                sums[part, column] += rows[index, column]


@kernel
def causal_values(
    first_step: int,
    length: int,
    chosen: Any,
    shown: Any,
    recent: Any,
    recent_steps: Any,
    mode: int,
    curves: Any,
    has_curve: bool,
    nonnegative: bool,
    values: Any,
    source: Any,
) -> None:
    """What is known of each step at the step itself.

    `shown` are the samples at the `chosen` steps, `recent` the last two samples before, brought up to date.
    `curves[p]` is the curve of the period before the p-th one of these steps; the first of them counts if
    `has_curve`.
    """
    count = 0
    columns = values.shape[1]
    first_period = (first_step - 1) // length
    for index in range(values.shape[0]):
        step = first_step + index
        if chosen[index]:
            for column in range(columns):
                recent[0, column] = recent[1, column]
                recent[1, column] = shown[count, column]
            recent_steps[0] = recent_steps[1]
            recent_steps[1] = step
            count += 1
        period = (step - 1) // length
        before, last = recent_steps[0], recent_steps[1]
        curve = mode == LAST_PERIOD and (has_curve or period > first_period)
        source[index] = last if last > 0 or not curve else period * length
        for column in range(columns):
            value = recent[1, column] if last > 0 else 0.0
            if curve and not chosen[index]:
                drawn = curves[period - first_period]
                value += drawn[step - 1 - period * length, column]
                if last > 0:
                    value -= drawn[
                        last - 1 - period * length if last > period * length else length - 1, column
                    ]
            elif mode == LINE and before > 0 and not chosen[index]:
                value += (recent[1, column] - recent[0, column]) * (step - last) / (last - before)
            values[index, column] = max(value, 0.0) if nonnegative else value


@dataclass(frozen=True)
class OptStream(Periodic, SharingMechanism):
    """Measure k steps of every period of w, draw curves through them, and fit measured sums.

    A slow stream needs few samples, and few samples can be measured precisely: with k instead of w of them,
    noise falls by w/k, and lines between samples are off by what the stream bends. The sums of features
    (parts of the day, the whole day) can be measured besides; the released curve is the non-negative one
    nearest to samples and sums, weighted.

    Every step is released twice: at once, from the samples so far, and when its period ends
    (`release.revised`, up to w − 1 steps later), from the whole period.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the period is the policy's w, and starts at steps 1, w + 1, 2w + 1, …
    samples
        k, by default a quarter of w; choose it with :meth:`from_profile` or :meth:`from_slope`. w samples and no
        features make the plain Laplace mechanism, or what :class:`Uniform` is with noise that steps share.
    times
        The positions (1 … w) of the samples, the last of which is w; equally spaced by default. Public.
    adaptive
        Choose the samples by the L1 score with the sparse vector, instead of `times`: a sample where the line
        from the last one strays from the stream. Needs k ≥ 2. Or a sampler of your own, which sees releases only and is
        tried out at once: `tidegate.mechanisms.optstream.sampling_times.SampleTimes`.
    threshold
        For adaptive samples: the score θ at which a sample is due, by default w/k times the noise scale of a sample.
        Public.
    features
        Partitions of the positions whose sums are measured, in any partial order; see
        `tidegate.mechanisms.optstream.feature_trees`. None by default: with sound noise they seldom pay.
    split
        How sampling, samples and features share the budget, as relative weights; parts that are off get nothing.
    reconstruction
        "line" between samples, or "curve": cubic pieces, better for smooth streams and little noise. Or one of your own:
        `tidegate.mechanisms.optstream.reconstruction.Curve`. Final values have no finite intervals then: how far such a
        curve is off is not known.
    weights
        "variance": every measurement weighs one over its variance. "size": 1 over the number of parts of its feature,
        as printed. Or numbers: the weight of a step of the curve, then one for each feature, of its parts.
    nonnegative
        Whether the stream is known not to be negative: then no release is. A configuration file derives it from its
        query.
    causal
        What a step is worth before its period ends: "hold" the last sample, prolong the "line" through the
        last two, or move the curve of the "last period" to the last sample.
    noise
        "auto": the best law for k samples in a window, or in a period if they are adaptive (docs/mechanisms/noise.md).
        "laplace": noise of its own for each sample, as in the paper. "cube", "semiorder": this law, for adaptive
        samples the cube.

    Privacy
    -------
    Unit and neighbours: the policy's. Public times: any w consecutive steps contain each position once, so
    exactly k samples, each with discrete Laplace noise of scale kΔ/ε_P; a step changes each of the F features
    by at most Δ, and sums have noise of scale wFΔ/ε_O, so that each step loses ε_P/k if it is a sample, and
    ε_O/w. Adaptive times: the sparse vector costs ε_S in every period, and a window meets two; a window has
    at most min(2k − 2, w) samples because the first and the last step of a period are samples; so 2ε_S +
    min(2k − 2, w)/k · ε_P + ε_O = ε. What a period can cost is charged before its data are looked at, so charges
    and refusals are the same for all data. Everything else is post-processing.

    Samples share noise where that gains. Public times: the k samples of any window lose ε_P together, as those of
    :class:`Fast` do. Adaptive times: the k samples of a period have one radius, for which the period is charged half of
    what the samples of a window have. The state is secret then.

    A period that was not seen from its beginning, or of which steps were passed over, is torn: it has no final values,
    and with adaptive times no further sample. Sums begin as noise and samples are noised at once, so the state holds no
    raw value, but with adaptive times the raw steps since the last sample. A state and a later release of the same sum
    differ by what arrived in between: protect the state like data. Proof: docs/proofs/opt_stream.md.

    Departures: the printed noise of features ignores that a period's sum changes by wΔ, and the printed adaptive times
    ignore windows that straddle two periods.

    Error
    -----
    `predicted_error` for a public profile. With lines about 0.8·kΔ/ε from Laplace noise, 0.7 of that where 8 samples of
    a window share noise, and what lines through every (w/k)-th step miss. Time O(w) a period, O(w log w) with adaptive
    times, O(w²) a column and period with features that are not nested; memory O(w), O(w²) then.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = OptStream(WEvent(epsilon="1", window=48), samples=12)
    >>> OptStream(WEvent(epsilon="1", window=48), samples=12, noise="laplace").sample_scale, mechanism.sharing.choice.law
    (12.0, 'semiorder')
    >>> session = Session(mechanism)
    >>> releases = session.push_batch(np.full((100, 1), 5000))
    >>> releases.values.shape, releases.revised.values.shape, releases.revised[0].delay
    ((100, 1), (96, 1), 47)
    >>> session.finish().revised.values.shape
    (4, 1)

    References
    ----------
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019.
    """

    samples: int | None = None
    times: Sequence[int] | None = None
    adaptive: bool | SampleTimes = False
    threshold: ExactLike | None = None
    features: Sequence[Sequence[Sequence[int]]] = ()
    split: tuple[ExactLike, ExactLike, ExactLike] = (1, 1, 1)
    reconstruction: str | Curve = "line"
    weights: str | Sequence[ExactLike] = "variance"
    nonnegative: bool = False
    causal: str = "hold"

    def validate(self) -> None:
        """Check the samples, the features and how the budget is split."""
        put, w = object.__setattr__, self.window
        self._check_own()
        if self.chooses and self.times is not None:
            raise InvalidParameter("times", "given", "absent where adaptive=True", "leave one of them out")
        if self.times is not None:
            put(self, "times", read_times(self.times, w))
            if self.samples not in (None, len(self.sample_times)):
                raise InvalidParameter("samples", self.samples, "the number of times", "leave it out")
        k = self.samples or (
            len(self.times) if self.times is not None else max(2 if self.chooses else 1, w // 4)
        )
        least = 2 if self.chooses else 1
        put(self, "samples", whole("samples", k if self.samples is None else self.samples, least, w))
        put(self, "weights", self._read_weights())
        put(self, "features", read_features(self.features, w))
        weights = tuple(exact("split", weight) for weight in self.split)
        if len(weights) != 3 or min(weights) < 0 or not weights[1] or (self.features and not weights[2]):
            raise InvalidParameter(
                "split", [show(weight) for weight in weights], "three weights, above 0 for parts that are on",
                "write for example split=(1, 1, 1)",
            )  # fmt: skip
        if self.sampling_rule_tests and not weights[0]:
            raise InvalidParameter(
                "split", 0, "above 0 for adaptive sampling", "write for example split=(1, 1, 1)"
            )
        put(self, "split", weights)
        if self.threshold is not None:
            put(self, "threshold", exact("threshold", self.threshold))
        one_of("causal", self.causal, tuple(CAUSAL))
        if self._plans:
            self._sampler().plan(0, None)  # before there is a stream that it could halt
        remedy = "raise epsilon, choose a coarser grid or simpler weights in split"
        self.refuse_wide_noise(max(*self._noise_scales(), self.units), remedy=remedy)

    def _read_weights(self) -> str | tuple[Fraction, ...]:
        """The weights in the order of the features, finest first."""
        if isinstance(self.weights, str):
            one_of("weights", self.weights, WEIGHTS)
            return self.weights
        read = tuple(exact("weights", weight) for weight in self.weights)
        if len(read) != 1 + len(self.features) or min(read) < 0 or not read[0]:
            raise InvalidParameter(
                "weights",
                [show(weight) for weight in read],
                f"{1 + len(self.features)} numbers, of the curve (above 0) and of each feature",
                'write for example weights="variance"',
            )
        sizes = [len(feature) for feature in self.features]
        order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
        return (read[0], *(read[1 + place] for place in order))

    def _check_own(self) -> None:
        """A sampler, a reconstruction and weights of one's own: what they need; hierarchies have the built-in ones."""
        own_weights = not isinstance(self.weights, str)
        for name, value, own, method in (
            ("adaptive", self.adaptive, self._plans, "times"),
            ("reconstruction", self.reconstruction, self._draws, "curve"),
            ("weights", self.weights, own_weights, None),
        ):
            if own and self.forest is not None:
                raise InvalidParameter(name, "your own", "built in for a hierarchy", "use OptStream")
            methods = (method, "describe") if own and method else ()
            if not all(callable(getattr(value, each, None)) for each in methods):
                raise InvalidParameter(
                    name, repr(value), f"an object with the methods {method} and describe", "write both"
                )
        if not self._draws:
            one_of("reconstruction", self.reconstruction, CURVES)

    def _noise_scales(self) -> Iterator[float]:
        """The widest noise of every kind, and the threshold."""
        yield float(np.max(self.sample_scales))
        if self.features:
            yield float(np.max(self.sum_scales))
        if self.sampling_rule_tests:
            yield self.sampling.sparse_vector.question_scale
            yield abs(self.sampling.limit)

    # shape -----------------------------------------------------------------------------------------------------

    @property
    def sample_count(self) -> int:
        """k."""
        assert self.samples is not None
        return self.samples

    @property
    def sample_times(self) -> tuple[int, ...]:
        """The positions of the samples; none where they depend on the data."""
        if self.chooses:
            return ()
        return equally_spaced(self.window, self.sample_count) if self.times is None else tuple(self.times)

    @cached_property
    def tree(self) -> FeatureTree:
        """The features as a tree."""
        return FeatureTree.grow(self.checked_features, self.window)

    @property
    def checked_features(self) -> tuple[Feature, ...]:
        """The features, finest first."""
        return self.features  # type: ignore[return-value]  # made tuples by the constructor

    @property
    def sum_count(self) -> int:
        """The number of sums that are measured in a period."""
        return len(self.tree.parents)

    @property
    def columns_apart(self) -> bool:
        """Whether columns have nothing in common but their noise: not where they are sampled by a common decision."""
        return not self.chooses

    @property
    def columns_independent(self) -> bool:
        """Not where columns share what is decided from all of them, nor where leaves are optimised together."""
        return super().columns_independent and not (self.forest is not None and self.nonnegative)

    @property
    def independent_period(self) -> int:
        """With adaptive samples the first step of a period is one: nothing of the period before is held."""
        return self.window if self.by_scores and self.causal == "hold" else 0

    # what is plugged in: decided by identity, since an object may change its truth value, length and equality

    @property
    def chooses(self) -> bool:
        """Whether periods choose their samples, by scores or by a sampler of one's own."""
        return self.adaptive is not False

    @property
    def _plans(self) -> bool:
        """Whether a sampler of one's own chooses."""
        return self.chooses and not self.by_scores

    @property
    def _draws(self) -> bool:
        """Whether a reconstruction of one's own draws the curve."""
        return type(self.reconstruction) is not str

    @property
    def by_scores(self) -> bool:
        """Whether sample times depend on the data, by Algorithm 3; those of a sampler of one's own are public."""
        return self.adaptive is True

    @property
    def keeps_raw_values(self) -> bool:
        """Whether the state holds raw values: the steps since the last adaptive sample."""
        return self.by_scores

    # budget ----------------------------------------------------------------------------------------------------

    @property
    def sampling_rule_tests(self) -> bool:
        """Whether steps are tested, so that sampling has a part of the budget."""
        return self.by_scores and 2 < self.sample_count < self.window

    @property
    def distance(self) -> int:
        """0: samples come where the period has them."""
        return 0

    def measured_in(self, steps: int) -> int:
        """The most samples that so many consecutive steps can contain."""
        most = self._unshared_period.most
        return min(steps, most if steps <= self.window else most * -(-steps // self.window))

    @property
    def measuring_part(self) -> Fraction:
        """What all samples of a window have of the budget."""
        return self._unshared_period.measuring

    @property
    def may_share(self) -> bool:
        """Not where the nodes of a hierarchy have different parts of the budget."""
        return self.forest is None

    @property
    def laws(self) -> Laws | None:
        """Adaptive samples are one group a period, of which a window meets two."""

        def a_period(columns: int) -> list[Choice]:
            fits = self.sample_count * columns <= LONGEST_GROUP
            return [cube_choice((self.sample_count,), 2, columns)] if fits else []

        return a_period if self.chooses else None

    @cached_property
    def period(self) -> PeriodBudget:
        """What tests, samples and features have of the budget, and what periods are charged."""
        return replace(self._unshared_period, groups=0 if self.sharing is None else self.sharing.units)

    @cached_property
    def _unshared_period(self) -> PeriodBudget:
        """The same where every sample has noise of its own: parts do not depend on that."""
        tests, samples, features = (Fraction(weight) for weight in self.split)
        weights = (
            tests if self.sampling_rule_tests else Fraction(0),
            samples,
            features if self.features else Fraction(0),
        )
        return PeriodBudget(self.window, self.sample_count, weights, self.chooses, self.leaf_share)

    @property
    def leaf_share(self) -> Fraction:
        """The part of a sample's budget that depends on data; see `PeriodBudget`."""
        return Fraction(1)

    @property
    def tests_share(self) -> Fraction:
        """The part of the tests' budget that one sampler has."""
        return Fraction(1)

    @property
    def shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """What of ε one period's tests, one sample, and one step's features cost."""
        return self.period.shares

    @property
    def units(self) -> int:
        """As many as make every charge a whole number of them."""
        return self.period.units

    def charges(self, times: Sequence[int]) -> tuple[int, Integers]:
        """The units of a period, and those of each of its steps."""
        return self.period.charges(times)

    @cached_property
    def sample_scale(self) -> float:
        """The noise scale of a sample in grid units, s of shared noise; rounded up."""
        if self.sharing is not None:
            return self.sharing.scale
        return float_up(self.sensitivity / (self.shares[1] * self._epsilon))

    @property
    def sample_variance(self) -> float:
        """The variance of a sample's noise in grid units."""
        return variance_laplace(self.sample_scale) if self.sharing is None else self.sharing.variance

    @property
    def sample_scales(self) -> float | npt.NDArray[np.float64]:
        """The noise scale of a sample, by measured column where they differ."""
        return self.sample_scale

    @cached_property
    def sum_scale(self) -> float:
        """The noise scale of a feature's sums in grid units; rounded up."""
        return float_up(self.sensitivity * len(self.features) / (self.shares[2] * self._epsilon))

    @property
    def sum_scales(self) -> float | npt.NDArray[np.float64]:
        """The noise scale of the sums, for sums × measured columns where they differ."""
        return self.sum_scale

    @property
    def decisive_scale(self) -> float:
        """The scale of Laplace noise like that of a sample, of what adaptive sampling looks at."""
        return self.sample_scale if self.sharing is None else self.sharing.laplace_scale

    @property
    def estimate_variance(self) -> float:
        """The variance of an estimate from one measurement, in units of that of a sample or sum."""
        return 1.0

    @property
    def shown_scale(self) -> float:
        """The noise scale of a sample in the values' unit, of Laplace noise with its variance; the largest of columns."""
        scale = float(np.max(self.sample_scales)) if self.sharing is None else self.sharing.laplace_scale
        return scale * float(Fraction(self.grid))

    @cached_property
    def sampling(self) -> L1Sampling:
        """The rule of adaptive samples."""
        k, w = self.sample_count, self.window
        if self.threshold is None:
            check_scale(self.decisive_scale)
            limit = math.ceil(w * Fraction(self.decisive_scale) / k)
        else:
            limit = math.ceil(Fraction(self.threshold) / Fraction(self.grid))
        epsilon = self.tests_share * self.shares[0] * self._epsilon
        return L1Sampling(w, k, epsilon, self.sensitivity, limit)

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def most_spans(self) -> int:
        """The most spans that meet a window: periods, and groups of samples."""
        groups = 0 if self.shared is None else most_live(self.shared.law, self.window, 1)
        return 3 + groups

    @property
    def noise_in_state(self) -> bool:
        """Sums begin with their noise, samples may share theirs, and adaptive times have a noisy threshold."""
        return bool(self.sum_count) or self.shared is not None or self.by_scores

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
            np.zeros((w if CAUSAL[self.causal] == LAST_PERIOD or self._plans else 0, d)),
            self._sampler() if self.chooses else (),
            () if self.shared is None else self.shared.start(),
        )

    def _sampler(self) -> Any:
        if self._plans:
            own: Any = self.adaptive
            return PlannedTimes(own, self.window, self.sample_count)
        return Sampler(self, self.columns)

    @cached_property
    def period_charges(self) -> tuple[int, Integers]:
        """What a period costs as a whole, and what each of its steps costs."""
        return self.charges(self.sample_times)

    def public(self, state: State, first: int, count: int) -> Charges:
        """Steps and periods cost the same, whatever the data are."""
        charges = self.charged(first, count, *self.period_charges)
        if self.chooses and self._torn(state, first):
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
            paid = self.period_charges[0] or len(spans[-1])
            if not paid and steps.chosen[charges.units[part] == 0].any():
                raise RuntimeError("a step was measured that is not charged: the stream ends here.")
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
        if self._plans:
            before = state.curve * float(Fraction(self.grid)) if numbers[HAS_CURVE] else None
            state.sampler.plan(period, before)
        elif self.chooses:
            state.sampler.chooser.begin(source, period)
        if self.chooses and self.shared is not None:  # a radius of its own
            self.shared.renew(state.law)

    def _tear(self, state: State, period: int) -> None:
        """Steps were passed over: the period gets no curve, and if its times are adaptive, no further sample."""
        numbers = state.numbers
        if (numbers[LAST] - 1) // self.window != period:  # none of this period's samples was seen
            numbers[COUNT], state.sampled[:] = 0, False
        numbers[TORN], state.sums[:] = 1, 0
        if self.chooses:
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
        """1. Choose the samples: at public times, as planned, or where the line from the last one strays."""
        position = (steps.first - 1) % self.window
        end = position + len(steps.rows)
        if not self.chooses:
            steps.chosen[:] = self._is_sample[position:end]
        elif self._plans:
            steps.chosen[:] = state.sampler.chosen[position:end]
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
        elif self.chooses:  # the period has paid
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
            add_to_sums(summable(measured, self.window), position, self.tree.labels, state.sums)
        return shown, spans

    def _reconstruct(self, state: State, length: int) -> tuple[Floats, Reconstruction, Floats, Floats]:
        """3. Draw a curve through the samples: its points, their weights at each step, and what to trust how much."""
        count = int(state.numbers[COUNT])
        points = state.points[:count]
        before = state.before if state.numbers[BEGAN] or not count else points[0]
        known, times = np.concatenate([before[np.newaxis], points]), state.times[:count]
        curve, variances, precisions = self.weights_at(tuple(times.tolist()), length)
        if self._draws:  # its curve, as points at all steps
            unit = float(Fraction(self.grid))
            own: Any = self.reconstruction
            drawn = np.asarray(own.curve(times.copy(), known * unit, length), dtype=np.float64)
            if drawn.shape != (length, self.columns) or not np.isfinite(drawn).all():
                raise InvalidParameter(
                    "reconstruction",
                    f"a curve of shape {drawn.shape}",
                    f"{length} finite rows of {self.columns}",
                    "correct it",
                )
            known = np.concatenate([known[:1], drawn / unit])
            curve = Reconstruction.through(np.arange(1, length + 1), length)
        return known, curve, variances, precisions

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
    def weights_at(self) -> Any:
        """The curve through samples at given times, the variances of its steps, and the precisions of the sums."""

        def found(times: tuple[int, ...], length: int) -> tuple[Reconstruction, Floats, Floats]:
            kind = "line" if self._draws else str(self.reconstruction)
            curve = Reconstruction.through(np.array(times, dtype=np.int64), length, kind)
            tree = self.tree.until(length)
            if not isinstance(self.weights, str):
                own, *each = (float(weight) for weight in self.weights)
                return curve, np.full(length, 1.0 / own), np.array(each)[tree.level]
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
        causal_values(
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

    def _nodes(self, values: Floats) -> Floats:
        """What is released, from the columns."""
        return values

    @property
    def samples_apart(self) -> bool:
        """Whether columns have sample times of their own."""
        return False

    @property
    def skips_steps(self) -> bool:
        """Steps between measurements are not looked at."""
        return True

    def intervals(self) -> Fold:
        """A walk since the last sample or between two, and what final values have corrected."""
        law = replace(self.measured_law, rounded=self.rounded_by)
        return Sampled(
            self.outputs,
            law,
            self.law,
            self.window,
            fitted=bool(self.features),
            apart=self.samples_apart,
            own=self._draws,
        )

    # how many samples, and where ----------------------------------------------------------------------------------

    def predicted_error(self, profile: npt.ArrayLike) -> float:
        """The mean absolute error of final values to expect on streams like a public profile (T × d, whole periods)."""
        return Prediction(self).error(profile)

    @classmethod
    def from_profile(
        cls,
        policy: WEvent,
        profile: npt.ArrayLike,
        *,
        candidates: Iterable[Sequence[Sequence[Sequence[int]]]] = ((),),
        **options: Any,
    ) -> OptStream:
        """The number and the times of samples, and the features, with the least predicted error on a profile.

        The profile is public data or earlier releases (`releases.final.values`), never the protected stream.
        `candidates` are lists of features to compare, by default none; `options` are other parameters.

        Examples
        --------
        >>> day = 5000 - 2000 * np.cos(np.arange(48) / 48 * 2 * np.pi)
        >>> [OptStream.from_profile(WEvent(epsilon=e, window=48), day).samples for e in ("0.01", "0.1", "1")]
        [4, 8, 20]
        """
        return best_for_profile(cls(policy, **options), profile, candidates)

    @classmethod
    def from_slope(cls, policy: WEvent, slope: ExactLike, **options: Any) -> OptStream:
        """The number of equally spaced samples for streams that change by at most `slope` a step: a public bound.

        Examples
        --------
        >>> OptStream.from_slope(WEvent(epsilon="0.1", window=48), slope=100).samples
        16
        """
        return best_for_slope(cls(policy, **options), slope)

    @classmethod
    def as_published(cls, policy: Policy, **options: Any) -> Self:
        """Section 6 of the paper, in the sound calibration: k = 10 by L1 scores, θ = 1000, its features and weights.

        θ is in the values' unit, and the features are the parts of a day and the day, so the period should be a day.

        Examples
        --------
        >>> printed = OptStream.as_published(WEvent(epsilon="1", window=48))
        >>> printed.samples, str(printed.threshold), [len(feature) for feature in printed.features]
        (10, '1000', [4, 1])
        """
        w = policy.steps_charged
        printed: dict[str, Any] = {
            "samples": max(2, min(PRINTED_SAMPLES, w)),
            "adaptive": True,
            "threshold": PRINTED_THRESHOLD,
            "features": (parts_of_day(w), whole_period(w)),
            "weights": "size",
            "nonnegative": True,
        }
        return super().as_published(policy, **printed | options)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """From a few samples a period to every second step; with days, the last period shows the shape meanwhile."""
        w = policy.steps_charged
        counts = sorted({max(1, w // parts) for parts in (2, 3, 4, 6, 8, 12, 16, 24)})
        causal = "last period" if season is not None and w % season == 0 else "hold"
        return [
            cls(policy, columns=columns, samples=count, causal=causal, nonnegative=True) for count in counts
        ]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        day = (parts(12, [4, 9, 12]), whole_period(12))
        return [
            cls(WEvent(epsilon="1", window=12), samples=4, nonnegative=True),
            cls(WEvent(epsilon="1", window=12), columns=2, samples=4, features=day, causal="last period"),
            cls(
                WEvent(epsilon="2", window=7, adjacency="replace"),
                columns=2,
                times=(1, 4, 7),
                causal="line",
                grid="0.5",
            ),
            cls(WEvent(epsilon="1", window=5), samples=5, reconstruction="curve"),
            cls(WEvent(epsilon="1", window=1)),
            cls(
                WEvent(epsilon="50", window=12),
                columns=2,
                samples=5,
                adaptive=True,
                threshold=30,
                features=day,
            ),
            cls(
                WEvent(epsilon="50", window=9),
                samples=3,
                adaptive=True,
                causal="last period",
                noise="laplace",
            ),
            cls(WEvent(epsilon="1", window=6), samples=2, adaptive=True),
            cls(
                WEvent(epsilon="1", window=12),
                columns=2,
                samples=3,
                features=(day[0], ODD_EVEN),
                nonnegative=True,
            ),
            cls(WEvent(epsilon="1", window=12), columns=2, samples=4, features=day, noise="laplace"),
            cls(WEvent(epsilon="1", window=12), samples=8, features=day, noise="cube"),
            cls(WEvent(epsilon="4", window=12), samples=6, adaptive=True, threshold=30, features=day),
            cls(
                WEvent(epsilon="50", window=12),
                columns=2,
                samples=5,
                adaptive=True,
                threshold=30,
                noise="laplace",
            ),
        ]
