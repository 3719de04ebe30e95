"""Every stream of the folder of public data, with what anybody knows about it without the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from experiments.data import Matrix, filled, is_here, located

Read = Callable[[Path], Matrix]


@dataclass(frozen=True)
class NamedStream:
    """A stream with what is public about it.

    Attributes
    ----------
    name
        A few words.
    file
        The file it is read from.
    read
        A function of the file's path that returns steps × columns.
    season
        Steps of a day (of a week or a year where steps are days or months).
    level
        The order of magnitude of a value, as anybody would guess it without the data: a power of ten times 1 or 3.
    source
        Publisher and licence.
    """

    name: str
    file: str
    read: Read
    season: int
    level: float
    source: str


@lru_cache(maxsize=4)
def load(name: str) -> Matrix:
    """A stream by its name, whole numbers, gaps filled with the last value; MissingData where it is not here."""
    stream = STREAMS[name]
    matrix = np.ascontiguousarray(stream.read(located(stream.file)))
    matrix.setflags(write=False)
    return matrix


def here() -> list[str]:
    """The streams whose files are at hand."""
    return [name for name, stream in STREAMS.items() if is_here(stream.file)]


def _frame(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)


def _columns(*names: str) -> Read:
    return lambda path: filled(_frame(path).select(names))


def _numbers(path: Path) -> Matrix:
    """All numeric columns."""
    frame = _frame(path)
    return filled(frame.select(name for name, kind in frame.schema.items() if kind.is_numeric()))


def _people(flow: str) -> Read:
    """People who go in or out of a building, by half hours."""
    return lambda path: filled(_frame(path).filter(pl.col("flow") == flow).select("count"))


def _room(name: str) -> Read:
    """WiFi clients of one room, by five minutes."""
    return lambda path: filled(
        _frame(path).filter(pl.col("room") == name).sort("ts_utc").select("associated")
    )


def _total(read: Read) -> Read:
    """The sum of the columns."""
    return lambda path: read(path).sum(axis=1, keepdims=True)


def _zones(path: Path) -> Matrix:
    """Hourly loads of the 20 zones; zone 21 is their sum and is left out."""
    frame = _frame(path).filter(pl.col("zone_id") <= 20)
    frame = frame.with_columns(load=pl.coalesce("load_kw", "load_kw_solution"))
    frame = frame.pivot("zone_id", index=["date", "hour_ending"], values="load").sort("date", "hour_ending")
    return filled(frame.drop("date", "hour_ending"))


def _buildings(path: Path) -> Matrix:
    frame = _frame(path).pivot("building_id", index="ts_local", values="occupancy").sort("ts_local")
    return filled(frame.drop("ts_local"))


def _events(time: str, every: str, column: str | None = None) -> Read:
    """Events a step, in all or by the values of a column; steps without any have 0."""

    def read(path: Path) -> Matrix:
        frame = (
            _frame(path)
            .drop_nulls(time)
            .with_columns(pl.col(time).cast(pl.Datetime("us")).dt.truncate(every))
        )
        counts = frame.group_by(time, *([column] if column else [])).agg(count=pl.len())
        if column:
            counts = counts.pivot(column, index=time, values="count")
        times = frame.select(pl.datetime_range(pl.col(time).min(), pl.col(time).max(), every).alias(time))
        return filled(times.join(counts, on=time, how="left").sort(time).drop(time).fill_null(0))

    return read


def _house(dataset: str, house: int, *columns: str) -> Read:
    def read(path: Path) -> Matrix:
        frame = pl.scan_parquet(path).filter((pl.col("dataset") == dataset) & (pl.col("house") == house))
        # long gaps at the beginning of a record say nothing
        return filled(frame.sort("ts_local").select(columns).collect().drop_nulls().head(20_000))

    return read


_RTE, _RTE_FILE = "RTE éCO2mix 2016, Licence Ouverte 2.0", "rte_load_2016_30min.parquet"
_NOW, _NOW_FILE = "RTE éCO2mix 2026, Licence Ouverte 2.0", "rte_load_12_regions_2026_15min.parquet"
_ZONES, _ZONES_FILE = "GEFCom 2012, competition data, terms not stated", "gefcom2012_load_hourly.parquet"
_ROOMS, _ROOMS_FILE = "WiFi clients of rooms, licence not stated", "wifi_rooms_5min.csv.gz"
_CAMPUS, _CAMPUS_FILE = "WiFi occupancy of a campus, licence not stated", "wifi_buildings_10min.parquet"
_PEOPLE, _PEOPLE_FILE = "UCI CalIt2, CC BY", "calit2_people_30min.csv.gz"
_BIKES, _BIKES_FILE = "Citi Bike data licence", "citibike_trips.parquet"
_TAXI, _TAXI_FILE = "NYC TLC, public", "nyc_taxi_od_900_hourly.parquet"
_BUS, _BUS_FILE = "Uruguay open data", "montevideo_bus_675_hourly.parquet"
_POWER, _POWER_FILE = "appliances of five houses, CC BY 4.0", "appliances_1min.parquet"
_REGIONS = ("ile_de_france", "hauts_de_france", "nouvelle_aquitaine", "provence_alpes_cote_d_azur")
_APPLIANCES = ("kettle_w", "dishwasher_w", "washingmachine_w", "microwave_w")


STREAMS: dict[str, NamedStream] = {
    stream.name: stream
    for stream in (
        NamedStream("load, Île-de-France", _RTE_FILE, _columns(_REGIONS[0]), 48, 1e4, _RTE),
        NamedStream("load, Hauts-de-France", _RTE_FILE, _columns(_REGIONS[1]), 48, 3e3, _RTE),
        NamedStream("load, Nouvelle-Aquitaine", _RTE_FILE, _columns(_REGIONS[2]), 48, 3e3, _RTE),
        NamedStream("load, Provence", _RTE_FILE, _columns(_REGIONS[3]), 48, 3e3, _RTE),
        NamedStream("load, France", _RTE_FILE, _columns("national"), 48, 3e4, _RTE),
        NamedStream("load, 4 regions", _RTE_FILE, _columns(*_REGIONS), 48, 3e3, _RTE),
        NamedStream("load, 12 regions", _NOW_FILE, _numbers, 96, 3e3, _NOW),
        NamedStream("load, 20 zones", _ZONES_FILE, _zones, 24, 1e5, _ZONES),
        NamedStream("load, all zones", _ZONES_FILE, _total(_zones), 24, 1e6, _ZONES),
        NamedStream("power, house 2", _POWER_FILE, _house("REFIT", 2, "aggregate_w"), 1440, 300, _POWER),
        NamedStream("power, house 2 (b)", _POWER_FILE, _house("UKDALE", 2, "aggregate_w"), 1440, 300, _POWER),
        NamedStream("power, house 20", _POWER_FILE, _house("REFIT", 20, "aggregate_w"), 1440, 300, _POWER),
        NamedStream("power, house 65", _POWER_FILE, _house("IDEAL", 65, "aggregate_w"), 1440, 300, _POWER),
        NamedStream("power, house 175", _POWER_FILE, _house("IDEAL", 175, "aggregate_w"), 1440, 300, _POWER),
        NamedStream("power, 4 appliances", _POWER_FILE, _house("REFIT", 2, *_APPLIANCES), 1440, 10, _POWER),
        NamedStream(
            "appliance uses",
            "appliance_activations.parquet",
            _events("start_local", "1h"),
            24,
            1,
            "tracebase, ODbL",
        ),
        NamedStream("WiFi, room B-002", _ROOMS_FILE, _room("B-002"), 288, 10, _ROOMS),
        NamedStream("WiFi, room B-003", _ROOMS_FILE, _room("B-003"), 288, 10, _ROOMS),
        NamedStream("WiFi, room B-004", _ROOMS_FILE, _room("B-004"), 288, 10, _ROOMS),
        NamedStream("WiFi, 170 buildings", _CAMPUS_FILE, _buildings, 144, 30, _CAMPUS),
        NamedStream("WiFi, all buildings", _CAMPUS_FILE, _total(_buildings), 144, 3e3, _CAMPUS),
        NamedStream("people in", _PEOPLE_FILE, _people("in"), 48, 3, _PEOPLE),
        NamedStream("people out", _PEOPLE_FILE, _people("out"), 48, 3, _PEOPLE),
        NamedStream("bike trips, all", _BIKES_FILE, _events("start_ts", "1h"), 24, 30, _BIKES),
        NamedStream(
            "bike trips, 47 stations",
            _BIKES_FILE,
            _events("start_ts", "1h", "start_station_id"),
            24,
            1,
            _BIKES,
        ),
        NamedStream("taxi trips, all", _TAXI_FILE, _total(_numbers), 24, 1e4, _TAXI),
        NamedStream("taxi trips, 900 pairs", _TAXI_FILE, _numbers, 24, 10, _TAXI),
        NamedStream("bus boardings, all", _BUS_FILE, _total(_numbers), 24, 1e3, _BUS),
        NamedStream("bus boardings, 675 stops", _BUS_FILE, _numbers, 24, 1, _BUS),
        NamedStream(
            "flights",
            "flight_durations_2013.parquet",
            _events("sched_dep_local", "1h"),
            24,
            30,
            "flights out of New York 2013, CC0",
        ),
        NamedStream(
            "web requests",
            "worldcup98_requests_per_minute.parquet",
            _columns("requests"),
            1440,
            1e3,
            "World Cup 98 trace, Internet Traffic Archive",
        ),
        NamedStream(
            "grocery baskets",
            "tafeng_baskets.parquet",
            _events("date", "1d"),
            7,
            1e3,
            "Ta-Feng, terms not stated",
        ),
        NamedStream(
            "unemployment",
            "unemployment_478_months.csv",
            _columns("unemployed"),
            12,
            300,
            "BLS LNU03000018, public domain",
        ),
    )
}
