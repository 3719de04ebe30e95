"""No sequence of charges, refusals, batches, groups, snapshots and reopenings leaves a window over the budget."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tidegate.errors import BudgetExceeded, LedgerError
from tidegate.ledger import Group, MemoryLedger
from tidegate.ledger.kernels import (
    ACCEPTED,
    BEYOND,
    REFUSED,
    account_charge,
    account_charge_group,
    account_extend_group,
)
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


def rehearsed(ledger, first, units, groups, extended):
    """The same charges by a loop that asks the kernels, as a mechanism's own does."""
    with ledger.begin_batch(len(units), len(groups)) as batch:
        arrays = batch.entries, batch.state
        answers = [account_extend_group(*arrays, *row) for row in extended]
        waiting = list(groups)
        for step, amount in enumerate(units, start=first):
            while waiting and waiting[0][0] == step:
                answers.append(account_charge_group(*arrays, *waiting.pop(0)))
            answers.append(account_charge(*arrays, step, amount))
        assert set(answers) <= {ACCEPTED, REFUSED, BEYOND}
        try:
            batch.record(first, units, groups=groups, extended=extended)
        except (BudgetExceeded, LedgerError):
            assert set(answers) & {REFUSED, BEYOND}
            raise
        assert set(answers) == {ACCEPTED}


def machine(oracle, policy, units, schedule, durable):
    """A state machine that drives one ledger and the oracle side by side."""

    class Machine(RuleBasedStateMachine):
        @initialize()
        def open(self):
            self.folder = Path(tempfile.mkdtemp()) if durable else None
            self.ledger = self.fresh()
            self.truth = oracle(policy, self.ledger.unit)
            self.exact = self.ledger.rule.adds or schedule == "public"
            self.groups = []

        def fresh(self):
            if durable:
                return SQLiteLedger(self.folder / "account.db", policy, units, schedule)
            return MemoryLedger(policy, units, schedule)

        def attempt(self, charges, act):
            """Act, and compare with the oracle: no overspend is granted and, where sums are exact, none refused."""
            before = self.ledger.step, self.ledger.spent(), self.ledger.rows
            fits = self.truth.holds(charges)
            closed = policy.window is not None and charges[0][0] <= before[0] - policy.window
            beyond = policy.horizon is not None and max(last for _, last, _ in charges) > policy.horizon
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

        @rule(ahead=st.integers(-5, 5), length=st.integers(0, 9), units=st.integers(0, 3))
        def charge_group(self, ahead, length, units):
            first = max(1, self.ledger.step + ahead)
            charge = (first, first + length, units)
            rows = self.ledger.rows
            self.attempt([charge], lambda: self.ledger.charge_group(*charge))
            if self.ledger.rows > rows and units:
                self.groups.append(charge)

        def near(self, group):
            """Whether a group meets the present window, or did so just before (and is kept)."""
            now, window = self.ledger.step, policy.window
            return window is None or group[1] >= max(now - window, now - 2 * window + 2)

        @rule(which=st.integers(0, 3), more=st.integers(1, 7))
        def extend_group(self, which, more):
            """A group that meets the present window, or enters it again, reaches on; any other is refused."""
            if not self.groups:
                return
            group = self.groups[which % len(self.groups)]
            first, last, units = group
            before = self.ledger.step, self.ledger.spent(), self.ledger.rows
            further = (first, last + more, units)
            others = list(self.truth.charges)
            others.remove(group)
            kept, self.truth.charges = self.truth.charges, others
            fits = self.truth.holds([further])
            over = not self.near(group)
            beyond = policy.horizon is not None and last + more > policy.horizon
            try:
                assert self.ledger.extend_group(Group(*group), last + more) == further
            except (BudgetExceeded, LedgerError) as error:
                self.truth.charges = kept
                refused = isinstance(error, BudgetExceeded)
                assert (not fits or not self.exact) if refused else (over or beyond)
                assert (self.ledger.step, self.ledger.spent(), self.ledger.rows) == before
            else:
                assert fits
                assert not over
                self.truth.charges.append(further)
                self.groups.remove(group)
                self.groups.append(further)
                assert self.ledger.step == max(before[0], last + more)

        @rule(
            ahead=st.integers(-2, 3),
            units=st.lists(st.integers(0, 1), min_size=1, max_size=12),
            places=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 6), st.integers(0, 2)), max_size=3),
            more=st.integers(0, 9),
            compiled=st.booleans(),
        )
        def batch_with_groups(self, ahead, units, places, more, compiled):
            """Steps, groups that begin among them and one that reaches on: all or none."""
            first = max(1, self.ledger.step + (max(ahead, 1) if compiled else ahead))
            begun = sorted((first + at, first + at + more, n) for at, more, n in places if at < len(units))
            grown = list(filter(self.near, self.groups))[-1:] if more else []
            extended = [(*group, group[1] + more) for group in grown]
            kept = list(self.truth.charges)
            for group in grown:
                self.truth.charges.remove(group)
            after = [(begin, further, size) for begin, _, size, further in extended]
            charges = [(first + n, first + n, amount) for n, amount in enumerate(units)]

            def act():
                if compiled and self.ledger.rule.adds:
                    rehearsed(self.ledger, first, units, begun, extended)
                else:
                    self.ledger.charge_batch(first, units, groups=begun, extended=extended)

            rows = self.ledger.rows
            self.attempt([*charges, *begun, *after], act)
            if self.ledger.rows == rows:
                self.truth.charges = kept
                return
            self.groups = [group for group in self.groups if group not in grown] + after
            self.groups += [group for group in begun if group[2]]

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
