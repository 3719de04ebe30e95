"""Messages of a broker: acknowledged means on disk, on disk means counted once, and nobody pushes out others."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import open_one, publish, settings, verified

from tidegate.config import Config, parse_queries
from tidegate.ingest import Intake
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.logs import LogReader
from waiting import LIMIT, until

START = (
    int(time.time()) // 1000 * 1000 - 10_000
)  # a public start in the past, so that a fake clock can stand anywhere


def brokered(folder: Path, url: str, *changes: tuple[str, str], aggregate: str = "distinct") -> Config:
    """Two steps of a thousand seconds, exact to the last unit."""
    start = datetime.fromtimestamp(START, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return settings(
        folder,
        ('start = "2026-03-02T00:00"', f'start = "{start}"'),
        ('length = "1h"', 'length = "1000s"'),
        ("count = 12", "count = 2"),
        (f"{folder}/events.csv", f"{url}/events/#"),
        ('epsilon = "1"', 'epsilon = "10000000"'),
        ('aggregate = "distinct"', f'aggregate = "{aggregate}"'),
        *changes,
    )


def event(unit: str, place: str = "north", second: float = 1.0) -> bytes:
    """A message of one event."""
    return json.dumps({"time": START + second, "unit": unit, "place": place}).encode()


class World:
    """A public clock that stands in the first step until everything has come."""

    def __init__(self) -> None:
        self.now = START + 5.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


def drive(config: Config, world: World, messages: int) -> Intake:
    """Release both steps when so many messages have been taken."""
    with open_one(config, follow=True) as stream:
        intake = config.open(stream.position, follow=True, clock=world)
        taken = threading.Thread(target=_when_taken, args=(intake, world, messages), daemon=True)
        taken.start()
        stream.drive(intake)
        stream.finish()
        intake.close()
        assert list(stream.side_tables.entries()) == []
    return intake


def _when_taken(intake: Intake, world: World, messages: int) -> None:
    source: Any = intake.source
    until(lambda: source._done >= messages)
    world.now = START + 2001.0


def released(folder: Path) -> list[int]:
    """The counts of the north at both steps."""
    lines = (folder / "out.csv").read_text().splitlines()
    place = lines[0].split(",").index("north")
    return [round(float(line.split(",")[place])) for line in lines[1:]]


def session(config: Config, world: World) -> None:
    """Make the stream's session at the broker, so that it queues what comes."""
    with open_one(config, follow=True) as stream:
        intake = config.open(None, follow=True, clock=world)
        source: Any = intake.source
        stopper = threading.Thread(target=_stop_when_connected, args=(intake, source), daemon=True)
        stopper.start()
        stream.drive(intake)
        intake.close()


def _stop_when_connected(intake: Intake, source: Any) -> None:
    until(lambda: not source.status.startswith("waiting"))
    intake.stop()


def test_one_device_pushes_nobody_out(broker: Any, tmp_path: Path) -> None:
    """66,000 messages of one device, then one of each of 3,000 others: all 3,001 count, and next to nothing is kept."""
    broker.start()
    config, world = brokered(tmp_path, broker.url), World()
    session(config, world)
    flood = [event("loud", second=1 + n / 1000) for n in range(66_000)]
    publish(broker.port, [*flood, *(event(f"u{n}") for n in range(3_000))])
    drive(config, world, 69_000)
    assert released(tmp_path) == [3001, 0]
    assert verified(config.ledger).ok
    assert Path(config.ledger).stat().st_size < 2**21


def test_a_backlog_that_comes_slowly_is_awaited(broker: Any, tmp_path: Path) -> None:
    """Pieces of a backlog come only after acknowledgements, which may take longer than it takes to settle."""
    broker.start()
    config, world = brokered(tmp_path, broker.url), World()
    session(config, world)
    publish(broker.port, [event(f"u{n}") for n in range(3_000)])
    world.now = START + 2001.0  # both steps are over when the stream comes back
    with open_one(config, follow=True) as stream:
        intake = config.open(stream.position, follow=True, clock=world)
        source: Any = intake.source
        source.settle, acknowledge = 0.5, source.commit

        def slowly(position: Any) -> None:
            time.sleep(0.7)
            acknowledge(position)

        source.commit = slowly
        stream.drive(intake)
        stream.finish()
        intake.close()
    assert released(tmp_path) == [3_000, 0]


def test_what_a_limited_queue_of_the_broker_does(broker: Any, tmp_path: Path) -> None:
    """The assumption of the guarantee, shown: a broker that limits its queue lets one device push out others."""
    text = broker.settings.read_text()
    broker.settings.write_text(text.replace("max_queued_messages 0", "max_queued_messages 100"))
    broker.start()
    config, world = brokered(tmp_path, broker.url), World()
    session(config, world)
    publish(broker.port, [*(event("loud") for _ in range(2_000)), *(event(f"u{n}") for n in range(50))])
    with open_one(config, follow=True) as stream:
        intake = config.open(stream.position, follow=True, clock=world)
        timer = threading.Timer(3.0, lambda: setattr(world, "now", START + 2001.0))
        timer.start()
        stream.drive(intake)
        stream.finish()
        intake.close()
    assert released(tmp_path)[0] < 51


KINDS = ["file", "postgres"]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_time_every_message_counts_once(
    kind: str, broker: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Acknowledged, on disk, counted once: kills at random moments, and a count of events that would show a repeat."""
    broker.settings.write_text(
        broker.settings.read_text() + f"persistence true\npersistence_location {tmp_path}/\nuser root\n"
    )
    broker.start()
    changes = [('columns = ["north", "south"]', 'columns = ["north", "south"]\nmost = 10000')]
    if kind == "postgres":
        url = request.getfixturevalue("postgres").new_stream()
        changes.append(("window = 4", f'window = 4\nledger = "{url}"'))
    config = brokered(tmp_path, broker.url, *changes, aggregate="count")
    session(config, World())
    total, sent = 1_500, 0
    worker = Path(__file__).with_name("broker_worker.py")
    rng = random.Random(23)
    clock = tmp_path / "clock"
    clock.write_text(str(START + 5.0))
    kills = 0
    process = None
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    while sent < total:
        process = subprocess.Popen([sys.executable, str(worker), str(tmp_path), str(clock)], env=environment)
        wait_for(tmp_path / "ready", process)
        more = min(250, total - sent)
        publish(broker.port, [event(f"u{n % 7}", second=1 + n / 1000) for n in range(sent, sent + more)])
        sent += more
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT)
        kills += 1
    clock.write_text(str(START + 2001.0))
    process = subprocess.Popen([sys.executable, str(worker), str(tmp_path), str(clock)], env=environment)
    assert process.wait(LIMIT) == 0
    assert kills == 6
    assert released(tmp_path) == [total, 0]
    assert verified(config.ledger).ok


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a worker says that it is at work."""
    until(lambda: path.exists() or process.poll() is not None)
    assert process.poll() is None
    path.unlink()


def test_what_is_kept_is_private_and_gone_with_its_step(broker: Any, tmp_path: Path) -> None:
    """Rows of an open step are in the ledger's own file, for its owner only; after the commit nothing of them is left."""
    broker.start()
    config, world = brokered(tmp_path, broker.url), World()
    session(config, world)
    marker = "narwhal77"
    publish(broker.port, [event(f"{marker}-{n}") for n in range(20)])
    with open_one(config, follow=True) as stream:
        intake = config.open(stream.position, follow=True, clock=world)
        source: Any = intake.source

        def stop() -> None:
            until(lambda: source._done >= 20)
            intake.stop()

        threading.Thread(target=stop, daemon=True).start()
        stream.drive(intake)
        intake.close()
        assert len(list(stream.side_tables.entries())) >= 1
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.glob("tidegate.ledger*")}
        assert modes == {0o600}
    drive(config, world, 0)
    assert released(tmp_path) == [20, 0]
    with LogReader(config.ledger) as log:
        assert log.run("SELECT count(*) FROM spooled") == [(0,)]
    shutil.copy(config.ledger, tmp_path / "copy")
    with sqlite3.connect(tmp_path / "copy") as copy:
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy.close()
    assert marker.encode() not in (tmp_path / "copy").read_bytes()


def test_the_assumption_stands_beside_the_guarantee(tmp_path: Path) -> None:
    """Where a broker is trusted, the summary says with what; elsewhere it says nothing."""
    assert settings(tmp_path).assumptions == ()
    (said,) = brokered(tmp_path, "mqtt://127.0.0.1").assumptions
    assert "max_queued_messages 0" in said


def test_several_queries_read_one_session(broker: Any, tmp_path: Path) -> None:
    """Units and events of the same messages, stopped in between: each message counts once in both."""
    broker.start()
    world = World()
    text = brokered(tmp_path, broker.url).path.read_text(encoding="utf-8")
    begin, end = text.index("[query]"), text.index("[protect]")
    both = "".join(
        f'[[query]]\nname = "{name}"\naggregate = "{name}"\nmost = {most}\nshare = "1/2"\ncolumns = ["north"]\n'
        for name, most in (("distinct", 1), ("count", 3))
    )
    queries = parse_queries(text[:begin] + both + text[end:], tmp_path / "tidegate.toml")

    def drive_all(messages: int, *, stop: bool) -> None:
        with open_pipeline(queries, follow=True) as streams:
            intake = streams.queries.open(streams.position, follow=True, clock=world)
            end = _stop_when_taken if stop else _when_taken
            arguments = (intake, messages) if stop else (intake, world, messages)
            threading.Thread(target=end, args=arguments, daemon=True).start()
            streams.drive(intake)
            streams.finish()
            intake.close()

    drive_all(0, stop=True)
    publish(broker.port, [event(f"u{n % 10}", second=1 + n / 10) for n in range(20)])
    drive_all(20, stop=True)
    publish(broker.port, [event("late", second=4.0)])
    drive_all(1, stop=False)
    for name, expected in (("distinct", 11), ("count", 21)):
        lines = (tmp_path / f"out-{name}.csv").read_text(encoding="utf-8").splitlines()
        place = lines[0].split(",").index("north")
        assert [round(float(line.split(",")[place])) for line in lines[1:]] == [expected, 0]
    assert verified(queries.ledger).ok


def _stop_when_taken(intake: Intake, messages: int) -> None:
    source: Any = intake.source
    until(lambda: not source.status.startswith("waiting") and source._done >= messages)
    intake.stop()
