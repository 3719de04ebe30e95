"""Several queries over one pass of a source are counted as each would be alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidegate.config import Queries, parse_queries
from tidegate.config.document import SEVERAL

CLOCK = "2026-03-02T"


def receipts(folder: Path, rng: np.random.Generator, *, shuffled: bool) -> Path:
    """A file of receipts over two days; some lack an amount or a customer."""
    hours = np.sort(rng.integers(0, 48 * 60, 3000))
    if shuffled:
        rng.shuffle(hours)
    lines = ["time,customer,amount"]
    for minute in hours.tolist():
        day, rest = divmod(minute, 1440)
        time = f"2026-03-{2 + day:02d}T{rest // 60:02d}:{rest % 60:02d}:00"
        customer = "" if rng.random() < 0.02 else f"c{rng.integers(200)}"
        amount = "" if rng.random() < 0.05 else f"{rng.integers(0, 300)}"
        lines.append(f"{time},{customer},{amount}")
    file = folder / "receipts.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def vectors(queries: Queries, position: dict[str, object] | None = None) -> list[np.ndarray]:
    """All steps of each query in the order of their names, read in one pass."""
    intake = queries.open(position)
    blocks = [intake.query.apart(block) for block in intake]  # type: ignore[union-attr]
    intake.close()
    return [np.concatenate([block[number].units for block in blocks]) for number in range(len(queries.parts))]


@pytest.mark.parametrize("shuffled", [False, True])
def test_one_pass_counts_what_each_query_would_count(tmp_path: Path, shuffled: bool) -> None:
    """Bounds, gaps and clips of one query leave the others as they are, in order and out of order."""
    receipts(tmp_path, np.random.default_rng(1), shuffled=shuffled)
    queries = parse_queries(SEVERAL.replace("count = 168", "count = 48"), tmp_path / "tidegate.toml")
    ordered = sorted(queries.parts, key=lambda part: part.name)
    for part, found in zip(ordered, vectors(queries), strict=True):
        alone = part.open()
        expected = np.concatenate([block.units for block in alone])
        alone.close()
        assert np.array_equal(found, expected), part.name
        assert expected.sum() > 0


def test_readings_of_several_queries(tmp_path: Path) -> None:
    """Given series may be divided among queries with their own fill and sensitivity."""
    (tmp_path / "loads.csv").write_text(
        "time,a,b,c\n2026-03-02T00:00,1,2,3\n2026-03-02T01:00,4,,6\n", encoding="utf-8"
    )
    text = """
[source]
location = "loads.csv"
time = "time"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 2
[[query]]
name = "first"
aggregate = "given"
layout = "wide"
columns = ["a", "b"]
max_change = "1"
fill = "missing"
[[query]]
name = "second"
aggregate = "given"
layout = "wide"
columns = ["c"]
max_change = "5"
[protect]
epsilon = "1"
window = 2
[mechanism]
name = "Uniform"
[sink]
location = "released.csv"
"""
    queries = parse_queries(text, tmp_path / "tidegate.toml")
    intake = queries.open()
    blocks = [intake.query.apart(block) for block in intake]  # type: ignore[union-attr]
    intake.close()
    ((first, second),) = blocks
    assert first.missing is not None
    assert first.missing.tolist() == [[False, False], [False, True]]
    assert second.missing is None
    assert second.units.tolist() == [[3], [6]]
