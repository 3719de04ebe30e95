"""Reading what was released: by step range, from marks, and what windows have spent."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.streams import places, release, settings, shop

from tidegate.core.account import Account
from tidegate.core.commit import PUSHED
from tidegate.core.errors import LogMismatch
from tidegate.core.session import charges_of
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline, read_stream
from tidegate.pipeline import pipeline as pipeline_module
from tidegate.pipeline.logs import open_log
from tidegate.pipeline.stream_reader import difference
from tidegate.sinks.chunks import joined


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits, and marks among them."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 3)
    monkeypatch.setattr(pipeline_module, "MARK_EVERY", 5)


@pytest.mark.parametrize(("first", "last"), [(1, 40), (7, 9), (40, 40), (39, 60), (41, 50)])
def test_a_range_of_steps_has_all_its_releases_and_few_others(tmp_path: Path, first: int, last: int) -> None:
    """The same rows as among all releases."""
    queries = settings(tmp_path, places(tmp_path))
    release(queries)
    with open_pipeline(queries) as pipeline:
        read = pipeline.released["query"]
        every = joined(read.chunks(), 2)
        chunks = list(read.between(first, last))
        wanted = every.picked(np.flatnonzero((every.step >= first) & (every.step <= last)))
        if not len(wanted):
            assert not chunks
            return
        found = joined(chunks, 2)
        inside = found.picked(np.flatnonzero((found.step >= first) & (found.step <= last)))
        assert inside.step.tolist() == wanted.step.tolist()
        assert np.array_equal(inside.values, wanted.values)
        assert len(found) <= len(wanted) + 4  # the rest of the first and of the last commit


def test_chunks_after_a_number_are_those_from_the_beginning(tmp_path: Path) -> None:
    """Whatever mark the reading begins at."""
    queries = settings(tmp_path, shop(tmp_path))
    release(queries)
    with open_pipeline(queries) as pipeline:
        for name, read in pipeline.released.items():
            every = joined(read.chunks(), read.mechanism.outputs)
            assert pipeline.side_tables.last_mark(read.scope.number) >= 30, name
            for after in range(read.number):
                found = joined(read.chunks(after), read.mechanism.outputs)
                assert found.first == after + 1
                assert np.array_equal(found.values, every.after(after).values)
                assert np.array_equal(found.units, every.after(after).units)


def test_windows_have_spent_what_the_account_says(tmp_path: Path) -> None:
    """Steps and spans, at the end of every commit, against the account of the core; never more than the limit."""
    queries = settings(tmp_path, places(tmp_path))
    release(queries)
    with open_pipeline(queries) as pipeline:
        read = pipeline.released["query"]
        account, ends, expected = Account(read.units, 4), [], []
        for row in pipeline.log.rows():
            if row.kind == PUSHED:
                ((_, charges),) = charges_of(row)
                account.apply(account.check(charges))
                live = sum(span.units for span in account.live.values() if span.last > charges.last - 4)
                ends.append(charges.last)
                expected.append(account.total + live)
        assert len(ends) >= 13
        assert any(expected)
        assert read.spent_by(np.array(ends)).tolist() == expected
        assert read.spent_by(np.array(ends[-3:])).tolist() == expected[-3:]  # from a mark on
        assert read.spent == expected[-1]
        assert read.spent_by(np.arange(1, 41)).max() <= read.units


def test_a_ledger_of_version_0_is_refused_with_a_step(tmp_path: Path) -> None:
    """The first step that a new log may read, as far as the old file says it; at user level never."""
    for window, words in ((24, "from step 124 on"), (0, "does not return")):
        path = tmp_path / f"{window}.ledger"
        with sqlite3.connect(path) as database:
            database.execute(f"PRAGMA application_id = {0x54494445}")
            database.execute("CREATE TABLE meta (name TEXT, value TEXT)")
            database.execute("CREATE TABLE head (step INTEGER)")
            database.execute("INSERT INTO meta VALUES ('window', ?)", (str(window),))
            database.execute("INSERT INTO head VALUES (100)")
        database.close()
        before = path.read_bytes()
        with pytest.raises(LogMismatch, match=words):
            open_log(str(path))
        assert path.read_bytes() == before


def test_who_reads_only_sees_the_same_and_changes_nothing(tmp_path: Path) -> None:
    """The same releases and spending as the stream itself; no file appears, none changes, no writer is fenced."""
    queries = settings(tmp_path, shop(tmp_path))
    release(queries)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with read_stream(queries) as stream:
        found = {
            name: joined(read.chunks(), read.mechanism.outputs) for name, read in stream.released.items()
        }
        spent = {name: read.spent for name, read in stream.released.items()}
        head, identity, verified = stream.head, stream.identity, stream.verify()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert verified.ok
    assert verified.head.hex() == head.hash
    with open_pipeline(queries) as pipeline:
        assert (pipeline.session.head.hex(), pipeline.identity) == (head.hash, identity)
        with read_stream(queries) as stream:  # while it is open for writing, too
            assert stream.head == head
        for name, read in pipeline.released.items():
            assert np.array_equal(joined(read.chunks(), read.mechanism.outputs).values, found[name].values)
            assert read.spent == spent[name]


def test_who_reads_only_never_needs_a_secret(tmp_path: Path) -> None:
    """The row with state and position may be missing altogether."""
    queries = settings(tmp_path, places(tmp_path))
    release(queries)
    with sqlite3.connect(queries.ledger) as database:
        database.execute("DROP TABLE now")
        database.execute("DROP TABLE spooled")
    with read_stream(queries) as stream:
        assert stream.released["query"].number >= 40


def test_a_difference_is_what_people_have_changed() -> None:
    """A window changes the delay and the noise of Tide as well, and other columns change the mechanism."""

    def about(window: int, columns: list[str]) -> dict[str, object]:
        policy = {"policy": "WEvent", "window": window}
        mechanism = {"mechanism": "Tide", "delay": window, "noise": [window], "policy": policy}
        return {"mechanism": {**mechanism, "columns": len(columns)}, "query": {"columns": columns}}

    before = about(24, ["north"])
    assert difference(before, about(12, ["north"])) == ("mechanism.policy.window", 24, 12)
    assert difference(before, about(24, ["north", "south"])) == (
        "query.columns",
        ["north"],
        ["north", "south"],
    )
