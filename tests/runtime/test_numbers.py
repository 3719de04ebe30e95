"""Released numbers against a plain computation from the same file: what is released must be what was asked for."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers import release

from tidegate.config import Config, parse_config

HOURS = 96
TEXT = """\
[source]
location = "{folder}/events.csv"
time = "time"
unit = "unit"
column = "place"
value = "amount"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {hours}
[query]
aggregate = "{aggregate}"
columns = ["north", "south"]
clip = ["{low}", "{high}"]
[protect]
epsilon = "{epsilon}"
window = 4
[mechanism]
name = "{name}"
[sink]
location = "{folder}/out.csv"
"""


def amounts(low: int, high: int) -> np.ndarray:
    """Hours × places × units: few in the north, many in the south, nearer to the ends than to the middle."""
    generator = np.random.default_rng(7)
    share = np.stack([np.full(HOURS, 0.1), 0.75 + 0.1 * np.sin(np.arange(HOURS) / 24 * 2 * np.pi)], axis=1)
    noisy = share[:, :, None] + 0.05 * generator.standard_normal((HOURS, 2, 20))
    return np.round(low + (high - low) * np.clip(noisy, 0, 1)).astype(int)


def stream(folder: Path, name: str, aggregate: str, low: int, high: int) -> tuple[Config, np.ndarray]:
    """A configuration with its file of events, and the amounts in it."""
    found = amounts(low, high)
    lines = ["time,unit,place,amount"]
    for hour in range(HOURS):
        moment = f"2026-03-{2 + hour // 24:02d}T{hour % 24:02d}:30"
        for place, word in enumerate(("north", "south")):
            for unit, amount in enumerate(found[hour, place]):
                lines.append(f"{moment},{word}{unit},{word},{amount}")
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    text = TEXT.format(
        folder=folder, hours=HOURS, aggregate=aggregate, low=low, high=high, name=name, epsilon="400"
    )
    return parse_config(text, folder / "tidegate.toml"), found


def released(folder: Path) -> np.ndarray:
    """The first release of every hour, hours × places."""
    with (folder / "out.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("revision", "0") == "0"]
    return np.array([[float(row["north"]), float(row["south"])] for row in rows])


@pytest.mark.parametrize("name", ["auto", "Uniform", "OptStream"])
def test_means_are_means(tmp_path: Path, name: str) -> None:
    """Below and above the middle of the clip: a mean cut at the middle would be off by 35 of 100."""
    config, found = stream(tmp_path, name, "mean", 0, 100)
    release(config)
    wrong = np.abs(released(tmp_path)[8:] - found.mean(axis=2)[8:]).mean(axis=0)
    assert wrong.max() < 12


@pytest.mark.parametrize("name", ["auto", "Uniform", "OptStream"])
@pytest.mark.parametrize(("low", "high"), [(-1000, 0), (-1000, 1000)])
def test_sums_may_be_negative(tmp_path: Path, name: str, low: int, high: int) -> None:
    """Sums of debts are debts, and not 0."""
    config, found = stream(tmp_path, name, "sum", low, high)
    release(config)
    true = found.sum(axis=2)
    wrong = np.abs(released(tmp_path)[8:] - true[8:]).mean(axis=0)
    assert (wrong < 0.2 * np.abs(true).mean(axis=0)).all()
