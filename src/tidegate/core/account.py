"""The account of one scope (a query's share of the budget): what every window has spent, and whether a charge fits.

A unit of the account is an exact fraction of the budget, not a person. A span is noise that several steps share. It is
identified by its law and ordinal, and charged once in every window that it meets. An event is announced by the caller,
such as somebody's look at the state; it is no record of the data.

`check` judges and changes nothing; `apply` follows after the commit. A window is any w consecutive steps. It has
spent the units of its steps, and those of every span that meets it. It is enough to check the windows that end at
charged steps: a window that ends later, without new charges, cannot have spent more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import lean
from tidegate.core.charges import UNITS, Charges, Integers, Span
from tidegate.core.errors import AccountRefused, Held, Refusal
from tidegate.exact import whole

LARGEST_LIMIT = 2**62 - 1  # so that a limit and one more charge stay within 64 bits
LARGEST_WINDOW = 2**27  # an account remembers the units of every step of a window: 1 GiB
LARGEST_STEP = 2**53  # so that steps, and spans that are planned ahead, stay within 64 bits


class After(NamedTuple):
    """The account after charges that fit. Nobody changes these dictionaries."""

    total: int  # units of the steps in the window that ends at the last step
    live: dict[tuple[int, int], Span]  # spans that may meet a later window, by law and ordinal
    ordinals: dict[int, int]
    ended_units: int  # units of spans that meet that window and no later one


class Checked(NamedTuple):
    """Charges that fit, and the account after them."""

    charges: Charges
    after: After


@lean
def first_refused(ring: Any, oldest: int, total: int, units: Any, allowed: Any) -> Any:
    """Returns (index, total): the first step whose window is overspent, or −1; and what the window's steps have spent.

    `total` is that of the window that ends there, or at the last step. `ring` holds the units of the last w steps, the
    oldest at `oldest`; `allowed` is what the steps of the window that ends at each step may have spent. If `allowed` has
    one number, it holds for all steps. An empty ring means that the window is endless.
    """
    window = ring.size
    for index in range(units.size):
        leaving = 0
        if window > 0:
            leaving = ring[(oldest + index) % window] if index < window else units[index - window]
        total += units[index] - leaving
        if total > allowed[index if allowed.size > 1 else 0]:
            return index, total
    return -1, total


class Account:
    """The units of the last w steps and the spans that meet them.

    Parameters
    ----------
    limit
        Units that a window may spend.
    window
        How many steps a window has; None: it is endless, and all charges add up.
    horizon
        The last step that may be charged; None: there is none.

    Examples
    --------
    >>> account = Account(limit=8, window=4)
    >>> account.apply(account.check(Charges(1, np.array([5, 0, 3]))))
    >>> account.remaining(), account.step
    (0, 3)
    >>> account.check(Charges(4, np.array([6])))
    Traceback (most recent call last):
    ...
    tidegate.core.errors.AccountRefused: the charge of 6 units at step 4 is refused: steps 1 to 4 may spend 8 ...
    """

    def __init__(self, limit: int, window: int | None, horizon: int | None = None) -> None:
        self.limit = whole("limit", limit, most=LARGEST_LIMIT)
        self.window = None if window is None else whole("window", window, most=LARGEST_WINDOW)
        self.horizon = horizon
        self._last_step = LARGEST_STEP if horizon is None else min(horizon, LARGEST_STEP)
        self.step = 0  # the last step that was charged or passed over
        self.event_units = 0  # units that events have charged to the next step
        self.total = 0
        self.live: dict[tuple[int, int], Span] = {}
        self.ordinals: dict[int, int] = {}  # of each law: the largest ordinal that was ever charged
        self.ended_units = 0
        self._ring: Integers = np.zeros(self.window or 0, dtype=np.int64)
        self._oldest = 0  # where the oldest step of the window is in the ring

    def check(self, charges: Charges) -> Checked:
        """Judge charges. Their first step must come after `self.step`; steps passed over cost nothing."""
        first, units, rows = charges
        if units.dtype != np.int64 or units.ndim != 1 or rows.dtype != np.int64:
            raise AccountRefused("charges are whole numbers, one for each step.")
        if first <= self.step:
            raise AccountRefused.order(first, self.step)
        spans = [Span(*row) for row in rows.tolist() if row[UNITS]] if len(rows) else []
        if len(units) == 1 and first == self.step + 1:
            return Checked(charges, self.check_next(int(units[0]), spans))
        if charges.last > self._last_step:
            raise AccountRefused.horizon(charges.last, self._last_step)
        ring, oldest, total = self._moved_to(first)
        live, ordinals = self._with_spans(first, charges.last, spans) if spans else (self.live, self.ordinals)
        units = self._with_events(charges)
        if units.size and (int(charges.units.min()) < 0 or int(units.max()) > self.limit):
            raise AccountRefused("a step was charged less than nothing or more than a whole window.")
        allowed = self._allowed(charges, live)
        refused, total = first_refused(ring, oldest, total, units, allowed)
        if refused >= 0:
            raise self._overspent(charges, live, charges.first + refused)
        kept = {key: span for key, span in live.items() if self._meets(span, charges.last + 1)}
        return Checked(charges, After(int(total), kept, ordinals, self._units_ending_at(live, charges.last)))

    def check_next(self, units: int, spans: Sequence[Span] = ()) -> After:
        """`check` of the next step alone, with plain numbers: a kernel would take longer to be called."""
        step, window, live, ordinals = self.step + 1, self.window, self.live, self.ordinals
        if step > self._last_step:
            raise AccountRefused.horizon(step, self._last_step)
        if spans:
            live, ordinals = self._with_spans(step, step, spans)
        charged, allowed, ends, ended = units + self.event_units, self.limit, False, 0
        if units < 0 or charged > allowed:
            raise AccountRefused("a step was charged less than nothing or more than a whole window.")
        total = self.total + charged
        if window is not None:
            total -= self._ring.item(self._oldest)
        for span in live.values():
            allowed -= span.units if window is None or span.last > step - window else 0
            ends = ends or (window is not None and span.last <= step + 1 - window)
        if total > allowed:
            rows = np.array(spans, dtype=np.int64).reshape(-1, len(Span._fields))
            raise self._overspent(Charges(step, np.array([units]), rows), live, step)
        if ends:
            ended = self._units_ending_at(live, step)
            live = {key: span for key, span in live.items() if self._meets(span, step + 1)}
        return After(total, live, ordinals, ended)

    def apply_next(self, units: int, after: After) -> None:
        """`apply` of the next step alone."""
        if self.window is not None:
            self._ring[self._oldest] = units + self.event_units
            self._oldest = (self._oldest + 1) % self.window
        self.event_units = 0
        self.step += 1
        self.total, self.live, self.ordinals, self.ended_units = after

    def apply(self, checked: Checked) -> None:
        """Count the charges that `check` has accepted last. Call it only after their commit."""
        charges = checked.charges
        if len(charges.units) == 1 and charges.first == self.step + 1:
            self.apply_next(int(charges.units[0]), checked.after)
            return
        units = self._with_events(charges)
        self._ring, self._oldest, _ = self._moved_to(charges.first)
        window = self._ring.size
        if window:
            kept = units[-window:]
            start = self._oldest + len(units) - len(kept)
            self._ring[(start + np.arange(len(kept))) % window] = kept
            self._oldest = (self._oldest + len(units)) % window
        if charges.last > self.step:
            self.event_units = 0
        self.step = charges.last
        self.total, self.live, self.ordinals, self.ended_units = checked.after

    def check_event(self, units: int) -> None:
        """Judge the cost of an event. It is charged to the next step."""
        self.check(Charges(self.step + 1, np.array([units], dtype=np.int64)))

    def apply_event(self, units: int) -> None:
        """Count the cost of an event, together with the next step."""
        self.event_units += units

    def spent(self) -> int:
        """Units that the window which ends at the last step has spent; an event counts from the next step on."""
        return self.total + self.ended_units + sum(span.units for span in self.live.values())

    def remaining(self) -> int:
        """Units that the window which ends at the next step has left."""
        ring, oldest, total = self._moved_to(self.step + 1)
        leaving = int(ring[oldest]) if ring.size else 0
        spans = sum(span.units for span in self.live.values())
        return self.limit - (total - leaving) - spans - self.event_units

    def fill(self, first: int, last: int) -> Charges:
        """Charges that use up every window that ends at one of these steps; for a halt after a failure.

        Spans that are open at the first step are extended to the last one.
        """
        count = last - first + 1
        ring, oldest, total = self._moved_to(first)
        spans = [
            span._replace(last=max(span.last, last))
            for span in self.live.values()
            if self._meets(span, first)
        ]
        rest = self.limit - sum(span.units for span in spans)
        events = (
            self.event_units if first == self.step + 1 else 0
        )  # belongs to the first step; if that is passed over, it is in the ring
        units = np.zeros(count, dtype=np.int64)
        for index in range(count):
            if ring.size:
                total -= (
                    int(ring[(oldest + index) % ring.size])
                    if index < ring.size
                    else int(units[index - ring.size]) + (events if index == ring.size else 0)
                )
            total += 0 if index else events
            units[index] = max(0, rest - total)
            total += int(units[index])
        rows = np.array(spans, dtype=np.int64).reshape(-1, len(Span._fields))
        return Charges(first, units, rows)

    def held(self, step: int) -> list[Held]:
        """The charges that the window which ends at a later step holds already, the largest first.

        Of an endless window the account knows the sum alone.
        """
        spans = [Held(*span[2:]) for span in self.live.values() if self._meets(span, step)]
        return sorted([*self._held_by_steps(step), *spans], key=_largest_first)

    def _held_by_steps(self, step: int) -> list[Held]:
        """The same without spans."""
        found = []
        if self.window is None:
            found += [Held(1, self.step, self.total)] if self.total else []
        else:
            since, low = self.step - self.window + 1, step - self.window + 1
            recent = self.recent()
            found += [
                Held(since + index, since + index, int(recent[index]))
                for index in np.flatnonzero(recent).tolist()
                if since + index >= low
            ]
        if self.event_units and (self.window is None or self.step + 1 > step - self.window):
            found.append(Held(self.step + 1, self.step + 1, self.event_units))
        return found

    def first_fit(self, units: int, step: int) -> int | None:
        """The first step from this one on that may be charged so many units, if nothing else is charged before."""
        return _first_fit(self.held(step), units, step, self.limit, self.window)

    def recent(self) -> Integers:
        """The units of the last w steps, the oldest first."""
        return np.roll(self._ring, -self._oldest)

    def describe(self) -> dict[str, Any]:
        """The public numbers of the account."""
        return {"units": self.limit, "window": self.window, "horizon": self.horizon}

    def unchanged(self) -> Checked:
        """The account as it is, for a commit that charges nothing."""
        none = Charges(self.step + 1, np.zeros(0, dtype=np.int64))
        return Checked(none, After(self.total, self.live, self.ordinals, self.ended_units))

    def end_spans(self) -> None:
        """Drop all live spans, because their noise is never used again.

        Their units still count in the window that ends at the last step.

        The caller releases nothing until no window contains a use of this noise.
        """
        self.live, self.ordinals, self.ended_units = (
            {},
            {},
            self.ended_units + sum(span.units for span in self.live.values()),
        )

    def load(self, charges: Charges) -> None:
        """Count the charges of the last window, when a log is opened."""
        ring, oldest, total = self._moved_to(charges.first)
        units = self._with_events(charges)
        _, total = first_refused(ring, oldest, total, units, np.array([LARGEST_LIMIT]))
        self.apply(Checked(charges, After(int(total), {}, {}, 0)))

    def restore(self, after: After) -> None:
        """Set what `load` cannot know from the last window: older spans, and the total of an endless window."""
        if self.window is None:
            self.total = after.total
        _, self.live, self.ordinals, self.ended_units = after

    def _meets(self, span: Span, end: int) -> bool:
        """Whether a span counts in any window that ends at this step or later."""
        return self.window is None or span.last > end - self.window

    def _units_ending_at(self, live: dict[tuple[int, int], Span], step: int) -> int:
        """The units of the spans whose last window is the one that ends at this step."""
        if self.window is None:
            return 0
        return sum(span.units for span in live.values() if span.last == step + 1 - self.window)

    def _moved_to(self, first: int) -> tuple[Integers, int, int]:
        """The ring as of the step before `first`, the place of its oldest step, and its sum; nothing is changed."""
        passed = first - 1 - self.step
        if passed <= 0:
            return self._ring, self._oldest, self.total
        if not self._ring.size:
            return self._ring, self._oldest, self.total + self.event_units
        ring, window = self._ring.copy(), self._ring.size
        ring[(self._oldest + np.arange(min(passed, window))) % window] = 0
        if passed <= window:
            ring[self._oldest] = self.event_units
        return ring, (self._oldest + passed) % window, int(ring.sum())

    def _with_events(self, charges: Charges) -> Integers:
        """The units of charges; the first step includes what events have charged to it."""
        if not self.event_units or charges.first != self.step + 1 or not len(charges.units):
            return charges.units
        units = charges.units.copy()
        units[0] += min(self.event_units, LARGEST_LIMIT)
        return units

    def _with_spans(
        self, first: int, last: int, spans: Sequence[Span]
    ) -> tuple[dict[tuple[int, int], Span], dict[int, int]]:
        """The spans that are live after charges of these steps, and the ordinals; one that breaks a rule is refused."""
        live, ordinals = dict(self.live), dict(self.ordinals)
        for span in spans:
            key, known = (span.law, span.ordinal), live.get((span.law, span.ordinal))
            if not 0 < span.units <= self.limit or span.last < span.first or span.law < 0:
                raise AccountRefused(
                    "a span has no units, more than a whole window, or ends before it begins."
                )
            if known is not None and self._meets(known, first):
                if (known.first, known.units) != (span.first, span.units) or span.last < known.last:
                    raise AccountRefused("a span that is open may only be extended; its other numbers stay.")
            elif span.ordinal <= ordinals.get(span.law, -1):
                raise AccountRefused(
                    "a span that has ended was charged again; begin one with another ordinal."
                )
            elif not first <= span.first <= last:
                raise AccountRefused(
                    "a span begins at one of the steps that are charged with it, never before."
                )
            live[key] = span
            ordinals[span.law] = max(ordinals.get(span.law, -1), span.ordinal)
        return live, ordinals

    def _overspent(self, charges: Charges, live: dict[tuple[int, int], Span], step: int) -> AccountRefused:
        """The refusal of the first step that does not fit: what its window holds, and when it would fit."""
        before, low = step - charges.first, 1 if self.window is None else max(1, step - self.window + 1)
        own = [span for span in live.values() if span.first == step]
        asked = int(charges.units[before]) + sum(span.units for span in own)
        held = self._held_by_steps(step)
        held += [Held(*span[2:]) for span in live.values() if span.first < step and self._meets(span, step)]
        held += [
            Held(charges.first + index, charges.first + index, int(charges.units[index]))
            for index in np.flatnonzero(charges.units[:before]).tolist()
            if charges.first + index >= low
        ]
        held.sort(key=_largest_first)
        spent = sum(each.units for each in held)
        fits = _first_fit(held, asked, step, self.limit, self.window)
        return AccountRefused.overspent(
            Refusal(step, asked, low, self.limit, spent, tuple(held), fits, self.horizon)
        )

    def _allowed(self, charges: Charges, live: dict[tuple[int, int], Span]) -> Integers:
        """For each charged step: the limit of the window that ends there, less the spans that meet this window."""
        count, first = len(charges.units), charges.first
        if not live or not count:
            return np.array([self.limit], dtype=np.int64)
        changes: dict[int, int] = {}  # of what spans cost, by index of the step
        for span in live.values():
            start = max(span.first, first) - first
            stop = count if self.window is None else min(count, span.last + self.window - first)
            if start < stop:
                changes[start] = changes.get(start, 0) + span.units
                changes[stop] = changes.get(stop, 0) - span.units
        allowed, rest, filled = np.empty(count, dtype=np.int64), self.limit, 0
        for index in sorted(changes):
            allowed[filled:index] = rest
            rest, filled = rest - changes[index], index
            if rest < 0:
                raise self._overspent(charges, live, first + index)
        allowed[filled:] = rest
        return allowed


def _largest_first(held: Held) -> tuple[int, int]:
    return -held.units, held.first


def _first_fit(held: list[Held], units: int, step: int, limit: int, window: int | None) -> int | None:
    """The first step from this one on whose window has room; a charge leaves the window w steps after its last step."""
    spent = sum(each.units for each in held)
    if spent + units <= limit:
        return step
    if window is None:
        return None
    for each in sorted(held, key=lambda each: each.last):
        spent -= each.units
        if spent + units <= limit:
            return each.last + window
    return None
