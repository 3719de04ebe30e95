"""Pan-private mechanisms on the new core: what an intruder finds, and what an announced intrusion costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core import arrays
from tidegate.core.account import Account
from tidegate.core.arrays import flat
from tidegate.core.charges import Charges
from tidegate.core.log import MemoryLog
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import SYSTEM, UNBUFFERED, current, install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import WEvent
from tidegate.releases import Status

KINDS = (BudgetAbsorption, BudgetDistribution)
ROWS = np.array([[7 * step % 40, 300 * (step % 9 == 4)] for step in range(1, 51)])
BOTH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
FORMS = pytest.mark.parametrize("form", ["single", "announced"])


def mechanism_of(kind: Any, form: str, w: int = 3, columns: int = 2) -> Any:
    """A small configuration."""
    return kind(WEvent(epsilon="4", window=w), columns=columns, pan_private=form)


@BOTH
@FORMS
@pytest.mark.parametrize("w", [1, 3, 8])
def test_steps_are_released_however_they_are_pushed(kind: Any, form: str, w: int) -> None:
    """In a batch, in odd batches, and with a new session per step; tests/transcripts has what they were."""
    new, log = mechanism_of(kind, form, w), MemoryLog()
    with install(FixedEntropy("pan")):
        expected, session = Session(new).push_batch(ROWS), Session(new)
        ways = {
            "odd": [session.push_batch(ROWS[a:b]) for a, b in ((0, 1), (1, 8), (8, 31), (31, 50))],
            "single": [Session(new, log).push_batch([row]) for row in ROWS],
        }
    for name in ("values", "status", "source", "scale", "units"):
        for way, parts in ways.items():
            found = np.concatenate([getattr(each, name) for each in parts])
            assert np.array_equal(found, getattr(expected, name)), (way, name)
    assert verify(log.rows()).ok


@BOTH
def test_an_announced_intrusion_publishes_its_step_and_pays_for_it_once(kind: Any) -> None:
    """Events one by one. What a commit of the event stores is what was seen: fresh noise comes after it."""
    new = mechanism_of(kind, "announced")
    with install(FixedEntropy("pan")):
        state, noise, account = new.begin(1), Draws(current()), Account(new.units, 3)
        for at, row in enumerate(ROWS):
            step, times, units = at + 1, (0, 1, 0, 2)[at % 4], 0
            pan_private.open_step(new, state, step, noise)
            offered = int(state.numbers[pan_private.AMOUNT])
            for column, value in enumerate(row.tolist()):
                for _ in range(times if column else 0):
                    seen, charged = state.cells.copy(), new.event(state, "intrusion", step, noise)
                    assert units == 0 or charged is None  # once for each step
                    assert units or np.array_equal(seen, state.cells)
                    units += 0 if charged is None else int(charged.units[0])
                pan_private.arrive(new, state, column, value, noise)
            found = new.advance(state, np.zeros((1, 2), dtype=np.int64), step, noise)
            account.apply(account.check(Charges(step, found.units + units)))
            if times and offered > 0:
                assert (found.status[0], units) == (int(Status.FRESH), offered)
                assert found.units[0] == new.fixed_units  # the intrusion has paid for the publication
            else:
                assert units == 0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.sampled_from([0, 3, 10**6]), st.integers(0, 2)), min_size=8, max_size=40),
    st.integers(0, 9),
)
def test_no_window_is_over_budget_whatever_the_intruder_does(
    w: int, columns: int, kind: Any, steps: list[tuple[int, int]], seed: int
) -> None:
    """One unnoticed look at the worst moment, or announced ones at any: Σ ε₁ + Σ ε₂ stays within ε."""
    for form in ("single", "announced"):
        mechanism = kind(WEvent(epsilon="1", window=w), columns=columns, pan_private=form)
        known, hidden = [], []
        with install(FixedEntropy(str(seed))):
            state, noise = mechanism.begin(1), Draws(current())
            for at, (value, intrusions) in enumerate(steps):
                pan_private.open_step(mechanism, state, at + 1, noise)
                pan_private.arrive(mechanism, state, 0, value, noise)
                offered = max(0, int(state.numbers[pan_private.AMOUNT]))
                for _ in range(intrusions if form == "announced" else 0):
                    mechanism.event(state, "intrusion", at + 1, noise)
                    pan_private.arrive(mechanism, state, columns - 1, 1, noise)
                out = mechanism.advance(state, np.zeros((1, columns), dtype=np.int64), at + 1, noise)
                seen = int(out.status[0]) == int(Status.FRESH)
                known.append(mechanism.unit_split[1] + (offered if seen else 0))
                hidden.append(0 if seen or form == "announced" else offered)
        for first in range(len(known)):
            extra = max(hidden[first : first + w], default=0)
            assert sum(known[first : first + w]) + extra <= mechanism.units


@BOTH
@FORMS
def test_the_state_between_two_events_is_noised(kind: Any, form: str) -> None:
    """After every single event no cell is a raw count, an event, or a difference of two."""
    weight = 7_319_064_211  # one event; no multiple of it comes about by chance
    raw = weight * np.arange(1, 41)
    # so much noise that no draw of it is 0
    mechanism = kind(WEvent(epsilon="1/100000", window=3), columns=3, pan_private=form)
    state, noise, step = mechanism.begin(1), Draws(FixedEntropy("noised")), 1
    pan_private.open_step(mechanism, state, step, noise)
    for number in range(40):
        pan_private.arrive(mechanism, state, number % 3, weight, noise)
        for part in flat(state):
            assert not np.isin(part, raw).any()
        if number % 7 == 6:
            mechanism.advance(state, np.zeros((1, 3), dtype=np.int64), step, noise)
            assert not state.cells.any()
            step += 1
            pan_private.open_step(mechanism, state, step, noise)


def test_options_that_were_not_worked_out_together_are_refused() -> None:
    """In one sentence."""
    policy = WEvent(epsilon="1", window=3)
    with pytest.raises(InvalidParameter, match="choose one of them"):
        BudgetAbsorption(policy, columns=4, groups=2, pan_private="single")
    with pytest.raises(InvalidParameter, match="'single', 'announced' or None"):
        BudgetAbsorption(policy, pan_private="twice")
    with pytest.raises(InvalidParameter, match="before it arrives"):
        BudgetAbsorption(policy, pan_private="single", rounding="nearest")
    assert "at most once" in str(BudgetAbsorption(policy, pan_private="single").guarantee)


@BOTH
@FORMS
def test_a_commit_has_no_cells(kind: Any, form: str, tmp_path: Path) -> None:
    """Between steps the state is a function of releases."""
    new = mechanism_of(kind, form)
    with Session(new, tmp_path / "log.db") as session:
        for row in ROWS[:20]:
            session.push(row)
            state = session._queries[0].state
            assert not state.cells.any()
            assert not state.numbers.any()


@BOTH
def test_no_word_waits_in_memory(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words come from the operating system one request at a time, and no rows are drawn ahead."""

    def refused(*_: Any) -> Any:
        raise AssertionError("the pool was used")

    new = mechanism_of(kind, "single")
    draws = Draws(SYSTEM)
    monkeypatch.setattr(type(SYSTEM), "words", refused)
    monkeypatch.setattr(type(SYSTEM), "word", refused)
    new.advance(new.begin(1), ROWS, 1, draws)
    assert not draws._rows
    assert pan_private.unbuffered(draws) is UNBUFFERED


@BOTH
@FORMS
def test_steps_that_are_passed_over(kind: Any, form: str) -> None:
    """They leave their budget; windows are not overspent."""
    new, log = mechanism_of(kind, form), MemoryLog()
    for place, step in enumerate([1, 2, 5, 6, 7, 8, 30, 31, 32, 33, 90, 1000]):
        session = session if place % 3 else Session(new, log)  # noqa: F821
        session.push(ROWS[place], step=step)
    assert verify(log.rows()).ok


def test_what_is_not_allowed_is_refused() -> None:
    """An intrusion that was not promised, an unknown event, a step that is open or not."""
    single, announced = (mechanism_of(BudgetAbsorption, form) for form in ("single", "announced"))
    noise = Draws(current())
    with pytest.raises(InvalidInput, match="announced"):
        single.event(single.begin(1), "intrusion", 1, noise)
    with pytest.raises(InvalidInput, match="unknown"):
        announced.event(announced.begin(1), "rain", 1, noise)
    state = announced.begin(1)
    with pytest.raises(InvalidInput, match="no step is open"):
        pan_private.arrive(announced, state, 0, 1, noise)
    pan_private.open_step(announced, state, 4, noise)
    with pytest.raises(InvalidInput, match="is open"):
        pan_private.open_step(announced, state, 5, noise)
    for push in (lambda: announced.public(state, 5, 1), lambda: announced.advance(state, ROWS[:1], 5, noise)):
        with pytest.raises(InvalidInput, match="another step"):
            push()
    stored = iter(arrays.decode(arrays.encode(arrays.flat(state))))
    assert np.array_equal(arrays.rebuilt(announced.begin(1), stored).cells, state.cells)
