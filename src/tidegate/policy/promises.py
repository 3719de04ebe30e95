"""Specifications as whole numbers over a stretch of steps: what schedules are made from and ledgers check.

A charge of n units at a step is the loss n·ε/N of a change by `max_change`, where ε and N are the policy's
epsilon and the ledger's units. A household whose temporal sensitivity is Δ_t then loses n·ε/N·Δ_t/max_change,
so the promise to a secret, Σ_t n_t·Δ_t ≤ ε_s·N·max_change/ε over each placement, is a sum of whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.composition import largest_step
from tidegate.errors import InvalidParameter
from tidegate.policy import kernels as k
from tidegate.policy.secrets import Secret
from tidegate.policy.specification import Specification
from tidegate.policy.swellfish import Swellfish, resolution

Integers = npt.NDArray[np.int64]

LARGEST = 2**62  # no sum of losses over a stretch of steps may leave 64 bits
PIECE = 2**16  # the most steps that are checked at once, besides those before them that a placement may reach
ENDLESS = (
    2**30
)  # an interval that reaches as far is never over, where the joint promise adds up what is in it
ROOM = 512  # steps expanded ahead of a single push


@dataclass(frozen=True)
class Stretch:
    """All hiding intervals that meet the steps low to high, specification by specification.

    Attributes
    ----------
    starts
        Where the intervals of each specification begin.
    firsts, lasts, heights, durations, limits, caps
        One entry an interval: its steps, its event, and what its placements may lose (see `Promises`).
    """

    low: int
    high: int
    starts: Integers
    firsts: Integers
    lasts: Integers
    heights: Integers
    durations: Integers
    limits: Integers
    caps: Integers

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def intervals(self) -> tuple[Integers, ...]:
        """What compiled sweeps take, as a plain tuple."""
        return k.Intervals(
            self.starts, self.firsts, self.lasts, self.heights, self.durations, self.limits, self.caps
        )[:]

    def order(self, values: Integers) -> Integers:
        """Positions that sort the values within each specification, counted from the specification's start."""
        parts = [
            np.argsort(values[a:b], kind="stable")
            for a, b in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        return np.concatenate(parts)


def promises_of(policy: Swellfish, units: int) -> Promises:
    """The promises of a policy as it was written, made once: a ledger and the mechanism on it share them."""
    made: dict[int, Promises] = policy.__dict__.setdefault("_promises", {})
    if units not in made:
        made[units] = Promises(policy, units)
    return made[units]


class Promises:
    """The promises of a policy, for a ledger of so many units.

    Parameters
    ----------
    policy
        The policy; it also says what the numbers are multiples of.
    units
        Into how many units the ledger divides the policy's ε.
    specifications
        Those in force, where they have been amended since the policy was written.
    """

    def __init__(
        self, policy: Swellfish, units: int, specifications: Sequence[Specification] | None = None
    ) -> None:
        self.policy = policy
        self.units = units
        self.specifications = tuple(policy.specifications if specifications is None else specifications)
        most, epsilon = Fraction(policy.max_change or 1), Fraction(policy.epsilon or 1)
        allowance = Fraction(policy.allowance)
        self.resolution = resolution(self.specifications, most, allowance)
        self.reference = int(most * self.resolution)
        self.allowance = int(allowance * self.resolution)
        self.unit = units * self.reference / epsilon  # what a loss of 1 is in these numbers
        self._kinds: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._secrets = [self._numbers(each) for each in self.specifications]
        self._stretches: dict[bool, Stretch] = {}  # the last short one, the last long one
        largest = max(int(numbers[2:].max()) for numbers in self._secrets)  # of limits and caps
        if largest > LARGEST // (4 * policy.window + PIECE):
            raise InvalidParameter(
                "units", units, "small enough for 64-bit sums", "use fewer units or coarser heights"
            )

    def _numbers(self, specification: Specification) -> Integers:
        """Height, duration, limit and cap of each secret, in columns."""
        rows = []
        for secret in specification.secrets:
            kind = (secret.height, secret.duration, secret.epsilon)
            numbers = self._kinds.get(kind)  # secrets are many and their kinds are few
            if numbers is None:
                height = int(Fraction(secret.height) * self.resolution)
                numbers = self._kinds[kind] = (height, secret.duration, self.limit(secret), self.cap(secret))
            rows.append(numbers)
        if max(max(numbers) for numbers in rows) > LARGEST:
            raise InvalidParameter(
                "epsilon",
                self.policy.epsilon,
                "large enough for 64-bit sums beside the secrets' own",
                "choose a larger epsilon or coarser heights",
            )
        return np.array(rows, dtype=np.int64).T

    def limit(self, secret: Secret) -> int:
        """What a placement of the secret's event may lose in all, rounded down."""
        return math.floor(Fraction(secret.epsilon) * self.unit)

    def cap(self, secret: Secret) -> int:
        """What each of T steps may lose so that together they lose (ε, δ); -1 where δ = 0."""
        delta = Fraction(self.policy.delta)
        if not delta:
            return -1
        return math.floor(largest_step(secret.duration, Fraction(secret.epsilon), delta) * self.unit)

    def stretch(self, low: int, high: int) -> Stretch:
        """The hiding intervals that meet the steps low to high."""
        parts = [each.occurrences(self.policy.clock, low, high) for each in self.specifications]
        steps = np.concatenate([rows for rows, _ in parts])
        numbers = [columns[:, owners] for columns, (_, owners) in zip(self._secrets, parts, strict=True)]
        heights, durations, limits, caps = np.concatenate(numbers, axis=1)
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in parts])]).astype(np.int64)
        firsts, lasts = np.ascontiguousarray(steps[:, 0]), np.ascontiguousarray(steps[:, 1])
        return Stretch(low, high, starts, firsts, lasts, heights, durations, limits, caps)

    def around(self, low: int, high: int) -> Stretch:
        """A remembered stretch that contains the steps low to high.

        A few steps get a short stretch, expanded ahead for the next ones, since sweeps look at all of its intervals.
        """
        short = high - low <= self.policy.window + ROOM
        held = self._stretches.get(short)
        if held is None or low < held.low or high > held.high:
            held = self._stretches[short] = self.stretch(low, high + ROOM if short else high)
        return held

    def check(self, low: int, begin: int, units: Integers) -> tuple[int | None, Integers]:
        """Check all placements that end at steps from `begin` on, given the charges of the steps from `low`.

        Returns the first step at which a promise is broken, or None, and the fullest placement as
        (share × 2^40, last step, position of its interval in the stretch).
        """
        worst = np.array([0, begin, -1], dtype=np.int64)
        if not len(units):
            return None, worst
        s = self.around(low, low + len(units) - 1)
        broken = k.check_promises(s.intervals, low, begin, self.allowance, np.ascontiguousarray(units), worst)
        if broken < 0 and self.policy.promise == "joint":
            late = np.flatnonzero(units > self.joint(low, low + len(units) - 1))
            late = late[late >= begin - low]
            broken = int(late[0]) + low if len(late) else -1
        return (None if broken < 0 else int(broken)), worst

    def windowed(self, first: int, last: int) -> Integers:
        """The most units of each step that share every promise equally among the steps of an event."""
        s = self.around(first, last)
        shares = s.caps if Fraction(self.policy.delta) else s.limits // s.durations
        return self._least(s, shares, first, last, divided=True)

    def printed(self, first: int, last: int) -> Integers:
        """The closed form of Theorem 8: the longest event with the smallest ε of all that are relevant."""
        s = self.around(first, last)
        out = np.full(last - first + 1, k.NONE)
        if Fraction(self.policy.delta):
            return self._least(s, self._printed_caps(s), first, last, divided=True)
        k.printed_units(s.intervals, s.order(-s.durations), s.order(s.limits), first, self.allowance, out)
        return out

    def _printed_caps(self, stretch: Stretch) -> Integers:
        """Theorem 11's scale 2/ε·√(T·ln(e + ε/δ)) as a cap for each step, never above the exact one."""
        epsilon = stretch.limits / float(self.unit)
        factor = 2 * np.sqrt(
            stretch.durations * np.log(math.e + epsilon / float(Fraction(self.policy.delta)))
        )
        caps: Integers = np.minimum(np.floor(stretch.limits / factor).astype(np.int64), stretch.caps)
        return caps

    def joint(self, first: int, last: int) -> Integers:
        """The most units of each step under the joint promise: ε_s/A_s for each relevant secret."""
        s = self.around(first, last)
        end = self.policy.horizon or ENDLESS
        reach = int(s.firsts.min(initial=first)), int(np.minimum(s.lasts, end).max(initial=last))
        if self.policy.horizon is None and reach[1] >= end:
            raise InvalidParameter(
                "promise",
                "joint",
                "'windowed' where a secret is hidden for ever",
                "hide the baseline day by day, or give the policy a horizon",
            )
        wide = self.stretch(min(reach[0], first), max(reach[1], last))
        amounts = np.zeros(len(wide), dtype=np.int64)
        lasts = np.minimum(wide.lasts, self.policy.horizon or wide.high)
        for a, b in zip(wide.starts[:-1], wide.starts[1:], strict=True):
            order = np.argsort(wide.firsts[a:b], kind="stable")
            k.joint_amounts(
                wide.firsts[a:b], lasts[a:b], wide.heights[a:b] + self.allowance, wide.durations[a:b], order,
                amounts[a:b],
            )  # fmt: skip
        return self._least(wide, wide.limits // np.maximum(amounts, 1), first, last, divided=False)

    def _least(self, s: Stretch, values: Integers, first: int, last: int, *, divided: bool) -> Integers:
        out = np.full(last - first + 1, k.NONE)
        k.least_units(
            s.intervals, np.ascontiguousarray(values), s.order(values), first, self.allowance, divided, out
        )
        return out
