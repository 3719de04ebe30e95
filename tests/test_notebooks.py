"""The notebooks of the documentation run from an empty folder, and what is stored of them is small and complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # notebooks

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LIMIT = (
    600  # seconds, on a busy machine and with kernels that are compiled first; alone each takes less than 60
)
LARGEST = 400_000  # bytes
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)[^)]*\)")


def named(path: Path) -> str:
    """A notebook as tests name it."""
    return path.stem


def cells(path: Path) -> list[dict[str, Any]]:
    """What a notebook is made of."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_runs(path: Path) -> None:
    """Every cell ends without an error, in a folder of its own and within the time limit."""
    command = [sys.executable, str(ROOT / "tests" / "notebooks.py"), "--check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_is_stored_with_its_outputs(path: Path) -> None:
    """Cells were executed in their order, nothing failed, there is a picture, and the file is small."""
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < LARGEST
    assert "\\u001b" not in path.read_text(encoding="utf-8"), "colours of a terminal; run make notebooks"


def test_notebooks_are_for_users_of_either_library() -> None:
    """pandas and polars both appear."""
    text = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    assert "import pandas as pd" in text
    assert "import polars as pl" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    """Every relative link names a file; the site and the list of notebooks lead to this one."""
    text = "\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")
    assert [
        each for each in LINK.findall(text) if "://" not in each and not (path.parent / each).exists()
    ] == []
    assert f"notebooks/{path.stem}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"({path.name})" in (path.parent / "index.md").read_text(encoding="utf-8")
