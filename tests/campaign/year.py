"""A year in minutes: 525,600 steps of a followed file, by a clock of its own.

``python tests/campaign/year.py`` restarts the stream every day, rotates its file every week, lets devices report late and
out of order, and sets the clock forward and back, in a zone with summer time. ε is so large that the noise is 0, so that
every released number can be compared with a count of the same events that is made without any of the code. Memory
has to stay as it is after the first weeks, and the log, whose releases move into archives, grows by as much per day.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import random
import resource
import sys
import tempfile
import time
import zoneinfo
from collections import Counter
from pathlib import Path

from tidegate.config import Queries, parse_queries
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import LogReader

ZONE = zoneinfo.ZoneInfo("Europe/Berlin")
START = datetime.datetime(2026, 1, 1, tzinfo=ZONE)
DAY = 86_400  # seconds; a day of the public clock, which knows no summer time
PLACES = ("north", "south", "west")
LATENESS = 120  # seconds
KEEP = 4_000  # steps
SETTLED = 28  # days after which nothing may grow any more
TEXT = f"""\
[source]
location = "events.csv"
time = "time"
unit = "unit"
column = "place"
follow = true

[steps]
start = "2026-01-01T00:00"
length = "1min"
zone = "Europe/Berlin"
lateness = {LATENESS}
catch_up = 3000

[query]
aggregate = "distinct"
columns = ["north", "south", "west"]

[protect]
epsilon = "10000000"
window = 1440

[mechanism]
name = "Uniform"
noise = "laplace"

[run]
archives = "archives"
keep = {KEEP}

[sink]
location = "released.csv"
"""


class Devices:
    """What arrives: most of it in time, some of it late but early enough, some of it too late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.waiting: list[tuple[float, str]] = []

    def day(self, begin: float) -> None:
        """The events of a day, each with the moment at which it arrives."""
        for _ in range(self.chance.randint(400, 900)):
            when = begin + self.chance.random() * DAY
            unit, place = f"u{self.chance.randrange(50)}", self.chance.choice(PLACES)
            late = self.chance.choice([0.0] * 8 + [60.0, 4 * LATENESS])
            moment = datetime.datetime.fromtimestamp(when, datetime.UTC)
            shown = moment.astimezone(ZONE).isoformat() if self.chance.random() < 0.5 else moment.isoformat()
            self.waiting.append((when + late, f"{shown},{unit},{place}\n"))
        self.waiting.sort()

    def arrived(self, now: float) -> list[str]:
        """What has arrived by a moment."""
        found = [line for moment, line in self.waiting if moment <= now]
        self.waiting = [entry for entry in self.waiting if entry[0] > now]
        return found


Seen = dict[int, dict[str, tuple[datetime.datetime, str]]]  # step → unit → its first contribution


def count(lines: list[str], closed: int, seen: Seen) -> None:
    """Keep the first contribution of each unit to each open step, by nothing but the standard library."""
    for line in lines:
        written, unit, place = line.rstrip("\n").split(",")
        moment = datetime.datetime.fromisoformat(written)
        step = int((moment - START).total_seconds() // 60) + 1
        if step > closed:
            units = seen.setdefault(step, {})
            units[unit] = min(units.get(unit, (moment, place)), (moment, place))


def release(queries: Queries, now: float) -> int:
    """One start: release what the clock has closed, and end; the last step."""
    with open_pipeline(queries, follow=True, clock=lambda: now) as pipeline:
        intake = queries.open(pipeline.position, follow=True, clock=lambda: now, once=True)
        pipeline.drive(intake)
        pipeline.finish()
        intake.close()
        return pipeline.step


def closed_by(now: float) -> int:
    """How many steps are closed, and have waited for late events."""
    return int((now - LATENESS - START.timestamp()) // 60)


def run(folder: Path, days: int, seed: int = 1) -> dict[str, float]:
    """Run so many days; what was measured."""
    (folder / "archives").mkdir()
    events = folder / "events.csv"
    events.write_text("time,unit,place\n")
    queries = parse_queries(TEXT, folder / "tidegate.toml")
    devices, begin = Devices(seed), START.timestamp()
    seen: Seen = {}
    reader = Reader(folder / "released.csv")
    released = 0
    memory, disk = {}, {}
    for day in range(days):
        devices.day(begin + day * DAY)
        evening = begin + (day + 1) * DAY
        # twice a day, by a clock that is set forward by seconds, and back by a minute, which closes nothing
        for now in (evening - DAY / 2 + 2, evening + LATENESS + 1, evening + LATENESS - 59):
            lines = devices.arrived(now)
            count(lines, released, seen)
            with events.open("a") as file:
                file.writelines(lines)
            step = release(queries, now)
            assert step == max(released, closed_by(now)), (day, step, closed_by(now))
            released = step
            reader.compare(released, seen)
        if day % 7 == 6:  # rotated, as a log is
            (folder / f"events-{day}.csv").unlink(missing_ok=True)
            for old in folder.glob("events-*.csv"):
                old.unlink()
            events.rename(folder / f"events-{day}.csv")
            events.write_text("time,unit,place\n")
        memory[day] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        disk[day] = (folder / "tidegate.ledger").stat().st_size / 1024
        if day % 30 == 29:
            print(
                f"day {day + 1}: {released:,} steps, {memory[day]:.0f} MB, ledger {disk[day]:.0f} kB",
                file=sys.stderr,
            )
    with LogReader(queries.ledger) as log:
        verification = verify_log(log.rows(), [folder / "archives"])
    assert verification.ok, verification
    first, last = min(SETTLED, days - 1), days - 1
    return {
        "days": days,
        "steps": released,
        "megabytes_after_weeks": memory[first],
        "megabytes_at_the_end": memory[last],
        "ledger_kilobytes_after_weeks": max(disk[day] for day in range(first + 1)),
        "ledger_kilobytes_at_the_end": disk[last],
        "archives": len(list((folder / "archives").iterdir())),
    }


class Reader:
    """Compares what is released, as it comes, with the counts; the time of every step is that of the zone."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.step = path, 0, 0
        self.names: list[str] = []

    def compare(self, released: int, seen: Seen) -> None:
        """Read on to the end, and forget what was compared."""
        with self.path.open(newline="") as file:
            file.seek(self.offset)
            lines = file.read()
            self.offset = file.tell()
        rows = list(csv.reader(lines.splitlines()))
        if not self.names and rows:
            self.names = rows.pop(0)
        for row in rows:
            self.step += 1
            found = dict(zip(self.names, row, strict=True))
            moment = datetime.datetime.fromtimestamp(START.timestamp() + 60 * (self.step - 1), ZONE)
            assert datetime.datetime.fromisoformat(found["time"]).timestamp() == moment.timestamp()
            assert found["time"].endswith(moment.strftime("%z")[:3] + ":00")
            counts = Counter(place for _, place in seen.pop(self.step, {}).values())
            for place in PLACES:
                assert float(found[place]) == counts[place], (self.step, place, found[place])
        assert self.step == released, (self.step, released)


def main() -> int:
    """Run, and print what was measured; exit code 1 where memory grew, or the log by more per day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-year-") as folder:
        facts = run(Path(folder), options.days, options.seed)
    print(json.dumps({**facts, "seed": options.seed, "seconds": round(time.monotonic() - begun)}, indent=2))
    grew = facts["megabytes_at_the_end"] > 1.2 * facts["megabytes_after_weeks"] or facts[
        "ledger_kilobytes_at_the_end"
    ] / facts["days"] > 1.2 * facts["ledger_kilobytes_after_weeks"] / min(SETTLED + 1, facts["days"])
    return int(grew)


if __name__ == "__main__":
    sys.exit(main())
