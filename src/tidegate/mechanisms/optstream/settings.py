"""The parameters of OptStream: what they may be, and the scales and charges that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, one_of, show, whole
from tidegate.mechanisms.optstream.feature_trees import Feature, FeatureTree, read_features
from tidegate.mechanisms.optstream.l1_sampling import L1Sampling
from tidegate.mechanisms.optstream.period_blocks import Integers
from tidegate.mechanisms.optstream.period_budget import PeriodBudget
from tidegate.mechanisms.optstream.periodic import Periodic
from tidegate.mechanisms.optstream.periods import CAUSAL
from tidegate.mechanisms.optstream.reconstruction import CURVES
from tidegate.mechanisms.optstream.sample_errors import Samples
from tidegate.mechanisms.optstream.sampling_times import equally_spaced, read_times
from tidegate.mechanisms.shared_noise import Laws, SharingMechanism
from tidegate.mechanisms.uncertainty import Uncertainty
from tidegate.noise import check_scale, variance_laplace
from tidegate.noise.shared.choice import LONGEST_GROUP, Choice, cube_choice

WEIGHTS = ("variance", "size")


@dataclass(frozen=True)
class OptStreamSettings(Periodic, SharingMechanism):
    """The parameters of :class:`tidegate.mechanisms.OptStream`, which says what they mean."""

    samples: int | None = None
    times: Sequence[int] | None = None
    adaptive: bool = False
    threshold: ExactLike | None = None
    features: Sequence[Sequence[Sequence[int]]] = ()
    split: tuple[ExactLike, ExactLike, ExactLike] = (1, 1, 1)
    reconstruction: str = "line"
    weights: str = "variance"
    nonnegative: bool = False
    causal: str = "hold"
    calibration: str = "sound"

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
            one_of(name, getattr(self, name), allowed)
        remedy = "raise epsilon, choose a coarser grid or simpler weights in split"
        self.refuse_wide_noise(max(*self._noise_scales(), self.units), remedy=remedy)

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
    def columns_apart(self) -> bool:
        """Whether columns have nothing in common but their noise: not where they are sampled by a common decision."""
        return not self.adaptive

    @property
    def columns_independent(self) -> bool:
        """Not where columns share what is decided from all of them, nor where leaves are optimised together."""
        return super().columns_independent and not (self.forest is not None and self.nonnegative)

    @property
    def independent_period(self) -> int:
        """With adaptive samples the first step of a period is one: nothing of the period before is held."""
        return self.window if self.adaptive and self.causal == "hold" else 0

    @property
    def keeps_raw_values(self) -> bool:
        """Whether state and snapshots hold raw values: the steps since the last adaptive sample."""
        return self.adaptive

    # budget ----------------------------------------------------------------------------------------------------

    @property
    def sampling_rule_tests(self) -> bool:
        """Whether steps are tested, so that sampling has a part of the budget."""
        certain = 1 if self.calibration == "paper" else 2  # the last step is not, as printed
        return self.adaptive and certain < self.sample_count < self.window

    @property
    def distance(self) -> int:
        """0: samples come where the period has them, and some are left out where times change."""
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
        """Not as printed, nor where the nodes of a hierarchy have different parts of the budget."""
        return self.calibration == "sound" and self.forest is None

    @property
    def laws(self) -> Laws | None:
        """Adaptive samples are one group a period, of which a window meets two."""

        def a_period(columns: int) -> list[Choice]:
            fits = self.sample_count * columns <= LONGEST_GROUP
            return [cube_choice((self.sample_count,), 2, columns)] if fits else []

        return a_period if self.adaptive else None

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
        printed = self.calibration == "paper"
        return PeriodBudget(self.window, self.sample_count, weights, self.adaptive, printed, self.leaf_share)

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

    def uncertainty(self) -> Uncertainty:
        """A walk since the last sample or between two, and what final values have corrected."""
        apart = bool(getattr(self, "per_leaf", False))
        return Samples(self.outputs, self.measured_law, self.window, fitted=bool(self.features), apart=apart)

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
        return L1Sampling(w, k, epsilon, self.sensitivity, limit, self.calibration == "paper")

    def printed_loss(self) -> Fraction:
        """How many times ε the printed scales lose when all steps of a window change, which may straddle two periods."""
        return self.period.printed_loss(self.period.most)
