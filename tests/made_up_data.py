"""Small generated files with the columns of the public ones, for whoever does not have those.

What is tried on them is the code that reads and releases; numbers of papers need the real files.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.datasets import shapes

Integers = npt.NDArray[np.int64]
REGIONS = ("ile_de_france", "hauts_de_france", "nouvelle_aquitaine", "provence_alpes_cote_d_azur", "national")


def write(folder: Path, name: str) -> Path | None:
    """Write a made-up file into a folder; None where nobody knows how."""
    make = MAKERS.get(name)
    if make is None:
        return None
    path = folder / name
    if not path.exists():
        frame = make()
        if name.endswith(".parquet"):
            frame.write_parquet(path)
        else:
            path.write_text(
                frame.write_csv(), encoding="utf-8"
            )  # readers of compressed text take plain text as well
    return path


def _curve(steps: int, day: int, level: float, seed: int = 1) -> Integers:
    """A stream with the rhythm of days and of a year, and noise that follows itself."""
    random = np.random.default_rng(seed)
    time = np.arange(steps)
    rhythm = 1 + 0.2 * np.sin(2 * np.pi * time / day) + 0.1 * np.sin(4 * np.pi * time / day + seed)
    wander = np.zeros(steps)
    for at in range(1, steps):
        wander[at] = 0.95 * wander[at - 1] + random.normal(0, 0.01)
    yearly = 0.15 * np.cos(2 * np.pi * time / (365 * day))
    return np.maximum(0, level * (rhythm + wander + yearly)).round().astype(np.int64)


def _counts(steps: int, day: int, columns: int, level: float) -> Integers:
    """Counts of many columns with one rhythm."""
    random = np.random.default_rng(columns)
    rhythm = 1 + 0.9 * np.sin(2 * np.pi * np.arange(steps) / day)
    return random.poisson(level * rhythm[:, np.newaxis] * random.gamma(1, 1, columns))


def _times(start: datetime, steps: int, minutes: int) -> list[datetime]:
    return [start + timedelta(minutes=minutes * at) for at in range(steps)]


def _events(start: datetime, days: int, count: int) -> list[datetime]:
    """Moments of so many days, in order."""
    random = np.random.default_rng(count)
    return [
        start + timedelta(seconds=int(second)) for second in np.sort(random.integers(0, days * 86_400, count))
    ]


def _wide(start: datetime, names: list[str], rows: Integers, minutes: int, time: str) -> pl.DataFrame:
    columns = {name: rows[:, at] for at, name in enumerate(names)}
    return pl.DataFrame({time: _times(start, len(rows), minutes), **columns})


def _load_2016() -> pl.DataFrame:
    levels = (8300, 5800, 5000, 4700, 54_700)
    rows = np.column_stack([_curve(366 * 48, 48, level, at) for at, level in enumerate(levels)])
    return _wide(datetime(2016, 1, 1), list(REGIONS), rows, 30, "ts_local")


def _load_2026() -> pl.DataFrame:
    rows = np.column_stack([_curve(30 * 96, 96, 3000, at) for at in range(12)])
    frame = _wide(datetime(2026, 3, 15), [f"region_{at}" for at in range(12)], rows, 15, "ts_utc")
    return frame.with_columns(pl.col("ts_utc").dt.replace_time_zone("UTC"))


def _zones() -> pl.DataFrame:
    parts, total = [], np.zeros(35 * 24, dtype=np.int64)
    for zone in range(1, 22):
        load = total if zone == 21 else _curve(35 * 24, 24, 80_000, zone)
        total = total + load
        parts.append(
            pl.DataFrame(
                {
                    "zone_id": np.full(len(load), zone),
                    "date": [date(2004, 1, 1) + timedelta(days=at // 24) for at in range(len(load))],
                    "hour_ending": np.arange(len(load)) % 24 + 1,
                    "load_kw": load,
                    "load_kw_solution": pl.Series([None] * len(load), dtype=pl.Int64),
                }
            )
        )
    return pl.concat(parts)


def _rooms() -> pl.DataFrame:
    people = _counts(900, 288, 3, 12.0)
    times = [time.isoformat() for time in _times(datetime(2015, 11, 2), 900, 5)]
    names = ("B-002", "B-003", "B-004")
    parts = [
        pl.DataFrame({"ts_utc": times, "room": name, "associated": people[:, at]})
        for at, name in enumerate(names)
    ]
    return pl.concat(parts)


def _buildings() -> pl.DataFrame:
    people, times = _counts(144, 144, 170, 20.0), _times(datetime(2025, 4, 14), 144, 10)
    parts = [
        pl.DataFrame({"ts_local": times, "building_id": f"{at:03}", "occupancy": people[:, at]})
        for at in range(170)
    ]
    return pl.concat(parts)


def _people() -> pl.DataFrame:
    counts = _counts(480, 48, 2, 4.0)
    times = [time.isoformat() for time in _times(datetime(2005, 7, 24), 480, 30)]
    flows = enumerate(("in", "out"))
    return pl.concat(
        pl.DataFrame({"ts_local": times, "flow": flow, "count": counts[:, at]}) for at, flow in flows
    )


def _bikes() -> pl.DataFrame:
    starts = _events(datetime(2015, 9, 21), 30, 20_000)
    stations = np.random.default_rng(1).integers(0, 47, len(starts)) + 3183
    return pl.DataFrame({"start_ts": starts, "start_station_id": stations})


def _taxi() -> pl.DataFrame:
    names = [f"o{at // 30:02}_d{at % 30:02}" for at in range(900)]
    return _wide(datetime(2018, 5, 1), names, _counts(200, 24, 900, 12.0), 60, "ts_local")


def _bus() -> pl.DataFrame:
    names = [str(5000 + at) for at in range(675)]
    return _wide(datetime(2020, 10, 1), names, _counts(200, 24, 675, 2.0), 60, "ts_local")


def _appliances() -> pl.DataFrame:
    parts = []
    houses = (("IDEAL", 65), ("IDEAL", 175), ("REFIT", 2), ("REFIT", 20), ("UKDALE", 2))
    for seed, (dataset, house) in enumerate(houses):
        random = np.random.default_rng(seed)
        uses = {
            name: np.where(random.random(1500) < 0.01, 2000.0, 0.0)
            for name in ("kettle_w", "dishwasher_w", "washingmachine_w", "microwave_w")
        }
        whole = {"aggregate_w": 200 + sum(uses.values()), **uses}
        times = _times(datetime(2017, 6, 1), 1500, 1)
        parts.append(pl.DataFrame({"dataset": dataset, "house": house, "ts_local": times, **whole}))
    return pl.concat(parts)


def _flights() -> pl.DataFrame:
    minutes = 20 + 3 * shapes.trip_minutes(100_000)
    return pl.DataFrame(
        {"sched_dep_local": _events(datetime(2013, 1, 1), 100, 100_000), "air_time_min": minutes}
    )


def _baskets() -> pl.DataFrame:
    spent = 12 * shapes.spendings(119_578)
    days = [date(2000, 11, 1) + timedelta(days=at * 120 // len(spent)) for at in range(len(spent))]
    return pl.DataFrame({"date": days, "spend_twd": spent})


def _months() -> pl.DataFrame:
    """Between 150 and 612 and about 300, with a year's rhythm and jumps of about 47 from one month to the next."""
    random, time = np.random.default_rng(478), np.arange(478)
    slow = 300 + 90 * np.sin(2 * np.pi * time / 130) + 55 * np.sin(2 * np.pi * time / 12)
    return pl.DataFrame(
        {
            "month": time + 1,
            "unemployed": np.clip((slow + random.normal(0, 30, 478)).round(), 150, 612).astype(int),
        }
    )


MAKERS: dict[str, Callable[[], pl.DataFrame]] = {
    "rte_load_2016_30min.parquet": _load_2016,
    "rte_load_12_regions_2026_15min.parquet": _load_2026,
    "gefcom2012_load_hourly.parquet": _zones,
    "wifi_rooms_5min.csv.gz": _rooms,
    "wifi_buildings_10min.parquet": _buildings,
    "calit2_people_30min.csv.gz": _people,
    "citibike_trips.parquet": _bikes,
    "nyc_taxi_od_900_hourly.parquet": _taxi,
    "montevideo_bus_675_hourly.parquet": _bus,
    "appliances_1min.parquet": _appliances,
    "appliance_activations.parquet": lambda: pl.DataFrame(
        {"start_local": _events(datetime(2011, 9, 1), 60, 3_000)}
    ),
    "flight_durations_2013.parquet": _flights,
    "worldcup98_requests_per_minute.parquet": lambda: pl.DataFrame({"requests": _curve(3000, 1440, 900)}),
    "tafeng_baskets.parquet": _baskets,
    "unemployment_478_months.csv": _months,
}
