"""clip = "learn" in a file: sums, means and running sums, several queries, explanations, restarts and refusals."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tidegate.cli import main
from tidegate.config import parse_queries
from tidegate.config.errors import ConfigError
from tidegate.runtime import open_streams
from tidegate.runtime.card import card
from tidegate.runtime.explanation import explain
from tidegate.runtime.learnt import learnt_clip
from tidegate.runtime.store import verify_target

HEAD = """[source]
location = "receipts.csv"
time = "time"
unit = "customer"
value = "amount"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 60
[sink]
location = "released.csv"
[protect]
epsilon = "4"
window = 2
"""
LEARN = 'clip = "learn"\nlearn = 20\nbound = 5000\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A shop whose receipts are about 40, and hardly ever 1,000."""
    random = np.random.default_rng(7)
    minutes = np.sort(random.integers(0, 3600, 12_000))
    amounts = np.minimum(random.gamma(2, 20, 12_000), 5000).round().astype(int)
    customers = random.integers(0, 10_000, 12_000)
    lines = [
        f"2026-03-{2 + minute // 1440:02d}T{minute % 1440 // 60:02d}:{minute % 60:02d}:00,c{customer},{amount}"
        for minute, customer, amount in zip(
            minutes.tolist(), customers.tolist(), amounts.tolist(), strict=True
        )
    ]
    (tmp_path / "receipts.csv").write_text("time,customer,amount\n" + "\n".join(lines) + "\n")
    return tmp_path


def released(folder: Path, text: str) -> list[dict[str, str]]:
    """Release a file with one query; the rows of its output."""
    queries = parse_queries(text, folder / "tidegate.toml")
    with open_streams(queries) as streams:
        intake = streams.queries.open(streams.position)
        streams.drive(intake)
        streams.finish()
        intake.close()
    with (folder / "released.csv").open() as file:
        return list(csv.DictReader(file))


def true_sums(folder: Path) -> np.ndarray:
    """What was sold in each hour."""
    found = np.zeros(60)
    with (folder / "receipts.csv").open() as file:
        for row in csv.DictReader(file):
            found[(int(row["time"][8:10]) - 2) * 24 + int(row["time"][11:13])] += int(row["amount"])
    return found


def test_sums_of_steps(folder: Path) -> None:
    """Silent first steps, then sums with the noise of the threshold and not of the bound; all says what was learnt."""
    text = f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "Uniform"\n'
    rows = released(folder, text)
    assert [row["status"] for row in rows[:21]] == ["silent"] * 21
    values = np.array([float(row["all"]) for row in rows[21:]])
    off = np.abs(values - true_sums(folder)[21:]).mean()
    assert off < 1000  # with the bound it would be about 2,500
    queries = parse_queries(text, folder / "tidegate.toml")
    clip = learnt_clip(queries.first)
    assert clip is not None
    assert 60 < float(clip) < 1000
    assert any(clip in sentence for sentence in explain(queries))
    assert card(queries.first)["mechanism"]["clip_learnt"] == clip
    assert verify_target(folder / "tidegate.ledger").ok


def test_running_sums_hold_the_silent_steps(folder: Path) -> None:
    """The running sum after learning is that of all steps."""
    rows = released(folder, f'{HEAD}[query]\naggregate = "sum"\n{LEARN}[mechanism]\nname = "BinaryTree"\n')
    total = true_sums(folder).sum()
    assert abs(float(rows[-1]["all"]) - total) < 0.2 * total
    assert rows[19]["status"] == "silent"
    assert rows[20]["status"] == "fresh"


def test_means(folder: Path) -> None:
    """A mean is measured around the middle of the learnt clip."""
    rows = released(folder, f'{HEAD}[query]\naggregate = "mean"\n{LEARN}[mechanism]\nname = "Uniform"\n')
    means = np.array([float(row["all"]) for row in rows[21:]])
    assert abs(np.median(means) - 40) < 8
    widths = [float(row["count of all high"]) - float(row["count of all low"]) for row in rows[21:]]
    assert max(widths) < 400  # of about 200 records in an hour


def test_one_of_several_queries_goes_on_after_a_restart(folder: Path) -> None:
    """Beside a count, over a stop in the middle of the sample and one after it; the transcript is whole."""
    text = HEAD.replace("count = 60", "count = {count}") + (
        '[mechanism]\nname = "Uniform"\n[[query]]\nname = "orders"\naggregate = "count"\nshare = "1/4"\n'
        f'[[query]]\nname = "revenue"\naggregate = "sum"\n{LEARN}share = "3/4"\n'
    )
    clips = set()
    for count in (22, 30, 60):
        queries = parse_queries(text.replace("{count}", str(count)), folder / "tidegate.toml")
        with open_streams(queries) as streams:
            intake = streams.queries.open(streams.position)
            streams.drive(intake)
            streams.finish()
            intake.close()
        clips.add(
            learnt_clip(
                parse_queries(text.replace("{count}", "60"), folder / "tidegate.toml").part("revenue")
            )
        )
    assert len(clips) == 1
    with (folder / "released-revenue.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(1, 61))
    assert verify_target(folder / "tidegate.ledger").ok


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ('aggregate = "count"\nclip = "learn"\n', "clip"),
        ('aggregate = "sum"\nclip = "guess"\n', "clip"),
        ('aggregate = "sum"\nclip = "learn"\nlearn = 60\n', "learn"),
        ('aggregate = "sum"\nclip = ["0", "10"]\nlearn = 5\n', "learn"),
        ('aggregate = "sum"\nclip = "learn"\nweighting = "share"\nmost = 2\n', "weighting"),
    ],
)
def test_refusals_name_key_and_line(query: str, word: str, tmp_path: Path) -> None:
    """What makes no sense is refused with its line, and nothing is written."""
    with pytest.raises(ConfigError, match=word) as caught:
        parse_queries(f"{HEAD}[query]\n{query}", tmp_path / "tidegate.toml")
    assert caught.value.line is not None
    assert not list(tmp_path.iterdir())


def test_one_user_could_own_the_sample(tmp_path: Path) -> None:
    """Refused under a promise for all steps of a user."""
    text = HEAD.replace("window = 2", 'policy = "user"') + f'[query]\naggregate = "sum"\n{LEARN}'
    with pytest.raises(ConfigError, match="one user could own"):
        parse_queries(text, tmp_path / "tidegate.toml")


def test_a_preview_makes_up_no_single_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused by a sentence."""
    path = tmp_path / "tidegate.toml"
    path.write_text(f'{HEAD}[query]\naggregate = "sum"\n{LEARN}')
    assert main(["preview", str(path)]) != 0
    assert "no single values" in capsys.readouterr().err.replace("\n", " ")
