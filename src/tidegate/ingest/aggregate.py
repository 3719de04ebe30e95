"""From a batch of records to rows on the grid, and from the rows of closed steps to their vectors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidInput
from tidegate.exact import show
from tidegate.ingest import kernels
from tidegate.ingest.arrays import frozen, never_decreases
from tidegate.ingest.bounding import bounded
from tidegate.ingest.columns import Columns, Discovered, Intervals, as_array, numbers, texts
from tidegate.ingest.condition import Condition
from tidegate.ingest.errors import RepeatedReading, refuse
from tidegate.ingest.levels import NODES
from tidegate.ingest.query import LARGEST, Query
from tidegate.ingest.schema import Schema, UnitReader, unit_codes
from tidegate.ingest.times import TimeReader
from tidegate.structures.category_names import each_named
from tidegate.structures.grid import nearest_units

Matrix = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_NOTHING = np.zeros(0, dtype=np.int64)
RECORDS = "records"  # for how many records a row stands that was merged
CATEGORY = "category"  # of a row, where nobody has listed them
ROW = ("time", "unit", "value", "column", CATEGORY, RECORDS)  # of a row, in their order


def read_rows(
    query: Query,
    frame: pl.DataFrame,
    schema: Schema,
    times: TimeReader,
    units: UnitReader,
    *,
    lenient: bool = False,
) -> pl.DataFrame:
    """A batch as rows of time, unit, column and value in grid units; incomplete records are left out.

    Parameters
    ----------
    query, schema, times, units
        What is read, and how.
    frame
        The batch.
    lenient
        Whether a field that cannot be read is missing in its record, or refuses the batch.
    """
    frame = chosen(query, frame, lenient=lenient)
    if lenient:
        frame = _readable(query, frame, schema)
    time = times.read(frame[schema.time])
    if query.wide:
        return _wide_rows(query, frame, time)
    parts: dict[str, Any] = {"time": time}
    if schema.unit is not None and query.aggregate != "given":
        parts["unit"] = units.read(frame[schema.unit])
    if schema.value is not None and valued(query):
        parts["value"] = on_grid(query, numbers(frame[schema.value], schema.value))
    if isinstance(query.columns, Intervals):
        assert schema.value is not None
        parts["column"] = query.columns.indices(frame[schema.value])
    else:
        parts["column"] = column_numbers(query, frame, schema)
    if query.requirements is not None:  # the columns of each requirement beside each other
        assert schema.unit is not None
        begins = query.requirements.of(frame[schema.unit]) * np.int32(len(query.columns))
        parts["column"] = np.where(parts["column"] < 0, parts["column"], parts["column"] + begins)
    if isinstance(query.columns, Discovered):
        assert schema.column is not None
        parts[CATEGORY] = each_named(texts(frame[schema.column]), query.columns.length)
    return pl.DataFrame(parts).drop_nulls()


def column_numbers(query: Query, frame: pl.DataFrame, schema: Schema) -> Any:
    """The number of each record's column by its category; null where it is in none."""
    if schema.column is None or isinstance(query.columns, Intervals):
        return np.zeros(len(frame), dtype=np.int32)
    keys, found = frame[schema.column], query.lookup
    if found is None or isinstance(query.columns, Discovered):
        return query.columns.indices(keys)
    return found.indices(keys, query.columns)


def chosen(query: Query, frame: pl.DataFrame, *, lenient: bool = False) -> pl.DataFrame:
    """The records for which the query's condition holds."""
    if not isinstance(query.where, Condition) or not len(frame):
        return frame
    return frame.filter(query.where.holds(frame, lenient=lenient))


def valued(query: Query) -> bool:
    """Whether the rows of a query have values."""
    return query.aggregate in ("sum", "mean", "given")


def _readable(query: Query, frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """A batch in which values that would be refused are missing: each is looked at for itself."""
    names: list[str] = []
    if query.wide and isinstance(query.columns, Columns):
        names = list(query.columns.names)
    elif schema.value is not None and (valued(query) or isinstance(query.columns, Intervals)):
        names = [schema.value]
    found = {}
    for name in names:
        values = numbers(frame[name], name, lenient=True)
        if query.aggregate == "given":
            values = values.set(pl.Series(too_large(query, values) | off_grid(query, values)), None)
        found[name] = values
    return frame.with_columns(**found)


def too_large(query: Query, values: pl.Series) -> Mask:
    """Which readings lie beyond what can be released."""
    if query.clip is not None:
        return np.zeros(len(values), dtype=np.bool_)
    result: Mask = np.abs(as_array(values).astype(np.float64)) > LARGEST // query.ticks
    return result


def off_grid(query: Query, values: pl.Series) -> Mask:
    """Which readings would have to be rounded and must not be; those that are clipped are on the grid."""
    if query.rounding != "refuse":
        return np.zeros(len(values), dtype=np.bool_)
    given = as_array(values).astype(np.float64)
    inside = ~too_large(query, values)
    if query.clip is not None:
        low, high = query.limits
        inside = (given > low) & (given < high)
    near = np.where(inside, given, 0.0)
    result: Mask = nearest_units(near * query.ticks) / query.ticks != near
    return result


def _wide_rows(query: Query, frame: pl.DataFrame, time: pl.Series) -> pl.DataFrame:
    assert isinstance(query.columns, Columns)
    parts = []
    for index, name in enumerate(query.columns.names):
        values = on_grid(query, numbers(frame[name], name))
        column = np.full(len(frame), index, dtype=np.int32)
        parts.append(pl.DataFrame({"time": time, "value": values, "column": column}))
    return pl.concat(parts).drop_nulls().sort("time", maintain_order=True)


def on_grid(query: Query, column: pl.Series) -> pl.Series:
    """Clip, then round to grid units with floor(x/g + ½); missing numbers stay missing.

    Given readings that can be neither released as they are nor clipped refuse the input.
    """
    if query.aggregate == "given":
        _check_readings(query, column)
    ticks, values = query.ticks, as_array(column)
    low, high = (-LARGEST, LARGEST) if query.clip is None else query.limits_in_units
    if column.dtype == pl.Float64:
        units = nearest_units(np.clip(values, low / ticks, high / ticks) * ticks)
    else:
        units = np.clip(values, -(-low // ticks) - 1, high // ticks + 1) * ticks
    # once more in whole numbers: this, and not the float above, is what bounds a contribution
    units = np.clip(units, low, high)
    if query.aggregate == "mean" and query.learn is None:
        units -= query.centre
    elif query.weighting == "share":
        units = np.sign(units) * (np.abs(units) // query.most)
    return pl.Series(units.astype(np.int64, copy=False)).set(column.is_null(), None)


def _check_readings(query: Query, values: pl.Series) -> None:
    refuse(
        too_large(query, values),
        InvalidInput(f"a reading lies beyond ±{LARGEST} grid units; choose a coarser grid or declare clip."),
    )
    refuse(
        off_grid(query, values),
        InvalidInput(
            f"a reading does not lie on the grid of {show(Fraction(query.grid))}; "
            'choose a finer grid, or declare rounding="nearest", which raises the sensitivity.'
        ),
    )


def step_vectors(
    query: Query, rows: pl.DataFrame, steps: Matrix, first: int, count: int, *, finite: bool = True
) -> tuple[Matrix, Mask | None]:
    """The vectors of `count` complete steps in grid units, and which cells have no reading.

    Parameters
    ----------
    query
        What is aggregated.
    rows
        What :func:`read_rows` made, of these steps only.
    steps
        The step of each row.
    first, count
        The range of steps.
    finite
        Whether a second reading of a cell is refused (a file is wrong) or replaces the first (a broker may
        send a message twice).
    """
    out = np.zeros((count, query.counted), dtype=np.int64)
    given = query.aggregate == "given"
    missing = np.ones((count, query.counted), dtype=np.bool_) if given else None
    if query.discovers:  # its steps are records; see `occurrences`
        return out, None
    if not len(rows):
        return expanded(query, out, missing)
    at = steps - first
    if not never_decreases(at):
        order = np.argsort(at, kind="stable")
        at, rows = at[order], rows[order]
    at = frozen(at)
    columns = frozen(rows["column"].to_numpy())
    values = frozen(rows["value"].to_numpy() if "value" in rows.columns else _NOTHING)
    also = query.count_weight if query.aggregate == "mean" else 0
    if given:
        if kernels.put_readings(at, columns, values, missing, out) and finite:
            raise RepeatedReading(
                "two readings fall into one step and column; aggregate the input first or use shorter steps."
            )
    else:
        if "unit" in rows.columns:
            columns = frozen(np.where(_bounded(query, rows, at), columns, np.int32(-1)))
        if query.learn is not None:
            return query.bins.counted(at, columns, values, steps=count), None
        if RECORDS in rows.columns:
            _add_merged(at, columns, values, rows[RECORDS].to_numpy(), query.weight, also, out)
        else:
            kernels.add_records(at, columns, values, query.weight, also, out)
    return expanded(query, out, missing)


def occurrences(rows: pl.DataFrame, steps: Matrix) -> pl.DataFrame:
    """The records of complete steps where categories are found: step, unit, category and value, in the order of times.

    At equal times those of the first categories come first, then the smallest values. The mechanism takes the first
    ones of each unit.
    """
    if not len(rows):
        return pl.DataFrame(schema={"step": pl.Int64, "unit": pl.String, CATEGORY: pl.String})
    names = [name for name in ("unit", CATEGORY, "value") if name in rows.columns]
    return _in_order(rows, steps).select("step", *names)


def _in_order(rows: pl.DataFrame, steps: Matrix) -> pl.DataFrame:
    """Rows with their step, by step and time, at equal times by category and value."""
    order = [name for name in ("time", CATEGORY, "value") if name in rows.columns]
    return rows.with_columns(pl.Series("step", steps, dtype=pl.Int64)).sort("step", *order)


def _first_occurrences(query: Query, rows: pl.DataFrame, steps: Matrix) -> pl.DataFrame:
    """Of each unit and step the rows that may count: the first ones, and the first ones of its first categories.

    Which these are depends on the unit's own records alone.
    """
    assert isinstance(query.columns, Discovered)
    rows, unit = _in_order(rows, steps), ["step", "unit"]
    first = pl.struct(*unit, CATEGORY).is_first_distinct()
    if query.aggregate == "distinct":  # which of them share a column is known to the mechanism alone
        return rows.filter(first)
    has_name = pl.col(CATEGORY) != ""  # what has none takes no place among the first ones
    rows = rows.with_columns((first & has_name).alias("first"))
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(unit)
    known = pl.col("first").cum_sum().over(unit)
    kept = (number < query.most) | (pl.col("first") & (known <= query.columns.categories))
    return rows.filter(kept).drop("first")


def _add_merged(
    at: Matrix, columns: Any, values: Matrix, records: Matrix, weight: int, also: int, out: Matrix
) -> None:
    """Add rows that stand for several records each."""
    counts = columns >= 0
    at, columns, records = at[counts], columns[counts], records[counts]
    np.add.at(out, (at, columns), values[counts] if len(values) else records * weight)
    if also:
        np.add.at(out, (at, out.shape[1] // 2 + columns), records * also)


def expanded(query: Query, out: Matrix, missing: Mask | None) -> tuple[Matrix, Mask | None]:
    """The vectors with the nodes above their columns, where those are measured as well."""
    if query.levels is None or query.levels.measured != NODES or query.learn is not None:
        return out, missing
    if missing is not None and isinstance(query.fill, Fraction):  # what stands for a reading is added up, too
        out[missing] = int(query.fill * query.ticks)
        missing = np.zeros_like(missing)
    above = None if missing is None else query.levels.expanded(missing.astype(np.int64)) > 0
    return np.ascontiguousarray(query.levels.expanded(out)), above


def _bounded(query: Query, rows: pl.DataFrame, steps: Matrix) -> Mask:
    """Which rows of units count; steps must not decrease."""
    values = rows["value"].to_numpy() if "value" in rows.columns else _NOTHING
    times, units, columns = rows["time"].to_numpy(), unit_codes(rows["unit"]), rows["column"].to_numpy()
    distinct = query.aggregate == "distinct"
    return bounded(steps, times, units, columns, values, query.most, distinct, query.counted)


def needed(query: Query, rows: pl.DataFrame, steps: Matrix) -> tuple[pl.DataFrame, Matrix]:
    """The rows without which the vectors of their steps would be others, whatever rows may still come.

    Of a unit that is at most `most` rows in a step, of a given reading the last one. Records that are units of their own
    are merged: one row per step and column, which says for how many it stands. So what is held of open steps is bounded
    by the number of units or columns, and not by how much is sent. Only while a clip is learned all records are held.
    """
    if query.discovers:
        found = _first_occurrences(query, rows, steps)
        return found.select(rows.columns), found["step"].to_numpy()
    if query.aggregate != "given" and "unit" not in rows.columns:
        return (rows, steps) if query.learn is not None else _merged(rows, steps)
    if not never_decreases(steps):
        order = np.argsort(steps, kind="stable")
        rows, steps = rows[order], steps[order]
    if query.aggregate == "given":
        cells = pl.DataFrame({"step": steps, "column": rows["column"]})
        kept = cells.select(pl.struct("step", "column").is_last_distinct()).to_series().to_numpy()
    else:
        kept = _bounded(query, rows, steps)
    return (rows, steps) if kept.all() else (rows.filter(kept), steps[kept])


def with_records(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that say for how many records each stands; those that do not say it stand for one."""
    if RECORDS in rows.columns:
        return rows
    return rows.with_columns(pl.lit(1, dtype=pl.Int64).alias(RECORDS))


def _merged(rows: pl.DataFrame, steps: Matrix) -> tuple[pl.DataFrame, Matrix]:
    """Records that are units of their own, as one row per step and column: their number, and the sum of their values."""
    rows = with_records(rows)
    sums = [pl.col(name).sum() for name in ("value", RECORDS) if name in rows.columns]
    found = (
        rows.with_columns(pl.Series("step", steps))
        .group_by("step", "column", maintain_order=True)
        .agg(pl.col("time").min(), *sums)
        .sort("step", maintain_order=True)
    )
    return found.select(rows.columns), found["step"].to_numpy()
