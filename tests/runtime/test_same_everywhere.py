"""The same configuration and events through every source, with the same entropy: the same releases, byte for byte."""

from __future__ import annotations

import csv
import json
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.runtime.helpers import publish, settings
from tests.runtime.test_broker import START, World, session

from tidegate.config import Config
from tidegate.runtime import open_stream
from tidegate.testing import fixed_entropy

Event = tuple[float, str, str]


def events() -> list[Event]:
    """Two steps of some people, some of them several times and in both places, not quite in order."""
    chance = random.Random(2)
    return [
        (
            START + chance.randrange(2000 * 8) / 8,
            f"u{chance.randrange(40)}",
            chance.choice(["north", "south"]),
        )
        for _ in range(300)
    ]


def configured(folder: Path, location: str) -> Config:
    """Two steps, two contributions a unit, from a location."""
    folder.mkdir()
    return settings(
        folder,
        ('start = "2026-03-02T00:00"', f'start = "{moment()}"'),
        ('length = "1h"', 'length = "1000s"'),
        ("count = 12", 'count = 2\nlateness = "1h"'),  # whatever comes within the hour is in time
        (f"{folder}/events.csv", location),
        ('columns = ["north", "south"]', 'columns = ["north", "south"]\nmost = 2'),
    )


def moment() -> str:
    """When the first step begins."""
    return datetime.fromtimestamp(START, UTC).isoformat()


def followed(config: Config, messages: int = 0) -> None:
    """Everything that is there, by a clock that goes on past the last step when so many messages were put away."""
    world = World()
    with open_stream(config, follow=True, clock=world, backfill=True) as stream:
        intake = config.open(stream.store.progress.position, follow=True, clock=world)
        threading.Thread(target=end_of_steps, args=(intake, world, messages), daemon=True).start()
        stream.drive(intake)
        stream.finish()
        intake.close()


def end_of_steps(intake: Any, world: World, messages: int) -> None:
    """Wait for the messages of a broker; other sources hand out all that is there before any step closes."""
    end = time.monotonic() + 60
    while messages and intake.source._done < messages and time.monotonic() < end:
        time.sleep(0.02)
    world.now = START + 2001.0 + 3600


def test_the_same_releases_through_every_source(
    broker: Any, kafka: Any, database: Any, tmp_path: Path
) -> None:
    """File, MQTT, Kafka in two partitions, PostgreSQL; α = 0: any difference is a mistake."""
    made = events()
    messages = [json.dumps(dict(zip(("time", "unit", "place"), one, strict=True))).encode() for one in made]
    with (tmp_path / "made.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("time", "unit", "place"), *made])
    topic = kafka.topic(2)
    kafka.send(topic, [(number % 2, message) for number, message in enumerate(messages)])
    database.sql("CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, unit text, place text)")
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO events (time, unit, place) VALUES (to_timestamp(%s), %s, %s)",
            [tuple(one) for one in made],
        )
    broker.start()
    locations = {
        "file": str(tmp_path / "made.csv"),
        "mqtt": f"{broker.url}/events/#",
        "kafka": kafka.url(topic),
        "postgres": database.url("events"),
    }
    found = {}
    for name, location in locations.items():
        config = configured(tmp_path / name, location)
        with fixed_entropy(6):
            if name == "mqtt":
                session(config, World())
                publish(broker.port, messages)
            followed(config, len(messages) if name == "mqtt" else 0)
        found[name] = (tmp_path / name / "out.csv").read_text()
    assert len(found["file"].splitlines()) == 3
    assert set(found.values()) == {found["file"]}, found
