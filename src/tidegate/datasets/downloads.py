"""Public streams that a user has downloaded, as events or readings with a configuration to release them."""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import InvalidInput, InvalidParameter

if TYPE_CHECKING:
    import polars as pl


EVENTS, NEW_YORK = "events.parquet", "America/New_York"


@dataclass(frozen=True)
class Download:
    """A public stream: what it is, where it is published, and how its file is read."""

    name: str
    about: str
    publisher: str
    read: Callable[[Path], tuple[pl.DataFrame, str]]


def _month(path: Path) -> tuple[datetime.date, int]:
    """The month that a file's name tells, and its number of hours."""
    found = re.search(r"(20\d\d)-?(0[1-9]|1[0-2])", path.name)
    if found is None:
        raise InvalidParameter(
            "file",
            path.name,
            "named after its month, such as 2024-01",
            "keep the name it was downloaded with",
        )
    year, month = int(found[1]), int(found[2])
    return datetime.date(year, month, 1), 24 * calendar.monthrange(year, month)[1]


def _columns(path: Path, frame: pl.LazyFrame, *needed: str) -> None:
    missing = [name for name in needed if name not in frame.collect_schema().names()]
    if missing:
        raise InvalidInput(f"{path.name!r} has no column {missing[0]!r}; is it the file of this dataset?")


def configuration(
    location: str,
    columns: Mapping[str, str],
    start: datetime.date,
    length: str,
    count: int,
    query: str,
    *,
    zone: str = "UTC",
    protect: str = "",
) -> str:
    """A configuration that releases a sample stream; `columns` are those of the source besides its time."""
    named = "".join(f'{key} = "{name}"\n' for key, name in columns.items())
    return f"""\
[source]
location = "{location}"
time = "time"
{named}
[steps]
start = "{start.isoformat()}T00:00"
length = "{length}"
zone = "{zone}"
count = {count}

[query]
{query}

[protect]
policy = "w-event"
epsilon = "1"
window = 24
{protect}
[mechanism]
name = "auto"

[sink]
location = "released.csv"
"""


def _citibike(path: Path) -> tuple[pl.DataFrame, str]:
    import polars as pl

    frame = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
    names = frame.collect_schema().names()
    start, hours = _month(path)
    if "bikeid" in names or "bike_id" in names:  # older files name the bike, which is the repeated unit
        bike = "bikeid" if "bikeid" in names else "bike_id"
        time = next((name for name in ("starttime", "start_time", "start") if name in names), "starttime")
        _columns(path, frame, time)
        found = frame.select(time=pl.col(time), unit=pl.col(bike).cast(pl.String)).collect()
        columns, aggregate = {"unit": "unit"}, "distinct"
    else:
        _columns(path, frame, "started_at")
        found = frame.select(time=pl.col("started_at")).collect()
        columns, aggregate = {}, "count"
    query = f'aggregate = "{aggregate}"'
    return found, configuration(EVENTS, columns, start, "1h", hours, query, zone=NEW_YORK)


def _taxi(path: Path) -> tuple[pl.DataFrame, str]:
    import polars as pl

    frame = pl.scan_parquet(path)
    names = frame.collect_schema().names()
    time = next((name for name in names if name.endswith("pickup_datetime")), "pickup_datetime")
    _columns(path, frame, time, "PULocationID")
    start, hours = _month(path)
    found = frame.select(time=pl.col(time), zone=pl.col("PULocationID").cast(pl.Int64)).collect()
    zones = ", ".join(f'"{zone}"' for zone in range(1, 264))  # the city's public list of taxi zones
    query = f'aggregate = "count"\ncolumns = [{zones}]\noutside = "other"'
    return found, configuration(EVENTS, {"column": "zone"}, start, "1h", hours, query, zone=NEW_YORK)


def _calit2(path: Path) -> tuple[pl.DataFrame, str]:
    import polars as pl

    names = ["flow", "date", "clock", "count"]
    frame = pl.read_csv(path, has_header=False, new_columns=names, infer_schema=False)
    if frame.columns != names:
        raise InvalidInput(f"{path.name!r} has not the four fields of this dataset; is it CalIt2.data?")
    moment = (pl.col("date").str.strip_chars() + " " + pl.col("clock").str.strip_chars()).str.to_datetime(
        "%m/%d/%y %H:%M:%S", strict=False
    )
    found = frame.select(
        time=moment,
        flow=pl.col("flow").str.strip_chars(),
        count=pl.col("count").str.strip_chars().cast(pl.Int64, strict=False),
    )
    query = 'aggregate = "given"\ncolumns = ["7", "9"]\nfill = "zero"'
    columns, start = {"column": "flow", "value": "count"}, datetime.date(2005, 7, 24)
    return found, configuration(EVENTS, columns, start, "30min", 5040, query, protect='max_change = "1"\n')


DOWNLOADS = {
    found.name: found
    for found in (
        Download("citibike", "bike trips of one month; a CSV of trips", "Citi Bike, system data", _citibike),
        Download(
            "nyc-taxi",
            "taxi trips of one month by zone; a Parquet of trip records",
            "NYC TLC, trip record data",
            _taxi,
        ),
        Download(
            "calit2",
            "people in and out of a building; CalIt2.data",
            "UCI Machine Learning Repository",
            _calit2,
        ),
    )
}
