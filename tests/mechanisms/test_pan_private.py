"""Pan-private BD and BA: what an intruder finds, what it costs, and what the printed variants give away."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import BudgetExceeded, InvalidInput, InvalidParameter
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution
from tidegate.noise.entropy import UNBUFFERED
from tidegate.releases import Status
from tidegate.testing.conformance import LoudEntropy
from tidegate.testing.entropy import fixed_entropy, install, zero_noise

BOTH = pytest.mark.parametrize("kind", [BudgetAbsorption, BudgetDistribution])
MODES = pytest.mark.parametrize("mode", ["single", "announced"])
WEIGHT = 7_319_064_211  # one event; no multiple of it comes about by chance


def numbers(thing, seen=None):
    """Every number that can be reached from an object's attributes, arrays and containers included."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | bytes | type):
        return
    seen.add(id(thing))
    if isinstance(thing, bool | int | float | np.generic):
        yield float(thing)
    elif isinstance(thing, np.ndarray):
        yield from thing.astype(float).ravel().tolist()
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from numbers(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from numbers(value, seen)
    elif hasattr(thing, "__dict__"):
        yield from numbers(vars(thing), seen)


@BOTH
@MODES
def test_the_state_between_two_events_is_noised(kind, mode):
    """The whole state after every single event contains no raw count, no event, and no difference of two."""
    with install(LoudEntropy()):
        run = Session(kind(tg.WEvent(epsilon="1", w=3), columns=3, pan_private=mode))
    run.open_step()
    for number in range(40):
        run.arrive(number % 3, WEIGHT)
        found = set(numbers(run))
        raw = {float(WEIGHT * k) for k in range(1, 41)}
        assert not found & raw
        assert not {float(value) for value in numbers(run.snapshot)} & raw
        if number % 7 == 6:
            run.close_step()
            assert not set(numbers(run)) & raw
            run.open_step()


@BOTH
@MODES
def test_an_empty_step_looks_like_any_other(kind, mode):
    """The state has the same shape, and the ledger the same charges, whether anybody was there or not."""
    runs = [Session(kind(tg.WEvent(epsilon="1", w=3), columns=2, pan_private=mode)) for _ in range(2)]
    for run in runs:
        run.open_step()
    runs[1].arrive(0)
    assert runs[0].memory().keys() == runs[1].memory().keys()
    assert [np.shape(v) for v in runs[0].memory().values()] == [
        np.shape(v) for v in runs[1].memory().values()
    ]
    assert runs[0].ledger.spent() == runs[1].ledger.spent() > 0


def test_a_refused_announcement_forgets_the_cells():
    """On a ledger that somebody else has emptied nothing more of the seen step is kept or published."""
    policy = tg.WEvent(epsilon="1", w=3)
    ledger = MemoryLedger(policy, units=6)
    run = BudgetAbsorption(policy, pan_private="announced").start(ledger=ledger)
    run.open_step()
    run.arrive(0, 5)
    ledger.charge(1, 5)
    with pytest.raises(BudgetExceeded):
        run.announce_intrusion()
    assert run.memory()["counts"].size == 0
    assert run.close_step().status is not Status.FRESH
    assert ledger.verify().ok


@BOTH
@MODES
def test_events_and_whole_steps_are_the_same(kind, mode):
    """Events one by one, in any order, give what a pushed vector gives, also after a restore in mid-step."""
    mechanism = kind(tg.WEvent(epsilon="2", w=3), columns=3, pan_private=mode)
    rows = np.array([[2, 0, 1], [0, 0, 0], [9, 9, 9], [400, 0, 0], [400, 1, 0], [0, 0, 3], [5, 5, 5]])
    with fixed_entropy(5):
        whole = Session(mechanism)
        expected = [whole.push(row) for row in rows]
        single = Session(mechanism)
        for row, release in zip(rows, expected, strict=True):
            events = [column for column, count in enumerate(row) for _ in range(count)]
            single.open_step()
            for number, column in enumerate(reversed(events)):
                single.arrive(column)
                if number == 1:
                    single = mechanism.start(state=single.snapshot())
            got = single.close_step()
            assert got.values.tolist() == release.values.tolist()
            assert (got.step, got.status, got.spent) == (release.step, release.status, release.spent)


@settings(max_examples=60)
@given(
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from([BudgetAbsorption, BudgetDistribution]),
    st.lists(st.tuples(st.sampled_from([0, 3, 10**6]), st.integers(0, 2)), min_size=8, max_size=40),
    st.integers(0, 9),
)
def test_no_window_is_over_budget_whatever_the_intruder_does(w, columns, kind, steps, seed):
    """One unnoticed look at the worst moment, or announced ones at any: Σ ε₁ + Σ ε₂ stays within ε."""
    for mode in ("single", "announced"):
        policy = tg.WEvent(epsilon="1", w=w)
        with fixed_entropy(seed):
            run = Session(kind(policy, columns=columns, pan_private=mode))
            tests = run.mechanism.shares[1] * run.ledger.unit
            known, hidden = [], []
            for value, intrusions in steps:
                run.open_step()
                run.arrive(0, value)
                offered = max(0, run.memory()["amount"]) * run.ledger.unit
                for _ in range(intrusions if mode == "announced" else 0):
                    run.announce_intrusion()
                    run.arrive(columns - 1, 1)
                release = run.close_step()
                seen = release.status is Status.FRESH
                known.append(tests + (offered if seen else 0))
                hidden.append(0 if seen or mode == "announced" else offered)
                if mode == "announced" and intrusions and offered:
                    assert seen, "an announced intrusion forces the publication"
        for first in range(len(known)):
            extra = max(hidden[first : first + w], default=0)
            assert sum(known[first : first + w]) + extra <= 1


def test_the_printed_pool_of_distribution_overspends():
    """A third of what remains of ε/2 tends to ε/2; with the intrusion's ε/6 that is 7ε/6."""
    w = 60
    with zero_noise():
        run = Session(BudgetDistribution(
            tg.WEvent(epsilon="1", w=w), pan_private="single", calibration="paper"
        ))
        published = Fraction(0)
        for step in range(w):
            before = run.ledger.spent()
            run.push([10**9 * (step % 2 + 1)])
            published += run.ledger.spent() - before - Fraction(1, 2 * w)
    assert published > Fraction(49, 100)
    assert "1.1666" not in str(run.mechanism.guarantee)
    assert "7/6" in str(run.mechanism.guarantee)


@BOTH
def test_the_printed_variant_gives_later_arrivals_away(kind):
    """Published minus intruded is exactly what arrived in between; under the sound one it carries fresh noise."""
    differences = {}
    for calibration in ("paper", "sound"):
        exact = 0
        for seed in range(60):
            with fixed_entropy(seed):
                run = Session(kind(
                    tg.WEvent(epsilon="1/10", w=2), pan_private="single", calibration=calibration
                ))
                run.open_step()
                run.arrive(0, 10**6)
                intruded = int(run.memory()["counts"][0])
                run.arrive(0, 3)
                release = run.close_step()
            assert release.status is Status.FRESH
            exact += int(release.values[0]) - intruded == 3
        differences[calibration] = exact
    assert differences["paper"] == 60
    assert differences["sound"] < 15  # chance of noise 0 at scale 20 and more: below 3 % a run


def test_no_future_noise_waits_in_memory():
    """A pan-private run takes each word from the operating system, never from a pool that an intruder could read."""
    run = Session(BudgetAbsorption(tg.WEvent(epsilon="1", w=3), columns=2, pan_private="single"))
    assert run.source is UNBUFFERED
    assert not vars(run.source)
    assert not run.ledger.marked
    values = {run.push([5, 5]).values[0] for _ in range(20)}
    assert len(values) > 1


def test_refusals():
    """Options that were not worked out together, columns that do not exist, intrusions that were excluded."""
    policy = tg.WEvent(epsilon="1", w=3)
    with pytest.raises(InvalidParameter, match="choose one of them"):
        BudgetAbsorption(policy, columns=4, groups=2, pan_private="single")
    with pytest.raises(InvalidParameter, match="'single', 'announced' or None"):
        BudgetAbsorption(policy, pan_private="twice")
    with pytest.raises(InvalidParameter, match="before it arrives"):
        BudgetAbsorption(policy, pan_private="single", rounding="nearest")
    run = Session(BudgetAbsorption(policy, pan_private="single"))
    with pytest.raises(InvalidInput, match="call open_step"):
        run.arrive(0)
    with pytest.raises(InvalidInput, match="call open_step"):
        run.close_step()
    run.open_step()
    with pytest.raises(InvalidInput, match="columns are 0 to 0"):
        run.arrive(1)
    with pytest.raises(InvalidInput, match="at most one intrusion"):
        run.announce_intrusion()
    run.arrive(0)
    with pytest.raises(InvalidInput, match="a step is in progress"):
        run.push([1])
    with pytest.raises(InvalidInput, match="a step is in progress"):
        run.open_step()
    assert "at most once" in str(run.mechanism.guarantee)
