from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from tidegate.cli import main
from tidegate.datasets.downloads import DOWNLOADS
from tiers import slow


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, for people and machines."""
    assert main(["datasets", "list"]) == 0
    assert "campus" in capsys.readouterr().out
    assert main(["datasets", "list", "--json"]) == 0
    assert {one["name"] for one in json.loads(capsys.readouterr().out)} == {"campus", *DOWNLOADS}


@pytest.mark.parametrize("kind", ["csv", *slow("parquet")])
def test_a_made_up_stream_can_be_released(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events and a configuration that works."""
    out = tmp_path / "campus"
    command = ["datasets", "make", "campus", "--out", str(out), "--weeks", "1", "--devices", "300"]
    assert main([*command, "--format", kind, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] > 1000
    assert main(["release", str(out / "tidegate.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 168


def test_what_is_advised_is_what_the_readme_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After `datasets make` and after `init` the next commands are those of README, and they work."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ (tidegate (?:release|ledger verify) .*)$", readme, re.MULTILINE)
    assert len(shown) == 2
    out = tmp_path / "wifi"
    assert main(["datasets", "make", "campus", "--out", str(out), "--weeks", "1", "--devices", "300"]) == 0
    advised = []
    for _ in shown:  # each command advises the next one
        advised.append(capsys.readouterr().out.splitlines()[-1].removeprefix("Next: "))
        assert main(shlex.split(advised[-1])[1:]) == 0
    renamed = [line.replace(str(out), "wifi").replace("tidegate.", "stream.") for line in advised]
    assert renamed == shown
    capsys.readouterr()
    init = ["init", str(out / "events.csv"), "--out", str(out / "stream.toml"), "--unit", "device", "--yes"]
    assert main([*init, "--start", "2026-03-02", "--count", "168"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].replace(str(out), "wifi") == f"Next: {shown[0]}"


def released(out: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Release a loaded stream; its number of steps."""
    capsys.readouterr()
    assert main(["release", str(out / "tidegate.toml"), "--json"]) == 0
    return int(json.loads(capsys.readouterr().out)["steps"])


def test_load_citibike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both formats of its files: with bikes as units, and without."""
    old, new = tmp_path / "201901-citibike-tripdata.csv", tmp_path / "JC-202402-citibike-tripdata.csv"
    old.write_text(
        '"starttime","stoptime","bikeid"\n"2019-01-01 00:01:47.4010","2019-01-01 00:07:07.5810",15839\n'
    )
    new.write_text("ride_id,started_at,ended_at\nABC,2024-02-03 17:25:01.123,2024-02-03 17:29:00.000\n")
    for file, steps in ((old, 744), (new, 696)):
        out = tmp_path / file.stem
        assert main(["datasets", "load", "citibike", str(file), "--out", str(out)]) == 0
        assert released(out, capsys) == steps


@pytest.mark.slow
def test_load_taxi(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One column for each public zone, and one for the rest."""
    file = tmp_path / "yellow_tripdata_2024-01.parquet"
    times = pl.Series(["2024-01-05T10:00:00", "2024-01-05T11:00:00"]).str.to_datetime()
    pl.DataFrame(
        {"tpep_pickup_datetime": times, "PULocationID": [132, 265], "fare": [1.0, 2.0]}
    ).write_parquet(file)
    out = tmp_path / "taxi"
    assert main(["datasets", "load", "nyc-taxi", str(file), "--out", str(out)]) == 0
    assert pl.read_parquet(out / "events.parquet").columns == ["time", "zone"]
    assert released(out, capsys) == 744
    assert len(pl.read_csv(out / "released.csv", infer_schema_length=None).columns) == 2 + 3 * 264 + 3


def test_load_calit2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readings in and out, given as they are."""
    file = tmp_path / "CalIt2.data"
    file.write_text("7,07/24/05,00:00:00,0\n9,07/24/05,00:00:00,3\n7,07/24/05,00:30:00,1\n")
    out = tmp_path / "calit2"
    assert main(["datasets", "load", "calit2", str(file), "--out", str(out)]) == 0
    assert released(out, capsys) == 5040


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["make", "moon"], "moon"),
        (["make", "campus", "--weeks", "0"], "weeks"),
        (["make", "campus", "--format", "xml"], "xml"),
        (["load", "moon", "x"], "moon"),
        (["load", "citibike", "absent.csv"], "absent.csv"),
        (["load", "calit2", "TEXT"], "is it the file"),
        (["load", "nyc-taxi", "TEXT"], "is it the file"),
        (["load", "citibike", "TEXT"], "named after its month"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line, and nothing of the file's contents."""
    (tmp_path / "text.csv").write_text("walrus,1\nwalrus,2\n")
    arguments = [str(tmp_path / "text.csv") if word == "TEXT" else word for word in arguments]
    assert main(["datasets", *arguments, "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1
    assert "walrus" not in shown
