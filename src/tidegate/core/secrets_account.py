"""The account of a Swellfish policy: for each secret and each placement of its event, Σ Δ_t·n_t stays within its limit.

A charge of n units at step t says that a change by the policy's `max_change` loses n units there; a household whose
temporal sensitivity is Δ_t loses n·Δ_t over `max_change`. All numbers are whole (`policy.promises`). A placement is at
most w steps long, so what every placement has lost follows from the units of the last w steps and from the public
specifications: nothing else is stored.

Two judgements, the second only where the first does not decide:

1. Every step of the last w − 1, and every new one, is within its equal share of every promise. T such steps never lose
   more than the limit, so this costs a comparison per step, at any window.
2. The sums of all placements that end at the new steps: specifications × (w + steps).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.core.account import Account, Checked
from tidegate.core.charges import UNITS, Charges, Integers
from tidegate.core.errors import AccountRefused, Held, listed, steps_named
from tidegate.policy import Swellfish
from tidegate.policy.kernels import NONE, Intervals, sensitivity
from tidegate.policy.promises import PIECE, Promises, promises_of

MOST = 2**60  # units of a window: promises that are kept leave them far below
SEARCHED = 1000  # steps that a refusal looks ahead to say when budget returns
AHEAD = 1024  # steps whose equal shares are computed at once


@kernel
def largest_charge(intervals: Any, low: int, allowance: int, units: Any) -> Any:
    """The most units that the step after `units` may have: every placement that ends there keeps its promise.

    `units` are those of the steps from `low` on.
    """
    starts, firsts, lasts, heights, durations, limits, caps = Intervals(*intervals)
    size = units.size
    step = low + size
    delta = np.zeros(size + 1, dtype=np.int64)
    sums = np.zeros(size + 1, dtype=np.int64)
    most = NONE
    for spec in range(starts.size - 1):
        a, b = starts[spec], starts[spec + 1]
        sensitivity(firsts[a:b], lasts[a:b], heights[a:b], low, allowance, delta)
        if delta[size] == 0:
            continue
        for t in range(size):
            sums[t + 1] = sums[t] + units[t] * delta[t]
        for i in range(a, b):
            if firsts[i] > step or lasts[i] < step:
                continue
            first = max(firsts[i], step - durations[i] + 1, low)
            allowed = limits[i] - (sums[size] - sums[first - low])
            if caps[i] >= 0:  # with δ a placement may also have every one of its steps below the cap
                capped = True
                for t in range(first, step):
                    capped = capped and units[t - low] * delta[t - low] <= caps[i]
                if capped:
                    allowed = max(allowed, caps[i])
            most = min(most, max(allowed, 0) // delta[size])
    return most


class SecretsAccount(Account):
    """What every placement of every secret has lost, judged in whole numbers.

    Parameters
    ----------
    policy
        The specifications, which are public.
    units
        Into how many units the policy's ε is divided.

    Examples
    --------
    >>> from tidegate.policy import Secret, Specification
    >>> home, oven = Secret(1, 1, "always", 1, "home"), Secret(3, 2, [(3, 9)], 1, "oven")
    >>> account = SecretsAccount(Swellfish(specifications=[Specification((home, oven), "house 1")]), units=8)
    >>> account.apply(account.check(Charges(1, np.array([32, 32, 5]))))
    >>> account.remaining(), account.step
    (3, 3)
    >>> account.check(Charges(4, np.array([4])))
    Traceback (most recent call last):
    ...
    tidegate.core.errors.AccountRefused: the charge of 4 units at step 4 is refused: an event that may end there ...
    """

    def __init__(self, policy: Swellfish, units: int) -> None:
        super().__init__(MOST, policy.window, policy.horizon)
        self.policy, self.units = policy, units
        self.promises: Promises = promises_of(policy, units)
        self._shares: tuple[int, Integers] = (1, np.zeros(0, dtype=np.int64))  # first step, equal shares
        self._full = -policy.window  # the last step that was charged more than its equal share

    def check(self, charges: Charges) -> Checked:
        """Judge charges; they begin after the last step, and steps in between cost nothing."""
        if charges.spans.size and charges.spans[:, UNITS].any():
            raise AccountRefused("a span cannot be charged under Swellfish: an event may meet a part of it.")
        checked = super().check(charges)  # form, order, horizon
        if charges.units.size and int(charges.units.max()) > self._most:
            raise AccountRefused(f"a step was charged more than {self._most} units; use fewer units.")
        if not self._within_shares(charges):
            broken = self._first_broken(charges)
            if broken is not None:
                raise self._broken(charges, broken)
        return checked

    def apply(self, checked: Checked) -> None:
        """Take over charges that were checked, and committed, last."""
        charges = checked.charges
        above = np.flatnonzero(charges.units > self._equal_shares(charges.first, charges.last))
        if above.size:
            self._full = charges.first + int(above[-1])
        super().apply(checked)

    def check_event(self, units: int) -> None:
        """Refuse an event that costs anything: no mechanism of secrets has one."""
        if units:
            raise AccountRefused("an event cannot be charged under Swellfish; release it with a step.")
        super().check_event(units)

    def remaining(self) -> int:
        """Units that the next step may have."""
        return int(self.fill(self.step + 1, self.step + 1).units[0])

    def fill(self, first: int, last: int) -> Charges:
        """As many units as each of these steps may have, one after the other: what a halt charges."""
        low = max(1, first - self._window + 1)
        units = np.concatenate([self._charged(low, first - 1), np.zeros(last - first + 1, dtype=np.int64)])
        for at in range(first - low, len(units)):
            start = max(0, at - self._window + 1)
            units[at] = self._room(low + start, units[start:at])
        return Charges(first, units[first - low :])

    def first_fit(self, units: int, step: int) -> int | None:
        """The first step that may be charged so many units, if nothing else is charged before; None: none of the next w.

        Within w steps every event is over that began before.
        """
        low = max(1, step - self._window + 1)
        return self._first_fit(low, self._charged(low, step - 1), units, step)

    def describe(self) -> dict[str, Any]:
        """The public numbers of the account, and the specifications that it is judged by."""
        return {
            "kind": "secrets",
            "units": self.units,
            "window": self.window,
            "horizon": self.horizon,
            "secrets": self.policy.describe(),
        }

    # judging -----------------------------------------------------------------------------------------------------

    @property
    def _window(self) -> int:
        return self.policy.window

    @property
    def _most(self) -> int:
        """Units that a step may have where no secret is hidden: a window of them stays below 64 bits."""
        return MOST // self._window

    def _within_shares(self, charges: Charges) -> bool:
        """Whether these steps, and all that an event may share with them, have at most their equal shares."""
        shares = self._equal_shares(charges.first, charges.last)
        return self._full <= charges.first - self._window and bool((charges.units <= shares).all())

    def _equal_shares(self, first: int, last: int) -> Integers:
        """The most units of each step that share every promise equally among the steps of an event."""
        if last < first:
            return self._ring[:0]
        begin, shares = self._shares
        if first < begin or last >= begin + len(shares):
            until = max(last, first + AHEAD)
            until = until if self.horizon is None else max(last, min(until, self.horizon))
            shares = self.promises.windowed(first, until)
            if self.policy.promise == "joint":
                shares = np.minimum(shares, self.promises.joint(first, until))
            begin, self._shares = first, (first, shares)
        return shares[first - begin : last + 1 - begin]

    def _first_broken(self, charges: Charges) -> int | None:
        """The first step at which a placement loses too much."""
        low, last = max(1, charges.first - self._window + 1), charges.last
        units = np.concatenate([self._charged(low, charges.first - 1), charges.units])
        for begin in range(charges.first, last + 1, PIECE):
            start = max(low, begin - self._window + 1)
            broken, _ = self.promises.check(start, begin, units[start - low : begin + PIECE - low])
            if broken is not None:
                return broken
        return None

    def _broken(self, charges: Charges, step: int) -> AccountRefused:
        """The refusal of a step: what the last w steps were charged, and when the same charge would fit."""
        low = max(1, step - self._window + 1)
        known = self._charged(low, charges.first - 1) if low < charges.first else self._ring[:0]
        units = np.concatenate([known, charges.units[max(0, low - charges.first) : step - charges.first]])
        asked = int(charges.units[step - charges.first])
        held = [Held(low + at, low + at, int(units[at])) for at in np.flatnonzero(units).tolist()]
        held.sort(key=lambda each: (-each.units, each.first))
        fits = self._first_fit(low, units, asked, step + 1)
        later = (
            f"wait until step {fits}: there it fits"
            if fits
            else f"it fits at none of the next {SEARCHED} steps"
        )
        return AccountRefused(
            f"the charge of {asked} units at step {step} is refused: an event that may end there would lose more than "
            f"its secret's ε; {steps_named(low, step)} hold {int(units.sum())} units ({listed(held)}); {later}, if "
            "nothing else is charged before."
        )

    def _first_fit(self, low: int, units: Integers, asked: int, step: int) -> int | None:
        """The first step from this one on that may have so many units; `units` are those of the steps from `low` on."""
        last = step + min(self._window, SEARCHED)
        padded = np.concatenate([units, np.zeros(last - low - len(units), dtype=np.int64)])
        for at in range(step, last if self.horizon is None else min(last, self.horizon + 1)):
            start = max(low, at - self._window + 1)
            if self._room(start, padded[start - low : at - low]) >= asked:
                return at
        return None

    def _charged(self, low: int, high: int) -> Integers:
        """The units of the steps low to high, which begin in the last w steps; those passed over have none."""
        units, known = np.zeros(high - low + 1, dtype=np.int64), max(0, self.step - low + 1)
        units[:known] = self.recent()[self._window - known :]
        return units

    def _room(self, low: int, units: Integers) -> int:
        """What the step after these may have."""
        step = low + len(units)
        around = self.promises.around(low, step)
        found = int(largest_charge(around.intervals, low, self.promises.allowance, units))
        if self.policy.promise == "joint":
            found = min(found, int(self.promises.joint(step, step)[0]))
        return min(found, self._most)
