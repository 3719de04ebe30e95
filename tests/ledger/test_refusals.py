"""What a refusal says remains: that much can be charged at the step, and not a unit more, on every kind of ledger."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.composition import largest_charge, slots_of
from tidegate.errors import BudgetExceeded, LedgerError
from tidegate.ledger import MemoryLedger
from tidegate.ledger.amendments import add_specification, specifications_of, withdraw_specification
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.policy import Secret, Specification, Swellfish
from tidegate.policy.secrets import FOREVER

HOME = Secret(1, 2, "always", 1, "home")
HOUSE = Specification((HOME, Secret(3, 2, [(3, 9)], "1/2", "oven")), "house")
PUMP = Specification((HOME, Secret(9, 2, "always", "1/3", "pump")), "new")

KINDS = {
    "w-event": (tg.WEvent(epsilon="1", w=3), 6),
    "event": (tg.Event(epsilon="1"), 6),
    "user": (tg.User(epsilon="1", horizon=10**6), 12),
    "rho": (tg.WEvent(rho="1/2", w=3), 6),
    "delta": (tg.WEvent(epsilon="1", delta="1e-6", w=3), 12),
    "public delta": (tg.WEvent(epsilon="1", delta="1e-6", w=3), 12),
    "swellfish": (Swellfish(specifications=[HOUSE]), 60),
}
DIVIDED = ("w-event", "event", "user", "rho", "delta")


def opened(kind, place):
    """A ledger of a kind: in memory, or in a file of a folder."""
    policy, units = KINDS[kind]
    schedule = "public" if kind == "public delta" else "adaptive"
    if place is None:
        return MemoryLedger(policy, units, schedule)
    return SQLiteLedger(Path(place) / "l.ledger", policy, units, schedule=schedule)


def some_shares(chance):
    """Shares of one query, or of two."""
    if chance.random() < 0.4:
        return {"a": Fraction(1)}
    part = Fraction(chance.randint(1, 4), 5)
    return {"a": part, "b": (1 - part) / chance.randint(1, 2)}


def amended(ledger, chance):
    """Divide or amend a ledger: other shares, and a smaller or a larger budget."""
    total = ledger.policy.budget.total
    budget = None
    if ledger.shares or not ledger.step:
        budget = chance.choice([None, total / 4, total / 2, total, 2 * total, 3 * total])
    ledger.divide(some_shares(chance), budget=budget)
    for name in ledger.shares:
        share = ledger.share(name)
        share.fit(share.policy, chance.choice([1, 4, 6]), "test")


def amended_secrets(ledger, chance):
    """Add a specification, or withdraw it."""
    known = [each.label for each in specifications_of(ledger) if each.ends == FOREVER]
    if len(known) > 1:
        withdraw_specification(ledger, chance.choice(known))
    else:
        add_specification(ledger, replace(PUMP, label=f"pump {ledger.rows}"))


def try_to(charge, *arguments):
    """Charge, or be refused: what the refusal says."""
    try:
        charge(*arguments)
    except BudgetExceeded as refused:
        return refused
    except LedgerError:
        return None
    return None


def some_charge(target, chance, groups):
    """A charge of any way, small or large."""
    step = max(1, target.step + chance.choice([-1, 0, 1, 1, 2]))
    size = chance.randint(0, max(1, target.units // chance.choice([1, 2, 4])))
    way = chance.randrange(3 if groups else 2)
    if way == 0:
        try_to(target.charge, step, size)
    elif way == 1:
        try_to(target.charge_batch, step, [chance.randint(0, size) for _ in range(chance.randint(1, 4))])
    else:
        try_to(target.charge_group, step, step + chance.randint(0, 4), size)


def asked_too_much(target, chance):
    """A refusal of one step, if a large charge is refused there."""
    step = max(1, target.step + chance.choice([-2, -1, 0, 1, 1, 2, 3]))
    return try_to(target.charge, step, chance.choice([1, target.units // 2, target.units, 2 * target.units]))


def check(target, refused):
    """What remains can be charged, one unit more is refused, and the ledger's own answer is the same."""
    assert 0 <= refused.remaining < refused.requested
    assert refused.remaining == target.remaining(refused.step)
    left = int(refused.remaining / target.unit)
    more = try_to(target.charge, refused.step, left + 1)
    assert more is not None
    assert more.remaining == refused.remaining
    target.charge(refused.step, left)


def story(kind, divided, place, seed):
    """Charges and amendments, and a refusal whose word is taken; how many refusals there were."""
    chance, refusals = random.Random(seed), 0
    with opened(kind, place) as ledger:
        for _ in range(chance.randint(4, 14)):
            if divided and kind == "swellfish" and chance.random() < 0.25:
                amended_secrets(ledger, chance)
            elif divided and kind in DIVIDED and (not ledger.step or chance.random() < 0.25):
                amended(ledger, chance)
            target = ledger.share(chance.choice(list(ledger.shares))) if ledger.shares else ledger
            some_charge(target, chance, groups=kind != "swellfish")
            refused = asked_too_much(target, chance)
            if refused is not None:
                check(target, refused)
                refusals += 1
        assert ledger.verify().ok
    return refusals


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.booleans(), st.integers(0, 2**32))
def test_what_remains_can_be_charged_and_no_more(kind, divided, seed):
    """On ledgers in memory: plain, divided, amended, of ρ, of (ε, δ) and of secrets."""
    story(kind, divided, None, seed)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_same_in_a_file(kind):
    """A ledger on disk says the same, plain and amended; and there are refusals to speak of."""
    refusals = 0
    for seed in range(4):
        with tempfile.TemporaryDirectory() as place:
            refusals += story(kind, seed % 2 == 0, place, seed)
    assert refusals


def test_after_a_raise_the_windows_that_straddle_it_decide():
    """A raise from 1 to 2: steps 1 to 3 straddle it, and have a quarter left, not five."""
    budget = tg.Budget(tg.WEvent(epsilon="1", w=4))
    share = budget.split(a="1")["a"]
    share.fit(share.policy, 4, "test")
    share.charge(1, 1)
    share = budget.amend(budget="2", a="1")["a"]
    share.fit(share.policy, 8, "test")
    share.charge(2, 2)
    with pytest.raises(BudgetExceeded, match="have spent 3/4 and 1/4 remains") as refused:
        share.charge(3, 2)
    assert refused.value.remaining == share.remaining(3) == Fraction(1, 4)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["w-event", "rho", "delta", "public delta", "swellfish"]), st.integers(0, 2**32))
def test_of_a_batch_it_is_what_the_step_may_have_after_those_before_it(kind, seed):
    """The steps of a refused batch before the refused one can be charged, then what remains, and no more."""
    chance = random.Random(seed)
    ledger = opened(kind, None)
    some_charge(ledger, chance, groups=kind != "swellfish")
    first = max(1, ledger.step + chance.choice([-1, 0, 1]))
    units = [chance.randint(0, ledger.units // 2) for _ in range(5)]
    refused = try_to(ledger.charge_batch, first, units)
    if refused is None:
        return
    place = refused.step - first
    assert refused.requested == units[place] * ledger.unit
    if place:
        ledger.charge_batch(first, np.array(units[:place]))
    check(ledger, refused)


def test_a_group_is_told_what_a_group_of_its_steps_may_have():
    """A late group meets windows that its first step alone does not; what remains counts them all."""
    ledger = opened("w-event", None)
    ledger.charge_batch(1, [1, 0, 0, 5])
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge_group(2, 4, 3)
    assert refused.value.remaining == Fraction(1, 6)
    ledger.charge_group(2, 4, 1)
    with pytest.raises(BudgetExceeded):
        ledger.charge_group(2, 4, 1)


def test_what_remains_of_delta_can_be_charged():
    """The same for a query's part of δ, after its part was cut and raised."""
    ledger = MemoryLedger(tg.WEvent(epsilon="1", delta="1e-6", w=4), 1)
    share = ledger.divide({"a": 1}, deltas={"a": "1/4"})["a"]
    share.charge_delta(1, 1, "2e-7")
    share = ledger.divide({"a": 1}, deltas={"a": "1"})["a"]
    share.charge_delta(2, 2, "3e-7")
    with pytest.raises(BudgetExceeded) as refused:
        share.charge_delta(3, 3, "1e-6")
    left = refused.value.remaining
    with pytest.raises(BudgetExceeded):
        share.charge_delta(3, 3, left + Fraction(1, 10**8))
    share.charge_delta(3, 3, left)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 24))
@example(24)
def test_the_largest_charge_of_so_many_slots(slots):
    """It costs no more than the slots, and one unit more costs more."""
    unit, most = MemoryLedger(tg.WEvent(epsilon="1", delta="1e-6", w=24), 24).unit, 24
    largest = largest_charge(slots, unit, most)
    assert largest == 0 or slots_of(largest, unit, most) <= slots
    following = slots_of(largest + 1, unit, most)
    assert following is None or following > slots
