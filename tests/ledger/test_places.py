"""A copy of a ledger does not go on with noise that the original goes on with."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tidegate.errors import LedgerMismatch
from tidegate.ledger import SQLiteLedger
from tidegate.mechanisms import Uniform
from tidegate.policy import User, WEvent
from tidegate.releases import Status
from tidegate.runtime.copies import back_up, restore

W = 8
KINDS = {
    "semiorder": Uniform(WEvent(epsilon="1", w=W), noise="semiorder"),
    "cube": Uniform(WEvent(epsilon="1", w=W), noise="cube"),
}


def begun(path: Path, mechanism, steps: int = 11) -> bytes:
    """A stream that stopped after some steps: its state."""
    with SQLiteLedger(path, mechanism.policy, mechanism.units) as ledger:
        run = mechanism.start(ledger)
        run.push_batch(np.zeros((steps, 1), dtype=np.int64))
        while not run.holds_noise:  # between two groups there is nothing to go on with
            run.push(0)
        return run.snapshot()


def went_on(path: Path, mechanism, state: bytes, steps: int = 3 * W) -> np.ndarray:
    """Whether each of the next steps was measured."""
    with SQLiteLedger(path, mechanism.policy, mechanism.units) as ledger:
        run = mechanism.start(ledger, state=state)
        fresh = [run.push(0).status is Status.FRESH for _ in range(steps)]
        assert ledger.verify().ok
    return np.array(fresh)


COPIES = {
    "cp": lambda ledger, copy: shutil.copy(ledger, copy),
    "cp -a of all that lies beside it": lambda ledger, copy: [
        shutil.copy2(each, str(each).replace(str(ledger), str(copy)))
        for each in ledger.parent.glob(f"{ledger.name}*")
    ],
    "backup and restore": lambda ledger, copy: restore(
        back_up(str(ledger), copy.with_suffix(".kept")).path, copy
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_silent_where_the_original_goes_on(kind, how, tmp_path):
    """Else the difference of what both release is exact."""
    mechanism, ledger, copy = KINDS[kind], tmp_path / "one.ledger", tmp_path / "two.ledger"
    state = begun(ledger, mechanism)
    COPIES[how](ledger, copy)
    assert went_on(ledger, mechanism, state).all()
    measured = went_on(copy, mechanism, state)
    silent = int(np.argmax(measured))
    if kind == "semiorder":
        assert silent == W - 1
    else:
        assert 0 < silent <= W
    assert measured[silent:].all()


@pytest.mark.parametrize("live", [False, True])
def test_an_older_copy_in_the_same_file_is_silent(live, tmp_path):
    """Written over the original by cp it has the same inode, and may have been made while the stream went on."""
    mechanism, path, copy = KINDS["semiorder"], tmp_path / "one.ledger", tmp_path / "copy"
    state = begun(path, mechanism)
    if live:
        with SQLiteLedger(path, mechanism.policy, mechanism.units) as ledger:
            run = mechanism.start(ledger, state=state)
            state = run.snapshot()
            back_up(str(path), copy)
            run.push(0)
    else:
        shutil.copy(path, copy)
        assert went_on(path, mechanism, state, 1).all()
    inode = path.stat().st_ino
    path.write_bytes(copy.read_bytes())
    for side in ("-wal", "-shm"):
        Path(f"{path}{side}").unlink(missing_ok=True)
    assert path.stat().st_ino == inode
    assert int(np.argmax(went_on(path, mechanism, state))) == W - 1


def test_a_copy_that_was_opened_and_left_is_still_one(tmp_path):
    """What was found out stays so, although nobody has written another state since."""
    mechanism, ledger, copy = KINDS["semiorder"], tmp_path / "one.ledger", tmp_path / "two.ledger"
    state = begun(ledger, mechanism)
    shutil.copy(ledger, copy)
    for _ in range(2):
        SQLiteLedger(copy, mechanism.policy, mechanism.units).close()
    assert int(np.argmax(went_on(copy, mechanism, state))) == W - 1


def test_a_ledger_that_stays_where_it_is_goes_on(tmp_path):
    """However often it is opened; also where it is renamed together with what lies beside it."""
    mechanism, path = KINDS["semiorder"], tmp_path / "one.ledger"
    state = begun(path, mechanism)
    for _ in range(2):
        with SQLiteLedger(path, mechanism.policy, mechanism.units) as ledger:
            run = mechanism.start(ledger, state=state)
            assert run.push(0).status is Status.FRESH
            state = run.snapshot()
    for each in list(tmp_path.glob("one.ledger*")):
        each.rename(str(each).replace("one", "two"))
    assert went_on(tmp_path / "two.ledger", mechanism, state).all()


def test_a_copy_of_one_group_for_all_steps_is_refused_for_good(tmp_path):
    """At user level there is no later group."""
    mechanism = Uniform(User(epsilon="1", horizon=40), noise="cube")
    state = begun(tmp_path / "one.ledger", mechanism)
    shutil.copy(tmp_path / "one.ledger", tmp_path / "two.ledger")
    for _ in range(2):
        with (
            SQLiteLedger(tmp_path / "two.ledger", mechanism.policy, mechanism.units) as ledger,
            pytest.raises(LedgerMismatch, match="only one that goes on"),
        ):
            mechanism.start(ledger, state=state)
    assert went_on(tmp_path / "one.ledger", mechanism, state, 5).all()


def test_a_state_of_an_earlier_version_goes_on_once_it_is_bound(tmp_path):
    """Its ledger does not say where it was kept: the place where it is first found is its own, and no copy's."""
    mechanism, path = KINDS["semiorder"], tmp_path / "one.ledger"
    state = begun(path, mechanism)
    with SQLiteLedger(path, mechanism.policy, mechanism.units) as ledger:
        run = mechanism.start(ledger, state=state)
        run._noise.name = "earlier"
        ledger._kept = ledger._kept._replace(nonce="")
        run._noise.known_as = lambda: "earlier"
        earlier = run.snapshot()
        ledger.connection.execute("DROP TABLE place")
    Path(f"{path}.lock").write_bytes(b"")
    SQLiteLedger(path, mechanism.policy, mechanism.units).close()
    shutil.copy(path, tmp_path / "two.ledger")
    assert went_on(path, mechanism, earlier).all()
    assert int(np.argmax(went_on(tmp_path / "two.ledger", mechanism, earlier))) == W - 1
