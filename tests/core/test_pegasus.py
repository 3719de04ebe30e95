"""PeGaSus, its hierarchical form and BackwardSmoothing on the core: what no comparison with earlier releases shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.core.errors import AccountRefused, Halted
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.mechanisms.pegasus import grouper as loop
from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing
from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import Event, User, WEvent
from tidegate.releases import Status
from tidegate.structures.hierarchy import Hierarchy

W = 5
POLICY = WEvent(epsilon="50", window=W)
TREE = Hierarchy.from_names(["a/1/x", "a/1/y", "a/2", "b"])
SMOOTHED: dict[str, Any] = {
    "pegasus": PeGaSus(POLICY, columns=2, threshold=40, noise="laplace"),
    "pegasus, shared noise": PeGaSus(POLICY, threshold=40, longest_group=4),
    "counts": HierarchicalPeGaSus(POLICY, hierarchy=TREE, prune_below=60, threshold=40),
    "privtree": HierarchicalPeGaSus(POLICY, hierarchy=TREE, pruning="privtree", prune_below=60),
    "nothing pruned": HierarchicalPeGaSus(POLICY, hierarchy=TREE, pruning="none", longest_group=3),
    "one node": HierarchicalPeGaSus(POLICY, hierarchy=Hierarchy.from_parents({"one": None})),
    "backward": BackwardSmoothing(POLICY, columns=2, back=3),
    "backward, nothing": BackwardSmoothing(POLICY, back=0),
}
SIZES = (1, 2, 1, 5, 1, 7, 3)


@pytest.fixture(params=list(SMOOTHED))
def mechanism(request: pytest.FixtureRequest) -> Any:
    """One of them."""
    return SMOOTHED[request.param]


def stream(steps: int, columns: int, seed: int) -> Any:
    """Whole numbers that jump; 0 stands for nothing at all."""
    t, c = np.arange(steps)[:, None], np.arange(columns)[None, :]
    return (7919 * t * t * seed + 104729 * t * (c + 1) * seed) % 997


def pushed(session: Session, values: Any, step: int | None = None) -> Any:
    """One step, as arrays with one row."""
    session.push(values, step=step)
    return list(session.releases(session.step))[-1]


def test_steps_that_are_passed_over(mechanism: Any) -> None:
    """Groups continue behind them, and logs that are opened in between say the same."""
    rows, steps = stream(60, mechanism.columns, 1), [1, 2, 3, 9, 10, 40, 41, 42, 1000, 1001]
    values = []
    for every in (1, 100):
        log = MemoryLog()
        with install(FixedEntropy("gaps")):
            found, session = [], Session(mechanism, log)
            for place, step in enumerate(steps):
                session = Session(mechanism, log) if place % every == 0 else session
                found.append(pushed(session, rows[place], step).values)
        values.append(np.concatenate(found))
        assert verify(log.rows()).ok
    assert np.array_equal(values[0], values[1])
    assert np.isfinite(values[0]).all()


def test_averages_leave_out_what_is_too_old() -> None:
    """BS_k looks k steps back, however few of them were pushed."""
    session = Session(BackwardSmoothing(POLICY, back=3))
    released = [pushed(session, [100], step) for step in (1, 2, 4, 7, 8, 20)]
    noisy = {int(each.steps[0]): float(each.measured.noisy[0, 0]) for each in released}
    for each in released:
        step = int(each.steps[0])
        known = [value for at, value in noisy.items() if step - 3 <= at <= step]
        assert float(each.values[0, 0]) == pytest.approx(sum(known) / len(known), rel=1e-12)


def test_pruned_nodes_are_in_no_group() -> None:
    """Their value, group and weight are 0, the step says so, and a group skips it."""
    mechanism = SMOOTHED["counts"]
    rows = np.where(np.arange(40)[:, None] % 2 == 0, 5000, 0) + np.zeros((1, 4), dtype=np.int64)
    released = Session(mechanism).push_batch(rows)
    pruned = released.measured.weights == 0
    assert pruned[1::2].any()
    assert not pruned[::2].any()
    assert not released.values[pruned].any()
    assert not released.measured.groups[pruned].any()
    assert np.array_equal(released.status == int(Status.PRUNED), pruned.any(axis=1))
    assert (released.units == 1).all()


def test_negative_counts_do_not_prune_in_a_privtree() -> None:
    """Its tests leave them out, so that counts never grow on the way down; plain counts cancel out."""
    row = [-(10**6), 10**6, 0, 0]
    node = TREE.names.index("a/1")
    below = [at for at, parent in enumerate(TREE.parents) if parent == node]
    for name, pruned in (("privtree", False), ("counts", True)):
        released = pushed(Session(SMOOTHED[name]), row)
        assert all((released.measured.weights[0, at] == 0) == pruned for at in below)


def test_the_number_of_open_counts_is_what_releases_say() -> None:
    """A state's size follows from the groups that were released, so it is public."""
    mechanism = SMOOTHED["counts"]
    session = Session(mechanism)
    size, start = np.zeros(mechanism.outputs, dtype=int), np.zeros(mechanism.outputs, dtype=int)
    for row in stream(80, mechanism.columns, 1):
        released = pushed(session, row)
        step, begun = int(released.steps[0]), released.measured.groups[0]
        for node in np.flatnonzero(begun):
            if size[node] and begun[node] != start[node]:
                size[node] = 0  # it failed its test, and is closed
            else:
                size[node], start[node] = size[node] + 1, begun[node]
                assert size[node] > 1 or begun[node] == step
            size[node] = 0 if size[node] >= mechanism.longest_group else size[node]
        memory = session._queries[0].state.groups.memory
        assert memory[:, loop.SIZE].tolist() == size.tolist()


def test_records_have_public_sizes() -> None:
    """Their sizes follow from shapes and from groups; with groups of one step they are those of any stream."""
    for given in SMOOTHED.values():
        if given.columns == 1 and given.outputs == 1 and isinstance(given, HierarchicalPeGaSus):
            continue
        alone = given if isinstance(given, BackwardSmoothing) else replace(given, longest_group=1)
        if isinstance(alone, HierarchicalPeGaSus) and alone.prunes:
            alone = replace(alone, pruning="none")
        sizes = []
        for seed in (0, 1):
            log = MemoryLog()
            session, found = Session(alone, log), []
            for size in SIZES:
                session.push_batch(stream(size, alone.columns, seed))
                loaded = log.load()
                assert loaded is not None
                found.append(len(loaded.secret))
            sizes.append(found + [len(row.charges) + len(row.releases or b"") for row in log.rows()])
        assert sizes[0] == sizes[1]


def test_lists_of_open_groups_are_padded() -> None:
    """Equal counts are stored once and others one by one; the record does not tell which."""
    mechanism = HierarchicalPeGaSus(
        Event(epsilon="50"), hierarchy=TREE, pruning="none", threshold=10**9, longest_group=10**6
    )
    sizes = []
    for rows in (np.full((40, 4), 7), np.arange(160).reshape(40, 4) ** 2):
        log = MemoryLog()
        session = Session(mechanism, log)
        for part in (rows[:1], rows[1:20], rows[20:]):
            session.push_batch(part)
        loaded = log.load()
        assert loaded is not None
        sizes.append(len(loaded.secret))
    assert sizes[0] == sizes[1]


def test_a_horizon_is_refused_before_a_word_is_drawn(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that passes the end changes nothing, and the session stays open."""
    ending = replace(mechanism, policy=replace(mechanism.policy, horizon=2 * W + 1))
    rows, session = stream(60, mechanism.columns, 1), Session(ending)
    session.push_batch(rows[: 2 * W])
    with monkeypatch.context() as patch:
        patch.setattr(type(ending), "advance", lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(AccountRefused):
            session.push_batch(rows[:2])
    assert len(session.push_batch(rows[:1])) == 1


def test_a_halt_and_a_copy_drop_open_groups(mechanism: Any, tmp_path: Path) -> None:
    """Silent for w − 1 steps; a copy only where noise is still to be used."""
    rows = stream(30, mechanism.columns, 1)
    with Session(mechanism, SQLiteLog(tmp_path / "one.db")) as session:
        session.push_batch(rows[:7])
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    with Session(mechanism, SQLiteLog(tmp_path / "two.db")) as session:
        copied = session.push_batch(rows)
    silent = copied.status == int(Status.SILENT)
    assert silent.sum() == (W - 1 if mechanism.noise_in_state else 0)
    with Session(mechanism, SQLiteLog(tmp_path / "one.db")) as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.mechanisms.pegasus.pegasus.Output", None)
        patch.setattr("tidegate.mechanisms.pegasus.backward_smoothing.Output", None)
        patch.setattr("tidegate.mechanisms.pegasus.hierarchical_pegasus.empty_output", None)
        with pytest.raises(Halted):
            session.push_batch(rows[:3])
    with Session(mechanism, SQLiteLog(tmp_path / "one.db")) as session:
        later = session.push_batch(rows)
        silent = later.status == int(Status.SILENT)
        assert silent[: W - 1].all()
        assert silent.sum() == W - 1
        assert later.measured is not None
        groups = later.measured.groups[W - 1 :]
        assert groups[groups > 0].min() >= later.first_step + W - 1
        assert verify(session._log.rows()).ok


def test_who_has_noise_in_the_state() -> None:
    """Open groups have noisy thresholds; averages of releases have nothing."""
    without = [name for name, each in SMOOTHED.items() if not each.noise_in_state]
    assert without == ["backward", "backward, nothing"]


def test_users_have_a_horizon_and_no_second_chance() -> None:
    """At user level a copy with open groups is refused for good."""
    mechanism = HierarchicalPeGaSus(User(epsilon="90", horizon=9), hierarchy=TREE, pruning="none")
    session = Session(mechanism)
    session.push_batch(np.ones((9, 4), dtype=np.int64))
    with pytest.raises(AccountRefused):
        session.push([1, 1, 1, 1])
