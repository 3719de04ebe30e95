"""Released numbers against a plain computation from the same file: what is released must be what was asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.pipeline import streams

from tidegate.config import Config, parse_config
from tidegate.config.queries import one
from tidegate.ingest import StepBlock
from tidegate.pipeline import open_pipeline, read_stream
from tidegate.report.report import write_report

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


def release(config: Config) -> None:
    """Release everything."""
    streams.release(one(config))


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


GIVEN = """\
[source]
location = "{folder}/readings.csv"
time = "time"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {hours}
[query]
aggregate = "given"
layout = "wide"
columns = ["whole", "holes", "silent"]
fill = "{fill}"
[protect]
epsilon = "4"
window = 4
max_change = "1"
[mechanism]
name = "{name}"
[sink]
location = "{folder}/{sink}"
layout = "{form}"
"""
MECHANISMS = [
    "Uniform",
    "auto",
    "Sample",
    "BudgetAbsorption",
    "BudgetDistribution",
    "Fast",
    "OptStream",
    "PeGaSus",
]


def given(folder: Path, name: str, hours: int = 200, sink: str = "out.csv", form: str = "wide") -> Config:
    """Readings of 500 in one column always, in one with gaps, and in one never."""
    lines = ["time,whole,holes,silent"]
    for hour in range(hours):
        moment = f"2026-03-{2 + hour // 24:02d}T{hour % 24:02d}:00"
        lines.append(f"{moment},500,{'' if 20 <= hour < 160 or hour % 7 == 3 else 500},")
    (folder / "readings.csv").write_text("\n".join(lines) + "\n")
    text = GIVEN.format(folder=folder, hours=hours, fill="missing", name=name, sink=sink, form=form)
    return parse_config(text, folder / "tidegate.toml")


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_missing_reading_is_missing_and_feeds_nothing_back(tmp_path: Path, name: str) -> None:
    """No value where there was no reading, also not when it is revised, and the old level right after a long gap."""
    release(given(tmp_path, name))
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        hour = int(row["step"]) - 1
        assert row["silent"] == ""
        assert (row["holes"] == "") == (20 <= hour < 160 or hour % 7 == 3)
        assert row["whole"] != ""
    after = [float(row["holes"]) for row in rows if 160 < int(row["step"]) <= 200 and row["holes"]]
    assert np.abs(np.array(after) - 500).mean() < 40  # a year of feedback would be off by hundreds


def test_gaps_survive_a_restart(tmp_path: Path) -> None:
    """Stopped after every block, a stream stands for its gaps with the same values as one that was not."""
    config = given(tmp_path, "Uniform", hours=60)
    queries = one(config)
    intake = queries.open(None)
    found = list(intake)
    intake.close()
    held = []
    for block in found:
        for index in range(len(block)):
            row = slice(index, index + 1)
            step = block.first_step + index
            part = StepBlock(
                step, block.units[row], block.grid, {**block.position, "step": step}, block.missing[row]
            )
            with open_pipeline(queries) as pipeline:
                pipeline.process(queries.parts, [part])
                held.append(pipeline.readers["query"].gaps.held.tolist())
    assert {values[1] for values in held[20:60]} == {held[19][1]}  # the gap began after hour 19
    assert {values[2] for values in held} == {0.0}


def test_missing_values_in_every_form(tmp_path: Path) -> None:
    """JSON says null, long rows have the status missing, Parquet has a null."""
    release(given(tmp_path, "Uniform", hours=8, sink="out.jsonl", form="long"))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    silent = [row for row in rows if row["column"] == "silent"]
    assert {(row["value"], row["status"]) for row in silent} == {(None, "missing")}
    (tmp_path / "tidegate.ledger").unlink()
    release(given(tmp_path, "Uniform", hours=8, sink="out.parquet"))
    assert pl.read_parquet(tmp_path / "out.parquet")["silent"].null_count() == 8


def test_running_sums_go_on_over_gaps(tmp_path: Path) -> None:
    """A sum of readings is the sum of those there are."""
    config = given(tmp_path, 'BinaryTree"\nhorizon = 60\n#"', hours=60)
    release(config)
    with (tmp_path / "out.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert abs(float(last["whole"]) - 60 * 500) < 400
    assert abs(float(last["silent"])) < 400


def test_the_report_of_given_input_says_what_was_not_done(tmp_path: Path) -> None:
    """No contribution was bounded, gaps are assumed to be public, and a silent column is named."""
    config = given(tmp_path, "Uniform", hours=48)
    release(config)
    with read_stream(one(config)) as stream:
        write_report(tmp_path / "report.html", list(stream.released.values()), stream.verify())
    text = (tmp_path / "report.html").read_text()
    assert "No reading at all: silent." in text
    assert "which readings are missing is public" in text
    assert "as declared: the input was aggregated before it came here" in text
    assert "contribution bounding" not in text
    assert "counts at most" not in text
    assert "nan" not in text.lower().replace("tenant", "")


def held(folder: Path, true: np.ndarray, revision: str = "0") -> tuple[float, float]:
    """Which part of the true values lies between low and high, and how wide that is on average."""
    with (folder / "out.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("revision", "0") == revision]
    inside, widths = [], []
    for row in rows:
        for place, name in enumerate(("north", "south")):
            if row[f"{name} low"]:
                low, high = float(row[f"{name} low"]), float(row[f"{name} high"])
                inside.append(low <= true[int(row["step"]) - 1, place] <= high)
                widths.append(high - low)
    assert len(inside) >= len(true)
    return float(np.mean(inside)), float(np.mean(widths))


@pytest.mark.parametrize(
    ("name", "aggregate", "low", "high"),
    [
        ("Uniform", "mean", 0, 100),
        ("auto", "mean", 0, 100),
        ("Uniform", "sum", -1000, 1000),
        ("auto", "sum", -1000, 1000),
    ],
)
def test_low_and_high_hold_the_truth(tmp_path: Path, name: str, aggregate: str, low: int, high: int) -> None:
    """Nine of ten true values lie between them: at least 0.8 of 192 (α < 1e-5 at 0.9), and not by being endless."""
    config, found = stream(tmp_path, name, aggregate, low, high)
    release(config)
    true = found.mean(axis=2) if aggregate == "mean" else found.sum(axis=2)
    share, width = held(tmp_path, true)
    assert share >= 0.8
    assert width < (60 if aggregate == "mean" else 20_000)


def test_values_that_are_kept_have_wider_intervals(tmp_path: Path) -> None:
    """A value that stands for later steps has one there too, which grows with what the stream may have moved."""
    config, _ = stream(tmp_path, "Sample", "sum", 0, 100)
    release(config)
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"fresh", "approximated"}
    assert all(row["north low"] and row["north high"] for row in rows)
    tops = [(row["status"], float(row["north high"]) - float(row["north"])) for row in rows]
    measured = max(top for status, top in tops if status == "fresh")
    assert all(top >= measured for status, top in tops if status == "approximated" and top > 1)
    assert (
        min(float(row["north low"]) for row in rows if row["north low"]) >= 0
    )  # a sum of what is not negative
