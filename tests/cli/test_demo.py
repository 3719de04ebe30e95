from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tidegate.cli import main
from tidegate.datasets.streams import BUILDINGS


def test_json_states_guarantee_verdict_and_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One week: the report parses, the files are there, and the error is the one that was predicted."""
    folder = tmp_path / "new" / "folder"
    assert main(["demo", "--json", "--weeks", "1", "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert shown.err == ""
    assert "24 consecutive steps" in report["guarantee"]
    assert report["ledger_ok"] is True
    assert report["steps"] == 168
    # 7 windows of 24 steps that share noise, 6 columns: the standard deviation of 2,000 such means was 0.75
    assert abs(report["rival_absolute_error"] - report["expected_error"]) < 6
    assert (report["mechanism"], report["rival"]) == ("Tide", "Uniform")
    assert report["mean_absolute_error"] < report["rival_absolute_error"]
    assert report["expected_error"] < 24  # of Laplace noise
    assert sorted(Path(file).name for file in report["files"]) == [
        "campus_events.parquet",
        "demo.png",
        "released.csv",
    ]
    released = pl.read_csv(folder / "released.csv", infer_schema_length=None)
    ends = [f"{name} {end}" for name in BUILDINGS for end in ("low", "high")]
    assert released.columns == ["time", *BUILDINGS, *ends, "scale", "spent"]
    assert (released["Library low"] <= released["Library"]).all()
    assert released["time"][0] == "2026-03-02T00:00Z"
    assert len(released) == 168
    assert len(pl.read_parquet(folder / "campus_events.parquet")) == report["events"]
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_text_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for people, with another budget and window."""
    folder = tmp_path / ("long" * 30)
    assert main(["demo", "--weeks", "1", "--epsilon", "1/2", "--window", "12", "--out", str(folder)]) == 0
    shown = capsys.readouterr().out
    for words in ("Guarantee", "12 consecutive", "Ledger", "Lecture halls", "made up", "demo.png"):
        assert words.replace(" ", "") in "".join(shown.split())  # wherever lines were broken


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--epsilon", "0"),
        ("--epsilon", "-1"),
        ("--epsilon", "nan"),
        ("--epsilon", "one"),
        ("--window", "0"),
        ("--weeks", "0"),
        ("--weeks", "53"),
    ],
)
def test_bad_input_is_one_sentence(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name, value, constraint, remedy; exit code 2; nothing is written."""
    assert main(["demo", "--out", str(tmp_path / "out"), option, value]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("tidegate: ")
    assert option.strip("-") in shown.err
    assert value in shown.err
    assert shown.err.endswith(".\n")
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the file."""
    (tmp_path / "taken").touch()
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    assert "taken" in capsys.readouterr().err
