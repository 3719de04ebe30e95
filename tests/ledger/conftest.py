"""A slow ledger that remembers everything and adds fractions: what the real ones are compared with."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from tidegate.composition import delta_of
from tidegate.policy.budget import Approximate


class Oracle:
    """Every charge ever accepted, as (first, last, size), and windows recomputed from scratch."""

    def __init__(self, policy, unit):
        self.policy = policy
        self.unit = unit
        self.charges = []

    def windows(self, charges):
        """Every window that could be the fullest: those that end where a charge begins."""
        if self.policy.window is None:
            return [charges]
        ends = sorted({first for first, _, _ in charges})
        width = self.policy.window
        return [[charge for charge in charges if charge[0] <= end < charge[1] + width] for end in ends]

    def holds(self, extra=()):
        """Whether every window keeps the budget, with some more charges."""
        budget = self.policy.budget
        for window in self.windows([*self.charges, *extra]):
            sizes = Counter(size for _, _, size in window if size)
            if isinstance(budget, Approximate):
                if delta_of(sizes, self.unit, budget.epsilon) > budget.delta:
                    return False
            elif sum((size * count * self.unit for size, count in sizes.items()), Fraction(0)) > budget.total:
                return False
        return True

    def spent(self, first, last):
        """What the steps first to last were charged."""
        return sum(size for begin, end, size in self.charges if begin <= last and end >= first) * self.unit


@pytest.fixture(scope="session")
def oracle():
    """The class of the slow ledger."""
    return Oracle
