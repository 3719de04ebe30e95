"""Several queries on one account: shares, steps of their own, amendments, and windows that straddle them."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.errors import BudgetExceeded, InvalidParameter, LedgerError, LedgerMismatch
from tidegate.exact import show
from tidegate.ledger import MemoryLedger, divided
from tidegate.ledger.replay import verify_file
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.mechanisms import Uniform

POLICY = tg.WEvent(epsilon="1", w=4)


class Windows:
    """Every charge ever granted, and every promise ever made, to be looked at window by window."""

    def __init__(self, window, budget):
        self.window, self.charges, self.promises = window, [], [(0, budget)]

    def promise(self, first, last):
        """The smallest budget in force at any of these steps."""
        ends = [since for since, _ in self.promises[1:]] + [10**9]
        pairs = zip(self.promises, ends, strict=True)
        return min(budget for (since, budget), end in pairs if since < end and since < last and end >= first)

    def total(self, first, last):
        """What these steps were charged, each group once."""
        return sum(amount for begin, end, amount in self.charges if begin <= last and end >= first)

    def add(self, charges):
        """Take charges that were granted, and hold them against the promises."""
        self.charges += charges
        for first, last, amount in charges:
            ends = range(first, last + self.window) if self.window else [10**8]
            for end in ends if amount else ():
                begin = max(1, end - self.window + 1) if self.window else 1
                assert self.total(begin, end) <= self.promise(begin, end)


def random_shares(chance):
    """Shares of up to three queries, together at most 1."""
    names = chance.sample(["a", "b", "c", "d"], chance.randint(1, 3))
    parts = [chance.randint(1, 5) for _ in names]
    return {
        name: Fraction(part, sum(parts) + chance.randint(0, 2))
        for name, part in zip(names, parts, strict=True)
    }


def failed_amendment(ledger, shares):
    """A transaction that changes everything, and fails."""
    with ledger.transaction():
        ledger.divide(shares)
        for name in ledger.shares:
            ledger.share(name).charge(ledger.step + 1, 0)
        raise ZeroDivisionError


def story(ledger, chance, actions, again):
    """Charges, refusals, amendments, rollbacks and reopenings, all held against the promises."""
    truth = Windows(ledger.policy.window, Fraction(1))
    granted = 0
    for _ in range(actions):
        what = chance.random()
        if what < 0.12:
            budget = chance.choice([None, Fraction(1, 2), Fraction(2), Fraction(1)])
            ledger.divide(random_shares(chance), budget=budget)
            for name in ledger.shares:
                ledger.share(name).fit(ledger.share(name).policy, chance.choice([1, 2, 3, 4]), "test")
            truth.promises.append((ledger.step, ledger._account.budget))
        elif what < 0.18:
            ledger = again(ledger)
        elif what < 0.25:
            before = ledger.rows, ledger.step, ledger.shares, ledger.spent()
            with pytest.raises(ZeroDivisionError):
                failed_amendment(ledger, random_shares(chance))
            assert (ledger.rows, ledger.step, ledger.shares, ledger.spent()) == before
        else:
            target = ledger.share(chance.choice(list(ledger.shares))) if ledger.shares else ledger
            first = max(1, target.step + chance.choice([-1, 0, 1, 1, 1, 2]))
            size, last = chance.randint(0, max(1, target.units // 2)), first + chance.randint(0, 5)
            kind = chance.randrange(3)
            try:
                if kind == 0:
                    target.charge(first, size, scope="own")
                    charges = [(first, first, size)]
                elif kind == 1:
                    target.charge_group(first, last, size)
                    charges = [(first, last, size)]
                else:
                    units = [chance.randint(0, size) for _ in range(last - first + 1)]
                    target.charge_batch(first, units, groups=[[first, last, 1]])
                    charges = [(first + n, first + n, amount) for n, amount in enumerate(units)]
                    charges.append((first, last, 1))
            except (BudgetExceeded, LedgerError):
                continue
            granted += 1
            truth.add([(begin, end, amount * target.unit) for begin, end, amount in charges])
    assert ledger.verify().ok
    return ledger, granted


def through_snapshot(ledger):
    """A ledger restored from a snapshot."""
    fresh = MemoryLedger(ledger.policy, 6)
    fresh.restore(ledger.snapshot())
    return fresh


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([POLICY, tg.WEvent(epsilon="1", w=1), tg.User(epsilon="1", horizon=10**6)]),
)
def test_no_window_breaks_a_promise(seed, policy):
    """Whatever is charged and amended, each window with a new charge holds the smallest promise in force in it."""
    story(MemoryLedger(policy, 6), random.Random(seed), 60, through_snapshot)


def test_shares_on_disk_are_taken_up_and_verified(tmp_path, monkeypatch):
    """The same in a file, closed and opened again, with checkpoints; then without the program."""
    monkeypatch.setattr("tidegate.ledger.durable.CHECKPOINT_ROWS", 7)
    for seed in range(6):
        path = tmp_path / f"{seed}.db"

        def again(ledger, path=path):
            ledger.close()
            return SQLiteLedger(path)

        ledger, granted = story(SQLiteLedger(path, POLICY, 6), random.Random(seed), 80, again)
        assert granted > 2
        ledger.close()
        verdict = verify_file(path)
        assert verdict.ok, verdict


@pytest.mark.parametrize("mistake", ["nothing is handed on", "the larger promise", "kept without asking"])
def test_wrong_amendments_are_noticed(monkeypatch, mistake):
    """Three ways to get it wrong, each found by the same stories."""
    if mistake == "nothing is handed on":
        monkeypatch.setattr(
            divided, "_take_over", lambda account, charges, now: account.state.__setitem__(3, now)
        )
    elif mistake == "the larger promise":
        monkeypatch.setattr(divided.DividedAccount, "_in_force", lambda self, now: ())
    else:
        monkeypatch.setattr(divided, "_sum", lambda charges: Fraction(0))

    def all_stories():
        for seed in range(150):
            story(MemoryLedger(POLICY, 6), random.Random(seed), 60, lambda ledger: ledger)

    with pytest.raises(AssertionError):
        all_stories()


def test_counts_and_sums_under_one_epsilon(tmp_path):
    """Two mechanisms with their own sensitivities spend all of every window, step by step and in batches."""
    budget = tg.Budget(tg.WEvent(epsilon="1", w=24), ledger=tmp_path / "shop.db")
    shares = budget.split(visits="1/3", spend="2/3")
    visits = Uniform(shares["visits"].policy, columns=2).start(shares["visits"])
    larger = dataclasses.replace(shares["spend"].policy, max_change=50)
    spend = Uniform(larger).start(shares["spend"])
    for step in range(1, 31):
        with budget.ledger.transaction():
            visits.push([1, 2])
            spend.push(70)
        assert budget.ledger.step == step
    visits.push_batch(
        np.zeros((100, 2), dtype=np.int64)
    )  # far ahead of the other, which is not late for that
    spend.push_batch(np.zeros(100, dtype=np.int64))
    assert budget.ledger.spent() == 1
    assert visits.alone
    saved = visits.snapshot(), spend.snapshot()
    budget.ledger.close()
    again = tg.Budget(tg.WEvent(epsilon="1", w=24), ledger=tmp_path / "shop.db")
    shares = again.split(visits="1/3", spend="2/3")
    visits = Uniform(shares["visits"].policy, columns=2).start(shares["visits"], saved[0])
    visits.push([1, 2])
    spend = Uniform(larger).start(shares["spend"], saved[1])  # what others charge does not make it stale
    with pytest.raises(LedgerMismatch):
        Uniform(shares["visits"].policy, columns=2).start(shares["visits"], saved[0])
    with pytest.raises(LedgerMismatch, match="say the same, or use amend"):
        again.split(visits="1/2", spend="1/2")
    assert again.ledger.verify().ok
    again.ledger.close()


def test_one_query_cannot_spend_for_another():
    """A query that is refused leaves the others as they were, and the whole takes no charges."""
    shares = tg.Budget(POLICY).split(a="1/2", b="1/2")
    shares["a"].fit(shares["a"].policy, 2, "test")
    shares["a"].charge(1, 2)
    with pytest.raises(BudgetExceeded):
        shares["a"].charge(1, 1)
    assert shares["b"].remaining() == Fraction(1, 2)
    with pytest.raises(LedgerError, match="divided among queries"):
        shares["a"].whole.charge(2, 0)
    with pytest.raises(LedgerError, match="divided among queries"):
        shares["a"].whole.charge_batch(2, [0])


def test_units_do_not_change_under_a_run():
    """A run counts in the units it began with: finer ones are refused, changed shares end it."""
    budget = tg.Budget(POLICY)
    share = budget.split(a="1/2")["a"]
    run = Uniform(share.policy).start(share)
    run.push(1)
    with pytest.raises(LedgerMismatch, match="which a run on it counts in"):
        share.fit(share.policy, 3, "Other")
    budget.amend(a="1/3", b="1/3")
    with pytest.raises(LedgerMismatch, match="start the mechanism again"):
        run.push(1)
    with pytest.raises(LedgerMismatch, match="its own unit of protection"):
        share.fit(tg.WEvent(epsilon="1/3", w=5), 1, "Other")


def test_query_that_keeps_its_part_goes_on_as_it_was():
    """Adding a query in the free part of the budget leaves the run of another one alone, at full spending."""
    budget = tg.Budget(POLICY)
    share = budget.split(a="1/2")["a"]
    run = Uniform(share.policy).start(share)
    for _ in range(6):
        run.push(1)
    other = budget.amend(a="1/2", b="1/2")["b"]
    late = Uniform(other.policy).start(other)
    for _ in range(8):
        run.push(1)
        late.push(1)
    assert late.step == 14
    assert budget.ledger.spent() == 1


def test_rollback_of_a_share_ends_its_run_only():
    """Runs whose charges a transaction takes back are not used again; those of other queries are."""
    budget = tg.Budget(POLICY)
    shares = budget.split(a="1/2", b="1/2")
    runs = [Uniform(share.policy).start(share) for share in shares.values()]
    for run in runs:
        run.push(1)

    def fail():
        with budget.ledger.transaction(unseen=True):
            runs[0].push(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    runs[1].push(1)
    with pytest.raises(LedgerMismatch, match="taken back"):
        runs[0].push(1)


@pytest.mark.parametrize("shares", [{}, {"a": "2/3", "b": "1/2"}, {"a": 0}, {"a:b": 1}, {"": 1}])
def test_shares_that_cannot_be(shares):
    """More than the whole, nothing, or a name that rows could not carry."""
    with pytest.raises(InvalidParameter, match="shares"):
        MemoryLedger(POLICY, 2).divide(shares)


def test_smaller_budget_waits_and_larger_one_comes_with_its_own_windows():
    """After a cut nothing is granted until old charges have left; a raise is there when all windows are new."""
    budget = tg.Budget(POLICY)
    share = budget.split(a="1")["a"]
    share.fit(share.policy, 4, "test")
    share.charge_batch(1, [1, 1, 1, 1])
    share = budget.amend(a="1", budget="1/2")["a"]
    assert [share.remaining(step) for step in range(5, 9)] == [0, 0, Fraction(1, 4), Fraction(1, 2)]
    share = budget.amend(a="1", budget="2")["a"]
    assert [share.remaining(step) for step in range(7, 9)] == [Fraction(3, 4), 2]
    assert budget.amount == 2


@pytest.mark.parametrize("later", ["1/4", "4"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_verdict_speaks_of_every_budget_that_was_in_force(tmp_path, durable, later):
    """No sentence claims the new budget of windows before it: neither after a cut nor after a raise."""
    path = tmp_path / "account.db"
    ledger = SQLiteLedger(path, POLICY, 1) if durable else MemoryLedger(POLICY, 1)
    ledger.divide({"a": "1"})
    ledger.share("a").charge(4, 1)
    ledger.divide({"a": "1"}, budget=Fraction(later))
    ledger.share("a").charge(9, 1)
    ledger.divide({"a": "1/2", "b": "1/2"}, budget=Fraction(later))
    verdict = ledger.verify()
    words = f"more than 1 in steps 1 to 4 or {show(Fraction(later))} from step 5 on"
    assert words in str(verdict)
    assert "straddles a change spent no more than the smallest of its budgets" in str(verdict)
    assert verdict.spent == 1
    ledger.close()
    if durable:
        assert str(verify_file(path)) == str(verdict)


def test_an_amendment_counts_the_same_charges_whatever_is_still_known(tmp_path, monkeypatch):
    """Opened from a checkpoint an account knows less of the past than one that was replayed from the first row."""
    monkeypatch.setattr("tidegate.ledger.durable.CHECKPOINT_ROWS", 7)
    path = tmp_path / "account.db"
    ledger = SQLiteLedger(path, POLICY, 1)
    ledger.divide({"a": "1/2", "b": "1/2"})
    ledger.share("a").fit(dataclasses.replace(POLICY, epsilon="1/2"), 7, "A")  # old charges are of sevenths
    for step in range(1, 4):
        ledger.share("a").charge(step, 1)
    for step in range(4, 60):
        ledger.share("a").charge(step, 0)
    ledger.close()
    ledger = SQLiteLedger(path)
    ledger.divide({"c": "1"})
    for step in range(60, 70):
        ledger.share("c").charge(step, int(step % 4 == 0))
    ledger.close()
    verdict = verify_file(path)
    assert verdict.ok, verdict


def _cut_and_fail(ledger):
    ledger.divide({"a": "1"}, budget=Fraction(1, 4))
    ledger.divide({})


def test_budgets_are_those_of_before_when_a_division_is_taken_back():
    """The sentence speaks of what is in force."""
    ledger = MemoryLedger(POLICY, 1)
    ledger.divide({"a": "1"})
    ledger.share("a").charge(4, 1)
    with pytest.raises(InvalidParameter), ledger.transaction():
        _cut_and_fail(ledger)
    assert "spent more than 1 (a 1 of 1)" in str(ledger.verify())


@pytest.fixture(params=["memory", "file"])
def discovering(request, tmp_path):
    """A ledger with ε and δ, divided: one query may spend three quarters of the δ."""
    policy = tg.WEvent(epsilon="1", delta="1e-6", w=4)
    path = tmp_path / "account.db"
    ledger = MemoryLedger(policy, 1) if request.param == "memory" else SQLiteLedger(path, policy, 1)
    ledger.divide({"names": "1/2", "visits": "1/2"}, deltas={"names": "3/4"})
    yield ledger
    assert ledger.verify().ok
    ledger.close()
    assert request.param == "memory" or verify_file(path).ok


def test_delta_adds_up_in_the_same_windows(discovering):
    """δ is charged beside ε, once for a group, refused beyond the part, and free again when the window has moved."""
    names = discovering.share("names")
    with pytest.raises(BudgetExceeded):
        names.charge_delta(1, 1, "7.500001e-7")
    for step in (1, 2):
        with discovering.transaction():
            names.charge(step, 0)
            names.charge_delta(step, step, "0.25e-6")
    names.charge_delta(2, 3, "1e-7")
    with pytest.raises(BudgetExceeded):
        names.charge_delta(4, 4, "2e-7")
    names.charge_delta(4, 4, Fraction(3, 20 * 10**6))
    with pytest.raises(BudgetExceeded):
        names.charge_delta(4, 4, "1e-9")
    names.charge_delta(5, 5, "0.25e-6")  # step 1 has left
    assert "δ of names 7.5e-07 of 7.5e-07" in str(discovering.verify())
    with pytest.raises(LedgerMismatch, match="has no part of δ"):
        discovering.share("visits").charge_delta(5, 5, "1e-9")


def test_delta_is_taken_back_and_handed_on(discovering):
    """A rollback takes δ back; after an amendment old δ stays in the windows; nobody may have it, too."""
    names = discovering.share("names")
    names.charge_delta(1, 1, "5e-7")
    rows = discovering.rows

    def fail():
        with discovering.transaction():
            names.charge_delta(1, 1, "1e-7")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert discovering.rows == rows
    discovering.divide({"names": "1/2", "visits": "1/2"}, deltas={"visits": "3/4"})
    visits = discovering.share("visits")
    with pytest.raises(BudgetExceeded):
        visits.charge_delta(2, 2, "3e-7")
    visits.charge_delta(2, 2, "1e-7")
    discovering.divide({"names": "1"})
    with pytest.raises(LedgerMismatch, match="has no part of δ"):
        discovering.share("names").charge_delta(3, 3, "1e-9")
    discovering.divide({"names": "1"}, deltas={"names": "1"})
    with pytest.raises(BudgetExceeded):
        discovering.share("names").charge_delta(3, 3, "5e-7")
    if isinstance(discovering, MemoryLedger):
        again = MemoryLedger(discovering.policy, 1)
        again.restore(discovering.snapshot())
        with pytest.raises(BudgetExceeded):
            again.share("names").charge_delta(3, 3, "5e-7")


def test_policies_without_delta_have_none_to_share():
    """A part of nothing is refused, and so is a part for a query that has no share."""
    with pytest.raises(LedgerMismatch, match="has no δ"):
        MemoryLedger(POLICY, 1).divide({"a": 1}, deltas={"a": 1})
    with pytest.raises(InvalidParameter, match="deltas"):
        MemoryLedger(tg.WEvent(epsilon="1", delta="1e-6", w=4), 1).divide({"a": 1}, deltas={"b": 1})


@pytest.mark.parametrize("durable", [False, True])
def test_the_account_never_goes_back_when_the_furthest_query_ends(tmp_path, durable):
    """What an ended query has charged stays in the windows of those that come, also where the one that stays lags."""
    target = str(tmp_path / "x.ledger") if durable else None
    budget = tg.Budget(tg.WEvent(epsilon="1", w=4), ledger=target)
    ahead = budget.split(a="1/2", b="1/2")["a"]
    ahead.charge(4, ahead.units)
    budget.amend(b="1/2")
    assert budget.ledger.step == 4
    new = budget.amend(b="1/2", c="1/2")["c"]
    # all of it was spent by the one that has ended, for as long as a window reaches it
    assert [new.remaining(step) for step in (5, 6, 7, 8)] == [0, 0, 0, Fraction(1, 2)]
    assert budget.ledger.verify().ok


def test_a_group_from_before_an_amendment_does_not_reach_on(tmp_path: Path) -> None:
    """Its heirs have a part of it each; one that took it for its own would let the others spend the rest again."""
    for where in (None, tmp_path / "budget.ledger"):
        budget = tg.Budget(tg.WEvent(epsilon="1", w=4), ledger=where)
        before = budget.split(a="1")["a"]
        before.fit(before.policy, 48, "x")
        group = before.charge_group(1, 2, 48)
        shares = budget.amend(a="1/2", b="1/2")
        after = shares["a"]
        after.fit(after.policy, 48, "x")
        with pytest.raises(LedgerError, match="in force from step 2"):
            after.extend_group(group, 3)
        with pytest.raises(LedgerError, match="in force from step 2"):
            after.charge_batch(3, [0], extended=[(*group, 3)])
        own = after.charge_group(7, 8, 24)
        assert after.extend_group(own, 9).last == 9
        assert budget.ledger.verify().ok


@pytest.mark.parametrize("durable", [False, True])
def test_a_budget_under_which_no_step_was_charged_leaves_a_trace(tmp_path, durable):
    """People were told of it, although it was lowered and raised again between two steps."""
    path = tmp_path / "account.db"
    ledger = SQLiteLedger(path, POLICY, 1) if durable else MemoryLedger(POLICY, 1)
    ledger.divide({"a": "1"})
    ledger.share("a").charge(4, 1)
    ledger.divide({"a": "1"}, budget=Fraction(1, 4))
    ledger.divide({"a": "1"}, budget=Fraction(1))
    words = "1 in steps 1 to 4, 0.25 for no step, declared after step 4 or 1 from step 5 on"
    assert words in str(ledger.verify())
    ledger.close()
    if durable:
        assert words in str(verify_file(path))
