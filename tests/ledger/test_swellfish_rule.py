"""The ledger under Swellfish: every placement of every secret, specifications that come and go, durability."""

import sqlite3
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BudgetExceeded, InvalidParameter, LedgerError, SnapshotError
from tidegate.ledger import MemoryLedger, SQLiteLedger, verify_file
from tidegate.ledger.amendments import add_specification, specifications_of, withdraw_specification
from tidegate.policy import Clock, Secret, Specification, Swellfish

HOME = Secret(1, 2, "always", 1, "home")
OVEN = Secret(3, 2, [(3, 9)], "1/2", "oven")
HOUSE = Specification((HOME, OVEN), "house")


def losses(policy, units, charged, houses=None):
    """Every placement's loss and promise, straight from the definition: {(house, secret, interval, first): …}."""
    houses = policy.specifications if houses is None else houses
    last = max(charged, default=0)
    unit = Fraction(policy.epsilon) / units
    found = {}
    for number, house in enumerate(houses):
        rows, owners = house.occurrences(policy.clock, 1, max(last, 1))
        delta = {
            t: sum(
                Fraction(house.secrets[o].height)
                for (a, b), o in zip(rows.tolist(), owners.tolist(), strict=True)
                if a <= t <= b
            )
            for t in range(1, last + 1)
        }
        for (a, b), owner in zip(rows.tolist(), owners.tolist(), strict=True):
            secret = house.secrets[owner]
            for first in range(a, min(b, last) + 1):
                window = range(first, min(first + secret.duration - 1, b, last) + 1)
                loss = sum(charged.get(t, 0) * unit * delta[t] / Fraction(policy.max_change) for t in window)
                found[number, owner, a, first] = (loss, Fraction(secret.epsilon))
    return found


def kept(policy, units, charged, houses=None):
    """Whether every promise is kept."""
    return all(loss <= promise for loss, promise in losses(policy, units, charged, houses).values())


@st.composite
def secrets(draw, steps=14, number=0):
    """A secret somewhere in the first steps."""
    duration = draw(st.integers(1, 4))
    first = draw(st.integers(1, steps))
    length = draw(st.integers(duration, duration + 6))
    epsilon = Fraction(draw(st.integers(1, 12)), draw(st.integers(1, 7)))
    height = Fraction(draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 5])))
    return Secret(height, duration, [(first, first + length - 1)], epsilon, f"secret {number}")


@st.composite
def policies(draw, steps=14):
    """A few households, each with a baseline."""
    houses = []
    for house in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 3))
        baseline = Secret(
            draw(st.integers(1, 3)), draw(st.integers(1, 3)), "always", draw(st.integers(1, 3)), "home"
        )
        others = [draw(secrets(steps, number)) for number in range(count)]
        houses.append(Specification((baseline, *others), f"house {house}"))
    return Swellfish(specifications=houses)


def test_the_fullest_charge_is_accepted_and_one_more_is_refused():
    """At step 3 the oven's promise binds: half of ε·7/4 a step, exactly."""
    policy = Swellfish(specifications=[HOUSE])
    ledger = MemoryLedger(policy, 1000)
    ledger.charge(1, 1000)
    ledger.charge(3, 600)
    assert ledger.remaining(4) == Fraction(400) * ledger.unit
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge(4, 401)
    assert caught.value.remaining == Fraction(400) * ledger.unit
    ledger.charge(4, 400)
    assert ledger.remaining(4) == 0
    verdict = ledger.verify()
    assert verdict.ok
    assert verdict.spent == 1
    assert "every placement of every secret kept its promise" in str(verdict)


@settings(max_examples=150)
@given(policies(), st.data())
def test_charges_are_accepted_exactly_when_every_promise_is_kept(policy, data):
    """Against the definition, in order, late, single and in batches."""
    units = 60
    ledger = MemoryLedger(policy, units)
    charged = {}
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.integers(max(1, ledger.step - policy.window + 1), ledger.step + 3))
        amounts = data.draw(st.lists(st.integers(0, 80), min_size=1, max_size=4))
        wanted = dict(charged)
        for offset, amount in enumerate(amounts):
            wanted[step + offset] = wanted.get(step + offset, 0) + amount
        allowed = kept(policy, units, wanted)
        try:
            ledger.charge_batch(step, np.array(amounts))
        except BudgetExceeded:
            assert not allowed
        else:
            assert allowed
            charged = wanted
    assert ledger.verify().ok
    assert kept(policy, units, charged)
    found = losses(policy, units, charged)
    if found:
        fullest = max(loss / promise for loss, promise in found.values())
        assert (
            fullest <= ledger.verify().spent <= fullest + Fraction(1, 20)
        )  # limits round down to whole numbers


@settings(max_examples=60)
@given(policies(), st.integers(1, 16), st.lists(st.integers(0, 30), min_size=16, max_size=16))
def test_what_remains_is_exact(policy, step, amounts):
    """What remains is accepted, and one unit more is not."""
    units = 60
    ledger = MemoryLedger(policy, units)
    for at, amount in enumerate(amounts[: step - 1], 1):
        ledger.charge(at, min(amount, int(ledger.remaining(at) / ledger.unit)))
    left = int(ledger.remaining(step) / ledger.unit)
    with pytest.raises(BudgetExceeded):
        ledger.charge(step, left + 1)
    ledger.charge(step, left)
    assert ledger.remaining(step) == 0


def test_delta_allows_capped_steps_beyond_the_sum():
    """With δ a placement may add up to more than ε as long as no step is above its share of the composition."""
    home = Secret(1, 200, "always", "0.1", "home")
    pure = Swellfish(specifications=[Specification((home,), "house")])
    loose = Swellfish(specifications=[Specification((home,), "house")], delta="1e-8")
    from tidegate.composition import delta_of, largest_step

    share = largest_step(200, Fraction(1, 10), Fraction("1e-8"))
    units = 10**6
    amount = int(share * units / Fraction(1, 10))
    assert amount * 200 > units
    ledger = MemoryLedger(loose, units)
    ledger.charge_batch(1, np.full(300, amount))
    assert delta_of({1: 200}, amount * ledger.unit, Fraction(1, 10)) <= Fraction("1e-8")
    with pytest.raises(BudgetExceeded):
        ledger.charge(301, amount + 1)
    with pytest.raises(BudgetExceeded):
        MemoryLedger(pure, units).charge_batch(1, np.full(300, amount))


def test_the_joint_promise_binds_as_well():
    """Under the joint promise no step of a hiding interval may spend more than ε_s/A_s."""
    daily = Secret(1, 2, [], 1, "home", recurring="every day 00:00-24:00")
    clock = Clock("2026-01-05T00:00", "1 h")
    house = Specification((daily, Secret(3, 2, [(3, 9)], 1, "oven")), "house")
    policy = Swellfish(specifications=[house], clock=clock, promise="joint", max_change=4)
    ledger = MemoryLedger(policy, 800)
    # inside steps 3 to 9 both events may happen at once: A = 2·3 + 2·1 = 8, and max_change is 4
    assert ledger.remaining(5) == Fraction(400) * ledger.unit
    assert MemoryLedger(Swellfish(specifications=[house], clock=clock), 800).remaining(5) > ledger.remaining(
        5
    )
    endless = Swellfish(specifications=[HOUSE], promise="joint")
    with pytest.raises(InvalidParameter, match="hide the baseline anew every day"):
        MemoryLedger(endless, 100).charge(1, 1)


def test_added_specifications_hold_from_the_next_step():
    """What was released before is not promised anything; from then on the new household is protected."""
    policy = Swellfish(specifications=[HOUSE], longest=5)
    ledger = MemoryLedger(policy, 1000)
    ledger.charge_batch(1, np.full(20, 100))
    high = Specification((HOME, Secret(8, 5, "always", "1/4", "pump")), "new")
    added = add_specification(ledger, high)
    assert added.begins == 21
    before, after = ledger.remaining(20), ledger.remaining(21)
    assert after < before
    ledger.charge(21, int(after / ledger.unit))
    assert ledger.verify().ok
    assert [each.label for each in specifications_of(ledger)] == ["house", "new"]


@pytest.mark.parametrize(
    ("specification", "words"),
    [
        (Specification((HOME,), "house"), "new, and not empty"),
        (Specification((HOME,), ""), "new, and not empty"),
        (Specification((HOME, Secret(1, 9, "always", 1, "long")), "new"), "`longest` is larger"),
        (Specification((HOME, Secret(1, 2, [(20, 24)], 1, "past")), "new"), "already released"),
        (Specification((Secret(1, 2, [(40, 44)], 1, "late"),), "new"), "baseline"),
        (Specification((HOME, Secret(1, 2, [], 1, "x", "every day 1:00-2:00")), "new"), "clock"),
    ],
)
def test_specifications_that_a_running_stream_cannot_promise(specification, words):
    """Refused in one sentence, and nothing changes."""
    ledger = MemoryLedger(Swellfish(specifications=[HOUSE], longest=5), 1000)
    ledger.charge_batch(1, np.full(20, 100))
    with pytest.raises(InvalidParameter, match=words) as caught:
        add_specification(ledger, specification)
    assert len(str(caught.value).splitlines()) == 1
    assert len(specifications_of(ledger)) == 1


@settings(max_examples=80)
@given(policies(), st.integers(1, 14), st.lists(st.integers(0, 60), min_size=20, max_size=20))
def test_withdrawing_never_breaks_a_window_in_progress(policy, now, amounts):
    """Every placement that began before the withdrawal keeps its promise under the specification as it was."""
    other = Specification((HOME,), "other")
    policy = Swellfish(specifications=[*policy.specifications, other])
    units = 60
    ledger = MemoryLedger(policy, units)
    charged = {}
    for step, amount in enumerate(amounts, 1):
        if step == now + 1:
            left = withdraw_specification(ledger, "house 0")
            assert left.ends >= now
        spend = min(amount, int(ledger.remaining(step) / ledger.unit))
        ledger.charge(step, spend)
        charged[step] = spend
    assert ledger.verify().ok
    for (house, _, _, first), (loss, promise) in losses(policy, units, charged).items():
        if house or first <= now:
            assert loss <= promise


def test_the_last_specification_cannot_be_withdrawn():
    """Without any specification there would be no noise."""
    ledger = MemoryLedger(Swellfish(specifications=[HOUSE]), 1000)
    with pytest.raises(InvalidParameter, match="add another one before"):
        withdraw_specification(ledger, "house")
    with pytest.raises(InvalidParameter, match="choose one of 'house'"):
        withdraw_specification(ledger, "castle")


def test_a_withdrawn_specification_ends_with_its_longest_event():
    """At step 5 both the oven (2 steps, until 9) and the baseline are relevant."""
    ledger = MemoryLedger(Swellfish(specifications=[HOUSE, Specification((HOME,), "other")]), 1000)
    ledger.charge_batch(1, np.full(5, 10))
    assert withdraw_specification(ledger, "house").ends == 6
    account = ledger._account
    with pytest.raises(LedgerError, match="stays in force"):
        account.amend({"now": 5, "withdraw": "other", "ends": 5})


def test_a_failed_transaction_takes_amendments_back():
    """Charges and specifications are undone together."""
    ledger = MemoryLedger(Swellfish(specifications=[HOUSE]), 1000)

    def fail():
        with ledger.transaction():
            ledger.charge(1, 10)
            add_specification(ledger, Specification((HOME,), "new"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert ledger.step == 0
    assert len(specifications_of(ledger)) == 1


def test_snapshots_carry_charges_and_amendments():
    """A restored ledger refuses what the first one refuses."""
    policy = Swellfish(specifications=[HOUSE], longest=4)
    ledger = MemoryLedger(policy, 1000)
    ledger.charge_batch(1, np.full(6, 50))
    add_specification(ledger, Specification((HOME, Secret(9, 4, "always", "1/3", "pump")), "new"))
    ledger.charge(7, 10)
    saved = ledger.snapshot()
    again = MemoryLedger(policy, 1000)
    again.restore(saved)
    assert again.remaining(8) == ledger.remaining(8)
    assert specifications_of(again) == specifications_of(ledger)
    with pytest.raises(SnapshotError):
        MemoryLedger(policy, 1000).restore({**saved, "amendments": np.array([1, 2], dtype=np.uint8)})


def test_spans_are_refused():
    """A span counts once in each window, which has no meaning for placements."""
    with pytest.raises(LedgerError, match="charge each of its steps"):
        MemoryLedger(Swellfish(specifications=[HOUSE]), 10).charge_span(1, 3, 1)


def durable(path):
    """A ledger on disk with two households, one of them added at step 7 and the first withdrawn at step 9."""
    ledger = SQLiteLedger(path, Swellfish(specifications=[HOUSE], longest=6), 1000)
    for step in range(1, 7):
        ledger.charge(step, 40)
    add_specification(ledger, Specification((HOME, Secret(9, 4, "always", "1/3", "pump")), "new"))
    ledger.charge_batch(7, np.array([5, 6, 7]))
    withdraw_specification(ledger, "house")
    ledger.charge_batch(10, np.array([5, 6]))
    return ledger


def test_a_file_can_be_verified_without_its_program(tmp_path):
    """The policy, its amendments and all charges are in the file; verify replays every promise."""
    with durable(tmp_path / "ledger") as ledger:
        assert ledger.verify().ok
        remaining = ledger.remaining(12)
    verdict = verify_file(tmp_path / "ledger")
    assert verdict.ok
    assert "every placement" in str(verdict)
    with SQLiteLedger(tmp_path / "ledger") as again:
        assert [each.ends < 2**60 for each in specifications_of(again)] == [True, False]
        assert again.remaining(12) == remaining


def test_amendments_before_a_checkpoint_are_in_force_after_opening(tmp_path, monkeypatch):
    """A checkpoint keeps charges; the specifications come from their rows."""
    with durable(tmp_path / "ledger") as ledger:
        with ledger.transaction():
            ledger._write_checkpoint()
        remaining = ledger.remaining(12)
    with SQLiteLedger(tmp_path / "ledger") as again:
        assert again.remaining(12) == remaining
        assert again.verify().ok


def test_a_broken_promise_in_a_file_is_found(tmp_path):
    """A row that spends too much for one secret is named, even when its hash is right."""
    path = tmp_path / "ledger"
    with SQLiteLedger(path, Swellfish(specifications=[HOUSE]), 1000) as ledger:
        ledger.charge(3, 600)
        ledger._account.promises.check = lambda low, begin, units: (None, np.zeros(3, dtype=np.int64))
        ledger.charge(4, 401)
    verdict = verify_file(path)
    assert not verdict.ok
    assert verdict.bad_row == 2
    with sqlite3.connect(path) as database:
        database.execute("UPDATE charges SET units = 1 WHERE row = 1")
    assert verify_file(path).bad_row == 1
