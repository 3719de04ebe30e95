"""Budgets and contributions of any size: refused in public before a word of noise is drawn, or released. Never a halt."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest

import tidegate as tg
from every_mechanism import subjects
from tidegate.core.errors import SessionClosed
from tidegate.core.mechanism import SharesBudget
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.policy.budget import LARGEST_BUDGET, LARGEST_CHANGE
from tidegate.testing.trials import Subject

STEPS = 3
TINY = Fraction(1, 10**400)
CHANGED: dict[str, dict[str, Any]] = {
    "large": {"budget": LARGEST_BUDGET},
    "small": {"budget": Fraction(1, LARGEST_BUDGET)},
    "tiny": {"budget": TINY},
    "much": {"max_change": LARGEST_CHANGE},
    "little": {"max_change": TINY},
    "much and small": {"max_change": LARGEST_CHANGE, "budget": Fraction(1, LARGEST_BUDGET)},
    "little and large": {"max_change": TINY, "budget": LARGEST_BUDGET},
}


def one_of_each() -> dict[str, Subject]:
    """One example of every mechanism with every kind of budget; what is made of other mechanisms has their policy."""
    found: dict[tuple[Any, ...], Subject] = {}
    for subject in subjects():
        mechanism, policy = subject.mechanism, subject.mechanism.policy
        own = any(each.name == "policy" and each.init for each in fields(mechanism))
        if own or isinstance(mechanism, SharesBudget):
            found.setdefault((type(mechanism), policy.rho is None, policy.delta != 0), subject)
    return {subject.name: subject for subject in found.values()}


def with_policy(mechanism: Any, changes: dict[str, Any]) -> Any:
    """The same mechanism with another budget or contribution."""
    given = dict(changes)
    if "budget" in given:
        given["epsilon" if mechanism.policy.rho is None else "rho"] = given.pop("budget")
    policy = replace(mechanism.policy, **given)
    made = (
        mechanism.with_policy(policy)
        if isinstance(mechanism, SharesBudget)
        else replace(mechanism, policy=policy)
    )
    assert made.policy == policy
    return made


SUBJECTS = one_of_each()


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_budget_is_refused_in_public_or_released(name: str) -> None:
    """What is too large or too small for the sampler is refused by a sentence, and never ends in a halt."""
    subject = SUBJECTS[name]
    for changes in CHANGED.values():
        try:
            session = Session(with_policy(subject.mechanism, changes))
        except TidegateError:
            continue
        try:
            session.push_batch(subject.rows(STEPS))
        except SessionClosed as error:
            raise AssertionError((name, changes)) from error
        except TidegateError:
            assert not session.closed  # refused by what the steps cost


@pytest.mark.parametrize("field", ["epsilon", "rho", "max_change"])
@pytest.mark.parametrize("value", [10**400, "1e400", Fraction(10**400, 3), 2**56 + 1])
def test_what_no_sampler_can_draw_is_no_policy(field: str, value: Any) -> None:
    """The policy of all mechanisms says so."""
    given = {"epsilon": "1", field: value} if field != "rho" else {field: value}
    with pytest.raises(InvalidParameter, match=f"{field} must be at most"):
        tg.WEvent(window=4, **given)


@pytest.mark.parametrize("name", [subject.name for subject in subjects()])
def test_every_mechanism_runs_with_half_of_its_budget(name: str) -> None:
    """Beside another query; or a sentence refuses it."""
    mechanism = next(each.mechanism for each in subjects() if each.name == name)
    try:
        session = Session({"one": mechanism, "two": mechanism}, shares={"one": "1/2", "two": "1/3"})
    except TidegateError:
        assert type(mechanism).__name__ == "Swellfish" or mechanism.requirements
        return
    half = session.scopes["one"].amount[0]
    assert half == Fraction(mechanism.policy.budget.total) / 2
