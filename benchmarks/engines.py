"""Events of servers: rows or records a second through parse, bounding and steps, against readers that only fetch.

Each server is started for the benchmark, on this machine, by what the tests start; one that is not installed is left out
with a sentence. ``--full`` has two million events.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sizes import scaled
from timing import bar

COLUMNS, STEPS = 20, 100
START = 1_772_409_600  # 2026-03-02, UTC


def steps_of(location: str, columns: int = COLUMNS) -> int:
    """All events through a source, as a release reads them; the input is read twice, to check it and to count it."""
    from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source

    query = Query(aggregate="distinct", columns=Columns(tuple(f"place {n:02}" for n in range(columns))))
    schema = Schema(time="time", unit="device", column="place")
    steps = Steps(start="2026-03-02", length=3600, count=STEPS)
    # followed with a clock that stands at the end: one pass, as a stream that catches up
    source = open_source(location, query.needed(schema), follow=True)
    end = START + 3600 * STEPS + 1.0
    intake = Intake(source, schema, steps, query, follow=True, clock=lambda: end, once=True)
    try:
        return sum(int(block.units.sum()) for block in intake)
    finally:
        intake.close()


def wall(work: Callable[[str], object], location: str) -> float:
    """Seconds of the clock on the wall."""
    begun = time.perf_counter()
    work(location)
    return time.perf_counter() - begun


def compared(ours: Callable[[], object], bare: Callable[[], object], turns: int = 3) -> tuple[float, float]:
    """Seconds of our own processor time for both, in turns: the medians."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for work, seconds in zip((ours, bare), found, strict=True):
            begun = time.process_time()
            work()
            seconds.append(time.process_time() - begun)
    return median(found[0]), median(found[1])


def report(name: str, events: int, seconds: float, bare: float, limit: float) -> None:
    rate = events / seconds
    bar(
        f"{name}: {rate:,.0f} a second through parse, bounding and steps; {events / bare:,.0f} fetched and parsed only; "
        f"{bare / seconds:.2f} of it",
        rate >= limit,
        f"{limit:,.0f}",
    )


def postgres(events: int) -> None:
    import psycopg
    from tests.runtime.conftest import Postgres

    found = shutil.which("initdb")
    places = (
        [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    if not places:
        print("PostgreSQL is not installed; run `make services`, and this part runs as well.")
        return
    server = Postgres(places[0], "postgres")
    try:
        address = f"postgresql://tidegate@127.0.0.1:{server.port}/postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, device bigint, place text)"
            )
            connection.execute(
                "INSERT INTO events (time, device, place) SELECT"
                f" to_timestamp({START} + n * {STEPS * 3600}.0 / {events}), n * 7919 % 100000,"
                f" 'place ' || lpad((n % {COLUMNS})::text, 2, '0')"
                f" FROM generate_series(0::bigint, {events - 1}) n"
            )
            connection.execute("VACUUM ANALYZE events")

            def fetch() -> None:
                with connection.cursor() as cursor, cursor.copy("COPY events TO STDOUT") as copy:
                    for _ in copy:
                        pass

            location = f"{address}?table=events"
            steps_of(location)
            print(
                f"PostgreSQL by the clock, server included: {events / wall(steps_of, location):,.0f} a second"
            )
            seconds, bare = compared(lambda: steps_of(location), fetch)
        report("PostgreSQL, seconds of one processor", events, seconds, bare, 100_000)
    finally:
        server.close()


def kafka(events: int) -> None:
    import json
    import tempfile

    from tests.runtime.conftest import KAFKA, SILENT, Kafka

    java = shutil.which("java")
    if java is None or not KAFKA.is_dir():
        print("Kafka is not here; run `make services`, and this part runs as well.")
        return
    from confluent_kafka import Consumer, TopicPartition

    with tempfile.TemporaryDirectory() as folder:
        server = Kafka(java, Path(folder))
        try:
            topic = server.topic(2)
            server.send(
                topic,
                (
                    (
                        n % 2,
                        json.dumps(
                            {
                                "time": START + n * STEPS * 3600 / events,
                                "device": n * 7919 % 100_000,
                                "place": f"place {n % COLUMNS:02}",
                            }
                        ).encode(),
                    )
                    for n in range(events)
                ),
            )

            def fetch() -> None:
                """A bare consumer that parses with the same parser, json of the standard library."""
                reader = Consumer({"bootstrap.servers": server.servers, "group.id": "bare", "logger": SILENT})
                reader.assign([TopicPartition(topic, one, 0) for one in (0, 1)])
                left = events
                while left:
                    for message in reader.consume(50_000, 0.2):
                        json.loads(message.value())
                        left -= 1
                reader.close()

            steps_of(server.url(topic))
            seconds, bare = compared(lambda: steps_of(server.url(topic)), fetch)
            report("Kafka, seconds of one processor", events, seconds, bare, 150_000)
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(2_000_000, 2_000, 200_000))
    parser.add_argument("--full", action="store_true", help="two million events")
    events = parser.parse_args().events
    print(f"{events:,} events in a table of PostgreSQL, then in a topic of Kafka", flush=True)
    postgres(events)
    kafka(events)


if __name__ == "__main__":
    main()
