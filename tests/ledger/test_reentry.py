"""Signal handlers and finalisers run in the thread that holds the ledger: they may not charge while it is charged."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from tidegate.errors import LedgerBusy, TidegateError
from tidegate.ledger import open_ledger
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Uniform
from tidegate.policy import WEvent

POLICY = WEvent(epsilon="1", w=3)


def interrupted(work, handler, moment):
    """Do some work; at the n-th call or return in it call the handler, as a signal would. Whether there was one."""
    left = [moment]

    def note(frame, event, argument):
        left[0] -= 1
        if (
            left[0] == 0
        ):  # it stays installed: Numba's calls do not survive that it is taken away in the middle of one
            handler()

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return left[0] <= 0


WORK = {
    "one step": lambda run: [run.push(1) for _ in range(3)],
    "a batch": lambda run: [run.push_batch(np.ones((3, 1), dtype=np.int64))],
    "a long batch": lambda run: [run.push_batch(np.ones((40, 1), dtype=np.int64))],
}
KINDS = {
    "laplace": lambda: Uniform(POLICY, noise="laplace"),
    "shared": lambda: Uniform(POLICY),
    "absorption": lambda: BudgetAbsorption(POLICY),
    "distribution": lambda: BudgetDistribution(POLICY),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("place", ["memory", "share", "file"])
def test_no_handler_spends_what_is_being_spent(kind, work, place, tmp_path):
    """At every call and return of a push another run of the ledger is pushed: together they keep to ε."""
    mechanism, moment, going = KINDS[kind](), 0, True
    while going:
        moment += {"memory": 1, "share": 7, "file": 149}[
            place
        ]  # a prime number of calls where each takes long
        path = tmp_path / f"{moment}.ledger" if place == "file" else None
        ledger = open_ledger(path, POLICY, mechanism.units)
        book = ledger.divide({"one": 1})["one"] if place == "share" else ledger
        first, second = mechanism.start(book), mechanism.start(book)
        released = []

        def pushed(run, released=released):
            with suppress(TidegateError):  # refused: nothing was released
                released.extend(WORK[work](run))

        going = interrupted(partial(pushed, first), partial(pushed, second), moment)
        shown = np.zeros(200, dtype=np.int64)
        for part in released:
            first_step = getattr(part, "first_step", None) or part.step
            amounts = np.atleast_1d(part.units)
            shown[first_step : first_step + len(amounts)] += amounts
        assert np.convolve(shown, np.ones(3, dtype=np.int64)).max() <= book.units, f"call {moment}"
        assert ledger.verify().ok, f"call {moment}"
        window = slice(max(book.step - 2, 1), book.step + 1)
        assert book.spent() >= shown[window].sum() * book.unit, f"call {moment}"
        ledger.close()


def test_a_run_that_was_refused_goes_on_later():
    """The refusal is an error of the handler's own call, and of nothing else."""
    ledger = open_ledger(None, WEvent(epsilon="2", w=3), 2)
    refused = []

    def handler():
        with pytest.raises(LedgerBusy) as error:
            ledger.charge(1, 1)
        refused.append(str(error.value))

    with ledger._section:
        handler()
    assert "set a flag" in refused[0]
    ledger.charge(1, 1)
    assert ledger.spent() == 1


def test_nobody_else_pushes_while_a_run_is_at_work():
    """Else it would not notice that others charge its ledger, which what is decided on raw data relies on."""
    mechanism = KINDS["laplace"]()
    ledger = open_ledger(None, POLICY, mechanism.units)
    first, second = mechanism.start(ledger), mechanism.start(ledger)
    begin, seen = first._push_batch, []

    def interrupted_push(matrix, first_step):
        with pytest.raises(LedgerBusy) as error:
            second.push(1)
        seen.append(str(error.value))
        return begin(matrix, first_step)

    first._push_batch = interrupted_push
    first.push_batch([[1]])
    assert "another run" in seen[0]
    del first._push_batch
    assert second.push(1).step == 1
