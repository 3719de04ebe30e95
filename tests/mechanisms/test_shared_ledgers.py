"""Runs on one ledger: rollbacks, refusals inside of transactions, snapshots of what is shared, steps with numbers."""

import sys
import threading

import numpy as np
import pytest

import tidegate as tg
from tidegate.errors import BudgetExceeded, LedgerError, LedgerMismatch, SnapshotError
from tidegate.ledger import MemoryLedger
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.mechanisms import (
    BinaryTree,
    Blocks,
    BudgetAbsorption,
    BudgetDistribution,
    OptStream,
    Sample,
    Uniform,
)
from tidegate.mechanisms.snapshot import pack
from tidegate.testing import fixed_entropy, zero_noise

POLICY = tg.WEvent(epsilon="1", w=4)
BOTH = pytest.mark.parametrize("kind", [BudgetAbsorption, BudgetDistribution])
PLACES = pytest.mark.parametrize("place", ["memory", "file"])


def open_ledger(place, tmp_path, units, policy=POLICY):
    """A new ledger in memory or in a file."""
    return MemoryLedger(policy, units) if place == "memory" else SQLiteLedger(tmp_path / "l", policy, units)


def rolled_back(ledger, *work):
    """Do some work in a transaction that fails."""

    def failing():
        with ledger.transaction(unseen=True):
            for each in work:
                each()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()


@PLACES
def test_charges_of_another_run_do_not_hide_a_rollback(place, tmp_path):
    """As many rows as before, but others: the run whose charges are gone notices, the other goes on."""
    with open_ledger(place, tmp_path, 8) as ledger:
        one, other = (
            Uniform(tg.WEvent(epsilon="1", w=4), noise="laplace").start(ledger=ledger) for _ in range(2)
        )
        one.push(1)
        rolled_back(ledger, lambda: one.push(2))
        for _ in range(2):
            other.push(1)
        with pytest.raises(LedgerMismatch, match="taken back"):
            one.push(2)
        with pytest.raises(LedgerMismatch, match="taken back"):
            one.snapshot()
        assert other.push(1).step == 3
        assert ledger.verify().ok


@PLACES
def test_a_rollback_inside_a_transaction_that_goes_on_is_noticed(place, tmp_path):
    """The inner rows are gone, the outer ones are committed, and the file is sound."""
    with open_ledger(place, tmp_path, 8) as ledger:
        one, other = (
            Uniform(tg.WEvent(epsilon="1", w=4), noise="laplace").start(ledger=ledger) for _ in range(2)
        )
        with ledger.transaction(unseen=True):
            other.push(1)
            rolled_back(ledger, lambda: one.push(1))
            other.push(1)
        with pytest.raises(LedgerMismatch, match="taken back"):
            one.push(1)
        assert other.push(1).step == 3
        assert ledger.verify().ok
    if place == "file":
        with SQLiteLedger(tmp_path / "l") as again:
            assert again.step == 3


def test_a_snapshot_of_a_step_that_was_taken_back_is_refused():
    """It stands at a step, and at a number of rows, that the ledger reaches again by other charges."""
    mechanism = BinaryTree(tg.Event(epsilon="1"), horizon=9)
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    run, states = mechanism.start(ledger=ledger), []
    rolled_back(ledger, lambda: run.push(1), lambda: states.append(run.snapshot()))
    ledger.charge(1, 1)
    with pytest.raises(LedgerMismatch, match="not that of the snapshot"):
        mechanism.start(ledger=ledger, state=states[0])


@BOTH
@PLACES
def test_decisions_on_a_shared_ledger_are_not_made_inside_a_transaction(kind, place, tmp_path):
    """A refusal would tell of them, and the rollback that follows it would take back what they cost."""
    mechanism = kind(POLICY)
    with open_ledger(place, tmp_path, mechanism.units) as ledger:
        ledger.charge(3, mechanism.units // 2)
        run = mechanism.start(ledger=ledger).begin_at(3)
        with pytest.raises(LedgerMismatch, match="decides on raw data"), ledger.transaction():
            run.push_batch([[10**6], [10**6], [0]])
        with pytest.raises(LedgerMismatch, match="decides on raw data"), ledger.transaction():
            run.push([10**6])
        assert ledger.spent(3, 3) == POLICY.epsilon / 2
        assert run.push([10**6]).step == 3  # outside of a transaction it goes on


@BOTH
def test_pan_private_runs_neither(kind):
    """Nor do they open or close a step in one."""
    mechanism = kind(POLICY, pan_private="single")
    ledger = MemoryLedger(POLICY, mechanism.units)
    ledger.charge(1, 1)
    run = mechanism.start(ledger=ledger)
    with pytest.raises(LedgerMismatch, match="decides on raw data"), ledger.transaction():
        run.open_step()
    run.open_step()
    with pytest.raises(LedgerMismatch, match="decides on raw data"), ledger.transaction():
        run.close_step()
    assert run.close_step().step == 2


@BOTH
def test_what_others_spend_while_a_step_is_open_tells_of_no_decision(kind):
    """A publication that cannot be paid for any more is not decided upon: no refusal, whatever the data."""
    mechanism = kind(POLICY, pan_private="single")
    for value in (0, 10**7):
        ledger = MemoryLedger(POLICY, mechanism.units)
        with zero_noise():
            run = mechanism.start(ledger=ledger)
        run.open_step()
        run.arrive(0, value)
        ledger.charge(1, int(ledger.remaining(1) / ledger.unit))
        release = run.close_step()
        assert not release.fresh
        assert release.values.tolist() == [0.0]


@BOTH
def test_one_that_has_its_ledger_to_itself_may_be_pushed_in_a_transaction(kind, tmp_path):
    """As the durable runtime does, which commits charges and releases together; also after a restart."""
    mechanism = kind(POLICY)
    with SQLiteLedger(tmp_path / "l", POLICY, mechanism.units) as ledger:
        run = mechanism.start(ledger=ledger)
        with ledger.transaction(unseen=True):
            run.push_batch(np.full((5, 1), 9))
            state = run.snapshot()
    with SQLiteLedger(tmp_path / "l", POLICY, mechanism.units) as ledger:
        run = mechanism.start(ledger=ledger, state=state)
        with ledger.transaction(unseen=True):
            assert run.push([9]).step == 6


def test_two_runs_restored_from_one_ledger_spend_its_budget_once():
    """Each with a copy of the account would spend it: together they are held to ε."""
    mechanism = Uniform(POLICY, noise="laplace")
    ledger = MemoryLedger(POLICY, 8)
    with fixed_entropy(1):
        one, other = (mechanism.start(ledger=ledger) for _ in range(2))
    one.push(1)
    for run in (one, other):
        with pytest.raises(SnapshotError, match="has no account"):
            mechanism.start(state=run.snapshot())
    states, saved = [run.snapshot() for run in (one, other)], ledger.snapshot()
    again = MemoryLedger(POLICY, 8)
    again.restore(saved)
    one, other = (mechanism.start(ledger=again, state=state) for state in states)
    one.push_batch([1, 1, 1])
    with pytest.raises(BudgetExceeded):
        other.push_batch([1, 1, 1, 1, 1])
    assert again.verify().ok


def test_a_restored_ledger_is_known_by_its_name():
    """Another ledger that stands at the same step with as many rows is refused."""
    mechanism = Uniform(POLICY, noise="laplace")
    ledgers = [MemoryLedger(POLICY, 8) for _ in range(2)]
    runs = [mechanism.start(ledger=ledger) for ledger in ledgers]
    beside = [mechanism.start(ledger=ledger) for ledger in ledgers]
    for run in runs:
        run.push(1)
    with pytest.raises(LedgerMismatch, match="not that of the snapshot"):
        mechanism.start(ledger=ledgers[1], state=runs[0].snapshot())
    assert len(beside) == 2


def test_who_joins_late_begins_at_the_present_step():
    """Also behind a run whose last steps were silent."""
    mechanism = Sample(POLICY)
    ledger = MemoryLedger(POLICY, mechanism.units)
    first = mechanism.start(ledger=ledger)
    for _ in range(7):
        first.push(1)
    late = mechanism.start(ledger=ledger)
    assert (late.step, late.origin) == (7, 7)
    assert late.push(1).step == first.push(1).step == 8


def test_a_run_says_where_its_data_begin():
    """Steps have the same numbers in all runs: one over the same data is charged for the same steps, or refused."""
    mechanism = Uniform(POLICY, noise="laplace")
    ledger = MemoryLedger(POLICY, mechanism.units)
    mechanism.start(ledger=ledger).push_batch([1, 1, 1])
    again = mechanism.start(ledger=ledger).begin_at(1)
    assert (again.step, again.origin) == (0, 0)
    with pytest.raises(BudgetExceeded):
        again.push_batch([1, 1, 1])
    later = mechanism.start(ledger=ledger).begin_at(9)
    assert later.push(1).step == 9
    with pytest.raises(tg.errors.InvalidInput, match="already"):
        later.begin_at(12)


def interrupted_at(line, work):
    """Do some work, with an interruption at the so many-th line of the package's own code; whether it came."""
    left = line

    def watch(frame, event, argument):
        nonlocal left
        if "tidegate" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize(
    "mechanism",
    [
        Uniform(POLICY),
        BinaryTree(POLICY, horizon=40),
        BudgetAbsorption(POLICY),
        OptStream(POLICY, samples=2),
        Blocks(Uniform(tg.User(epsilon="1/2", horizon=2))),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_an_interruption_at_any_line_leaves_no_trace_or_ends_the_run(mechanism, place, tmp_path):
    """The ledger is sound, its file too, and a run that goes on stands where it stood or where its charges stand."""
    came, line, stride = True, 0, 1 if place == "memory" else 7
    while came:
        line += stride
        folder = tmp_path / str(line)
        folder.mkdir()
        ledger = open_ledger(place, folder, mechanism.units, mechanism.policy)
        run = mechanism.start(ledger=ledger)
        run.push_batch(np.full((3, 1), 5))
        before = (pack({}, run._state()), ledger.position, run.step)
        came = interrupted_at(line, lambda: run.push_batch(np.full((3, 1), 5)))  # noqa: B023  called at once
        if came:
            try:
                run.snapshot()
            except LedgerError:
                assert run._unusable or ledger._closed
            else:
                after = (pack({}, run._state()), ledger.position, run.step)
                assert after == before or (run.step == 6 and ledger.step == 6), f"line {line}"
        if not ledger._closed:
            assert ledger.verify().ok
            assert ledger.step in (3, 6) or run._unusable
            assert mechanism.start(ledger=ledger).step == ledger.step  # others may begin on it
        ledger.close()
        if place == "file":
            with SQLiteLedger(folder / "l", read_only=True) as again:
                assert again.verify().ok
                assert again.step >= 3
    assert line > 30


@pytest.mark.parametrize("steps", [1, 2, 30], ids=["opens a group", "in a group", "in a later group"])
def test_an_interruption_of_a_push_leaves_its_charge_or_ends_the_run(steps):
    """A step whose charge the loop made and the ledger kept is charged once; a run that goes on has not lost it."""
    mechanism = BudgetAbsorption(tg.WEvent(epsilon="1", w=40), noise="cube")
    came, line = True, 0
    while came:
        line += 1
        ledger = MemoryLedger(mechanism.policy, mechanism.units)
        run = mechanism.start(ledger=ledger)
        for _ in range(steps - 1):
            run.push(5)
        came = interrupted_at(line, lambda: run.push(5))  # noqa: B023  called at once
        if came and not run._unusable:
            assert (run.step, ledger.step) in ((steps - 1, steps - 1), (steps, steps)), f"line {line}"
            assert run.push(5).step == run.step
        assert ledger.verify().ok
    assert line > 30


def test_threads_take_turns_with_a_run():
    """Pushes of one run from many threads at once: every step is released once, and no update of the noise is lost."""
    mechanism = Uniform(tg.WEvent(epsilon="1", w=60), noise="cube")
    length = mechanism.sharing.choice.lengths[0]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            run, steps, barrier = mechanism.start(), [], threading.Barrier(4)

            def work(run=run, steps=steps, barrier=barrier):
                barrier.wait()
                steps.extend(run.push(0).step for _ in range(6))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(steps) == list(range(1, 25))
            assert run._noise.state.remaining == -24 % length
    finally:
        sys.setswitchinterval(interval)


def test_a_used_ledger_takes_no_snapshot_of_another():
    """What was spent is not forgotten by restoring another account, however many rows that has."""
    policy = tg.WEvent(epsilon="1", w=10)
    ledger, other = MemoryLedger(policy, 10), MemoryLedger(policy, 10)
    ledger.charge(1, 10)
    for _ in range(3):
        other.charge(1, 0)
    empty = MemoryLedger(policy, 10).snapshot()
    twin = MemoryLedger(policy, 10)
    twin.restore({**empty, "identity": ledger.known_as})  # as if it had been restored before the charge
    for _ in range(3):
        twin.charge(1, 0)
    for account in (other, twin):
        with pytest.raises(SnapshotError, match="new ledger"):
            ledger.restore(account.snapshot())
    assert ledger.spent() == 1
