"""FAST and RescueDP on the new core: what no comparison with earlier releases shows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.noise.entropy import UNBUFFERED, install
from tidegate.noise.laws import DRAWN, TAKEN, most_named
from tidegate.policy import WEvent

HURRY = Pid(shortest=1, longest=1)  # asks for every step
W = 30


def hurried() -> list[Any]:
    """Mechanisms that measure as soon as their window allows it."""
    policy = WEvent(epsilon="5", window=W)
    return [
        Fast(policy, columns=8, samples=7, adaptive=HURRY, noise="laplace"),
        Fast(policy, samples=12, adaptive=HURRY, noise="cube"),
        Fast(policy, samples=12, adaptive=HURRY, noise="semiorder"),
        Fast(policy, samples=12, adaptive=HURRY, blocks=True, noise="cube"),
        Fast(WEvent(rho="1", window=W), columns=3, samples=7, adaptive=HURRY),
        RescueDP(policy, columns=8, adaptive=HURRY),
    ]


@pytest.mark.parametrize("mechanism", hurried(), ids=lambda each: type(each).__name__)
def test_steps_that_are_passed_over(mechanism: Any) -> None:
    """A window without a step, in the middle of a group or of a block, ends nothing but the spans that it has passed."""
    log, steps = MemoryLog(), [*range(1, 18), 40, 41, 75, 76, 77, 400, *range(430, 470), 2000]
    for place, step in enumerate(steps):
        if place % 3 == 0:  # every third push opens the log again
            session = Session(mechanism, log)
        session.push(np.full(mechanism.columns, 40), step=step)
    assert session.step == 2000
    assert verify(log.rows()).ok


def test_a_group_goes_on_after_a_window_without_steps() -> None:
    """Noise that is shared at public times: the second part of a group is a span of its own, not a halt."""
    mechanism, log = Uniform(WEvent(epsilon="1", window=W), noise="cube"), MemoryLog()
    session = Session(mechanism, log)
    for step in (1, 2, 3 * W, 3 * W + 1, 9 * W):
        session.push([5], step=step)
    assert verify(log.rows()).ok


@pytest.mark.parametrize("mechanism", hurried()[:3], ids=lambda each: type(each).__name__)
def test_a_window_has_m_measurements(mechanism: Any) -> None:
    """However much the controller asks for; and all of them are made."""
    rows = np.full((10 * W, mechanism.columns), 40)
    fresh = Session(mechanism).push_batch(rows).fresh.astype(int)
    assert {int(fresh[start : start + W].sum()) for start in range(9 * W)} == {mechanism.measurements}


@pytest.mark.parametrize("batch", [1, 50])
@pytest.mark.parametrize(
    "mechanism",
    [
        Fast(
            WEvent(epsilon="1/100", window=W),
            columns=4,
            samples=12,
            adaptive=HURRY,
            filter=False,
            noise="cube",
        ),
        Fast(
            WEvent(epsilon="1/100", window=W),
            columns=4,
            samples=12,
            adaptive=HURRY,
            filter=False,
            noise="laplace",
        ),
    ],
    ids=["cube", "laplace"],
)
def test_noise_is_used_once(mechanism: Any, batch: int) -> None:
    """With random words no two measurements are the same; scales are above 100, so this fails once in 10^5 times."""
    session = Session(mechanism)
    parts = [session.push_batch(np.zeros((batch, 4), dtype=np.int64)) for _ in range(150 // batch)]
    values = np.concatenate([part.values[part.fresh] for part in parts])
    assert len(values) == 60
    assert len(np.unique(values, axis=0)) == 60


def test_noise_that_was_used_leaves_the_state() -> None:
    """Single pushes keep noise for measurements to come; a batch takes it, and keeps none of what it draws besides."""
    mechanism = Fast(WEvent(epsilon="1", window=W), samples=12, adaptive=HURRY, noise="cube")
    session = Session(mechanism)
    session.push([0])
    law = session._queries[0].state.law
    assert 0 < law.numbers[TAKEN] < law.numbers[DRAWN]
    assert not law.ahead[: law.numbers[TAKEN]].any()
    session.push_batch(np.zeros((8, 1), dtype=np.int64))
    assert law.numbers[TAKEN] == law.numbers[DRAWN]
    assert not law.ahead.any()


@pytest.mark.parametrize("noise", ["cube", "semiorder"])
def test_no_noise_waits_where_memory_may_be_seen(noise: str) -> None:
    """What is unbuffered keeps what later draws depend on, and no noise."""
    mechanism = Fast(WEvent(epsilon="1", window=W), samples=12, adaptive=HURRY, noise=noise)
    with install(UNBUFFERED):
        session = Session(mechanism)
        for batch in (1, 1, 2, 3, 40):
            session.push_batch(np.zeros((batch, 1), dtype=np.int64))
            assert not session._queries[0].state.law.ahead.any()


def test_the_number_of_spans_is_public() -> None:
    """As many rows whatever was measured."""
    mechanism = Fast(WEvent(epsilon="1", window=W), samples=12, noise="cube")
    shared = mechanism.shared
    assert shared is not None
    for rows in (np.zeros((90, 1), dtype=np.int64), np.arange(90)[:, None] ** 3):
        session = Session(mechanism)
        query = session._queries[0]
        spans = query.advance(rows, 1).spans
        assert len(spans) == most_named(shared.law, W, 90)
        named = spans[spans[:, 4] > 0].tolist()
        assert all(before[1] < after[1] and before[3] < after[2] for before, after in pairwise(named))
