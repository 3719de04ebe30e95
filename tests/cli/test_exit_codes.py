"""Exit codes are those of docs/install.md, and colours are not shown to those who do not want them."""

from __future__ import annotations

import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.helpers import TEXT, write_events

import tidegate as tg
from tidegate.cli import demo, main

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "install.md"
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def damaged(folder: Path) -> Path:
    """A ledger in which somebody has moved a commit."""
    path = folder / "stream.ledger"
    with tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=4), noise="laplace"), path) as session:
        session.push_batch([[1], [2], [3]])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE log SET last = 2 WHERE number = 1")
    return path


def test_every_documented_code_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done, found to be wrong, bad input, interrupted: no code is undocumented and none is missing."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupt)
    returned = {
        0: main(["--version"]),
        1: main(["ledger", "verify", str(damaged(tmp_path))]),
        2: main(["release", str(tmp_path / "missing.toml")]),
        130: main(["demo"]),
    }
    assert {code for code, found in returned.items() if code == found} == set(returned)
    documented = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(code) for code in documented] == sorted(returned)


def on_a_terminal(*arguments: str, **variables: str) -> bytes:
    """What a command writes to a terminal that can show colours."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")
    }
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "tidegate", *arguments]
    environment = {**plain, "TERM": "xterm-256color", **variables}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
        except OSError:  # the other end was closed
            pass
    os.close(master)
    return shown


@pytest.mark.slow
def test_no_color_is_obeyed() -> None:
    """Without it a plan is coloured, so the test would notice; with it nothing is."""
    plan = ("plan", "--epsilon", "1", "--window", "4", "--level", "300", "--quick")
    assert COLOUR.search(on_a_terminal(*plan))
    assert not COLOUR.search(on_a_terminal(*plan, NO_COLOR="1"))


@pytest.mark.slow
@pytest.mark.parametrize("year", ["2026", "2025"])
def test_the_owner_is_told_where_nothing_was_counted(year: str, tmp_path: Path) -> None:
    """On a terminal alone: it is a function of raw records, so that no file, pipe or exit code says it."""
    write_events(tmp_path)
    file = tmp_path / "stream.toml"
    file.write_text(TEXT.format(folder=tmp_path).replace("2026-03-02", f"{year}-03-02"))
    report = tmp_path / "report.html"
    shown = on_a_terminal("release", str(file), "--report", str(report)).decode()
    assert ("No record fell into these steps: check start, zone and columns." in shown) == (year == "2025")
    assert "No record fell" not in report.read_text()
    for path in tmp_path.glob("stream.ledger*"):
        path.unlink()
    command = [sys.executable, "-m", "tidegate", "release", str(file), "--new-stream"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "No record" not in piped.stdout + piped.stderr
