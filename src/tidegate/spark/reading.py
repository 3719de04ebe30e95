"""From records to rows, in the Python of an executor: the same code that reads files, topics and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidegate.clock.steps import Steps
from tidegate.config import Queries
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.ingest import Query, Schema
from tidegate.ingest.active_units import longest_over
from tidegate.ingest.aggregate import read_rows, valued
from tidegate.ingest.schema import UnitReader, check_header
from tidegate.ingest.times import TimeReader

NAME = "the DataFrame"


@dataclass(frozen=True)
class Reading:
    """How records become rows of part, step, unit, time, column and value; sent to executors.

    Parameters
    ----------
    parts
        A schema and a query for each statistic, in the order of their names.
    steps
        The public clock.
    numbered
        Whether units are whole numbers, or text.
    lenient
        Whether a record that cannot be read is left out, or refuses the input.
    first
        The first step that is open; records of earlier ones are late.
    furthest
        The last step of which records are taken; None where all steps are over.
    """

    parts: tuple[tuple[Schema, Query], ...]
    steps: Steps
    numbered: bool
    lenient: bool
    first: int = 1
    furthest: int | None = None

    @property
    def with_units(self) -> bool:
        """Whether records belong to units."""
        return self.parts[0][0].unit is not None and self.parts[0][1].aggregate != "given"

    @property
    def with_values(self) -> bool:
        """Whether one of the queries adds up values."""
        return any(valued(query) for _, query in self.parts)

    @property
    def columns(self) -> str:
        """The rows' columns, as Spark writes them."""
        unit = f"unit {'bigint' if self.numbered else 'string'}, " if self.with_units else ""
        return f"part int, step bigint, {unit}time bigint, column int" + (", value bigint" * self.with_values)

    def rows(self, batches: Iterable[pa.RecordBatch], refuse: Any = None) -> Iterator[pa.RecordBatch]:
        """Rows of the records that count.

        Parameters
        ----------
        batches
            Records with the needed columns.
        refuse
            Called with the sentence that refuses a finite input; then there are no more rows.
        """
        times, units = TimeReader(self.parts[0][0].time_format, self.steps.zone), UnitReader()
        for batch in batches:
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            for number in range(len(self.parts)):
                try:
                    found = self._rows(number, frame, times, units)
                except TidegateError as error:
                    if refuse is None:
                        raise
                    refuse(str(error))
                    return
                yield from self._sent(found)

    def _rows(self, number: int, frame: pl.DataFrame, times: TimeReader, units: UnitReader) -> pl.DataFrame:
        schema, query = self.parts[number]
        if self.lenient:  # nothing is remembered from one record to the next
            times, units = TimeReader(schema.time_format, self.steps.zone, lenient=True), UnitReader()
        rows = read_rows(query, frame, schema, times, units, lenient=self.lenient)
        steps = self.steps.numbers(rows["time"].to_numpy())
        counts = (steps >= self.first) & (rows["column"].to_numpy() >= 0)
        if self.furthest is not None:
            counts &= steps <= self.furthest
        rows = rows.with_columns(part=pl.lit(number, dtype=pl.Int32), step=pl.Series(steps)).filter(counts)
        if self.with_values and "value" not in rows.columns:
            rows = rows.with_columns(value=pl.lit(0, dtype=pl.Int64))
        return rows

    def _sent(self, rows: pl.DataFrame) -> list[pa.RecordBatch]:
        kinds = {"part": pa.int32(), "column": pa.int32()}
        if self.with_units and not self.numbered:
            kinds["unit"] = pa.string()
        names = [field.split()[0] for field in self.columns.split(", ")]
        table = rows.select(names).to_arrow(compat_level=pl.CompatLevel.oldest())
        return table.cast(pa.schema([(name, kinds.get(name, pa.int64())) for name in names])).to_batches()


def reading_of(queries: Queries, events: DataFrame, *, lenient: bool) -> Reading:
    """How the records of a DataFrame are read; refuses one that lacks a column or has it in a type that nobody reads."""
    if len(queries.editions) > 1:
        raise InvalidParameter(
            "editions", len(queries.editions), "absent with Spark, which closes a step once", "drop them"
        )
    learning = [part.name for part in queries.parts if part.query.learn is not None]
    if learning:
        raise InvalidParameter(
            "clip",
            "learn",
            "bounds with Spark, whose executors add values up before a threshold is known",
            "write clip = [0, 100], or release from files",
        )
    if any(part.query.discovers for part in queries.parts):
        raise InvalidParameter(
            "columns",
            "discover",
            "a list of names with Spark, whose executors count records before a category is known",
            "list the columns, or release from files",
        )
    if queries.first.query.requirements is not None:
        raise InvalidParameter(
            "requirements", "given", "absent for events that Spark reads", "drop them, or release from files"
        )
    over = longest_over(queries.counted)
    if over > 1:
        raise InvalidParameter("over", over, "absent for events that Spark reads", "drop it")
    ordered = sorted(queries.parts, key=lambda part: part.name)
    parts = tuple((part.schema, part.query) for part in ordered)
    needed = needed_by(parts)
    check_header(list(dict.fromkeys(events.columns)), needed, NAME)
    arrow = _arrow(events.select(*(column_named(name) for name in needed)).schema)
    unit = parts[0][0].unit
    numbered = unit is not None and unit in needed and pa.types.is_integer(arrow.field(unit).type)
    found = Reading(parts, queries.first.steps, numbered, lenient)
    for batch in pa.Table.from_batches([], arrow).to_batches() or [pa.RecordBatch.from_pylist([], arrow)]:
        strict = Reading(parts, queries.first.steps, numbered, lenient=False)
        list(strict.rows([batch]))
    return found


def _arrow(schema: StructType) -> pa.Schema:
    """The types in which records come to Python; version 4.2 of Spark takes no zone."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)


def needed_by(parts: Iterable[tuple[Schema, Query]]) -> tuple[str, ...]:
    """The columns of the input that are read."""
    names = [name for schema, query in parts for name in (schema.time, *query.needed(schema))]
    return tuple(dict.fromkeys(names))


def selected(reading: Reading, events: DataFrame) -> DataFrame:
    """The needed columns of a DataFrame, whatever is in their names."""
    return events.select(*(column_named(name) for name in needed_by(reading.parts)))


def column_named(name: str) -> Column:
    """A column of a DataFrame, whatever is in its name."""
    return sql.col("`" + name.replace("`", "``") + "`")
