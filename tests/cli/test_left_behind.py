"""Commands that only read leave a folder as they found it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.runtime.helpers import release, settings

from tidegate.cli import main
from tidegate.config.queries import one
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.errors import LogUnavailable
from tidegate.pipeline.logs import LogReader

READING = {
    "ledger verify": ["ledger", "verify", "tidegate.ledger"],
    "ledger verify --head": ["ledger", "verify", "tidegate.ledger", "--head", "out.csv.receipt"],
    "ledger show": ["ledger", "show", "tidegate.ledger"],
    "ledger head": ["ledger", "head", "tidegate.ledger"],
    "explain": ["explain", "tidegate.toml"],
    "card": ["card", "tidegate.toml"],
    "check": ["check", "tidegate.toml"],
    "plan": ["plan", "tidegate.toml", "--quick"],
}


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, and its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("words", READING.values(), ids=READING.keys())
def test_a_command_that_reads_leaves_every_file_as_it_was(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No `-wal`, no `-shm`, and not a byte of the others is changed."""
    release(settings(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path)
    assert main(words) == 0, capsys.readouterr().err
    assert content(tmp_path) == before


def test_a_backup_adds_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file more."""
    release(settings(tmp_path))
    before = content(tmp_path)
    assert main(["ledger", "backup", str(tmp_path / "tidegate.ledger"), str(tmp_path / "copy")]) == 0
    after = content(tmp_path)
    assert after.keys() - before.keys() == {"copy"}
    assert {name: after[name] for name in before} == before


def test_what_a_killed_writer_left_is_read_and_kept(tmp_path: Path) -> None:
    """The write-ahead log has a commit that is not in the file yet; a command that reads moves nothing."""
    config = settings(tmp_path)
    if (child := os.fork()) == 0:
        try:
            pipeline = open_pipeline(one(config))
            pipeline.session.push_batch({"query": [[1, 2], [3, 4]]})
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    path, log = tmp_path / "tidegate.ledger", tmp_path / "tidegate.ledger-wal"
    before = path.read_bytes(), log.read_bytes()
    with LogReader(str(path)) as opened:
        assert [row.last for row in opened.rows()] == [0, 2]
    assert (path.read_bytes(), log.read_bytes()) == before
    with open_pipeline(one(config)) as pipeline:  # the lock of a killed process is no obstacle
        assert pipeline.step == 2
    assert not log.exists()


def test_a_reader_changes_nothing_and_is_no_obstacle(tmp_path: Path) -> None:
    """Through its connection nothing can be written, and a stream starts and ends while it is open."""
    config = settings(tmp_path)
    release(config)
    with LogReader(config.ledger) as reader:
        with pytest.raises(LogUnavailable):
            reader.run("DELETE FROM log")
        with open_pipeline(one(config)) as pipeline:
            assert pipeline.step == 12
    assert not list(tmp_path.glob("*-wal"))
    assert not list(tmp_path.glob("*-shm"))
    assert not list(tmp_path.glob("*.lock"))
