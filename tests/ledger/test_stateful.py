"""No sequence of charges, refusals, batches, spans, snapshots and reopenings leaves a window over the budget."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tidegate.errors import BudgetExceeded, LedgerError
from tidegate.ledger import MemoryLedger
from tidegate.ledger.replay import verify_file
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.policy import Event, User, WEvent

POLICIES = {
    "event": (Event(epsilon="1/3"), 4, "adaptive"),
    "one step": (WEvent(epsilon="1", w=1), 5, "adaptive"),
    "window": (WEvent(epsilon="0.7", w=4), 7, "adaptive"),
    "enormous": (WEvent(epsilon="1", w=2**40), 12, "adaptive"),
    "user": (User(epsilon="1", horizon=40), 12, "adaptive"),
    "concentrated": (WEvent(rho="1/2", w=3), 6, "adaptive"),
    "approximate": (WEvent(epsilon="1", delta="0.01", w=5), 9, "adaptive"),
    "approximate user": (User(epsilon="1", delta="0.01", horizon=40), 9, "adaptive"),
    "public": (WEvent(epsilon="1", delta="0.01", w=5), 9, "public"),
    "public user": (User(epsilon="1", delta="0.01", horizon=40), 9, "public"),
}


def machine(oracle, policy, units, schedule, durable):
    """A state machine that drives one ledger and the oracle side by side."""

    class Machine(RuleBasedStateMachine):
        @initialize()
        def open(self):
            self.folder = Path(tempfile.mkdtemp()) if durable else None
            self.ledger = self.fresh()
            self.truth = oracle(policy, self.ledger.unit)
            self.exact = self.ledger.rule.adds or schedule == "public"

        def fresh(self):
            if durable:
                return SQLiteLedger(self.folder / "account.db", policy, units, schedule)
            return MemoryLedger(policy, units, schedule)

        def attempt(self, charges, act):
            """Act, and compare with the oracle: no overspend is granted and, where sums are exact, none refused."""
            before = self.ledger.step, self.ledger.spent(), self.ledger.rows
            fits = self.truth.holds(charges)
            closed = policy.window is not None and charges[0][0] <= before[0] - policy.window
            beyond = policy.horizon is not None and charges[-1][1] > policy.horizon
            try:
                act()
            except BudgetExceeded:
                assert not fits or not self.exact
                assert (self.ledger.step, self.ledger.spent(), self.ledger.rows) == before
            except LedgerError:
                assert closed or beyond
                assert (self.ledger.step, self.ledger.spent(), self.ledger.rows) == before
            else:
                assert fits
                assert not closed
                assert not beyond
                self.truth.charges.extend(charge for charge in charges if charge[2])

        @rule(ahead=st.integers(-6, 6), units=st.integers(0, 4))
        def charge(self, ahead, units):
            step = max(1, self.ledger.step + ahead)
            self.attempt([(step, step, units)], lambda: self.ledger.charge(step, units))

        @rule(groups=st.lists(st.integers(0, 3), max_size=3), levels=st.lists(st.integers(0, 2), max_size=2))
        def charge_parts(self, groups, levels):
            step = self.ledger.step + 1
            sizes = [max(groups, default=0), *levels]
            parts = [{f"part {n}": units for n, units in enumerate(part)} for part in (groups, levels)]
            self.attempt(
                [(step, step, size) for size in sizes],
                lambda: self.ledger.charge(step, groups=parts[0], levels=parts[1], scope="parts"),
            )

        @rule(ahead=st.integers(-4, 3), units=st.lists(st.integers(0, 3), min_size=1, max_size=12))
        def charge_batch(self, ahead, units):
            first = max(1, self.ledger.step + ahead)
            charges = [(first + n, first + n, amount) for n, amount in enumerate(units)]
            self.attempt(charges, lambda: self.ledger.charge_batch(first, units))

        @rule(ahead=st.integers(0, 5), length=st.integers(0, 9), units=st.integers(0, 3))
        def charge_span(self, ahead, length, units):
            first = max(1, self.ledger.step + ahead)
            charge = (first, first + length, units)
            self.attempt([charge], lambda: self.ledger.charge_span(*charge))

        @rule(steps=st.integers(1, 5))
        def failed_transaction(self, steps):
            before = self.ledger.step, self.ledger.spent(), self.ledger.rows

            def fail():
                with self.ledger.transaction():
                    for step in range(self.ledger.step + 1, self.ledger.step + steps):
                        self.ledger.charge(step, 1)
                    raise ZeroDivisionError

            with pytest.raises((ZeroDivisionError, BudgetExceeded, LedgerError)):
                fail()
            assert (self.ledger.step, self.ledger.spent(), self.ledger.rows) == before

        @rule()
        def again(self):
            """A snapshot restored into a new ledger, or the file closed and opened again."""
            step, spent, rows = self.ledger.step, self.ledger.spent(), self.ledger.rows
            if durable:
                self.ledger.close()
                self.ledger = self.fresh()
            else:
                saved = self.ledger.snapshot()
                self.ledger = self.fresh()
                self.ledger.restore(saved)
            assert (self.ledger.step, self.ledger.spent(), self.ledger.rows) == (step, spent, rows)

        @invariant()
        def every_window_keeps_the_budget(self):
            if hasattr(self, "truth"):
                assert self.truth.holds()
                assert self.ledger._account.consistent()
                if self.exact:
                    last, window = self.ledger.step, policy.window or 10**9
                    assert self.ledger.spent() == self.truth.spent(last - window + 1, last)

        def teardown(self):
            if hasattr(self, "ledger"):
                assert self.ledger.verify().ok
                self.ledger.close()
                if durable:
                    assert verify_file(self.folder / "account.db").ok
                    shutil.rmtree(self.folder)

    return Machine


@pytest.mark.parametrize("name", POLICIES)
def test_memory_ledger_never_overspends(oracle, name):
    """Every policy, in memory, against fractions."""
    run_state_machine_as_test(
        machine(oracle, *POLICIES[name], durable=False),
        settings=settings(max_examples=40, stateful_step_count=25),
    )


@pytest.mark.parametrize("name", ["window", "user", "approximate", "public"])
def test_sqlite_ledger_never_overspends(oracle, name):
    """Every rule, on disk, with reopenings and a full replay at the end."""
    run_state_machine_as_test(
        machine(oracle, *POLICIES[name], durable=True),
        settings=settings(max_examples=8, stateful_step_count=15),
    )
