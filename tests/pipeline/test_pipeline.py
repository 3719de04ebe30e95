"""Files in, files out: what is resumed, refused, sent again, archived and restored."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.pipeline.streams import places, readings, release, settings, shop

from tidegate.config import Queries
from tidegate.core.errors import Halted, LogDamaged, LogMismatch
from tidegate.errors import InvalidParameter
from tidegate.ingest import blocks as blocks_module
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.pipeline import open_pipeline, pipeline
from tidegate.pipeline.backup import back_up, restore, verify_log
from tidegate.pipeline.log_heads import check_heads, head_of, read_head
from tidegate.pipeline.logs import rows_of
from tidegate.pipeline.receipts import LogIsOlder
from tidegate.sinks.errors import AnotherStream, SinkError, SinkUnavailable
from tidegate.sinks.text import TextFileSink
from tidegate.testing.entropy import fixed_entropy


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight blocks per stream, with a checkpoint after each."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 5)
    monkeypatch.setattr(pipeline, "SYNC_EVERY", 0.0)
    monkeypatch.setattr(pipeline, "RETRY_EVERY", 0.0)


@pytest.fixture
def stream(tmp_path: Path) -> Queries:
    """A stream with one query."""
    return settings(tmp_path, places(tmp_path))


def steps_of(path: Path) -> list[int]:
    """The steps of a CSV file, in order."""
    return [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]


def statuses_of(path: Path) -> list[str]:
    """The statuses of a CSV file, in order."""
    return [line.split(",")[-3] for line in path.read_text().splitlines()[1:]]


# resuming and resending ------------------------------------------------------------------------------------------


def test_stopped_after_every_block_it_releases_the_same(tmp_path: Path) -> None:
    """Missing readings, held values and intervals are resumed as well."""
    found = []
    for name, blocks in (("once", None), ("often", 1)):
        folder = tmp_path / name
        folder.mkdir()
        queries = settings(folder, readings(folder))
        with fixed_entropy(3):
            while release(queries, blocks=blocks).step < 40:
                pass
        found.append((folder / "out.csv").read_bytes())
    assert found[0] == found[1]


def test_a_lost_output_is_written_again_byte_for_byte(stream: Queries, tmp_path: Path) -> None:
    """From the log; an edited one is refused."""
    release(stream)
    before = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").unlink()
    release(stream)
    assert (tmp_path / "out.csv").read_bytes() == before
    (tmp_path / "out.csv").write_bytes(before + b"one more\n")
    with pytest.raises(SinkError, match=r"out\.csv has more than"):
        release(stream)


def test_a_sink_that_cannot_be_reached_gets_everything_later(
    stream: Queries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order and once; nothing is noted as complete before."""
    write, calls = TextFileSink.write, 0

    def unreachable(sink: TextFileSink, chunk: Any) -> None:
        nonlocal calls
        calls += 1
        if 2 <= calls <= 6:
            raise SinkUnavailable("away")
        write(sink, chunk)

    monkeypatch.setattr(TextFileSink, "write", unreachable)
    release(stream)
    assert steps_of(tmp_path / "out.csv") == list(range(1, 41))


def test_files_in_several_formats(tmp_path: Path) -> None:
    """JSON lines, Parquet and folders are read, JSON lines and Parquet are written, with the same numbers."""
    text, expected = places(tmp_path), None
    frame = pl.read_csv(tmp_path / "events.csv")
    frame.write_ndjson(tmp_path / "events.jsonl")
    frame.write_parquet(tmp_path / "events.parquet")
    (tmp_path / "many").mkdir()
    for number, part in enumerate(frame.iter_slices(500)):
        part.write_csv(tmp_path / "many" / f"{number:03d}.csv")
    for source, sink in (
        ("events.csv", "a/out.csv"),
        ("events.jsonl", "b/out.jsonl"),
        ("events.parquet", "c/out.parquet"),
        ("many", "d/out/"),
    ):
        folder = tmp_path / sink[0]
        folder.mkdir()
        changed = text.replace('"events.csv"', f'"../{source}"').replace('"out.csv"', f'"{sink[2:]}"')
        queries = settings(folder, changed)
        with fixed_entropy(3):
            done = release(queries, closed=False)
            values = np.concatenate([chunk.values for chunk in done.chunks("query")])
            done.close()
        expected = values if expected is None else expected
        assert np.array_equal(values, expected)
        kind = {"out.csv": pl.read_csv, "out.jsonl": pl.read_ndjson}.get(sink[2:], pl.read_parquet)
        assert len(kind(folder / sink[2:])) == 40


@pytest.mark.slow  # a process
def test_a_pipe_in_and_a_pipe_out(tmp_path: Path) -> None:
    """Standard input is read once, and standard output gets the rows; the receipt lies beside the log."""
    text = places(tmp_path)
    settings(tmp_path, text, ('"events.csv"', '"-"\nformat = "csv"'), ('"out.csv"', '"-"\nformat = "csv"'))
    script = (
        "from tests.pipeline.streams import release; from tidegate.config import read_queries; "
        f"release(read_queries({str(tmp_path / 'tidegate.toml')!r}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        input=(tmp_path / "events.csv").read_bytes(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert len(found.stdout.splitlines()) == 41
    assert (tmp_path / "tidegate.ledger.receipt").exists()


def test_a_mechanism_that_fails_leaves_silent_rows(
    stream: Queries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block is charged and silent, the steps of its windows as well, and then the stream continues."""
    advance = BudgetAbsorption.advance

    def failing(mechanism: Any, state: Any, rows: Any, first: int, noise: Any) -> Any:
        if first == 11:
            raise ValueError("of the data")
        return advance(mechanism, state, rows, first, noise)

    monkeypatch.setattr(BudgetAbsorption, "advance", failing)
    with pytest.raises(Halted):
        release(stream)
    assert release(stream).step == 40
    assert steps_of(tmp_path / "out.csv") == list(range(1, 41))
    assert [at + 1 for at, word in enumerate(statuses_of(tmp_path / "out.csv")) if word == "silent"] == list(
        range(11, 19)
    )


# refusals --------------------------------------------------------------------------------------------------------


def test_a_changed_configuration_is_refused_by_its_key(stream: Queries, tmp_path: Path) -> None:
    """Also one that only ingest knows."""
    release(stream)
    for before, after, key in (
        ('length = "1h"', 'length = "2h"', "steps.length"),
        ("window = 4", "window = 5", "mechanism.policy"),
    ):
        changed = settings(tmp_path, places(tmp_path), (before, after))
        with pytest.raises(LogMismatch, match=key):
            open_pipeline(changed)


def test_an_older_copy_of_the_log_is_refused(stream: Queries, tmp_path: Path) -> None:
    """By the receipt, also when the output was moved away or has another place now."""
    log, copy = Path(stream.ledger), tmp_path / "copy"
    release(stream, blocks=3)
    shutil.copy(log, copy)
    release(stream, blocks=2)
    elsewhere = settings(tmp_path, places(tmp_path), ('"out.csv"', '"other.csv"'))
    release(elsewhere, blocks=1)
    shutil.copy(copy, log)
    for queries in (stream, elsewhere):
        with pytest.raises(LogIsOlder, match="older copy"):
            open_pipeline(queries)
    (tmp_path / "out.csv").unlink()
    with pytest.raises(LogIsOlder, match="older copy"):
        open_pipeline(stream)


def test_the_receipts_of_outputs_that_were_left_are_written(stream: Queries, tmp_path: Path) -> None:
    """Back at its first output, an older log is known to be older."""
    log, copy = Path(stream.ledger), tmp_path / "copy"
    release(stream, blocks=2)
    elsewhere = settings(tmp_path, places(tmp_path), ('"out.csv"', '"other.csv"'))
    release(elsewhere, blocks=2)
    shutil.copy(log, copy)
    release(elsewhere, blocks=1)
    shutil.copy(copy, log)
    (tmp_path / "other.csv.receipt").unlink()
    with pytest.raises(LogIsOlder, match="older copy"):
        open_pipeline(stream)


def test_a_second_stream_is_refused_or_paid_for(tmp_path: Path) -> None:
    """All outputs are renamed, or none, and the receipt remembers the cost."""
    queries = settings(tmp_path, shop(tmp_path))
    release(queries)
    first = (tmp_path / "out-orders.csv").read_bytes()
    with pytest.raises(InvalidParameter, match="new-stream"):
        open_pipeline(queries, new_stream=True)
    Path(queries.ledger).unlink()
    with pytest.raises(AnotherStream, match="ε = 2 for any 6 consecutive steps"):
        open_pipeline(queries)
    assert not Path(queries.ledger).exists()
    with open_pipeline(queries, new_stream=True) as opened:
        assert "ε = 2" in opened.together
    assert (tmp_path / "out-orders.csv").read_bytes() == first  # nothing was released, so all is as it was
    release(queries, new_stream=True)
    assert (tmp_path / "out-orders.earlier-1.csv").read_bytes() == first
    assert (tmp_path / "out-revenue.earlier-1.csv").exists()
    assert "ε = 2" in release(queries).together


# archives --------------------------------------------------------------------------------------------------------


def test_confirmed_releases_move_into_archives(tmp_path: Path) -> None:
    """A lost output is made from archives and log, with the same bytes; the account stays whole without them."""
    (tmp_path / "archives").mkdir()
    run = '\n[run]\narchives = "archives"\nkeep = 8\n'
    queries = settings(tmp_path, shop(tmp_path) + run)
    release(queries)
    archives, log = tmp_path / "archives", Path(queries.ledger)
    files = sorted(archives.iterdir())
    assert len(files) >= 2
    moved = [row.number for row in rows_of(log) if row.releases is None]
    assert moved == list(range(len(moved)))
    assert verify_log(rows_of(log)).ok
    assert verify_log(rows_of(log), [archives]).ok
    before = (tmp_path / "out-orders.csv").read_bytes()
    (tmp_path / "out-orders.csv").unlink()
    release(queries)
    assert (tmp_path / "out-orders.csv").read_bytes() == before
    with sqlite3.connect(files[-1]) as database:
        database.execute("UPDATE log SET releases = zeroblob(length(releases))")
    database.close()
    with pytest.raises(LogDamaged, match="other releases"):
        verify_log(rows_of(log), [archives])
    (tmp_path / "out-orders.csv").unlink()
    for file in files:
        file.unlink()
    with pytest.raises(LogMismatch, match="are in an archive"):
        release(queries)


# backups ---------------------------------------------------------------------------------------------------------


def test_a_backup_has_no_secrets_and_is_restored_with_silent_steps(stream: Queries, tmp_path: Path) -> None:
    """The stream continues after a window; a backup that lacks a commit is refused."""
    log, backup = Path(stream.ledger), tmp_path / "backup.db"
    release(stream, blocks=2)
    back_up(log, tmp_path / "older.db")
    release(stream, blocks=2)
    with open_pipeline(stream) as running:  # also while it runs
        assert back_up(log, backup).found.ok
        assert running.session.position not in backup.read_bytes()
    with sqlite3.connect(backup) as database:
        assert database.execute("SELECT secret FROM now").fetchone() == (None,)
    database.close()
    receipt = read_head(str(tmp_path / "out.csv.receipt"))
    log.unlink()
    with pytest.raises(LogIsOlder, match="lacks charges"):
        restore(tmp_path / "older.db", log, [receipt])
    restore(backup, log, [receipt])
    assert release(stream).step == 40
    assert steps_of(tmp_path / "out.csv") == list(range(1, 41))
    assert statuses_of(tmp_path / "out.csv")[20:24] == ["silent", "silent", "silent", "fresh"]
    assert verify_log(rows_of(log)).ok


def test_a_backup_that_nothing_vouches_for_is_refused(stream: Queries, tmp_path: Path) -> None:
    """Restored without a head, it needs the receipts of its outputs."""
    log, backup, receipt = Path(stream.ledger), tmp_path / "backup.db", tmp_path / "out.csv.receipt"
    release(stream, blocks=2)
    back_up(log, backup)
    release(stream, blocks=2)
    kept = receipt.read_bytes()
    log.unlink()
    restore(backup, log)
    with pytest.raises(LogIsOlder, match="older copy"):
        open_pipeline(stream)
    receipt.unlink()
    with pytest.raises(LogIsOlder, match="is missing"):
        open_pipeline(stream)
    receipt.write_bytes(kept)
    with pytest.raises(InvalidParameter, match="nothing has yet"):
        restore(backup, log)


def test_published_heads(stream: Queries, tmp_path: Path) -> None:
    """JSON or text; of another log, or of a commit that is gone, they are refused."""
    release(stream, blocks=2)
    log, published = Path(stream.ledger), head_of(rows_of(Path(stream.ledger)), stream.ledger)
    assert (published["step"], published["commit"]) == (10, 2)
    head = read_head(f"{published['commit']}:{published['head']}")
    check_heads(rows_of(log), [head], "the log")
    release(stream)
    check_heads(rows_of(log), [head], "the log")
    with pytest.raises(LogIsOlder):
        check_heads(rows_of(log), [head._replace(commit=99)], "the log")
    with pytest.raises(AnotherStream):
        check_heads(rows_of(log), [head._replace(identity="00")], "the log")
    with pytest.raises(InvalidParameter):
        read_head(str(tmp_path / "events.csv"))
