"""What bounding and clipping have left out of a finite input, for the curator's eyes only.

Not private: no noise protects these shares. Following them is a choice made from data, which the inside report says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import Config
from tidegate.ingest.aggregate import chosen, column_numbers, read_rows
from tidegate.ingest.schema import UnitReader
from tidegate.ingest.times import TimeReader

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """Shares of a file.

    Parameters
    ----------
    records
        Records of the input.
    dropped
        The share that counts nowhere: outside of the clock or of all columns, or incomplete.
    bounded
        The share of the rest that is beyond `most` contributions of a unit in a step.
    clipped
        The share of values outside of the clip.
    unbounded
        Steps × columns without bounding and clipping: what the file says; None where that is not compared.
    """

    records: int
    dropped: float
    bounded: float
    clipped: float
    unbounded: Values | None


def left_out(config: Config, steps: int) -> LeftOut | None:
    """Read the input once more and count; None for given input, of which nothing is left out.

    Parameters
    ----------
    config
        The stream.
    steps
        How many of its steps were released.
    """
    query = config.query
    if query.aggregate == "given":
        return None
    intake = config.open(None, follow=False)
    times, units = TimeReader(config.schema.time_format, config.steps.zone), UnitReader()
    counts, sums = np.zeros((steps, len(query.columns))), np.zeros((steps, len(query.columns)))
    summed = query.aggregate in ("sum", "mean")
    records = used = outside = valued = 0
    seen: list[pl.DataFrame] = []
    try:
        for batch in intake.source.batches(None):
            records += len(batch.frame)
            frame = chosen(query, batch.frame)
            rows = read_rows(replace(query, requirements=None), batch.frame, config.schema, times, units)
            rows = rows.with_columns(step=config.steps.numbers(rows["time"].to_numpy()))
            rows = rows.filter(pl.col("step").is_between(1, steps) & (pl.col("column") >= 0))
            used += len(rows)
            if summed:
                raw = _unclipped(config, frame, times)
                raw = raw.filter(pl.col("step").is_between(1, steps) & (pl.col("column") >= 0))
                np.add.at(
                    sums, (raw["step"].to_numpy() - 1, raw["column"].to_numpy()), raw["value"].to_numpy()
                )
            if query.aggregate == "distinct":
                seen.append(rows.select("step", "column", "unit").unique())
            else:
                np.add.at(counts, (rows["step"].to_numpy() - 1, rows["column"].to_numpy()), 1.0)
                if "unit" in rows.columns:
                    seen.append(rows.group_by("step", "unit").len("times"))
            if query.clip is not None and config.schema.value is not None:
                low, high = query.limits
                values = frame[config.schema.value].cast(pl.Float64, strict=False).drop_nulls()
                valued += len(values)
                outside += int(((values < low) | (values > high)).sum())
    finally:
        intake.close()
    found = pl.concat(seen) if seen else None
    if query.aggregate == "distinct" and found is not None:
        found = found.unique()
        np.add.at(counts, (found["step"].to_numpy() - 1, found["column"].to_numpy()), 1.0)
        found = found.group_by("step", "unit").len("times")
    comparable = query.aggregate != "quantile" and query.weighting == "keep" and query.over == 1
    found_in_file = counts
    if summed:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.where(counts > 0, sums / counts, np.nan)
        found_in_file = sums if query.aggregate == "sum" else np.hstack([means, counts])
    return LeftOut(
        records,
        1 - used / records if records else 0.0,
        _beyond(found, query.most),
        outside / valued if valued else 0.0,
        found_in_file
        if comparable and config.mechanism.statistic == "steps" and query.levels is None
        else None,
    )


def _unclipped(config: Config, frame: pl.DataFrame, times: TimeReader) -> pl.DataFrame:
    """Step, column and value of each record that counts, as the file has them."""
    schema = config.schema
    assert schema.value is not None
    rows = pl.DataFrame(
        {
            "step": config.steps.numbers(times.read(frame[schema.time]).to_numpy()),
            "column": column_numbers(config.query, frame, schema),
            "value": frame[schema.value].cast(pl.Float64, strict=False).fill_nan(None),
        }
    )
    if schema.unit is not None:
        rows = rows.filter(frame[schema.unit].is_not_null())
    return rows.drop_nulls()


def _beyond(contributions: pl.DataFrame | None, most: int) -> float:
    """The share of contributions beyond the first `most` of a unit in a step; nothing where each record is a unit."""
    if contributions is None or not len(contributions):
        return 0.0
    times = contributions.group_by("step", "unit").agg(pl.col("times").sum())["times"]
    return 1 - int(times.clip(upper_bound=most).sum()) / int(times.sum())
