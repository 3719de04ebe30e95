"""Streams whose categories nobody has listed: the same releases as in Python, whatever the pieces and restarts."""

from __future__ import annotations

import csv
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.pipeline.streams import release, settings, stalls

import tidegate as tg
from tidegate.config import Queries
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.ingest import blocks
from tidegate.mechanisms import Discover
from tidegate.pipeline import read_stream
from tidegate.pipeline.backup import back_up
from tidegate.report.found import lives, rule
from tidegate.report.report import write_report
from tidegate.sinks.chunks import joined
from tidegate.testing.entropy import fixed_entropy


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queries:
    """One with epochs of five steps, in blocks of three."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 3)
    return settings(tmp_path, stalls(tmp_path))


def rows_of(queries: Queries) -> list[dict[str, str]]:
    """What was published."""
    with (queries.path.parent / "out.csv").open() as file:
        return list(csv.DictReader(file))


def kept(queries: Queries) -> list[int]:
    """The steps of which records are kept beside the log."""
    with closing(sqlite3.connect(queries.ledger)) as database:
        return [step for (step,) in database.execute("SELECT step FROM occurrences ORDER BY step")]


def by_hand(queries: Queries) -> Any:
    """The releases of the same records, pushed from Python."""
    frame = pl.read_csv(queries.path.parent / "events.csv", try_parse_dates=False)
    steps = [rows for _, rows in frame.group_by("time", maintain_order=True)]
    mechanism = queries.first.mechanism
    assert isinstance(mechanism, Discover)
    collector = mechanism.collector()
    with tg.open(mechanism) as session:
        pairs = [rows.sort("place").rename({"place": "category"}) for rows in steps]
        return session.push_batch([collector.step(each) for each in pairs])


def test_a_file_is_released_as_its_records_are_in_python(stream: Queries) -> None:
    """Bit for bit: names, when they opened, noisy numbers of units, and counts."""
    with fixed_entropy(3):
        release(stream)
    with fixed_entropy(3):
        expected = by_hand(stream)
    found = rows_of(stream)
    for step in (1, 5, 9, 15, 25, 40):
        own = [row for row in found if row["step"] == str(step)]
        said = expected[step - 1]
        assert [row["column"] for row in own] == [*filter(None, said.categories), "other"]
        assert [float(row["value"]) for row in own] == [said.counts[row["column"]] for row in own]
        assert [float(row["units"]) for row in own[:-1]] == said.units_counted[said.opened > 0].tolist()
    names = {row["column"] for row in found}
    assert names == {"bakery", "Café", "stage", "other"}
    assert {row["opened"][:13] for row in found if row["column"] == "stage"} == {"2026-03-02T14"}


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_restart_has_the_records_of_the_open_epoch(stream: Queries, turns: int, tmp_path: Path) -> None:
    """Wherever it stopped: the same releases, and nothing of an epoch that is over is kept."""
    with fixed_entropy(3):
        for _ in range(turns):
            release(stream, blocks=2)
        step = 6 * turns
        assert kept(stream) == [*range(step - step % 5 + 1, step + 1)]
        release(stream)
    interrupted = (tmp_path / "out.csv").read_bytes()
    whole = tmp_path / "whole"
    whole.mkdir()
    with fixed_entropy(3):
        release(settings(whole, stalls(whole)))
    assert interrupted == (whole / "out.csv").read_bytes()
    assert not kept(stream)
    log = SQLiteLog(Path(stream.ledger))
    assert verify(log.rows()).ok
    log.close()


def test_early_tests_follow_a_file_through_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories open within epochs; wherever it stopped, the releases are those of Python."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 3)
    stream = settings(tmp_path, stalls(tmp_path), ("epoch = 5", "epoch = 5\nearly = true"))
    with fixed_entropy(3):
        for _ in range(2):
            release(stream, blocks=2)
        assert kept(stream) == [11, 12]
        release(stream)
    with fixed_entropy(3):
        expected = by_hand(stream)
    found = rows_of(stream)
    for step in (1, 2, 9, 15, 25, 40):
        own, said = [row for row in found if row["step"] == str(step)], expected[step - 1]
        assert [row["column"] for row in own] == [*filter(None, said.categories), "other"]
        assert [float(row["units"]) for row in own[:-1]] == said.units_counted[said.opened > 0].tolist()
    assert {row["column"] for row in found} == {"bakery", "Café", "stage", "other"}
    assert {int(row["step"]) for row in found if row["column"] == "stage"} >= {12, 13, 14}
    assert "has had so far in its epoch of 5 steps" in rule(stream.first)


def test_early_tests_begin_again_after_a_backup_was_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks the records of the open epoch, and its noise: nothing halts, and later epochs have tests."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 3)
    stream = settings(tmp_path, stalls(tmp_path), ("epoch = 5", "epoch = 5\nearly = true"))
    release(stream, blocks=4)
    back_up(Path(stream.ledger), tmp_path / "copy")
    (tmp_path / "copy").replace(stream.ledger)
    release(stream)
    found = rows_of(stream)
    assert {row["step"] for row in found} == {str(step) for step in range(1, 41)}
    assert {row["column"] for row in found if int(row["step"]) > 30} >= {"bakery", "Café"}


def spent(folder: Path, aggregate: str) -> Queries:
    """The same stalls, where everybody spends a number of coins that depends on the stall."""
    text = stalls(folder).replace('column = "place"', 'column = "place"\nvalue = "coins"')
    lines = (folder / "events.csv").read_text().splitlines()
    coins = {"bakery": "3.5", "Café": "8", "stage": "40", "the only one": "99"}
    priced = [f"{line},{coins[line.rpartition(',')[2].strip()]}" for line in lines[1:]]
    (folder / "events.csv").write_text("\n".join([f"{lines[0]},coins", *priced]) + "\n")
    query = f'aggregate = "{aggregate}"\nclip = ["0", "20"]\ngrid = "1/2"\ncolumns = "discover"'
    return settings(folder, text, ('columns = "discover"', query), ('epsilon = "8"', 'epsilon = "100"'))


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_sums_and_means_by_category(aggregate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clipped values, in files, in the report and after a restart as in Python."""
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 3)
    stream = spent(tmp_path, aggregate)
    with fixed_entropy(3):
        release(stream, blocks=2)
        release(stream)
    frame = pl.read_csv(tmp_path / "events.csv").rename({"place": "category", "coins": "value"})
    mechanism = stream.first.mechanism
    assert isinstance(mechanism, Discover)
    collector = mechanism.collector()
    steps = [rows.sort("category", "value") for _, rows in frame.group_by("time", maintain_order=True)]
    with fixed_entropy(3), tg.open(mechanism) as session:
        expected = session.push_batch([collector.step(each) for each in steps])
    found = rows_of(stream)
    for step in (1, 5, 15, 22, 40):
        own = {row["column"]: float(row["value"]) for row in found if row["step"] == str(step)}
        said = expected[step - 1]
        told = said.sums if aggregate == "sum" else said.means
        told |= (
            {f"count of {name}": many for name, many in said.counts.items()} if aggregate == "mean" else {}
        )
        assert own.keys() == told.keys()
        assert own == pytest.approx(told, abs=0.5)  # digits that noise has made meaningless are left out
    at_20 = {row["column"]: float(row["value"]) for row in found if row["step"] == "20"}
    # 41 records of 3.5, and 61 of 40, which count as 20; each unit counts twice at most
    right = {"bakery": 41 * 3.5, "stage": 61 * 20} if aggregate == "sum" else {"bakery": 3.5, "stage": 20}
    for name, value in right.items():
        assert at_20[name] == pytest.approx(value, abs=120 if aggregate == "sum" else 6)
    with read_stream(stream) as read:
        write_report(tmp_path / "r.html", [read.released["query"]], read.verify(), compare_truth=True)
    row = re.search(r"<tr><td>bakery<td>([\d.]+)", (tmp_path / "r.html").read_text())
    assert row is not None
    assert float(row[1]) == pytest.approx(143.5 if aggregate == "sum" else 3.5)


def test_nothing_has_a_name_that_was_not_released(stream: Queries, tmp_path: Path) -> None:
    """The name that one unit has is in no file, once its epoch is over; nor is any unit."""
    release(stream)
    for path in tmp_path.iterdir():
        if path.name != "events.csv":
            content = path.read_bytes()
            assert b"the only one" not in content, path.name
            assert b"lone" not in content, path.name


def test_a_report_says_when_categories_opened(stream: Queries, tmp_path: Path) -> None:
    """And when they closed; with true counts for the curator's eyes."""
    with fixed_entropy(3):
        release(stream)
    with read_stream(stream) as read:
        released = read.released["query"]
        newest = joined(released.chunks(), 4)
        write_report(tmp_path / "r.html", [released], read.verify())
        write_report(tmp_path / "inside.html", [released], read.verify(), compare_truth=True)
    found = {life.name: life for life in lives(newest)}
    assert found["stage"].spans == ((15, 24),)
    assert found["bakery"].spans == ((5, 40),)
    page = (tmp_path / "r.html").read_text()
    assert "Categories that were found" in page
    assert "from 2 March 2026, 14:00 to 3 March 2026, 00:00" in page
    assert "place 1" not in page
    row = re.search(r"<tr><td>bakery<td>([\d.]+)", (tmp_path / "inside.html").read_text())
    assert row is not None
    assert float(row[1]) == pytest.approx(41.0)  # 40 units, one of which has two records
    assert np.isfinite(newest.values[:, -1]).all()


def test_a_backup_has_no_records(stream: Queries, tmp_path: Path) -> None:
    """Those of the open epoch are in the log of the stream, and in a backup with secrets alone."""
    release(stream, blocks=3)
    assert kept(stream) == [6, 7, 8, 9]
    back_up(Path(stream.ledger), tmp_path / "copy")
    back_up(Path(stream.ledger), tmp_path / "whole", secrets=True)
    assert b"lone" in Path(stream.ledger).read_bytes()
    assert b"lone" in (tmp_path / "whole").read_bytes()
    assert b"lone" not in (tmp_path / "copy").read_bytes()


def test_a_query_that_has_ended_keeps_no_records(stream: Queries) -> None:
    """After an amendment its name is not among those that find categories: the next start removes what it had."""
    release(stream, blocks=3)
    with closing(sqlite3.connect(stream.ledger)) as database, database:
        database.execute("UPDATE occurrences SET query = 'ended' WHERE step = 6")
    assert kept(stream) == [6, 7, 8, 9]
    release(stream)
    assert not kept(stream)
