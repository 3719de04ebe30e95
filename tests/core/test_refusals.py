"""Refusals name their window, the charges in it, and the step at which the same charge fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.account import Account
from tidegate.core.charges import NO_SPANS, Charges, Span, span_rows
from tidegate.core.errors import AccountRefused, LogDamaged, Refusal
from tidegate.core.log import MemoryLog
from tidegate.core.parallel_account import ParallelAccount, charges_of_parts
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.pipeline.refusal_details import explain_refusal
from tidegate.policy import Secret, Specification
from tidegate.report.verified import verified


def refused(account: Account, charges: Charges) -> AccountRefused:
    """Why."""
    with pytest.raises(AccountRefused) as caught:
        account.check(charges)
    return caught.value


def reason(account: Account, charges: Charges) -> Refusal:
    """The numbers of it."""
    found = refused(account, charges).refusal
    assert found is not None
    return found


def units(*given: int) -> Any:
    """Of consecutive steps."""
    return np.array(given, dtype=np.int64)


def test_the_largest_charges_are_named_and_the_others_summed() -> None:
    """One sentence, whatever the window."""
    account = Account(20, window=6)
    account.apply(account.check(Charges(1, units(1, 7, 2, 4, 3))))
    assert str(refused(account, Charges(6, units(5)))) == (
        "the charge of 5 units at step 6 is refused: steps 1 to 6 may spend 20 units, and 17 are spent (7 at step 2, 4 "
        "at step 4, 3 at step 5, 3 in 2 other charges); wait until step 8: there it fits, if nothing else is "
        "charged before."
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_step_that_is_named_is_the_first_that_fits(seed: int) -> None:
    """With spans, steps passed over, events and batches: compared with trying every step."""
    random = np.random.default_rng(seed)
    window, limit = int(random.integers(1, 7)), 12
    account, step, ordinal = Account(limit, window), 0, 0
    for _ in range(12):
        first = step + 1 + int(random.integers(0, 3)) * int(random.integers(0, 2))
        own = random.integers(0, 6, int(random.integers(1, 4)))
        spans = NO_SPANS
        if random.integers(0, 3) == 0:
            spans = span_rows([Span(0, ordinal, first, first + int(random.integers(0, 5)), 3)], 1)
        charges = Charges(first, own.astype(np.int64), spans)
        try:
            account.apply(account.check(charges))
            step, ordinal = charges.last, ordinal + 1
            if account.remaining() >= 1 and random.integers(0, 4) == 0:
                account.apply_event(1)
        except AccountRefused as error:
            found = error.refusal
            assert found is not None
            assert found.spent == sum(each.units for each in found.held) <= limit < found.spent + found.asked
            assert all(each.last >= found.first and each.first <= found.step for each in found.held)
            if charges.first == found.step and not len(spans):
                fits = [
                    at
                    for at in range(found.step, found.step + 20)
                    if accepts(account, Charges(at, units(found.asked)))
                ]
                assert found.fits == fits[0] == account.first_fit(found.asked, found.step)


def accepts(account: Account, charges: Charges) -> bool:
    """Whether it fits."""
    try:
        account.check(charges)
    except AccountRefused:
        return False
    return True


def test_a_batch_counts_its_own_earlier_steps_and_a_span_what_it_asks() -> None:
    """The first step that is refused is named, with what the push itself has charged before."""
    found = reason(Account(8, window=4), Charges(1, units(3, 3, 3)))
    assert (found.step, found.asked, found.spent, found.fits) == (3, 3, 6, 5)
    account = Account(8, window=4)
    account.apply(account.check(Charges(1, units(0), span_rows([Span(0, 0, 1, 3, 6)], 1))))
    found = reason(account, Charges(2, units(0), span_rows([Span(0, 1, 2, 2, 5)], 1)))
    assert (found.step, found.asked, found.spent, found.fits, found.held[0][:2]) == (2, 5, 6, 7, (1, 3))


def test_budgets_that_never_return_and_horizons() -> None:
    """At user level, and behind the end of the stream."""
    account = Account(5, window=None)
    account.apply(account.check(Charges(1, units(2, 2))))
    error = refused(account, Charges(3, units(2)))
    assert error.refusal is not None
    assert error.refusal.fits is None
    assert "4 at steps 1 to 2" in str(error)
    assert "does not return" in str(error)
    account = Account(4, window=9, horizon=10)
    account.apply(account.check(Charges(3, units(4))))
    assert "fit at step 12, and the stream ends with step 10" in str(refused(account, Charges(4, units(1))))


def test_accounts_of_their_own_say_what_they_can() -> None:
    """The column group; the events of Swellfish."""
    parallel = ParallelAccount([(8, 4)] * 2, horizon=None)
    parallel.apply(parallel.check(charges_of_parts(1, np.array([[8, 0], [0, 8]]))))
    error = refused(parallel, charges_of_parts(3, np.array([[0, 1]])))
    assert str(error).startswith("column group 1: ")
    assert error.refusal is not None
    assert (error.refusal.fits, parallel.first_fit(1, 3)) == (6, 6)
    home, oven = Secret(1, 1, "always", 1, "home"), Secret(3, 2, [(3, 9)], 1, "oven")
    secrets = SecretsAccount(tg.Swellfish(specifications=(Specification((home, oven), "house 1"),)), units=8)
    secrets.apply(secrets.check(Charges(1, units(32, 32, 5))))
    found = str(refused(secrets, Charges(4, units(4))))
    fits = secrets.first_fit(4, 5)
    assert fits is not None
    assert f"wait until step {fits}" in found
    assert accepts(secrets, Charges(fits, units(4)))
    assert not any(accepts(secrets, Charges(at, units(4))) for at in range(4, fits))


def test_a_session_names_the_query_and_stays_open() -> None:
    """A refusal is public and comes before noise, so the next push is as if nothing had happened."""
    policy = tg.WEvent(epsilon="1", window=4)
    queries = {"a": Uniform(policy, noise="laplace"), "b": Uniform(policy, noise="laplace")}
    session = Session(queries, shares={"a": "1/2", "b": "1/4"})
    session.push({"a": [1], "b": [1]})
    query = session._queries[0]
    query.account.apply_event(3)  # as an event would: the window is full
    with pytest.raises(AccountRefused, match=r"query 'a': the charge of 1 units at step 2") as caught:
        session.push({"a": [1], "b": [1]})
    assert caught.value.query == "a"
    assert caught.value.refusal is not None
    assert caught.value.refusal.fits == 5
    assert session.push({"b": [1]})["b"].step == 2


def test_the_explanation_lists_every_charge() -> None:
    """By query and step, with their worth; other queries are named, and take nothing."""
    log, policy = MemoryLog(), tg.WEvent(epsilon="1", window=4)
    queries = {"a": Uniform(policy, noise="laplace"), "b": Uniform(policy, noise="laplace")}
    session = Session(queries, log, shares={"a": "1/2", "b": "1/4"})
    session.push_batch({"a": [[1]] * 3, "b": [[1]]})
    for source in (session, log):
        found = explain_refusal(source, "a", units=2)
        assert (found.step, found.first, found.spent, found.limit, found.fits) == (4, 1, 3, 4, 5)
        assert [(each.query, each.first, each.units) for each in found.charges] == [
            ("a", 1, 1),
            ("a", 2, 1),
            ("a", 3, 1),
        ]
        assert "1 unit (ε = 0.125) by each step at steps 1 to 3" in str(found)
        assert "1 charges of 'b'" in str(found)
    assert not explain_refusal(log, "a", units=1).refused
    assert explain_refusal(log, "b", step=2, units=4).fits == 5
    with pytest.raises(InvalidParameter, match="'a', 'b'"):
        explain_refusal(log, "c")
    with pytest.raises(InvalidParameter, match="after step 3"):
        explain_refusal(log, "a", step=3)
    with pytest.raises(LogDamaged):
        explain_refusal(MemoryLog())


def test_the_explanation_of_silence_and_of_column_groups() -> None:
    """A query that begins later is silent before; groups have no one limit."""
    log = MemoryLog()
    Session(Uniform(tg.WEvent(epsilon="1", window=4), noise="laplace"), log).push_batch([[1]] * 2)
    Session(Uniform(tg.WEvent(epsilon="1/2", window=4), noise="laplace"), log, amend=True)
    found = explain_refusal(log, units=1)
    assert (found.silent_until, found.fits) == (5, 6)
    assert "silent up to step 5" in str(found)
    fixed = BudgetAbsorption(
        tg.WEvent(epsilon="2", window=3, mobility="fixed"), columns=2, groups=((0,), (1,))
    )
    session = Session(fixed)
    session.push([5, 5])
    assert explain_refusal(session).limit is None
    assert "in column group 1" in str(explain_refusal(session))


def test_verification_says_on_one_screen_what_it_checked() -> None:
    """Sentences, counts, the first failure; and that fixed noise protects nobody."""
    log = MemoryLog()
    session = Session(Uniform(tg.WEvent(epsilon="1", window=3), noise="laplace"), log)
    session.push_batch([[1]] * 4)
    session.push([1])
    log.forget_releases(2)
    found = verify(log.rows())
    text = verified(found)
    assert len(text.splitlines()) <= 12
    assert text.startswith("The account holds")
    assert "Charges: 5 charged steps, 0 spans and 0 events." in text
    assert "1 commit with releases" in text
    assert "1 commit whose releases were dropped" in text
    assert "Failures" not in text
    rows = list(log.rows())
    rows[1] = rows[1]._replace(charges=rows[2].charges)
    broken = verify(rows)
    first, second, *_ = verified(broken).splitlines()
    assert first.startswith("The account does NOT hold. First failure: commit 1: ")
    assert "1 in number" in second
    with install(FixedEntropy("test")):
        fixed = MemoryLog()
        Session(Uniform(tg.WEvent(epsilon="1", window=3)), fixed).push([1])
    assert "fixed noise" in verified(verify(fixed.rows()))
    assert not verify([]).ok
    assert "empty" in verified(verify([]))
