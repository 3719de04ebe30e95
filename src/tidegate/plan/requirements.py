"""Requirements of units in a plan and in comparisons: made-up units of each, and what the strictest for all would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.ingest.requirements import RequirementTable
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.w_event.personal import Personal, Requirement
from tidegate.plan.description import normal
from tidegate.policy import Policy, WEvent

PERSONAL = (
    "PersonalAbsorption",
    "PersonalDistribution",
)  # those that follow requirements; the first by default

Matrix = npt.NDArray[np.int64]


def requirements_of(table: RequirementTable) -> tuple[Requirement, ...]:
    """The requirements of a table, as mechanisms take them.

    Examples
    --------
    >>> from tidegate.ingest.requirements import Promise
    >>> table = RequirementTable((Promise(Fraction(1), 24), Promise(Fraction(1, 4), 48)), ("ann",), (1,), population=4)
    >>> requirements_of(table)[0].describe()
    {'share': '0.25', 'epsilon': '0.25', 'window': 48}
    """
    asked = zip(table.shares[1:], table.promises[1:], strict=True)
    return tuple(Requirement(share, promise.epsilon, promise.window) for share, promise in asked)


def with_requirements(
    kind: type[Personal], policy: Policy, columns: int, requirements: Sequence[Requirement]
) -> Personal:
    """A mechanism that releases so many columns."""
    return kind(policy, columns=columns * (1 + len(requirements)), requirements=tuple(requirements))


def strictest(policy: Policy, requirements: Sequence[Requirement]) -> WEvent:
    """The policy that keeps all requirements for every unit.

    Examples
    --------
    >>> asked = [Requirement("1/4", epsilon="1/5"), Requirement("1/8", window=72)]
    >>> strictest(WEvent(epsilon="1", window=24), asked).describe()["window"]
    72
    """
    if not isinstance(policy, WEvent) or policy.epsilon is None:
        raise InvalidParameter("requirements", "given", "absent unless policy is w-event", "drop them")
    budgets = [Fraction(each.epsilon) for each in requirements if each.epsilon is not None]
    windows = [each.window for each in requirements if each.window is not None]
    return replace(
        policy, epsilon=min([Fraction(policy.epsilon), *budgets]), window=max([policy.window, *windows])
    )


def divided(mechanism: Mechanism, counts: Matrix, run: int = 0) -> Matrix:
    """What is pushed of counts of units (steps × columns): where some have requirements, by chance, as the table says.

    Examples
    --------
    >>> from tidegate.mechanisms import PersonalAbsorption
    >>> asked = (Requirement("1/4", epsilon="1/5"),)
    >>> personal = with_requirements(PersonalAbsorption, WEvent(epsilon="1", window=24), 1, asked)
    >>> divided(personal, np.full((2, 1), 900)).sum(axis=1).tolist()
    [900, 900]
    """
    if not isinstance(mechanism, Personal):
        return counts
    parts, rest, left = [], np.maximum(counts, 0), Fraction(1)
    for number, requirement in enumerate(mechanism.requirements):
        share = float(Fraction(requirement.share) / left)
        scatter = np.sqrt(rest * share * (1 - share)) * normal(f"plan: units {number}", run, *rest.shape)
        part = np.clip(np.rint(rest * share + scatter).astype(np.int64), 0, rest)
        parts.append(part)
        rest, left = rest - part, left - Fraction(requirement.share)
    return np.concatenate([rest, *parts], axis=1)
