"""Ledgers in memory, by hand."""

from __future__ import annotations

import os
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.composition.optimal import slots_of
from tidegate.errors import (
    BudgetExceeded,
    InvalidInput,
    InvalidParameter,
    LedgerBusy,
    LedgerError,
    LedgerMismatch,
    SnapshotError,
)
from tidegate.ledger import Charge, MemoryLedger, open_ledger
from tidegate.ledger import kernels as k
from tidegate.ledger.parallel import ParallelLedger
from tidegate.ledger.rows import decode_batch, encode_batch
from tidegate.policy import Event, User, WEvent

POLICY = WEvent(epsilon="1", w=3)


def ledger(units=6, policy=POLICY):
    """A ledger with windows of three steps and six units."""
    return MemoryLedger(policy, units)


def test_refusal_says_spent_requested_remaining_and_window():
    """A refusal carries exact fractions and the window, and charges nothing."""
    book = ledger()
    book.charge(1, 2)
    book.charge(2, 3)
    with pytest.raises(BudgetExceeded) as refused:
        book.charge(3, 2)
    error = refused.value
    assert (error.spent, error.requested, error.remaining) == (Fraction(5, 6), Fraction(1, 3), Fraction(1, 6))
    assert (error.window, error.step, book.step) == ((1, 3), 3, 2)
    book.charge(3, 1)
    book.charge(4, 2)  # step 1 has left the window


def test_remaining_and_spent():
    """What is left at a step counts the fullest window that contains it."""
    book = ledger()
    book.charge_batch(1, [1, 2, 3])
    assert book.remaining() == Fraction(1, 6)
    assert book.remaining(5) == Fraction(3, 6)
    assert book.remaining(2) == 0
    assert book.spent() == 1
    assert book.spent(2, 3) == Fraction(5, 6)
    book.charge_batch(4, [1] * 10)
    with pytest.raises(LedgerError, match="no longer kept"):
        book.spent(1, 2)


def test_groups_cost_the_largest_and_levels_add():
    """Disjoint groups of one step cost their maximum, levels of a tree their sum."""
    assert Charge(1, 1, 1, groups={"a": 2, "b": 3}, levels={"x": 1, "y": 1}).total == 6
    book = ledger()
    book.charge(1, groups={"a": 2, "b": 3})
    book.charge(1, levels={"x": 1, "y": 1}, units=1)
    assert book.remaining(1) == 0


def test_late_charge_is_checked_against_every_window():
    """A charge to an earlier step counts in windows that have moved on since."""
    book = ledger()
    book.charge_batch(1, [3, 0, 0, 0, 5])
    with pytest.raises(BudgetExceeded) as refused:
        book.charge(3, 2)
    assert refused.value.window == (3, 5)
    book.charge(3, 1)
    assert book.spent() == 1
    with pytest.raises(LedgerError, match="cannot be charged any more"):
        book.charge(2, 0)
    assert book.step == 5


def test_late_charge_sees_windows_older_than_the_last():
    """The window that ends at the late step may hold charges that the last window does not."""
    book = ledger()
    book.charge_batch(1, [6, 0, 0, 0])
    book.charge(3, 0)
    with pytest.raises(BudgetExceeded) as refused:
        book.charge_batch(2, [1, 0])  # windows 1 to 3 and 2 to 4
    assert refused.value.window == (1, 2)
    book.charge(4, 6)


def test_late_charge_is_added_where_everything_ever_charged_adds_up():
    """Without a window an earlier step has what the later ones have left, to the last unit."""
    book = MemoryLedger(User(epsilon="1", horizon=9), 4)
    book.charge(5, 3)
    with pytest.raises(BudgetExceeded):
        book.charge(2, 2)
    book.charge(2, 1)
    assert book.remaining(9) == 0


def test_a_public_schedule_of_a_user_forgets_no_step():
    """Charges that compose are judged together with those of all steps before, however long ago."""
    book = MemoryLedger(User(epsilon="1", delta="1e-6", horizon=9), 4, schedule="public")
    book.charge_batch(1, [1] * 4)
    with pytest.raises(BudgetExceeded):
        book.charge(9, 1)


def test_ledgers_side_by_side_have_left_what_the_fullest_has():
    """A charge is made to every part, so the one that has the least says what may be charged."""
    parts = [ledger(policy=WEvent(epsilon="1", w=3, mobility="fixed")) for _ in range(2)]
    parts[1].charge(1, 5)
    assert ParallelLedger(parts).remaining(1) == parts[1].remaining(1) == parts[1].unit


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_units_of_a_batch_are_read_as_they_were_written(width):
    """The largest number of each width, and the first that needs the next one."""
    border = 2 ** (8 * width - 1)
    for largest in (border - 1, min(border, 2**63 - 1)):
        units = np.array([0, largest, 1, largest, 2], dtype=np.int64)
        assert decode_batch(encode_batch(units)).tolist() == units.tolist()


def test_second_run_on_one_ledger_in_batches():
    """Two runs share one budget, also when the second lags behind and overtakes."""
    book = MemoryLedger(WEvent(epsilon="1", w=100), 200)
    book.charge_batch(1, np.ones(50, dtype=int))
    book.charge_batch(1, np.ones(80, dtype=int))
    assert (book.step, book.spent()) == (80, Fraction(130, 200))
    with pytest.raises(BudgetExceeded):
        book.charge_batch(60, np.full(30, 3))
    assert (book.step, book.spent()) == (80, Fraction(130, 200))


def test_span_counts_once_in_each_window_it_meets():
    """A span is felt from its first step until the last window that meets it has passed."""
    book = ledger()
    book.charge_span(2, 4, 4)
    assert [book.remaining(step) for step in (2, 4, 6, 7)] == [Fraction(n, 6) for n in (2, 2, 2, 6)]
    book.charge_batch(3, [2, 0, 0, 2])
    with pytest.raises(LedgerMismatch, match="at its first step"):
        book.charge_span(2, 9, 1)
    with pytest.raises(BudgetExceeded):
        book.charge_span(6, 9, 1)
    book.charge(7, 4)
    assert book.verify().spent == 1


def test_event_level_and_user_level():
    """Event: each step has the whole budget. User: all steps share it, and the horizon ends it."""
    event = MemoryLedger(Event(epsilon="1"), 2)
    event.charge_batch(1, [2, 2, 2])
    with pytest.raises(BudgetExceeded):
        event.charge(3, 1)
    user = MemoryLedger(User(epsilon="1", horizon=10), 10)
    user.charge_batch(1, [4] * 2)
    user.charge(1, 1)
    with pytest.raises(BudgetExceeded) as refused:
        user.charge(9, 2)
    assert refused.value.window == (1, 9)
    with pytest.raises(LedgerError, match="ends at step 10"):
        user.charge(11, 0)
    assert (user.spent(), user.remaining()) == (Fraction(9, 10), Fraction(1, 10))
    assert "all steps together spent no more than 1 (they spent 0.9)" in str(user.verify())


def test_concentrated_budget_adds():
    """ρ composes by addition."""
    book = MemoryLedger(WEvent(rho="1/2", w=4), 4)
    book.charge_batch(1, [1] * 9)
    assert (book.unit, book.spent()) == (Fraction(1, 8), Fraction(1, 2))


def test_approximate_budget_counts_optimal_steps():
    """A unit is the largest step of which N are (ε, δ)-private; a large charge costs the units that dominate it."""
    policy = WEvent(epsilon="0.1", delta="8.5e-9", w=672)
    book = MemoryLedger(policy, 672)
    assert round(1 / float(book.unit)) == 1196
    book.charge_batch(1, np.ones(672, dtype=int))
    with pytest.raises(BudgetExceeded):
        book.charge(672, 1)
    other = MemoryLedger(policy, 672)
    other.charge(1, 2)
    assert other.spent() == 7 * other.unit
    with pytest.raises(BudgetExceeded):
        other.charge(2, 100)
    public = MemoryLedger(policy, 672, schedule="public")
    public.charge(1, 100)  # exact composition allows it where the schedule is public
    public.charge_batch(2, [1] * 10)
    assert public.spent() == 110 * public.unit
    with pytest.raises(BudgetExceeded) as refused:
        public.charge(13, 100)
    assert refused.value.requested == 100 * public.unit
    assert public.verify().ok


def test_enormous_window_costs_only_what_was_seen():
    """A window of 2^40 steps needs no array of that length, nor does a jump."""
    book = MemoryLedger(WEvent(epsilon="1", w=2**40), 2**40)
    book.charge(1, 5)
    book.charge(2**39, 7)
    assert book.spent() == 12 * book.unit
    book.charge(2**40, 0)
    book.charge(2**40 + 1, 0)
    assert book.spent() == 7 * book.unit
    assert book._account.entries.nbytes < 10**5


@pytest.mark.parametrize("window", [1, 7, 10_000])
def test_memory_is_bounded(window):
    """Ten million steps leave no more than a few windows in memory."""
    book = MemoryLedger(WEvent(epsilon="1", w=window), window)
    ones = np.ones(10**6, dtype=np.int64)
    for _ in range(10):
        book.charge_batch(book.step + 1, ones)
    for step in range(book.step + 1, book.step + 3000):
        book.charge(step, 1)
    assert book._account.entries.nbytes <= max(16 * 512, 16 * 8 * window)
    verdict = book.verify()
    assert verdict.ok
    assert (verdict.steps, verdict.spent) == (10**7 + 2999, 1)


def test_snapshot_is_small_and_restores():
    """A periodic account is a few numbers, and the restored one refuses the same."""
    book = MemoryLedger(WEvent(epsilon="1", w=1000), 1000)
    book.charge_batch(1, np.ones(5000, dtype=int))
    book.charge_span(5000, 5004, 0)
    saved = book.snapshot()
    assert len(saved["runs"]) <= 2
    again = MemoryLedger(WEvent(epsilon="1", w=1000), 1000)
    again.restore(saved)
    assert (again.step, again.spent(), again.rows) == (5000, 1, book.rows)
    with pytest.raises(BudgetExceeded):
        again.charge(5001, 2)
    again.charge(5001, 1)


def test_bad_snapshots_are_refused():
    """Another policy, a damaged total, a missing field, or one that would forget spends."""
    book = ledger()
    book.charge_batch(1, [1, 2, 3])
    saved = book.snapshot()
    with pytest.raises(SnapshotError, match="another policy"):
        MemoryLedger(WEvent(epsilon="1", w=4), 6).restore(saved)
    numbers = saved["numbers"].copy()
    numbers[k.TOTAL] = 0
    for damaged in ({**saved, "numbers": numbers}, {"numbers": saved["numbers"]}, {**saved, "runs": "x"}):
        with pytest.raises(SnapshotError, match="damaged"):
            ledger().restore(damaged)
    again = ledger()
    again.restore(saved)
    again.charge(3, 0)
    for later in (again, book):
        later.charge(max(later.step, 3), 0)
        with pytest.raises(SnapshotError, match="forgotten"):
            later.restore(saved)


def test_batch_lent_to_a_compiled_loop():
    """A loop's charges become rows by `record`; without it, or when it fails, nothing was charged."""
    book = ledger()
    book.charge(1, 1)
    with book.begin_batch(3) as batch:
        assert [k.account_charge(batch.entries, batch.state, step, 3) for step in (2, 3, 4)] == [
            k.ACCEPTED,
            k.REFUSED,
            k.ACCEPTED,
        ]
        with pytest.raises(LedgerBusy, match="under way"):
            book.charge(9, 1)
    assert (book.step, book.spent()) == (1, Fraction(1, 6))
    with book.begin_batch(3) as batch:
        k.account_charge(batch.entries, batch.state, 2, 3)
        batch.record(2, [3, 0, 2])
    assert (book.step, book.rows) == (4, 2)
    with book.begin_batch(1) as batch, pytest.raises(BudgetExceeded) as refused:
        batch.refuse(5, 9)
    assert refused.value.spent == Fraction(2, 6)
    with book.begin_batch(1) as batch, pytest.raises(BudgetExceeded):
        batch.record(5, [9])
    assert book.step == 4


def test_transaction_in_memory_rolls_back():
    """An exception takes back every charge of a transaction."""
    book = ledger()

    def fail():
        with book.transaction():
            book.charge(1, 6)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (book.step, book.rows, book.spent()) == (0, 0, 0)


def test_bad_input_charges_nothing():
    """Floats, negatives, matrices, booleans and step 0 are refused with a sentence."""
    book = ledger()
    for step, units in ((0, 1), (1, -1), (1, 1.0), (1, True), (1.5, 1), (2**63, 1), (1, 2**63)):
        with pytest.raises(InvalidParameter):
            book.charge(step, units)
    for units in ([0.5], [[1]], [-1], np.array([2**63], dtype=np.uint64), ["a"]):
        with pytest.raises(InvalidInput):
            book.charge_batch(1, units)
    with pytest.raises(InvalidParameter):
        book.charge(1, groups={"a": -1})
    with pytest.raises(InvalidParameter):
        book.charge(1, 1, scope=3, groups={"a": 1})
    with pytest.raises(InvalidParameter):
        MemoryLedger(POLICY, 0)
    with pytest.raises(InvalidParameter):
        MemoryLedger(POLICY, 1, schedule="guess")
    book.charge_batch(1, [])
    book.charge(np.int64(1), np.int64(2))
    assert (book.step, book.rows, book.spent()) == (1, 1, Fraction(2, 6))


def test_huge_late_batch_cannot_wrap_around():
    """Sums that would leave 64 bits are refused, not wrapped."""
    book = MemoryLedger(WEvent(epsilon="1", w=2**20), 2**50)
    book.charge_batch(1, np.zeros(2**15, dtype=int))
    with pytest.raises(BudgetExceeded):
        book.charge_batch(1, np.full(2**15, 2**50))
    assert book.spent() == 0


def test_fork_may_not_spend_again():
    """A child of a fork is refused, in one sentence, and the parent goes on."""
    book = ledger()
    book.charge(1, 1)
    child = os.fork()
    if child == 0:
        try:
            book.charge(2, 1)
        except LedgerBusy as error:
            os._exit(0 if "open a ledger of its own" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    book.charge(2, 1)


def test_threads_take_turns():
    """Charges from several threads never spend more than the budget together."""
    book = MemoryLedger(User(epsilon="1", horizon=5), 1000)
    granted = []

    def spend():
        for _ in range(600):
            try:
                book.charge(1, 1)
                granted.append(1)
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=spend) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(granted) == 1000
    assert book.remaining() == 0


def test_closed_ledger_and_open_ledger(tmp_path):
    """A closed ledger refuses; open_ledger chooses the store by its target."""
    with open_ledger(None, POLICY, 6) as book:
        assert isinstance(book, MemoryLedger)
    with pytest.raises(LedgerError, match="closed"):
        book.charge(1, 1)
    with open_ledger(tmp_path / "account.db", POLICY, 6) as durable:
        durable.charge(1, 1)
    assert (tmp_path / "account.db").exists()


def test_verdict_reads_as_a_sentence():
    """The verdict of a week of uniform charges, and of an empty ledger."""
    book = MemoryLedger(WEvent(epsilon="1", w=24), 24)
    assert "nothing was spent" in str(book.verify())
    book.charge_batch(1, np.ones(672, dtype=int))
    assert str(book.verify()) == (
        "ledger verified: 672 steps, no window of 24 steps spent more than 1 "
        "(the fullest, steps 1 to 24, spent 1)"
    )
    book.mark()
    assert "test entropy" in str(book.verify())
    book._account.state[k.TOTAL] = 0
    assert not book.verify()


@pytest.mark.parametrize("w", [1, 2, 5, 40])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 79, 80, 81, 500])
def test_a_repeated_amount_is_charged_like_a_written_out_one(w, count):
    """A batch that says one number many times leaves the same account as the numbers, or is refused alike."""
    policy = WEvent(epsilon="1", w=w)
    for amount in (0, 1, 2):
        spoken, written = MemoryLedger(policy, units=w + 1), MemoryLedger(policy, units=w + 1)
        outcomes = []
        for ledger, units in (
            (spoken, np.broadcast_to(np.int64(amount), count)),
            (written, np.full(count, amount)),
        ):
            ledger.charge(1, 1)
            try:
                ledger.charge_batch(3, units)
                outcomes.append("")
            except BudgetExceeded as refusal:
                outcomes.append(str(refusal))
        assert outcomes[0] == outcomes[1]
        assert str(spoken.verify()) == str(written.verify())
        one, other = spoken.snapshot(), written.snapshot()
        assert all(np.array_equal(one[name], other[name]) for name in ("spans", "runs"))
        assert spoken.remaining() == written.remaining()


@settings(max_examples=150)
@given(
    window=st.one_of(st.none(), st.integers(1, 6)),
    batches=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=5),
    quiet=st.booleans(),
)
def test_what_a_loop_charged_stays_as_if_it_was_charged_at_once(window, batches, quiet):
    """The account after a compiled loop is that of `charge_batch`, whether or not the loop charges nothing to a step."""
    policy = User(epsilon="1", horizon=60) if window is None else WEvent(epsilon="1", w=window)
    looped, at_once = MemoryLedger(policy, units=200), MemoryLedger(policy, units=200)
    assert looped.keeps_batches
    first = 1
    for units in batches:
        with looped.begin_batch(len(units)) as batch:
            for step, amount in enumerate(units, first):
                for part in (amount // 2, amount - amount // 2):  # a test, then a publication
                    if part or not quiet:
                        assert k.account_charge(*batch.account, step, part) == 0
            batch.record(first, np.array(units))
        at_once.charge_batch(first, np.array(units))
        first += len(units)
        one, other = looped.snapshot(), at_once.snapshot()
        assert all(np.array_equal(one[name], other[name]) for name in ("numbers", "spans", "runs", "rows"))
        assert looped.remaining() == at_once.remaining()
        assert looped.verify() == at_once.verify()


@pytest.mark.parametrize("said", [[1, 1], [2, 0], [0, 2], [1, 1, 0], [2]])
def test_what_a_loop_says_counts_not_what_it_did(said):
    """A loop that charged other amounts, or other steps, than it says: all is taken back, and what it says is charged."""
    looped, at_once = (MemoryLedger(WEvent(epsilon="1", w=3), units=9) for _ in range(2))
    with looped.begin_batch(4) as batch:
        k.account_charge(*batch.account, 1, 2)
        k.account_charge(*batch.account, 2, 1)
        batch.record(1, np.array(said))
    at_once.charge_batch(1, np.array(said))
    one, other = looped.snapshot(), at_once.snapshot()
    assert all(np.array_equal(one[name], other[name]) for name in ("numbers", "spans", "runs", "rows"))


def test_a_verdict_names_the_steps_of_the_fullest_window():
    """Three steps, the last of which is the one that filled it."""
    book = ledger()
    book.charge_batch(1, [1, 0, 1, 0, 2, 1, 3, 0, 1])
    assert book.verify().place == (5, 7)


def test_a_charge_that_no_number_of_small_ones_amounts_to_is_refused():
    """Under (ε, δ) a large charge costs as many small ones as lose as much; where all lose less, it is too much."""
    policy = WEvent(epsilon="1", delta="1e-6", w=100)
    book = MemoryLedger(policy, 100)
    size = next(size for size in range(2, 101) if slots_of(size, book.unit, book.units) is None)
    with pytest.raises(BudgetExceeded):
        book.charge(1, size)
    assert book.step == 0


def test_a_ledger_of_public_charges_is_replayed_from_its_first_step(tmp_path):
    """Charges that are compared as a whole are placed one by one, the first of them at step 1."""
    policy = User(epsilon="1", delta="1e-6", horizon=9)
    with open_ledger(tmp_path / "book.db", policy, units=4, schedule="public") as book:
        book.charge(1, 1)
        book.charge(2, 2)
        assert book.verify().ok
    with open_ledger(tmp_path / "book.db", policy, units=4, schedule="public") as again:
        assert again.step == 2
        assert again.verify().ok
