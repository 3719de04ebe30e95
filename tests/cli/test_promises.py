"""What is promised now, wherever a stream that was amended says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.runtime.helpers import settings

from tidegate.cli import main

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
    assert "Budget ε = 3 for any 4 consecutive steps, from step 9 on" in shown
    assert "Earlier ε = 1 in steps 1 to 4" in shown
    assert "ε = 0.5 in steps 5 to 8" in shown or "ε = 1/2 in steps 5 to 8" in shown
    facts = json.loads(told(capsys, "ledger", "show", ledger, "--json"))
    assert (facts["budget"], facts["limit"]) == ("ε = 3", "3")
    assert [each["from_step"] for each in facts["budgets"]] == [1, 5, 9]
    assert "Amendments: 2." in told(capsys, "ledger", "verify", ledger)
    assert "ε = 3" in told(capsys, "explain", config)
    privacy = json.loads((tmp_path / "card.json").read_text())["privacy"]
    assert (privacy["epsilon"], bool(privacy["history"])) == ("3", True)
    assert "which may never exceed 3 (dashed)" in " ".join((tmp_path / "report.html").read_text().split())
    assert json.loads((tmp_path / "status.json").read_text())["budget"]["limit"] == "3"
