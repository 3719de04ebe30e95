"""What was handed out stays paid: whoever charges and draws does both by one operation of the ledger."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import tidegate
from tidegate.ledger import open_ledger
from tidegate.mechanisms import BudgetDistribution, Threshold, Uniform
from tidegate.policy import Event, WEvent

PACKAGE = Path(tidegate.__file__).parent
CHARGES = {"charge", "charge_batch", "charge_group", "charge_span", "extend_group", "charge_delta"}
PARTS_OF_RUNS = {"charge_periods"}


@pytest.fixture(params=["memory", "file", "share"])
def opened(request, tmp_path):
    """A ledger in memory, in a file, and a query's share of one."""

    def opened(policy, units):
        place = tmp_path / "ledger" if request.param == "file" else None
        ledger = open_ledger(place, policy, units)
        return ledger.divide({"one": 1})["one"] if request.param == "share" else ledger

    return opened


def test_a_threshold_stays_paid_when_the_transaction_around_it_fails(opened):
    """Else one sample gives thresholds without end, with nothing in the account."""
    policy = Event(epsilon="1", max_change=100)
    ledger = opened(policy, 1)
    threshold = Threshold(policy, sample=20, above=2)
    shown = []
    with suppress(RuntimeError), ledger.transaction():
        shown.append(threshold.release(np.arange(20), ledger))
        raise RuntimeError
    assert len(shown) == 1
    assert ledger.spent(20, 20) == 1
    with pytest.raises(tidegate.errors.LedgerError):
        threshold.release(np.arange(20), ledger)
    verdict = (getattr(ledger, "whole", None) or ledger).verify()
    assert verdict.ok
    assert verdict.spent == 1


def test_a_transaction_that_promises_to_hand_out_nothing_takes_a_threshold_back():
    """As it does the release of a run."""
    policy = Event(epsilon="1", max_change=100)
    ledger = open_ledger(None, policy, 1)
    with suppress(RuntimeError), ledger.transaction(unseen=True):
        Threshold(policy, sample=20, above=2).release(np.arange(20), ledger)
        raise RuntimeError
    assert ledger.step == 0


@pytest.mark.parametrize("announces", [False, True])
def test_the_cells_of_an_open_step_stay_paid(announces):
    """Whoever looked into the memory has seen them, before anything was published."""
    mechanism = BudgetDistribution(WEvent(epsilon="1", w=4), pan_private="announced")
    ledger = open_ledger(None, mechanism.policy, mechanism.units)
    run = mechanism.start(ledger=ledger)
    with suppress(RuntimeError), ledger.transaction():
        run.open_step()
        run.arrive(0)
        if announces:
            run.announce_intrusion()
        raise RuntimeError
    assert ledger.step == 1
    assert ledger.spent() > (ledger.unit * run._fixed if announces else 0)


def test_what_a_push_charged_before_it_failed_stays_paid(monkeypatch):
    """Its error may tell of noise that was drawn, and the caller's transaction fails by the same error."""
    mechanism = Uniform(WEvent(epsilon="1", w=4), noise="laplace")
    ledger = open_ledger(None, mechanism.policy, mechanism.units)
    run = mechanism.start(ledger=ledger)
    monkeypatch.setattr(type(run), "_push", lambda run, row: run.ledger.charge(run.step, 1) or 1 / 0)
    with suppress(ZeroDivisionError), ledger.transaction():
        run.push(1)
    assert ledger.spent() > 0


def test_only_runs_charge_by_themselves():
    """A push hands out, whatever its author forgets; all else that charges and draws calls `Ledger.release`."""
    found = set()
    for path in sorted((PACKAGE / "mechanisms").rglob("*.py")):
        for part in ast.parse(path.read_text()).body:
            name = getattr(part, "name", "")
            calls = [call.func for call in ast.walk(part) if isinstance(call, ast.Call)]
            called = {call.attr for call in calls if isinstance(call, ast.Attribute)}
            if called & CHARGES and "release" not in called and not name.endswith(("Run", "Ledger", "Noise")):
                found.add(name)
    # what only pushes call may charge without it
    assert found <= PARTS_OF_RUNS, f"{found - PARTS_OF_RUNS} must charge and draw by Ledger.release"
