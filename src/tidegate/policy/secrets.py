"""The data model of Swellfish specifications: secrets with an event, hiding intervals and a level."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive, show, whole


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
        Where it is hidden: pairs (first step, last step), each at least as long as the event.
    epsilon
        The level of protection.
    label
        A name for people.
    """

    height: ExactLike
    duration: int
    intervals: tuple[tuple[int, int], ...]
    epsilon: ExactLike
    label: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "height", positive("height", self.height))
        put(self, "epsilon", positive("epsilon", self.epsilon))
        put(self, "duration", whole("duration", self.duration))
        put(self, "intervals", tuple((int(first), int(last)) for first, last in self.intervals))
        for first, last in self.intervals:
            if last - first + 1 < self.duration:
                raise InvalidParameter(
                    "intervals",
                    (first, last),
                    f"at least as long as the event's duration of {self.duration} steps",
                    "widen the hiding interval or shorten the event",
                )

    def describe(self) -> dict[str, Any]:
        """Identify the secret exactly, as JSON."""
        return {
            "height": show(Fraction(self.height)),
            "duration": self.duration,
            "intervals": [list(interval) for interval in self.intervals],
            "epsilon": show(Fraction(self.epsilon)),
            "label": self.label,
        }


@dataclass(frozen=True)
class Specification:
    """The secrets of one household, patient or device."""

    secrets: tuple[Secret, ...]
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", tuple(self.secrets))
        if not self.secrets:
            raise InvalidParameter("secrets", (), "at least one Secret", "declare a baseline secret")

    def describe(self) -> dict[str, Any]:
        """Identify the specification exactly, as JSON."""
        return {"label": self.label, "secrets": [secret.describe() for secret in self.secrets]}
