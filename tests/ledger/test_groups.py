"""Groups of steps: charged once in every window that meets them, extended, late, in batches and from compiled loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tidegate.errors import BudgetExceeded, InvalidInput, InvalidParameter, LedgerError, LedgerMismatch
from tidegate.ledger import Group, MemoryLedger
from tidegate.ledger.kernels import account_charge_group, account_extend_group
from tidegate.ledger.replay import verify_file
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.policy import Secret, Specification, Swellfish, User, WEvent

POLICY = WEvent(epsilon="1", w=4)


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    """An empty ledger of four units, in memory or on disk."""
    if request.param == "memory":
        yield MemoryLedger(POLICY, 4)
        return
    with SQLiteLedger(tmp_path / "account.db", POLICY, 4) as opened:
        yield opened
    assert verify_file(tmp_path / "account.db").ok


def test_group_counts_once_in_every_window_that_meets_it(ledger):
    """Its steps cost nothing more; after its last step it stays for the rest of a window."""
    assert ledger.charge_group(2, 5, 3) == Group(2, 5, 3)
    ledger.charge_batch(2, [0, 0, 0, 0])
    assert ledger.spent() == Fraction(3, 4)
    with pytest.raises(BudgetExceeded):
        ledger.charge(8, 2)
    ledger.charge(9, 4)
    assert ledger.spent(6, 9) == 1


def test_extended_group_goes_on_counting_once(ledger):
    """A group that grows with every step is in every window for its units, as one row a step."""
    group, before = ledger.charge_group(1, 1, 4), ledger.rows
    for step in range(2, 12):
        group = ledger.extend_group(group, step)
        assert (ledger.step, ledger.spent()) == (step, 1)
        with pytest.raises(BudgetExceeded):
            ledger.charge(step, 1)
    assert group == Group(1, 11, 4)
    assert ledger.rows == before + 10
    assert ledger.spent(8, 11) == 1
    assert ledger.verify().steps == 11


def test_extension_into_a_window_that_others_have_filled_is_refused(ledger):
    """A group that has left the window enters it again only if its units fit, and nothing changes if not."""
    group = ledger.charge_group(1, 2, 2)
    ledger.charge(6, 3)
    before = ledger.spent(), ledger.rows, ledger.step
    with pytest.raises(BudgetExceeded):
        ledger.extend_group(group, 7)
    assert (ledger.spent(), ledger.rows, ledger.step) == before
    ledger.charge(7, 0)
    with pytest.raises(LedgerMismatch, match="charge a new group"):
        ledger.extend_group(group, 8)
    with pytest.raises(LedgerMismatch, match="no such group"):
        ledger.extend_group(Group(6, 7, 1), 8)
    with pytest.raises(InvalidParameter):
        ledger.extend_group(Group(6, 9, 1), 8)


def test_late_group_is_checked_in_windows_that_have_passed(ledger):
    """Two charges six steps apart share no window; a late group between them meets the windows of both."""
    ledger.charge(1, 3)
    ledger.charge(4, 1)
    ledger.charge(6, 2)
    with pytest.raises(BudgetExceeded):
        ledger.charge_group(3, 3, 1)  # with steps 1 and 4 it would be in one window: 3 + 1 + 1
    ledger.charge_group(5, 9, 1)
    assert ledger.spent(3, 6) == 1
    with pytest.raises(LedgerError, match="cannot be charged any more"):
        ledger.charge_group(2, 9, 1)


def test_batch_with_groups_is_charged_as_a_whole_or_not_at_all(ledger):
    """Groups that begin in a batch, and one that reaches on, in one row."""
    group = ledger.charge_group(1, 2, 1)
    rows = ledger.rows
    ledger.charge_batch(2, [0, 1, 0, 0, 0, 0], groups=[[3, 5, 1], [6, 9, 1]], extended=[[*group, 6]])
    assert (ledger.rows, ledger.step, ledger.spent()) == (rows + 1, 7, Fraction(3, 4))
    before = ledger.spent(), ledger.rows, ledger.step
    with pytest.raises(BudgetExceeded):
        ledger.charge_batch(8, [0, 0, 0, 0], groups=[[8, 9, 1], [9, 11, 2]])
    assert (ledger.spent(), ledger.rows, ledger.step) == before
    with pytest.raises(InvalidInput, match="begin at its steps"):
        ledger.charge_batch(8, [0, 0], groups=[[10, 11, 1]])
    with pytest.raises(InvalidInput, match="3 columns"):
        ledger.charge_batch(8, [0, 0], groups=[[8, 9]])


def test_rehearsed_groups_are_taken_back_unless_recorded(ledger):
    """A compiled loop that leaves without a record has charged nothing."""
    with ledger.begin_batch(4, groups=20) as batch:
        answers = [
            account_charge_group(batch.entries, batch.state, 4 * n + 1, 4 * n + 2, 1) for n in range(20)
        ]
        assert account_extend_group(batch.entries, batch.state, 77, 78, 1, 80) == 0
    assert answers == [0] * 20
    assert (ledger.spent(), ledger.step, ledger.rows) == (0, 0, 0)


def test_long_batch_keeps_no_more_groups_than_windows_reach():
    """The account stays small, whatever the stream's length."""
    ledger = MemoryLedger(POLICY, 4)
    for first in range(1, 40_000, 10_000):
        begins = np.arange(first, first + 10_000, 2)
        groups = np.column_stack([begins, begins + 1, np.ones_like(begins)])
        ledger.charge_batch(first, np.broadcast_to(np.int64(0), 10_000), groups=groups)
        assert len(ledger._account.state) < 100
    for step in range(40_001, 41_000, 2):
        ledger.charge_group(step, step + 1, 1)
    assert len(ledger._account.state) < 100
    assert ledger.verify().spent == Fraction(3, 4)


def test_one_group_for_a_user():
    """Where everything adds up a group counts once, however far it reaches; the horizon holds."""
    ledger = MemoryLedger(User(epsilon="1", horizon=50), 3)
    group = ledger.charge_group(1, 1, 3)
    group = ledger.extend_group(group, 50)
    assert (ledger.step, ledger.spent()) == (50, 1)
    with pytest.raises(LedgerError, match="ends at step 50"):
        ledger.extend_group(group, 51)


def test_groups_have_no_meaning_under_swellfish():
    """A placement may meet a part of a group."""
    ledger = MemoryLedger(
        Swellfish(specifications=[Specification((Secret(1, 2, "always", 1, "home"),), "house")]), 4
    )
    with pytest.raises(LedgerError, match="under Swellfish"):
        ledger.charge_batch(1, [0], groups=[[1, 2, 1]])


@pytest.mark.parametrize("row", [1, 2, 3, 4])
@pytest.mark.parametrize("column", ["kind", "first", "last", "units", "detail"])
def test_edited_rows_of_groups_are_named(tmp_path, row, column):
    """Whichever column of a group's row is edited, verify names that row."""
    import sqlite3

    path = tmp_path / "account.db"
    with SQLiteLedger(path, POLICY, 4) as ledger:
        group = ledger.charge_group(1, 2, 1)
        ledger.extend_group(group, 3)
        ledger.charge_group(2, 4, 1)
        ledger.charge_batch(4, [0, 0, 0], groups=[[5, 6, 1]])
    assert verify_file(path).ok
    values = {"kind": "'step'", "detail": "x'5200'"}
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"UPDATE charges SET {column} = {values.get(column, column + ' + 1')} WHERE row = {row}"
        )
    connection.close()
    assert verify_file(path).bad_row == row


def test_a_single_step_of_a_batch_is_charged_group_by_group(ledger):
    """Two groups that reach on and one that begins, as a batch and one by one: the same account, and nothing for free."""
    first, second = ledger.charge_group(1, 1, 1), ledger.charge_group(1, 1, 2)
    with ledger.begin_batch(1, groups=8) as batch:
        for group in (first, second):
            assert account_extend_group(*batch.account, *group, 2) == 0
        assert account_charge_group(*batch.account, 2, 2, 1) == 0
        batch.record_one(2, 0, [Group(2, 2, 1)], [first, second])
    other = MemoryLedger(POLICY, 4)
    other.charge_group(1, 1, 1)
    other.charge_group(1, 1, 2)
    other.charge_batch(2, [0], groups=[[2, 2, 1]], extended=[[*first, 2], [*second, 2]])
    for found in (ledger, other):
        assert (found.step, found.spent(), found.spent(2, 5)) == (2, 1, 1)
        with pytest.raises(BudgetExceeded):
            found.charge(5, 1)
        found.charge(6, 4)
        assert found.verify().ok
