from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import main
from tidegate.cli.reference import reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)[^)]*\)")


def name(page: Path) -> str:
    """The page as tests name it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the line that it begins on."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start("body")), found["body"])
        for found in FENCE.finditer(text)
        if found["language"] == language
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All Python blocks of a page run in their order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__example__"}
    for line, body in blocks(page, "python"):
        # Empty lines in front make a traceback point at the line of the page.
        exec(compile("\n" * line + body, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_console_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `$ tidegate …` of a page ends with exit code 0."""
    monkeypatch.chdir(tmp_path)
    for _, body in blocks(page, "console"):
        for command in re.findall(r"^\$ tidegate\b(.*)$", body, re.MULTILINE):
            assert main(shlex.split(command, comments=True)) == 0, command


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists."""
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_the_reference_of_commands_is_what_the_code_says() -> None:
    """If this fails, run `python -m tidegate.cli.reference docs/cli.md`."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference()


def test_the_picture_is_small() -> None:
    """The first page loads quickly."""
    assert (ROOT / "docs" / "pictures" / "demo.png").stat().st_size < 200_000
