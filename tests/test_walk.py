"""The walk of README and guide on real files: init, check, release, report, verify, with numbers computed again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tidegate.cli import main

BIKES = [
    "--time",
    "start_ts",
    "--unit",
    "bike_id",
    "--start",
    "2015-09-21",
    "--length",
    "24h",
    "--count",
    "30",
]
FLIGHTS = ["--time", "sched_dep_local", "--start", "2013-01-01", "--length", "calendar week", "--count", "52"]
RECEIPTS = ["--time", "date", "--unit", "customer_id", "--start", "2000-11-01", "--length", "calendar day"]
MINUTES = ["--each-record", "--window", "4", "--value", "air_time_min"]
ORIGINS = ["--column", "origin", "--categories", "EWR, JFK, LGA"]
WIDE = [
    "--aggregate",
    "given",
    "--layout",
    "wide",
    "--time",
    "ts_local",
    "--max-change",
    "1",
    "--fill",
    "zero",
]
HOURS = ["--length", "1h", "--window", "24"]


def weekly(frame: pl.DataFrame) -> pl.DataFrame:
    """Flights of the first 52 weeks from 1 January on, with their week."""
    days = (pl.col("sched_dep_local").dt.date() - pl.date(2013, 1, 1)).dt.total_days()
    return frame.with_columns(week=days // 7).filter(pl.col("week").is_between(0, 51))


def flights_of(frame: pl.DataFrame) -> float:
    """Flights a week and airport."""
    return len(weekly(frame)) / (52 * 3)


def minutes_of(frame: pl.DataFrame) -> float:
    """The mean air time of a week and airport, averaged over weeks and airports."""
    known = weekly(frame).filter(pl.col("air_time_min").is_not_null())
    return float(known.group_by("week", "origin").agg(pl.col("air_time_min").mean())["air_time_min"].mean())  # type: ignore[arg-type]


def classes_of(frame: pl.DataFrame) -> float:
    """Flights a week and class of air time."""
    return len(weekly(frame).filter(pl.col("air_time_min").is_between(0, 699))) / (52 * 3)


def bikes_of(frame: pl.DataFrame) -> float:
    """Bikes a day."""
    day = (pl.col("start_ts").dt.date() - pl.date(2015, 9, 21)).dt.total_days()
    found = frame.with_columns(day=day).filter(pl.col("day").is_between(0, 29))
    return len(found.unique(["day", "bike_id"])) / 30


def spent_of(frame: pl.DataFrame) -> float:
    """Money a day, of each customer's first basket, at most 1,000."""
    day = (pl.col("date") - pl.date(2000, 11, 1)).dt.total_days()
    found = frame.with_columns(day=day).filter(pl.col("day").is_between(0, 119))
    first = found.group_by("day", "customer_id").agg(
        pl.col("spend_twd").min()
    )  # equal times: the smallest counts
    return float(first["spend_twd"].clip(0, 1000).sum()) / 120


def cells_of(frame: pl.DataFrame) -> float:
    """The mean of all readings; what is missing is 0."""
    return float(frame.drop("ts_local").fill_null(0).to_numpy().mean())


Step = tuple[str, list[str], Callable[[pl.DataFrame], float]]
FLIGHT, TAXI, BUS = (
    "flight_durations_2013.parquet",
    "nyc_taxi_od_900_hourly.parquet",
    "montevideo_bus_675_hourly.parquet",
)
WALKS: dict[str, Step] = {
    "bikes, distinct": ("citibike_trips.parquet", [*BIKES, "--window", "1"], bikes_of),
    "flights, count": (FLIGHT, [*FLIGHTS, *ORIGINS, "--each-record", "--window", "4"], flights_of),
    "flights, mean": (
        FLIGHT,
        [*FLIGHTS, *ORIGINS, *MINUTES, "--aggregate", "mean", "--clip", "0, 700"],
        minutes_of,
    ),
    "flights, histogram": (
        FLIGHT,
        [*FLIGHTS, *MINUTES, "--aggregate", "histogram", "--edges", "0, 60, 180, 700"],
        classes_of,
    ),
    "receipts, sum": (
        "tafeng_baskets.parquet",
        [
            *RECEIPTS,
            "--count",
            "120",
            "--window",
            "7",
            "--aggregate",
            "sum",
            "--value",
            "spend_twd",
            "--clip",
            "0, 1000",
        ],
        spent_of,
    ),
    "taxi, given": (
        "nyc_taxi_od_900_hourly.parquet",
        [*WIDE, *HOURS, "--start", "2018-05-01", "--count", "336"],
        cells_of,
    ),
    "bus, given": (
        "montevideo_bus_675_hourly.parquet",
        [*WIDE, *HOURS, "--start", "2020-10-01", "--count", "336"],
        cells_of,
    ),
    "wifi, given": (
        "wifi_buildings_10min.parquet",
        [*WIDE, "--length", "10min", "--window", "144", "--start", "2025-04-14", "--count", "288"],
        cells_of,
    ),
}


def prepared(name: str, file: Path) -> pl.DataFrame:
    """The file, cut to what a test has time for: a few columns, two weeks; rows become columns where they must."""
    frame = pl.read_parquet(file)
    if name.startswith("wifi"):
        few = frame["building_id"].unique().sort()[:12].to_list()
        frame = frame.filter(pl.col("building_id").is_in(few))
        frame = frame.pivot(on="building_id", index="ts_local", values="occupancy").sort("ts_local").head(288)
        return frame.rename({label: f"b{label}" for label in frame.columns if label != "ts_local"})
    return frame.head(336).select(frame.columns[:13]) if name.startswith(("taxi", "bus")) else frame


@pytest.mark.parametrize("name", WALKS)
def test_the_walk(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No command fails, one row a step, and the inside report's true mean is that of an independent computation."""
    file, options, expected = WALKS[name]
    folder = os.environ.get("TIDEGATE_DATA", "")
    if not (Path(folder) / file).is_file() or not folder:
        pytest.skip(f"{file} is needed; set TIDEGATE_DATA to the folder that has it.")
    frame = prepared(name, Path(folder) / file)
    frame.write_parquet(tmp_path / "input.parquet")
    stream, report = str(tmp_path / "stream.toml"), tmp_path / "report.html"
    assert (
        main(["init", str(tmp_path / "input.parquet"), "--out", stream, "--epsilon", "1", *options, "--yes"])
        == 0
    )
    assert main(["check", stream]) == 0
    capsys.readouterr()
    assert main(["release", stream, "--report", str(report), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert main(["ledger", "verify", str(tmp_path / "stream.ledger")]) == 0
    released = pl.read_csv(tmp_path / "released.csv", infer_schema_length=None)
    assert released["step"].to_list() == list(range(1, done["steps"] + 1))
    text = report.read_text()
    assert len(text) < 400_000
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower().replace("tenan", "")
    inside = tmp_path / "inside.html"
    assert main(["release", stream, "--report", str(inside), "--compare-truth"]) == 0
    rows = re.findall(r"<tr><td>([^<]+)<td>([\d,.]+)<td>[\d,.]+<td>[^<]*<td>", inside.read_text())
    if "mean" in name:  # beside the means stand their counts
        shown = [
            float(value.replace(",", ""))
            for label, value in rows
            if not label.startswith(("count of", "all"))
        ]
        assert sum(shown) / len(shown) == pytest.approx(expected(frame), rel=0.01)
    else:
        assert float(dict(rows)["all"].replace(",", "")) == pytest.approx(
            expected(frame), abs=0.051, rel=1e-4
        )
