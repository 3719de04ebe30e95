"""What discovery will find: how many units a category needs, and what becomes of categories of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.exact import whole
from tidegate.mechanisms.discovery.discover import Discover

FEW = 0.1  # a published category has little behind it with fewer units than this part of the threshold


@dataclass(frozen=True)
class DiscoveryPlan:
    """What to expect at the end of one epoch, where nothing was open before.

    Attributes
    ----------
    needed, surely
        With how many units in an epoch a category opens with probability one half, and with 99 %.
    categories
        How many categories have any units.
    found
        How many categories open on average.
    missing
        The part of all categories that does not open.
    spurious
        The part of open categories with fewer units than a tenth of the threshold.
    error
        The mean absolute error of a count or a sum of an open category; of the sum behind a mean. With Tide at most that.
    lone
        With which probability a category opens that one unit alone has; part of δ pays for it.

    Examples
    --------
    >>> import tidegate as tg
    >>> policy = tg.WEvent(epsilon="2", delta="2e-6", window=168)
    >>> print(plan_discovery(tg.mechanisms.Discover(policy), [400, 90, 45, 10, 1]))  # doctest: +NORMALIZE_WHITESPACE
    A category opens with probability one half where it has 45 units in an epoch, and with 99 % where it has 65. Of 5
    categories 2.5 are found; 49.5% are missing, and 0.0% of those that are found have hardly any units. A count of
    an open category is off by 54.2 on average. One that a single unit has opens with probability 1.8e-07.
    """

    needed: int
    surely: int
    categories: int
    found: float
    missing: float
    spurious: float
    error: float
    lone: float
    aggregate: str = "count"

    def __str__(self) -> str:
        found = (
            f"Of {self.categories:,} categories {self.found:,.1f} are found; "
            f"{self.missing:.1%} are missing, and {self.spurious:.1%} of those that are found have hardly any units. "
        )
        what = {"sum": "sum", "mean": "sum behind the mean"}.get(self.aggregate, "count")
        return (
            f"A category opens with probability one half where it has {self.needed} units in an epoch, and with 99 % "
            f"where it has {self.surely}. {found if self.categories else ''}"
            f"A {what} of an open category is off by {self.error:.3g} on average. One that a single unit has opens with "
            f"probability {self.lone:.2g}."
        )


def plan_discovery(mechanism: Discover, units: Sequence[int]) -> DiscoveryPlan:
    """Predict what one epoch finds, from public guesses of how many units categories have.

    Parameters
    ----------
    mechanism
        The configuration.
    units
        For each category, how many units count for it in an epoch. A unit counts in `categories` of them at most.

    Examples
    --------
    >>> import tidegate as tg
    >>> policy = tg.WEvent(epsilon="2", delta="2e-6", window=168)
    >>> plan_discovery(tg.mechanisms.Discover(policy), [1] * 1000).found < 0.001
    True
    """
    sizes = np.array([whole("units", each, least=0) for each in units], dtype=np.int64)
    distinct, many = np.unique(sizes[sizes > 0], return_counts=True)
    chances = np.array([mechanism.selection.chance(int(size)) for size in distinct])
    found = float(chances @ many) if len(distinct) else 0.0
    few = distinct < FEW * mechanism.selection.threshold
    hollow = float(chances[few] @ many[few]) if len(distinct) else 0.0
    total = int(many.sum())
    return DiscoveryPlan(
        mechanism.units_needed(),
        mechanism.units_needed(0.99),
        total,
        min(found, mechanism.columns),
        1 - min(found, mechanism.columns) / total if total else 0.0,
        hollow / found if found else 0.0,
        mechanism.noise_error or 0.0,
        mechanism.lone,
        mechanism.aggregate,
    )
