"""Releases in a table of PostgreSQL: exactly once, newest revisions, who may read and who may write."""

from __future__ import annotations

import csv
import json
import os
import random
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import TEXT, open_one, release, settings, write_events

from tidegate.cli import main
from tidegate.config import Config, parse_queries
from tidegate.config.errors import ConfigError
from tidegate.errors import InvalidParameter
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.receipts import LogIsOlder
from tidegate.sinks import postgres as module
from tidegate.sinks.errors import AnotherStream, SinkError
from tidegate.testing import fixed_entropy

TIDE = ('name = "Uniform"', 'name = "Tide"\ndelay = 4')
ROWS = 'SELECT step, revision, "column", value, low, high, status, spent FROM {} ORDER BY 1, 2, 3'


def rows(database: Any, table: str = "released") -> list[Any]:
    """What a table or a view has."""
    return list(database.sql(ROWS.format(table)))


def into(folder: Path, url: str, *changes: tuple[str, str]) -> Config:
    """The usual stream with a table as its sink."""
    return settings(folder, (f"{folder}/out.csv", url), *changes)


def test_a_table_has_what_a_file_has(database: Any, tmp_path: Path) -> None:
    """The same configuration and noise: every number of the file in long layout, with the time as a moment."""
    long = ("[sink]", '[sink]\nlayout = "long"')
    folders = [tmp_path / name for name in ("file", "table")]
    for folder in folders:
        folder.mkdir()
    with fixed_entropy(5):
        release(settings(folders[0], long))
    with fixed_entropy(5):
        release(into(folders[1], database.url(), long))
    with (folders[0] / "out.csv").open() as file:
        expected = list(csv.DictReader(file))
    found = database.sql('SELECT time, step, "column", value, low, high, status, scale, spent FROM released '
                         'ORDER BY step, "column"')  # fmt: skip
    assert len(found) == len(expected) == 24
    for row, want in zip(found, expected, strict=True):
        assert row[0].timestamp() == datetime.fromisoformat(want["time"]).timestamp()
        assert [str(row[1]), row[2], row[6], row[8]] == [
            want[k] for k in ("step", "column", "status", "spent")
        ]
        assert [row[3], row[4], row[5], row[7]] == [float(want[k]) for k in ("value", "low", "high", "scale")]
    assert database.sql("SELECT DISTINCT query FROM released") == [("",)]


def test_several_queries_share_a_table(database: Any, tmp_path: Path) -> None:
    """One row for each query, step and column, under the query's name; after a loss a second start writes all again."""
    write_events(tmp_path)
    text = TEXT.format(folder=tmp_path).replace(f"{tmp_path}/out.csv", database.url())
    begin, end = text.index("[query]"), text.index("[protect]")
    query = text[begin:end].replace("[query]", "[[query]]")
    both = "".join(f'{query}name = "{name}"\nshare = "1/2"\n' for name in ("first", "second"))
    queries = parse_queries(text[:begin] + both + text[end:], tmp_path / "tidegate.toml")

    def released() -> list[Any]:
        with open_pipeline(queries) as streams:
            intake = streams.queries.open(streams.position)
            streams.drive(intake)
            streams.finish()
            intake.close()
        return list(database.sql('SELECT query, step, "column", value FROM released ORDER BY 1, 2, 3'))

    found = released()
    assert [row[:2] for row in found] == [
        (name, step) for name in ("first", "second") for step in range(1, 13) for _ in range(2)
    ]
    assert released() == found
    database.sql("DROP TABLE released CASCADE")
    assert released() == found


def test_nothing_twice_and_the_newest_revision_in_a_view(database: Any, tmp_path: Path) -> None:
    """Steps that are released again: all revisions in the table, the last word in the view; a second start adds none."""
    config = into(tmp_path, database.url("open_data"), TIDE)
    stream = release(config)
    found = rows(database, "open_data")
    assert len(found) == 2 * stream.releases > 24
    newest = {(row[0], row[2]): row for row in found}  # in the order of revisions
    assert rows(database, "open_data_newest") == [newest[key] for key in sorted(newest)]
    release(config)
    assert rows(database, "open_data") == found


def test_a_dropped_table_is_written_anew(database: Any, tmp_path: Path) -> None:
    """The store has everything, so the same rows come back."""
    config = into(tmp_path, database.url())
    release(config)
    found = rows(database)
    database.sql("DROP TABLE released CASCADE")
    release(config)
    assert rows(database) == rows(database, "released_newest") == found


def test_a_server_that_goes_away_gets_everything_later(database: Any, tmp_path: Path) -> None:
    """The stream continues without it, and the table is complete in the end."""
    config = into(tmp_path, database.url())
    with open_one(config) as stream:
        intake = config.open(None)
        database.server.stop()
        try:
            stream.drive(intake)
            assert stream.behind
        finally:
            intake.close()
            database.server.start()
        stream.finish()
        assert not stream.behind
    assert [row[0] for row in rows(database)] == [step for step in range(1, 13) for _ in range(2)]


def test_another_stream_is_refused_until_it_begins_anew(database: Any, tmp_path: Path) -> None:
    """A second ledger for the same table; --new-stream sets the table aside with its view."""
    config = into(tmp_path, database.url())
    release(config)
    first = rows(database)
    for leftover in tmp_path.glob("tidegate.ledger*"):
        leftover.unlink()
    with pytest.raises(AnotherStream, match="another stream"):
        open_one(config)
    release(config, new_stream=True)
    assert rows(database, "released_earlier_1") == rows(database, "released_earlier_1_newest") == first
    assert len(rows(database)) == 24
    assert rows(database) != first


def test_an_older_ledger_is_noticed_by_the_table(database: Any, tmp_path: Path) -> None:
    """Also without the receipt: the table has releases that the ledger does not know."""
    release(into(tmp_path, database.url(), ("count = 12", "count = 6")))
    older = (tmp_path / "tidegate.ledger").read_bytes()
    release(into(tmp_path, database.url()))
    (tmp_path / "tidegate.ledger").write_bytes(older)
    (tmp_path / "tidegate.ledger.receipt").unlink()
    with pytest.raises(LogIsOlder, match="older copy"):
        release(into(tmp_path, database.url()))


def test_a_program_that_was_taken_for_dead_is_refused(database: Any, tmp_path: Path) -> None:
    """Whoever starts last writes; the one before is refused with its next write, and the rows stay as they are."""
    config = into(tmp_path, database.url())
    with open_one(config) as stream:
        intake = config.open(None)
        database.sql("UPDATE released_stream SET worker = worker + 1")  # as another start does
        with pytest.raises(SinkError, match="taken over"):
            stream.drive(intake)
        intake.close()
    assert rows(database) == []
    release(config)
    assert len(rows(database)) == 24


def test_a_start_that_was_refused_leaves_no_table(database: Any, tmp_path: Path) -> None:
    """A stream that has not begun takes its tables with it."""
    config = into(tmp_path, database.url())
    open_one(config).close()
    assert database.sql("SELECT relname FROM pg_class WHERE relname LIKE 'released%'") == []


def test_a_commit_whose_word_was_lost_counts(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks between the server's commit and its word: the rows are there once."""
    config, broken = into(tmp_path, database.url()), []
    commit = module.PostgresSink._commit

    def breaks(self: Any, part: Any) -> None:
        commit(self, part)
        if len(broken) < 3:
            broken.append(self._number)
            self._number = part.first - 1  # what is known when the word is lost
            raise module.ServerAway("gone")

    monkeypatch.setattr(module.PostgresSink, "_commit", breaks)
    release(config)
    assert broken
    assert len(rows(database)) == 24


def test_killed_at_random_moments(database: Any, starter: Any, tmp_path: Path) -> None:
    """20 kills of Tidegate and 3 of the server while rows are written: the table is what the ledger's store says."""
    (tmp_path / "events.csv").write_text("time,unit,place\n2026-03-02T00:10,walrus1,north\n")
    kills = int(os.environ.get("TIDEGATE_KILLS", "20"))
    steps, chance = 400 * kills, random.Random(3)
    config = into(tmp_path, database.url(), TIDE, ("count = 12", f"count = {steps}"), ('"1h"', '"1min"'))
    crashes = set(chance.sample(range(kills), max(3, kills // 10)))
    for kill in range(kills):
        moment = chance.uniform(0.0, 0.1)
        if kill in crashes:
            away, moment = chance.uniform(0.0, 0.2), chance.uniform(0.0, 0.7)
            assert starter.start_while(database.server, config.path, size=5, seconds=moment, away=away)
        else:
            assert starter.start(config.path, size=5, seconds=moment)
    stream = release(config)
    number = stream.releases
    found = database.sql("SELECT count(*), count(DISTINCT (step, revision)), max(step) FROM released")[0]
    assert found == (2 * number, number, steps)
    assert database.sql("SELECT count(*) FROM released_newest") == [(2 * steps,)]
    with open_one(config) as again:
        sink: Any = next(state.sink for _, state in again.states)
        chunks = [chunk for released in again.released.values() for chunk in released.chunks()]
        stored = [row for chunk in chunks for row in sink._layout.rows(chunk)]
    expected = sorted((row[1], row[2], row[3], *map(_float, row[4:7]), row[7], row[9]) for row in stored)
    assert rows(database) == expected
    database.sql("ANALYZE released")
    late = (datetime(2026, 3, 2) + timedelta(minutes=steps - 120)).isoformat()
    plan = database.sql(f"EXPLAIN SELECT * FROM released_newest WHERE time > '{late}'")
    assert any("time_idx" in line for (line,) in plan)  # a chart of the last hours reads those


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


# secrets and rights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("postgresql://ann:xyzzy@host/db?table=t", "without a password"),
        ("postgresql://ann@host/db?table=t&password=xyzzy", "without a password"),
        ("postgresql://ann@host/db", "table="),
        ("postgresql://ann@host/db?table=a;drop", "table="),
        ("postgresql://ann@host/db?table=a.b.c", "table="),
        ("postgresql://ann@host/db#xyzzy?table=t", "without #"),
        ("postgresql://ann@host/db?table=" + "x" * 60, "at most"),
        ("postgresql://ann@host/db?table=Released", "small letters"),
    ],
)
def test_addresses_are_checked(tmp_path: Path, location: str, words: str) -> None:
    """One sentence, before anything is made, and never with a password."""
    with pytest.raises((InvalidParameter, ConfigError), match=words) as refusal:
        open_one(into(tmp_path, location))
    assert "xyzzy" not in str(refusal.value)
    assert not (tmp_path / "tidegate.ledger").exists()


def test_a_password_from_a_file_is_shown_nowhere(
    database: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From passfile= and PGPASSWORD; in no output, ledger, receipt, report or session; a wrong one is one sentence."""
    rules = database.server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    secret = "xyzzy-plugh"
    database.sql(f"CREATE ROLE ann LOGIN PASSWORD '{secret}'")
    database.sql("CREATE SCHEMA open AUTHORIZATION ann")
    try:
        rules.write_text("host all ann 127.0.0.1/32 scram-sha-256\n" + before)
        database.sql("SELECT pg_reload_conf()")
        passfile = tmp_path / "pass"
        passfile.write_text(f"127.0.0.1:*:*:ann:{secret}\n")
        passfile.chmod(0o600)
        url = database.url("open.released", "ann")
        into(tmp_path, f"{url}&passfile={passfile}")
        toml, report = str(tmp_path / "tidegate.toml"), str(tmp_path / "report.html")
        assert main(["check", toml]) == 0
        assert main(["release", toml, "--json", "--report", report]) == 0
        shown = "".join(capfd.readouterr())
        assert secret not in shown
        for path in tmp_path.iterdir():
            assert path == passfile or secret.encode() not in path.read_bytes()
        assert len(rows(database, "open.released")) == 24
        assert not any(secret in str(row) for row in database.sql("SELECT * FROM pg_stat_activity"))
        into(tmp_path, url)
        monkeypatch.setenv("OURS", secret)
        into(tmp_path, url.replace("ann@", "ann:${OURS}@"))
        assert main(["release", toml]) == 0
        into(tmp_path, url)
        monkeypatch.setenv("PGPASSWORD", "wrong")
        assert main(["release", toml]) == 2
        assert "refuses the user" in capfd.readouterr().err
        monkeypatch.setenv("PGPASSWORD", secret)
        assert main(["release", toml]) == 0
        assert secret not in "".join(capfd.readouterr())
    finally:
        rules.write_text(before)
        database.sql("SELECT pg_reload_conf()")
        database.sql("DROP OWNED BY ann; DROP ROLE ann")


def test_the_examples_of_the_page(database: Any, root: Path, tmp_path: Path) -> None:
    """The roles and the dashboard of the docs, against a real stream: readers read, and do not write."""
    import psycopg

    examples = root / "docs" / "examples"
    database.sql((examples / "reader.sql").read_text())
    try:
        release(into(tmp_path, database.url("open.released", "writer"), TIDE))
        assert len(database.sql("SELECT * FROM open.released_newest", user="reader")) == 24
        for statement in (
            "DELETE FROM open.released",
            "INSERT INTO open.released_stream VALUES ('', '', 0, 0)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                database.sql(statement, user="reader")
        board = json.loads((examples / "grafana.json").read_text())
        queries = [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
        assert len(queries) == 4
        labels = [row[0] for row in database.sql(board["templating"]["list"][1]["query"], user="reader")]
        assert labels == ["north", "south"]
        for query in queries:
            found = database.sql(as_grafana(query, labels), user="reader")
            assert found
            assert all(value is not None for value in found[0])
    finally:
        database.sql(
            "DROP SCHEMA open CASCADE; DROP OWNED BY reader, writer; DROP ROLE reader; DROP ROLE writer"
        )


def as_grafana(query: str, labels: list[str]) -> str:
    """What Grafana's own plug-in makes of a query before it is sent."""
    query = re.sub(
        r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2026-03-01T00:00:00Z' AND '2026-03-04T00:00:00Z'", query
    )
    found = query.replace("$column", ",".join(f"'{label}'" for label in labels))
    assert "$" not in found
    return found
