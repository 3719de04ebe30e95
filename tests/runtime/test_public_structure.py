"""Rows, heads, receipts, files, reports, status and metrics are functions of configuration and releases alone."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
from tests.runtime import public
from tests.runtime.helpers import publish
from tests.runtime.public import (
    SAME_VALUES,
    Event,
    base,
    differing,
    moved,
    prepare,
    recomputed,
    released,
    run,
)
from tests.web.helpers import served, until

from tidegate.cli import main
from tidegate.config import Queries
from tidegate.core import session, sqlite_log
from tidegate.core.commit import PUSHED, Commit, Row, head_of
from tidegate.core.session import charges_of
from tidegate.ingest.blocks import block_steps
from tidegate.pipeline import open_pipeline
from tidegate.releases import Status
from tidegate.testing.entropy import fixed_entropy
from tidegate.web.tokens import Tokens


@pytest.fixture(autouse=True)
def _one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The salted digest of state and position, which says nothing, is the same everywhere."""

    def row_and_secret(previous: bytes, commit: Commit) -> tuple[Row, bytes]:
        row, secret = made(previous, commit)
        head = head_of(previous, row[:4], row.charges, row.releases_digest, bytes(32))
        return row._replace(secret_digest=bytes(32), head=head), secret

    made, opened = sqlite_log.row_and_secret, session.unsealed
    monkeypatch.setattr(sqlite_log, "row_and_secret", row_and_secret)
    monkeypatch.setattr(
        session, "unsealed", lambda secret, _: opened(secret, hashlib.sha256(secret).digest())
    )


def frame(events: list[Event]) -> pl.DataFrame:
    """Records as a table."""
    return pl.DataFrame(events, schema=["time", "unit", "place"], orient="row")


def in_csv(folder: Path, events: list[Event]) -> str:
    """One file of CSV."""
    frame(events).write_csv(folder / "events.csv")
    return f"{folder}/events.csv"


def in_json_lines(folder: Path, events: list[Event]) -> str:
    """One file of JSON lines."""
    frame(events).write_ndjson(folder / "events.jsonl")
    return f"{folder}/events.jsonl"


def in_parquet(folder: Path, events: list[Event]) -> str:
    """One Parquet file."""
    frame(events).write_parquet(folder / "events.parquet")
    return f"{folder}/events.parquet"


def in_a_folder(folder: Path, events: list[Event]) -> str:
    """Files of a folder, which are as many as it takes for ten records each."""
    (folder / "events").mkdir(exist_ok=True)
    for path in (folder / "events").iterdir():
        path.unlink()
    for begin in range(0, len(events), 10):
        frame(events[begin : begin + 10]).write_csv(folder / "events" / f"{begin:04d}.csv")
    return f"{folder}/events"


def in_a_table(folder: Path, events: list[Event], database: Any) -> str:
    """A table of PostgreSQL."""
    database.sql("DROP TABLE IF EXISTS events")
    database.sql("CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, unit text, place text)")
    insert(database, events)
    return str(database.url("events"))


def insert(database: Any, events: list[Event]) -> None:
    """More rows of the table."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO events (time, unit, place) VALUES (%s, %s, %s)", events)


def in_a_topic(folder: Path, events: list[Event], kafka: Any) -> str:
    """A topic of Kafka."""
    topic = kafka.topic()
    kafka.send(topic, [(0, message(event)) for event in events])
    return str(kafka.url(topic))


def message(event: Event) -> bytes:
    """A record as JSON."""
    return json.dumps(dict(zip(("time", "unit", "place"), event, strict=True))).encode()


FILES = [in_csv, in_json_lines, in_parquet, in_a_folder]
SERVERS = {in_a_table: "database", in_a_topic: "kafka"}


def through_a_pipe(folder: Path, events: list[Event], opened: Callable[[Path], None]) -> str:
    """Standard input, until its end."""
    opened(Path(in_csv(folder, events)))
    return "-"


PLACES = [*FILES, through_a_pipe, *(pytest.param(each, marks=pytest.mark.slow) for each in SERVERS)]


@pytest.fixture(params=PLACES, ids=lambda each: each.__name__)
def write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[public.Write]:
    """Puts records into each kind of source that has an end; the answer is its location."""
    place = request.param
    with ExitStack() as files:

        def opened(path: Path) -> None:
            monkeypatch.setattr("sys.stdin", files.enter_context(path.open()))

        if place in FILES:
            yield place
        else:
            more = opened if place is through_a_pipe else request.getfixturevalue(SERVERS[place])
            yield lambda folder, events: place(folder, events, more)


def test_records_that_change_no_value_change_nothing(tmp_path: Path, write: public.Write) -> None:
    """Order, repeats, records outside of the clock or of all columns: every public byte is the same."""
    wanted = run(prepare(tmp_path, write(tmp_path, base())))
    for name, events in SAME_VALUES.items():
        found = run(prepare(tmp_path, write(tmp_path, events())))
        assert differing(wanted, found) == {}, name


def test_everything_public_follows_from_configuration_and_releases(
    tmp_path: Path, write: public.Write
) -> None:
    """A stream that never sees a record, and is told what was released, has the same rows, head, report and so on."""
    for events in (base(), moved()):
        queries = prepare(tmp_path, write(tmp_path, events))
        found = run(queries)
        (chunk,) = released(queries)
        size = block_steps(queries.counted.width, follow=False)
        again = recomputed(prepare(tmp_path, queries.first.source.location), chunk.values, size=size)
        assert differing(found, again) == {}


# followed ------------------------------------------------------------------------------------------------------

HOUR = 3600.0
START = datetime.fromisoformat("2026-03-02T00:00:00Z").timestamp()
FOLLOWED = ('column = "place"', 'column = "place"\nfollow = true')
# of starts, or of looks at the clock: the steps between two of them close together
OFTEN, SELDOM = [START + HOUR * hour for hour in range(25)], [START, START + 5.5 * HOUR, START + 40 * HOUR]


def at(event: Event) -> float:
    """The moment of a record."""
    return datetime.fromisoformat(event[0]).timestamp()


class Arriving:
    """Records that arrive as the clock continues, each when it happens.

    Parameters
    ----------
    events
        In the order in which they arrive.
    add
        Lets some of them arrive.
    """

    def __init__(self, events: list[Event], add: Callable[[list[Event]], None]) -> None:
        self.rest, self.add = list(events), add

    def __call__(self, now: float) -> None:
        """Whatever has happened by now."""
        due = [event for event in self.rest if at(event) <= now]
        self.rest = [event for event in self.rest if at(event) > now]
        if due:
            self.add(due)


def grows(path: Path) -> Callable[[list[Event]], None]:
    """A file of CSV to which lines are added."""
    path.write_text("time,unit,place\n")

    def add(events: list[Event]) -> None:
        with path.open("a") as file:
            file.writelines(",".join(event) + "\n" for event in events)

    return add


def rotates(path: Path) -> Callable[[list[Event]], None]:
    """The same; the file is put aside whenever it has anything."""
    grows(path)
    for old in path.parent.glob(path.name + ".*"):
        old.unlink()

    def add(events: list[Event]) -> None:
        if path.read_text().count("\n") > 1:
            for number in range(9, 0, -1):
                if (old := path.with_name(f"{path.name}.{number}")).exists():
                    old.rename(path.with_name(f"{path.name}.{number + 1}"))
            path.rename(path.with_name(f"{path.name}.1"))
            path.write_text("time,unit,place\n")
        with path.open("a") as file:
            file.writelines(",".join(event) + "\n" for event in events)

    return add


def followed(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> tuple[str, Callable[[list[Event]], None]]:
    """An empty source of a kind that is followed, and how records arrive in it."""
    if kind == "table":
        database = request.getfixturevalue("database")
        location = in_a_table(folder, [], database)
        return location, lambda events: insert(database, events)
    if kind == "topic":
        kafka = request.getfixturevalue("kafka")
        topic = kafka.topic()
        return kafka.url(topic), lambda events: kafka.send(topic, [(0, message(each)) for each in events])
    if kind == "folder":
        (folder / "events").mkdir(exist_ok=True)
        for path in (folder / "events").iterdir():
            path.unlink()

        def put(events: list[Event]) -> None:
            frame(events).write_csv(folder / "events" / f"{round(at(events[-1]))}.csv")

        return f"{folder}/events", put
    path = folder / "events.csv"
    return str(path), rotates(path) if kind == "rotated file" else grows(path)


@pytest.mark.parametrize(
    "kind",
    [
        "file",
        "rotated file",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("folder", "table", "topic")),
    ],
)
def test_a_followed_stream_has_a_row_for_every_step(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Whenever it is started, and whatever arrives: the same rows, which follow from the releases."""
    settle = ("follow = true", "follow = true\nsettle = 0.05")
    changes = (FOLLOWED, settle) if kind == "table" else (FOLLOWED,)
    surfaces = []
    for events in (base(), SAME_VALUES["doubled"]()):
        for moments in (OFTEN, SELDOM):
            location, add = followed(kind, tmp_path, request)
            queries = prepare(tmp_path, location, *changes)
            surfaces.append(run(queries, moments, Arriving(events, add)))
    (chunk,) = released(queries)
    for found in surfaces[1:]:
        assert differing(surfaces[0], found) == {}
    location = queries.first.source.location
    again = recomputed(prepare(tmp_path, location, *changes), chunk.values, size=1, live=True)
    assert differing(surfaces[0], again) == {}


def test_editions_are_in_the_order_in_which_the_clock_closes_them(tmp_path: Path) -> None:
    """However late a stream is started, rows and heads are those of one that was never late."""
    editions = ("[query]", '[editions]\nafter = ["1h", "3h"]\nshares = ["1/4", "3/4"]\n\n[query]')
    surfaces = []
    for moments in ([START + HOUR * hour for hour in range(6, 40)], [START + 9.5 * HOUR, START + 40 * HOUR]):
        arriving = Arriving(base(), grows(tmp_path / "events.csv"))
        queries = prepare(tmp_path, f"{tmp_path}/events.csv", FOLLOWED, editions)
        arriving(moments[0])  # all before the first start, so that editions count the same
        found = run(queries, moments)
        # every start notes the newest head in the receipts of all outputs: they show how often it was started
        surfaces.append({name: content for name, content in found.items() if ".receipt" not in name})
    assert differing(*surfaces) == {}


# what has no value in it
STRUCTURE = ("verdict", "status", "charges", "/metrics")


class World:
    """A public clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = START + 6 * HOUR - 1

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


def goes_on(world: World, moments: list[float], step: Callable[[], int]) -> None:
    """Put the clock forward, and wait for what closes by that."""
    for moment in [*moments, START + 40 * HOUR]:
        world.now = max(world.now, moment + LATENESS)
        closed = min(int((world.now - LATENESS - START) // HOUR), 24)
        until(lambda closed=closed: step() >= closed)


LATENESS = 6 * HOUR  # so long that all records are in time when they arrive together
LATE = ("count = 24", 'count = 24\nlateness = "6h"')
COURSES = [(base(), OFTEN), (SAME_VALUES["doubled"](), SELDOM)]


def test_messages_of_a_broker_leave_no_trace(tmp_path: Path, broker: Any) -> None:
    """The clock continues by single hours, or jumps over many, after everything has come: the rows are the same."""
    broker.start()
    surfaces = []
    for turn, (events, moments) in enumerate(COURSES):
        queries = prepare(tmp_path, f"{broker.url}/hall{turn}/#", LATE)
        from_a_broker(queries, events, moments, partial(publish, broker.port, topic=b"hall%d/x" % turn))
        surfaces.append(public.surface(queries, live=True))
    assert differing(*surfaces) == {}


def from_a_broker(
    queries: Queries, events: list[Event], moments: list[float], send: Callable[[list[bytes]], None]
) -> None:
    """Release what is sent once the stream listens."""
    world = World()

    def course() -> None:
        until(lambda: source.status.startswith("connected"))
        send([message(event) for event in events])
        until(lambda: source._done >= len(events))
        goes_on(world, moments, lambda: streams.step)

    with (
        fixed_entropy(7),
        open_pipeline(queries, follow=True, clock=world) as streams,
        closing(streams.queries.open(streams.position, follow=True, clock=world)) as intake,
    ):
        source: Any = intake.source
        thread = threading.Thread(target=course, daemon=True)
        thread.start()
        streams.drive(intake)
        streams.finish()
        thread.join(60)


@pytest.mark.slow
def test_events_that_are_sent_leave_no_trace(tmp_path: Path) -> None:
    """The same for those that a service takes; its thread has noise of its own, which rows do not show."""
    surfaces = []
    for events, moments in COURSES:
        world = World()
        queries = prepare(tmp_path, "serve:", LATE)
        token = Tokens(tmp_path / "out" / "tokens").add("producer", "hall")
        with served([queries], clock=world, tokens=tmp_path / "out" / "tokens") as (address, service):
            body = b"\n".join(message(event) for event in events)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
            headers["Idempotency-Key"] = "all"
            assert httpx.post(f"{address}/streams/hall/events", content=body, headers=headers).is_success
            goes_on(world, moments, lambda service=service: service.drivers["hall"].step)
        surfaces.append(public.surface(queries, live=True, fixed=False))
    for part in STRUCTURE:
        assert surfaces[0][part] == surfaces[1][part], part


# decisions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BudgetAbsorption", "BudgetDistribution"])
@pytest.mark.parametrize("noise", ["laplace", "auto"])
def test_rows_follow_from_what_was_decided(tmp_path: Path, name: str, noise: str) -> None:
    """A stream of zeros and jumps without noise that decides the same has the same rows and the same head."""
    mechanism = ('name = "Uniform"', f'name = "{name}"' + ("" if noise == "auto" else f'\nnoise = "{noise}"'))
    changes = (mechanism, ('epsilon = "1"', 'epsilon = "400"'))
    for events in (base(), moved()):
        queries = prepare(tmp_path, in_csv(tmp_path, events), *changes)
        found = run(queries)
        (chunk,) = released(queries)
        measured = chunk.status == Status.FRESH
        assert 2 <= measured.sum() < 24
        jumps = np.cumsum(measured)[:, np.newaxis] * np.array([[10**6, 10**6]])
        size = block_steps(queries.counted.width, follow=False)
        other = prepare(tmp_path, queries.first.source.location, *changes)
        again = recomputed(other, jumps, size=size)
        (chunk_again,) = released(other)
        assert chunk_again.status.tolist() == chunk.status.tolist()
        for part in STRUCTURE:
            assert found[part] == again[part], part


@pytest.mark.parametrize(
    "name",
    [
        "Sample",
        "PeGaSus",
        "Fast",
        "Tide",
        "RescueDP",
        "DSAT",
        "AdaPub",
        "OptStream",
        "Fourier",
        "BinaryTree",
        "BackwardSmoothing",
    ],
)
def test_rows_say_what_releases_say(tmp_path: Path, name: str) -> None:
    """Of mechanisms that look at data: each row has public steps, and the units that its releases have."""
    shapes = []
    for events in (base(), moved()):
        queries = prepare(tmp_path, in_csv(tmp_path, events), ('name = "Uniform"', f'name = "{name}"'))
        rows = json.loads(run(queries)["/streams/hall/account/rows"])
        (chunk,) = released(queries)
        units = chunk.units[chunk.revision == 0]
        charged = np.zeros(len(units), dtype=np.int64)
        for row in rows:
            if row[1] == PUSHED:
                content = Row(*row[:4], base64.b64decode(row[4]), None, b"", b"", b"")
                ((_, charges),) = charges_of(content)
                charged[charges.first - 1 : charges.last] += charges.units
                spans = charges.spans[charges.spans[:, 4] > 0]
                begun = spans[spans[:, 2] >= charges.first]
                np.add.at(charged, begun[:, 2] - 1, begun[:, 4])
        assert charged.tolist() == units.tolist()
        shapes.append([(row[1], row[2], row[3], len(row[4])) for row in rows])
    assert shapes[0] == shapes[1]
    assert [(first, last) for kind, first, last, _ in shapes[0] if kind == PUSHED] == [(1, 24)]


# blocks --------------------------------------------------------------------------------------------------------


def test_rows_are_cut_at_public_steps(tmp_path: Path) -> None:
    """2,500 steps in three rows, wherever records and pieces of the input end, archived as they come."""
    count = ("count = 24", "count = 2500")
    keeping = ("[sink]", f'[run]\narchives = "{tmp_path}/out/archives"\nkeep = 400\n\n[sink]')
    surfaces = []
    for hours in ([0, 2400], [0, 999, 1000, 2400], [2400, 0]):
        start = datetime.fromisoformat("2026-03-02T00:00:00+00:00")
        times = [(start + timedelta(hours=hour)).isoformat() for hour in hours]
        rows = [
            (time, "walrus", "nowhere" if hour else "north") for time, hour in zip(times, hours, strict=True)
        ]
        queries = prepare(tmp_path, in_csv(tmp_path, rows), count, keeping)
        (tmp_path / "out" / "archives").mkdir()
        surfaces.append(run(queries))
    rows = json.loads(surfaces[0]["/streams/hall/account/rows"])
    assert [(row[2], row[3]) for row in rows if row[1] == PUSHED] == [
        (1, 1000),
        (1001, 2000),
        (2001, 2500),
    ]
    for found in surfaces[1:]:
        assert differing(surfaces[0], found) == {}


def test_log_lines_status_and_exit_codes_do_not_depend_on_records(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command says and writes the same, but for times."""
    watched = ("[sink]", f'[run]\nlog = "json"\nstatus = "{tmp_path}/out/status.json"\n\n[sink]')
    found = []
    for events in (base, *SAME_VALUES.values()):
        queries = prepare(tmp_path, in_csv(tmp_path, events()), watched)
        capfd.readouterr()
        with fixed_entropy(7):
            code = main(
                ["release", str(queries.first.path), "--report", str(tmp_path / "out" / "report.html")]
            )
        lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
        status = json.loads((tmp_path / "out" / "status.json").read_text())
        for each in (*lines, status):
            each.pop("time")
        status.pop("released_at")
        assert any(line["event"] == "released" for line in lines)
        found.append((code, lines, status))
    assert all(each == found[0] for each in found)
