"""Secrets and specifications: events with a height and a duration, and the steps in which they are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, show, whole
from tidegate.policy.calendar_rules import Clock, Recurring

Integers = npt.NDArray[np.int64]

FOREVER = 2**60  # the last step there is: a hiding interval up to it never ends


class Intervals:
    """Hiding intervals as rows (first step, last step): many of them in little memory, immutable, in order.

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
        put(self, "epsilon", positive("epsilon", self.epsilon))
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

    def occurrences(self, clock: Clock | None, first: int, last: int) -> Integers:
        """The hiding intervals that meet the steps first to last, whole, as rows (first step, last step).

        An occurrence that a clock change made shorter than the event is prolonged to hold it.
        """
        rows = self.intervals.rows
        found = [rows[np.searchsorted(rows[:, 1], first) : np.searchsorted(rows[:, 0], last, side="right")]]
        if self.recurring:
            assert clock is not None
            for rule in self.recurring:
                steps = rule.between(clock, first - self.duration, last)
                steps[:, 1] = np.maximum(steps[:, 1], steps[:, 0] + self.duration - 1)
                steps = steps[(steps[:, 1] >= first) & (steps[:, 1] >= 1)]
                steps[:, 0] = np.maximum(steps[:, 0], 1)  # what lies before the stream has no data
                found.append(steps)
        return np.concatenate(found) if len(found) > 1 else found[0]

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


@dataclass(frozen=True)
class Specification:
    """The secrets of one household, patient or device.

    Parameters
    ----------
    secrets
        What is to be hidden; one of them should be a baseline that is hidden at all times.
    label
        A name for people; withdrawing a specification needs it.
    begins, ends
        The steps in which the specification is in force; outside of them it hides nothing.
    """

    secrets: tuple[Secret, ...]
    label: str = ""
    begins: int = 1
    ends: int = FOREVER

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", tuple(self.secrets))
        object.__setattr__(self, "begins", whole("begins", self.begins))
        object.__setattr__(self, "ends", whole("ends", self.ends, least=self.begins, most=FOREVER))
        if not self.secrets:
            raise InvalidParameter("secrets", (), "at least one Secret", "declare a baseline secret")
        self._no_duplicates()

    def _no_duplicates(self) -> None:
        """The same event twice at the same time would count twice: surely a slip of the pen."""
        kinds: dict[tuple[Any, ...], list[Secret]] = {}
        for secret in self.secrets:
            kinds.setdefault((secret.height, secret.duration, secret.label), []).append(secret)
        for (_, _, label), alike in kinds.items():
            rules = [rule for secret in alike for rule in secret.recurring]
            rows = np.concatenate([secret.intervals.rows for secret in alike])
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            if len(set(rules)) < len(rules) or (rows[1:, 0] <= rows[:-1, 1]).any():
                raise InvalidParameter(
                    "secrets",
                    label,
                    "different from each other where they overlap",
                    "drop the duplicate, or give it a label of its own",
                )

    @cached_property
    def longest(self) -> int:
        """The longest event."""
        return max(secret.duration for secret in self.secrets)

    def occurrences(self, clock: Clock | None, first: int, last: int) -> tuple[Integers, Integers]:
        """Hiding intervals that meet the steps first to last, cut to when the specification is in force.

        Returns rows (first step, last step) and for each the position of its secret.
        """
        first, last = max(first, self.begins), min(last, self.ends)
        if first > last:
            return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64)
        parts = [secret.occurrences(clock, first, last) for secret in self.secrets]
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate(parts)
        if self.begins > 1 or self.ends < FOREVER:
            rows = np.clip(rows, self.begins, self.ends)
        return rows, owners

    def relevant(self, step: int, clock: Clock | None = None) -> tuple[Secret, ...]:
        """The secrets that are hidden at a step (the paper's P_t)."""
        owners = self.occurrences(clock, step, step)[1]
        return tuple(self.secrets[at] for at in sorted(set(owners.tolist())))

    def dominates(self, other: Specification, step: int, clock: Clock | None = None) -> bool:
        """Whether some secret relevant at the step dominates all that the other has relevant there."""
        theirs = other.relevant(step, clock)
        mine = self.relevant(step, clock)
        return not theirs or any(all(secret.dominates(each) for each in theirs) for secret in mine)

    def uncovered(self, clock: Clock | None, last: int | None) -> int | None:
        """The first step, while the specification is in force, at which nothing is hidden; None if there is none.

        On an endless stream (last=None) only a secret that is always hidden, or hidden around the clock on
        every day, covers all steps.
        """
        if any(secret.endless for secret in self.secrets):
            return None
        end = min(self.ends, last or FOREVER)
        reach, horizon = self.begins - 1, min(end, self.begins + 2**21)
        rows = self.occurrences(clock, self.begins, horizon)[0]
        for first, final in rows[np.argsort(rows[:, 0], kind="stable")].tolist():
            if first > reach + 1:
                break
            reach = max(reach, final)
        return None if reach >= end else reach + 1

    def describe(self) -> dict[str, Any]:
        """Identify the specification exactly, as JSON."""
        described: dict[str, Any] = {
            "label": self.label,
            "secrets": [secret.describe() for secret in self.secrets],
        }
        if self.begins > 1:
            described["begins"] = self.begins
        if self.ends < FOREVER:
            described["ends"] = self.ends
        return described
