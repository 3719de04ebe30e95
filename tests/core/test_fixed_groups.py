"""Column groups of units that stay in one of them: accounts side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidegate.core.charges import Charges
from tidegate.core.errors import AccountRefused, Halted
from tidegate.core.log import MemoryLog
from tidegate.core.parallel_account import ParallelAccount, charges_of_parts
from tidegate.core.session import Session
from tidegate.core.verify import account_from, verify
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import WEvent
from tidegate.releases import Status

W = 6
FIXED = WEvent(epsilon="2", window=W, mobility="fixed")
KINDS = (BudgetAbsorption, BudgetDistribution)
ROWS = np.array([[7 * step % 40, 3 * step, 0, 90 * (step % 17 == 5)] for step in range(1, 61)])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("changed", [{}, {"adjacency": "replace"}, {"horizon": 60}, {"window": 1}], ids=str)
def test_each_group_releases_the_same_however_steps_are_pushed(kind: Any, changed: dict[str, Any]) -> None:
    """In a batch, in odd batches, and with a new session per step; tests/transcripts has what they were."""
    named = {"epsilon": "2", "window": W, "mobility": "fixed", **changed}
    new, log = kind(WEvent(**named), columns=4, groups=((0, 2), (1,), (3,))), MemoryLog()
    with install(FixedEntropy("fixed")):
        expected, session = Session(new).push_batch(ROWS), Session(new)
        ways = {
            "odd": [session.push_batch(ROWS[a:b]) for a, b in ((0, 1), (1, 8), (8, 31), (31, 33), (33, 60))],
            "single": [Session(new, log).push_batch([row]) for row in ROWS],
        }
    for name in ("values", "status", "source", "scale", "units"):
        for way, parts in ways.items():
            found = np.concatenate([getattr(each, name) for each in parts])
            assert np.array_equal(found, getattr(expected, name)), (way, name)
    account = session._queries[0].account
    assert isinstance(account, ParallelAccount)
    assert verify(log.rows()).ok
    if (
        changed.get("window") != 1 and kind is BudgetAbsorption
    ):  # the sum of the most would not fit one account
        spent = np.convolve(expected.units, np.ones(W, dtype=int))
        assert spent.max() > new.units


def test_a_part_that_overspends_is_refused() -> None:
    """Each by itself; rows that are missing, doubled, out of order or not the most of any part are refused."""
    account = ParallelAccount([(8, 3)] * 2, 20)
    account.apply(account.check(charges_of_parts(1, np.array([[8, 1], [0, 7]]))))
    assert [part.remaining() for part in account.parts] == [0, 0]
    account.check(charges_of_parts(4, np.array([[8, 1]])))
    for units in ([[1, 0]], [[0, 1]], [[0, -1]]):
        with pytest.raises(AccountRefused):
            account.check(charges_of_parts(3, np.array(units)))
    good = charges_of_parts(4, np.array([[2, 1], [1, 1]]))
    account.check(good)
    for bad in (
        good._replace(spans=good.spans[:3]),
        good._replace(spans=good.spans[::-1]),
        good._replace(spans=np.concatenate([good.spans, good.spans])),
        good._replace(units=good.units + 1),
        good._replace(spans=good.spans[:0]),
        Charges(2, good.units, good.spans),
    ):
        with pytest.raises(AccountRefused):
            account.check(bad)
    with pytest.raises(AccountRefused, match="horizon"):
        account.check(charges_of_parts(20, np.zeros((2, 2), dtype=np.int64)))


class Fails(BudgetAbsorption):
    """Raises at one step, after its noise was drawn."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Any:
        """Fail where a value is 13."""
        found = super().advance(state, rows, first, noise)
        if self.groups is not None and (rows == 13).any():
            raise ValueError("13")
        return found


def test_a_failure_halts_all_groups() -> None:
    """All that each of them has left is charged; then a window of silence."""
    log, mechanism = MemoryLog(), Fails(FIXED, columns=4, groups=2)
    session = Session(mechanism, log)
    session.push_batch(ROWS[:9])
    with pytest.raises(Halted):
        session.push([1, 13, 1, 1])
    assert verify(log.rows()).ok
    status = Session(mechanism, log).push_batch(ROWS[:10]).status
    assert (status == int(Status.SILENT)).tolist() == [True] * (W - 1) + [False] * (11 - W)
    assert verify(log.rows()).ok


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_steps_that_are_passed_over(kind: Any) -> None:
    """With new sessions in between."""
    log, mechanism = MemoryLog(), kind(FIXED, columns=4, groups=2)
    for place, step in enumerate([1, 2, 3, 5, 9, 10, 30, 31, 32, 33, 34, 35, 36, 90, 1000]):
        session = session if place % 3 else Session(mechanism, log)  # noqa: F821
        session.push(ROWS[place], step=step)
    assert verify(log.rows()).ok
    account = account_from(session._queries[0].account.describe())
    assert isinstance(account, ParallelAccount)
    assert len(account.parts) == 2


def test_a_horizon_is_refused_in_public() -> None:
    """The session stays open."""
    session = Session(
        BudgetAbsorption(WEvent(epsilon="2", window=W, mobility="fixed", horizon=20), columns=4, groups=2)
    )
    session.push_batch(ROWS[:18])
    with pytest.raises(AccountRefused, match="horizon"):
        session.push_batch(ROWS[:3])
    assert len(session.push_batch(ROWS[:2])) == 2
