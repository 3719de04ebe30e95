"""A stop looks at the ledger as the next start will: at its head and its last rows, however long it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers import blocks, settings

from tidegate.config.queries import one
from tidegate.ledger import durable
from tidegate.ledger.replay import Replay
from tidegate.runtime import Streams, open_streams
from tidegate.runtime import streams as module
from tidegate.runtime.store import verify_target

STEPS = 200


@contextmanager
def released(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """A stream whose ledger is long enough to have a checkpoint."""
    monkeypatch.setattr(module, "SHORT", 10)
    monkeypatch.setattr(durable, "CHECKPOINT_ROWS", 30)
    config = settings(folder, ("count = 12", f"count = {STEPS}"))
    with open_streams(one(config)) as streams:
        streams.streams[0].drive(blocks(np.full((STEPS, 2), 3, dtype=np.int64)))
        streams.finish()
        yield streams


def test_a_stop_replays_what_came_after_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict says so, and is else that of the whole account."""
    with released(tmp_path, monkeypatch) as streams:
        replayed, to = [], Replay.to

        def counting(self: Replay, end: int) -> None:
            replayed.append(end - self.row)
            to(self, end)

        with monkeypatch.context() as patch:
            patch.setattr(Replay, "to", counting)
            found = streams.check()
        whole = streams.verify()
    assert sum(replayed) <= 30
    assert found.ok
    assert found.before >= STEPS - 30
    assert "were not replayed" in str(found)
    same = ("rows", "steps", "spent", "place", "budget", "window", "head", "releases", "marked")
    assert [getattr(found, name) for name in same] == [getattr(whole, name) for name in same]
    assert not whole.before


def test_a_short_ledger_is_verified_wholly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no time."""
    with released(tmp_path, monkeypatch) as streams:
        monkeypatch.setattr(module, "SHORT", 10_000)
        assert streams.check() == streams.verify()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE head SET step = step - 1",
        "UPDATE head SET rows = rows - 1",
        "UPDATE charges SET units = 0 WHERE row = (SELECT max(row) FROM charges)",
        "DELETE FROM charges WHERE row = (SELECT max(row) FROM charges)",
        "UPDATE stream SET number = number - 1",
        "UPDATE stream SET state = x'00'",
    ],
)
def test_what_a_start_would_refuse_a_stop_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Whoever has written to the ledger behind the stream's back is noticed, by both."""
    with released(tmp_path, monkeypatch) as streams:
        path = streams.queries.ledger
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute(damage)
        writer.close()
        verdict = streams.check()
        assert not verdict.ok
        assert verdict.problem.endswith(".")
    assert not verify_target(path).ok
