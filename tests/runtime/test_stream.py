"""The loop on SQLite: going on, refusing what has changed, revisions, missing readings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers import blocks, open_one, release, settings, verified, write_events

import tidegate as tg
from tidegate.core.errors import LogMismatch
from tidegate.ingest.errors import MissingReading
from tidegate.pipeline.errors import LogBusy
from tidegate.sinks.errors import SinkError

COUNTS = np.arange(24, dtype=np.int64).reshape(12, 2)


def test_a_finite_stream_is_released_once(tmp_path: Path) -> None:
    """All steps, with their local times; a second start finds nothing to do and changes no byte."""
    config = settings(tmp_path)
    release(config)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    ends = "north low,north high,south low,south high"
    assert lines[0] == f"time,step,north,south,{ends},status,scale,spent"
    assert [line.split(",")[1] for line in lines[1:]] == [str(step) for step in range(1, 13)]
    assert lines[1].startswith("2026-03-02T00:00:00+01:00,1,")
    assert lines[1].endswith(",fresh,3.236,1")  # the steps of a window share noise, and the first one pays
    before = (tmp_path / "out.csv").read_bytes()
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == before
    found = verified(config.ledger)
    assert (found.ok, found.step, found.private) == (True, 12, True)
    assert (Path(config.ledger).stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('epsilon = "1"', 'epsilon = "2"', 'epsilon = "1" and the configuration now says "2"'),
        ("window = 4", "window = 5", "w = 4 and the configuration now says 5"),
        (
            'columns = ["north", "south"]',
            'columns = ["north"]',
            'columns.names = ["north", "south"] and the configuration now says ["north"]',
        ),
        ('length = "1h"', 'length = "2h"', "steps.length = 3600 and the configuration now says 7200"),
        ('name = "Uniform"', 'name = "Sample"', 'mechanism = "Uniform"'),
        ('unit = "unit"', 'unit = "place"', 'unit = "unit"'),
    ],
)
def test_a_changed_configuration_is_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    """ε changed on a running stream, or a configuration for another ledger: one sentence that says what differs."""
    release(settings(tmp_path))
    written = (tmp_path / "out.csv").read_bytes()
    with pytest.raises(LogMismatch) as refusal:
        open_one(settings(tmp_path, (before, after)))
    assert words in str(refusal.value)
    assert str(refusal.value).count(";") == 1
    assert (tmp_path / "out.csv").read_bytes() == written


def test_what_may_change_may_change(tmp_path: Path) -> None:
    """Another sink gets the whole stream from the store, with the same numbers."""
    release(settings(tmp_path))
    release(settings(tmp_path, ("out.csv", "out.jsonl")))
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    row = (tmp_path / "out.csv").read_text().splitlines()[1].split(",")
    assert [str(first["values"]["north"]), str(first["values"]["south"])] == row[2:4]
    assert first["id"].endswith("-1.0")


def test_a_ledger_of_another_use_is_refused(tmp_path: Path) -> None:
    """A log that was written from Python has other queries."""
    config = settings(tmp_path)
    with tg.open(config.mechanism, config.ledger) as session:
        session.push([1, 2])
    with pytest.raises(LogMismatch):
        open_one(config)


def test_two_processes_cannot_drive_one_stream(tmp_path: Path) -> None:
    """The second is refused while the first is at work."""
    config = settings(tmp_path)
    with open_one(config), pytest.raises(LogBusy):
        open_one(config)
    open_one(config).close()
    assert not list(tmp_path.glob("*.lock"))


def test_a_source_at_another_step_is_refused(tmp_path: Path) -> None:
    """Steps come in order and without gaps."""
    config = settings(tmp_path)
    with open_one(config) as pipeline, pytest.raises(LogMismatch, match="the next step is 1"):
        pipeline.process(pipeline.editions[0], blocks(COUNTS, first=2)[:1])


@pytest.mark.parametrize("name", ["OptStream", "Tide"])
def test_mechanisms_that_revise(tmp_path: Path, name: str) -> None:
    """Every step is released at once and again later; also the last ones, when the stream has ended."""
    more = "\nsamples = 2" if name == "OptStream" else "\ndelay = 3"
    config = settings(
        tmp_path,
        ('name = "Uniform"', f'name = "{name}"{more}'),
        ("count = 12", "count = 10"),
        ("[sink]", '[sink]\nrevisions = "all"'),
    )
    for _ in range(2):
        stream = release(config)
    assert stream.step == 10
    rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert rows[0][2] == "revision"
    first = [int(row[1]) for row in rows[1:] if row[2] == "0"]
    later = [int(row[1]) for row in rows[1:] if row[2] == "1"]
    assert first == list(range(1, 11))
    assert later[:5] == [1, 2, 3, 4, 5]
    if name == "OptStream":
        assert later == first  # two periods of four steps, and the two steps that end the stream
    assert {row[2] for row in rows[1:]} == {"0", "1"}
    assert verified(config.ledger).ok


def test_a_foreign_file_is_not_touched(tmp_path: Path) -> None:
    """A file with something else in it is refused before anything is charged, and stays as it is."""
    config = settings(tmp_path)
    (tmp_path / "out.csv").write_text("my,own,data\n1,2,3\n")
    with pytest.raises(SinkError, match="something else"):
        open_one(config)
    assert (tmp_path / "out.csv").read_text() == "my,own,data\n1,2,3\n"
    assert not Path(config.ledger).exists()


def test_an_input_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    """The source's own error, and nothing is charged."""
    config = settings(tmp_path)
    write_events(tmp_path).unlink()
    with pytest.raises(Exception, match=r"cannot be opened"):
        release(config)
    assert not Path(config.ledger).exists()


@pytest.mark.parametrize("sink", ["out.csv", "out.parquet", "parts/"])
def test_a_refused_first_release_begins_nothing(tmp_path: Path, sink: str) -> None:
    """No file stays behind, so that what the refusal advises can be followed."""
    changes = (
        ("out.csv", sink),
        ('unit = "unit"', 'value = "value"'),
        ('aggregate = "distinct"', 'aggregate = "given"'),
        ("window = 4", 'window = 4\nmax_change = "1"'),
    )
    config = settings(tmp_path, *changes)
    (tmp_path / "events.csv").write_text("time,place,value\n2026-03-02T00:00,north,5\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(MissingReading, match='fill = "missing"'):
        release(config)
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "parts"] == before
    advised = settings(tmp_path, *changes, ('"given"', '"given"\nfill = "missing"'))
    assert release(advised).step == 12
