"""A shop with three statistics of its receipts."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tidegate.config.document import SEVERAL

STEPS = 60


def shop(folder: Path, steps: int = STEPS) -> Path:
    """A shop's receipts, and the file with three statistics of them."""
    rng = np.random.default_rng(2)
    lines = ["time,customer,amount"]
    for minute in np.sort(rng.integers(0, STEPS * 60, 2000)).tolist():
        hour, rest = divmod(minute, 60)
        day, hour = divmod(hour, 24)
        lines.append(
            f"2026-03-{2 + day:02d}T{hour:02d}:{rest:02d}:00,c{rng.integers(90)},{rng.integers(150)}"
        )
    (folder / "receipts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return edited(folder, ("count = 168", f"count = {steps}"), ("window = 24", "window = 8"), text=SEVERAL)


def edited(folder: Path, *changes: tuple[str, str], text: str | None = None) -> Path:
    """The file with other words in some places."""
    file = folder / "tidegate.toml"
    text = file.read_text(encoding="utf-8") if text is None else text
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    file.write_text(text, encoding="utf-8")
    return file


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a released file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
