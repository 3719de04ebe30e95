"""Streams whose log is in PostgreSQL: the same releases as from a file, resumed, and nothing left by a refused start."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import places, readings, release, settings, shop

from tidegate.config import Queries, parse_queries
from tidegate.core.errors import Fenced, LogMismatch
from tidegate.errors import InvalidParameter
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline, side_tables
from tidegate.pipeline import pipeline as pipeline_module
from tidegate.pipeline.logs import LogReader, log_exists
from tidegate.servers.postgres import ServerAway
from tidegate.sinks.chunks import joined
from tidegate.testing.entropy import fixed_entropy

pytestmark = pytest.mark.slow  # a server


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits, and marks among them."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 3)
    monkeypatch.setattr(pipeline_module, "MARK_EVERY", 5)


@pytest.mark.parametrize("stream", [places, shop, readings])
def test_releases_are_those_of_a_file(tmp_path: Path, postgres: Any, stream: Any) -> None:
    """Byte for byte, in two starts; missing readings and marks are in the database."""
    outputs = []
    for name in ("file", "server"):
        folder = tmp_path / name
        folder.mkdir()
        url = postgres.new_stream()
        changes = [] if name == "file" else [("[protect]", f'[protect]\nledger = "{url}"')]
        queries = settings(folder, stream(folder), *changes)
        with fixed_entropy(3):
            release(queries, blocks=4)
            release(queries)
        outputs.append(
            {
                path.name: path.read_bytes().splitlines()
                for path in folder.glob("*.csv")
                if path.name != "events.csv"
            }
        )
        with fixed_entropy(3), open_pipeline(queries) as pipeline:
            assert pipeline.verify().ok
            for read in pipeline.released.values():
                every = joined(read.chunks(), read.mechanism.outputs)
                found = joined(read.between(20, 22), read.mechanism.outputs)
                assert set(found.step.tolist()) >= {20, 21, 22}
                at = np.flatnonzero(every.step == 21)
                assert np.array_equal(
                    found.picked(np.flatnonzero(found.step == 21)).values,
                    every.picked(at).values,
                    equal_nan=True,
                )
    assert outputs[0]
    assert outputs[0] == outputs[1]


def test_a_refused_start_leaves_no_log(tmp_path: Path, postgres: Any) -> None:
    """A stream that has released stays."""
    url = postgres.new_stream()
    queries = settings(tmp_path, places(tmp_path), ("[protect]", f'[protect]\nledger = "{url}"'))
    with pytest.raises(InvalidParameter, match="new-stream"):
        open_pipeline(queries, new_stream=True)
    assert not log_exists(url)
    release(queries, blocks=2)
    assert log_exists(url)
    with LogReader(url) as log:
        assert [row.number for row in log.rows(1)] == [1, 2]


def on_two_machines(folder: Path, postgres: Any) -> list[Queries]:
    """The same configuration and input on each, with one log."""
    change, found = ("[protect]", f'[protect]\nledger = "{postgres.new_stream()}"'), []
    for name in ("here", "there"):
        (folder / name).mkdir()
        found.append(settings(folder / name, readings(folder / name), change))
    return found


def test_an_overtaken_worker_writes_nothing_beside_the_log(
    tmp_path: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that was stopped between two statements: its transaction ends, and others can commit."""
    queries, there = on_two_machines(tmp_path, postgres)
    release(queries, blocks=2)
    with open_pipeline(queries, sink=False) as old:
        (name,) = old.readers
        release(there, blocks=2)  # another worker, which continues
        with open_pipeline(there, sink=False) as new:
            new.side_tables.keep([(50, b"row")], None)
            new.side_tables.put_occurrences(name, 50, [(50, b"record")])
        kept = (
            lambda: list(old.side_tables.entries()),
            lambda: old.side_tables.gaps(name, 1, 20, 2),
            old.side_tables.sinks,
        )
        before = [repr(found()) for found in kept]
        for write in (
            lambda: old.side_tables.put_gaps(name, 1, None),
            lambda: old.side_tables.put_occurrences(name, 1, []),
            lambda: old.side_tables.forget_occurrences(name, 100),
            lambda: old.side_tables.remove_ended_queries(()),
            lambda: old.side_tables.keep([(9, b"other row")], None),
            lambda: old.side_tables.replace_all([(9, b"other row")]),
            lambda: old.side_tables.forget(100),
            lambda: old.side_tables.put_note("begin", 7),
            lambda: old.side_tables.checkpoint({"sink": (1, {})}, {}),
        ):
            with pytest.raises(Fenced):
                write()
        assert [repr(found()) for found in kept] == before
        assert before[0] == "[(50, b'row')]"
        assert old.side_tables.occurrences(name, 1, 100) == [b"record"]
    with open_pipeline(there, sink=False) as new:
        monkeypatch.setattr(side_tables, "HOLD_HEAD", side_tables.HOLD_HEAD.replace("10s", "200ms"))
        stopped, step = ExitStack(), new.step
        stopped.enter_context(new.side_tables._writing())
        monkeypatch.undo()
        release(queries, blocks=1)  # waits until the server has ended the transaction
        with pytest.raises(ServerAway):
            stopped.close()
    with open_pipeline(there, sink=False) as new:
        assert new.step > step


def test_who_opens_a_stream_takes_it_over(tmp_path: Path, postgres: Any) -> None:
    """At once, before it has committed anything: the other one commits no more, and writes nothing beside the log."""
    queries, there = on_two_machines(tmp_path, postgres)
    release(queries, blocks=2)
    with open_pipeline(queries, sink=False) as old:
        (name,) = old.readers
        old.side_tables.put_occurrences(name, 50, [(50, b"record")])
        intake = queries.open(old.position)
        block = next(iter(intake))
        with open_pipeline(there, sink=False) as new:
            with pytest.raises(Fenced):
                old.side_tables.put_occurrences(name, 50, [])
            with pytest.raises(Fenced):
                old.process(old.editions[0], (block,))
            assert new.step == old.step
        intake.close()
    assert release(there, blocks=1).step > old.step


def test_a_start_that_is_refused_stops_nobody(tmp_path: Path, postgres: Any) -> None:
    """With another configuration, on another machine: the worker that runs continues."""
    queries, there = on_two_machines(tmp_path, postgres)
    text = there.path.read_text().replace('epsilon = "1"', 'epsilon = "1/2"')
    assert text != there.path.read_text()
    with open_pipeline(queries, sink=False) as running:
        with pytest.raises(LogMismatch):
            open_pipeline(parse_queries(text, there.path), sink=False)
        intake = queries.open(running.position)
        running.process(running.editions[0], (next(iter(intake)),))
        assert running.step > 0
        intake.close()
