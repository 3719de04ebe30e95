"""The page on the architecture shows the way that events and pushes take today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "internals" / "architecture.md"


@pytest.mark.slow
def test_the_walks_of_the_page_are_those_of_a_fresh_trace(tmp_path: Path) -> None:
    """A trace in a process of its own gives the page as it is; `python tests/architecture.py` writes it."""
    page = tmp_path / "architecture.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "architecture.py"), str(page)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "the walks have changed: run `python tests/architecture.py docs/internals/architecture.md` "
        "and read the page again."
    )
    assert "calls in" in page.read_text(encoding="utf-8")
