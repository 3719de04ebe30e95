"""Commands that only read leave a folder as they found it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.runtime.helpers import release, settings

from tidegate.cli import main
from tidegate.errors import LedgerError
from tidegate.ledger import SQLiteLedger
from tidegate.policy import WEvent

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


def test_an_empty_log_that_an_older_version_left_is_removed(tmp_path: Path) -> None:
    """Reading it once is enough."""
    release(settings(tmp_path))
    ledger = tmp_path / "tidegate.ledger"
    before = content(tmp_path)
    (tmp_path / "tidegate.ledger-wal").touch()
    with SQLiteLedger(ledger, read_only=True) as opened:
        assert opened.verify().ok
    assert content(tmp_path) == before


def test_what_a_killed_writer_left_is_read_and_kept(tmp_path: Path) -> None:
    """Its log holds charges that are not in the ledger's file yet; a command that reads moves none of them."""
    path = tmp_path / "s.ledger"
    if (child := os.fork()) == 0:
        try:
            SQLiteLedger(path, WEvent(epsilon="1", w=2), 2).charge(1, 1)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    log = tmp_path / "s.ledger-wal"
    before = path.read_bytes(), log.read_bytes()
    with SQLiteLedger(path, read_only=True) as opened:
        assert opened.step == 1
    assert (path.read_bytes(), log.read_bytes()) == before
    with SQLiteLedger(path) as opened:
        assert opened.step == 1
    assert not log.exists()


def test_a_reader_changes_nothing_and_is_no_obstacle(tmp_path: Path) -> None:
    """Through its connection nothing can be written, and a writer begins and ends while it is open."""
    release(settings(tmp_path))
    ledger = tmp_path / "tidegate.ledger"
    with SQLiteLedger(ledger, read_only=True) as reader:
        with pytest.raises(LedgerError), reader.told():
            reader.connection.execute("DELETE FROM charges")
        with SQLiteLedger(ledger) as writer:
            assert writer.step == reader.step == 12
    assert not list(tmp_path.glob("*-wal"))
    assert not list(tmp_path.glob("*-shm"))
