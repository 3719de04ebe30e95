"""Two tiers of tests: `make test` leaves out what is marked `slow`, `make test-all` runs everything."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Parameters that belong to the full tier only."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def thinned(parameters: Iterable[Any], keep: int, offset: int = 0) -> list[Any]:
    """Parameters of which the quick tier has the first of every `keep`, counted from an offset.

    Examples
    --------
    >>> [bool(each.marks) for each in thinned("abcdef", 3)]
    [False, True, True, False, True, True]
    """
    return [
        _as_parameter(each, in_quick=(number - offset) % keep == 0) for number, each in enumerate(parameters)
    ]


def combined(keep: int, *choices: Iterable[Any]) -> list[Any]:
    """Every combination of several choices, of which the quick tier has the first of every `keep`.

    Where `keep` divides no number of choices, each choice is in the quick tier as soon as there are enough combinations.

    Examples
    --------
    >>> [(*each.values, bool(each.marks)) for each in combined(3, "ab", "xy")]
    [('a', 'x', False), ('a', 'y', True), ('b', 'x', True), ('b', 'y', False)]
    """
    return thinned([pytest.param(*each) for each in product(*choices)], keep)


def rotated(examples: dict[str, list[Any]], turn: int) -> list[Any]:
    """Examples by mechanism, each named `mechanism-number`: one of each mechanism is in the quick tier.

    Which one depends on the turn: checks that count their turns up have every example in one of them.

    Examples
    --------
    >>> found = rotated({"A": ["a", "b"], "B": ["c"]}, turn=1)
    >>> [(each.id, bool(each.marks)) for each in found]
    [('A-0', True), ('A-1', False), ('B-0', False)]
    """
    return [
        _as_parameter(pytest.param(example, id=f"{name}-{number}"), in_quick=number == turn % len(own))
        for name, own in examples.items()
        for number, example in enumerate(own)
    ]


def _as_parameter(each: Any, *, in_quick: bool) -> Any:
    """One parameter, with the mark where the quick tier leaves it out."""
    found = each if isinstance(each, type(pytest.param())) else pytest.param(each)
    return (
        found
        if in_quick
        else pytest.param(*found.values, id=found.id, marks=[*found.marks, pytest.mark.slow])
    )
