from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.runtime.helpers import release, settings

from tidegate.cli import main
from tidegate.ledger import SQLiteLedger
from tidegate.policy import WEvent


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The ledger of a small stream."""
    config = settings(tmp_path)
    release(config)
    return Path(config.ledger)


def test_show(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Promise, mechanism, window and last charges; never the position, which counts records."""
    assert main(["ledger", "show", str(ledger)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "1-differentially private for any 4 consecutive steps",
        "Uniform",
        "12 releases of 12 steps",
        "groups",
    ):
        assert words in shown
    assert main(["ledger", "show", str(ledger), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["step"], facts["spent_in_last_window"], facts["remaining_for_next_step"]) == (
        12,
        "1",
        "0",  # the group that the last window meets reaches on, and nothing else is granted
    )
    assert facts["stream"]["releases"] == 12
    assert "position" not in json.dumps(facts)
    assert "offset" not in json.dumps(facts)


def test_show_a_ledger_that_was_used_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is an account and no stream."""
    with SQLiteLedger(tmp_path / "plain", WEvent(rho="1", w=3), 3) as opened:
        opened.charge(1, 1, scope="counts")
    assert main(["ledger", "show", str(tmp_path / "plain"), "--rows", "1"]) == 0
    assert "counts" in capsys.readouterr().out


def test_verify(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound ledger: exit code 0."""
    assert main(["ledger", "verify", str(ledger)]) == 0
    assert capsys.readouterr().out.startswith("ledger verified: 12 steps, no window of 4 steps")
    assert main(["ledger", "verify", str(ledger), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["fullest_window"]["spent"], facts["test_entropy"]) == (True, "1", False)


def test_verify_a_damaged_one(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited row: exit code 1, and the row is named."""
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("UPDATE charges SET units = units - 1 WHERE row = 1")
    connection.close()
    assert main(["ledger", "verify", str(ledger)]) == 1
    assert "NOT verified: row 1" in capsys.readouterr().out
    assert main(["ledger", "verify", str(ledger), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["bad_row"] == 1


@pytest.mark.parametrize("command", ["show", "verify"])
def test_bad_input_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file, a file that is no ledger, a database that cannot be reached."""
    (tmp_path / "text").write_text("hello, this is not a ledger at all")
    for target, words in (
        (str(tmp_path / "absent"), "there is no ledger"),
        (str(tmp_path / "text"), "is not a ledger"),
        ("postgresql://user:secret@127.0.0.1:9/x#campus", "cannot be reached"),
    ):
        assert main(["ledger", command, target]) == 2
        shown = capsys.readouterr()
        assert words in shown.err
        assert shown.err.count("\n") == 1
        assert "secret" not in shown.err
