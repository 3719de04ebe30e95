"""Swellfish on the new core: missing readings, and an account that is judged by secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.charges import Charges, Span, span_rows
from tidegate.core.commit import HALTED
from tidegate.core.errors import AccountRefused, Halted
from tidegate.core.log import MemoryLog
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import account_from, verify
from tidegate.errors import InvalidInput
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import Clock, Secret, Specification
from tidegate.policy.promises import promises_of
from tidegate.releases import Status

HOME = Secret(1, 2, "always", 1, "somebody is at home")
OVEN = Secret(3, 2, [(1, 4), (20, 29), (50, 55)], "0.5", "oven")
AWAY = Secret(2, 9, [(12, 40)], "0.2", "holiday")
DAILY = Secret(1, 2, [], 1, "somebody is at home", recurring=("every day 00:00-24:00",))
EVENING = Secret(2, 3, [], "1/3", "cooking", recurring=("every day 18:00-23:00",))
CLOCK = Clock("2026-03-28T00:00", "1 h", "Europe/Berlin")
HOUSES = (Specification((HOME, OVEN, AWAY), "one"), Specification((HOME, EVENING), "two"))
DAYS = Specification((DAILY, EVENING), "two")
POLICIES: dict[str, Any] = {
    "windowed": tg.Swellfish(specifications=HOUSES, clock=CLOCK),
    "approximate": tg.Swellfish(specifications=HOUSES, clock=CLOCK, delta="1e-6"),
    "joint": tg.Swellfish(specifications=(DAYS,), clock=CLOCK, promise="joint"),
}
UNITS = 9 << 10
GAPPY = np.where(np.arange(160).reshape(80, 2) % 7 < 2, np.nan, np.arange(160.0).reshape(80, 2) % 31)
GAPPY[[0, 1, 30, 31, 32, 79]] = np.nan  # whole steps
FILLS: dict[str, Any] = {
    "released": {"fill": "released"},
    "public": {"fill": "40"},
    "hidden": {"fill": 0, "gap_change": "1/2"},
    "clamped": {"fill": "40", "clamp": 100},
}


@pytest.mark.parametrize("fill", list(FILLS))
def test_missing_readings_are_filled_the_same_way_however_steps_are_pushed(fill: str) -> None:
    """In a batch, in odd batches, and with a new session per step; whole steps that are missing cost nothing."""
    mechanism, log = Swellfish(POLICIES["windowed"], columns=2, **FILLS[fill]), MemoryLog()
    with install(FixedEntropy("gaps")):
        expected = Session(mechanism).push_batch(GAPPY)
        session = Session(mechanism)
        ways = {
            "odd": [session.push_batch(GAPPY[a:b]) for a, b in ((0, 1), (1, 8), (8, 31), (31, 33), (33, 80))],
            "single": [Session(mechanism, log).push_batch([row]) for row in GAPPY],
        }
    for way, parts in ways.items():
        for name in ("values", "status", "source", "scale", "units"):
            found = np.concatenate([getattr(each, name) for each in parts])
            assert np.array_equal(found, getattr(expected, name)), (way, name)
    assert verify(log.rows()).ok
    assert (expected.units[30] == 0) == (fill != "hidden")


def test_missing_readings_are_refused_where_nothing_fills_them() -> None:
    """Before anything is drawn."""
    session = Session(Swellfish(POLICIES["windowed"], columns=2))
    with pytest.raises(InvalidInput, match="fill gaps"):
        session.push(GAPPY[0])
    assert len(session.push_batch([[1, 2]])) == 1


def kept(policy: Any, history: dict[int, int]) -> bool:
    """Whether every placement of every secret keeps its promise, over all steps that were ever charged."""
    units = np.zeros(max(history) + 1, dtype=np.int64)
    for step, paid in history.items():
        units[step] = paid
    broken, _ = promises_of(policy, UNITS).check(1, 1, units[1:])
    return broken is None


@pytest.mark.parametrize("name", list(POLICIES))
def test_charges_are_judged_as_by_a_sweep_over_all_steps(name: str) -> None:
    """Charges of any size, with steps passed over: the same ones are refused, and what is left is the most that fits."""
    policy, random = POLICIES[name], np.random.default_rng(5)
    account, step, refused, log = SecretsAccount(policy, UNITS), 0, 0, []
    shares, history = account._equal_shares(1, 400), {}
    while step < 150:
        first = step + int(random.choice([1, 1, 1, 2, 12]))
        size = int(random.choice([1, 1, 1, 3, 11]))
        factor = random.choice([0.5, 1, 1, 1.2, 3], size=size)
        units = (shares[first - 1 : first - 1 + size] * factor).astype(np.int64)
        charges = Charges(first, units)
        wanted = history | {first + at: int(paid) for at, paid in enumerate(units)}
        if not kept(policy, wanted):
            with pytest.raises(AccountRefused):
                account.check(charges)
            refused += 1
            continue
        account.apply(account.check(charges))
        log.append(charges)
        step, history = charges.last, wanted
        left = account.remaining()
        assert kept(policy, history | {step + 1: left})
        assert not kept(policy, history | {step + 1: left + 1})
    assert refused > 8
    again = SecretsAccount(policy, UNITS)
    begin = step - account.policy.window + 2
    again.step = begin - 1
    for charges in log:
        if charges.last >= begin:
            cut = max(0, begin - charges.first)
            again.load(Charges(charges.first + cut, charges.units[cut:]))
    assert (again.step, again.remaining()) == (step, account.remaining())


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_halt_charges_all_that_is_left(name: str) -> None:
    """Nothing more fits at any of its steps, and all of it fits; silent until no event contains it."""
    policy = POLICIES[name]
    account = SecretsAccount(policy, UNITS)
    account.apply(account.check(Charges(3, account._equal_shares(3, 20) // 2)))
    charges = account.fill(24, 40)
    account.check(charges)
    for at in range(17):
        more = charges.units[: at + 1].copy()
        more[at] += 1
        with pytest.raises(AccountRefused, match=f"step {24 + at} is refused"):
            account.check(Charges(24, more))


@st.composite
def secrets(draw: st.DrawFn) -> Secret:
    """Hidden in a few intervals; events of one step, whose cap is above its limit with δ, are frequent."""
    duration = draw(st.sampled_from([1, 1, 2, 3, 5]))
    gaps = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=3))
    intervals, at = [], 0
    for gap, length in gaps:
        begin = at + gap + 1
        at = begin + max(length, duration - 1)
        intervals.append((begin, at))
    return Secret(draw(st.integers(1, 3)), duration, intervals, draw(st.sampled_from(["1", "1", "1/3"])))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(secrets(), min_size=1, max_size=3), min_size=1, max_size=2),
    st.sampled_from(["1/10", "1/10", "0", "1e-6"]),
    st.sampled_from(["windowed", "windowed", "joint"]),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 1, 4]), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
        min_size=1,
        max_size=8,
    ),
)
def test_what_a_halt_charges_always_fits(
    houses: list[list[Secret]], delta: str, promise: str, history: list[tuple[int, list[int]]]
) -> None:
    """After any history, with steps at, below and above their shares; and no step could have had more."""
    named = [
        Specification(
            tuple(replace(each, label=f"{house} {at}") for at, each in enumerate(own)), f"house {house}"
        )
        for house, own in enumerate(houses)
    ]
    policy = tg.Swellfish(specifications=named, delta=delta, promise=promise)
    account = SecretsAccount(policy, 1000)
    for gap, kinds in history:
        first = account.step + 1 + gap
        last = first + len(kinds) - 1
        filled = account.fill(first, last)
        fits = account.check(filled)
        for at in range(len(kinds)):
            more = filled.units.copy()
            more[at] += 1
            with pytest.raises(AccountRefused):
                account.check(Charges(first, more))
        shares = np.minimum(account._equal_shares(first, last), account._most)
        units = np.choose(kinds, [np.zeros_like(shares), shares, shares // 2, filled.units])
        try:
            account.apply(account.check(Charges(first, units)))
        except AccountRefused:
            account.apply(fits)


def test_a_cap_above_its_limit_counts_in_both_judgements() -> None:
    """With δ an event of one step may lose more than ε in one step: by shares, and by sums behind a larger step."""
    house = Specification((Secret(1, 1, [(1, 40)], 1, "a"), Secret(1, 2, [(1, 4)], 1, "b")), "house")
    account = SecretsAccount(tg.Swellfish(specifications=[house], delta="1/10"), 1000)
    share = int(account._equal_shares(6, 6)[0])
    assert share > int(
        account.promises.stretch(6, 6).limits[0] // account.promises.stretch(6, 6).heights.sum()
    )
    account.apply(account.check(account.fill(4, 4)))
    assert account._full == 4
    assert account.fill(5, 5).units.tolist() == [share]
    account.apply(account.check(Charges(5, np.array([share]))))
    with pytest.raises(AccountRefused):
        account.check(Charges(6, np.array([share + 1])))


def test_events_that_cost_are_refused() -> None:
    """No mechanism of secrets has one."""
    account = SecretsAccount(POLICIES["windowed"], UNITS)
    account.check_event(0)
    with pytest.raises(AccountRefused, match="event cannot be charged"):
        account.check_event(1)


class Fails(Swellfish):
    """Raises at one step, after its noise was drawn."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Any:
        """Fail where a value is 13."""
        found = super().advance(state, rows, first, noise)
        if (rows == 13).any():
            raise ValueError("13")
        return found


def test_a_failure_after_noise_halts_and_is_verified() -> None:
    """The longest event has 9 steps: 8 steps are silent, then all is as before."""
    log, mechanism = MemoryLog(), Fails(POLICIES["windowed"])
    session = Session(mechanism, log)
    session.push_batch([1, 2, 3])
    with pytest.raises(Halted):
        session.push_batch([1, 13])
    assert [row.kind for row in log.rows()][-1] == HALTED
    status = Session(mechanism, log).push_batch(np.ones(12, dtype=int)).status.tolist()
    assert status == [int(Status.SILENT)] * 8 + [int(Status.FRESH)] * 4
    assert verify(log.rows()).ok


def test_a_log_with_other_charges_is_found() -> None:
    """One unit more than a promise allows."""
    log = MemoryLog()
    Session(Swellfish(POLICIES["windowed"]), log).push_batch(np.ones(60, dtype=int))
    (_, row), account = (
        log.rows(),
        SecretsAccount(POLICIES["windowed"], Swellfish(POLICIES["windowed"]).units),
    )
    ((_, charges),) = charges_of(row)
    units = charges.units
    account.check(Charges(1, units))
    above = units.copy()
    above[30] *= 3
    with pytest.raises(AccountRefused, match="step 31 is refused"):
        account.check(Charges(1, above))


@pytest.mark.parametrize("schedule", ["windowed", "optimal"])
def test_a_horizon_is_refused_in_public(schedule: str) -> None:
    """The session stays open."""
    policy = tg.Swellfish(specifications=HOUSES[:1], horizon=60)
    session = Session(Swellfish(policy, schedule=schedule))
    session.push_batch(np.ones(50, dtype=int))
    with pytest.raises(AccountRefused, match="horizon"):
        session.push_batch(np.ones(11, dtype=int))
    assert len(session.push_batch(np.ones(10, dtype=int))) == 10


@pytest.mark.parametrize("schedule", ["windowed", "optimal"])
def test_steps_that_are_passed_over(schedule: str) -> None:
    """They cost nothing; the schedule of the others stays."""
    mechanism = Swellfish(tg.Swellfish(specifications=HOUSES[:1], horizon=4000), schedule=schedule)
    log, steps = MemoryLog(), [1, 2, 5, 14, 15, 16, 40, 41, 900, 901, 3000]
    with install(FixedEntropy("over")):
        found = [Session(mechanism, log).push_batch([[5]], step=step) for step in steps]
        expected = Session(mechanism).push_batch(np.full(3000, 5))
    at = np.array(steps) - 1
    assert np.array_equal(np.concatenate([each.values for each in found]), expected.values[at])
    assert np.array_equal(np.concatenate([each.units for each in found]), expected.units[at])
    assert verify(log.rows()).ok


def test_the_account_is_described_in_full() -> None:
    """Whoever verifies a log needs nothing else."""
    account = SecretsAccount(POLICIES["joint"], UNITS)
    again = account_from(account.describe())
    assert isinstance(again, SecretsAccount)
    assert again.describe() == account.describe()
    assert again.fill(1, 60).units.tolist() == account.fill(1, 60).units.tolist()


def test_spans_are_refused() -> None:
    """A placement may meet a part of one."""
    charges = Charges(1, np.array([1]), span_rows([Span(0, 0, 1, 3, 1)], 1))
    with pytest.raises(AccountRefused, match="span"):
        SecretsAccount(POLICIES["windowed"], UNITS).check(charges)


def test_a_step_costs_the_same_at_any_window() -> None:
    """Steps within their equal shares are compared, not summed: no sweep over the window is made."""
    long = Secret(1, 5000, "always", 1, "away")
    account = SecretsAccount(tg.Swellfish(specifications=[Specification((long,), "one")]), 5000 << 10)
    account.promises.check = None  # type: ignore[assignment, method-assign]
    for step in range(1, 50):
        account.apply(account.check(Charges(step, account._equal_shares(step, step))))
    assert account.step == 49
