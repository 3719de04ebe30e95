"""What bounding and clipping have left out of a finite input, for the curator's eyes only.

Not private: no noise protects these shares. Following them is a choice made from data, which the inside report says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import Config
from tidegate.ingest.aggregate import chosen, read_rows
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
        Steps × columns without bounding: what the file says; None where that is no count.
    """

    records: int
    dropped: float
    bounded: float
    clipped: float
    unbounded: Values | None


def left_out(config: Config, steps: int, bounded_counts: Values) -> LeftOut | None:
    """Read the input once more and compare; None for given input, of which nothing is left out.

    Parameters
    ----------
    config
        The stream.
    steps
        How many of its steps were released.
    bounded_counts
        The true answers after bounding, steps × columns.
    """
    query = config.query
    if query.aggregate == "given":
        return None
    intake = config.open(None, follow=False)
    times, units = TimeReader(config.schema.time_format, config.steps.zone), UnitReader()
    width = len(query.columns)
    counts = np.zeros((steps, width))
    records = used = outside = valued = 0
    seen: list[pl.DataFrame] = []
    try:
        for batch in intake.source.batches(None):
            records += len(batch.frame)
            frame = chosen(query, batch.frame)
            rows = read_rows(query, batch.frame, config.schema, times, units)
            numbers = config.steps.numbers(rows["time"].to_numpy())
            keep = (numbers >= 1) & (numbers <= steps) & (rows["column"].to_numpy() >= 0)
            columns, numbers = rows["column"].to_numpy()[keep], numbers[keep]
            used += int(keep.sum())
            if query.aggregate == "distinct":
                seen.append(
                    pl.DataFrame(
                        {"step": numbers, "column": columns, "unit": rows["unit"].filter(pl.Series(keep))}
                    ).unique()
                )
            else:
                np.add.at(counts, (numbers - 1, columns), 1.0)
            if query.clip is not None and config.schema.value is not None:
                low, high = (float(Fraction(bound)) for bound in query.clip)
                values = frame[config.schema.value].cast(pl.Float64, strict=False).drop_nulls()
                valued += len(values)
                outside += int(((values < low) | (values > high)).sum())
    finally:
        intake.close()
    eligible = float(used)
    if query.aggregate == "distinct":
        unique = pl.concat(seen).unique() if seen else pl.DataFrame({"step": [], "column": []})
        np.add.at(counts, (unique["step"].to_numpy() - 1, unique["column"].to_numpy()), 1.0)
        eligible = float(len(unique))
    kept = _kept(config, bounded_counts, width)
    share = 0.0 if kept is None or not eligible else max(0.0, 1 - kept / eligible)
    comparable = query.aggregate in ("count", "distinct", "histogram") and query.weighting == "keep"
    return LeftOut(
        records,
        1 - used / records if records else 0.0,
        share,
        outside / valued if valued else 0.0,
        counts if comparable and config.mechanism.statistic == "steps" and query.levels is None else None,
    )


def _kept(config: Config, answers: Values, width: int) -> float | None:
    """How many contributions were kept, where the answers say it."""
    query = config.query
    if config.mechanism.statistic != "steps" or query.weighting != "keep" or query.aggregate == "quantile":
        return None
    if query.levels is not None:
        answers = answers[:, list(query.levels.hierarchy.leaves)]
    if query.aggregate in ("count", "distinct", "histogram"):
        return float(np.nansum(answers))
    return float(np.nansum(answers[:, width:])) if query.aggregate == "mean" else None
