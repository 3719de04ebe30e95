"""Events in a table of PostgreSQL: late commits, restarts, kills, what is refused."""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.runtime.helpers import open_one, release, settings, verified

from tidegate.cli import main
from tidegate.config import Config
from tidegate.errors import InvalidInput, InvalidParameter, TidegateError
from tidegate.ingest import open_source
from tidegate.ingest.errors import MissingColumn, SourceUnavailable
from tidegate.ingest.sources import postgres as module
from tidegate.ingest.sources.postgres import Settling, TableSource
from waiting import LIMIT, until

TABLE = "CREATE TABLE events (id bigserial PRIMARY KEY, time timestamptz, unit text, place text)"
COLUMNS = ("time", "unit", "place")
START = 1_800_000_000


def insert(connection: Any, *events: tuple[float, str, str]) -> None:
    """Rows, in the transaction that is open, if one is."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO events (time, unit, place) VALUES (to_timestamp(%s), %s, %s)", list(events)
        )


def tabled(folder: Path, url: str, *changes: tuple[str, str]) -> Config:
    """The usual stream, from a table."""
    return settings(folder, (f"{folder}/events.csv", url), *changes)


def followed(folder: Path, url: str, steps: int = 2, *changes: tuple[str, str]) -> Config:
    """Steps of a thousand seconds, with next to no noise and events that would show a repeat."""
    start = datetime.fromtimestamp(START, UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return tabled(
        folder,
        url,
        ('start = "2026-03-02T00:00"', f'start = "{start}"'),
        ('length = "1h"', 'length = "1000s"'),
        ("count = 12", f"count = {steps}"),
        ('epsilon = "1"', 'epsilon = "10000000"'),
        ('aggregate = "distinct"', 'aggregate = "count"'),
        ('columns = ["north", "south"]', 'columns = ["north", "south"]\nmost = 10000'),
        ('column = "place"', 'column = "place"\nsettle = 0.2\nfollow = true'),
        *changes,
    )


def released(folder: Path) -> list[int]:
    """The counts of the north."""
    lines = (folder / "out.csv").read_text().splitlines()
    place = lines[0].split(",").index("north")
    return [round(float(line.split(",")[place])) for line in lines[1:]]


def frames(source: Any, position: Any = None, turns: int | None = None) -> list[Any]:
    """Some batches."""
    return list(itertools.islice(source.batches(position), turns))


def test_a_table_reads_like_a_file(database: Any, tmp_path: Path) -> None:
    """Odd texts, missing fields, all kinds of columns: what a field becomes depends on that field alone."""
    odd = ["plain", 'a"b', "tab\there", "line\nbreak", "back\\slash", "\\N", "é\r", "", "{x}", "\\.", "'"]
    database.sql(
        "CREATE TABLE odd (id int PRIMARY KEY, name text, day date, at timestamp, moment timestamptz, "
        "real float8, exact numeric, flag bool)"
    )
    with database.connect() as connection:
        for number, text in enumerate(odd):
            connection.execute(
                "INSERT INTO odd VALUES (%s, %s, '2026-03-02', '2026-03-02 10:00', '2026-03-02 10:00+02', 0.1, 1.50, "
                "true)",
                [number, text],
            )
        connection.execute("INSERT INTO odd (id) VALUES (99)")
    columns = ["name", "day", "at", "moment", "real", "exact", "flag"]
    with open_source(database.url("odd"), columns) as source:
        (batch,) = frames(source)
    assert batch.frame["name"].to_list() == [*(text or None for text in odd), None]
    assert batch.frame.row(0)[1:] == (
        "2026-03-02", "2026-03-02 10:00:00", "2026-03-02 08:00:00Z", "0.1", "1.50", "true",
    )  # fmt: skip
    assert batch.frame.row(-1) == (None,) * 7
    assert set(batch.frame.dtypes) == {pl.String}


def test_a_late_commit_with_a_smaller_key_is_read(database: Any) -> None:
    """A transaction draws keys and stays open: others pass it, the floor waits for it, and its rows come once."""
    database.sql(TABLE)
    with database.connect() as held, database.connect() as other:
        held.execute("BEGIN")
        insert(held, (START, "late", "north"))
        insert(other, *[(START, f"u{n}", "north") for n in range(5)])
        source = TableSource(database.url("events"), COLUMNS, follow=True, settle=0.05)
        batches = source.batches()
        assert next(batches).frame["unit"].to_list() == [f"u{n}" for n in range(5)]
        for _ in range(6):
            time.sleep(0.03)
            batch = next(batches)
            assert batch.caught_up
            assert len(batch.frame) == 0
            assert batch.after["floor"] is None  # it could still come
        held.execute("SAVEPOINT one")
        insert(held, (START, "later", "north"))  # under the number of a part of a transaction
        held.execute("COMMIT")
        assert sorted(next(batches).frame["unit"].to_list()) == ["late", "later"]

        def settled() -> Any:
            batch = next(batches)
            assert len(batch.frame) == 0
            return batch if batch.after["floor"] == 7 else None

        batch = until(settled)
        source.close()
        again = TableSource(database.url("events"), COLUMNS, follow=True)
        assert len(next(again.batches(batch.after)).frame) == 0
        again.close()


def test_a_reader_that_goes_by_keys_alone_is_caught(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without the second look the same transaction is missed."""
    monkeypatch.setattr(TableSource, "_late", lambda *_: module.np.zeros(0, dtype="int64"))
    database.sql(TABLE)
    with database.connect() as held, database.connect() as other:
        held.execute("BEGIN")
        insert(held, (START, "late", "north"))
        insert(other, (START, "early", "north"))
        with open_source(database.url("events"), COLUMNS, follow=True) as source:
            batches = source.batches()
            assert next(batches).frame["unit"].to_list() == ["early"]
            held.execute("COMMIT")
            assert [len(next(batches).frame) for _ in range(3)] == [0, 0, 0]


def test_nobodys_key_hides_the_rows_of_others(database: Any) -> None:
    """A sender writes the largest key there is: rows that come later are read, also after a restart; its own is not."""
    database.sql(TABLE)
    hostile = "INSERT INTO events VALUES (%s, to_timestamp(%s), 'hostile', 'north')"
    with database.connect() as other:
        insert(other, (START, "before", "north"))
        other.execute(hostile, [2**63 - 1, START])
        source = TableSource(database.url("events"), COLUMNS, follow=True, settle=0.05)
        batches = source.batches()
        found = [unit for batch in itertools.islice(batches, 3) for unit in batch.frame["unit"].to_list()]
        batch = until(lambda: after if (after := next(batches)).after["floor"] == 1 else None)
        insert(other, (START, "later", "north"))
        found += next(batches).frame["unit"].to_list()
        source.close()
        again = TableSource(database.url("events"), COLUMNS, follow=True, settle=0.05)
        assert next(again.batches(batch.after)).frame["unit"].to_list() == ["later"]
        again.close()
    assert found == ["before", "later"]


def test_a_finite_table_goes_on_after_any_key(database: Any) -> None:
    """The largest key is read, and does not keep the next start from rows that have come since."""
    database.sql("CREATE TABLE events (id bigint PRIMARY KEY, time timestamptz, unit text, place text)")
    add = "INSERT INTO events VALUES (%s, to_timestamp(%s), %s, 'north')"
    with database.connect() as other:
        other.execute(add, [2**63 - 1, START, "hostile"])
        position = None
        for _ in range(4):
            time.sleep(0.02)
            with TableSource(database.url("events"), COLUMNS, settle=0.0) as source:
                position = frames(source, position)[-1].after
        other.execute(add, [7, START, "later"])
        with TableSource(database.url("events"), COLUMNS, settle=0.0) as source:
            units = [unit for batch in frames(source, position) for unit in batch.frame["unit"].to_list()]
    assert units == ["later", "hostile"]


@pytest.mark.parametrize(
    "key",
    [
        "bigint PRIMARY KEY",
        "bigint PRIMARY KEY DEFAULT nextval('loose')",
        "bigint GENERATED ALWAYS AS IDENTITY (INCREMENT -1) PRIMARY KEY",
        "int GENERATED BY DEFAULT AS IDENTITY (CYCLE) PRIMARY KEY",
    ],
)
def test_a_followed_table_draws_its_keys(database: Any, key: str) -> None:
    """A key that senders choose, or that does not grow, is refused with one sentence before anything is read."""
    database.sql("CREATE SEQUENCE loose")
    database.sql(f"CREATE TABLE events (id {key}, time timestamptz, unit text, place text)")
    for attempt in (lambda source: source.check(), lambda source: frames(source, turns=1)):
        with (
            TableSource(database.url("events"), COLUMNS, follow=True) as source,
            pytest.raises(InvalidParameter, match="drawn from a growing sequence"),
        ):
            attempt(source)


def test_a_sequence_with_a_cache_needs_a_settling_time(database: Any) -> None:
    """A session may write rows with keys of its cache when larger ones have settled: they would never be read."""
    database.sql(
        "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY (CACHE 50) PRIMARY KEY, time timestamptz, "
        "unit text, place text)"
    )
    with (
        TableSource(database.url("events"), COLUMNS, follow=True) as source,
        pytest.raises(InvalidParameter, match=r"50 keys at once.*CACHE 1, or write a settle"),
    ):
        source.check()
    for settle, follow in ((60.0, True), (10.0, False)):
        with TableSource(database.url("events"), COLUMNS, follow=follow, settle=settle) as source:
            source.check()
    database.sql("ALTER TABLE events ALTER id SET CACHE 1")
    with TableSource(database.url("events"), COLUMNS, follow=True) as source:
        source.check()


def test_rights_that_following_needs(database: Any) -> None:
    """SELECT on table and sequence; in a partitioned table nobody but the owner writes keys."""
    roles = database.sql("SELECT rolname FROM pg_roles WHERE rolname IN ('table_reader', 'table_sender')")
    for role in {"table_reader", "table_sender"} - {name for (name,) in roles}:
        database.sql(f"CREATE ROLE {role} LOGIN")
    database.sql(
        "CREATE TABLE events (id bigserial, time timestamptz, unit text, place text) PARTITION BY RANGE (time);"
        "CREATE INDEX ON events (id); CREATE TABLE events_all PARTITION OF events DEFAULT;"
        "GRANT USAGE ON SCHEMA public TO table_reader; GRANT SELECT ON events TO table_reader;"
        "GRANT INSERT ON events TO table_sender"
    )
    url = database.url("events", user="table_reader")

    def attempt() -> None:
        with TableSource(url, COLUMNS, follow=True) as source:
            source.check()

    with pytest.raises(SourceUnavailable, match="may not read the sequence"):
        attempt()
    database.sql("GRANT SELECT ON SEQUENCE events_id_seq TO table_reader")
    with pytest.raises(SourceUnavailable, match="write keys"):
        attempt()
    database.sql(
        "REVOKE INSERT ON events FROM table_sender; GRANT INSERT (time, unit, place) ON events TO table_sender"
    )
    attempt()
    database.sql("GRANT INSERT (id) ON events_all TO table_sender")
    with pytest.raises(SourceUnavailable, match="write keys"):
        attempt()


def test_long_fields_take_no_memory(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a field of a megabyte is left out; pages end by their bytes, and nothing between is missed."""
    database.sql(TABLE)
    monkeypatch.setattr(module, "PAGE", 100_000)
    sizes: list[int] = []
    with database.connect() as held, database.connect() as other:
        held.execute("BEGIN")
        held.execute(
            "INSERT INTO events (time, unit, place) "
            "SELECT to_timestamp(%s), repeat('l', 9000) || n, 'north' FROM generate_series(1, 30) AS n",
            [START],
        )
        other.execute(
            "INSERT INTO events (time, unit, place) SELECT to_timestamp(%s), CASE WHEN n %% 10 = 0 THEN "
            "repeat('x', 1000000) ELSE repeat('u', 9000) || n END, 'north' FROM generate_series(1, 50) AS n",
            [START],
        )
        source = TableSource(database.url("events"), COLUMNS, follow=True, settle=0.0)
        batches, units = source.batches(), list[str]()
        for turn in range(60):
            batch = next(batches)
            sizes.append(batch.frame.estimated_size())
            units += [unit.replace("u", "").lstrip("l") for unit in batch.frame["unit"].to_list()]
            if turn == 20:
                assert batch.caught_up
                held.execute("COMMIT")
            if turn == 22:
                assert batch.after["floor"] is None  # some of the late ones are still to come
        source.close()
    assert batch.caught_up
    assert batch.after["floor"] == 80
    assert max(sizes) < 250_000
    expected = [f"{n}" for n in range(1, 51) if n % 10] + [f"{n}" for n in range(1, 31)]
    assert sorted(units) == sorted(expected)
    with (
        pytest.raises(InvalidInput, match="longer than"),
        open_source(database.url("events"), COLUMNS) as source,
    ):
        frames(source)


def test_a_changed_row_counts_once(database: Any) -> None:
    """An UPDATE after a row was read makes no second event of it."""
    database.sql(TABLE)
    with database.connect() as other, open_source(database.url("events"), COLUMNS, follow=True) as source:
        insert(other, (START, "one", "north"))
        batches = source.batches()
        assert len(next(batches).frame) == 1
        other.execute("UPDATE events SET place = 'south'")
        assert [len(next(batches).frame) for _ in range(3)] == [0, 0, 0]


def test_settling() -> None:
    """A mark settles when its time is over and all its transactions have ended; another server starts again."""
    found = Settling(10, None, None)
    found.look(100, 105, 7, 0.0)
    assert found.position == {"floor": None, "mark": [7, 0.0, None]}
    found.look(104, 110, 9, 9.0)
    assert found.mark == (7, 0.0, None)
    found.look(104, 110, 9, 10.0)  # whoever had drawn a smaller key has begun by now
    assert found.mark == (7, 0.0, 110)
    found.look(109, 130, 12, 20.0)
    found.reach(12)
    assert (found.settled, found.floor) == (None, None)
    found.look(110, 130, 12, 21.0)
    found.reach(5)
    assert (found.settled, found.floor) == (7, 5)
    found.reach(12)
    assert found.position == {"floor": 7, "mark": [12, 21.0, None]}
    moved = Settling(10, 7, [12, 0.0, 5000])
    moved.look(20, 25, 12, 50.0)
    assert moved.mark == (12, 50.0, None)


def test_a_finite_table_is_one_snapshot(database: Any, tmp_path: Path) -> None:
    """What is inserted while it is read is not in it, in any pass; the next run has it, and late ones, too."""
    database.sql(TABLE)
    with database.connect() as other, database.connect() as held:
        held.execute("BEGIN")
        insert(held, (START, "held", "north"))
        insert(other, *[(START, f"u{n}", "north") for n in range(10)])
        source = TableSource(database.url("events"), COLUMNS, settle=0.0, rows=4)
        seen = []
        for _ in range(2):
            seen.append([unit for batch in source.batches() for unit in batch.frame["unit"].to_list()])
            insert(other, (START, "more", "north"))
        assert seen[0] == seen[1] == [f"u{n}" for n in range(10)]
        last = frames(source)[-1].after
        assert last["floor"] is None
        source.close()
        held.execute("COMMIT")
        again = TableSource(database.url("events"), COLUMNS, settle=0.0)
        (batch,) = frames(again, last)
        assert sorted(batch.frame["unit"].to_list()) == sorted(["held", *seen[0], "more", "more"])
        again.close()
        third = TableSource(database.url("events"), COLUMNS, settle=0.0)
        assert frames(third, batch.after)[0].before["floor"] is not None
        third.close()


@pytest.mark.parametrize(
    ("statement", "location", "error"),
    [
        ("SELECT 1", "events", SourceUnavailable),
        ("CREATE VIEW events AS SELECT 1 AS id", "events", SourceUnavailable),
        ("CREATE TABLE events (id bigint, time text, unit text, place text)", "events", InvalidParameter),
        (
            "CREATE TABLE events (id uuid PRIMARY KEY, time text, unit text, place text)",
            "events",
            InvalidParameter,
        ),
        ("CREATE TABLE events (id bigint PRIMARY KEY, unit text, place text)", "events", MissingColumn),
        (TABLE, "events&key=number", MissingColumn),
        (TABLE, "events&colour=red", SourceUnavailable),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    database: Any, statement: str, location: str, error: type
) -> None:
    """No table, a view, a key that does not grow or repeats, a column that is missing."""
    database.sql(statement)
    for follow in (False, True):
        with (
            pytest.raises(error),
            TableSource(database.url(location), COLUMNS, follow=follow) as source,
        ):
            frames(source, turns=1)
    with pytest.raises(error):
        TableSource(database.url(location), COLUMNS).check()


def test_bad_rows_are_left_out_or_refused(database: Any, tmp_path: Path) -> None:
    """A time that is none: left out without a word where the stream is followed, refused where it is finite."""
    database.sql("CREATE TABLE events (id bigserial PRIMARY KEY, time text, unit text, place text)")
    with database.connect() as connection, connection.cursor() as cursor:
        times = ["2027-01-15T08:10:00Z", "noon", None, "2027-01-15T08:20:00Z"]
        cursor.executemany(
            "INSERT INTO events (time, unit, place) VALUES (%s, 'walrus', 'north')", [(at,) for at in times]
        )
    assert datetime.fromisoformat("2027-01-15T08:00:00Z").timestamp() == START
    config = followed(tmp_path, database.url("events"))
    with open_one(config, follow=True, clock=lambda: START + 2001.0, backfill=True) as stream:
        intake = config.open(None, follow=True, clock=lambda: START + 2001.0)
        stream.drive(intake)
        stream.finish()
        intake.close()
    assert released(tmp_path) == [1, 1]
    finite = tmp_path / "finite"
    finite.mkdir()
    with pytest.raises(InvalidInput) as refusal:
        release(tabled(finite, database.url("events")))
    assert "noon" not in str(refusal.value)
    assert "walrus" not in str(refusal.value)


def test_killed_while_rows_arrive_in_any_order(database: Any, starter: Any, tmp_path: Path) -> None:
    """20 kills of Tidegate and 3 of the server, writers that overlap and roll back: each committed row counts once."""
    import psycopg

    database.sql(TABLE)
    kills = int(os.environ.get("TIDEGATE_KILLS", "20"))
    steps = kills // 2
    config = followed(tmp_path, database.url("events"), steps)
    clock = tmp_path / "clock"
    clock.write_text(str(START + 1.0))
    chance, certain = random.Random(11), [0] * steps
    crashes = set(chance.sample(range(kills), max(3, kills // 10)))
    ended, lock, now = (
        threading.Event(),
        threading.Lock(),
        [0, 0],
    )  # the step, and how many transactions are open

    def write(seed: int) -> None:
        mine = random.Random(seed)
        while not ended.is_set():
            with lock:
                step, now[1] = now[0], now[1] + 1
            rows, kept = mine.randint(1, 20), mine.random() < 0.8
            times = [START + 1000 * step + 1 + n / 100 for n in range(rows)]
            committed = 0
            with suppress(psycopg.OperationalError), database.connect() as connection:
                connection.execute("BEGIN")
                insert(connection, *[(at, f"u{n}", "north") for n, at in enumerate(times)])
                time.sleep(mine.uniform(0, 0.03))
                connection.execute("COMMIT" if kept else "ROLLBACK")
                committed = rows * kept
            with lock:
                certain[step] += committed
                now[1] -= 1
            time.sleep(mine.uniform(0, 0.03))

    def next_step() -> None:
        """The step ends when none of its transactions is open: what is committed later would be late."""
        while True:
            with lock:
                if now[1] == 0:
                    now[0] += 1
                    clock.write_text(str(START + 1000 * now[0] + 1.0))
                    return
            time.sleep(0.0005)

    writers = [threading.Thread(target=write, args=(seed,), daemon=True) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        for kill in range(kills):
            order = {"follow": True, "clock": str(clock)}
            if kill in crashes:
                away, moment = chance.uniform(0.0, 0.2), chance.uniform(0.0, 0.7)
                server = database.server
                assert starter.start_while(server, config.path, seconds=moment, away=away, **order)
            else:
                assert starter.start(config.path, seconds=chance.uniform(0, 0.3), **order)
            if kill % 2 and now[0] < steps - 1:
                next_step()
    finally:
        ended.set()
        for writer in writers:
            writer.join(LIMIT)
    clock.write_text(str(START + 1000 * steps + 1.0))
    assert not starter.start(config.path, follow=True, clock=str(clock))
    found = dict(
        database.sql(
            f"SELECT (extract(epoch FROM time)::int - {START}) / 1000, count(*) FROM events GROUP BY 1"
        )
    )
    counts = [found.get(step, 0) for step in range(steps)]
    assert released(tmp_path) == counts
    # what the server said that it had committed is there; the word of some commits died with it
    assert all(known <= count for known, count in zip(certain, counts, strict=True))
    assert sum(certain) > 100
    assert verified(config.ledger).ok


def test_a_server_that_goes_away_is_waited_for(database: Any, tmp_path: Path) -> None:
    """No step closes meanwhile, and nothing is read twice."""
    database.sql(TABLE)
    with database.connect() as connection:
        insert(connection, *[(START + 1, f"u{n}", "north") for n in range(30)])
    config = followed(tmp_path, database.url("events"))
    now = [START + 5.0]
    with open_one(config, follow=True, clock=lambda: now[0], backfill=True) as stream:
        intake = config.open(None, follow=True, clock=lambda: now[0])
        thread = threading.Thread(target=stream_on, args=(database, intake, now))
        thread.start()
        stream.drive(intake)
        stream.finish()
        thread.join()
        intake.close()
    assert released(tmp_path) == [31, 0]


def test_a_connection_that_is_lost_in_a_page_is_made_anew(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server dies, or hangs, after it was asked for rows: the source waits, and reads them."""
    database.sql(TABLE)
    monkeypatch.setattr(module, "RETRY", 0.01)
    with database.connect() as connection:
        insert(connection, (START, "one", "north"))
    with TableSource(database.url("events"), COLUMNS, follow=True) as source:
        look, left = source._look, [2]

        def looked(settling: Settling) -> int | None:
            found = look(settling)
            if left[0]:
                left[0] -= 1
                assert source._session is not None
                source._session.watchdog._socket.shutdown(socket.SHUT_RDWR)
            return found

        monkeypatch.setattr(source, "_look", looked)
        found = [(len(one.frame), one.caught_up) for one in frames(source, turns=4)]
        assert found == [(0, False), (0, False), (1, True), (0, True)]


def stream_on(database: Any, intake: Any, now: list[float]) -> None:
    """The server is stopped and started; then the clock continues."""
    source = intake.source
    until(lambda: source.status and not source.status.startswith("waiting"))
    database.server.stop()
    until(lambda: source.status.startswith("waiting"))
    database.server.start()
    with database.connect() as connection:
        insert(connection, (START + 2, "last", "north"))
    until(lambda: not source.status.startswith("waiting"))
    now[0] = START + 2001.0


def test_from_table_to_table_by_the_command_line(database: Any, tmp_path: Path, capsys: Any) -> None:
    """A SQL table in, a private SQL table out; `check` looks at both; --until now continues with what has come."""
    database.sql(TABLE)
    with database.connect() as connection:
        insert(connection, *[(START + 1, f"u{n}", "north") for n in range(30)])
    followed(tmp_path, database.url("events"), 2, (f"{tmp_path}/out.csv", database.url()))
    toml = str(tmp_path / "tidegate.toml")
    assert main(["check", toml]) == 0
    assert "has the columns time, unit, place" in capsys.readouterr().out
    tabled(tmp_path, database.url("events"), (f"{tmp_path}/out.csv", database.url()))
    assert main(["release", toml]) == 0
    assert database.sql("SELECT count(*) FROM released_newest") == [(24,)]


def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """Finite input is refused."""
    with pytest.raises(TidegateError, match="cannot be reached"):
        release(tabled(tmp_path, "postgresql://ann@127.0.0.1:9/db?table=events"))
