"""The walk of README and guide on whole files: init, check, release, report, verify, with numbers computed again.

Where the real files are missing made-up ones stand in for them; every number is computed from the file that is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from tests.report_sentences import Left, Told

from tidegate.cli import main

pytestmark = pytest.mark.slow  # walks through the pages

Values = npt.NDArray[np.float64]
Find = Callable[[str], Path]
WIDE = [
    "--aggregate",
    "given",
    "--max-change",
    "1",
    "--fill",
    "zero",
    "--time",
    "ts_local",
    "--layout",
    "wide",
]


@dataclass(frozen=True)
class Walk:
    """A file, and how a statistic of it is asked for and computed again.

    Parameters
    ----------
    file
        Its name among the data.
    time, start, days, count
        The column of times, the first day, and how many days a step has and how many steps there are.
    aggregate
        What is released.
    unit, column, value
        The columns of the input; without a unit every record is one.
    columns
        The public categories.
    bounds
        The clip, or the edges of a histogram.
    """

    file: str
    time: str
    start: str
    days: int
    count: int
    aggregate: str
    unit: str | None = None
    column: str | None = None
    columns: tuple[str, ...] = ()
    value: str | None = None
    bounds: tuple[int, ...] = ()
    window: int = 4

    @property
    def options(self) -> list[str]:
        """The flags of `init`."""
        length = {1: "calendar day", 7: "calendar week"}[self.days]
        found = ["--time", self.time, "--start", self.start, "--length", length, "--count", str(self.count)]
        found += ["--aggregate", self.aggregate, "--window", str(self.window)]
        found += ["--unit", self.unit] if self.unit else ["--each-record"]
        if self.column:
            found += ["--column", self.column, "--categories", ", ".join(self.columns)]
        if self.value:
            found += ["--value", self.value, "--edges" if self.aggregate == "histogram" else "--clip"]
            found += [", ".join(map(str, self.bounds))]
        return found

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The records that count, with their step and column."""
        first = date.fromisoformat(self.start)
        days = (pl.col(self.time).cast(pl.Date) - pl.lit(first)).dt.total_days()
        found = frame.with_columns(step=days.floordiv(self.days)).filter(
            pl.col("step").is_between(0, self.count - 1)
        )
        if self.column:
            at = {name: index for index, name in enumerate(self.columns)}
            found = found.filter(pl.col(self.column).is_in(list(at)))
            return found.with_columns(at=pl.col(self.column).replace_strict(at, return_dtype=pl.Int64))
        if self.value:
            found = found.filter(pl.col(self.value).is_not_null())
        if self.aggregate == "histogram":
            edges = np.array(self.bounds)
            at = np.searchsorted(edges, found[str(self.value)].to_numpy(), side="right") - 1
            found = found.with_columns(at=pl.Series(at)).filter(pl.col("at").is_between(0, len(edges) - 2))
            return found
        return found.with_columns(at=pl.lit(0, dtype=pl.Int64))

    def kept(self, rows: pl.DataFrame) -> pl.DataFrame:
        """One record of each unit in a step: the first, of equal times the smallest."""
        if not self.unit:
            return rows
        order = [self.time, self.value] if self.value else [self.time]
        return rows.sort(order).unique(["step", self.unit], keep="first", maintain_order=True)

    def truth(self, frame: pl.DataFrame) -> Values:
        """Steps × columns, after bounding and clipping; of a mean, the means and the counts."""
        kept = self.kept(self.rows(frame))
        if self.value:
            kept = kept.filter(pl.col(self.value).is_not_null())
        width = max(1, len(self.columns), len(self.bounds) - 1 if self.aggregate == "histogram" else 1)
        counts, sums = np.zeros((self.count, width)), np.zeros((self.count, width))
        place = kept["step"].to_numpy(), kept["at"].to_numpy()
        np.add.at(counts, place, 1.0)
        if self.aggregate in ("sum", "mean"):
            np.add.at(sums, place, kept[str(self.value)].clip(*self.bounds).to_numpy().astype(float))
        if self.aggregate == "sum":
            return sums
        if self.aggregate == "mean":
            with np.errstate(invalid="ignore"):
                return np.hstack([np.where(counts > 0, sums / counts, np.nan), counts])
        return counts

    def left(self, frame: pl.DataFrame) -> Left:
        """Records, the shares that are dropped, bounded and clipped, and what the file says without any of it."""
        rows = self.rows(frame)
        if self.value:
            rows = rows.filter(pl.col(self.value).is_not_null())
        dropped = 1 - len(rows) / len(frame)
        if self.aggregate == "distinct":
            rows = rows.unique(["step", str(self.unit), "at"])
        bounded, clipped, counts = 1 - len(self.kept(rows)) / len(rows), None, None
        if self.aggregate in ("sum", "mean"):
            values = frame[str(self.value)].drop_nulls()
            low, high = self.bounds
            clipped = float(((values < low) | (values > high)).mean() or 0.0)
        if self.aggregate in ("count", "distinct", "histogram"):
            counts = np.zeros((self.count, int(rows["at"].max() or 0) + 1))  # type: ignore[call-overload]
            np.add.at(counts, (rows["step"].to_numpy(), rows["at"].to_numpy()), 1.0)
        if self.aggregate in ("sum", "mean"):
            place = rows["step"].to_numpy(), rows["at"].to_numpy()
            many, sums = (np.zeros((self.count, max(1, len(self.columns)))) for _ in range(2))
            np.add.at(many, place, 1.0)
            np.add.at(sums, place, rows[str(self.value)].to_numpy().astype(float))
            with np.errstate(invalid="ignore"):
                counts = sums if self.aggregate == "sum" else np.where(many > 0, sums / many, np.nan)
        return Left(len(frame), dropped, bounded, clipped, counts)


BIKES = {"file": "citibike_trips.parquet", "time": "start_ts", "start": "2015-09-21", "days": 1, "count": 30}
FLIGHTS = {
    "file": "flight_durations_2013.parquet",
    "time": "sched_dep_local",
    "start": "2013-01-01",
    "days": 7,
    "count": 52,
}
RECEIPTS = {"file": "tafeng_baskets.parquet", "time": "date", "start": "2000-11-01", "days": 1, "count": 120}
BIKE, CUSTOMER = {"unit": "bike_id"}, {"unit": "customer_id"}
ORIGIN = {"column": "origin", "columns": ("EWR", "JFK", "LGA")}
SECONDS, MINUTES, MONEY = ({"value": name} for name in ("tripduration_s", "air_time_min", "spend_twd"))
WALKS: dict[str, Walk] = {
    "bikes, distinct": Walk(**BIKES, **BIKE, aggregate="distinct"),
    "bikes, count": Walk(**BIKES, aggregate="count", column="user_type", columns=("Subscriber", "Customer")),
    "bikes, sum": Walk(**BIKES, **BIKE, **SECONDS, aggregate="sum", bounds=(0, 3600)),
    "bikes, mean": Walk(**BIKES, **BIKE, **SECONDS, aggregate="mean", bounds=(0, 3600)),
    "bikes, histogram": Walk(**BIKES, **SECONDS, aggregate="histogram", bounds=(0, 600, 1800, 7200)),
    "flights, count": Walk(**FLIGHTS, **ORIGIN, aggregate="count"),
    "flights, sum": Walk(**FLIGHTS, **ORIGIN, **MINUTES, aggregate="sum", bounds=(0, 700)),
    "flights, mean": Walk(**FLIGHTS, **ORIGIN, **MINUTES, aggregate="mean", bounds=(0, 700)),
    "flights, histogram": Walk(**FLIGHTS, **MINUTES, aggregate="histogram", bounds=(0, 60, 180, 700)),
    "receipts, distinct": Walk(**RECEIPTS, **CUSTOMER, aggregate="distinct"),
    "receipts, count": Walk(**RECEIPTS, **CUSTOMER, aggregate="count"),
    "receipts, sum": Walk(**RECEIPTS, **CUSTOMER, **MONEY, aggregate="sum", bounds=(0, 1000)),
    "receipts, mean": Walk(**RECEIPTS, **CUSTOMER, **MONEY, aggregate="mean", bounds=(0, 1000)),
    "receipts, histogram": Walk(
        **RECEIPTS, **CUSTOMER, **MONEY, aggregate="histogram", bounds=(0, 200, 1000, 20000)
    ),
}
GIVEN = {
    "taxi, given": ("nyc_taxi_od_900_hourly.parquet", "1h", "24", "2018-05-01", "336"),
    "bus, given": ("montevideo_bus_675_hourly.parquet", "1h", "24", "2020-10-01", "336"),
    "wifi, given": ("wifi_buildings_10min.parquet", "10min", "144", "2025-04-14", "288"),
}
MEDIANS = {
    "bikes, quantile": Walk(**BIKES, **BIKE, **SECONDS, aggregate="quantile", bounds=(0, 3600)),
    "flights, quantile": Walk(**FLIGHTS, **MINUTES, aggregate="quantile", bounds=(0, 700)),
    "receipts, quantile": Walk(**RECEIPTS, **CUSTOMER, **MONEY, aggregate="quantile", bounds=(0, 2000)),
}


def prepared(name: str, file: Path) -> pl.DataFrame:
    """Given input, cut to what a test has time for: a few columns, two weeks; rows become columns where they must."""
    frame = pl.read_parquet(file)
    if name.startswith("wifi"):
        few = frame["building_id"].unique().sort()[:12].to_list()
        frame = frame.filter(pl.col("building_id").is_in(few))
        frame = frame.pivot(on="building_id", index="ts_local", values="occupancy").sort("ts_local").head(288)
        return frame.rename({label: f"b{label}" for label in frame.columns if label != "ts_local"})
    return frame.head(336).select(frame.columns[:13])


def walked(
    frame: pl.DataFrame, options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, Path]:
    """Go all the way; the report for everybody and the one for the curator."""
    frame.write_parquet(folder / "input.parquet")
    stream, report, inside = str(folder / "stream.toml"), folder / "report.html", folder / "inside.html"
    command = ["init", str(folder / "input.parquet"), "--out", stream, "--epsilon", "1", *options, "--yes"]
    assert main(command) == 0
    assert main(["check", stream]) == 0
    capsys.readouterr()
    assert main(["release", stream, "--report", str(report), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert main(["ledger", "verify", str(folder / "stream.ledger")]) == 0
    released = pl.read_csv(folder / "released.csv", infer_schema_length=None)
    assert released["step"].to_list() == list(range(1, done["steps"] + 1))
    text = report.read_text()
    assert len(text) < 400_000
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower().replace("tenan", "")
    card = str(folder / "card.json")
    assert main(["release", stream, "--report", str(inside), "--compare-truth", "--card", card]) == 0
    return report, inside


def written(folder: Path) -> tuple[Path, Path, Path]:
    """What reports are compared with."""
    return folder / "stream.toml", folder / "released.csv", folder / "card.json"


@pytest.mark.parametrize("name", WALKS)
def test_the_walk(name: str, shared_data: Find, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No command fails, one row a step, and every sentence has the numbers of an independent computation."""
    walk = WALKS[name]
    frame = pl.read_parquet(shared_data(walk.file))
    report, inside = walked(frame, walk.options, tmp_path, capsys)
    Told.of(report, *written(tmp_path)).check()
    Told.of(inside, *written(tmp_path), walk.truth(frame), walk.left(frame)).check()


@pytest.mark.parametrize("name", GIVEN)
def test_the_walk_of_given_numbers(
    name: str, shared_data: Find, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers that were added up elsewhere; what is missing is 0, as the file says."""
    file, length, window, start, count = GIVEN[name]
    frame = prepared(name, shared_data(file))
    options = [*WIDE, "--length", length, "--window", window, "--start", start, "--count", count]
    report, inside = walked(frame, options, tmp_path, capsys)
    Told.of(report, *written(tmp_path)).check()
    truth = frame.drop("ts_local").fill_null(0).to_numpy().astype(float)
    Told.of(inside, *written(tmp_path), truth).check()


@pytest.mark.parametrize("name", MEDIANS)
def test_the_walk_of_medians(
    name: str, shared_data: Find, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Medians lie where those of the file do: within a bin and the noise, on average over steps."""
    walk = MEDIANS[name]
    frame = pl.read_parquet(shared_data(walk.file))
    report, _ = walked(frame, walk.options, tmp_path, capsys)
    told = Told.of(report, *written(tmp_path))
    told.check()
    kept = walk.kept(walk.rows(frame)).filter(pl.col(str(walk.value)).is_not_null())
    true = kept.group_by("step", "at").agg(pl.col(str(walk.value)).median()).group_by("at").mean().sort("at")
    shown = [told.released[label].mean() for label in told.labels]
    assert shown == pytest.approx(true[str(walk.value)].to_list(), rel=0.3)
