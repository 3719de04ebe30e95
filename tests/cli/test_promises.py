"""What is promised now, wherever a stream that was amended says it; and heads whose rows are in archives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.runtime.helpers import settings

import tidegate as tg
from tidegate.cli import main
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.amendments import add_specification, withdraw_specification
from tidegate.ledger.promise import limit_of, promised, promises_of
from tidegate.policy import Secret, Specification
from tidegate.runtime import pruning

STATUS = ("[sink]", '[run]\nstatus = "status.json"\n\n[sink]')


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that succeeds prints, on one line."""
    assert main([*words]) == 0, capsys.readouterr()
    return " ".join(capsys.readouterr().out.split())


def test_everything_speaks_of_the_promise_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Begun with ε = 1, amended to 1/2 and then to 3: show, verify, explain, card, report and status."""
    config, ledger = str(tmp_path / "tidegate.toml"), str(tmp_path / "tidegate.ledger")
    for epsilon, count in (("1", 4), ("1/2", 8), ("3", 12)):
        settings(tmp_path, STATUS, ('epsilon = "1"', f'epsilon = "{epsilon}"'), ("= 12", f"= {count}"))
        if count > 4:
            told(capsys, "amend", config)
        told(capsys, "release", config, "--card", str(tmp_path / "card.json"))
    told(capsys, "release", config, "--report", str(tmp_path / "report.html"))
    shown = told(capsys, "ledger", "show", ledger)
    assert "Promise 3-differentially private for any 4 consecutive steps, from step 9 on" in shown
    assert "Earlier 1-differentially private in steps 1 to 4" in shown
    assert "0.5-differentially private in steps 5 to 8" in shown
    facts = json.loads(told(capsys, "ledger", "show", ledger, "--json"))
    assert (facts["budget"], facts["policy"]["epsilon"], facts["limit"]) == (
        "3-differentially private",
        "3",
        "3",
    )
    assert [each["from_step"] for each in facts["promises"]] == [1, 5, 9]
    verified = told(capsys, "ledger", "verify", ledger)
    assert "spent more than 1 in steps 1 to 4, 0.5 in steps 5 to 8 or 3 from step 9 on" in verified
    assert "ε = 3" in told(capsys, "explain", config)
    privacy = json.loads((tmp_path / "card.json").read_text())["privacy"]
    assert (privacy["epsilon"], bool(privacy["history"])) == ("3", True)
    assert "which may never exceed 3 (dashed)" in " ".join((tmp_path / "report.html").read_text().split())
    assert json.loads((tmp_path / "status.json").read_text())["budget"]["limit"] == "3"


@pytest.mark.parametrize(
    ("policy", "words", "limit"),
    [
        (tg.WEvent(epsilon="1", w=4), "0.5-differentially private", "1/2"),
        (tg.WEvent(rho="1", w=4), "0.5-zCDP", "1/2"),
        (tg.WEvent(epsilon="1", delta="1e-6", w=4), "(0.5, 1e-06)-differentially private", "1/2"),
        (tg.User(epsilon="1", horizon=100), "0.5-differentially private", "1/2"),
    ],
)
def test_every_kind_of_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: tg.Policy, words: str, limit: str
) -> None:
    """ε, ρ and (ε, δ), amended from Python; also after a ledger was opened again, from a checkpoint."""
    path = tmp_path / "l.ledger"
    with SQLiteLedger(path, policy, 1) as ledger:
        assert promised(ledger) == policy.budget
        ledger.divide({"a": 1})["a"].charge(1, 0)
        ledger.divide({"a": 1}, budget="2")["a"].charge(20, 0)
        share = ledger.divide({"a": 1}, budget="1/2")["a"]
        share.charge(40, 0)
        with ledger.transaction():
            ledger._write_checkpoint()
        assert str(promised(ledger)) == words
    with SQLiteLedger(path, read_only=True) as ledger:
        assert str(promised(ledger)) == words
        assert limit_of(ledger) == promised(ledger).total
        assert [since for since, _ in promises_of(ledger)] == [0, 1, 20]
    assert f"Promise {words} for" in told(capsys, "ledger", "show", str(path))


def test_secrets_that_come_and_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under Swellfish the smallest ε of all secrets in force is what is promised."""
    home = Secret(1, 2, "always", 1, "home")
    policy = tg.Swellfish(specifications=[Specification((home,), "house")])
    pump = Specification((home, Secret(9, 2, "always", "1/4", "pump")), "new")
    path = tmp_path / "l.ledger"
    with SQLiteLedger(path, policy, 60) as ledger:
        ledger.charge(3, 0)
        add_specification(ledger, pump)
        ledger.charge(6, 0)
        assert str(promised(ledger)) == "0.25-differentially private"
        assert [since for since, _ in promises_of(ledger)] == [0, 3]
    assert "Promise 0.25-differentially private" in told(capsys, "ledger", "show", str(path))
    with SQLiteLedger(path) as ledger:
        ends = withdraw_specification(ledger, "new").ends
        ledger.charge(ends + 2, 0)
        assert promised(ledger) == policy.budget
        assert [since for since, _ in promises_of(ledger)] == [0, 3, ends]


def heads_of_a_pruned_run(folder: Path) -> tuple[str, list[Path], dict[int, str]]:
    """A ledger that was pruned twice, its archives, and the heads after each of its rows."""
    (folder / "archives").mkdir()
    path = folder / "run.ledger"
    heads = {}
    with tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=4), noise="laplace"), path) as run:
        for _ in range(2):
            for _ in range(12):
                run.push([1])
                rows, digest = run._store.ledger.head
                heads[rows] = f"{rows}:{digest}"
            assert run.prune(folder / "archives", keep=4) is not None
    return str(path), sorted((folder / "archives").iterdir()), heads


def test_heads_whose_rows_are_in_archives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every head of the past verifies with the archives: inside, at the border and after; another one never does."""
    monkeypatch.setattr(pruning, "SPARE", 0)
    ledger, archives, heads = heads_of_a_pruned_run(tmp_path)
    assert len(archives) == 2
    with SQLiteLedger(Path(ledger), read_only=True) as opened:
        base = opened.base()
        assert base is not None
        border, last = base.row, opened.head[0]
    for row in (1, 2, border - 1, border, border + 1, max(heads)):
        words = ["ledger", "verify", ledger, "--archive", str(tmp_path / "archives")]
        head = heads.get(row) or next(head for rows, head in heads.items() if rows >= row)
        assert main([*words, "--head", head]) == 0, (row, capsys.readouterr())
        rows, digest = head.split(":")
        another = f"{rows}:{digest[::-1]}"
        assert main([*words, "--head", head, "--head", another]) == 1
        assert "NOT verified" in capsys.readouterr().out
    ahead = f"{last + 1}:{'ab' * 32}"
    assert main(["ledger", "verify", ledger, "--archive", str(tmp_path / "archives"), "--head", ahead]) == 1
    first = next(iter(heads.values()))
    assert main(["ledger", "verify", ledger, "--archive", str(archives[-1]), "--head", first]) == 1
    assert main(["ledger", "verify", ledger, "--head", first]) == 1
    assert "by --archive" in capsys.readouterr().out
