"""From a policy's budget to the integers of an account: the unit, the limit, and what a charge costs.

Three rules. Pure and zero-concentrated budgets add, so a unit is an N-th of the budget and a charge of n
units costs n. An (ε, δ) budget is counted: a unit is the largest ε₀ of which N steps are (ε, δ)-private,
and a charge of n units at once costs as many unit steps as dominate it, a rule that holds for schedules that
depend on earlier releases. Where the whole schedule is public, the multiset of the charges in each window is
judged exactly instead, which allows more. docs/proofs/ledger.md proves all three.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from tidegate.composition import delta_of, largest_charge, largest_step, slots_of
from tidegate.errors import InvalidParameter
from tidegate.exact import show, whole
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Account
from tidegate.ledger.divided import DividedAccount
from tidegate.ledger.events import MOST_UNITS, Overspent
from tidegate.ledger.kernels import Integers
from tidegate.ledger.secrets_rule import SecretsAccount
from tidegate.policy import Swellfish
from tidegate.policy.budget import Approximate, Budget, Pure, ZeroConcentrated

Schedule = Literal["adaptive", "public"]
# what a query may choose for itself: how much a unit of protection changes ITS numbers
OWN = ("max_change", "touches", "signed")


class LedgerPolicy(Protocol):
    """What a ledger must know of a policy."""

    @property
    def budget(self) -> Budget:
        """The budget of a window."""

    @property
    def window(self) -> int | None:
        """Steps in a window; None when everything ever charged adds up."""

    @property
    def horizon(self) -> int | None:
        """The last step of the stream, if it has one."""

    def describe(self) -> dict[str, Any]:
        """The policy exactly, ready for JSON."""


@dataclass(frozen=True)
class Rule:
    """How charges compose under one policy.

    Parameters
    ----------
    policy
        What is protected.
    units
        The number of units that make up the budget of a window.
    schedule
        "adaptive": which steps are charged, and how much, may depend on earlier releases. "public": what each
        step is charged is fixed before the data are seen; matters for (ε, δ) budgets only.

    Examples
    --------
    >>> from tidegate.policy import WEvent
    >>> Rule(WEvent(epsilon="1", w=24), 24).unit
    Fraction(1, 24)
    """

    policy: LedgerPolicy
    units: int
    schedule: Schedule = "adaptive"

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", whole("units", self.units, most=MOST_UNITS))
        if self.schedule not in ("adaptive", "public"):
            raise InvalidParameter(
                "schedule", self.schedule, '"adaptive" or "public"', 'write schedule="adaptive" if unsure'
            )
        if not isinstance(self.policy.budget, Pure | Approximate | ZeroConcentrated):
            raise InvalidParameter(
                "policy", self.policy, "a policy with a budget", "use Event, WEvent, User or Swellfish"
            )
        object.__setattr__(self, "_unit", _unit(self.policy, self.units))

    @property
    def unit(self) -> Fraction:
        """The privacy loss of one unit."""
        unit: Fraction = self._unit  # type: ignore[attr-defined]
        return unit

    @cached_property
    def adds(self) -> bool:
        """Whether a charge of n units costs n."""
        return self.unit * self.units == self.policy.budget.total

    @property
    def limit(self) -> str:
        """What a window may spend, for people."""
        budget = self.policy.budget
        if self.adds or not isinstance(budget, Approximate):
            return show(budget.total)
        return f"{self.units} charges of {float(self.unit):.6g}, together {budget}"

    def account(self) -> Account:
        """A fresh account under this rule."""
        if isinstance(self.policy, Swellfish):
            return SecretsAccount(self.policy, self.units)
        if self.adds:
            return DividedAccount(self)
        if self.schedule == "public":
            return MultisetAccount(self)
        return DividedAccount(self, single=1)

    def cost(self, size: int) -> int:
        """What one charge of `size` units takes from the account."""
        if size <= 1 or self.adds or self.schedule == "public":
            return size
        slots = slots_of(size, self.unit, self.units)
        return self.units + 1 if slots is None else slots

    def largest(self, left: int) -> int:
        """The largest charge, in units, that costs no more than what is left in an account."""
        if left <= 1 or self.adds or self.schedule == "public":
            return max(left, 0)
        return largest_charge(left, self.unit, self.units)

    def costs(self, sizes: Integers) -> Integers:
        """`cost` of every size."""
        if self.adds or self.schedule == "public" or int(sizes.max(initial=0)) <= 1:
            return sizes
        values, where = np.unique(sizes, return_inverse=True)
        return np.array([self.cost(int(value)) for value in values], dtype=np.int64)[where]


def _unit(policy: LedgerPolicy, units: int) -> Fraction:
    budget = policy.budget
    if isinstance(policy, Swellfish):  # losses are judged secret by secret; a unit only measures them
        return budget.total / units
    if isinstance(budget, Approximate) and budget.delta > 0:
        return largest_step(units, budget.epsilon, budget.delta)
    return budget.total / units


class MultisetAccount(Account):
    """An account whose windows are judged by the exact composition of all the charges in them.

    For public schedules only. Each charge keeps its own row; a window of unit charges alone is counted, any
    other is composed exactly (and remembered, so that periodic schedules cost one composition per period).
    """

    def __init__(self, rule: Rule) -> None:
        window = rule.policy.window or 2**59  # rows must be kept, so "everything" is a very long window
        super().__init__(window, 2**55, rule.policy.horizon, single=0, merges=False)
        self.rule = rule

    def _fits(self, sizes: Counter[int]) -> bool:
        budget = self.rule.policy.budget
        assert isinstance(budget, Approximate)
        if set(sizes) <= {1}:
            return sizes[1] <= self.rule.units
        return delta_of(sizes, self.rule.unit, budget.epsilon) <= budget.delta

    def _window(self, end: int) -> Counter[int]:
        """The multiset of charges in the window that ends at a step."""
        rows, groups = self.rows(), self.groups()
        begin = end - self[k.WINDOW]
        inside = rows[(rows[:, 0] > begin) & (rows[:, 0] <= end), 1]
        met = groups[(groups[:, 1] > begin) & (groups[:, 0] <= end), 2]
        values, counts = np.unique(np.concatenate([inside, met]), return_counts=True)
        return Counter({int(value): int(count) for value, count in zip(values, counts, strict=True)})

    def _judge(self, step: int, units: int, last: int | None = None) -> Overspent | None:
        """Check every window that meets a charge just made, to a step or from there to a last one."""
        last = step if last is None else last
        ends = {step, *self.rows()[:, 0].tolist(), *self.groups()[:, 0].tolist()}
        for end in sorted(end for end in ends if step <= end < last + self[k.WINDOW]):
            sizes = self._window(end)
            if not self._fits(sizes):
                spent = sum(size * count for size, count in sizes.items()) - units
                return Overspent(step, end, spent, units, 0)
        return None

    def place(self, step: int, units: int) -> Overspent | None:
        """Charge one step if every window that contains it still composes to the budget."""
        before = self.mark()
        refusal = super().place(step, units) or (self._judge(step, units) if units else None)
        if refusal is None:
            return None
        self.undo(before)
        return refusal._replace(remaining=self.remaining(step))

    def place_batch(self, first: int, units: Integers) -> Overspent | None:
        """Charge consecutive steps one by one, all or none."""
        before = self.mark()
        for index, amount in enumerate(units.tolist()):
            refusal = self.place(first + index, amount)
            if refusal is not None:
                self.undo(before)
                return refusal
        return None

    def place_group(self, first: int, last: int, units: int) -> Overspent | None:
        """Charge a group if every window that meets it still composes to the budget."""
        before = self.mark()
        refusal = super().place_group(first, last, units) or self._judge(first, units, last)
        if refusal is None:
            return None
        self.undo(before)
        return refusal._replace(remaining=self._room(first, last))

    def place_extension(
        self, group: tuple[int, int, int], last: int, *, moves: bool = True
    ) -> Overspent | None:
        """Extend a group if the window that it may have entered again still composes to the budget."""
        before = self.mark()
        refusal = super().place_extension(group, last, moves=False) or self._judge(self[k.LAST], group[2])
        if refusal is not None:
            self.undo(before)
        elif moves and last > self[k.LAST]:
            self.state[k.STEPS] += last - self[k.LAST] - 1
            super().place(last, 0)
        return refusal

    def _place_mixed(
        self, first: int, units: Integers, groups: Integers, extended: Integers
    ) -> Overspent | None:
        """Charge one by one, since every window is composed."""
        refusal: Overspent | None = None
        for *group, further in extended.tolist():
            refusal = refusal or self.place_extension((group[0], group[1], group[2]), further, moves=False)
        waiting = groups.tolist()
        for step, amount in enumerate(units.tolist(), start=first):
            while waiting and waiting[0][0] <= step and refusal is None:
                refusal = self.place_group(*waiting.pop(0))
            refusal = refusal or self.place(step, amount)
        return refusal

    def remaining(self, step: int) -> int:
        """The units of the largest single charge that a step may still have."""
        return self._room(step, step)

    def _room(self, first: int, last: int) -> int:
        """The same of a group."""
        ends = {first, *self.rows()[:, 0].tolist(), *self.groups()[:, 0].tolist()}
        windows = [self._window(end) for end in ends if first <= end < last + self[k.WINDOW]]
        low, high = 0, self.rule.units + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = all(self._fits(window + Counter({middle: 1})) for window in windows)
            low, high = (middle, high) if fits else (low, middle)
        return low


def protection(policy: Any) -> dict[str, Any]:
    """What must be the same for all mechanisms on one account, whatever one unit changes of their values."""
    facts = {each.name: getattr(policy, each.name) for each in fields(policy) if each.name not in OWN}
    return {**facts, "": type(policy)}
