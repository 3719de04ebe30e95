"""The same configuration and events through every source, with the same entropy: the same releases, byte for byte."""

from __future__ import annotations

import csv
import json
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import TEXT, publish
from tests.runtime.test_broker import START, World

from tidegate.config import Queries, parse_queries
from tidegate.ingest.query import AGGREGATES
from tidegate.pipeline import open_pipeline
from tidegate.testing import fixed_entropy
from waiting import until

FIELDS = ("time", "unit", "place", "amount")
TABLE = (
    "CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, unit text, place text, amount float8)"
)
PLACES = 'columns = ["north", "south"]'
COUNTED = {
    "count": f"{PLACES}\nmost = 3",
    "distinct": f"{PLACES}\nmost = 2",
    "sum": f'{PLACES}\nmost = 2\nclip = ["-2", "7"]\ngrid = "0.5"',
    "mean": f'{PLACES}\nclip = ["0", "7"]\nwhere = "amount < 8"',
    "histogram": 'edges = ["0", "2.5", "9"]\nmost = 2',
    "quantile": 'clip = ["0", "8"]\nquantiles = ["1/2"]\nbins = 8',
}
STATISTICS = {
    "all that count": "\n".join(
        f'[[query]]\nname = "{name}s"\naggregate = "{name}"\n{more}' for name, more in COUNTED.items()
    ),
    "given": f'[query]\naggregate = "given"\n{PLACES}\ngrid = "0.5"',  # readings belong to nobody: a file of their own
}
Event = tuple[float, str, str, float]


def test_no_aggregate_is_missing_here() -> None:
    """Whoever adds one adds it to what every source must do the same with."""
    assert {*COUNTED, "given"} == set(AGGREGATES)


def events(statistics: str) -> list[Event]:
    """Two steps of some people, several times, in both places, not quite in order; or one reading for each cell."""
    if statistics == "given":
        return [
            (START + 1000 * n + 5.0, "", place, n + 0.5) for n in range(2) for place in ("north", "south")
        ]
    chance = random.Random(2)
    return [
        (
            START + chance.randrange(2000 * 8) / 8,
            f"u{chance.randrange(40)}",
            chance.choice(["north", "south"]),
            chance.randrange(-8, 20) / 2,
        )
        for _ in range(300)
    ]


def configured(folder: Path, location: str, statistics: str) -> Queries:
    """Two steps of some statistics, from a location."""
    folder.mkdir()
    text, given = TEXT.format(folder=folder), statistics == "given"
    before, after = text.index("[query]"), text.index("[protect]")
    text = f"{text[:before]}{STATISTICS[statistics]}\n\n{text[after:]}"
    for old, new in (
        ('start = "2026-03-02T00:00"', f'start = "{datetime.fromtimestamp(START, UTC).isoformat()}"'),
        ('length = "1h"', 'length = "1000s"'),
        ("count = 12", 'count = 2\nlateness = "1h"'),  # whatever comes within the hour is in time
        (f"{folder}/events.csv", location),
        ('unit = "unit"\n', 'value = "amount"\n' if given else 'unit = "unit"\nvalue = "amount"\n'),
        ("window = 4", "window = 4" + "\nmax_change = 1" * given),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "tidegate.toml").write_text(text)
    return parse_queries(text, folder / "tidegate.toml", follow=True)


def followed(queries: Queries, messages: int | None = None, *, only_begun: bool = False) -> None:
    """Everything that is there, by a clock that continues past the last step when so many messages were stored."""
    world = World()
    with open_pipeline(queries, follow=True, clock=world, backfill=True) as streams:
        intake = streams.queries.open(streams.position, follow=True, clock=world)
        end = (lambda: begun(intake)) if only_begun else (lambda: end_of_steps(intake, world, messages))
        threading.Thread(target=end, daemon=True).start()
        streams.drive(intake)
        if not only_begun:
            streams.finish()
        intake.close()


def begun(intake: Any) -> None:
    """Stop as soon as the broker keeps what comes for this stream."""
    until(lambda: not intake.source.status.startswith("waiting"))
    intake.stop()


def end_of_steps(intake: Any, world: World, messages: int | None) -> None:
    """Wait for the messages of a broker; other sources deliver all that is there before any step closes."""
    until(lambda: messages is None or intake.source._done >= messages)
    world.now = START + 2001.0 + 3600


@pytest.mark.parametrize("statistics", STATISTICS)
def test_the_same_releases_through_every_source(
    broker: Any, kafka: Any, database: Any, tmp_path: Path, statistics: str
) -> None:
    """Every aggregate through a file, MQTT, Kafka and PostgreSQL; α = 0: any difference is a mistake."""
    made = events(statistics)
    messages = [json.dumps(dict(zip(FIELDS, one, strict=True))).encode() for one in made]
    with (tmp_path / "made.csv").open("w", newline="") as file:
        csv.writer(file).writerows([FIELDS, *made])
    topic = kafka.topic(2)
    kafka.send(topic, [(number % 2, message) for number, message in enumerate(messages)])
    database.sql(TABLE)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO events (time, unit, place, amount) VALUES (to_timestamp(%s), %s, %s, %s)", made
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
        queries = configured(tmp_path / name, location, statistics)
        with fixed_entropy(6):
            if name == "mqtt":
                followed(queries, only_begun=True)
                publish(broker.port, messages)
            followed(queries, len(messages) if name == "mqtt" else None)
        found[name] = {one.name: one.read_text() for one in (tmp_path / name).glob("out*.csv")}
    assert all(len(text.splitlines()) == 3 for text in found["file"].values())
    assert len(found["file"]) == (1 if statistics == "given" else len(COUNTED))
    assert all(one == found["file"] for one in found.values()), found
