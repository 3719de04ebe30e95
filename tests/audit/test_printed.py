"""Mechanisms as papers print them, which lose more than they claim: no session takes one."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from tests.audit import zoo

from experiments import printed
from experiments.printed.publishing import PrintedPruning, SideBySide
from tidegate.audit.direct import Printed
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Fast, RescueDP
from tidegate.policy import Policy, User, WEvent
from tidegate.structures.hierarchy import Hierarchy


def kinds(kind: type) -> list[type]:
    """All that are derived from a class."""
    return [each for one in kind.__subclasses__() for each in (one, *kinds(one))]


@pytest.mark.parametrize("policy", [WEvent(epsilon="1", window=6), User(epsilon="1", horizon=6)])
@pytest.mark.parametrize("kind", [Fast, RescueDP])
def test_sample_times_of_each_column_are_refused(kind: type, policy: Policy) -> None:
    """No account holds what columns with times of their own lose."""
    with pytest.raises(InvalidParameter, match="keeps its promise"):
        Session(SideBySide(((0,), (1,)), (kind(policy), kind(policy))))


def test_the_printed_test_of_pruning_is_refused() -> None:
    """It is not private for four levels or more."""
    tree = Hierarchy.balanced(8)
    with pytest.raises(InvalidParameter, match="keeps its promise"):
        Session(PrintedPruning(WEvent(epsilon="1", window=6), hierarchy=tree))


def test_no_printed_mechanism_has_an_account() -> None:
    """Whatever else it takes over from a sound one."""
    for folder in (printed, zoo):
        for module in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
            importlib.import_module(module.name)
    found = kinds(Printed)
    assert len(found) >= 4
    assert [kind.__name__ for kind in found if kind.account is not Printed.account] == []
