"""Pan-private mechanisms on the new core: what an intruder finds, and what an announced intrusion costs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate import mechanisms as before
from tidegate.core import arrays
from tidegate.core.account import Account
from tidegate.core.charges import Charges
from tidegate.core.log import MemoryLog
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput
from tidegate.mechanisms.w_event import pan_private
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import SYSTEM, UNBUFFERED, current, install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import WEvent

KINDS: dict[Any, Any] = {
    before.BudgetAbsorption: BudgetAbsorption,
    before.BudgetDistribution: BudgetDistribution,
}
ROWS = np.array([[7 * step % 40, 300 * (step % 9 == 4)] for step in range(1, 51)])
BOTH = pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.__name__)
FORMS = pytest.mark.parametrize("form", ["single", "announced"])


def pair(kind: Any, form: str, w: int = 3, columns: int = 2) -> tuple[Any, Any]:
    """The same configuration on both cores."""
    old = kind(WEvent(epsilon="4", w=w), columns=columns, pan_private=form)
    return old, KINDS[kind](**{each.name: getattr(old, each.name) for each in fields(old)})


@BOTH
@FORMS
@pytest.mark.parametrize("w", [1, 3, 8])
def test_steps_are_released_and_charged_as_before(kind: Any, form: str, w: int) -> None:
    """In a batch, in odd batches, and with a new session per step."""
    (old, new), log = pair(kind, form, w), MemoryLog()
    with install(FixedEntropy("pan")):
        run = old.start()
        expected, session = run.push_batch(ROWS), Session(new)
        ways = {
            "batch": [Session(new).push_batch(ROWS)],
            "odd": [session.push_batch(ROWS[a:b]) for a, b in ((0, 1), (1, 8), (8, 31), (31, 50))],
            "single": [Session(new, log).push_batch([row]) for row in ROWS],
        }
    for name in ("values", "status", "source", "scale", "units"):
        for way, parts in ways.items():
            found = np.concatenate([getattr(each, name) for each in parts])
            assert np.array_equal(found, getattr(expected, name)), (way, name)
    assert verify(log.rows()).ok
    assert session._queries[0].account.remaining() == run.ledger.remaining(51) / run.ledger.unit


@BOTH
def test_intrusions_in_the_middle_of_steps_are_released_and_charged_as_before(kind: Any) -> None:
    """Events one by one; the step of an intrusion is published, and pays for it."""
    old, new = pair(kind, "announced")
    with install(FixedEntropy("pan")):
        run, state, noise = old.start(), new.begin(1), Draws(current())
        account = Account(new.units, 3)
        for at, row in enumerate(ROWS):
            step, times, units = at + 1, (0, 1, 0, 2)[at % 4], 0
            run.open_step()
            pan_private.open_step(new, state, step, noise)
            for column, value in enumerate(row.tolist()):
                for _ in range(times if column else 0):
                    run.announce_intrusion()
                    seen, charged = state.cells.copy(), new.event(state, "intrusion", step, noise)
                    assert units == 0 or charged is None  # once for each step
                    assert units or np.array_equal(seen, state.cells)  # what a commit stores is what was seen
                    units += 0 if charged is None else int(charged.units[0])
                run.arrive(column, value)
                pan_private.arrive(new, state, column, value, noise)
            assert np.array_equal(run.memory()["counts"], state.cells[0][: run.memory()["counts"].size])
            expected, found = (
                run.close_step(),
                new.advance(state, np.zeros((1, 2), dtype=np.int64), step, noise),
            )
            account.apply(account.check(Charges(step, found.units + units)))
            assert np.array_equal(found.values[0], expected.values)
            assert (found.status[0], found.source[0]) == (expected.status, expected.source)
            assert (found.scale[0], found.units[0] + units) == (expected.scale, expected.units)
            assert account.remaining() == run.ledger.remaining(step + 1) / run.ledger.unit


@BOTH
@FORMS
def test_a_commit_has_no_cells(kind: Any, form: str, tmp_path: Path) -> None:
    """Between steps the state is a function of releases."""
    _, new = pair(kind, form)
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

    _, new = pair(kind, "single")
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
    (_, new), log = pair(kind, form), MemoryLog()
    for place, step in enumerate([1, 2, 5, 6, 7, 8, 30, 31, 32, 33, 90, 1000]):
        session = session if place % 3 else Session(new, log)  # noqa: F821
        session.push(ROWS[place], step=step)
    assert verify(log.rows()).ok


def test_what_is_not_allowed_is_refused() -> None:
    """An intrusion that was not promised, an unknown event, a step that is open or not."""
    (_, single), (_, announced) = (pair(before.BudgetAbsorption, form) for form in ("single", "announced"))
    noise = Draws(current())
    with pytest.raises(InvalidInput, match="at most one intrusion"):
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
