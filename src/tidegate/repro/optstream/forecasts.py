"""Forecasts of a day from four weeks of releases: what Figures 5 and 6 compare."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import TidegateError
from tidegate.queries.forecast import forecast
from tidegate.repro.data import french_loads_2016
from tidegate.repro.experiment import MissingData
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    CHOSEN,
    DFT,
    LAPLACE,
    REGION,
    Counts,
    W,
)

TRAINING = 28  # days
REAL = "real data"
NAMES = (LAPLACE, DFT, ADAPTIVE, ADAPTIVE_PRINTED, CHOSEN)


def stretch(month: int, days: int) -> Counts:
    """The load of the four weeks before a month, and of its first days (steps × 1)."""
    frame = french_loads_2016()
    first = frame.with_row_index().filter((pl.col("month") == month) & (pl.col("day") == 1))["index"][0]
    begin = first - TRAINING * W
    values = frame[REGION].cast(pl.Int64).to_numpy()[begin : first + days * W, np.newaxis]
    return np.ascontiguousarray(values)


def day_ahead(released: npt.NDArray[np.float64], day: int, fast: bool) -> npt.NDArray[np.float64]:
    """The forecast of a day of the month (from 1) by ARMA(1, 1), trained on the four weeks before it."""
    training = released[(day - 1) * W : (day - 1 + TRAINING) * W]
    try:
        method = "hannan_rissanen" if fast else "innovations_mle"
        return forecast(training, W, method=method, nonnegative=True)[:, 0]
    except TidegateError as missing:
        # without statsmodels there is nothing to compare
        raise MissingData(f"{missing} The data are looked for in TIDEGATE_DATA.") from None
