"""The page on public data names every file that an experiment reads."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_file_is_on_the_page(root: Path) -> None:
    """Each name in the sources of the experiments has a row, and each row is a name in them."""
    page = (root / "docs" / "experiments" / "public_data.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    sources = [*(root / "experiments").glob("*.py"), root / "src/tidegate/datasets/households.py"]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    used = set(re.findall(r'"(\w+\.(?:parquet|csv|csv\.gz))"', text)) - {"compared.csv"}
    assert used == listed
    assert "TIDEGATE_DATA" in page
