"""Spark: events a second through reading, bounding and one matrix, against a plain count that bounds nothing.

All read the same DataFrame with the same cores: of JSON lines, as streams have them, or of Parquet, of which the plain
count reads two columns of three and decodes next to nothing. Processor seconds of all processes are compared, so that
others on the machine do not matter. Without Java or pyspark it says so. ``--events`` and ``--units`` make it larger:
100000000 and 1000000 are what one machine with 8 GB should stand.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from sizes import SMALL, scaled
from timing import bar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

COLUMNS, STEPS, LENGTH = 20, 24, 3600
START = 1_772_409_600  # 2026-03-02, UTC
WANTED = 0.2

TOML = f"""\
[source]
location = "events.parquet"
time = "time"
unit = "device"
column = "place"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {STEPS}
[query]
aggregate = "distinct"
columns = [{", ".join(f'"place {n:02}"' for n in range(COLUMNS))}]
[protect]
epsilon = "1"
window = {STEPS}
[mechanism]
name = "Uniform"
[sink]
location = "released.csv"
"""


def made(session, events: int, units: int, folder: Path, kind: str):
    """Events in the order of their times, in files."""
    from pyspark.sql import functions as sql

    seconds = sql.lit(float(START)) + sql.col("id") * (STEPS * LENGTH / events)
    frame = session.range(events).select(
        seconds.cast("timestamp").alias("time"),
        sql.concat(sql.lit("device "), sql.pmod(sql.xxhash64("id"), sql.lit(units)).cast("string")).alias(
            "device"
        ),
        sql.format_string("place %02d", (sql.col("id") * 7919) % COLUMNS).alias("place"),
    )
    frame.write.format(kind).save(str(folder / f"events-{events}"))
    return session.read.format(kind).schema(frame.schema).load(str(folder / f"events-{events}"))


def plain(frame) -> int:
    """How many events each hour and place have, whoever sent them."""
    from pyspark.sql import functions as sql

    hour = sql.expr(f"(unix_seconds(time) - {START}) div {LENGTH}").alias("hour")
    return sum(row["count"] for row in frame.groupBy(hour, "place").count().collect())


def grouped(frame) -> int:
    """The first event of each hour and device: Spark's own group-by of units, without which nothing can be bounded."""
    from pyspark.sql import functions as sql

    hour = sql.expr(f"(unix_seconds(time) - {START}) div {LENGTH}").alias("hour")
    first = frame.groupBy(hour, "device").agg(sql.min("time").alias("first"))
    return sum(row["count"] for row in first.groupBy("hour").count().collect())


def bounded(frame, folder: Path) -> None:
    """A release of all steps, as spark-submit makes it."""
    from tidegate.config import parse_queries
    from tidegate.spark import release

    folder.mkdir()
    release(parse_queries(TOML, folder / "tidegate.toml"), frame)


def family() -> list[int]:
    """Our own process and all that it has started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found = [os.getpid()]
    for one in found:
        found += children.get(one, [])
    return found


def processor_seconds() -> float:
    """Of all these processes."""
    total = 0
    for one in family():
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def megabytes() -> int:
    """The resident sets of all these processes, added up."""
    total = 0
    for one in family():
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return total // 1024


class Watched:
    """The most memory that was seen at once, looked at twice a second: processes that have ended by then count, too."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.most = max(self.most, megabytes())
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(2_000_000, 2_000, 500_000))
    parser.add_argument("--units", type=int, default=scaled(100_000, 100))
    parser.add_argument("--format", choices=("json", "parquet"), default="json")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="of the JVM, in which driver and executors are")
    parser.add_argument("--full", action="store_true", help="two million events instead of half a million")
    given = parser.parse_args()
    memory = Watched()
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
        print("Spark is not here; install Java 17 and tidegate[spark], and this runs as well.")
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = SparkSession.builder.master(f"local[{given.cores}]")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": given.memory,
            "spark.local.dir": name,
            **scaled({}, {"spark.sql.shuffle.partitions": "2"}),
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        if not SMALL:
            warm = made(session, 100_000, 1_000, folder, given.format)
            plain(warm)
            grouped(warm)
            bounded(warm, folder / "warm")
        frame = made(session, given.events, given.units, folder, given.format)
        begun, used = time.perf_counter(), processor_seconds()
        assert plain(frame) == given.events
        counted = time.perf_counter() - begun, processor_seconds() - used
        begun, used = time.perf_counter(), processor_seconds()
        bounded(frame, folder / "released")
        released = time.perf_counter() - begun, processor_seconds() - used
        begun, used = time.perf_counter(), processor_seconds()
        assert 0 < grouped(frame) <= given.events
        apart = time.perf_counter() - begun, processor_seconds() - used
        ratio = counted[1] / released[1]
        bar(
            f"Spark, {given.events:,} events of {given.units:,} units as {given.format} on {given.cores} cores: "
            f"{given.events / released[1]:,.0f} a processor second read, bounded and released ({released[0]:.0f} s); "
            f"{given.events / counted[1]:,.0f} counted only ({counted[0]:.0f} s); {ratio:.2f} of it",
            ratio >= WANTED,
            f"{WANTED}",
        )
        print(
            f"Spark's own group-by of hour and unit, and nothing else: {given.events / apart[1]:,.0f} a processor second "
            f"({apart[0]:.0f} s); {apart[1] / released[1]:.2f} of it"
        )
        print(f"memory of all processes: {max(memory.most, megabytes()):,} MB at most")
        session.stop()


if __name__ == "__main__":
    main()
