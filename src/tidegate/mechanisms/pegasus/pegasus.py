"""PeGaSus (Chen et al. 2017): the Perturber adds noise, the Grouper finds similar steps, the Smoother smooths them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import NO_SPANS, Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import ExactLike, float_up, whole
from tidegate.intervals import Fold, Smoothed
from tidegate.mechanisms.losses import Floats, policy_change
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.pegasus import grouper
from tidegate.mechanisms.pegasus import parameters as pegasus_parameters
from tidegate.mechanisms.pegasus.grouper import BLOCK, SMOOTHERS, OpenGroups
from tidegate.mechanisms.sharing import SharingMechanism
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import expected_absolute_laplace, laplace
from tidegate.noise.laws import exact_units
from tidegate.policy import Event, Policy, User, WEvent
from tidegate.releases import Measured, Releases, Status


class State(NamedTuple):
    """All that is carried from step to step."""

    groups: OpenGroups
    perturber: Any  # SECRET: the law that the Perturber's steps share; empty for Laplace noise


@dataclass(frozen=True)
class PeGaSus(SharingMechanism):
    """Measure every step, and let steps of a stable stretch share their measurements.

    The Perturber adds noise to every count. The Grouper, which spends its own part of the budget, extends the last
    group by the new step as long as a noisy test says that the group's counts deviate little from their mean. The
    Smoother computes the release of the step from all noisy counts of its group. Every column has its own groups, and a
    step is released when it arrives. The releases carry the noisy counts and the groups. From these, any number of other
    questions (:mod:`tidegate.queries`: windows, monitors, aggregations) are answered at no further cost.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    perturber_share
        The part of the budget that the Perturber spends; the Grouper has the rest.
    threshold
        How far a group's counts may deviate from their mean, summed (θ); by default `threshold_factor`·Δ/ε_g.
        Public.
    threshold_factor
        5 as in the paper. The noise of a test has the scale 8Δ/ε_g, so with 5 even a constant stream is cut into groups
        of three steps on average; 20 to 40 suits streams that change rarely (docs/mechanisms/pegasus.md).
    smoother
        "median", "average" or "james-stein"; by default the median of Laplace noise, which has a sharp peak, and the
        average of noise that steps share, which has none.
    longest_group
        A group is closed when it has so many steps, at most 2^20. This rule is public and costs nothing; it bounds the
        memory for an endless constant stream.
    noise
        The Perturber's: "auto" for the best law, "laplace" for noise of its own at each step, as in the paper, "cube" or
        "semiorder" for this law (docs/mechanisms/noise.md).

    Privacy
    -------
    Unit and neighbours: the policy's. At event level the Perturber adds Lap(Δ/ε_p) to every count. A group
    is one run of the sparse vector technique with ρ ~ Lap(4Δ/ε_g) for its threshold and ν ~ Lap(8Δ/ε_g) for
    each test, since one unit changes the deviation by less than 2Δ. The count that fails a test becomes a
    closed group of its own, so each count enters exactly one run (paper, Theorems 3.1 and 3.4; sound as
    printed). Columns do not multiply the loss, because Δ bounds the change over all of them together. Under
    a w-event policy all budgets are divided by w, under a user-level policy by the horizon; there the Perturber's
    noise may be shared by the steps of a window, which lose their part of ε together then (docs/mechanisms/noise.md).
    Departures: deviations are rounded down to the grid, θ up to it; for the Grouper alone, counts are clipped to
    ±2^60/longest_group grid units, which cannot raise a sensitivity.

    The state holds raw data: the deviation of an open group needs its counts, so they are kept,
    as a sorted multiset, until the group closes, together with the group's noisy threshold. A commit log contains
    them and must be guarded like the stream itself. The releases never contain raw data.

    Error
    -----
    For a group of n nearly equal counts about 1/√n of the Laplace mechanism's with ε_p (:meth:`expected_error`).
    Where counts move fast compared with θ, smoothing adds a bias that can exceed the noise several times: use
    :class:`Uniform` there (docs/mechanisms/pegasus.md has numbers). Smoothing pays where the deviation is below
    :meth:`deviation_that_pays` (Theorem 3.6). Time O(log n) a step, memory O(n) for open groups of n
    different counts.

    Examples
    --------
    >>> mechanism = PeGaSus(Event(epsilon="0.1"))
    >>> mechanism.scale, mechanism.grouping.threshold_scale, mechanism.limit
    (12.5, 200.0, 250)
    >>> from tidegate.core.session import Session
    >>> releases = Session(mechanism).push_batch(np.zeros(1000, dtype=np.int64))
    >>> releases.values.shape, releases.groups.shape
    ((1000, 1), (1000, 1))

    References
    ----------
    Chen, Machanavajjhala, Hay, Miklau: PeGaSus: Data-adaptive differentially private stream processing. CCS
    2017.
    """

    perturber_share: ExactLike = "0.8"
    threshold: ExactLike | None = None
    threshold_factor: ExactLike = 5
    smoother: str = "auto"
    longest_group: int = 2**16

    more: ClassVar[tuple[str, ...]] = ("noisy", "groups")  # measurements, and first steps of groups
    noise_in_state: ClassVar[bool] = True  # an open group has a noisy threshold
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    keeps_raw_values: ClassVar[bool] = True  # the open groups' counts; see Privacy

    def validate(self) -> None:
        """Check the split, the threshold, the smoother and the cap."""
        pegasus_parameters.check(self)
        self.refuse_wide_noise(max(self.scale, self.grouping.question_scale, self.limit))

    @property
    def measuring_part(self) -> Fraction:
        """What the Perturber spends."""
        return Fraction(self.perturber_share)

    @property
    def grouping_part(self) -> Fraction:
        """The part of the budget that the Grouper spends on one step."""
        return (1 - Fraction(self.perturber_share)) / self.policy.steps_charged

    @property
    def units(self) -> int:
        """One unit a step; with shared noise as many as make groups of steps, and each step's grouping, whole numbers."""
        if self.sharing is None:
            return self.policy.steps_charged
        return math.lcm(self.sharing.group_part.denominator, self.grouping_part.denominator)

    @property
    def smoothing(self) -> str:
        """The smoother that was chosen; with "auto" the one that suits the noise."""
        if self.smoother != "auto":
            return self.smoother
        return "median" if self.sharing is None else "average"

    @property
    def step_epsilon(self) -> Fraction:
        """The budget of one step."""
        return self.policy.budget.total / self.policy.steps_charged

    @cached_property
    def scale(self) -> float:
        """The noise scale of the Perturber in grid units, s of shared noise; rounded up."""
        if self.sharing is not None:
            return self.sharing.scale
        return float_up(self.sensitivity / (Fraction(self.perturber_share) * self.step_epsilon))

    @cached_property
    def grouping(self) -> SparseVector:
        """One group is one run of this: its questions are deviations, of sensitivity 2Δ."""
        return SparseVector((1 - Fraction(self.perturber_share)) * self.step_epsilon, 2 * self.sensitivity)

    @cached_property
    def limit(self) -> int:
        """The threshold θ in grid units; rounded up."""
        return pegasus_parameters.limit(self)

    @property
    def noise_error(self) -> float:
        """The mean absolute error of a step that is a group of its own."""
        return self.error_of_group(1)

    @property
    def laplace_scale(self) -> float:
        """The scale of Laplace noise with the variance of the Perturber's, in the values' unit; that of releases."""
        scale = self.scale if self.sharing is None else self.sharing.laplace_scale
        return scale * float(Fraction(self.grid))

    def error_of_group(self, group: int) -> float:
        """The mean absolute error of a step that is the n-th of equal counts in its group, for large n about.

        The mean of n values has 1/n of their variance, 2b² for Laplace noise, whose median has about b²/n; the median
        of n others has 1/(4n·f²), where f is their density at 0.
        """
        size, grid = whole("group", group), float(Fraction(self.grid))
        law, scale = self.sharing.law if self.sharing is not None else None, self.laplace_scale
        alone = (expected_absolute_laplace(self.scale) if law is None else law.expected_absolute()) * grid
        if size == 1 or (size == 2 and law is None):  # the mean of two Laplace values is 3b/4 on average
            return alone * (1.0, 0.75)[size - 1]
        variance = 2 * scale * scale / size
        if self.smoothing == "median" and size > 2:
            variance = scale * scale / size
            if law is not None:
                density = 0.1 / (2 * law.radius(0.1) + 1) / grid
                variance = 1 / (4 * size * density * density)
        return math.sqrt(2 / math.pi * variance)

    def deviation_that_pays(self, group: int) -> float:
        """Theorem 3.6: up to which deviation averaging n steps has a smaller error than no smoothing.

        Examples
        --------
        >>> round(PeGaSus(Event(epsilon="0.1")).deviation_that_pays(100), 1)
        30.7
        """
        size = whole("group", group, least=2)
        return (
            math.sqrt(2 * max(size - math.log(size) - 1, 0.0)) / (1 + math.log(size - 1)) * self.laplace_scale
        )

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost: its noise, and the test of its group; groups that share noise lose together."""
        if self.shares_noise:
            return None
        change = policy_change(self)
        tests = 2 * change / self.grouping.threshold_scale + 4 * change / self.grouping.question_scale
        noise = change * float(Fraction(self.grid)) / np.where(releases.scale > 0, releases.scale, np.inf)
        return np.asarray(noise + tests)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, with the smoother that it means."""
        return {**super().describe(), "smoother": self.smoothing}

    # what a session asks -----------------------------------------------------------------------------------------

    @cached_property
    def step_units(self) -> int:
        """What each step costs by itself: all of it, or its grouping where spans pay for measurements."""
        return 1 if self.shared is None else exact_units(self.grouping_part, self.units)

    def begin(self, first: int) -> State:
        """No group is open."""
        return State(OpenGroups(self.columns), self.begin_shared())

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, whatever the data are."""
        return Charges(first, np.full(count, self.step_units, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure, group and smooth every step."""
        count, grid, groups, spans = len(rows), float(Fraction(self.grid)), state.groups, NO_SPANS
        if self.shared is not None:
            steps = np.arange(first, first + count)
            drawn, spans = self.shared.measure(state.perturber, noise.source, "perturber", first, steps)
        groups.reserve(count)
        longest = int(self.longest_group)
        # sums of `longest` counts stay below 2^60; clipping moves no two counts apart
        rule = grouper.Rule(self.limit, longest, 2**60 // longest, SMOOTHERS[self.smoothing], grid)
        values, noisy, begun = np.empty(rows.shape), np.empty(rows.shape), np.empty_like(rows)
        length = max(1, BLOCK // self.columns)
        for start in range(0, count, length):
            part = slice(start, start + length)
            step, shape = first + start, rows[part].shape
            if self.shared is not None:
                measured = rows[part] + drawn[part]
            else:
                measured = rows[part] + laplace(noise.source, "perturber", step, self.scale, shape)
            tests = laplace(noise.source, "test", step, self.grouping.question_scale, shape)
            thresholds = laplace(noise.source, "threshold", step, self.grouping.threshold_scale, shape)
            counts = grouper.Counts(rows[part], measured, np.ones(shape, dtype=np.int64), tests, thresholds)
            sets = (groups.sets.nodes, groups.sets.pool, groups.sets.path)
            grouper.group_and_smooth(
                step, rule[:], counts[:], groups.memory, groups.moments, sets, values[part], begun[part]
            )
            np.multiply(measured, grid, out=noisy[part])
        return Output(
            values,
            np.full(count, int(Status.FRESH), dtype=np.int8),
            np.arange(first, first + count),
            np.full(count, self.laplace_scale),
            np.full(count, self.step_units, dtype=np.int64),
            spans,
            (noisy, begun),
        )

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with what they were smoothed from, for readers."""
        noisy, begun = more
        releases.measured = Measured(noisy, begun, (begun > 0).astype(np.int64))
        return releases

    def intervals(self) -> Fold:
        """Less noise in larger groups, and what smoothing a group has flattened."""
        left = pegasus_parameters.noise_left(self.smoothing, shared=self.shares_noise)
        return Smoothed(self.outputs, replace(self.measured_law, rounded=self.rounded_by), left)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(epsilon="1")),
            cls(Event(epsilon="1/3", adjacency="replace"), columns=3, smoother="average", longest_group=7),
            cls(WEvent(epsilon="10", window=6), columns=2, perturber_share="1/2", threshold=40),
            cls(WEvent(epsilon="10", window=6), columns=2, threshold=40, noise="laplace"),
            cls(WEvent(epsilon="3", window=2, max_change="0.5"), grid="0.25", smoother="james-stein"),
            cls(WEvent(epsilon="6", window=12), noise="cube"),
            cls(User(epsilon="900", horizon=9000), columns=2),
            cls(User(epsilon="900", horizon=9000), columns=2, noise="laplace"),
        ]
