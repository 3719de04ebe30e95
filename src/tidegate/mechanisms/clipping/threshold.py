"""Threshold: below which value nearly all observations lie, as a charged release of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, exact, float_up, one_of, positive, whole
from tidegate.mechanisms.clipping import smooth_sensitivity as smooth
from tidegate.mechanisms.clipping.nested import Rows
from tidegate.mechanisms.mechanism import BOUNDED, PUBLIC_CLOCK, describe_value
from tidegate.noise import Source, gaussian, laplace, laplace_one
from tidegate.policy import Approximate, Event, Guarantee, Policy, Pure, WEvent
from tidegate.releases import Releases, Status

Integers = npt.NDArray[np.int64]
METHODS = ("quantile", "smooth", "smooth-gaussian")
LARGEST = 1 << 44  # of an unknown bound, in grid units: noise scaled to it still fits


@dataclass(frozen=True)
class ReleasedThreshold:
    """A threshold that was paid for: it may be used, and published, as often as one likes.

    Attributes
    ----------
    value
        In the values' unit; between one grid unit and the bound.
    grid_units
        The same in grid units.
    sample
        From how many observations it comes.
    """

    value: Fraction
    grid_units: int
    sample: int

    def merge_above(self, counts: npt.ArrayLike, edges: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """A histogram whose bins beyond the threshold are one bin; edges are the bins' lower ends, ascending.

        Examples
        --------
        >>> ReleasedThreshold(Fraction(25), 25, 100).merge_above([5, 4, 3, 2, 1], [0, 10, 20, 30, 40])
        array([5, 4, 3, 3])
        """
        given, lower = np.asarray(counts), np.asarray(edges, dtype=np.float64)
        kept = max(1, int(np.searchsorted(lower, float(self.value), side="right")))
        if kept >= len(given):
            return given.copy()
        return np.append(given[:kept], given[kept:].sum())


class State(NamedTuple):
    """All that is carried from step to step."""

    sample: Rows  # SECRET: the observations so far; forgotten when the threshold is drawn
    taken: Any  # how many there were


def candidates(bound: int, per_doubling: int) -> Integers:
    """A geometric public grid of whole numbers 1, 2, …, bound, `per_doubling` to a factor of two where it is fine.

    Examples
    --------
    >>> candidates(100, 2)
    array([  1,   2,   3,   4,   6,   8,  11,  16,  23,  32,  45,  64,  91, 100])
    """
    count = math.ceil(math.log2(bound) * per_doubling) + 1 if bound > 1 else 1
    powers = np.floor(2.0 ** (np.arange(count) / per_doubling) + 0.5).astype(np.int64)
    return np.unique(np.append(powers[powers < bound], bound))


def first_above(values: Integers, grid: Integers, rank: int, start_noise: int, noise: Integers) -> int:
    """The position of the first candidate v with #{values ≤ v} + noise ≥ rank + start_noise, or the last one."""
    counts = np.searchsorted(np.sort(values), grid, side="right")
    passed = np.flatnonzero(counts + noise >= rank + start_noise)
    return int(passed[0]) if len(passed) else len(grid) - 1


@dataclass(frozen=True)
class Threshold:
    """Release a value that nearly all of the first `sample` observations stay below.

    The default walks up a public geometric grid and stops at the first value v that enough observations do not exceed,
    a question that is asked with noise on both sides (sparse vector). It needs no δ and no bound worth the name. The
    paper's way, a quantile with noise scaled to its smooth sensitivity, is there for comparison.

    One observation per step. The steps before the last of the sample are silent, and the last one releases the
    threshold. Each costs ε/w, also if the stream ends before. Further steps are refused. An observation beyond the bound
    counts as the bound, one below 0 or that is no number as 0. A step that is passed over is no observation.

    Parameters
    ----------
    policy
        What is protected, and the budget of this release: `Event`, or `WEvent` for "quantile". ``max_change`` is B.
    sample
        The number m of observations.
    above
        How many of them may exceed the threshold: the rank is P = m − above.
    exceeding
        The same as a fraction λp, P = ⌈(1 − λp)·m⌉; one of the two.
    bound
        B, by default the policy's ``max_change``; "unknown" for a grid that ends at 2^44 grid units.
    grid
        The public resolution of the values.
    method
        "quantile" (default, ε), "smooth" (Laplace noise, ε and δ) or "smooth-gaussian".
    per_doubling
        Grid values to a factor of two.
    too_low
        For the smooth methods: the chance β_lt that the threshold falls below the quantile because of noise.

    Privacy
    -------
    One observation replaced (`WEvent`: up to w consecutive ones) moves every count #{σ ≤ v} by at most 1 (w), and for one
    observation all in the same direction; so discrete Laplace noise of scale 2/ε on the rank and 2/ε (4w/ε where
    directions may differ) on each test is ε-differentially private, however long the walk is. Smooth: fixed rank P,
    a = ε/2 and b = ln(1 + ε/(2·ln(2/δ))); Gaussian: its own constants. Departures from the paper: the rank is fixed
    (the printed quantile loses 47 ε with ties), constants are those that a proof gives, the scale comes from a public
    ladder, the result is clamped to [grid, B].

    Error
    -----
    quantile: the rank is off by (2/ε)·ln(candidates/β) with chance β, and the value by one step of the grid. Time
    O(m·log m), once.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> threshold = Threshold(Event(epsilon="1", max_change=1440), sample=1000, above=10)
    >>> released = threshold.read(Session(threshold).push_batch(np.arange(1000)))
    >>> 1 <= released.value <= 1440
    True

    References
    ----------
    Perrier, Asghar, Kaafar: Private continual release of real-valued data streams. NDSS 2019.
    Nissim, Raskhodnikova, Smith: Smooth sensitivity and sampling in private data analysis. STOC 2007.
    Lyu, Su, Li: Understanding the sparse vector technique for differential privacy. PVLDB 2017.
    """

    policy: Policy
    sample: int
    above: int | None = None
    exceeding: ExactLike | None = None
    bound: ExactLike | None = None
    grid: ExactLike = 1
    method: str = "quantile"
    per_doubling: int = 32
    too_low: float = 0.005

    columns: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    rounding: ClassVar[str] = "nearest"
    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False
    keeps_raw_values: ClassVar[bool] = True  # the sample, until the threshold is released
    selects: ClassVar[bool] = (
        True  # a candidate is chosen by noisy counts: the value itself has no noise, and no scale
    )

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.policy, Event | WEvent):
            raise InvalidParameter(
                "policy",
                type(self.policy).__name__,
                "Event or WEvent, since one user could own every observation of the sample",
                "use Event or WEvent, or a public bound",
            )
        one_of("method", self.method, METHODS)
        if not isinstance(self.policy.budget, Pure | Approximate):
            raise InvalidParameter("policy", str(self.policy.budget), "ε, or ε and δ", 'write epsilon="1"')
        if self.method != "quantile" and not (isinstance(self.policy, Event) and self.policy.delta):
            raise InvalidParameter(
                "method",
                self.method,
                "'quantile' unless the policy is Event with a delta",
                "leave method out, or give δ",
            )
        put(self, "sample", whole("sample", self.sample, most=2**31))
        put(self, "grid", positive("grid", self.grid))
        put(self, "per_doubling", whole("per_doubling", self.per_doubling, most=4096))
        if not 0.0 < self.too_low < 0.5:
            raise InvalidParameter(
                "too_low", self.too_low, "above 0 and below 0.5", "write for example too_low=0.005"
            )
        self._validate_rank()
        if self.policy.delta and not isinstance(self.policy, Event):
            raise InvalidParameter(
                "policy", "WEvent with a delta", "WEvent with ε alone, or Event", "drop delta"
            )
        if self.policy.horizon is not None and self.policy.horizon < self.sample:
            raise InvalidParameter(
                "sample", self.sample, f"at most the {self.policy.horizon} steps of the stream", "lower it"
            )
        if Fraction(self.grid).numerator != 1:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )
        if self.method != "quantile" and (
            self.bound == "unknown" or self._constants.kappa / self._constants.a * self.largest > 2**54
        ):
            raise InvalidParameter(
                "bound", self.bound, f"known, and small enough for {self.method!r}", 'use method="quantile"'
            )

    def _validate_rank(self) -> None:
        if (self.above is None) == (self.exceeding is None):
            raise InvalidParameter(
                "above", self.above, "given, or else exceeding", "write for example above=10"
            )
        if self.exceeding is not None:
            share = exact("exceeding", self.exceeding)
            if not 0 < share <= Fraction(1, 2):
                raise InvalidParameter(
                    "exceeding", self.exceeding, "above 0 and at most 1/2", 'write exceeding="0.005"'
                )
            object.__setattr__(self, "exceeding", share)
            if share * self.sample < 1:
                least = math.ceil(1 / share)
                raise InvalidParameter(
                    "sample",
                    self.sample,
                    f"at least 1/exceeding = {least}",
                    "wait longer, or raise exceeding",
                )
        elif not 0 <= whole("above", self.above or 0, least=0) < self.sample:
            raise InvalidParameter("above", self.above, f"below the sample of {self.sample}", "lower it")

    @property
    def rank(self) -> int:
        """P: how many observations must not exceed the threshold."""
        if self.exceeding is not None:
            return math.ceil((1 - Fraction(self.exceeding)) * self.sample)
        assert self.above is not None
        return self.sample - self.above

    @cached_property
    def largest(self) -> int:
        """B in grid units."""
        if self.bound == "unknown":
            return LARGEST
        bound = positive("bound", self.policy.max_change if self.bound is None else self.bound)
        return max(1, math.floor(bound / Fraction(self.grid)))

    @cached_property
    def candidates(self) -> Integers:
        """The public grid of possible thresholds, in grid units."""
        return candidates(self.largest, self.per_doubling)

    @cached_property
    def scales(self) -> tuple[float, float]:
        """Noise scales of the rank and of each test, rounded up."""
        changes, epsilon = self.policy.steps_charged, Fraction(self.policy.epsilon or 0)
        monotone = changes == 1
        return float_up(2 * changes / epsilon), float_up((2 if monotone else 4) * changes / epsilon)

    @cached_property
    def _constants(self) -> smooth.Constants:
        epsilon, delta = float(Fraction(self.policy.epsilon or 0)), float(Fraction(self.policy.delta))
        gaussian_noise = self.method == "smooth-gaussian"
        make = smooth.gaussian_constants if gaussian_noise else smooth.laplace_constants
        return make(epsilon, delta, self.too_low)

    @property
    def guarantee(self) -> Guarantee:
        """What is proved; reads as a sentence."""
        return Guarantee("Threshold", self.policy, (PUBLIC_CLOCK, BOUNDED))

    def draw(self, rows: Integers, source: Source, step: int) -> ReleasedThreshold:
        """Release from m grid values; for a mechanism that charges their steps."""
        rows = np.clip(rows, 0, self.largest)
        if self.method == "quantile":
            start_scale, test_scale = self.scales
            start = laplace_one(source, "threshold rank", step, 0, start_scale)
            tests = laplace(source, "threshold test", step, test_scale, (len(self.candidates),))
            found = int(self.candidates[first_above(rows, self.candidates, self.rank, start, tests)])
        else:
            found = self._smooth(np.sort(rows), source, step)
        return ReleasedThreshold(found * Fraction(self.grid), found, self.sample)

    def _smooth(self, ordered: Integers, source: Source, step: int) -> int:
        value, rank = int(ordered[self.rank - 1]), self.rank
        scale = self._constants.scale(ordered, rank, self.largest)
        draw = gaussian if self.method == "smooth-gaussian" else laplace
        noise = int(draw(source, "threshold", step, scale, (1,))[0])
        moved = value + math.floor(scale * self._constants.offset + 0.5) + noise
        return min(max(moved, 1), self.largest)

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def clamp(self) -> Fraction:
        """The bound, so that no refusal depends on an observation."""
        return self.largest * Fraction(self.grid)

    @property
    def units(self) -> int:
        """One for each step of a window."""
        return self.policy.steps_charged

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON."""
        named = {
            each.name: describe_value(getattr(self, each.name))
            for each in fields(self)
            if each.name != "policy"
        }
        return {"mechanism": type(self).__name__, "policy": self.policy.describe(), **named}

    def begin(self, first: int) -> State:
        """No observation."""
        return State(Rows(np.zeros(0, dtype=np.int64)), np.zeros(1, dtype=np.int64))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, and the sample has a public size."""
        taken = int(state.taken[0])
        if taken + count > self.sample:
            raise InvalidInput(
                f"a threshold is released once, from {self.sample} observations, and {count} more would make "
                f"{taken + count}; nothing was charged: push the sample alone, or begin another one."
            )
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Take observations into the sample; the last one of it pays for the threshold, as all before it did."""
        count = len(rows)
        values, source = np.full((count, 1), np.nan), np.zeros(count, dtype=np.int64)
        status = np.full(count, int(Status.SILENT), dtype=np.int8)
        state.sample.append(rows[:, 0])
        state.taken[0] += count
        if count and state.taken[0] == self.sample:
            found = self.draw(state.sample.content, noise.source, self.sample)
            values[-1], status[-1], source[-1] = found.value, int(Status.FRESH), first + count - 1
            state.sample.forget()
        # the scale of smooth noise depends on the sample, so no scale is released
        return Output(values, status, source, np.zeros(count), np.ones(count, dtype=np.int64))

    def read(self, releases: Releases) -> ReleasedThreshold | None:
        """The threshold among releases, exactly; None where it is not."""
        found = releases.values[releases.fresh]
        if not len(found):
            return None
        units = round(Fraction(float(found[0, 0])) / Fraction(self.grid))
        return ReleasedThreshold(units * Fraction(self.grid), units, self.sample)
