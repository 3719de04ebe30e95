"""Rows, heads, receipts, files, reports, status and metrics are functions of configuration and releases alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.runtime import public
from tests.runtime.public import SAME_VALUES, Event, base, differing, moved, prepare, recomputed, released, run

from tidegate.ingest.blocks import block_steps


@pytest.fixture(autouse=True)
def _one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ledger gets the same name, which is drawn by chance."""
    monkeypatch.setattr("tidegate.ledger.durable.fresh_name", lambda: "0" * 32)


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


FILES = [in_csv, in_json_lines, in_parquet, in_a_folder]


@pytest.mark.parametrize("write", FILES)
def test_records_that_change_no_value_change_nothing(tmp_path: Path, write: public.Write) -> None:
    """Order, repeats, records outside of the clock or of all columns: every public byte is the same."""
    wanted = run(prepare(tmp_path, write(tmp_path, base())))
    for name, events in SAME_VALUES.items():
        found = run(prepare(tmp_path, write(tmp_path, events())))
        assert differing(wanted, found) == {}, name


@pytest.mark.parametrize("write", FILES)
def test_everything_public_follows_from_configuration_and_releases(
    tmp_path: Path, write: public.Write
) -> None:
    """A stream that never sees a record, and is told what was released, has the same rows, head, report and so on."""
    for events in (base(), moved()):
        queries = prepare(tmp_path, write(tmp_path, events))
        found = run(queries)
        (chunk,) = released(queries)
        size = block_steps(queries.counted.width, follow=False)
        again = recomputed(prepare(tmp_path, "nothing.csv"), chunk.values, size=size)
        assert differing(found, again) == {}
