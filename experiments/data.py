"""Streams of the experiments: public data in a folder of the user's, and shapes that are generated.

The folder is named by TIDEGATE_DATA. What is not there is skipped with the reason; nothing is downloaded.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from experiments.experiment import MissingData

if TYPE_CHECKING:
    import polars as pl

Matrix = npt.NDArray[np.int64]


def is_here(file: str) -> bool:
    """Whether the user's folder of public data is named and has a file."""
    named = os.environ.get("TIDEGATE_DATA")
    return bool(named) and Path(named or "", file).exists()


def located(file: str) -> Path:
    """A file of the user's folder of public data; MissingData where it is not here."""
    named = os.environ.get("TIDEGATE_DATA")
    if not named:
        raise MissingData(f"{file} is needed and TIDEGATE_DATA is not set; set it to the folder that has it.")
    path = Path(named, file)
    if not path.exists():
        raise MissingData(f"{file} is not in {named}; set TIDEGATE_DATA to the folder that has it.")
    return path


def filled(frame: pl.DataFrame) -> Matrix:
    """A table of numbers in whole numbers, gaps filled with the last value, or 0 where there is none."""
    import polars as pl

    floats = frame.select(pl.all().cast(pl.Float64)).fill_nan(None)
    filled = floats.fill_null(strategy="forward").fill_null(0).to_numpy()
    rounded: Matrix = np.floor(filled + 0.5).astype(np.int64)
    return rounded


def observations(file: str, column: str) -> npt.NDArray[np.int64]:
    """One number a row of a file, rounded to whole numbers, in the order of the file and without the gaps."""
    import polars as pl

    values: npt.NDArray[np.int64] = (
        pl.read_parquet(located(file), columns=[column])[column].drop_nulls().cast(pl.Int64).to_numpy()
    )
    return values


def table(file: str) -> pl.DataFrame:
    """A Parquet file of the folder; MissingData where it is not here."""
    import polars as pl

    return pl.read_parquet(located(file))


@lru_cache(maxsize=2)
def french_loads_2016() -> pl.DataFrame:
    """Loads of four French regions in 2016 (MW), by half hours of local time, with their `month` and `day`."""
    import polars as pl

    frame = table("rte_load_2016_30min.parquet")
    return frame.with_columns(month=pl.col("ts_local").dt.month(), day=pl.col("ts_local").dt.day())


@lru_cache(maxsize=2)
def french_loads_2026() -> pl.DataFrame:
    """Loads of all twelve French regions from 30 March to August 2026 (MW), by half hours of summer time.

    Gaps are filled with the last value; whole days only.
    """
    import polars as pl

    frame = table("rte_load_12_regions_2026_15min.parquet").with_columns(
        ts_local=pl.col("ts_utc").dt.replace_time_zone(None) + pl.duration(hours=2)
    )
    # summer time began on 29 March
    frame = frame.filter(pl.col("ts_local") >= pl.datetime(2026, 3, 30)).gather_every(2)
    frame = frame.head(frame.height // 48 * 48).fill_null(strategy="forward").drop("ts_utc")
    return frame.with_columns(month=pl.col("ts_local").dt.month(), day=pl.col("ts_local").dt.day())


@lru_cache(maxsize=2)
def american_zones(quarters: int) -> npt.NDArray[np.float64]:
    """Loads of the 20 zones of GEFCom 2012 (kW) in the first quarters of an hour since 2004, interpolated hours."""
    import polars as pl

    frame = table("gefcom2012_load_hourly.parquet").select(
        "zone_id",
        load=pl.coalesce("load_kw", "load_kw_solution").cast(pl.Float64),
        hour=(pl.col("date") - pl.date(2004, 1, 1)).dt.total_days() * 24 + pl.col("hour_ending") - 1,
    )
    frame = frame.drop_nulls("load").filter(pl.col("hour") <= quarters / 4 + 1).sort("hour")
    columns = []
    for zone in range(1, 21):
        part = frame.filter(pl.col("zone_id") == zone)
        columns.append(np.interp(np.arange(quarters) / 4, part["hour"].to_numpy(), part["load"].to_numpy()))
    return np.round(np.stack(columns, axis=1), 2)
