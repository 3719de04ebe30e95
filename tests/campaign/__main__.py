"""A campaign against the pipeline: thousands of kills, flipped bits, full disks, lost brokers and databases.

``make campaign`` continues where it stopped: each trial is a line of ``build/campaign.jsonl``, and the numbers asked
for are those of the table in tests/reports/campaign.md. ``--part 50`` runs a fiftieth of it. A trial fails when
something is lost, repeated or changed, when a window is overspent, or when a wrong state is not refused by one
sentence.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import polars as pl  # noqa: E402
from tests.campaign.brokers import PATIENCE, brokers, message, until  # noqa: E402
from tests.runtime.conftest import Database, Kafka  # noqa: E402
from tests.runtime.helpers import verified  # noqa: E402

from tidegate.cli import main as command  # noqa: E402

RESULTS = ROOT / "build" / "campaign.jsonl"
PAGE = ROOT / "tests" / "reports" / "campaign.md"
WORKER = Path(__file__).with_name("worker.py")
WANTED = {"kill": 10_000, "flip": 1_000, "full": 500, "database": 100, "broker": 200}
WORDS = {
    "kill": "SIGKILLs",
    "flip": "flipped bits",
    "full": "full disks",
    "database": "database servers lost",
    "broker": "brokers lost",
}
MEMORY = Path("/dev/shm")  # what a killed process has written stays there as it does on a disk
SOURCES = ("csv", "jsonl", "parquet", "folder")
SINKS = ("out.csv", "out.jsonl", "out.parquet", "parts/")
SERVED = ("table", "topic", "messages")
NAMES = {
    "table": "PostgreSQL",
    "topic": "Kafka",
    "messages": "MQTT",
    "table followed": "PostgreSQL followed",
    "kafka followed": "Kafka followed",
    "mqtt followed": "MQTT followed",
    "postgresql": "PostgreSQL",
    "sqlite": "SQLite",
}
MECHANISMS = ('"Uniform"', '"BudgetAbsorption"', '"OptStream"\nsamples = 3')
STEPS = 18
KILLS = 20  # of one stream, which is then left alone
_ID = re.compile(rb'^\{("(i(d("(:("([0-9a-f]+-?)?)?)?)?)?)?)?')
TEXT = """\
[source]
location = "{source}"
time = "time"
unit = "unit"
column = "place"

[steps]
start = "1970-01-01T00:00Z"
length = "1h"
count = {steps}

{editions}[query]
aggregate = "distinct"
columns = ["north", "south"]

[protect]
epsilon = "1"
window = 6
ledger = "{ledger}"

[mechanism]
name = {mechanism}

[sink]
location = "{sink}"
revisions = "all"
"""


EDITIONS = '[editions]\nafter = ["1h", "48h"]\n\n'
MESSAGES = """\
[source]
location = "{source}"
time = "time"
unit = "unit"
{settle}
[steps]
start = "1970-01-01T00:00Z"
length = "1000s"
count = 2

{editions}[query]
aggregate = "count"
most = 10000

[protect]
epsilon = "10000000"
window = 2
ledger = "{ledger}"

[mechanism]
name = "Uniform"

[sink]
location = "out.csv"
"""
OPEN, CLOSED = (
    "5.0",
    "3001.0",
)  # seconds since 1970: within the first step, and after all editions of the second


@dataclass(frozen=True)
class Trial:
    """What became of one trial: how often the stream was disturbed, how, and what was wrong, if anything."""

    kind: str
    seed: int
    where: str
    events: int
    outcome: str
    wrong: str = ""


class Wrong(AssertionError):
    """Something was lost, repeated, changed, or not told by a sentence."""


class Worker:
    """The process that forks the children that are disturbed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self, folder: Path, **order: Any) -> dict[str, Any]:
        """One start: how it ended, and the sentence it was refused with, if it was."""
        self.begin(folder, **order)
        return self.ended()

    def begin(self, folder: Path, **order: Any) -> None:
        """One start, without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "folder_seed": 7, **order}) + "\n")
        self.process.stdin.flush()

    def ended(self) -> dict[str, Any]:
        """How a start ended."""
        answer: dict[str, Any] = {}
        while "code" not in answer:
            answer |= json.loads(self._line())
        if "unexpected" in answer:
            raise Wrong(answer["unexpected"])
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def events() -> list[dict[str, Any]]:
    """What every finite stream counts."""
    return [
        {"time": step * 3600 + unit, "unit": f"u{unit}", "place": "north" if unit % 3 else "south"}
        for step in range(STEPS)
        for unit in range(3 + step * 7 % 11)
    ]


def write_input(folder: Path, source: str) -> str:
    """The same events in every form of a file; the location of the input."""
    frame = pl.DataFrame(events())
    if source == "folder":
        (folder / "in").mkdir()
        for number in range(3):
            part = frame[number * len(frame) // 3 : (number + 1) * len(frame) // 3]
            part.write_csv(folder / "in" / f"{number}.csv")
        return "in"
    writers: dict[str, Callable[[Path], Any]] = {
        "csv": frame.write_csv,
        "jsonl": frame.write_ndjson,
        "parquet": frame.write_parquet,
    }
    writers[source](folder / f"events.{source}")
    return f"events.{source}"


@dataclass
class Setting:
    """A stream in a folder of its own."""

    folder: Path
    sink: str
    ledger: str
    editions: bool = False
    served: Callable[[], list[Any]] | None = None  # reads what is published by a service

    def rows(self) -> dict[str, list[Any]]:
        """What has been published, in order: by the editions of steps where there are any."""
        if self.served is not None:
            return {"": self.served()}
        if not self.editions:
            return {"": self._rows(self.folder / self.sink)}
        names = {}
        for edition in ("provisional", "final"):
            place = Path(self.sink)
            name = (
                f"{self.sink}{edition}" if self.sink == "parts/" else f"{place.stem}-{edition}{place.suffix}"
            )
            names[edition] = self._rows(self.folder / name)
        return names

    def _rows(self, path: Path) -> list[Any]:
        if self.sink == "parts/":
            files = sorted(path.glob("part-*.parquet")) if path.exists() else []
            return [row for file in files for row in pl.read_parquet(file).rows()]
        if not path.exists():
            return []
        if self.sink == "out.parquet":
            return pl.read_parquet(path).rows()
        return [anonymous(line) for line in path.read_bytes().splitlines(keepends=True)]

    @property
    def target(self) -> str:
        """The log, from here."""
        return self.ledger if "://" in self.ledger else str(self.folder / self.ledger)


def anonymous(line: bytes) -> bytes:
    """A release without the name of its stream, since each log has one of its own."""
    return _ID.sub(b"", line)


class Campaign:
    """Runs trials, and remembers those that were run."""

    def __init__(self, results: Path, scratch: Path, postgres: Any = None, brokers: Any = ()) -> None:
        self.results, self.scratch, self.postgres = results, scratch, postgres
        self.brokers = dict(brokers)
        self.database_of_tables = None if postgres is None else Database(postgres)
        self.worker = Worker()
        self.done: list[Trial] = []
        self._promised: dict[tuple[str, str, int, bool], dict[str, list[Any]]] = {}
        self._inputs: dict[str, str] = {}  # of services, which are read only
        self._outputs = itertools.count(1)
        self._streams_begun: dict[tuple[str, str], dict[str, bytes]] = {}
        results.parent.mkdir(parents=True, exist_ok=True)
        if results.exists():
            self.done = [Trial(**json.loads(line)) for line in results.read_text().splitlines()]

    def count(self, kind: str) -> int:
        """How many events of a kind there were."""
        return sum(trial.events for trial in self.done if trial.kind == kind)

    def setting(
        self, name: str, mechanism: str, source: str, sink: str, store: str, *, editions: bool = False
    ) -> Setting:
        """A new folder with an input and a configuration."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ledger = "stream.ledger"
        if store == "postgresql":
            ledger = self.postgres.new_stream()
        output, served = self._output(sink) if sink in SERVED else (sink, None)
        text = TEXT.format(
            source=self._input(source) if source in SERVED else write_input(folder, source),
            steps=STEPS,
            ledger=ledger,
            mechanism=mechanism,
            sink=output,
            editions=EDITIONS if editions else "",
        )
        (folder / "tidegate.toml").write_text(text)
        return Setting(folder, sink, ledger, editions, served)

    def _input(self, source: str) -> str:
        """The events in a table or a topic, which all streams may read."""
        if source not in self._inputs:
            if source == "table":
                self._inputs[source] = self._table()
                self._insert(self._inputs[source], events())
            else:
                topic = self.brokers["kafka"].topic()
                self._inputs[source] = self.brokers["kafka"].url(topic)
                records = [(0, json.dumps(event).encode()) for event in events()]
                Kafka.send(self.brokers["kafka"], topic, records)
        return self._inputs[source]

    def _table(self) -> str:
        """A new table for events; its location."""
        name = f"events_{next(self._outputs)}"
        self.database_of_tables.sql(
            f"CREATE TABLE {name} (id bigserial PRIMARY KEY, time float8, unit text, place text)"
        )
        return self.database_of_tables.url(name)

    def _insert(self, location: str, rows: Sequence[dict[str, Any]]) -> None:
        """Rows of a table, in one transaction."""
        name = location.partition("?table=")[2]
        with self.database_of_tables.connect() as connection, connection.transaction():
            connection.cursor().executemany(
                f"INSERT INTO {name} (time, unit, place) VALUES (%s, %s, %s)",
                [(row["time"], row["unit"], row.get("place")) for row in rows],
            )

    def _output(self, sink: str) -> tuple[str, Callable[[], list[Any]]]:
        """A new place for releases at a service, and what reads it."""
        name = f"released_{next(self._outputs)}"
        if sink == "table":
            wanted = f"SELECT to_regclass('{name}') IS NOT NULL"
            columns = '"step", revision, "column", value, low, high, status, scale, spent'
            database = self.database_of_tables

            def rows() -> list[Any]:
                if not database.sql(wanted)[0][0]:
                    return []
                return list(database.sql(f"SELECT {columns} FROM {name} ORDER BY 1, 2, 3"))

            return database.url(name), rows
        if sink == "topic":
            kafka = self.brokers["kafka"]
            topic = kafka.topic()
            return kafka.url(topic), lambda: [anonymous(each.value()) for each in kafka.read(topic)]
        broker = self.brokers["mqtt"]
        come = broker.listen(name)
        return f"{broker.url}/{name}", lambda: [anonymous(each) for each in come()]

    def promised(
        self, mechanism: str, sink: str, cells: int = 4, *, editions: bool = False
    ) -> dict[str, list[Any]]:
        """What an undisturbed stream with the same noise publishes, whatever its source and store are.

        Revised steps are written with the block of steps in which they became known, so that blocks must be as large.
        """
        key = (mechanism, sink, cells, editions)
        if key not in self._promised:
            setting = self.setting("promised", mechanism, "csv", sink, "sqlite", editions=editions)
            answer = self.worker.start(setting.folder, cells=cells)
            if answer["code"] != 0:
                raise Wrong(str(answer))
            self._promised[key] = setting.rows()
            if sink == "messages":  # they are in the same order as lines of a file
                self._promised[key] = {
                    "": [line.rstrip(b"\n") for line in self.promised(mechanism, "out.jsonl", cells)[""]]
                }
            if min(map(len, self._promised[key].values())) < STEPS:
                raise Wrong("the undisturbed stream is too short")
        return self._promised[key]

    def check(self, setting: Setting, promised: dict[str, list[Any]], *, ended: bool) -> None:
        """Everything that is published is what was promised, in order; at the end all of it, and the account holds."""
        if ended and setting.sink == "messages":  # what was sent is on its way to its reader
            end = time.monotonic() + PATIENCE
            while len(setting.rows()[""]) < len(promised[""]) and time.monotonic() < end:
                time.sleep(0.05)
        for edition, there in setting.rows().items():
            self._check(setting, there, promised[edition], ended=ended)
        if ended:
            verdict = verified(setting.target)  # recomputes the account of every window
            if not verdict.ok:
                raise Wrong(str(verdict))

    def _check(self, setting: Setting, there: list[Any], promised: list[Any], *, ended: bool) -> None:
        if there and setting.sink.endswith((".csv", ".jsonl")) and not there[-1].endswith(b"\n"):
            last = there.pop()  # a half line is completed at the next start
            if len(there) >= len(promised) or not promised[len(there)].startswith(last):
                raise Wrong("a half line is none of a promised one")
        # a table has no order but that of steps, so that a revised step is in the midst of the others
        of_table = setting.sink == "table" and not ended
        if of_table and not set(there) <= set(promised):
            raise Wrong("the table has something else than promised")
        if not of_table and there != promised[: len(there)]:
            raise Wrong("something else than promised is published")
        if ended and len(there) != len(promised):
            raise Wrong(f"{len(there)} of {len(promised)} rows are published")

    # kinds of trials ----------------------------------------------------------------------------------------

    def kill(self, chance: random.Random, *, editions: bool | None = None) -> tuple[str, int, str]:
        """Kill one stream until it has ended, at random lines or moments."""
        followed = [*self.brokers, *(["table"] if self.postgres else [])]
        if editions is None and followed and chance.random() < 0.06:
            return self._kill_followed(chance, chance.choice(followed))
        store = chance.choice(["sqlite", "sqlite", "postgresql"] if self.postgres else ["sqlite"])
        source, sink, mechanism = chance.choice(SOURCES), chance.choice(SINKS), chance.choice(MECHANISMS)
        served = [
            *(["table"] if self.postgres else []),
            *[{"kafka": "topic", "mqtt": "messages"}[name] for name in self.brokers],
        ]
        if editions is None and served:  # the same output from and to services, which take longer
            readable = [name for name in served if name != "messages"]
            source = chance.choice(readable) if readable and chance.random() < 0.1 else source
            sink = chance.choice(served) if chance.random() < 0.12 else sink
            editions = False if sink in SERVED else None
        editions = chance.random() < 0.2 if editions is None else editions
        return self._kill_finite(chance, source, mechanism, sink, store, editions=editions)

    def _kill_finite(
        self, chance: random.Random, source: str, mechanism: str, sink: str, store: str, *, editions: bool
    ) -> tuple[str, int, str]:
        """Kill one stream with an input that is there as a whole."""
        promised = self.promised(mechanism, sink, editions=editions)
        setting = self.setting("kill", mechanism, source, sink, store, editions=editions)
        kills = 0
        while True:
            order: dict[str, Any] = {"lines": chance.randint(1, chance.choice([300, 3_000, 9_000]))}
            if chance.random() < 0.2:
                order = {"seconds": 0.4 * chance.random() ** 2}
            if kills >= KILLS:
                order = {}
            answer = self.worker.start(setting.folder, **order)
            self.check(setting, promised, ended=not answer["killed"])
            if not answer["killed"]:
                if answer["code"] != 0:
                    raise Wrong(f"refused: {answer}")
                break
            kills += 1
        name = mechanism.split('"')[1]
        twice = " → editions" if editions else ""
        return f"{source} → {name}{twice} → {sink} on {store}", kills, "resumed"

    def _kill_followed(self, chance: random.Random, source: str) -> tuple[str, int, str]:
        """Kill one stream again and again while messages, records or rows arrive: each counts once."""
        folder = self.scratch / "followed"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        clock, taken = folder / "clock", folder / "taken"
        store = chance.choice(["sqlite", "postgresql"] if self.postgres else ["sqlite"])
        ledger = self.postgres.new_stream() if store == "postgresql" else "tidegate.ledger"
        place = self._table() if source == "table" else self.brokers[source].new_topic(chance)
        settle = "settle = 0.2\n" if source == "table" else ""
        (folder / "tidegate.toml").write_text(
            MESSAGES.format(source=place, editions="", settle=settle, ledger=ledger)
        )
        clock.write_text(OPEN)
        sent = kills = 0
        while kills < KILLS:
            order: dict[str, Any] = {"seconds": 0.3 * chance.random() ** 2}
            if chance.random() < 0.5 or not kills:  # a broker keeps what is sent only after the first session
                order["after"] = str(taken)
            if kills and chance.random() < 0.5:
                order["lines"] = chance.randint(1, 5_000)
            taken.unlink(missing_ok=True)
            self.worker.begin(folder, clock=str(clock), **order)
            if kills and kills < KILLS - 4:
                more = range(sent, sent + chance.randint(1, 100))
                if source == "table":
                    self._insert(place, [json.loads(message(number)) for number in more])
                else:
                    self.brokers[source].send(place, more)
                sent = more.stop
            answer = self.worker.ended()
            if not answer["killed"]:
                if answer["code"] != 0 or kills < KILLS - 4:
                    raise Wrong(f"ended by itself: {answer}")
                break
            kills += 1
            if kills == KILLS - 4:  # the last kills are while steps are closed and released
                clock.write_text(CLOSED)
        else:
            answer = self.worker.start(folder, clock=str(clock))
            if answer["code"] != 0:
                raise Wrong(f"refused: {answer}")
        self._counted(folder / "out.csv", sent)
        if not verified(ledger if "://" in ledger else str(folder / ledger)).ok:
            raise Wrong("the log does not verify")
        return f"{source} followed → Uniform → out.csv on {store}", kills, "resumed"

    def _counted(self, path: Path, sent: int) -> None:
        """Each message counts once, all of them in the first step."""
        with path.open() as file:
            counts = [round(float(row[2])) for row in list(csv.reader(file))[1:]]
        if counts != [sent, 0]:
            raise Wrong(f"{counts} of {sent} messages count in {path.name}")

    def flip(self, chance: random.Random) -> tuple[str, int, str]:
        """Flip one bit of a log; write the sink again from it, and resume it."""
        # with noise of its own: what steps share is dropped with a log that was put elsewhere
        sink, mechanism = chance.choice(SINKS[:2]), chance.choice(MECHANISMS) + '\nnoise = "laplace"'
        promised = self.promised(mechanism, sink)
        setting = self.setting("flip", mechanism, "csv", sink, "sqlite")
        files = self._begun(mechanism, sink)
        data = bytearray(files["stream.ledger"])
        at = chance.randrange(8 * len(data))
        data[at // 8] ^= 1 << at % 8
        for name, content in files.items():
            (setting.folder / name).write_bytes(content)
        Path(setting.target).write_bytes(bytes(data))
        agrees = self._verified(setting.target)
        (setting.folder / sink).unlink()
        answer = self.worker.start(setting.folder)
        there, wanted = setting.rows()[""], promised[""]
        if there != wanted[: len(there)]:
            raise Wrong(f"bit {at} published something else")
        if answer["code"] == 0:
            if len(there) != len(wanted):
                raise Wrong(f"bit {at} lost rows")
            return sink, 1, "no difference" if agrees else "found by verify"
        return sink, 1, "refused by a sentence"

    def _begun(self, mechanism: str, sink: str) -> dict[str, bytes]:
        """The files of a stream that has come two thirds of the way; made once, since only its log is damaged."""
        if (mechanism, sink) not in self._streams_begun:
            setting = self.setting("begun", mechanism, "csv", sink, "sqlite")
            place = setting.folder / "tidegate.toml"
            place.write_text(place.read_text().replace(f"count = {STEPS}", f"count = {STEPS - 6}"))
            self.worker.start(setting.folder)
            connection = sqlite3.connect(setting.target)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
            names = ("stream.ledger", sink, f"{sink}.receipt")
            found = {name: (setting.folder / name).read_bytes() for name in names}
            self._streams_begun[mechanism, sink] = found
        return self._streams_begun[mechanism, sink]

    def _verified(self, target: str) -> bool:
        """Whether verify believes a log; anything but a verdict or a sentence is wrong."""
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = command(["ledger", "verify", target, "--json"])
        if code not in (0, 1, 2):
            raise Wrong(f"verify ended with {code}")
        return code == 0

    def full(self, chance: random.Random) -> tuple[str, int, str]:
        """Let the disk be full at some moment, then give it room."""
        sink, mechanism = chance.choice(SINKS), chance.choice(MECHANISMS)
        promised = self.promised(mechanism, sink)
        setting = self.setting("full", mechanism, "csv", sink, "sqlite")
        place = setting.folder / "small"
        place.mkdir()
        size = chance.randint(8, 90) * 4
        mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)]
        subprocess.run(mounted, check=True, capture_output=True)
        try:
            text = (setting.folder / "tidegate.toml").read_text()
            moved = text.replace('ledger = "stream', 'ledger = "small/stream')
            if chance.random() < 0.5:
                moved = moved.replace(f'location = "{sink}"', f'location = "small/{sink}"')
                setting.sink = sink
                small = Setting(place, sink, "stream.ledger")
            else:
                small = Setting(setting.folder, sink, "small/stream.ledger")
            (setting.folder / "tidegate.toml").write_text(moved)
            answer = self.worker.start(setting.folder)
            self.check(small, promised, ended=answer["code"] == 0)
            refusals = 0
            while answer["code"] != 0:
                refusals += 1
                sentence = answer.get("refused", "")
                if not any(word in sentence for word in ("full", "No space", "cannot be")):
                    raise Wrong(f"refused by another sentence: {sentence}")
                size += chance.choice([4, 40, 400])
                subprocess.run(["mount", "-o", f"remount,size={size}k", str(place)], check=True)
                answer = self.worker.start(setting.folder)
                self.check(small, promised, ended=answer["code"] == 0)
        finally:
            subprocess.run(["umount", str(place)], check=True)
        return sink, refusals, "resumed with room"

    def database(self, chance: random.Random) -> tuple[str, int, str]:
        """Let the database server crash while a stream commits, and come back."""
        sink, mechanism = chance.choice(SINKS[:2]), chance.choice(MECHANISMS)
        promised = self.promised(mechanism, sink, cells=2)
        setting = self.setting("database", mechanism, "csv", sink, "postgresql")
        delay = 0.05 + 0.6 * chance.random()
        crash = threading.Timer(delay, self.postgres.stop)
        crash.start()
        try:
            answer = self.worker.start(setting.folder, cells=2)
        finally:
            crash.join()
            self.postgres.start()
        self.check(setting, promised, ended=False)
        lost = int(answer["code"] != 0)
        if lost and "cannot be reached" not in answer.get("refused", ""):
            raise Wrong(f"refused by another sentence: {answer}")
        answer = self.worker.start(setting.folder, cells=2)
        if answer["code"] != 0:
            raise Wrong(f"refused: {answer}")
        self.check(setting, promised, ended=True)
        return sink, lost, "resumed"

    def broker(self, chance: random.Random) -> tuple[str, int, str]:
        """Let the broker of a source go away and come back while messages arrive, again and again: each counts once."""
        kind = "kafka" if chance.random() < 0.2 else "mqtt"
        kind = kind if kind in self.brokers else next(iter(self.brokers))
        broker, folder = self.brokers[kind], self.scratch / "broker"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        place, clock, taken = broker.new_topic(chance), folder / "clock", folder / "taken"
        editions = '[editions]\nafter = ["0s", "1000s"]\n\n' if chance.random() < 0.3 else ""
        (folder / "tidegate.toml").write_text(
            MESSAGES.format(source=place, editions=editions, settle="", ledger="tidegate.ledger")
        )
        clock.write_text(OPEN)
        self.worker.begin(folder, clock=str(clock))
        sent = 0
        try:
            for _ in range(broker.losses):
                until(taken, lambda told: told != "")
                more = chance.randint(1, 400)
                broker.send(place, range(sent, sent + more))
                sent += more
                time.sleep(0.2 * chance.random() ** 2)
                broker.lose(taken, sent)
            until(taken, lambda told: told != "")
        except TimeoutError as error:
            raise Wrong(str(error)) from None
        finally:
            clock.write_text(CLOSED)
            answer = self.worker.ended()
        if answer["code"] != 0:
            raise Wrong(f"refused: {answer}")
        for name in ("out-provisional.csv", "out-final.csv") if editions else ("out.csv",):
            self._counted(folder / name, sent)
        if not verified(str(folder / "tidegate.ledger")).ok:
            raise Wrong("the log does not verify")
        return f"{kind} → editions" if editions else kind, broker.losses, "each message counts once"

    # running ------------------------------------------------------------------------------------------------

    def run(self, kind: str, wanted: int, deadline: float) -> None:
        """Run trials of a kind until there were enough events, or the time is up."""
        trial: Callable[[random.Random], tuple[str, int, str]] = getattr(self, kind)
        seed = 1 + max((each.seed for each in self.done if each.kind == kind), default=0)
        while self.count(kind) < wanted and time.monotonic() < deadline:
            try:
                where, events, outcome = trial(random.Random(f"{kind} {seed}"))
                found = Trial(kind, seed, where, events, outcome)
            except Wrong as error:
                found = Trial(kind, seed, "", 1, "WRONG", str(error)[-1500:])
                print(f"{kind} {seed}: {error}", file=sys.stderr)
            self.done.append(found)
            with self.results.open("a") as file:
                file.write(json.dumps(asdict(found), ensure_ascii=False) + "\n")
            seed += 1


def page(trials: list[Trial]) -> str:
    """The table of tests/reports/campaign.md."""
    lines = [
        "| disturbance | asked for | done | streams | wrong | outcomes |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for kind, wanted in WANTED.items():
        mine = [trial for trial in trials if trial.kind == kind]
        outcomes = Counter(trial.outcome for trial in mine)
        words = (
            ", ".join(f"{outcome}: {count:,}" for outcome, count in outcomes.most_common()) or "not run yet"
        )
        wrong = sum(trial.outcome == "WRONG" for trial in mine)
        events = sum(trial.events for trial in mine)
        lines.append(f"| {WORDS[kind]} | {wanted:,} | {events:,} | {len(mine):,} | {wrong} | {words} |")
    return "\n".join([*lines, "", *spread(trials), ""])


def spread(trials: Sequence[Trial]) -> Iterator[str]:
    """How many kills there were from every source, by every mechanism, to every sink, on every store."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        if trial.kind == "kill" and trial.outcome != "WRONG":
            way, _, store = trial.where.partition(" on ")
            source, mechanism, *editions, sink = way.split(" → ")
            parts = {"source": source, "mechanism": mechanism, "sink": sink, "store": store}
            if editions:
                parts["edition"] = "two"
            for kind, name in parts.items():
                found[kind][name] += trial.events
    for kind, counts in found.items():
        if kind == "edition":
            yield f"- SIGKILLs of streams with two editions: {counts['two']:,}"
        else:
            named = (f"{NAMES.get(name, name)} {count:,}" for name, count in sorted(counts.items()))
            yield f"- SIGKILLs by {kind}: {', '.join(named)}"


def write_page(trials: list[Trial]) -> None:
    """Put the table into its page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- table -->\n")
    after = rest.partition("<!-- end -->\n")[2]
    PAGE.write_text(f"{before}<!-- table -->\n{page(trials)}<!-- end -->\n{after}", encoding="utf-8")


def services() -> Iterator[Any]:
    """A database server, where its programs are installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not places:
        yield None
        return
    from tests.runtime.conftest import Postgres

    server = Postgres(places[0], "postgres" if os.getuid() == 0 else "")
    try:
        yield server
    finally:
        server.close()


def main() -> int:
    """Run what is left of the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=1, help="run one of so many parts")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="stop after so many minutes")
    parser.add_argument("--kinds", nargs="*", default=list(WANTED), choices=list(WANTED))
    parser.add_argument("--brokers", nargs="*", default=["mqtt", "kafka"], choices=["mqtt", "kafka"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the table into tests/reports/campaign.md")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    if MEMORY.is_dir():
        tempfile.tempdir = str(MEMORY)
    with tempfile.TemporaryDirectory(prefix="tidegate-campaign-") as scratch:
        for server in services():
            found = brokers(Path(scratch), options.brokers if {"kill", "broker"} & {*options.kinds} else ())
            campaign = Campaign(options.results, Path(scratch), server, found)
            share = deadline - time.monotonic()
            for kind in options.kinds:
                end = time.monotonic() + share / len(options.kinds)
                campaign.run(kind, -(-WANTED[kind] // options.part), min(deadline, end))
            campaign.worker.close()
            for broker in found.values():
                broker.stop()
            if options.page:
                write_page(campaign.done)
            print(page(campaign.done))
            return int(any(trial.outcome == "WRONG" for trial in campaign.done))
    return 1


if __name__ == "__main__":
    sys.exit(main())
