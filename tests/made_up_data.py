"""Generated files with the columns of the public ones and their types, for whoever does not have those.

What is tried on them is the code that reads and releases; numbers of papers need the real files. They have what makes
the real ones awkward: missing values, units that come again, a heavy tail, the end of summer time.
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
REGIONS_TODAY = (
    "ile_de_france",
    "centre_val_de_loire",
    "bourgogne_franche_comte",
    "normandie",
    "hauts_de_france",
    "grand_est",
    "pays_de_la_loire",
    "bretagne",
    "nouvelle_aquitaine",
    "occitanie",
    "auvergne_rhone_alpes",
    "provence_alpes_cote_d_azur",
)
# columns whose numbers are not of the usual 32 bits
WIDTHS = {
    **dict.fromkeys(("zone_id", "house"), pl.Int16),
    **dict.fromkeys(("air_time_min", "distance_mi", "dep_delay_min", "arr_delay_min"), pl.Int16),
    **{"hour_ending": pl.Int8, "customer_id": pl.Int64},
}


def write(folder: Path, name: str) -> Path | None:
    """Write a made-up file into a folder; None where nobody knows how."""
    make = MAKERS.get(name)
    if make is None:
        return None
    path = folder / name
    if not path.exists():
        frame = make()
        if name.endswith(".parquet"):
            usual = {label: pl.Int32 for label, kind in frame.schema.items() if kind == pl.Int64}
            special = {label: kind for label, kind in WIDTHS.items() if label in frame.columns}
            frame.cast({**usual, **special}).write_parquet(path)
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
    frame = _wide(datetime(2026, 3, 15), list(REGIONS_TODAY), rows, 15, "ts_utc")
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
        pl.DataFrame(
            {"ts_utc": times, "room": name, "associated": people[:, at], "authenticated": people[:, at] // 2}
        )
        for at, name in enumerate(names)
    ]
    return pl.concat(parts)


def _buildings() -> pl.DataFrame:
    """Two days of 170 buildings; one pair of time and building in ten is not known."""
    people, times = _counts(288, 144, 170, 20.0), _times(datetime(2025, 4, 14), 288, 10)
    kinds = ("Non-Residential", "Non-Residential", "Residential")
    parts = [
        pl.DataFrame(
            {
                "ts_local": times,
                "building_id": f"{at:03}",
                "building_category": kinds[at % 3],
                "occupancy": people[:, at],
            }
        )
        for at in range(170)
    ]
    every = pl.concat(parts)
    return every.filter(pl.Series(np.random.default_rng(170).random(len(every)) < 0.9))


def _people() -> pl.DataFrame:
    counts = _counts(480, 48, 2, 4.0)
    times = [time.isoformat() for time in _times(datetime(2005, 7, 24), 480, 30)]
    flows = enumerate(("in", "out"))
    return pl.concat(
        pl.DataFrame({"ts_local": times, "flow": flow, "count": counts[:, at]}) for at, flow in flows
    )


def _bikes() -> pl.DataFrame:
    """Sixty days of some 600 trips, most of them to work and back; a few are customers', a few last for days."""
    random, count, start = np.random.default_rng(386), 36_000, datetime(2015, 9, 21)
    hours = np.arange(60 * 24)
    hour, working = hours % 24, (hours // 24) % 7 < 5
    to_work, home = np.exp(-(((hour - 8) / 1.2) ** 2)), np.exp(-(((hour - 18) / 1.8) ** 2))
    leisure = np.exp(-(((hour - 14) / 4.5) ** 2))
    busy = np.where(working, 1.3 * to_work + home + 0.2 * leisure, 0.45 * leisure) + 0.01
    seconds = np.sort(
        3600 * random.choice(hours, count, p=busy / busy.sum()) + random.integers(0, 3600, count)
    )
    lasts = np.clip(np.exp(random.normal(6.05, 0.75, count)), 61, 5400).astype(np.int64)
    lasts[random.random(count) < 0.0005] *= 1000
    customers = random.random(count) < np.clip(lasts / 9000, 0.03, 0.6)
    types = np.where(customers, "Customer", "Subscriber").astype(object)
    types[random.random(count) < 0.0005] = None
    begun = [start + timedelta(seconds=int(second)) for second in seconds]
    return pl.DataFrame(
        {
            "start_ts": begun,
            "stop_ts": [time + timedelta(seconds=int(each)) for time, each in zip(begun, lasts, strict=True)],
            "tripduration_s": lasts,
            "start_station_id": random.integers(0, 47, count) + 3183,
            "end_station_id": random.integers(0, 47, count) + 3183,
            "bike_id": random.integers(0, 386, count) + 24_400,
            "user_type": list(types),
        }
    )


def _taxi() -> pl.DataFrame:
    names = [f"o{at // 30:02}_d{at % 30:02}" for at in range(900)]
    return _wide(datetime(2018, 5, 1), names, _counts(336, 24, 900, 12.0), 60, "ts_local").cast(
        {pl.Int64: pl.Int16}
    )


def _bus() -> pl.DataFrame:
    names = [str(5000 + at) for at in range(675)]
    return _wide(datetime(2020, 10, 1), names, _counts(336, 24, 675, 2.0), 60, "ts_local").cast(
        {pl.Int64: pl.Int16}
    )


def _appliances() -> pl.DataFrame:
    parts = []
    houses = (("IDEAL", 65), ("IDEAL", 175), ("REFIT", 2), ("REFIT", 20), ("UKDALE", 2))
    for seed, (dataset, house) in enumerate(houses):
        random = np.random.default_rng(seed)
        uses = {
            name: np.where(random.random(1500) < 0.01, 2000.0, 0.0)
            for name in ("kettle_w", "dishwasher_w", "washingmachine_w", "microwave_w")
        }
        whole = {"aggregate_w": 200 + sum(uses.values()), **uses, "shower_w": np.zeros(1500)}
        times = _times(datetime(2017, 6, 1), 1500, 1)
        parts.append(pl.DataFrame({"dataset": dataset, "house": house, "ts_local": times, **whole}))
    return pl.concat(parts).cast({pl.Float64: pl.Float32})


def _uses() -> pl.DataFrame:
    random, count = np.random.default_rng(3), 3_000
    devices, seconds = random.integers(0, 40, count), random.integers(5, 5000, count)
    power = np.round(random.gamma(2, 100, count), 1)
    return pl.DataFrame(
        {
            "device_type": [f"type_{device % 8}" for device in devices],
            "device_id": [f"device_{device}" for device in devices],
            "start_local": _events(datetime(2011, 9, 1), 60, count),
            "duration_s": seconds,
            "mean_w": power,
            "max_w": 2 * power,
            "energy_wh": power * seconds / 3600,
        }
    )


def _flights() -> pl.DataFrame:
    """A thousand flights a day for a year, one in forty of them cancelled, so without a time in the air."""
    count = 365_000
    random, minutes = np.random.default_rng(count), 20 + 3 * shapes.trip_minutes(count)
    late = random.normal(5, 30, count).round().astype(np.int64)
    flights = pl.DataFrame(
        {
            "sched_dep_local": _events(datetime(2013, 1, 1), 365, count),
            "carrier": random.choice(["AA", "B6", "DL", "UA"], count),
            "tailnum": [f"N{number}" for number in random.integers(100, 4100, count)],
            "origin": random.choice(["EWR", "JFK", "LGA"], count, p=[0.36, 0.33, 0.31]),
            "dest": random.choice(["ATL", "BOS", "LAX", "ORD"], count),
            "air_time_min": minutes,
            "distance_mi": 7 * minutes,
            "dep_delay_min": late,
            "arr_delay_min": late - 5,
        }
    )
    flown, measured = (
        pl.Series(random.random(count) >= 0.025),
        ("air_time_min", "dep_delay_min", "arr_delay_min"),
    )
    return flights.with_columns(pl.when(flown).then(pl.col(name)).alias(name) for name in measured)


def _baskets() -> pl.DataFrame:
    """Four months of receipts, at most one a day of each customer; many customers come again."""
    random, spent = np.random.default_rng(32_266), 12 * shapes.spendings(119_578)
    day = np.arange(len(spent)) * 120 // len(spent)
    customers = [np.sort(random.choice(32_266, each, replace=False)) for each in np.bincount(day)]
    lines = random.geometric(0.15, len(spent))
    return pl.DataFrame(
        {
            "date": [date(2000, 11, 1) + timedelta(days=int(at)) for at in day],
            "customer_id": np.concatenate(customers) + 1069,
            "n_lines": lines,
            "units": lines + random.poisson(2.0, len(spent)),
            "spend_twd": spent,
        }
    )


def _requests() -> pl.DataFrame:
    return pl.DataFrame(
        {"ts_utc": _times(datetime(1998, 4, 30, 21, 30), 3000, 1), "requests": _curve(3000, 1440, 900)}
    )


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
    "appliance_activations.parquet": _uses,
    "flight_durations_2013.parquet": _flights,
    "worldcup98_requests_per_minute.parquet": _requests,
    "tafeng_baskets.parquet": _baskets,
    "unemployment_478_months.csv": _months,
}
