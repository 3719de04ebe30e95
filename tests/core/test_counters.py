"""Counters on the new core: steps that are passed over, horizons, copies, and the size of the state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.core import arrays
from tidegate.core.rows import Draws
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.endless_sum import EndlessSum
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.counters.gradual_tree import GradualTree
from tidegate.mechanisms.counters.hybrid_tree import HybridTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.noise.entropy import current, install
from tidegate.noise.fixed import FixedEntropy
from tidegate.queries.decayed import Exponential, Polynomial, Window
from tidegate.releases import Status

W = 4
PURE, RHO = tg.WEvent(epsilon="2", window=W), tg.WEvent(rho="2", window=W)
EVENT = tg.Event(rho="2")
COUNTERS: dict[str, Any] = {
    "binary": BinaryTree(PURE, columns=2, horizon=5000),
    "gradual": GradualTree(tg.Event(epsilon="2"), columns=2, horizon=5000, growth=1),
    "hybrid": HybridTree(PURE, columns=2, branching=3),
    "sliding": SlidingWindowTree(RHO, columns=2, window=6),
    "blt": Factorization(RHO, columns=2, horizon=5000, buffers=3),
    "banded": Factorization(RHO, columns=2, horizon=5000, method="banded", bands=16),
    "endless": EndlessSum(RHO, columns=2),
}
DECAYED: dict[str, Any] = {
    "sliding": COUNTERS["sliding"],
    "exponential": Factorization(
        EVENT, columns=2, horizon=200, method="square-root", decay=Exponential("0.9")
    ),
    "polynomial": Factorization(
        EVENT, columns=2, horizon=200, method="banded", bands=20, decay=Polynomial("1")
    ),
    "window": Factorization(EVENT, columns=2, horizon=200, method="square-root", decay=Window(12)),
}
ROWS = np.array([[(7 * step) % 23, 3 * step] for step in range(1, 31)])


def pushed(mechanism: Any, steps: list[int], rows: Any) -> Any:
    """The values and scales of these steps, each pushed by itself, under fixed entropy."""
    with install(FixedEntropy("counters")):
        session = Session(mechanism)
        found = [session.push_batch([row], step=step) for step, row in zip(steps, rows, strict=True)]
    return np.concatenate([np.column_stack([each.values, each.scale]) for each in found])


@pytest.mark.parametrize("name", ["binary", "gradual", "hybrid", "blt", "banded", "endless"])
def test_running_sums_do_not_count_steps_that_are_passed_over(name: str) -> None:
    """Errors are those of the steps that were pushed; noise is found by steps in a factorisation."""
    gaps, dense = [*range(1, 8), *range(300, 323)], list(range(1, 31))
    found, expected = pushed(COUNTERS[name], gaps, ROWS), pushed(COUNTERS[name], dense, ROWS)
    assert np.array_equal(found[:, 2], expected[:, 2])
    if name in ("binary", "gradual", "hybrid"):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", list(DECAYED))
def test_windows_and_ages_count_steps_that_are_passed_over_as_empty(name: str) -> None:
    """The same as zeros, bit for bit; a first step that comes late has nothing before it."""
    given = ROWS.copy()
    given[7:11] = 0
    kept = [*range(7), *range(11, 30)]
    found = pushed(DECAYED[name], [at + 1 for at in kept], given[kept])
    assert np.array_equal(found, pushed(DECAYED[name], list(range(1, 31)), given)[kept])
    late = pushed(DECAYED[name], list(range(1001, 1031)), ROWS)
    assert np.array_equal(late[:, 2], pushed(DECAYED[name], list(range(1, 31)), ROWS)[:, 2])


def test_a_window_that_contains_nothing_earlier_begins_anew() -> None:
    """After n steps that were passed over nothing of the old blocks is in a sum."""
    mechanism = SlidingWindowTree(tg.Event(epsilon="50"), window=6)
    steps = [*range(1, 9), *range(15, 23)]
    found = pushed(mechanism, steps, np.full((16, 1), 1000))
    assert found[8:, 0].round(-2).tolist() == [1000, 2000, 3000, 4000, 5000, 6000, 6000, 6000]
    assert np.array_equal(found[8:, 1], found[:8, 1])
    assert found[0, 1] < found[7, 1]


@pytest.mark.parametrize("name", ["binary", "gradual", "blt", "banded"])
def test_a_horizon_is_refused_in_public(name: str) -> None:
    """Nothing is charged, and the session stays open; steps that are passed over are not counted."""
    kinds: dict[str, Any] = {
        "binary": BinaryTree(PURE, columns=2, horizon=10),
        "gradual": GradualTree(tg.Event(epsilon="2"), columns=2, horizon=10),
        "blt": Factorization(RHO, columns=2, horizon=10, buffers=2),
        "banded": Factorization(RHO, columns=2, horizon=10, method="banded", bands=3),
    }
    session = Session(kinds[name])
    session.push_batch(ROWS[:7])
    head = session.head
    with pytest.raises(InvalidInput, match="built for 10 steps and 4 more would make 11"):
        session.push_batch(ROWS[:4])
    assert (session.head, session.step) == (head, 7)
    session.push(ROWS[0], step=40)
    session.push_batch(ROWS[:2])
    with pytest.raises(InvalidInput, match="built for 10 steps"):
        session.push(ROWS[0])


def test_a_horizon_counts_the_empty_steps_of_decayed_sums() -> None:
    """They are measured."""
    session = Session(DECAYED["exponential"])
    session.push_batch(ROWS)
    with pytest.raises(InvalidInput, match="built for 200 steps"):
        session.push(ROWS[0], step=201)
    assert session.push(ROWS[0], step=200).step == 200


@pytest.mark.parametrize("name", list(COUNTERS))
def test_a_copied_file(tmp_path: Path, name: str) -> None:
    """A node that began with its noise is dropped; other counters hold none, and go on."""
    mechanism, path, copied = COUNTERS[name], tmp_path / "log.db", tmp_path / "copy.db"
    with Session(mechanism, path) as session:
        session.push_batch(ROWS[:9])
    shutil.copy(path, copied)
    with Session(mechanism, copied) as session:
        status = session.push_batch(ROWS[9:20]).status.tolist()
        assert verify(session._log.rows()).ok
    silent = W - 1 if name == "sliding" else 0
    assert status == [int(Status.SILENT)] * silent + [int(Status.FRESH)] * (11 - silent)


@pytest.mark.parametrize("name", list(COUNTERS))
def test_the_state_has_a_public_size_that_does_not_grow(name: str) -> None:
    """The same shapes for other data; at most a row more per level of the tree."""
    mechanism, shapes = COUNTERS[name], []
    for factor in (0, 10**6):
        state = mechanism.begin(1)
        noise, found = Draws(current()), []
        for first, stop in ((1, 301), (301, 3001)):
            rows = factor * np.resize(ROWS, (stop - first, 2))
            mechanism.advance(state, rows, first, noise)
            found.append([part.shape for part in arrays.flat(state)])
        shapes.append(found)
    assert shapes[0] == shapes[1]
    before, after = shapes[0]
    if name == "hybrid":  # blocks of 3^j steps: step 300 is in block 5, step 3000 in block 7
        assert (before[4], after[4]) == ((6, 2), (8, 2))
    else:
        assert before == after


def test_trees_are_loaded_at_the_end_of_a_block() -> None:
    """Where a block is full and the next has not begun."""
    mechanism = HybridTree(tg.Event(epsilon="1"), columns=2)
    with install(FixedEntropy("ends")):
        whole, state = mechanism.begin(1), mechanism.begin(1)
        noise = Draws(current())
        expected = mechanism.advance(whole, ROWS, 1, noise).values
        found = []
        for first, stop in ((1, 2), (2, 4), (4, 8), (8, 16), (16, 31)):
            found.append(mechanism.advance(state, ROWS[first - 1 : stop - 1], first, noise).values)
            stored = iter(arrays.decode(arrays.encode(arrays.flat(state))))
            state = arrays.rebuilt(mechanism.begin(1), stored)
    assert np.array_equal(np.concatenate(found), expected)
