"""Records to rows inside of the JVM, where a few expressions do what the Python of an executor would.

Handing each record to Python and back costs more than bounding it does. Moments, plain text and whole numbers leave
nothing to interpret: nothing of them can be refused, and the rows are those of :meth:`Reading.rows`, which tests compare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tidegate.clock.steps import Steps
from tidegate.ingest import Columns, Query, Schema
from tidegate.ingest.columns import OTHER
from tidegate.spark.reading import Reading, column_named, selected

FEW = 64  # names of columns; each is compared, so that more of them are quicker to look up in Python
_NUMBERS = (ByteType, ShortType, IntegerType, LongType)


def understood(reading: Reading, fields: StructType) -> bool:
    """Whether expressions say the same of these fields as Python would."""
    if reading.steps.calendar:
        return False
    kinds = {field.name: field.dataType for field in fields}
    return all(_understood(schema, query, kinds) for schema, query in reading.parts)


def _understood(schema: Schema, query: Query, kinds: dict[str, DataType]) -> bool:
    if query.aggregate not in ("count", "distinct") or query.where is not None or query.lookup is not None:
        return False
    if not isinstance(query.columns, Columns) or len(query.columns.names) > FEW:
        return False
    # text with a collation of its own is not equal to StringType()
    unit = (
        schema.unit is None or kinds[schema.unit] == StringType() or isinstance(kinds[schema.unit], _NUMBERS)
    )
    column = schema.column is None or kinds[schema.column] == StringType()
    return unit and column and kinds[schema.time] == TimestampType()


def mapped(reading: Reading, events: DataFrame, refuse: Callable[[str], None] | None = None) -> DataFrame:
    """Rows of the records that count, of all statistics: made in the JVM where it understands them, else in Python."""
    records = selected(reading, events)
    if not understood(reading, records.schema):
        return in_python(reading, records, refuse)
    found = [_rows(reading, number, records) for number in range(len(reading.parts))]
    return reduce(DataFrame.unionAll, found)


def in_python(reading: Reading, records: DataFrame, refuse: Callable[[str], None] | None = None) -> DataFrame:
    """The same rows, made by executors; a name that Spark could not hand over comes back as it was."""
    names = records.columns
    numbered = records.toDF(*(f"field_{number}" for number in range(len(names))))
    return numbered.mapInArrow(
        lambda batches: reading.rows((batch.rename_columns(names) for batch in batches), refuse),
        reading.columns,
    )


def _rows(reading: Reading, number: int, events: DataFrame) -> DataFrame:
    schema, query = reading.parts[number]
    moment = sql.unix_micros(column_named(schema.time))
    wanted = {"part": sql.lit(number), "step": _step(reading.steps, moment)}
    if reading.with_units:
        assert schema.unit is not None
        unit = column_named(schema.unit)
        wanted["unit"] = unit.cast("bigint") if reading.numbered else unit
    wanted["time"] = moment
    wanted["column"] = _column(schema, query)
    counts = (sql.col("step") >= reading.first) & (sql.col("column") >= 0)
    if reading.with_units:
        counts &= sql.col("unit").isNotNull()
    if reading.furthest is not None:
        counts &= sql.col("step") <= reading.furthest
    return events.select(*(column.alias(name) for name, column in wanted.items())).where(counts)


def _step(steps: Steps, moment: Column) -> Column:
    """The step of a moment, as `Steps.numbers` has it; none where it is outside, compared before any arithmetic."""
    length = steps.boundary(2) - steps.boundary(1)
    whole = sql.call_function("div", moment - sql.lit(steps.origin), sql.lit(length))
    return sql.when((moment >= steps.origin) & (moment < steps.end), whole + 1)


def _column(schema: Schema, query: Query) -> Column:
    """The number of a record's column, as `Columns.indices` has it; −1 for a record to be dropped."""
    assert isinstance(query.columns, Columns)
    if schema.column is None:
        return sql.lit(0)
    names = query.columns.names
    rest = len(names) if query.columns.outside == OTHER else -1
    place = sql.array_position(sql.array(*map(sql.lit, names)), column_named(schema.column))
    return sql.when(place > 0, place.cast("int") - 1).otherwise(rest)
