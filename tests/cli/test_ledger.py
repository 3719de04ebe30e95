"""``tidegate ledger``: what is shown, verified, copied, put back and archived."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.runtime.helpers import release, settings

import tidegate as tg
from tidegate.cli import main
from tidegate.ingest import blocks as blocks_module


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The ledger of a small stream."""
    config = settings(tmp_path)
    release(config)
    return Path(config.ledger)


def test_show(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Budget, mechanism, window and last charges; never the position, which counts records."""
    assert main(["ledger", "show", str(ledger)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("ε = 1 for any 4 consecutive steps", "Uniform", "step 12", "1 of 1 spent", "pushed"):
        assert words in shown
    assert main(["ledger", "show", str(ledger), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["step"], facts["spent_in_last_window"], facts["limit"]) == (12, "1", "1")
    assert facts["queries"]["query"]["mechanism"] == "Uniform"
    assert "position" not in json.dumps(facts)
    assert "offset" not in json.dumps(facts)


def test_show_a_ledger_that_was_used_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is an account and no stream."""
    mechanism = tg.mechanisms.Uniform(tg.WEvent(rho="1", window=3))
    with tg.open({"counts": mechanism}, tmp_path / "plain") as session:
        session.push({"counts": [1]})
    assert main(["ledger", "show", str(tmp_path / "plain"), "--rows", "1"]) == 0
    shown = capsys.readouterr().out
    assert "counts" in shown
    assert "ρ = 1" in shown


def test_verify(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound ledger: exit code 0."""
    assert main(["ledger", "verify", str(ledger)]) == 0
    assert capsys.readouterr().out.startswith("The account holds")
    assert main(["ledger", "verify", str(ledger), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["step"], facts["test_entropy"]) == (True, 12, False)


def test_verify_a_damaged_one(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An edited commit: exit code 1, and the commit is named."""
    connection = sqlite3.connect(ledger)
    with connection:
        connection.execute("UPDATE log SET last = last - 1 WHERE number = 1")
    connection.close()
    assert main(["ledger", "verify", str(ledger)]) == 1
    assert "does NOT hold. First failure: commit 1:" in capsys.readouterr().out
    assert main(["ledger", "verify", str(ledger), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_heads(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `head` prints, and the receipt, are in the ledger; another head is not."""
    assert main(["ledger", "head", str(ledger)]) == 0
    head = capsys.readouterr().out.strip()
    receipt = str(ledger.parent / "out.csv.receipt")
    assert main(["ledger", "verify", str(ledger), "--head", head, "--head", receipt]) == 0
    number, _, digest = head.partition(":")
    for other in (f"{number}:{digest[::-1]}", f"{int(number) + 1}:{digest}"):
        assert main(["ledger", "verify", str(ledger), "--head", other]) == 1
        assert "lacks charges" in capsys.readouterr().out


def test_backup_and_restore(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy has no state; it is restored where nothing is forgotten, and the stream continues after silent steps."""
    folder = ledger.parent
    settings(folder, ("count = 12", "count = 20"))  # the log is of the same stream: a count may grow
    assert main(["ledger", "backup", str(ledger), f"{folder}/copies/"]) == 0
    (copy,) = (folder / "copies").iterdir()
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT secret FROM now").fetchall() == [(None,)]
    connection.close()
    assert main(["ledger", "backup", str(ledger), f"{folder}/copies/"]) == 0
    assert "nothing new" in capsys.readouterr().out
    ledger.unlink()
    assert main(["ledger", "restore", str(copy), str(ledger), "--head", f"{folder}/out.csv.receipt"]) == 0
    assert main(["ledger", "restore", str(copy), str(ledger)]) == 2
    assert "a name that nothing has yet" in capsys.readouterr().err
    assert main(["ledger", "verify", str(ledger)]) == 0


def test_an_older_copy_is_not_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt remembers a commit that it lacks."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 4)
    ledger = tmp_path / "tidegate.ledger"
    release(settings(tmp_path, ("count = 12", "count = 4")))
    assert main(["ledger", "backup", str(ledger), f"{tmp_path}/older"]) == 0
    release(settings(tmp_path))
    ledger.unlink()
    receipt = f"{tmp_path}/out.csv.receipt"
    assert main(["ledger", "restore", f"{tmp_path}/older", str(ledger), "--head", receipt]) == 2
    assert "lacks charges" in capsys.readouterr().err
    assert not ledger.exists()


def test_prune(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of old steps move into an archive, and everything verifies with it."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 2)
    change = ("[sink]", '[run]\narchives = "archives"\n\n[sink]')
    (tmp_path / "archives").mkdir()
    config = settings(tmp_path, change)
    release(config)
    command = ["ledger", "prune", str(tmp_path / "tidegate.toml"), str(tmp_path / "archives")]
    assert main([*command, "--keep", "4"]) == 0, capsys.readouterr()
    (archive,) = (tmp_path / "archives").iterdir()
    assert archive.name in capsys.readouterr().out
    assert main(["ledger", "verify", config.ledger, "--archive", str(archive.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["dropped"] == 0
    assert main(["ledger", "verify", config.ledger, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["dropped"] > 0
    before = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").unlink()
    release(config)  # from the archive and the log
    assert (tmp_path / "out.csv").read_bytes() == before
    assert main([*command[:-1], str(tmp_path / "other")]) == 2
    assert "the folder that [run] names" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "verify"])
def test_bad_input_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file, a file that is no ledger, a database that cannot be reached."""
    (tmp_path / "text").write_text("hello, this is not a ledger at all")
    for target, words in (
        (str(tmp_path / "absent"), "there is no ledger"),
        (str(tmp_path / "text"), "is no log"),
        ("postgresql://user:secret@127.0.0.1:9/x#campus", "cannot be reached"),
    ):
        assert main(["ledger", command, target]) == 2
        shown = capsys.readouterr()
        assert words in shown.err
        assert shown.err.count("\n") == 1
        assert "secret" not in shown.err
