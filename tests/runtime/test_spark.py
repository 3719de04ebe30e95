"""Spark, really started: the same steps as from a file, hostile events, replays, kills of the driver."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.helpers import verified

from tidegate.config import Queries, parse_queries
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.ingest.errors import MissingColumn, UnreadableInput
from tidegate.ingest.query import AGGREGATES
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.errors import LogBusy
from tidegate.testing import fixed_entropy
from waiting import until

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
START = 1_700_000_000  # in the past, so that the system's clock ends what a test has begun
STEP = 1000


def configured(folder: Path, query: str, *changes: tuple[str, str], steps: int = 3) -> Queries:
    """Steps of a thousand seconds with next to no noise, of a query."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"""\
[source]
location = "{folder}/events.csv"
time = "time"
unit = "unit"
column = "place"
value = "amount"

[steps]
start = "{datetime.fromtimestamp(START, UTC).isoformat()}"
length = "{STEP}s"
count = {steps}

{query}

[protect]
epsilon = "10000000"
window = 4

[mechanism]
name = "Uniform"

[sink]
location = "{folder}/out.csv"
"""
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "tidegate.toml").write_text(text)
    return parse_queries(text, folder / "tidegate.toml", follow=True)


COUNT = '[query]\naggregate = "count"\ncolumns = ["north", "south"]\nmost = 1000'
QUERIES = {
    "distinct": '[query]\naggregate = "distinct"\ncolumns = ["north", "south"]',
    "distinct of two": '[query]\naggregate = "distinct"\ncolumns = ["north", "south", "east"]\nmost = 2',
    "distinct of all": '[query]\naggregate = "distinct"\ncolumns = ["north", "south"]\nmost = 2',
    "count": '[query]\naggregate = "count"\ncolumns = ["north", "south"]\nmost = 3\noutside = "other"',
    "sum": '[query]\naggregate = "sum"\ncolumns = ["north", "south"]\nmost = 2\nclip = ["-2", "7"]\ngrid = "0.1"',
    "mean": '[query]\naggregate = "mean"\ncolumns = ["north", "south"]\nclip = ["0", "7"]\nwhere = "amount < 8"',
    "histogram": '[query]\naggregate = "histogram"\nedges = ["0", "2.5", "9"]\nmost = 2',
    "quantile": '[query]\naggregate = "quantile"\nclip = ["0", "8"]\nquantiles = ["1/2"]\nbins = 8\nmost = 2',
    "given": '[query]\naggregate = "given"\ncolumns = ["north", "south"]\ngrid = "0.5"',
    "several": '[[query]]\nname = "b"\naggregate = "count"\ncolumns = ["north", "south"]\nmost = 2\n'
    '[[query]]\nname = "a"\naggregate = "sum"\nclip = ["0", "5"]\ngrid = "0.5"',
}


def made_up(count: int = 400) -> list[tuple[float, str, str, float]]:
    """Some people, several times, in several places, in any order; times and amounts that are equal."""
    chance = random.Random(5)
    return [
        (
            float(START + chance.randrange(-200, 3 * STEP + 200) // 50 * 50),
            f"u{chance.randrange(30)}",
            chance.choice(["north", "south", "east", "north"]),
            chance.randrange(-8, 24) / 2,
        )
        for _ in range(count)
    ]


def test_no_aggregate_is_missing_here() -> None:
    """Each is compared with a file."""
    assert set(AGGREGATES) <= set(QUERIES)


@pytest.mark.parametrize("name", QUERIES)
def test_steps_are_those_of_a_file(spark: Any, tmp_path: Path, name: str) -> None:
    """The same events through a file and through a DataFrame in three partitions: the same vectors; α = 0."""
    from tidegate.spark.finite import _cells
    from tidegate.spark.reading import reading_of
    from tidegate.spark.vectors import blocks

    changes, events = [], made_up()
    if name == "given":  # one reading for each cell, of nobody
        changes = [('unit = "unit"\n', ""), ("window = 4", "window = 4\nmax_change = 1")]
        events = [(START + STEP * n + 5.0, "", p, n + 0.5) for n in range(3) for p in ("north", "south")]
    queries = configured(tmp_path, QUERIES[name], *changes)
    rows = ["time,unit,place,amount", *(",".join(map(str, event)) for event in events)]
    (tmp_path / "events.csv").write_text("\n".join(rows) + "\n")
    expected = np.concatenate([block.units for block in queries.open(follow=False)])
    frame = spark.createDataFrame(
        events, "time double, unit string, place string, amount double"
    ).repartition(3)
    if len(name) % 2:  # as a moment, and else as a number of seconds
        frame = frame.selectExpr("timestamp_seconds(time) AS time", "unit", "place", "amount")
    cells = _cells(reading_of(queries, frame, lenient=False), frame, 1)
    (made,) = blocks(queries.editions[0], cells, 1, 3, {}, finite=True)
    found = np.concatenate([block.units for block in made], axis=1)
    assert found.tolist() == expected.tolist()
    assert found.any()


ODD = [None, "north", "south", "east", "", " north", "North", "nor\u0074h", "\u00e9", "0"]


@pytest.mark.parametrize("kind", ["string", "tinyint", "bigint"])
def test_rows_made_in_the_jvm_are_those_of_python(spark: Any, tmp_path: Path, kind: str) -> None:
    """Odd fields and moments on both sides of every edge; what the JVM does not understand is left to Python. α = 0."""
    from tidegate.spark import native
    from tidegate.spark.reading import reading_of, selected

    chance, micro = random.Random(7), 1_000_000
    edges = [START * micro + step * STEP * micro for step in range(5)]
    moments = [edge + shift for edge in edges for shift in (-micro, -1, 0, 1, 17)]
    moments += [0, -1, -(2**62), 2**62 - 1, 2**62, 2**63 - 1, None]  # type: ignore[list-item]
    units = [None, "1", "2", "77"] if kind != "string" else [None, "1", " 1", "one", ""]
    rows = [(moment, unit, place) for moment in moments for unit in units for place in ODD]
    chance.shuffle(rows)
    frame = spark.createDataFrame(rows, "time bigint, unit string, place string").repartition(3)
    frame = frame.selectExpr(
        "timestamp_micros(time) AS `the ``time.`",
        f"CAST(unit AS {kind}) AS unit",
        "place",
        "CAST(NULL AS double) AS amount",
    )
    several = (
        '[[query]]\nname = "b"\naggregate = "distinct"\n[[query]]\nname = "a"\naggregate = "count"\nmost = 9'
    )
    endless = ("count = 3\n", "")
    cases: list[tuple[str, tuple[tuple[str, str], ...], dict[str, Any]]] = [
        (QUERIES["distinct"], (), {}),
        (QUERIES["count"], (), {"first": 2}),
        (QUERIES["count"], (endless,), {"furthest": 3}),
        (several, (('column = "place"\n', ""),), {"first": 3}),
        (
            COUNT.replace("\nmost = 1000", ""),
            (
                endless,
                ('unit = "unit"\n', ""),
                (f'"{datetime.fromtimestamp(START, UTC).isoformat()}"', '"1960-01-01T00:00+00:00"'),
            ),
            {},
        ),
    ]
    for number, (query, changes, more) in enumerate(cases):
        named = ('time = "time"', 'time = "the `time."')
        queries = configured(tmp_path / str(number), query, named, *changes)
        reading = replace(reading_of(queries, frame, lenient=bool(number % 2)), **more)
        assert native.understood(reading, selected(reading, frame).schema)
        found = native.mapped(reading, frame)
        expected = native.in_python(reading, selected(reading, frame))
        assert found.columns == expected.columns
        assert [field.dataType for field in found.schema] == [field.dataType for field in expected.schema]
        assert sorted(found.collect(), key=str) == sorted(expected.collect(), key=str)
        assert len(found.collect()) > 5


def test_what_the_jvm_does_not_understand_is_left_to_python(spark: Any, tmp_path: Path) -> None:
    """Text as a time, a collation of its own, values, conditions, steps of the calendar, very many columns."""
    from tidegate.spark import native
    from tidegate.spark.reading import reading_of, selected

    def understood(
        query: str, *changes: tuple[str, str], time: str = "timestamp", unit: str = "string"
    ) -> bool:
        queries = configured(tmp_path, query, *changes)
        frame = spark.createDataFrame([], f"time {time}, unit {unit}, place string, amount double")
        reading = reading_of(queries, frame, lenient=True)
        return native.understood(reading, selected(reading, frame).schema)

    assert understood(COUNT)
    assert understood(COUNT, unit="int")
    for kind in ("string", "double", "bigint", "timestamp_ntz", "date"):
        assert not understood(COUNT, time=kind)
    assert not understood(COUNT, unit="string collate UTF8_LCASE")
    for name in ("sum", "mean", "histogram", "quantile", "several"):
        assert not understood(QUERIES[name])
    assert not understood(COUNT + '\nwhere = "amount < 8"')
    many = ", ".join(f'"{n}"' for n in range(native.FEW + 1))
    assert not understood(COUNT.replace('"north", "south"', many))
    day = datetime.fromtimestamp(START, UTC).isoformat()
    assert not understood(COUNT, (f'"{STEP}s"', '"calendar day"'), (f'"{day}"', '"2026-03-02"'))


def test_a_learnt_clip_is_refused(spark: Any, tmp_path: Path) -> None:
    """Executors add values up, so that no single one could be clipped: a threshold that is learnt needs files."""
    from tidegate.spark import release

    learnt = (
        '[query]\naggregate = "sum"\ncolumns = ["north", "south"]\nclip = "learn"\nbound = "100"\nlearn = 1'
    )
    frame = spark.createDataFrame(made_up(20), "time double, unit string, place string, amount double")
    with pytest.raises(InvalidParameter, match="learn"):
        release(configured(tmp_path, learnt), frame)
    assert not list(tmp_path.glob("*.ledger"))


def test_units_that_count_over_several_steps_are_refused(spark: Any, tmp_path: Path) -> None:
    """Before anything is made, and beside another query as well."""
    from tidegate.spark.reading import reading_of

    over = '[[query]]\nname = "lately"\naggregate = "distinct"\nover = 2\n'
    count = '[[query]]\nname = "count"\naggregate = "count"\nmost = 2\n'
    frame = spark.createDataFrame(made_up(20), "time double, unit string, place string, amount double")
    with pytest.raises(InvalidParameter, match="over"):
        reading_of(configured(tmp_path, over + count), frame, lenient=False)
    assert not list(tmp_path.glob("*.ledger"))


def test_a_frame_that_cannot_be_read_is_one_sentence(spark: Any, tmp_path: Path) -> None:
    """A bad record refuses a finite input before anything is released, without its content; so do missing columns."""
    from tidegate.spark import follow, release

    queries = configured(tmp_path, COUNT, ('value = "amount"\n', ""))
    bad = spark.createDataFrame(
        [(f"{START}", "walrus", "north"), ("noon", "walrus", "north")],
        "time string, unit string, place string",
    )
    with pytest.raises(UnreadableInput) as refusal:
        release(queries, bad)
    assert "noon" not in str(refusal.value)
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(MissingColumn):
        release(queries, bad.drop("place"))
    with pytest.raises(TidegateError, match="column of units"):
        release(queries, bad.selectExpr("time", "place", "array(unit) AS unit"))
    with pytest.raises(InvalidParameter, match="streaming DataFrame"):
        follow(queries, bad, checkpoint=str(tmp_path / "c"), spool=str(tmp_path / "s"))
    with pytest.raises(InvalidParameter, match="maxfilespertrigger"):
        follow(
            queries,
            stream_of(spark, tmp_path, maxFilesPerTrigger=1),
            checkpoint=str(tmp_path / "c"),
            spool=str(tmp_path / "s"),
        )  # fmt: skip
    good = bad.where("time <> 'noon'")
    with open_pipeline(queries), pytest.raises(LogBusy):
        release(queries, good)  # a second worker


# streams --------------------------------------------------------------------------------------------------------


class World:
    """A clock that continues from call to call as a plan says, and what happens meanwhile."""

    def __init__(self, folder: Path, plan: Callable[[World], None]) -> None:
        self.folder, self.plan = folder, plan
        self.now, self.calls, self.files = START + 1.0, 0, 0

    def __call__(self) -> float:
        """Public time; asked a few times in every batch."""
        self.calls += 1
        self.plan(self)
        return self.now

    def send(self, *lines: str) -> None:
        """A file of records, there at once."""
        self.files += 1
        hidden = self.folder / f".{self.files}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self.folder / f"{self.files}.jsonl")


def event(unit: str, second: float = 1.0, place: str = "north") -> str:
    """A record of one event."""
    return json.dumps({"time": START + second, "unit": unit, "place": place})


def stream_of(spark: Any, folder: Path, **options: Any) -> Any:
    """The records of a folder, as text."""
    return (
        spark.readStream.schema("time string, unit string, place string").options(**options).json(str(folder))
    )


def released(folder: Path, name: str = "north") -> list[int]:
    """The counts of a column."""
    lines = (folder / "out.csv").read_text().splitlines()
    place = lines[0].split(",").index(name)
    return [round(float(line.split(",")[place])) for line in lines[1:]]


def test_a_stream_with_hostile_events(spark: Any, tmp_path: Path) -> None:
    """Times of 2099, a flood by one unit, bad records, a step without any: nothing closes or stops, nothing stays."""
    from tidegate.spark import follow

    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def plan(world: World) -> None:
        if world.calls == 1:
            world.send(
                *(event(f"u{n}") for n in range(5)),
                event("far", 72 * 365 * 86_400.0),
                *(event("flood", n / 1000) for n in range(3000)),
                '{"time": "noon", "unit": "u1", "place": "north"}',
                "{not json",
                '{"unit": 7}',
                json.dumps({"time": None, "unit": "u2", "place": ["x"]}),
            )
        if world.calls == 6:
            world.send(event("u1", 2.0), event("early", STEP + 5.0), event("open", 2.0))
            world.now = START + 10.0
        if world.calls == 14:
            world.now = START + STEP + 1.0  # the first step closes, and only it
        if world.calls == 28:
            world.send(event("late", 3.0), event("u9", STEP + 0.9))
        if world.calls == 38:
            world.now = START + 3 * STEP + 1.0

    query = COUNT.replace("most = 1000", "most = 10")
    queries = configured(tmp_path / "stream", query, ('value = "amount"\n', ""))
    follow(
        queries,
        stream_of(spark, inbox),
        checkpoint=str(tmp_path / "checkpoint"),
        spool=str(tmp_path / "spool"),
        every="100 milliseconds",
        clock=World(inbox, plan),
        backfill=True,
    )
    # five units, two more of u1 and a new one, ten of the flood; what was ahead of the clock is gone
    assert released(tmp_path / "stream") == [5 + 10 + 2, 1, 0]
    assert not [path for path in (tmp_path / "spool").rglob("*") if path.is_file()]
    assert verified(queries.ledger).ok
    follow(
        queries,
        stream_of(spark, inbox),
        checkpoint=str(tmp_path / "checkpoint"),
        spool=str(tmp_path / "spool"),
        clock=lambda: START + 3 * STEP + 1.0,
    )  # has ended: nothing happens
    assert len(released(tmp_path / "stream")) == 3


def test_checkpoint_spool_and_ledger_belong_together(spark: Any, tmp_path: Path) -> None:
    """Another checkpoint or a lost spool is refused; a new checkpoint that is accepted reads again, and counts once."""
    from tidegate.spark import follow
    from tidegate.spark.errors import SpoolLost

    inbox, stopped = tmp_path / "inbox", threading.Event()
    inbox.mkdir()
    queries = configured(tmp_path / "stream", COUNT, ('value = "amount"\n', ""), steps=2)

    def plan(world: World) -> None:
        if world.calls == 1:
            world.send(*(event(f"u{n}") for n in range(4)))
        if world.calls == 8:
            world.send(*(event(f"u{n}", STEP + 0.5) for n in range(3)))
            world.now = START + STEP + 1.0
        if world.calls > 16 and (tmp_path / "stream" / "out.csv").read_text().count("\n") > 1:
            stopped.set()

    def attempt(clock: Any, **more: Any) -> None:
        follow(
            queries,
            stream_of(spark, inbox),
            checkpoint=str(tmp_path / "checkpoint"),
            spool=str(tmp_path / "spool"),
            every="100 milliseconds",
            clock=clock,
            backfill=True,
            **more,
        )

    attempt(World(inbox, plan), stopped=stopped)
    assert released(tmp_path / "stream") == [4]
    later = lambda: START + 2 * STEP + 1.0  # noqa: E731
    (tmp_path / "spool").rename(tmp_path / "aside")
    with pytest.raises(SpoolLost, match="lacks what was read"):
        attempt(later)
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(SpoolLost, match="is not the one"):
        attempt(later)
    attempt(later, new_checkpoint=True)
    assert released(tmp_path / "stream") == [4, 3]
    with open_pipeline(queries, follow=True, clock=later) as pipeline:
        assert pipeline.position is not None
        left = tmp_path / "spool" / pipeline.position["source"]["query"]
    left.mkdir(parents=True, exist_ok=True)  # as if it had been killed between the last commit and its end
    (left / "batch-000000000001").write_text("u1")
    attempt(later)
    assert not left.exists()


def test_the_same_releases_as_from_a_file(spark: Any, tmp_path: Path) -> None:
    """With the same entropy, through a file, a finite and a streaming DataFrame: byte for byte; α = 0."""
    from tidegate.spark import follow, release

    query = '[query]\naggregate = "distinct"\ncolumns = ["north", "south"]\nmost = 2'
    made = [one for one in made_up() if one[0] < START + 3 * STEP]
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "all.json").write_text(
        "".join(json.dumps({"time": t, "unit": u, "place": p}) + "\n" for t, u, p, _ in made)
    )
    found = {}
    for name in ("file", "finite", "streaming"):
        folder = tmp_path / name
        queries = configured(folder, query, ('value = "amount"\n', ""), ('"10000000"', '"1"'))
        with fixed_entropy(6):
            if name == "file":
                rows = ["time,unit,place", *(f"{t},{u},{p}" for t, u, p, _ in made)]
                (folder / "events.csv").write_text("\n".join(rows) + "\n")
                with open_pipeline(queries) as pipeline:
                    pipeline.drive(queries.open(follow=False))
                    pipeline.finish()
            elif name == "finite":
                release(queries, spark.read.schema("time double, unit string, place string").json(str(inbox)))
            else:
                offsets = folder / "checkpoint" / "offsets"
                offsets.mkdir(parents=True)
                (offsets / ".0.left.tmp").write_text("v1\n")  # as if a driver had been killed while it wrote
                follow(
                    queries,
                    stream_of(spark, inbox),
                    checkpoint=str(folder / "checkpoint"),
                    spool=str(folder / "spool"),
                    every="100 milliseconds",
                    clock=lambda: START + 3 * STEP + 1.0,
                    backfill=True,
                )
        found[name] = (folder / "out.csv").read_text()
    assert len(found["file"].splitlines()) == 4
    assert set(found.values()) == {found["file"]}, found


class Killed:
    """A folder that Spark follows, by a clock in a file, and what was sent to it in each step."""

    def __init__(self, folder: Path, steps: int) -> None:
        inbox = folder / "inbox"
        inbox.mkdir()
        self.queries = configured(
            folder / "stream",
            COUNT.replace("most = 1000", 'most = 1000\noutside = "drop"'),
            ('value = "amount"\n', "follow = true\n"),
            (f"{folder}/stream/events.csv", f"{inbox}"),
            steps=steps,
        )
        self.folder, self.clock, self.chance = folder / "stream", folder / "clock", random.Random(3)
        self.places = [str(self.folder / "checkpoint"), str(self.folder / "spool")]
        self.world, self.counts = World(inbox, lambda _: None), [0] * steps

    def start(self, master: str, **environment: str) -> subprocess.Popen[bytes]:
        """A driver that has a session."""
        worker = str(Path(__file__).with_name("spark_worker.py"))
        process = subprocess.Popen(
            [sys.executable, worker, master, str(self.queries.path), str(self.clock), *self.places],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env={**os.environ, **environment},
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
        return process

    def send_for(self, step: int, seconds: float) -> None:
        """Events of a step, for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sent = self.chance.randrange(1, 20)
            self.world.send(*(event(f"u{self.chance.randrange(9)}", STEP * step + 0.5) for _ in range(sent)))
            self.counts[step] += sent
            time.sleep(0.3)

    def check(self) -> None:
        """Every event is counted once, the account holds, and nothing is left."""
        assert released(self.folder) == self.counts
        assert verified(self.queries.ledger).ok
        assert not [path for path in (self.folder / "spool").rglob("*") if path.is_file()]


SPARK_KILLS = int(os.environ.get("TIDEGATE_SPARK_KILLS", "3"))


def test_killed_drivers_count_every_event_once(spark_ready: None, tmp_path: Path) -> None:
    """Drivers are killed at random moments, with and without their JVM; spark-submit runs the same file to its end."""
    stream = Killed(tmp_path, SPARK_KILLS + 1)
    for kill in range(SPARK_KILLS):
        stream.clock.write_text(str(START + STEP * kill + 1.0))
        process = stream.start("local[2]")
        stream.send_for(kill, stream.chance.uniform(0.5, 6.0))
        if kill % 2:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    program = importlib.util.find_spec("tidegate.spark.__main__")
    assert program is not None
    places = [f"--{name}={place}" for name, place in zip(("checkpoint", "spool"), stream.places, strict=True)]
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    submitted = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("spark-submit")), *settings, str(program.origin)),
            *(str(stream.queries.path), "--backfill", "--every", "100 milliseconds", *places),
        ],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert submitted.returncode == 0, submitted.stderr[-2000:]
    stream.check()


def executors(group: int) -> list[int]:
    """The processes of executors in a group of processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                number = int(entry.name)
                found += [number] if os.getpgid(number) == group else []
    return found


def kill_some(numbers: list[int]) -> bool:
    """Kill these processes; whether one of them was still there."""
    found = False
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
            found = True
    return found


def test_killed_executors_count_every_event_once(spark_ready: None, tmp_path: Path) -> None:
    """Executors of a small cluster are killed at random moments, one or all: Spark repeats their tasks."""
    import pyspark

    home = tmp_path / "spark"  # workers keep what they write in the home of Spark
    home.mkdir()
    for part in Path(pyspark.__path__[0]).iterdir():
        (home / part.name).symlink_to(part)
    stream, killed = Killed(tmp_path, SPARK_KILLS + 1), 0
    stream.clock.write_text(str(START + 1.0))
    process = stream.start("local-cluster[2,1,512]", SPARK_HOME=str(home))
    try:
        for kill in range(SPARK_KILLS):
            until(lambda: bool(executors(process.pid)))
            stream.send_for(kill, stream.chance.uniform(0.5, 3.0))
            until(lambda most=1 + kill % 2: kill_some(executors(process.pid)[:most]))
            killed += 1
            stream.clock.write_text(str(START + STEP * (kill + 1) + 1.0))
        stream.clock.write_text(str(START + STEP * (SPARK_KILLS + 1) + 1.0))
        assert process.wait(300) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert killed >= SPARK_KILLS
    stream.check()


def test_the_example_of_the_documentation_runs(tmp_path: Path, spark_ready: None) -> None:
    """The program of docs/howto/spark.md, in a process of its own: 24 hours are released, and the account holds."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "spark.md"
    program = page.read_text(encoding="utf-8").split("```py\n")[1].split("```")[0]
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=600, capture_output=True
    )
    assert verified(tmp_path / "doors.ledger").ok
