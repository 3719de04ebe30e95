"""Every source that can be followed: a stream that ends in its first step, however, continues with all that had come."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import EXACT, START, publish, settings, verified

from tidegate.config import Config, Queries, parse_queries
from tidegate.config.queries import one
from tidegate.ingest.errors import InputChanged
from tidegate.pipeline import open_pipeline
from tiers import slow
from waiting import LIMIT

SOURCES = ["csv", "jsonl", "folder", "pipe", *slow("table", "topic", "broker")]


class Killed(BaseException):
    """The process dies here."""


def line(number: int, second: float, kind: str = "jsonl") -> str:
    """One event in the north."""
    if kind == "csv":
        return f"{START + second},u{number},north\n"
    return json.dumps({"time": START + second, "unit": f"u{number}", "place": "north"}) + "\n"


class Files:
    """A followed file, which is rotated whenever a stream has ended."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path, self.kind = folder / f"followed.{kind}", kind
        self.location, self.more = str(self.path), "follow = true"
        self._begin()

    def _begin(self) -> None:
        self.path.write_text("time,unit,place\n" if self.kind == "csv" else "")

    def send(self, numbers: range, second: float) -> None:
        """Append."""
        with self.path.open("a") as file:
            file.write("".join(line(number, second, self.kind) for number in numbers))

    def ended(self) -> None:
        """Rename it, and begin another."""
        self.path.rename(f"{self.path}.{len(list(self.path.parent.iterdir()))}")
        self._begin()


class Folder(Files):
    """Files that arrive in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "arriving"
        self.path.mkdir()
        self.location, self.more = f"{self.path}/", "follow = true"

    def send(self, numbers: range, second: float) -> None:
        """Another file."""
        place = self.path / f"{numbers.start:03d}"
        place.write_text("".join(line(number, second) for number in numbers))
        place.rename(place.with_suffix(".jsonl"))

    def ended(self) -> None:
        """Nothing happens."""


class Pipe(Folder):
    """Standard input, which another program writes to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pipe"
        os.mkfifo(self.path)
        self.location, self.more = "-", 'follow = true\nformat = "jsonl"'
        self.descriptor = os.open(self.path, os.O_RDWR)

    def fileno(self) -> int:
        """As standard input has one."""
        return self.descriptor

    def send(self, numbers: range, second: float) -> None:
        """Write."""
        os.write(self.descriptor, "".join(line(number, second) for number in numbers).encode())


class Table(Folder):
    """A table that gets more rows."""

    def __init__(self, database: Any) -> None:
        self.database = database
        database.sql(
            "CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, unit text, place text)"
        )
        self.location, self.more = database.url("events"), "settle = 0.1\nfollow = true"

    def send(self, numbers: range, second: float) -> None:
        """Insert."""
        rows = ", ".join(f"(to_timestamp({START + second}), 'u{number}', 'north')" for number in numbers)
        self.database.sql(f"INSERT INTO events (time, unit, place) VALUES {rows}")


class Topic(Folder):
    """A topic of Kafka."""

    def __init__(self, kafka: Any) -> None:
        self.kafka, self.topic = kafka, kafka.topic(1)
        self.location, self.more = kafka.url(self.topic), "follow = true"

    def send(self, numbers: range, second: float) -> None:
        """Produce."""
        self.kafka.send(self.topic, [(0, line(number, second).encode()) for number in numbers])


class Broker(Folder):
    """A topic of a broker, whose session has to be there before anything is sent."""

    def __init__(self, broker: Any) -> None:
        broker.start()
        self.port = broker.port
        self.location, self.more = f"{broker.url}/events/#", ""

    def send(self, numbers: range, second: float) -> None:
        """Publish."""
        publish(self.port, [line(number, second).encode() for number in numbers])


@pytest.fixture(params=SOURCES)
def sender(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each kind of source."""
    kind = request.param
    if kind in ("csv", "jsonl"):
        return Files(tmp_path, kind)
    if kind == "folder":
        return Folder(tmp_path)
    if kind == "pipe":
        pipe = Pipe(tmp_path)
        monkeypatch.setattr("sys.stdin", pipe)
        return pipe
    wanted = {"table": (Table, "database"), "topic": (Topic, "kafka"), "broker": (Broker, "broker")}
    made, fixture = wanted[kind]
    return made(request.getfixturevalue(fixture))


def configured(folder: Path, sender: Any) -> Config:
    """Two steps of a thousand seconds with next to no noise."""
    (folder / "events.csv").touch()
    place = (f'location = "{folder}/events.csv"', f'location = "{sender.location}"\n{sender.more}')
    return settings(folder, place, *EXACT)


def drive(queries: Queries, second: float, *, end: str, until: int = 0) -> None:
    """Follow until as many events were read, and then stop or die; or until the last step has closed."""
    streams = open_pipeline(queries, follow=True, clock=lambda: START + second)
    intake = queries.open(streams.position, follow=True, clock=lambda: START + second)
    read, limit = intake.source.batches, time.monotonic() + LIMIT

    def batches(*arguments: Any, **more: Any) -> Iterator[Any]:
        seen = 0
        for batch in read(*arguments, **more):
            yield batch
            seen += len(batch.frame)
            assert time.monotonic() < limit
            if end != "of the input" and seen >= until:
                if end == "killed":
                    raise Killed
                intake.stop()

    intake.source.batches = batches  # type: ignore[method-assign]
    try:
        streams.drive(intake)
    except Killed:
        for _, state in streams.states:
            state.close()
        streams.side_tables.close()
        streams.log.close()
        assert streams._lock is not None
        streams._lock.release()  # as the kernel does it
        streams.close = lambda: None  # type: ignore[method-assign]
    else:
        streams.finish()
    finally:
        intake.close()
        streams.close()


def released(path: Path) -> list[int]:
    """The counts of the north."""
    lines = path.read_text().splitlines()
    place = lines[0].split(",").index("north")
    return [round(float(line.split(",")[place])) for line in lines[1:]]


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_nothing_is_lost_in_the_first_step(sender: Any, end: str, tmp_path: Path) -> None:
    """Three starts in the first step, with more events in each; then the steps close with all of them."""
    config = configured(tmp_path, sender)
    queries = one(config)
    drive(queries, 1.0, end=end)  # a session of a broker begins
    sender.ended()
    sender.send(range(10), 1.0)
    drive(queries, 2.0, end=end, until=1)
    sender.send(range(10, 13), 3.0)
    sender.ended()
    sender.send(range(13, 18), 4.0)
    drive(queries, 5.0, end=end, until=1)
    sender.ended()
    sender.send(range(18, 20), 6.0)
    drive(queries, 7.0, end=end, until=0)
    drive(queries, 2001.0, end="of the input")
    assert released(tmp_path / "out.csv") == [20, 0]
    assert verified(config.ledger).ok


SEVERAL = """\
[source]
location = "{folder}/followed.csv"
time = "time"
unit = "unit"
column = "place"
follow = true
[steps]
start = "{start}"
length = "1000s"
count = 2
[protect]
epsilon = "10000000"
window = 2
[mechanism]
name = "Uniform"
[sink]
location = "{folder}/out.csv"
[[query]]
name = "both"
share = "1/2"
aggregate = "count"
most = 10000
columns = ["north", "south"]
[[query]]
name = "again"
share = "1/2"
aggregate = "count"
most = 10000
columns = ["north"]
"""


def test_all_queries_begin_at_the_same_place(tmp_path: Path) -> None:
    """Also where there are several."""
    sender = Files(tmp_path, "csv")
    text = SEVERAL.format(folder=tmp_path, start=datetime.fromtimestamp(START, UTC).isoformat())
    queries = parse_queries(text, tmp_path / "tidegate.toml")
    sender.send(range(10), 1.0)
    drive(queries, 2.0, end="killed", until=1)
    sender.ended()
    sender.send(range(10, 13), 3.0)
    drive(queries, 2001.0, end="of the input")
    assert released(tmp_path / "out-both.csv") == [13, 0]
    assert released(tmp_path / "out-again.csv") == [13, 0]


def test_records_that_a_topic_has_removed_in_the_first_step_are_missed(kafka: Any, tmp_path: Path) -> None:
    """As in every later step: they are not left out in silence."""
    from confluent_kafka import TopicPartition

    sender = Topic(kafka)
    queries = one(configured(tmp_path, sender))
    sender.send(range(10), 1.0)
    drive(queries, 2.0, end="killed", until=1)
    for removed in kafka.admin().delete_records([TopicPartition(sender.topic, 0, 5)]).values():
        removed.result(20)
    with pytest.raises(InputChanged, match="were removed before they were read"):
        drive(queries, 2001.0, end="of the input")
