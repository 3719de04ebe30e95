"""The fast path of single pushes, for mechanisms that measure every step: it equals `push_batch`, also when it fails."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest
from tests.core.model import Kill, at_line

import tidegate as tg
from tidegate.core.commit import HALTED
from tidegate.core.errors import AccountRefused, Fenced, Halted, SessionClosed
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise.entropy import current, install
from tidegate.noise.fixed import FixedEntropy

W = 4
VALUES = [3, 0, 12, 7, 7, 1, 0, 40, 2, 5, 5, 6]
POLICY = tg.WEvent(epsilon="1", window=W)
MECHANISMS = {
    "laplace": Uniform(POLICY, noise="laplace"),
    "semiorder": Uniform(POLICY, noise="semiorder"),
    "cube": Uniform(POLICY, noise="cube"),
    "gaussian": Uniform(tg.WEvent(rho="1", window=W)),
    "three": Uniform(POLICY, columns=3, noise="laplace"),
    "user": Uniform(tg.User(epsilon="1", horizon=40), noise="laplace"),
    "grid": Uniform(POLICY, grid="1/4", noise="laplace"),
}


def pushed(mechanism: Any, value: int) -> Any:
    """One step."""
    return value if mechanism.columns == 1 else [value] * mechanism.columns


@pytest.mark.parametrize("name", MECHANISMS)
def test_it_releases_what_a_batch_of_one_does(name: str) -> None:
    """Values, intervals, what they cost, and every byte of the log but for salted digests."""
    mechanism, found = MECHANISMS[name], []
    for short in (True, False):
        log = MemoryLog()
        with install(FixedEntropy("short")):
            session = Session(mechanism, log)
            assert session._fast_path is not None
            seen = [
                session.push(pushed(mechanism, value), position=value)
                if short
                else session.push_batch([np.atleast_1d(pushed(mechanism, value))], position=value)[0]
                for value in VALUES
            ]
        assert verify(log.rows()).ok
        found.append(
            (
                [(each.step, each.values.tolist(), each.status, each.source, each.scale) for each in seen],
                [(each.spent, each.law, each.interval(0.9)[0].tolist(), each.fresh) for each in seen],
                [row[:7] for row in log.rows()],
                session.position,
                [each.values.tolist() for each in session.releases()],
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["laplace", "semiorder"])
def test_a_kill_at_every_line(name: str) -> None:
    """A step is committed, with its state, or it is computed again; the session that was killed releases nothing more."""
    mechanism = MECHANISMS[name]

    def kill() -> None:
        raise Kill

    with install(FixedEntropy("killed")):
        expected = Session(mechanism).push_batch([[value] for value in VALUES]).values
        for line in count(1):
            log = MemoryLog()
            session = Session(mechanism, log)
            seen = [session.push(value).values for value in VALUES[:5]]
            with at_line(line, kill) as lines, suppress(Kill):
                seen.append(session.push(VALUES[5]).values)
            again = Session(mechanism, log)
            assert again.step in (len(seen), 6)
            for value in VALUES[again.step :]:
                again.push(value)
            assert np.array_equal(np.concatenate([each.values for each in again.releases()]), expected)
            assert np.array_equal(seen, expected[: len(seen)])
            assert verify(log.rows()).ok
            with pytest.raises((SessionClosed, Fenced)):
                session.push(1)
            if lines[0] < line:
                break
    assert line > 40


def test_a_handler_at_every_line() -> None:
    """It pushes before the turn of the other one or after it, or is refused; every step is released once."""
    for line in count(1):
        log = MemoryLog()
        session = Session(MECHANISMS["semiorder"], log)
        seen = [session.push(1).step]

        def handler(session: Any = session, seen: list[int] = seen) -> None:
            with suppress(SessionClosed):
                seen.append(session.push(2).step)

        with at_line(line, handler) as lines:
            seen.append(session.push(3).step)
        seen.append(session.push(4).step)
        assert sorted(seen) == list(range(1, session.step + 1))
        assert verify(log.rows()).ok
        if lines[0] < line:
            break


def test_a_failure_is_charged() -> None:
    """It is not retried, and nothing of the error leaves."""

    @dataclass(frozen=True)
    class Failing(Uniform):
        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            return super().advance(state, rows, first, noise)

        def measure(self, state: Any, row: Any, step: int, noise: Draws) -> Any:
            values, spans = super().measure(state, row, step, noise)
            if step == 3:
                raise RuntimeError(f"the noise was {values}")
            return values, spans

    log = MemoryLog()
    session = Session(Failing(POLICY, noise="laplace"), log)
    assert session._fast_path is not None
    session.push(1)
    session.push(1)
    with pytest.raises(Halted) as caught:
        session.push(1)
    assert caught.value.__context__ is None
    with pytest.raises(SessionClosed):
        session.push(1)
    assert [row.kind for row in log.rows()][-1] == HALTED
    assert verify(log.rows()).ok
    again = Session(Failing(POLICY, noise="laplace"), log)
    silent = [again.push(1).status.label for _ in range(W)]
    assert silent == ["silent"] * (W - 1) + ["fresh"]


def test_wrong_shapes_and_shared_arrays_are_failures() -> None:
    """What is returned is new, and has every column."""
    for wrong in (np.zeros(2), np.zeros(1, dtype=np.float32), np.zeros(2)[:1]):

        @dataclass(frozen=True)
        class Wrong(Uniform):
            def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
                return super().advance(state, rows, first, noise)

            def measure(self, state: Any, row: Any, step: int, noise: Draws, wrong: Any = wrong) -> Any:
                return wrong, ()

        with pytest.raises(Halted):
            Session(Wrong(POLICY, noise="laplace")).push(1)


def test_a_subclass_that_releases_in_its_own_way_has_no_short_way() -> None:
    """Else its own way would be passed over."""

    @dataclass(frozen=True)
    class Own(Uniform):
        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            return super().advance(state, rows, first, noise)

    assert Session(Own(POLICY))._fast_path is None


def test_a_handler_must_not_push() -> None:
    """Re-entry is refused; the push that was interrupted is not."""
    refused = []

    @dataclass(frozen=True)
    class Signalling(Uniform):
        def advance(self, state: Any, rows: Matrix, first: int, noise: Draws) -> Output:
            return super().advance(state, rows, first, noise)

        def measure(self, state: Any, row: Any, step: int, noise: Draws) -> Any:
            os.kill(os.getpid(), signal.SIGUSR1)
            return super().measure(state, row, step, noise)

    session = Session(Signalling(POLICY))

    def handler(number: int, frame: object) -> None:
        for push in (lambda: session.push(1), lambda: session.push_batch([[1]])):
            with pytest.raises(SessionClosed, match="under way"):
                push()
        refused.append(number)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        session.push(1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (refused, session.step) == ([signal.SIGUSR1], 1)


def test_public_refusals_leave_the_session_open() -> None:
    """The horizon comes before a random word."""
    session = Session(Uniform(tg.User(epsilon="1", horizon=2), noise="laplace"))
    session.push(1)
    session.push(1)
    with pytest.raises(AccountRefused):
        session.push(1)
    assert session._closed == ""


def test_large_numbers_and_odd_ones() -> None:
    """Plain integers are read like arrays are."""
    session = Session(MECHANISMS["laplace"])
    for value in (2**80, -(2**63), 2**53 + 1, "5", None, 1.5, float("nan"), [1, 2]):
        with pytest.raises(InvalidInput):
            session.push(value)
    for value in (True, np.int64(3), 2.0, [4], 2**53, -(2**53)):
        session.push(value)
    assert session.step == 6


def test_noise_is_drawn_once() -> None:
    """Draws that wait are used once."""
    draws = Draws(current())
    drawn = [draws.laplace("one", step, 2.0**40) for step in range(1000)]
    assert len(set(drawn)) == 1000
