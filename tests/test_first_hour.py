"""The first hour of a new user: what the pages show, in their order and in one folder.

From the site's first page to a private CSV, then a live page of the same stream, then a mechanism that is audited.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tidegate.cli import main

pytestmark = pytest.mark.slow  # a walk with a live service

DOCS = Path(__file__).resolve().parent.parent / "docs"
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<page>[\w/]+\.md)(?:#[\w-]+)?\)")


def blocks(page: str, language: str) -> list[str]:
    """What a page shows in a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [found["body"] for found in FENCE.finditer(text) if found["language"] == language]


def reached(page: str) -> set[str]:
    """The pages that a reader of this one can open with a click."""
    return set(LINK.findall((DOCS / page).read_text(encoding="utf-8")))


def test_the_way_is_signposted() -> None:
    """Every page of the walk is one click from an earlier one."""
    assert {"tutorial.md", "howto/service.md", "howto/index.md"} <= reached("index.md")
    assert "auditing.md" in reached("howto/index.md")


def test_the_first_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private CSV whose account verifies, a page that shows it, and a wrong mechanism that is caught."""
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^\$ tidegate (.*)$", "".join(blocks("index.md", "console")), re.MULTILINE):
        assert main(shlex.split(command, comments=True)) == 0, command
    released = pl.read_csv("wifi/released.csv", infer_schema_length=None)
    assert released.height == 168
    assert {"Library", "Cafeteria"} <= set(released.columns)
    assert "Library" in Path("wifi/report.html").read_text(encoding="utf-8")

    shown = re.search(
        r"^tidegate (serve stream\.toml)", "".join(blocks("howto/service.md", "sh")), re.MULTILINE
    )
    assert shown, "docs/howto/service.md shows how a stream is served"
    live = shlex.split(shown[1].replace("stream.toml", "wifi/stream.toml --port 0 --json"))
    command = [sys.executable, "-m", "tidegate", *live]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            address = json.loads(service.stdout.readline())["address"]
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert "<html" in answer.read().decode()
            table = f"{address.rstrip('/')}/streams/stream/releases?format=csv"
            with urllib.request.urlopen(table, timeout=60) as answer:
                assert len(answer.read().decode().splitlines()) > 168
        finally:
            service.send_signal(signal.SIGINT)

    namespace: dict[str, Any] = {"__name__": "__example__"}
    for body in blocks("howto/auditing.md", "python"):
        exec(body, namespace)
    assert Path("verdict.json").is_file()
