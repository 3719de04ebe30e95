"""Configurations of any mechanism of the catalogue for a given policy and shape of stream: no list to edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism
from tidegate.plan.predict import choices
from tidegate.policy import WEvent
from tidegate.queries import Hierarchy

# What the benchmark cannot judge although it would run. Everything else is in it by being in the catalogue.
ELSEWHERE = {
    "ClippedSum": "sums single bounded observations, not counts of steps, and is in the figures of Perrier et al.",
    **dict.fromkeys(
        ("ClippedAverage", "ClippedDecay", "ClippedHistogram"),
        "release other statistics of such observations",
    ),
}
WIDEST_HIERARCHY = 64  # consistent answers of many hundred nodes take minutes a run


def configured(
    kind: type[Mechanism], policy: WEvent, columns: int, season: int | None, steps: int
) -> list[Mechanism]:
    """The public choices of a mechanism that a plan compares, or its defaults; none where it has no proof for the policy.

    Mechanisms that need to know the end of the stream get it, and those that need a hierarchy a binary tree over the
    columns.

    Examples
    --------
    >>> from tidegate.mechanisms import BinaryTree, Sample, Swellfish
    >>> policy = WEvent(epsilon="1", w=24)
    >>> [choice.every for choice in configured(Sample, policy, 1, None, 100)]
    [3, 6, 12, 24]
    >>> configured(BinaryTree, policy, 1, None, 100)[0].horizon
    100
    >>> configured(Swellfish, policy, 1, None, 100)
    []
    """
    if kind.__name__ in ELSEWHERE:
        return []
    found = choices(kind, policy, columns, season)
    if found:
        return found
    for attempt in _attempts(kind, policy, columns, steps):
        try:
            return [attempt()]
        except (TidegateError, TypeError):  # another policy, or a parameter that it does not have
            continue
    return []


def _attempts(
    kind: type[Mechanism], policy: WEvent, columns: int, steps: int
) -> Iterator[Callable[[], Mechanism]]:
    yield lambda: kind(policy, columns=columns, horizon=steps)  # type: ignore[call-arg]
    if 1 < columns <= WIDEST_HIERARCHY:
        tree = Hierarchy.balanced(columns)  # of counts, which are not negative
        yield lambda: kind(policy, hierarchy=tree, nonnegative=True)  # type: ignore[call-arg]
        yield lambda: kind(policy, hierarchy=tree)  # type: ignore[call-arg]
    yield lambda: kind(policy, columns=columns)
