"""Specifications: what one household, patient or device wants hidden."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.clock.calendar_rules import Clock
from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.policy.secrets import FOREVER, Secret

Integers = npt.NDArray[np.int64]


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

    Examples
    --------
    >>> from tidegate.policy import Secret
    >>> away = Secret(1, 1, "always", 1, "somebody is at home")
    >>> len(Specification((away,), label="flat 3").secrets)
    1
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
        rows, owners = self._absolute
        met = (rows[:, 1] >= first) & (rows[:, 0] <= last)
        if not met.all():
            rows, owners = rows[met], owners[met]
        recurring = self._recurring
        if recurring:
            parts = [self.secrets[at].recurrences(clock, first, last) for at in recurring]
            rows = np.concatenate([rows, *parts])
            owners = np.concatenate([owners, np.repeat(recurring, [len(part) for part in parts])])
        if self.begins > 1 or self.ends < FOREVER:
            rows = np.clip(rows, self.begins, self.ends)
        return rows, owners

    @cached_property
    def _recurring(self) -> list[int]:
        return [at for at, secret in enumerate(self.secrets) if secret.recurring]

    @cached_property
    def _absolute(self) -> tuple[Integers, Integers]:
        """The intervals of all secrets, and whose they are: one array is quicker than thousands."""
        parts = [secret.intervals.rows for secret in self.secrets]
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return np.concatenate(parts), owners

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
