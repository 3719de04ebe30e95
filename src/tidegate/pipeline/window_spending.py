"""What windows have spent, from committed charges: for people to read. The account itself is in `core.account`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Charges, Integers, Span
from tidegate.core.mechanism import HasAccount, Mechanism
from tidegate.core.parallel_account import ParallelAccount, charges_of_part

Key = tuple[int, int]


class Spending:
    """Reads the charges of one query in order.

    Parameters
    ----------
    mechanism
        What was charged.
    spans
        Those that windows to come may meet, where it continues.
    """

    def __init__(self, mechanism: Mechanism, spans: Iterable[Sequence[int]] = ()) -> None:
        account = mechanism.account() if isinstance(mechanism, HasAccount) else None
        # rows of accounts side by side are no spans
        self.parts = [part.window for part in account.parts] if isinstance(account, ParallelAccount) else []
        self._spans_count = not self.parts
        self.window = mechanism.policy.window
        self._spans: dict[Key, Span] = {(span[0], span[1]): Span(*span) for span in spans}

    def read(self, charges: Charges) -> None:
        """Remember the spans of the next charges."""
        if self._spans_count:
            for row in charges.spans.tolist():
                span = Span(*row)
                if span.units:
                    self._spans[(span.law, span.ordinal)] = span

    def window_units(self, charges: Iterable[Charges], steps: Integers) -> Integers:
        """What the window that ends at each of some steps was charged."""
        if self.parts:
            return fullest_part(list(charges), self.parts, steps)
        return window_units(charges, self.spans, steps, self.window)

    @property
    def longest(self) -> int | None:
        """The steps of the longest window; None: all."""
        windows = self.parts or [self.window]
        return None if None in windows else max(each for each in windows if each is not None)

    @property
    def spans(self) -> list[Span]:
        """All that are remembered."""
        return list(self._spans.values())

    def live(self, step: int) -> list[list[int]]:
        """The spans that windows after a step may meet; the others are forgotten."""
        if self.window is not None:
            since = step + 1 - self.window
            self._spans = {key: span for key, span in self._spans.items() if span.last > since}
        return [list(span) for span in self._spans.values()]

    def units(self, charges: Charges) -> Integers:
        """What each step was charged; a span counts with the step at which it begins."""
        units = charges.units.copy()
        if self._spans_count:
            rows = charges.spans.tolist()
            begun = {(law, ordinal): (first, cost) for law, ordinal, first, _, cost in rows if cost}
            for first, cost in begun.values():
                if first >= charges.first:  # else it is extended
                    units[first - charges.first] += cost
        return units


def fullest_part(charges: Sequence[Charges], parts: Sequence[int | None], steps: Integers) -> Integers:
    """What the part that spent most was charged in its own window, of accounts side by side.

    The charges of a step say the most of any part; the sum of these over a window is what no part has spent.

    Parameters
    ----------
    charges
        All that may lie in these windows.
    parts
        The steps of the window of each part.
    steps
        The last steps of the windows, in order.

    Examples
    --------
    >>> from tidegate.core.parallel_account import charges_of_parts
    >>> charges = [charges_of_parts(1, np.array([[3, 0], [0, 3]]))]
    >>> fullest_part(charges, [2, 2], np.arange(1, 4)).tolist()
    [3, 3, 3]
    """
    own = [
        window_units([charges_of_part(each, part) for each in charges], (), steps, window)
        for part, window in enumerate(parts)
    ]
    found: Integers = np.max(own, axis=0)
    return found


def window_units(
    charges: Iterable[Charges],
    spans: Iterable[Span],
    steps: npt.NDArray[np.int64],
    window: int | None,
) -> Integers:
    """What the window that ends at each of some steps was charged; a span counts once in every window that it meets.

    Parameters
    ----------
    charges
        All that may lie in these windows.
    spans
        Those that meet any of them.
    steps
        The last steps of the windows, in order.
    window
        How many steps a window has; None: all up to its last one.

    Examples
    --------
    >>> charges = [Charges(1, np.array([1, 0, 2, 0]))]
    >>> window_units(charges, [Span(0, 0, 2, 3, 5)], np.arange(1, 7), 2).tolist()
    [1, 6, 7, 7, 0, 0]
    """
    if not len(steps):
        return np.zeros(0, dtype=np.int64)
    high = int(steps[-1])
    low = 1 if window is None else max(1, int(steps[0]) - window + 1)
    each = np.zeros(high - low + 1, dtype=np.int64)
    for first, units, _ in charges:
        begin, end = max(first, low), min(first + len(units) - 1, high)
        if begin <= end:
            each[begin - low : end - low + 1] += units[begin - first : end - first + 1]
    sums = np.concatenate([[0], np.cumsum(each)])
    begins = np.full(len(steps), low) if window is None else np.maximum(steps - window + 1, low)
    found: Integers = sums[steps - low + 1] - sums[begins - low]
    for span in spans:
        last = np.inf if window is None else span.last + window - 1
        found[(steps >= span.first) & (steps <= last)] += span.units
    return found
