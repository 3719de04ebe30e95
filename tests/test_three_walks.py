"""Walks of a new user on real files, from a configuration to report and nightly run: what they read is computed again.

Sales with three statistics, run by cron; stations that nobody has listed; hourly bikes with a forecast and an alarm. No
command says more than 12 lines.
"""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tidegate.cli import main

pytestmark = pytest.mark.slow  # whole files

Find = Callable[[str], Path]
Say = Callable[..., str]
SALES = """
[source]
location = "baskets.csv"
follow = true
time = "day"
unit = "customer_id"
value = "spend_twd"
[steps]
start = "{start}"
length = "calendar day"
zone = "UTC"
catch_up = 400
[[query]]
name = "baskets"
aggregate = "count"
most = 2
share = "1/4"
[[query]]
name = "customers"
aggregate = "distinct"
share = "1/4"
[[query]]
name = "revenue"
aggregate = "sum"
clip = ["0", "3000"]
share = "1/2"
[protect]
epsilon = "1"
window = 7
[sink]
location = "sales.csv"
[about]
title = "Sales, day by day"
unit = "customer"
units = "customers"
"""
BIKES = """
[source]
location = "trips.csv"
time = "start_ts"
unit = "bike_id"
[steps]
start = "{start}"
length = "1h"
count = 336
[query]
aggregate = "distinct"
[protect]
epsilon = "2"
window = 24
[sink]
location = "bikes.csv"
[[answer]]
name = "tomorrow"
kind = "forecast"
ahead = 24
every = 24
[[answer]]
name = "rush"
kind = "alarm"
threshold = "60"
"""


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """Runs a command in the folder; what it says, in at most 12 lines."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(list(words)) == 0, words
        said = capsys.readouterr()
        assert len((said.out + said.err).splitlines()) <= 12, (words, said)
        return said.out

    return run


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def about(value: float) -> float:
    """Rounded to two digits that mean something."""
    return float(f"{value:.2g}")


def number(text: str) -> float:
    """A number with commas."""
    return float(text.replace(",", ""))


def section(report: str, name: str) -> str:
    """The part of the report about one query."""
    found = re.search(rf'<section class=released id="released{name}">.*?</section>', report, re.DOTALL)
    assert found
    return found[0]


def test_sales_by_cron(say: Say, shared_data: Find, tmp_path: Path) -> None:
    """Three statistics, started twice: headings, adjustments and bounds are those of table and file."""
    frame = pl.read_parquet(shared_data("tafeng_baskets.parquet"))
    # the last day is yesterday, so that the clock has closed all of them and nothing else
    later = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1) - frame["date"].max()  # type: ignore[operator]
    frame = frame.with_columns(day=pl.col("date") + later).sort("day")
    first = frame["day"].min()
    (tmp_path / "sales.toml").write_text(SALES.format(start=first))
    frame.select("day", "customer_id", "spend_twd").write_csv(tmp_path / "baskets.csv")
    say("check", "sales.toml")
    say("plan", "sales.toml")
    assert "3 statistics" in say("preview", "sales.toml")
    outputs = ("--report", "report.html", "--table", "table.csv", "--card", "card.json")
    said = say("release", "sales.toml", "--until", "now", *outputs)
    assert "Nothing new" in say("release", "sales.toml", "--until", "now")
    say("ledger", "verify", "sales.ledger")
    report, table = (tmp_path / "report.html").read_text(), rows(tmp_path / "table.csv")
    steps = len({row["step"] for row in table})
    assert steps >= (datetime.datetime.now(datetime.UTC).date() - first).days - 1
    assert f"{steps:,} steps of 1 day × 3 statistics" in report
    for name in ("baskets", "customers", "revenue"):
        own, part = [row for row in table if row["query"] == name], section(report, f"-{name}")
        widths = [float(row["high"]) - float(row["value"]) for row in own if row["high"]]
        (shown,) = re.findall(r"±&nbsp;([\d,.]+)", part)
        assert number(shown) == pytest.approx(about(float(np.median(widths))), rel=0.06)
        (spoken,) = re.findall(rf"{name} +± ([\d,.]+)", said)
        assert number(spoken) == number(shown)
        changed = sum(row["adjusted"] not in ("", row["value"]) for row in own)
        assert re.findall(r"Adjusted\.</strong> ([\d,]+) of", part) == ([f"{changed:,}"] if changed else [])
    adjusted = {
        name: np.array([float(row["adjusted"]) for row in table if row["query"] == name and row["adjusted"]])
        for name in ("baskets", "customers")
    }
    assert (adjusted["customers"] <= adjusted["baskets"]).all()
    assert "Values of spend_twd above 3000 count as 3000" in section(report, "-revenue")
    (spent,) = re.findall(r"spent ([\d./]+)\)\.", report)
    assert 0 < float(spent) <= 1


def test_bikes_with_a_forecast_and_an_alarm(say: Say, shared_data: Find, tmp_path: Path) -> None:
    """What the report says of both is what their files have."""
    frame = pl.read_parquet(shared_data("citibike_trips.parquet")).sort("start_ts")
    start = frame["start_ts"].min().replace(hour=0, minute=0, second=0, microsecond=0)  # type: ignore[union-attr]
    end = start + datetime.timedelta(hours=336)
    frame = frame.filter(pl.col("start_ts") < end).select("start_ts", "bike_id")
    frame.write_csv(tmp_path / "trips.csv")
    (tmp_path / "bikes.toml").write_text(BIKES.format(start=start.isoformat()))
    say("check", "bikes.toml")
    say("release", "bikes.toml", "--report", "report.html")
    part = section((tmp_path / "report.html").read_text(), "")
    alarms = rows(tmp_path / "rush.csv")
    raised = [row for row in alarms if row["alarm"] == "true"]
    certain = sum(row["certain"] == "true" for row in raised)
    sentence = re.search(
        r"<h3>rush</h3><p>(?:No alarm in ([\d,]+) steps|([\d,]+) alarms in ([\d,]+) steps, ([\d,]+) of them)",
        part,
    )
    assert sentence
    if raised:
        assert [number(each) for each in sentence.groups()[1:]] == [len(raised), len(alarms), certain]
    else:
        assert number(sentence[1]) == len(alarms)
    forecasts = rows(tmp_path / "tomorrow.csv")
    newest = [row for row in forecasts if row["step"] == forecasts[-1]["step"]]
    assert len(newest) == 24
    body = part[part.index("<h3>tomorrow</h3>") : part.index("<h3>rush</h3>")]
    shown = re.findall(r"<tr><td>[^<]+<td>all<td>(-?[\d,.]+)<td>(-?[\d,.]+)<td>(-?[\d,.]+)", body)
    for row, three in zip(newest[:10], shown, strict=True):
        for name, word in zip(("value", "low", "high"), three, strict=True):
            assert number(word) == pytest.approx(float(row[name]), rel=0.06, abs=1)
    truth = (
        frame.with_columns(hour=pl.col("start_ts").dt.truncate("1h"))
        .group_by("hour")
        .agg(pl.col("bike_id").n_unique())
    )
    released = rows(tmp_path / "bikes.csv")
    true = dict(truth.iter_rows())
    counts = [true.get(start + datetime.timedelta(hours=int(row["step"]) - 1), 0) for row in released]
    inside = [
        float(row["all low"]) <= count <= float(row["all high"])
        for row, count in zip(released, counts, strict=True)
        if row["all low"]
    ]
    assert np.mean(inside) >= 0.8


def test_stations_that_nobody_listed(say: Say, shared_data: Find, tmp_path: Path) -> None:
    """From `init` to the report: names are in it if and only if they were released, and no other name is anywhere."""
    frame = pl.read_parquet(shared_data("citibike_trips.parquet"))
    start = frame["start_ts"].min().date()  # type: ignore[union-attr]
    station = next(name for name in frame.columns if "start_station" in name)
    frame = frame.select("start_ts", "bike_id", station=pl.col(station).cast(pl.String))
    frame.write_csv(tmp_path / "trips.csv")
    options = ("--unit", "bike_id", "--column", "station", "--categories", "discover", "--delta", "1e-6")
    clock = ("--start", str(start), "--length", "calendar week", "--count", "8", "--window", "4")
    say("init", "trips.csv", "--out", "stations.toml", *options, *clock, "--epsilon", "16", "--most", "2")
    say("check", "stations.toml")
    assert "opens with probability one half" in say("plan", "stations.toml")
    say("release", "stations.toml", "--report", "report.html")
    assert "Nothing new" in say("release", "stations.toml")
    say("ledger", "verify", "stations.ledger")
    released, report = rows(tmp_path / "released.csv"), (tmp_path / "report.html").read_text()
    weeks = (pl.col("start_ts").dt.date() - start).dt.total_days() // 7
    known = frame.with_columns(week=weeks, epoch=weeks // 4).filter(pl.col("week") < 8)
    found = {row["column"] for row in released} - {"other"}
    assert found
    # a name is in the report if and only if it was released: that of every other station is in no file
    shown = re.findall(r"<tr><td>([^<]*)<td>(?:from|since)", report)
    assert set(shown) == found
    hidden = set(known["station"].to_list()) - found
    assert not hidden & {
        word for word in re.findall(r"\w+", (tmp_path / "released.csv").read_text()) if len(word) > 3
    }
    # none of those that have opened belongs to one unit alone
    units = {
        (name, epoch): count
        for name, epoch, count in known.group_by("station", "epoch")
        .agg(pl.col("bike_id").n_unique())
        .iter_rows()
    }
    for name in found:
        first = next(row for row in released if row["column"] == name)
        assert units.get((name, (int(first["step"]) - 1) // 4), 0) > 1
    # counts of a week and column are near the bounded truth: a bike counts in at most two stations of a week
    bounded = known.unique(["week", "station", "bike_id"]).group_by("week").len()
    true = dict(bounded.iter_rows())
    for week in range(8):
        total = sum(float(row["value"]) for row in released if int(row["step"]) == week + 1)
        assert total <= true[week] + 8 * 20
