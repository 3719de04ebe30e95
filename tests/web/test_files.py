from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[2] / "src" / "tidegate" / "web" / "static"


def test_vendored_files_are_what_they_were() -> None:
    """Every vendored file has the checksum that is written down, and its licence is beside it."""
    lines = (STATIC / "VENDORED.txt").read_text().splitlines()
    found = [line.split() for line in lines if re.fullmatch(r"[0-9a-f]{64}  \S+", line)]
    assert {name for _, name in found} == {path.name for path in STATIC.glob("uPlot*")}
    for digest, name in found:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("page", sorted(path.name for path in STATIC.glob("*.html")))
def test_pages_have_no_inline_script_and_no_other_host(page: str) -> None:
    """Scripts and styles are files of this service: the policy would refuse anything else."""
    text = (STATIC / page).read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"\b(style|on\w+)=", text)
    assert "<style" not in text
    assert not re.search(r"(src|href)=\"(?!/|#)", text)


def test_scripts_name_no_other_host() -> None:
    """Nothing is loaded from anywhere else, and nothing is evaluated or written as HTML."""
    for path in STATIC.glob("*.js"):
        if path.name.startswith("uPlot"):
            continue
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        ), path
        assert "document.cookie" not in text
