"""`tidegate explain --refusal`: the last window of each query, from the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli import main

TEXT = """
[source]
location = "events.csv"
time = "time"
unit = "who"
complete = true

[steps]
start = "2026-03-02"
length = "1h"
count = 6

[query]
aggregate = "distinct"

[protect]
policy = "w-event"
epsilon = "1"
window = 4

[mechanism]
name = "Uniform"
noise = "laplace"

[sink]
location = "out.csv"
"""


def test_the_last_window_is_said_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In sentences and as JSON; without a log there is a sentence."""
    config = tmp_path / "stream.toml"
    config.write_text(TEXT)
    (tmp_path / "events.csv").write_text("time,who\n2026-03-02T00:10,a\n2026-03-02T01:10,b\n")
    assert main(["explain", str(config), "--refusal"]) == 2
    assert main(["release", str(config)]) == 0
    capsys.readouterr()
    assert main(["explain", str(config), "--refusal"]) == 0
    shown = capsys.readouterr().out
    assert "The window is steps 4 to 7. It has spent 3 units (ε = 0.75) of 4." in shown
    assert "1 unit (ε = 0.25) by each step at steps 4 to 6" in shown
    assert main(["explain", str(config), "--refusal", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["refusals"]
    assert (found["spent"], found["fits"], len(found["charges"])) == (3, 10, 3)
