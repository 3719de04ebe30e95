"""Swellfish: the paper's literal definition of neighbours, and steps at which nothing is said to be hidden."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from tests.audit.zoo.animal import PRINTED, Animal

from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Configured
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.policy import Secret, Specification
from tidegate.policy import Swellfish as SwellfishPolicy


@dataclass(frozen=True, kw_only=True)
class Literal(SwellfishPolicy):
    """Definitions 7 and 13 read literally: neighbours may differ in one occurrence of EVERY event at once.

    For small specifications of events of one step only: all placements are tried.
    """

    def distance(self, one: Counts, other: Counts) -> int:
        """0, 1 for literal neighbours, or refused."""
        difference = np.abs(np.asarray(one) - np.asarray(other)).sum(axis=1)
        if not difference.any():
            return 0
        for specification in self.specifications:
            for sums in self._sums(specification, len(difference)):
                if np.all(difference <= sums):
                    return 1
        raise InvalidInput(
            "the streams differ by more than one occurrence of every event; change fewer steps."
        )

    def extreme_neighbour(self, stream: Counts, choose: Callable[[int], int]) -> Counts:
        """One occurrence of every event."""
        changed = np.array(stream, dtype=np.int64)
        specification = self.specifications[choose(len(self.specifications))]
        every = list(self._sums(specification, len(changed)))
        changed[:, choose(changed.shape[1])] += (1 - 2 * choose(2)) * every[choose(len(every))]
        return changed

    def _sums(self, specification: Specification, steps: int) -> list[Any]:
        """How much all events together change each step, for every placement of each."""
        assert all(secret.duration == 1 for secret in specification.secrets)
        rows, owners = specification.occurrences(self.clock, 1, steps)
        places: list[list[int]] = [[] for _ in specification.secrets]
        for (begin, end), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            places[owner] += range(max(begin, 1), min(end, steps) + 1)
        sums = []
        for chosen in product(*(each or [0] for each in places)):
            total = np.zeros(steps, dtype=np.int64)
            for step, secret in zip(chosen, specification.secrets, strict=True):
                if step:
                    total[step - 1] += int(Fraction(secret.height))
            sums.append(total)
        return sums


class NothingHidden(Swellfish):
    """A step at which no secret but the baseline is relevant has no noise: λ = 0, as printed."""

    def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
        """Release such steps as they are."""
        output = super().advance(state, rows, first, noise)
        scales = self.scales(first, first + len(rows) - 1)
        bare = scales == scales.min()
        output.values[bare] = rows[bare]
        return output


def animals() -> list[Animal]:
    """All of them."""
    hours = tuple(Secret(1, 1, [(step, step)], 1, f"use at {step}") for step in range(1, 6))
    home = Secret(1, 1, "always", 1, "somebody is at home")
    house = Specification((*hours, home), "house")
    oven = Specification((Secret(3, 1, [(1, 2)], 1, "oven"), home), "oven")

    def literal() -> Configured:
        mechanism = Swellfish(SwellfishPolicy(specifications=(house,)))
        return Configured(mechanism, Literal(specifications=(house,)))

    return [
        Animal("Swellfish, every event at once", "printed: Definition 13 read literally, five events and a baseline",
               literal, 3.0, steps=5, seconds=40, kind=PRINTED),
        Animal("Swellfish, nothing to hide", "printed: no relevant secret, no noise",
               lambda: NothingHidden(SwellfishPolicy(specifications=(oven,))), math.inf, steps=4),
    ]  # fmt: skip
