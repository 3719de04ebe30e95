"""The durable loop on SQLite: going on, refusing what has changed, revisions, missing readings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.runtime.helpers import blocks, open_one, release, settings, verified, write_events

from tidegate.core.errors import LogMismatch
from tidegate.errors import LedgerBusy, LedgerMismatch
from tidegate.ingest.errors import MissingReading
from tidegate.mechanisms import Sample, Uniform
from tidegate.mechanisms.plain.uniform_run import UniformRun
from tidegate.pipeline import Pipeline
from tidegate.policy import WEvent
from tidegate.releases import Release, Releases, Status
from tidegate.runtime import open_store
from tidegate.runtime.errors import SinkError
from tidegate.runtime.sinks.layout import Layout
from tidegate.runtime.sinks.text import TextFileSink
from tidegate.testing.entropy import fixed_entropy

POLICY = WEvent(epsilon="1", w=4)
COUNTS = np.arange(24, dtype=np.int64).reshape(12, 2)


def open_small(folder: Path, mechanism: Any = None, **more: Any) -> Pipeline:
    """A stream of two columns with one CSV file."""
    mechanism = mechanism or Uniform(POLICY, columns=2)
    store = open_store(folder / "small.ledger", POLICY, mechanism.units, "small", {"name": "small"})
    stream = Stream(store, mechanism, **more)
    layout = Layout(
        ("a", "b"), lambda step: step * 3_600_000_000, "UTC", store.ledger.unit, "s", revised=stream.revises
    )
    stream.open_sinks([TextFileSink(folder / "small.csv", layout.csv_header(), layout.csv)])
    return stream


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
    verdict = verified(config.ledger)
    assert (verdict.ok, verdict.steps, verdict.marked) == (True, 12, False)
    assert (Path(config.ledger).stat().st_mode & 0o777) == 0o600


def test_one_by_one_and_at_once_are_the_same(tmp_path: Path) -> None:
    """Under fixed entropy the file does not depend on how steps were grouped into commits."""
    texts = []
    for size in (1, 5, 12):
        folder = tmp_path / str(size)
        folder.mkdir()
        with fixed_entropy(3), open_small(folder) as stream:
            stream.drive(blocks(COUNTS, size=size))
            stream.finish()
        texts.append((folder / "small.csv").read_bytes())
    assert texts[0] == texts[1] == texts[2]


def test_a_failed_commit_takes_everything_back(tmp_path: Path) -> None:
    """What fails inside of the transaction leaves neither charge nor release, and nothing reaches the sink."""
    stream = open_small(tmp_path)
    stream.drive(blocks(COUNTS[:3]))
    before = (tmp_path / "small.csv").read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is gone")

    stream.store.put = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="gone"):
        stream.drive(blocks(COUNTS[3:], first=4))
    stream.close()
    assert (tmp_path / "small.csv").read_bytes() == before
    with open_small(tmp_path) as again:
        assert (again.step, again.store.ledger.step) == (3, 3)
        again.drive(blocks(COUNTS[3:], first=4))
    assert len((tmp_path / "small.csv").read_text().splitlines()) == 13
    assert verified(tmp_path / "small.ledger").ok


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('epsilon = "1"', 'epsilon = "2"', 'epsilon = "1" and the configuration now says "2"'),
        ("window = 4", "window = 5", "w = 4 and the configuration now says 5"),
        (
            'columns = ["north", "south"]',
            'columns = ["north"]',
            "columns = 2 and the configuration now says 1",
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
    """A ledger that was charged from Python has no stream to go on with."""
    config = settings(tmp_path)
    run = config.mechanism.start(config.ledger)
    run.push([1, 2])
    run.ledger.close()
    with pytest.raises(LedgerMismatch):
        open_one(config)


def test_two_processes_cannot_drive_one_stream(tmp_path: Path) -> None:
    """The second is refused while the first is at work."""
    config = settings(tmp_path)
    with open_one(config), pytest.raises(LedgerBusy):
        open_one(config)
    open_one(config).close()


def test_a_source_at_another_step_is_refused(tmp_path: Path) -> None:
    """Steps come in order and without gaps."""
    with open_small(tmp_path) as stream, pytest.raises(LedgerMismatch, match="the next step is 1"):
        stream.drive(blocks(COUNTS, first=2))


@dataclass(frozen=True)
class Revising(Uniform):
    """Releases a step again two steps later."""

    revises: ClassVar[bool] = True

    def start(self, ledger: Any = None, state: bytes | None = None) -> Any:
        """Begin a run."""
        return RevisingRun(self, ledger, state)


class RevisingRun(UniformRun):
    """Uniform, with a second word on the step two steps before."""

    def _revised(self, step: int) -> Releases | None:
        values, one = np.array([[100.0, 200.0]]), np.ones(1, dtype=np.int64)
        status, scale = np.full(1, Status.APPROXIMATED, dtype=np.int8), np.ones(1)
        found = Releases(step - 2, values, status, one, scale, 0 * one, self.ledger.unit, 2)
        return found if step > 2 else None

    def _push(self, row: Any) -> Release:
        plain = super()._push(row)
        fields = (plain.step, plain.values, plain.status, plain.source, plain.scale, plain.units, plain.unit)
        return Release(*fields, revised=self._revised(plain.step))

    def _push_batch(self, matrix: Any, first_step: int) -> Releases:
        plain = super()._push_batch(matrix, first_step)
        fields = (plain.values, plain.status, plain.source, plain.scale, plain.units, plain.unit)
        return Releases(first_step, *fields, revised=self._revised(first_step + len(matrix) - 1))


def test_a_step_may_be_released_again(tmp_path: Path) -> None:
    """Revisions have a number, and survive a restart."""
    mechanism = Revising(POLICY, columns=2)
    with open_small(tmp_path, mechanism) as stream:
        stream.drive(blocks(COUNTS[:4]))
    with open_small(tmp_path, mechanism) as stream:
        stream.drive(blocks(COUNTS[4:6], first=5, size=2))
        stream.finish()
        numbers = [(int(chunk.first), len(chunk)) for chunk in stream.store.chunks()]
        assert stream.store.revisions(np.arange(1, 8)).tolist() == [1, 1, 0, 1, 0, 0, 0]
    lines = [line.split(",") for line in (tmp_path / "small.csv").read_text().splitlines()]
    assert lines[0][:4] == ["time", "step", "revision", "a"]
    assert [(row[1], row[2]) for row in lines[1:]] == [
        ("1", "0"), ("2", "0"), ("3", "0"), ("1", "1"), ("4", "0"), ("2", "1"), ("5", "0"), ("6", "0"), ("4", "1"),
    ]  # fmt: skip
    assert numbers == [(1, 1), (2, 1), (3, 2), (5, 2), (7, 3)]


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
    verdict = verified(config.ledger)
    assert verdict.ok
    assert verdict.spent <= 1


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


def test_a_begun_stream_stays_although_nothing_was_charged_yet(tmp_path: Path) -> None:
    """Sample measures late: steps before that cost nothing, and are committed all the same."""
    mechanism = Sample(POLICY, columns=2, every=4)
    with open_small(tmp_path, mechanism) as stream:
        stream.drive(blocks(COUNTS[:2]))
    with open_small(tmp_path, mechanism) as stream:
        assert stream.step == 2
