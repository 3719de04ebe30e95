"""Secrets: events with a height and a duration, and the steps in which they are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.clock.calendar_rules import Clock, Recurring
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, show, whole
from tidegate.policy.budget import LARGEST_BUDGET

Integers = npt.NDArray[np.int64]

FOREVER = 2**60  # the last step there is: a hiding interval up to it never ends


class Intervals:
    """Hiding intervals as rows (first step, last step): many of them in little memory, immutable, in order.

    Parameters
    ----------
    rows
        Pairs of a first and a last step, or an array of two columns.

    Examples
    --------
    >>> Intervals([(1, 4), (9, 12)])
    Intervals([(1, 4), (9, 12)])
    """

    __slots__ = ("_digest", "rows")

    def __init__(self, rows: Iterable[tuple[int, int]] | Integers) -> None:
        try:
            given = rows if isinstance(rows, np.ndarray) else list(rows)
            array = np.array(given, dtype=np.int64).reshape(-1, 2)
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(
                "intervals", rows, "pairs (first step, last step)", "write for example [(1, 4)]"
            ) from None
        array = array[np.lexsort((array[:, 1], array[:, 0]))]
        array.setflags(write=False)
        self.rows: Integers = array
        self._digest = hash(array.tobytes())

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((first, last) for first, last in self.rows.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return self._digest

    def __repr__(self) -> str:
        shown = [*self][:4]
        return f"Intervals({shown if len(self) <= 4 else str(shown)[:-1] + ', …]'})"


@dataclass(frozen=True)
class Secret:
    """An event of known height and duration that must not be recognised inside its hiding intervals.

    Parameters
    ----------
    height
        By how much the event changes one step at most (p).
    duration
        For how many consecutive steps (T).
    intervals
        Where it is hidden: pairs (first step, last step), each at least as long as the event, none overlapping
        another; "always" hides it at every step.
    epsilon
        The level of protection.
    label
        A name for people.
    recurring
        Where else it is hidden: rules such as "every weekday 18:00-23:00", on the clock of the policy.

    Each interval, and each occurrence of a rule, is a secret of its own in the sense of the paper.

    Examples
    --------
    The paper's Example 1: two steps of the oven at 3 kW, hidden between steps 1 and 4 with ε = 1.

    >>> oven = Secret(3, 2, [(1, 4)], 1, "oven")
    >>> oven.ratio
    Fraction(2, 1)
    """

    height: ExactLike
    duration: int
    intervals: Any
    epsilon: ExactLike
    label: str = ""
    recurring: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "height", positive("height", self.height))
        put(self, "epsilon", positive("epsilon", self.epsilon, LARGEST_BUDGET))
        put(self, "duration", whole("duration", self.duration, most=2**40))
        if isinstance(self.intervals, str):
            if self.intervals != "always":
                raise InvalidParameter(
                    "intervals", self.intervals, 'pairs of steps or "always"', 'write intervals="always"'
                )
            put(self, "intervals", [(1, FOREVER)])
        if not isinstance(self.intervals, Intervals):
            put(self, "intervals", Intervals(self.intervals))
        rules = (self.recurring,) if isinstance(self.recurring, str | Recurring) else self.recurring
        put(self, "recurring", tuple(r if isinstance(r, Recurring) else Recurring.read(r) for r in rules))
        self._check()

    def _check(self) -> None:
        rows = self.intervals.rows
        if not len(rows) and not self.recurring:
            raise InvalidParameter(
                "intervals",
                (),
                "at least one hiding interval",
                'write intervals="always" to hide it at all times',
            )
        short = np.flatnonzero(rows[:, 1] - rows[:, 0] + 1 < self.duration)
        if len(short):
            raise InvalidParameter(
                "intervals",
                tuple(rows[short[0]].tolist()),
                f"at least as long as the event's duration of {self.duration} steps",
                "widen the hiding interval or shorten the event",
            )
        if len(rows) and rows[0, 0] < 1:
            raise InvalidParameter(
                "intervals",
                tuple(rows[0].tolist()),
                "at or after step 1",
                "begin the hiding interval with the stream",
            )
        meeting = np.flatnonzero(rows[1:, 0] <= rows[:-1, 1])
        if len(meeting):
            pair = [tuple(rows[meeting[0] + more].tolist()) for more in (0, 1)]
            raise InvalidParameter(
                "intervals", pair, "without overlap", "merge the two, or drop the duplicate"
            )
        if len(set(self.recurring)) < len(self.recurring):
            raise InvalidParameter(
                "recurring", [str(rule) for rule in self.recurring], "without duplicates", "drop one of them"
            )

    @property
    def ratio(self) -> Fraction:
        """T/ε: the noise that the secret asks for, in multiples of the temporal sensitivity."""
        return self.duration / Fraction(self.epsilon)

    @property
    def endless(self) -> bool:
        """Whether the secret is relevant at every step of an endless stream."""
        rows = self.intervals.rows
        always = bool(len(rows)) and rows[0, 0] == 1 and rows[-1, 1] == FOREVER and len(rows) == 1
        return always or any(rule.endless for rule in self.recurring)

    def fits(self, clock: Clock) -> Recurring | None:
        """The first rule whose occurrences are too short for the event, or None."""
        needed = self.duration * clock.length
        return next((rule for rule in self.recurring if rule.minutes * 60 < needed), None)

    def recurrences(self, clock: Clock | None, first: int, last: int) -> Integers:
        """Occurrences of the rules that meet the steps first to last, whole, as rows (first step, last step).

        One that a clock change made shorter than the event is prolonged to hold it.
        """
        assert clock is not None
        found = []
        for rule in self.recurring:
            steps = rule.between(clock, first - self.duration, last)
            steps[:, 1] = np.maximum(steps[:, 1], steps[:, 0] + self.duration - 1)
            steps = steps[(steps[:, 1] >= first) & (steps[:, 1] >= 1)]
            steps[:, 0] = np.maximum(steps[:, 0], 1)  # what lies before the stream has no data
            found.append(steps)
        return np.concatenate(found)

    def dominates(self, other: Secret) -> bool:
        """Whether this secret is at least as conservative: as high, as long, and at no larger ε.

        Examples
        --------
        >>> Secret(2, 8, "always", "0.1").dominates(Secret(1, 8, "always", "0.5"))
        True
        """
        return (
            Fraction(self.height) >= Fraction(other.height)
            and self.duration >= other.duration
            and Fraction(self.epsilon) <= Fraction(other.epsilon)
        )

    def describe(self) -> dict[str, Any]:
        """Identify the secret exactly, as JSON."""
        described: dict[str, Any] = {
            "height": show(Fraction(self.height)),
            "duration": self.duration,
            "intervals": self.intervals.rows.tolist(),
            "epsilon": show(Fraction(self.epsilon)),
            "label": self.label,
        }
        if self.recurring:
            described["recurring"] = [str(rule) for rule in self.recurring]
        return described
