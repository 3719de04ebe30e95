"""Swellfish privacy: public specifications say which events are hidden, when, and how well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.clock.calendar_rules import Clock
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, exact, positive, show, whole
from tidegate.policy import neighbours
from tidegate.policy.secrets import FOREVER, Secret
from tidegate.policy.specification import Specification
from tidegate.policy.units import LONGEST, Matrix, Policy, WEvent

Integers = npt.NDArray[np.int64]
FINEST = 2**31  # heights are whole multiples of one over at most this


@dataclass(frozen=True, kw_only=True)
class Swellfish(Policy):
    """Swellfish privacy: neighbouring streams differ by an event of some specification, inside its hiding interval.

    Parameters
    ----------
    specifications
        Sets of secrets, for example one for each household; see :class:`Specification`. They are public.
    clock
        When step 1 begins, how long a step is and the time zone; needed where a secret recurs.
    promise
        "windowed" (the default): streams differ in one placement of one secret's event, by at most the temporal
        sensitivity Δ_t (the sum of all heights relevant at t) in each of its steps. "joint": they may also differ
        in one occurrence of EVERY event of a specification at once (the paper's literal Definition 13), and what
        is released inside a secret's hiding interval stays within its ε.
    allowance
        How much more than its events a household can change a step because pre-aggregated values are rounded:
        the grid, once for every column it touches. 0 where contributions are rounded before they are summed.
    longest
        The longest event that may be added while the stream runs; by default the longest of those given.
    derived
        True for specifications that were derived from recorded use: they tell what they should hide, so every
        mechanism refuses them outside of experiments.
    epsilon, max_change
        By default the smallest ε of all secrets and the largest temporal sensitivity of any step: what a w-event
        policy that implies this one needs (Theorem 7). The ledger counts in multiples of them.

    Examples
    --------
    >>> oven = Secret(3, 2, [(1, 4)], 1, "oven")
    >>> home = Secret("0.5", 1, "always", 1, "somebody is at home")
    >>> policy = Swellfish(specifications=[Specification((oven, home), "house 1")])
    >>> policy.as_w_event().describe()["max_change"]
    '3.5'
    """

    max_change: ExactLike | None = None  # type: ignore[assignment]  # filled in below, never None
    specifications: tuple[Specification, ...] = ()
    clock: Clock | None = None
    promise: str = "windowed"
    allowance: ExactLike = 0
    longest: int | None = None
    derived: bool = False

    name: ClassVar[str] = "Swellfish privacy"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "specifications", tuple(self.specifications))
        if not self.specifications:
            raise InvalidParameter(
                "specifications", (), "at least one Specification", "declare which secrets are to be hidden"
            )
        if self.promise not in ("windowed", "joint"):
            raise InvalidParameter(
                "promise", self.promise, "'windowed' or 'joint'", "write promise='windowed' if unsure"
            )
        put(self, "allowance", exact("allowance", self.allowance))
        if Fraction(self.allowance) < 0:
            raise InvalidParameter("allowance", self.allowance, "not negative", "write the grid, or 0")
        for specification in self.specifications:
            check_clock(specification, self.clock)
        durations = max(specification.longest for specification in self.specifications)
        longest = durations if self.longest is None else self.longest
        put(self, "longest", whole("longest", longest, durations, LONGEST))
        if self.epsilon is None and self.rho is None:
            put(self, "epsilon", min({Fraction(secret.epsilon) for secret in self.secrets}))
        if self.horizon is not None:
            put(self, "horizon", whole("horizon", self.horizon, most=LONGEST))
        if self.max_change is None:
            put(self, "max_change", max(self._peak(each) for each in self.specifications))
        super().__post_init__()
        if self.rho is not None:
            raise InvalidParameter(
                "rho", show(Fraction(self.rho)), "absent for Swellfish", "write the ε of each secret"
            )

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets of all specifications."""
        return tuple(secret for each in self.specifications for secret in each.secrets)

    @property
    def window(self) -> int:
        """The longest event of any secret, now or to come."""
        assert self.longest is not None
        return self.longest

    @property
    def count(self) -> int | None:
        """How many secrets there are in the sense of the paper, one for each hiding interval; None: endlessly many."""
        if self.horizon is None and any(secret.recurring for secret in self.secrets):
            return None
        end = self.horizon or FOREVER
        return sum(len(each.occurrences(self.clock, 1, end)[0]) for each in self.specifications)

    @cached_property
    def resolution(self) -> int:
        """All heights are whole multiples of one over this."""
        return resolution(self.specifications, Fraction(self.allowance), Fraction(self.max_change or 1))

    def _peak(self, specification: Specification) -> Fraction:
        """The largest sum of heights that are relevant together; on endless streams recurring ones always count.

        There every rule of a secret counts as often as its occurrences may meet when the clock changes.
        """
        heights = [Fraction(secret.height) for secret in specification.secrets]
        scale = lcm(*(height.denominator for height in heights))
        whole_heights = np.array([int(height * scale) for height in heights], dtype=np.int64)
        always = 0
        if self.horizon is None:
            recurs = np.array([bool(secret.recurring) for secret in specification.secrets])
            at_once = np.array([self._at_once(secret) for secret in specification.secrets], dtype=np.int64)
            always = int((whole_heights * at_once)[recurs].sum())
            whole_heights = np.where(recurs, 0, whole_heights)
            rows = [secret.intervals.rows for secret in specification.secrets]
            owners = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
            steps = np.concatenate(rows)
        else:
            steps, owners = specification.occurrences(self.clock, 1, self.horizon)
        places = np.concatenate([steps[:, 0], steps[:, 1] + 1])
        changes = np.concatenate([whole_heights[owners], -whole_heights[owners]])
        order = np.lexsort((changes, places))  # what ends before a step no longer counts at it
        highest = int(np.cumsum(changes[order]).max(initial=0))
        return Fraction(highest + always, scale) + Fraction(self.allowance)

    def _at_once(self, secret: Secret) -> int:
        """How many hiding intervals of a recurring secret may be open at one step, at most.

        The occurrence of day D lies in [24h·D + begin − largest offset, 24h·D + begin + length − smallest offset],
        rounded outwards to steps, so a moment is in at most 1 + ⌊(length + difference of offsets + 2 steps)/24 h⌋ of
        them. The difference is a whole day where a zone has moved across the date line (Pacific/Apia, 2011-12-30).
        """
        once = 1 if len(secret.intervals) else 0
        if not secret.recurring:
            return once
        assert self.clock is not None
        margin = max(2 * 3600, self.clock.largest_shift()) + 2 * self.clock.length
        together: list[int] = [1 + (rule.minutes * 60 + margin) // 86_400 for rule in secret.recurring]
        return once + sum(together)

    def as_w_event(self) -> WEvent:
        """The w-event policy that implies this one (Theorem 7): longest event, smallest ε, largest sensitivity.

        Any w-event mechanism under it keeps the windowed promise of every specification.
        """
        peak = max(Fraction(self.max_change or 0), *(self._peak(each) for each in self.specifications))
        return WEvent(
            epsilon=min(Fraction(secret.epsilon) for secret in self.secrets),
            delta=self.delta,
            window=max(specification.longest for specification in self.specifications),
            max_change=peak,
            adjacency=self.adjacency,
            mobility=self.mobility,
            touches=self.touches,
            horizon=self.horizon,
            signed=self.signed,
        )

    def temporal_sensitivity(self, first: int, last: int) -> list[list[Fraction]]:
        """Δ_t of each specification (rows) at the steps first to last: the paper's Definition 14."""
        rows = []
        for specification in self.specifications:
            sums = [Fraction(0)] * (last - first + 1)
            steps, owners = specification.occurrences(self.clock, first, last)
            for (begin, end), owner in zip(steps.tolist(), owners.tolist(), strict=True):
                for step in range(max(begin, first), min(end, last) + 1):
                    sums[step - first] += Fraction(specification.secrets[owner].height)
            rows.append([total + Fraction(self.allowance) if total else total for total in sums])
        return rows

    def distance(self, one: Matrix, other: Matrix) -> int:
        """0 for equal streams, 1 for neighbours under the windowed promise; any other pair is refused.

        Streams are neighbours when all steps in which they differ lie in one placement of one secret's event,
        and none differs by more than the temporal sensitivity of that specification.
        """
        return neighbours.swellfish_distance(self, one, other)

    def extreme_neighbour(self, stream: Matrix, choose: Callable[[int], int]) -> Matrix:
        """A neighbour for tests and audits: one placement of one event, changed by Δ_t in each of its steps."""
        return neighbours.swellfish_neighbour(self, stream, choose)

    def describe(self) -> dict[str, Any]:
        """Identify the policy exactly, as JSON."""
        described = super().describe()
        described["specifications"] = [spec.describe() for spec in self.specifications]
        described["clock"] = self.clock.describe() if self.clock else None
        return described

    def unit(self) -> str:
        """One placement of one secret's event inside its hiding interval."""
        if self.promise == "joint":
            return "one occurrence of every specified event at once, seen inside any one hiding interval"
        return "one occurrence of any specified event, wherever it is in its hiding interval"


def check_clock(specification: Specification, clock: Clock | None) -> None:
    """Refuse recurring secrets without a clock, and hours that are too short for their event."""
    for secret in specification.secrets:
        if secret.recurring and clock is None:
            raise InvalidParameter(
                "clock",
                None,
                "given where a secret recurs",
                'write clock=Clock("2026-01-05T00:00", "15 min")',
            )
        short = secret.fits(clock) if clock else None
        if short is not None:
            raise InvalidParameter(
                "recurring",
                str(short),
                f"at least as long as the event's duration of {secret.duration} steps",
                "widen the hours or shorten the event",
            )


def resolution(specifications: tuple[Specification, ...], *others: Fraction) -> int:
    """One over the finest step that all heights are multiples of."""
    heights = {secret.height for each in specifications for secret in each.secrets}
    scale = lcm(*(Fraction(number).denominator for number in (*heights, *others)))
    if scale > FINEST:
        raise InvalidParameter(
            "height",
            f"1/{scale}",
            f"a multiple of one over at most {FINEST}",
            "write heights with fewer digits",
        )
    return scale


def policy_from(described: dict[str, Any]) -> Swellfish:
    """The policy that `Swellfish.describe` described."""
    fields = {name: value for name, value in described.items() if name not in ("policy", "specifications")}
    clock = fields.pop("clock")
    return Swellfish(
        **fields,
        clock=Clock(**clock) if clock else None,
        specifications=tuple(specification_from(each) for each in described["specifications"]),
    )


def specification_from(described: dict[str, Any]) -> Specification:
    """The specification that `Specification.describe` described."""
    fields = {name: described[name] for name in ("label", "begins", "ends") if name in described}
    return Specification(tuple(secret_from(each) for each in described["secrets"]), **fields)


def secret_from(described: dict[str, Any]) -> Secret:
    """The secret that `Secret.describe` described."""
    rows = np.array(described["intervals"], dtype=np.int64).reshape(-1, 2)
    positive("epsilon", described["epsilon"])
    return Secret(**{**described, "intervals": rows, "recurring": tuple(described.get("recurring", ()))})
