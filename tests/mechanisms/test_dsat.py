"""DSAT: a plain reference, runs of every window, the threshold, and what the printed threshold loses."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import DSAT
from tidegate.noise import current, laplace
from tidegate.policy import User, WEvent
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy, zero_noise


def reference(mechanism: DSAT, rows: Any) -> tuple[list[Any], list[Status], set[tuple[int, int]]]:
    """In plain Python, with noise from the same addresses: values, how each came about, first and last step of runs."""
    steps, columns = rows.shape
    window, most = mechanism.policy.window or steps, mechanism.units
    rate, level, last = most / mechanism.policy.steps_charged, 0.0, np.zeros(columns, dtype=np.int64)
    published, run, ends = [], 0, {}
    values, found = [], []
    for step, row in enumerate(rows, 1):
        if window == 1:
            run = 0  # no window meets two steps
        if not run and len([other for other in published if other > step - window]) < most:
            run = step
            threshold = int(
                laplace(current(), "threshold", step, mechanism.tests.threshold_scale, (1, 1))[0, 0]
            )
        status = Status.NULLIFIED
        if run:
            ends[run] = step
            limit = int(mechanism.scale * columns * 2.0**level) + threshold
            noise = int(laplace(current(), "test", step, mechanism.tests.question_scale, (1, 1))[0, 0])
            hit = not published or int(np.abs(row - last).sum()) + noise >= limit
            level = min(max(level + mechanism.gain * ((1 - rate) if hit else -rate), -20.0), 20.0)
            status = Status.FRESH if hit else Status.APPROXIMATED
            if hit:
                last = row + laplace(current(), "publication", step, mechanism.scale, (1, columns))[0]
                published.append(step)
                run = 0
        values.append(last * float(Fraction(mechanism.grid)))
        found.append(status)
    return values, found, set(ends.items())


def spans_of(log: MemoryLog) -> set[tuple[int, int]]:
    """First and last step of every span that a log has charged."""
    found: dict[int, tuple[int, int]] = {}
    for row in log.rows():
        if row.last >= row.first:
            spans = charges_of(row)[0][1].spans
            found |= {ordinal: (first, last) for _, ordinal, first, last, units in spans.tolist() if units}
    return set(found.values())


@pytest.mark.parametrize("mechanism", DSAT.examples(), ids=range(len(DSAT.examples())))
@pytest.mark.parametrize("batch", [1, 7, 90])
def test_as_the_reference(mechanism: DSAT, batch: int) -> None:
    """Values, statuses and spans, however the stream is cut."""
    choose = np.random.default_rng(3)
    rows = np.repeat(choose.integers(0, 200, (18, mechanism.columns)), 5, axis=0)
    log = MemoryLog()
    with fixed_entropy("dsat"):
        session = Session(mechanism, log)
        parts = [
            session.push_batch(rows[at : at + batch] * float(Fraction(mechanism.grid)))
            for at in range(0, 90, batch)
        ]
        values, status, runs = reference(mechanism, rows)
    assert np.array_equal(np.concatenate([part.values for part in parts]), np.array(values))
    assert [each for part in parts for each in part.status] == status
    assert spans_of(log) == runs
    assert verify(log.rows()).ok


@pytest.mark.parametrize("publications", [1, 3, 10])
def test_a_window_meets_c_runs(publications: int) -> None:
    """On a stream that jumps at every step, and on one that jumps now and then."""
    w = 10
    mechanism = DSAT(WEvent(epsilon="8", window=w), publications=publications)
    for every in (1, 4, 13):
        log, jumps = MemoryLog(), (np.arange(150) // every * 10**6)[:, np.newaxis]
        with fixed_entropy(f"every {every}"):
            fresh = Session(mechanism, log).push_batch(jumps).fresh
        runs = spans_of(log)
        for first in range(1, 150):
            assert sum(begin < first + w and end >= first for begin, end in runs) <= publications
        if every == 1:
            assert {int(fresh[at : at + w].sum()) for at in range(140)} == {publications}


def test_steps_that_are_passed_over() -> None:
    """A gap of a window ends a run; a shorter one does not; the log opens again in the middle of a run."""
    mechanism, log = DSAT(WEvent(epsilon="1", window=10), publications=2, gain=0), MemoryLog()
    with zero_noise():
        for step in (1, 2, 3, 9, 18, 28, 29, 500):
            Session(mechanism, log).push([5], step=step)
    assert spans_of(log) == {(1, 1), (2, 18), (28, 29), (500, 500)}
    assert verify(log.rows()).ok


@pytest.mark.parametrize("level", [0, 10**5])
def test_the_threshold_finds_its_rate(level: int) -> None:
    """C of w tested steps are published in the long run, of noise alone and of large values."""
    mechanism = DSAT(WEvent(epsilon="1", window=40), publications=5)
    rows = (np.random.default_rng(1).normal(size=(4000, 1)) * level).astype(np.int64)
    with fixed_entropy("rate"):
        status = Session(mechanism).push_batch(rows).status[400:]
    assert (status == Status.FRESH).mean() / (status != Status.NULLIFIED).mean() == pytest.approx(
        1 / 8, rel=0.05
    )


def test_scales_are_those_of_the_proof() -> None:
    """Tests, threshold and publication of a run have ε/C together."""
    mechanism = DSAT(WEvent(epsilon="2", window=30), columns=3, publications=6, test_share="1/4")
    assert (mechanism.tests.threshold_scale, mechanism.tests.question_scale, mechanism.scale) == (
        24.0,
        48.0,
        4.0,
    )
    assert mechanism.noise_error == pytest.approx(4.0, rel=0.02)
    spent = 1 / 24 + 2 / 48 + 1 / 4
    assert spent == pytest.approx(2 / 6)


def test_the_guarantee_says_that_the_log_is_secret() -> None:
    """It holds the noise of the open run's threshold."""
    assert "kept as secret as the data" in str(DSAT(WEvent(epsilon="1", window=4)).guarantee)


def below(distance: int, limit: int, scale: float, noise: float, tests: int) -> float:
    """The chance that so many tests stay below a threshold with noise of this scale; 0: none."""
    found = 0.0
    for shift in range(-400, 401) if noise else [0]:
        chance = math.tanh(1 / (2 * noise)) * math.exp(-abs(shift) / noise) if noise else 1.0
        margin = limit + shift - distance  # ν < margin
        tail = math.exp(-abs(margin) / scale) / (1 + math.exp(-1 / scale))
        found += chance * (1 - tail if margin > 0 else tail * math.exp(-1 / scale)) ** tests
    return found


def test_what_a_threshold_loses_without_its_noise() -> None:
    """Ten steps below it: with the noise of the run ε, without it ten times the loss of one."""
    epsilon = 1.0
    rho, nu = 2 / epsilon, 4 / epsilon
    ours = math.log(below(30, 20, nu, rho, 10) / below(31, 20, nu, rho, 10))
    cut = math.log(below(30, 20, nu / 2, 0, 10) / below(31, 20, nu / 2, 0, 10))
    assert ours <= epsilon / 2  # the half that pays for ρ
    assert cut == pytest.approx(10 * epsilon / 2, rel=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"publications": 0}, "publications"),
        ({"publications": 31}, "publications"),
        ({"test_share": 1}, "test_share"),
        ({"gain": -1}, "gain"),
        ({"gain": math.nan}, "gain"),
    ],
)
def test_bad_parameters(options: dict[str, Any], words: str) -> None:
    """One sentence that names the parameter."""
    with pytest.raises(InvalidParameter, match=words):
        DSAT(WEvent(epsilon="1", window=30), **options)
    with pytest.raises(InvalidParameter, match="epsilon"):
        DSAT(User(epsilon="1e-15", horizon=30))
