"""Tide in sessions: the same bits however steps are pushed, gaps, noise that waits, sizes of records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.core import arrays
from tidegate.core.log import Log, MemoryLog
from tidegate.core.mechanism import unit_of
from tidegate.core.query import OUTPUTS
from tidegate.core.session import Session, charges_of
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.mechanisms.tide.ahead import SHARED_STREAM, Ahead, empty_secret
from tidegate.mechanisms.tide.plan import (
    EIGHTHS,
    END,
    ENDLESS,
    GROUP_ROW,
    LEFT,
    LEVEL,
    NUMBER,
    PLACED,
    POSITION,
    TAKEN,
)
from tidegate.mechanisms.tide.tide import ORIGIN, STEP, Tide
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Releases, Status

ODD = (7, 1, 48)  # sizes of batches, in turn
STEPS = 130
DAY = {"periods": (24,), "harmonics": 2}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "semiorder": ({"policy": tg.WEvent(epsilon="1", window=12), "noise": "semiorder", **DAY}, "season"),
    "semiorder, alarms": ({"policy": tg.WEvent(epsilon="4", window=10), "noise": "semiorder"}, "levels"),
    "cube": ({"policy": tg.WEvent(epsilon="2", window=24), "noise": "cube", "columns": 2}, "season"),
    "cube, alarms": ({"policy": tg.WEvent(epsilon="1", window=16), "noise": "cube"}, "levels"),
    "all laws": ({"policy": tg.WEvent(epsilon="3", window=20), "delay": 0}, "levels"),
}


def stream(name: str, steps: int, columns: int) -> Any:
    """Whole numbers: a day of 24 steps, rough ones, or levels that hold for 40 steps."""
    time, column = np.arange(steps)[:, None], np.arange(columns)[None, :]
    hour = (time + 5 * column) % 24
    found = {
        "season": 2000 + 60 * np.minimum(hour, 24 - hour),
        "rough": (7919 * time * time + 104729 * time * (column + 1)) % 997,
        "levels": np.where((time // 40) % 2 == 0, 200 + 5 * ((time + column) % 3), 20_000 + 50 * time),
    }[name]
    return found + 0 * (time + column)


def configurations() -> dict[str, tuple[Tide, str]]:
    """The examples, and others that share noise."""
    found = {}
    for number, tide in enumerate(Tide.examples()):
        assert isinstance(tide, Tide)
        for name in ("season", "levels") if number < 3 else ("season",):
            found[f"example {number} {name}"] = tide, name
    for label, (given, name) in CASES.items():
        found[label] = Tide(**given), name
    return found


@pytest.fixture(params=list(configurations()))
def case(request: pytest.FixtureRequest) -> tuple[Tide, Any]:
    """A mechanism and values."""
    tide, name = configurations()[request.param]
    return tide, stream(name, STEPS, tide.columns)


def pieces(mode: str, steps: int) -> Iterable[slice]:
    """Single pushes, one batch, or odd batches."""
    sizes = {"single": (1,), "batch": (steps,), "odd": ODD}[mode]
    begin = 0
    for size in itertools.cycle(sizes):
        if begin >= steps:
            return
        yield slice(begin, min(begin + size, steps))
        begin += size


FIELDS = ("values", "status", "source", "scale", "units", "deviation", "ends")


def fields(found: list[Releases | None]) -> dict[str, Any]:
    """All that releases say, one row per step."""
    there = [each for each in found if each is not None]
    got = {"steps": np.concatenate([[0], *(each.steps for each in there)])}
    for name in FIELDS:
        parts = [getattr(each, name) for each in there]
        if parts and parts[0] is not None:
            got[name] = np.concatenate(parts)
    return got


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Bit for bit."""
    assert one.keys() == other.keys()
    for name, part in one.items():
        assert np.array_equal(part, other[name], equal_nan=True), name


def finished(mechanism: Tide, session: Session) -> Releases | None:
    """What `finish` says."""
    said = mechanism.finish(session._queries[0].state, session.step, session._queries[0].draws)
    return None if said is None else mechanism.smoothed(said.revised, unit_of(mechanism))


def window_units(log: Log, window: int | None, steps: int) -> list[int]:
    """What the window that ends at each step has spent, from the rows of a log."""
    units, spans = np.zeros(steps + 1, dtype=np.int64), {}
    for row in log.rows():
        if row.last >= row.first:
            ((_, (_, own, named)),) = charges_of(row)
            units[row.first : row.last + 1] = own
            spans.update({(law, ordinal): rest for law, ordinal, *rest in named.tolist() if rest[2]})
    found = []
    for end in range(1, steps + 1):
        begin = 1 if window is None else max(1, end - window + 1)
        live = [cost for first, last, cost in spans.values() if first <= end and last >= begin]
        found.append(int(units[begin : end + 1].sum()) + sum(live))
    return found


def test_the_same_bits_however_steps_are_pushed(case: tuple[Tide, Any]) -> None:
    """Values, statuses, sources, scales, deviations, revised values and what every window has spent."""
    tide, values = case
    found = []
    with install(FixedEntropy("x")):
        for mode in ("single", "batch", "odd"):
            log = MemoryLog()
            session = Session(tide, log)
            pushed = [session.push_batch(values[part]) for part in pieces(mode, len(values))]
            got = [
                fields(pushed),
                fields([each.revised for each in pushed]),
                fields([finished(tide, session)]),
            ]
            charged = window_units(log, tide.policy.window, len(values))
            assert max(charged) <= tide.units
            assert verify(log.rows()).ok
            found.append((got, charged))
    (expected, spent), *others = found
    for got, charged in others:
        assert charged == spent
        for one, other in zip(expected, got, strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_reopened_logs_continue_with_the_same_bits(case: tuple[Tide, Any], kind: str, tmp_path: Path) -> None:
    """All that matters is in the state; what was released is read again as it left."""
    tide, values = case
    memory = MemoryLog()
    new_log: Callable[[], Log] = lambda: memory if kind == "memory" else SQLiteLog(tmp_path / "log.db")  # noqa: E731
    with install(FixedEntropy("x")):
        session = Session(tide)
        whole = session.push_batch(values)
        parts = []
        for part in pieces("odd", len(values)):
            session = Session(tide, new_log())
            parts.append(session.push_batch(values[part]))
        again = list(Session(tide, new_log()).releases())
    for got in (parts, again):
        assert_same(fields([whole]), fields([*got]))
        assert_same(fields([whole.revised]), fields([each.revised for each in got]))


def test_records_have_public_sizes() -> None:
    """Two streams that are measured at other times, and share noise otherwise, have records of the same sizes."""
    tide = Tide(tg.WEvent(epsilon="4", window=10), noise="semiorder")
    sizes = []
    for name in ("levels", "season"):
        log = MemoryLog()
        session = Session(tide, log)
        for part in pieces("odd", STEPS):
            session.push_batch(stream(name, STEPS, 1)[part])
        loaded = log.load()
        assert loaded is not None
        rows = [(len(row.charges), len(row.releases or b"")) for row in log.rows()]
        sizes.append((rows, len(loaded.secret)))
    assert sizes[0] == sizes[1]


def test_steps_that_are_passed_over_are_predicted_and_not_told_of() -> None:
    """They cost nothing, and no revised value is of them."""
    tide = Tide(tg.WEvent(epsilon="4", window=8), **DAY)
    values = stream("season", 400, 1)
    log = MemoryLog()
    session = Session(tide, log)
    revised, seen = [], []
    for step in (1, 2, 3, 9, 10, 40, 41, 42, 43, 44, 45, 200, 201, 202, 203, 399, 400):
        release = session.push_batch([values[step - 1]], step=step)
        seen.append(step)
        parts = [part for row in log.rows_since(step) if row.releases for part in arrays.decode(row.releases)]
        revised += parts[OUTPUTS + len(tide.more)].tolist()
    assert revised == [step for step in seen if step <= 203]
    assert np.isfinite(release.values).all()
    steps = session.finish().revised.steps
    assert steps.tolist() == [399, 400]
    assert max(window_units(log, 8, 400)) <= tide.units
    assert verify(log.rows()).ok


def test_revised_values_around_passed_steps_are_silent_there() -> None:
    """Readers get consecutive steps."""
    tide = Tide(tg.WEvent(epsilon="4", window=8), delay=8)
    session = Session(tide)
    session.push_batch(stream("season", 5, 1))
    released = session.push_batch([[2000]], step=9)
    released = session.push_batch(stream("season", 20, 1)[9:])
    revised = released.revised
    assert revised is not None
    quiet = revised.status == int(Status.SILENT)
    assert revised.steps[quiet].tolist() == [6, 7, 8]
    assert np.isnan(revised.values[quiet]).all()
    assert np.isfinite(revised.values[~quiet]).all()


def test_a_stream_may_begin_later() -> None:
    """Its first window is that of its first step; the transcripts have what it releases."""
    values, tide = stream("season", STEPS, 3), Tide.examples()[0]
    with install(FixedEntropy("x")):
        session = Session(tide)
        got = [session.push_batch(values[:1], step=50), session.push_batch(values[1:])]
        state = session._queries[0].state
        whole = Session(tide).push_batch(values, step=50)
    assert state.plan[[ORIGIN, STEP]].tolist() == [49, 49 + STEPS]
    assert_same(fields([whole]), fields([*got]))
    assert_same(fields([whole.revised]), fields([each.revised for each in got]))


def test_many_columns() -> None:
    """Classes of columns, and a history that has some of them."""
    given: dict[str, Any] = {"policy": tg.WEvent(epsilon="1", window=4), "columns": 20_000, "delay": 0}
    values = np.arange(20_000) * 3 + stream("rough", 8, 20_000)
    with install(FixedEntropy("x")):
        expected = Session(Tide(**given)).push_batch(values)
        session = Session(Tide(**given))
        got = [session.push_batch(values[:3]), session.push_batch(values[3:])]
    assert_same(fields([expected]), fields([*got]))


@pytest.mark.parametrize("label", ["semiorder, alarms", "cube, alarms", "all laws"])
def test_without_fixed_entropy_no_window_is_overspent(label: str) -> None:
    """Words from the pool; the account has the last word, and never says it."""
    given, name = CASES[label]
    tide = replace(Tide(**given), grid="0.5")
    log = MemoryLog()
    session = Session(tide, log)
    values = stream(name, 600, tide.columns)
    for part in pieces("odd", len(values)):
        session.push_batch(values[part])
    charged = window_units(log, tide.policy.window, len(values))
    assert 0 < max(charged) <= tide.units
    assert any(
        row[4]
        for each in log.rows()
        if each.last >= each.first
        for row in charges_of(each)[0][1].spans.tolist()
    )


def test_a_long_gap_takes_no_longer_than_two_windows() -> None:
    """It is as if every step of it had been passed over; only phases are rounded elsewhere."""
    values = stream("season", 60, 1)
    found = []
    for far in (60, 60 + 24 * 1000, 60 + 24 * 10**9):  # the first is passed over step by step
        tide = Tide(tg.WEvent(epsilon="4", window=8), **DAY)
        with install(FixedEntropy("x")):
            session = Session(tide, MemoryLog())
            session.push_batch(values[:30])
            found.append(session.push_batch(values[-1:], step=far))
            after = session.push_batch(values)
        assert np.isfinite(after.values).all()
        assert verify(session._log.rows()).ok
    assert [each.status.tolist() for each in found] == [[int(Status.FRESH)]] * 3


def test_noise_that_a_batch_leaves_is_used_by_the_next() -> None:
    """However much of it there is: a semiorder is taken back to what the state has room for."""
    tide = Tide(tg.WEvent(epsilon="1", window=12), noise="semiorder")
    laws = tide.choices.laws
    law_row = next(row for row, law in enumerate(laws) if law is not None)
    with install(FixedEntropy("x")) as source:
        noise, secret = [], empty_secret(tide.choices, 1)
        plan = np.zeros(32, dtype=np.int64)
        plan[[TAKEN, GROUP_ROW, LEFT, LEVEL]] = law_row, law_row, ENDLESS, EIGHTHS
        for steps in (0, 400, 0, 0, 900, 3, 0):
            ahead = Ahead(tide.choices, plan, secret)
            for _ in range(5 if steps else 60):
                if secret.numbers[POSITION] >= secret.numbers[END]:
                    ahead.draw(source, steps)
                at = secret.numbers[POSITION]
                noise.append(int(ahead.pool[at, 0]))
                secret.numbers[POSITION] += 1
                plan[[NUMBER, PLACED]] += 1
            ahead.settle()
        law = laws[law_row].law
        straight, _ = law.draw(source, SHARED_STREAM, 0, law.start(), len(noise))
    assert noise == straight[:, 0].tolist()


def test_several_queries_read_their_own_arrays_again() -> None:
    """Arrays besides the values do not shift those of the next query."""
    policy = tg.WEvent(epsilon="1", window=12)
    queries: dict[str, Any] = {"one": Tide(policy, columns=2), "other": Tide(policy, columns=20)}
    log = MemoryLog()
    session = Session(queries, log, shares={"one": "1/2", "other": "1/2"})
    for part in pieces("odd", 30):
        pushed = session.push_batch(
            {name: stream("rough", 30, each.columns)[part] for name, each in queries.items()}
        )
    *_, last = Session(queries, log, shares={"one": "1/2", "other": "1/2"}).releases()
    for name in queries:
        assert_same(fields([pushed[name]]), fields([last[name]]))


def test_silent_steps_are_silent_in_every_array() -> None:
    """After a copied log, steps are silent for a window; arrays besides the values have as many rows."""
    tide = Tide(tg.WEvent(epsilon="4", window=10), noise="semiorder")
    session = Session(tide)
    session.push_batch(stream("levels", 30, 1))
    query = session._queries[0]
    assert query.restart()
    released = session.push_batch(stream("levels", 30, 1))
    assert released.status[:9].tolist() == [int(Status.SILENT)] * 9
    assert released.deviation is not None
    assert np.isnan(released.deviation[:9]).all()
    assert not np.isnan(released.deviation[9:]).any()
    assert released.revised is not None
    assert released.revised.first_step == 40
