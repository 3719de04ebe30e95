"""Servers as sources and sinks: positions, fence tokens, and every release once after a kill."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.pipeline.streams import places, release, settings
from tests.runtime.helpers import Worker, publish

from tidegate.config import Queries
from tidegate.core.errors import Fenced
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline
from tidegate.sinks.errors import AnotherStream, SinkError
from tidegate.testing.entropy import fixed_entropy
from waiting import until

pytestmark = pytest.mark.slow  # servers

SEED = 11  # of the worker
POINTS = ("between commit and receipt", "between receipt and sink", "between sink and checkpoint")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks as the worker's."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 3)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One worker for all tests of this file."""
    found = Worker("../pipeline/crash_worker.py")
    yield found
    found.close()


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[int, str, float]]:
    """(step, column, value) of the same stream in files, without interruption."""
    folder = tmp_path / "expected"
    folder.mkdir()
    with fixed_entropy(SEED):
        release(settings(folder, places(folder)))
    frame = pl.read_csv(folder / "out.csv")
    return sorted(
        (step, column, float(value))
        for column in ("north", "south")
        for step, value in zip(frame["step"], frame[column], strict=True)
    )


def stream(folder: Path, source: str = "events.csv", sink: str = "out.csv") -> Queries:
    """The stream with another source or sink."""
    folder.mkdir(exist_ok=True)
    return settings(folder, places(folder), ('"events.csv"', f'"{source}"'), ('"out.csv"', f'"{sink}"'))


def killed_often(worker: Worker, folder: Path) -> None:
    """Kills at several points, and then the end."""
    for turn, point in enumerate(POINTS, 2):
        assert worker.start(folder, "", cut=point, at=turn)["killed"]
    assert not worker.start(folder, "")["killed"]


def rows(database: Any) -> list[tuple[int, str, float]]:
    """What the table has."""
    found = database.sql('SELECT step, "column", value FROM released ORDER BY step, "column"')
    return sorted((step, column, float(value)) for step, column, value in found)


def test_a_table_has_each_release_once(
    database: Any, worker: Worker, expected: list[Any], tmp_path: Path
) -> None:
    """Killed between commit, receipt, table and checkpoint."""
    stream(tmp_path / "killed", sink=database.url())
    killed_often(worker, tmp_path / "killed")
    assert rows(database) == expected


def test_a_table_is_read_from_its_position(database: Any, expected: list[Any], tmp_path: Path) -> None:
    """Stopped after every third block, a finite table gives the numbers of the file."""
    queries = stream(tmp_path / "read", source=database.url("events"))
    events = pl.read_csv(tmp_path / "read" / "events.csv").rows()
    database.sql("CREATE TABLE events (id bigserial PRIMARY KEY, time timestamp, unit text, place text)")
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO events (time, unit, place) VALUES (%s, %s, %s)", events)
    with fixed_entropy(SEED):
        while release(queries, blocks=3).step < 40:
            pass
    frame = pl.read_csv(tmp_path / "read" / "out.csv")
    assert frame["north"].to_list() == [value for _, column, value in expected if column == "north"]


def test_a_second_writer_fences_the_first(database: Any, tmp_path: Path) -> None:
    """At the log, before anything is released; and at the table, if only its sink was taken over."""
    queries = stream(tmp_path / "fenced", sink=database.url())
    first = open_pipeline(queries)
    assert first._lock is not None
    first._lock.release()  # as if it ran on another host, which does not see the lock
    release(queries, blocks=2)
    before = rows(database)
    with pytest.raises(Fenced):
        first.drive(queries.open(None))
    first.close()
    assert rows(database) == before
    with open_pipeline(queries) as third:
        database.sql("UPDATE released_stream SET worker = worker + 1")
        with pytest.raises(SinkError, match="taken over by another program"):
            third.drive(queries.open(third.position))
    assert release(queries).step == 40
    assert [step for step, column, _ in rows(database) if column == "north"] == list(range(1, 41))
    Path(queries.ledger).unlink()
    with pytest.raises(AnotherStream):
        open_pipeline(queries)


def test_a_topic_has_each_release_once_and_in_order(
    kafka: Any, worker: Worker, expected: list[Any], tmp_path: Path
) -> None:
    """From a finite topic to another one, with kills."""
    events, out, folder = kafka.topic(2), kafka.topic(), tmp_path / "killed"
    stream(folder, source=kafka.url(events), sink=kafka.url(out))
    lines = pl.read_csv(folder / "events.csv").rows(named=True)
    kafka.send(events, [(number % 2, json.dumps(line).encode()) for number, line in enumerate(lines)])
    killed_often(worker, folder)
    found = [json.loads(message.value()) for message in kafka.read(out)]
    assert [each["step"] for each in found] == list(range(1, 41))
    assert len({each["id"] for each in found}) == 40
    assert [each["values"]["north"] for each in found] == [
        value for _, column, value in expected if column == "north"
    ]


class World:
    """A public clock that stands in the first step until it is told otherwise."""

    def __init__(self) -> None:
        self.start = int(time.time()) // 1000 * 1000 - 10_000
        self.now = self.start + 5.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


def test_messages_are_spooled_before_the_broker_forgets_them(broker: Any, tmp_path: Path) -> None:
    """Taken, acknowledged and not yet released when the program ends: each of them counts once at the next start."""
    broker.start()
    world, folder = World(), tmp_path / "messages"
    folder.mkdir()
    start = datetime.fromtimestamp(world.start, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    queries = settings(
        folder,
        places(folder),
        ('"events.csv"', f'"{broker.url}/events/#"'),
        ("2026-03-02T00:00", start),
        ('"1h"', '"1000s"'),
        ("count = 40", "count = 2"),
        ('epsilon = "1"', 'epsilon = "10000000"'),
    )

    def drive(after: Any) -> None:
        with open_pipeline(queries, follow=True, clock=world) as pipeline:
            intake = queries.open(pipeline.position, follow=True, clock=world)
            threading.Thread(target=after, args=(intake,), daemon=True).start()
            pipeline.drive(intake)
            pipeline.finish()
            intake.close()

    def stop(intake: Any) -> None:
        until(lambda: not intake.source.status.startswith("waiting"))
        intake.stop()

    def stop_when_taken(intake: Any) -> None:
        until(lambda: intake.source._done >= 300)
        intake.stop()

    def close_steps(intake: Any) -> None:
        until(lambda: not intake.source.status.startswith("waiting"))
        time.sleep(0.5)  # whatever the broker has kept comes now
        world.now = world.start + 2001.0

    drive(stop)  # the broker knows the stream from now on
    payloads = [
        json.dumps({"time": world.start + 1, "unit": f"u{number}", "place": "north"}).encode()
        for number in range(300)
    ]
    publish(broker.port, payloads)
    drive(stop_when_taken)
    assert Path(queries.ledger).exists()
    drive(close_steps)
    frame = pl.read_csv(folder / "out.csv")
    assert [round(value) for value in frame["north"]] == [300, 0]
