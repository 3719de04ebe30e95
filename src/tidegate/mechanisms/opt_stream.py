"""OptStream: sample a period, perturb the samples, reconstruct the steps between them, and optimise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, show, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.choose_samples import Prediction, best_for_profile, best_for_slope
from tidegate.mechanisms.feature_trees import Feature, FeatureTree, parts, read_features, whole_period
from tidegate.mechanisms.l1_sampling import L1Sampling
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.opt_stream_run import OptStreamRun
from tidegate.mechanisms.periods import CAUSAL
from tidegate.mechanisms.reconstruction import CURVES
from tidegate.mechanisms.sampling_times import equally_spaced, read_times
from tidegate.policy import Guarantee, Policy, WEvent

LARGEST_SCALE = 2**50
WEIGHTS = ("variance", "size")


@dataclass(frozen=True)
class OptStream(Mechanism):
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
        features make the plain Laplace mechanism.
    times
        The positions (1 … w) of the samples, the last of which is w; equally spaced by default. Public.
    adaptive
        Choose the samples by the L1 score with the sparse vector, instead of `times`: a sample where the line
        from the last one strays from the stream. Needs k ≥ 2.
    threshold
        For adaptive samples: the score θ at which a sample is due, by default w/k times the noise scale of a sample.
        Public.
    features
        Nested partitions of the positions, finest first, whose sums are measured; see
        `tidegate.mechanisms.feature_trees`. None by default: with sound noise they seldom pay.
    split
        How sampling, samples and features share the budget, as relative weights; parts that are off get nothing.
    reconstruction
        "line" between samples, or "curve": cubic pieces, better for smooth streams and little noise.
    weights
        "variance": every measurement weighs one over its variance. "size": 1 over the number of parts of its feature,
        as printed.
    nonnegative
        Whether the stream is known not to be negative.
    causal
        What a step is worth before its period ends: "hold" the last sample, prolong the "line" through the
        last two, or move the curve of the "last period" to the last sample.
    calibration
        "sound", or "paper" for the printed scales, which are not private.

    Privacy
    -------
    Unit and neighbours: the policy's. Public times: any w consecutive steps contain each position once, so
    exactly k samples, each with discrete Laplace noise of scale kΔ/ε_P; a step changes each of the F features
    by at most Δ, and sums have noise of scale wFΔ/ε_O, so that each step loses ε_P/k if it is a sample, and
    ε_O/w. Adaptive times: the sparse vector costs ε_S in every period, and a window meets two; a window has
    at most min(2k − 2, w) samples because the first and the last step of a period are samples; so 2ε_S +
    min(2k − 2, w)/k · ε_P + ε_O = ε. Everything else is post-processing. Sums begin as noise and samples are
    noised at once, so state and snapshots hold no raw value, but with adaptive times the raw steps since the
    last sample. A snapshot and a later release of the same sum differ by what arrived in between: guard
    snapshots like data. Proof: docs/proofs/opt_stream.md.

    Departures: the printed noise of features ignores that a period's sum changes by wΔ, and the printed
    adaptive times ignore windows that straddle two periods; ``calibration="paper"`` keeps both, and its
    guarantee states the loss.

    Error
    -----
    `predicted_error` for a public profile. With lines about 0.8·kΔ/ε from noise, and what lines through every
    (w/k)-th step miss. Time O(w) a period, O(w log w) with adaptive times; memory O(w).

    Examples
    --------
    >>> mechanism = OptStream(WEvent(epsilon="1", w=48), samples=12)
    >>> mechanism.sample_scale
    12.0
    >>> run = mechanism.start()
    >>> releases = run.push_batch(np.full((100, 1), 5000))
    >>> releases.values.shape, releases.revised.values.shape, releases.revised[0].delay
    ((100, 1), (96, 1), 47)
    >>> run.flush().values.shape
    (4, 1)

    References
    ----------
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019.
    """

    samples: int | None = None
    times: Sequence[int] | None = None
    adaptive: bool = False
    threshold: ExactLike | None = None
    features: Sequence[Sequence[Sequence[int]]] = ()
    split: tuple[ExactLike, ExactLike, ExactLike] = (1, 1, 1)
    reconstruction: str = "line"
    weights: str = "variance"
    nonnegative: bool = True
    causal: str = "hold"
    calibration: str = "sound"

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent,)

    def validate(self) -> None:
        """Check the samples, the features and how the budget is split."""
        put, w = object.__setattr__, self.window
        if self.adaptive and self.times is not None:
            raise InvalidParameter("times", "given", "absent where adaptive=True", "leave one of them out")
        if self.times is not None:
            put(self, "times", read_times(self.times, w))
            if self.samples not in (None, len(self.sample_times)):
                raise InvalidParameter("samples", self.samples, "the number of times", "leave it out")
        k = self.samples or (
            len(self.times) if self.times is not None else max(2 if self.adaptive else 1, w // 4)
        )
        least = 2 if self.adaptive else 1
        put(self, "samples", whole("samples", k if self.samples is None else self.samples, least, w))
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
        for name, allowed in (
            ("reconstruction", CURVES), ("weights", WEIGHTS), ("causal", tuple(CAUSAL)), ("calibration",
            ("sound", "paper"))
        ):  # fmt: skip
            if getattr(self, name) not in allowed:
                raise InvalidParameter(
                    name, getattr(self, name), " or ".join(map(repr, allowed)), "leave it out"
                )
        widest = max(
            float(np.max(self.sample_scales)), float(np.max(self.sum_scales)) if self.features else 0.0
        )
        if self.sampling_rule_tests:
            widest = max(widest, self.sampling.sparse_vector.question_scale, abs(self.sampling.limit))
        if widest > LARGEST_SCALE or self.units > 2**50:
            raise InvalidParameter(
                "epsilon",
                show(self.policy.budget.total),
                f"large enough that noise stays below 2^50 grid units ({show(Fraction(self.grid))})",
                "raise epsilon, choose a coarser grid or simpler weights in split",
            )

    # shape -----------------------------------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """w, the steps of a period."""
        length = self.policy.window
        assert length is not None
        return length

    @property
    def delay(self) -> int:
        """How many steps the final values of a period's first step take; at the step itself there is an estimate."""
        return self.window - 1

    @property
    def sample_count(self) -> int:
        """k."""
        assert self.samples is not None
        return self.samples

    @property
    def sample_times(self) -> tuple[int, ...]:
        """The positions of the samples; none where they depend on the data."""
        if self.adaptive:
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
    def measured_columns(self) -> int:
        """How many numbers are measured of a sample."""
        return self.columns

    @property
    def keeps_raw_values(self) -> bool:
        """Whether state and snapshots hold raw values: the steps since the last adaptive sample."""
        return self.adaptive

    # budget ----------------------------------------------------------------------------------------------------

    @property
    def sampling_rule_tests(self) -> bool:
        """Whether steps are tested, so that sampling has a part of the budget."""
        return self.adaptive and 2 < self.sample_count < self.window

    @cached_property
    def shares(self) -> tuple[Fraction, Fraction, Fraction]:
        """What of ε one period's tests, one sample, and one step's features cost."""
        tests, samples, features = (Fraction(weight) for weight in self.split)
        tests = tests if self.sampling_rule_tests else Fraction(0)
        features = features if self.features else Fraction(0)
        k, w = self.sample_count, self.window
        if self.calibration == "paper":
            total = tests + samples + features
            return tests / total, samples / total / k, features / total
        most = min(2 * k - 2, w) if self.adaptive else k
        total = 2 * tests + samples * most / k + features
        return tests / total, samples / total / k, features / total / w

    @cached_property
    def units(self) -> int:
        """As many as make every charge a whole number of them."""
        return math.lcm(*(share.denominator for share in self.shares))

    @property
    def _epsilon(self) -> Fraction:
        return self.policy.budget.total

    @cached_property
    def sample_scale(self) -> float:
        """The noise scale of a sample in grid units; rounded up."""
        return float_up(self.sensitivity / (self.shares[1] * self._epsilon))

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
    def estimate_variance(self) -> float:
        """The variance of an estimate from one measurement, in units of that of a sample or sum."""
        return 1.0

    @property
    def shown_scale(self) -> float:
        """The noise scale of a sample in the values' unit; the largest where columns differ."""
        return float(np.max(self.sample_scales)) * float(Fraction(self.grid))

    @cached_property
    def sampling(self) -> L1Sampling:
        """The rule of adaptive samples."""
        k, w = self.sample_count, self.window
        if self.threshold is None:
            limit = math.ceil(w * Fraction(self.sample_scale) / k)
        else:
            limit = math.ceil(Fraction(self.threshold) / Fraction(self.grid))
        epsilon = self.shares[0] * self._epsilon
        return L1Sampling(w, k, epsilon, self.sensitivity, limit, self.calibration == "paper")

    # what everybody uses ---------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """What is proved, under which assumptions."""
        if self.calibration == "sound":
            return super().guarantee
        return Guarantee(type(self).__name__, self.policy, self.assumptions, "paper", self.printed_loss())

    def printed_loss(self) -> Fraction:
        """How many times ε the printed scales lose when all w steps of a window change by Δ.

        A feature's parts change by wΔ together, which costs w times what it is charged; samples chosen by the
        data may all lie in one straddling window.
        """
        k, w = self.sample_count, self.window
        _, sample, step = self.shares
        most = min(2 * k - 2, w) if self.adaptive else k
        return max(Fraction(1), most * sample + w * step)

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
        >>> [OptStream.from_profile(WEvent(epsilon=e, w=48), day).samples for e in ("0.01", "0.1", "1")]
        [2, 8, 17]
        """
        return best_for_profile(cls(policy, **options), profile, candidates)

    @classmethod
    def from_slope(cls, policy: WEvent, slope: ExactLike, **options: Any) -> OptStream:
        """The number of equally spaced samples for streams that change by at most `slope` a step: a public bound.

        Examples
        --------
        >>> OptStream.from_slope(WEvent(epsilon="0.1", w=48), slope=100).samples
        13
        """
        return best_for_slope(cls(policy, **options), slope)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> OptStreamRun:
        """Begin, or go on with, a run."""
        return OptStreamRun(self, ledger, state)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """From a few samples a period to every second step; with days, the last period shows the shape meanwhile."""
        w = policy.steps_charged
        counts = sorted({max(1, w // parts) for parts in (2, 3, 4, 6, 8, 12, 16, 24)})
        causal = "last period" if season is not None and w % season == 0 else "hold"
        return [cls(policy, columns=columns, samples=count, causal=causal) for count in counts]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        day = (parts(12, [4, 9, 12]), whole_period(12))
        return [
            cls(WEvent(epsilon="1", w=12), samples=4),
            cls(WEvent(epsilon="1", w=12), columns=2, samples=4, features=day, causal="last period"),
            cls(
                WEvent(epsilon="2", w=7, adjacency="replace"),
                columns=2,
                times=(1, 4, 7),
                causal="line",
                grid="0.5",
            ),
            cls(WEvent(epsilon="1", w=5), samples=5, reconstruction="curve"),
            cls(WEvent(epsilon="1", w=1)),
            cls(WEvent(epsilon="50", w=12), columns=2, samples=5, adaptive=True, threshold=30, features=day),
            cls(WEvent(epsilon="50", w=9), samples=3, adaptive=True, causal="last period"),
            cls(WEvent(epsilon="1", w=6), samples=2, adaptive=True),
        ]
