"""OptStream from a CSV file through tidegate.toml, killed in the middle of a period and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.helpers import verified
from tests.runtime.test_follow import live

pytestmark = pytest.mark.slow  # kills

WORKER = Path(__file__).with_name("killed_worker.py")
OPTIONS = {
    "public": "samples = 2",
    "adaptive": "samples = 3\nadaptive = true",
    "features": "samples = 2\nfeatures = [[[1, 2, 3, 4]]]",
}


def run(folder: Path, last: int) -> int:
    """The exit code of a worker."""
    return subprocess.run([sys.executable, str(WORKER), str(folder), str(last)], timeout=120).returncode


def rows(folder: Path) -> list[list[str]]:
    """The lines of the sink."""
    return [line.split(",") for line in (folder / "out.csv").read_text().splitlines()[1:]]


@pytest.mark.parametrize(("options", "last"), [("public", 6), ("adaptive", 7), ("features", 6)])
def test_a_period_survives_a_kill(tmp_path: Path, options: str, last: int) -> None:
    """Every step arrives in the sink once, and once revised; samples from before the kill are in the final curve."""
    live(
        tmp_path, ("count = 12", "count = 10"), ('columns = ["north", "south"]', 'columns = ["north"]'),
        ('name = "Uniform"', f'name = "OptStream"\n{OPTIONS[options]}'), ('epsilon = "1"', 'epsilon = "50"'),
    )  # fmt: skip
    assert run(tmp_path, last) == -signal.SIGKILL
    before = (tmp_path / "out.csv").read_text()
    killed = rows(tmp_path)
    assert [int(row[1]) for row in killed if row[2] == "1"] == [1, 2, 3, 4]  # the first period is final
    assert max(int(row[1]) for row in killed) in (last - 1, last)
    assert run(tmp_path, 0) == 0
    assert (tmp_path / "out.csv").read_text().startswith(before)
    found = rows(tmp_path)
    for revision in ("0", "1"):  # two periods, and the two steps that end the stream
        assert [int(row[1]) for row in found if row[2] == revision] == list(range(1, 11))
    first, final = (
        {int(row[1]): float(row[3]) for row in found if row[2] == revision} for revision in ("0", "1")
    )
    if options != "features":
        # lines pass through the samples: of the killed period's, too
        measured = (6, 8) if options == "public" else (5, 8)
        assert [final[step] for step in measured] == pytest.approx([first[step] for step in measured])
    assert verified(tmp_path / "tidegate.ledger").ok  # no window over its budget
