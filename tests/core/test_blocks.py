"""Blocks on the new core: the mechanism inside begins anew, and its charges are those of the whole stream."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.core.errors import Halted
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sampled.rescue_dp import RescueDP
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import User
from tidegate.releases import Status

HALF, ONE = User(epsilon="1/2", horizon=5), User(epsilon="1/2", horizon=1)
INNER: dict[str, Any] = {
    "shared": Uniform(HALF, columns=2),
    "laplace": Uniform(HALF, columns=2, noise="laplace"),
    "sample": Sample(User(epsilon="1", horizon=12, adjacency="replace"), columns=3, grid="0.5", every=5),
    "gaussian": Uniform(User(rho="1/2", horizon=1)),
    "one": Sample(ONE),
    "fast": Fast(User(epsilon="1/2", horizon=20), columns=3, samples=4, noise="laplace"),
    "fast shared": Fast(User(epsilon="1/2", horizon=20), samples=12, noise="cube"),
    "tree": BinaryTree(User(epsilon="1", horizon=8), columns=2, horizon=8),
}


def rows_of(mechanism: Any, steps: int = 70) -> Any:
    """Waves and jumps."""
    at = np.arange(steps * mechanism.columns).reshape(steps, -1)
    return (40 * np.sin(at / 7) + 50).astype(np.int64) + 100 * (at % 11 == 3)


@pytest.mark.parametrize("name", list(INNER))
def test_blocks_release_the_same_however_steps_are_pushed(name: str) -> None:
    """In a batch, in odd batches, and with a new session per step; from step 1 and from another one.

    tests/transcripts has what they were.
    """
    inner = INNER[name]
    new, rows = Blocks(inner), rows_of(inner)
    with install(FixedEntropy("blocks")):
        expected, log, session = Session(new).push_batch(rows), MemoryLog(), Session(new)
        ways = {
            "odd": [session.push_batch(rows[a:b]) for a, b in ((0, 1), (1, 4), (4, 26), (26, 33), (33, 70))],
            "single": [Session(new, log).push_batch([row]) for row in rows],
        }
        late, run = Session(new), Session(new)
        late.push(rows[0], step=50)
        run.push_batch(rows[:1], step=50)
        again = late.push_batch(rows[1:30]), run.push_batch(rows[1:30])
    for field in ("values", "status", "source", "scale"):
        wanted = getattr(expected, field)
        for way, parts in ways.items():
            assert np.array_equal(np.concatenate([getattr(each, field) for each in parts]), wanted), (
                way,
                field,
            )
        assert np.array_equal(getattr(again[0], field), getattr(again[1], field))
    assert verify(log.rows()).ok


def test_what_a_block_decides_is_charged_as_it_is() -> None:
    """A block is not paid in advance: an account that is nobody else's needs no advance."""
    new, rows = Blocks(INNER["fast"]), rows_of(INNER["fast"], 100)
    units = Session(new).push_batch(rows).units
    blocks = units.reshape(5, 20).sum(axis=1)
    assert blocks.max() <= INNER["fast"].units
    assert new.units == 2 * INNER["fast"].units


@pytest.mark.parametrize("name", list(INNER))
def test_steps_that_are_passed_over(name: str) -> None:
    """A block begins with the first step after the end of the last one; windows stay within the budget."""
    mechanism, log = Blocks(INNER[name]), MemoryLog()
    steps = [1, 2, 4, 5, 6, 7, 40, 41, 43, 60, 61, 75, 400, *range(430, 460), 2000]
    for place, step in enumerate(steps):
        if place % 3 == 0:
            session = Session(mechanism, log)
        released = session.push_batch([np.full(mechanism.columns, 40)], step=step)
        if step in (1, 75, 400, 2000):
            assert released.source.tolist() == [step]
    assert verify(log.rows()).ok


def test_blocks_have_noise_of_their_own() -> None:
    """Rows are known by their steps, and each block counts its own: no two blocks share one."""
    for inner in (Fast(User(epsilon="1/100", horizon=3), columns=4, samples=1, noise="laplace"),):
        mechanism = Blocks(inner)
        for batch in (1, 30):
            session, rows = Session(mechanism), np.zeros((batch, 4), dtype=np.int64)
            found = [session.push_batch(rows) for _ in range(30 // batch)]
            fresh = np.concatenate([each.values[each.fresh] for each in found])
            assert len(fresh) == 10
            assert len(np.unique(fresh, axis=0)) == 10  # scales are 100: equal once in 10^9 times


@pytest.mark.parametrize("name", ["shared", "laplace"])
def test_a_copied_file(tmp_path: Path, name: str) -> None:
    """Noise that steps share is dropped in a copy, and the next block begins after a window."""
    mechanism = Blocks(INNER[name])
    with Session(mechanism, tmp_path / "log.db") as session:
        session.push_batch(rows_of(mechanism, 8))
    shutil.copy(tmp_path / "log.db", tmp_path / "copy.db")
    with Session(mechanism, tmp_path / "copy.db") as session:
        status = session.push_batch(rows_of(mechanism, 12)).status.tolist()
        assert verify(session._log.rows()).ok
    silent = 4 if name == "shared" else 0
    assert status == [int(Status.SILENT)] * silent + [int(Status.FRESH)] * (12 - silent)


class Greedy(Uniform):
    """Charges a step more than it says."""

    def advance(self, state: Any, rows: Any, first: int, noise: Any) -> Any:
        """Twice."""
        found = super().advance(state, rows, first, noise)
        return found._replace(units=2 * found.units)


def test_a_block_that_spends_too_much_halts() -> None:
    """The window would allow it, being as large as two blocks; the block's own budget does not."""
    log, mechanism = MemoryLog(), Blocks(Greedy(HALF, noise="laplace"))
    session = Session(mechanism, log)
    session.push_batch([1, 2])
    with pytest.raises(Halted):
        session.push(3)
    assert verify(log.rows()).ok
    status = Session(mechanism, log).push_batch([1, 2, 3, 4, 5, 6]).status.tolist()
    assert status == [int(Status.SILENT)] * 4 + [int(Status.FRESH)] * 2


def test_mechanisms_that_need_no_blocks_are_refused() -> None:
    """In one sentence."""
    rescue = RescueDP(User(epsilon="4", horizon=12), columns=4)  # follows what its window has spent
    for inner in (PeGaSus(User(epsilon="1", horizon=5)), rescue):
        with pytest.raises(InvalidParameter, match="without blocks"):
            Blocks(inner)
    assert Blocks(INNER["laplace"]).policy.budget.total == Fraction(1)
