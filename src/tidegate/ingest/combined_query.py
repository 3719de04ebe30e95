"""Several queries over one pass of a source: their rows travel together, and come apart where steps are added up.

A record becomes one row for each query that reads it. Which query a row belongs to is part of its column: the columns of
the queries lie side by side, each query's after one place for records in none of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest import aggregate
from tidegate.ingest.aggregate import CATEGORY, Mask, Matrix
from tidegate.ingest.blocks import StepBlock
from tidegate.ingest.columns import Columns
from tidegate.ingest.condition import Condition
from tidegate.ingest.errors import MissingReading
from tidegate.ingest.query import MISSING, Query
from tidegate.ingest.schema import Schema, UnitReader
from tidegate.ingest.times import TimeReader

_MOST_COLUMNS = 2**30


@dataclass(frozen=True)
class CombinedQuery:
    """Several queries of one stream.

    Parameters
    ----------
    parts
        A schema and a query each; the schemas differ in nothing but the columns of category and value.

    Examples
    --------
    >>> from tidegate.ingest import Query, Schema
    >>> schema = Schema(time="time", unit="customer", value="amount")
    >>> orders, revenue = Query(aggregate="count"), Query(aggregate="sum", clip=("0", "50"))
    >>> CombinedQuery(((schema, orders), (schema, revenue))).width
    2
    """

    parts: tuple[tuple[Schema, Query], ...]

    def __post_init__(self) -> None:
        if not self.parts or len({(schema.time, schema.unit) for schema, _ in self.parts}) > 1:
            raise InvalidParameter(
                "parts", len(self.parts), "queries of one column of times and one of units", "use one source"
            )
        if len({query.aggregate == "given" for _, query in self.parts}) > 1:
            raise InvalidParameter(
                "aggregate", "given", "that of all queries or of none", "give readings a stream of their own"
            )
        if self.width > _MOST_COLUMNS:
            raise InvalidParameter(
                "columns", self.width, f"at most {_MOST_COLUMNS} together", "group some of them"
            )

    @property
    def aggregate(self) -> str:
        """Whether the input is already aggregated ("given")."""
        return "given" if self.parts[0][1].aggregate == "given" else "several"

    @property
    def width(self) -> int:
        """The number of columns of all queries."""
        return sum(query.width for _, query in self.parts)

    @cached_property
    def places(self) -> Matrix:
        """Where the columns of each query begin among those of all rows; the place before is for records in none."""
        sizes = [1 + max(query.width, len(query.columns)) for _, query in self.parts]
        return np.cumsum([0, *sizes], dtype=np.int64)

    def needed(self, schema: Schema) -> tuple[str, ...]:
        """The columns of the input that are read."""
        names = [schema.time, *(name for own, query in self.parts for name in query.needed(own))]
        return tuple(dict.fromkeys(names))

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema that lacks what one of the queries needs."""
        for own, query in self.parts:
            query.check_schema(own)

    def apart(self, block: StepBlock) -> tuple[StepBlock, ...]:
        """The steps of each query, out of a block of all of them."""
        found, begin = [], 0
        for number, (_, query) in enumerate(self.parts):
            end = begin + query.width
            missing = None if block.missing is None else block.missing[:, begin:end]
            if missing is not None and not missing.any():
                missing = None
            units = np.ascontiguousarray(block.units[:, begin:end])
            records = {0: block.records[number]} if number in block.records else {}
            found.append(
                StepBlock(
                    block.first_step,
                    units,
                    Fraction(query.grid),
                    block.position,
                    missing,
                    block.later,
                    records,
                )
            )
            begin = end
        return tuple(found)

    def split(self, rows: pl.DataFrame, steps: Matrix) -> Iterator[tuple[Query, pl.DataFrame, Matrix]]:
        """The rows of each query, as if there were no other."""
        codes = rows["column"].to_numpy() if len(rows) else np.zeros(0, dtype=np.int32)
        for number, (_, query) in enumerate(self.parts):
            begin, end = self.places[number], self.places[number + 1]
            own = (codes >= begin) & (codes < end)
            part = rows.filter(own) if len(rows) else rows
            if len(part):
                part = part.with_columns(pl.col("column") - pl.lit(int(begin) + 1, dtype=pl.Int32))
                part = part if aggregate.valued(query) else part.drop("value", strict=False)
                part = part if query.discovers else part.drop(CATEGORY, strict=False)
            yield query, part, steps[own]

    def together(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one query, as rows among those of all."""
        at = pl.col("column").cast(pl.Int32) + pl.lit(int(self.places[number]) + 1, dtype=pl.Int32)
        more = []
        if self.any_values and "value" not in rows.columns:
            more.append(pl.lit(0, dtype=pl.Int64).alias("value"))
        if self.any_discovers and CATEGORY not in rows.columns:
            more.append(pl.lit(None, dtype=pl.String).alias(CATEGORY))
        rows = rows.with_columns(at, *more)
        return rows.select(name for name in aggregate.ROW if name in rows.columns)

    @cached_property
    def any_values(self) -> bool:
        """Whether one of the queries adds up values."""
        return any(aggregate.valued(query) for _, query in self.parts)

    @cached_property
    def any_discovers(self) -> bool:
        """Whether the categories of one of the queries are found."""
        return any(query.discovers for _, query in self.parts)


Counted = Query | CombinedQuery


def read_rows(
    query: Counted,
    frame: pl.DataFrame,
    schema: Schema,
    times: TimeReader,
    units: UnitReader,
    *,
    lenient: bool = False,
) -> pl.DataFrame:
    """A batch as rows; `lenient` leaves a record out that cannot be read, where it would be refused."""
    if isinstance(query, Query):
        return aggregate.read_rows(query, frame, schema, times, units, lenient=lenient)
    found = []
    for number, (own, each) in enumerate(query.parts):
        rows = aggregate.read_rows(each, frame, own, times, units, lenient=lenient)
        found.append(query.together(number, rows))
    order = found[0].columns
    return pl.concat([rows.select(order) for rows in found]).sort("time", maintain_order=True)


def numeric(query: Counted, schema: Schema) -> set[str]:
    """The columns of the input that are read as numbers."""
    if isinstance(query, CombinedQuery):
        return {name for own, each in query.parts for name in numeric(each, own)}
    found = set[str]()
    if query.wide and isinstance(query.columns, Columns):
        found |= set(query.columns.names)
    elif schema.value is not None:
        found.add(schema.value)
    return found | set(query.where.numeric if isinstance(query.where, Condition) else ())


def needed(query: Counted, rows: pl.DataFrame, steps: Matrix) -> tuple[pl.DataFrame, Matrix]:
    """The rows without which the vectors of their steps would be others; see `aggregate.needed`."""
    if isinstance(query, Query):
        return aggregate.needed(query, rows, steps)
    parts = []
    for number, (each, own, numbers) in enumerate(query.split(rows, steps)):
        if len(own):
            kept, at = aggregate.needed(each, own, numbers)
            parts.append((query.together(number, kept), at))
    if not parts:
        return rows[:0], steps[:0]
    if any(aggregate.RECORDS in kept.columns for kept, _ in parts):
        parts = [(aggregate.with_records(kept), at) for kept, at in parts]
    order = [name for name in (*rows.columns, aggregate.RECORDS) if name in parts[0][0].columns]
    parts = [(kept.select(list(dict.fromkeys(order))), at) for kept, at in parts]
    return pl.concat([kept for kept, _ in parts], rechunk=True), np.concatenate([at for _, at in parts])


def step_vectors(
    query: Counted, rows: pl.DataFrame, steps: Matrix, first: int, count: int, *, finite: bool = True
) -> tuple[Matrix, Mask | None]:
    """The vectors of complete steps, those of several queries side by side; see `aggregate.step_vectors`."""
    if isinstance(query, Query):
        return aggregate.step_vectors(query, rows, steps, first, count, finite=finite)
    found = [
        aggregate.step_vectors(each, own, numbers, first, count, finite=finite)
        for each, own, numbers in query.split(rows, steps)
    ]
    vectors = np.concatenate([units for units, _ in found], axis=1)
    masks = [missing for _, missing in found if missing is not None]
    return vectors, np.concatenate(masks, axis=1) if len(masks) == len(found) else None


def occurrences(query: Counted, rows: pl.DataFrame, steps: Matrix) -> dict[int, pl.DataFrame]:
    """The records of the queries whose categories are found, by their place among all; see `aggregate.occurrences`."""
    if isinstance(query, Query):
        return {0: aggregate.occurrences(rows, steps)} if query.discovers else {}
    if not query.any_discovers:
        return {}
    return {
        number: aggregate.occurrences(own, numbers)
        for number, (each, own, numbers) in enumerate(query.split(rows, steps))
        if each.discovers
    }


def fill(query: Counted, units: Matrix, missing: Mask | None, first: int) -> Mask | None:
    """Put public constants where readings are missing, or say where they are."""
    if missing is None or not missing.any():
        return None
    if isinstance(query, Query):
        return _fill(query, units, missing, first)
    begin, masks = 0, []
    for _, each in query.parts:
        part = slice(begin, begin + each.width)
        left = _fill(each, units[:, part], missing[:, part], first) if missing[:, part].any() else None
        masks.append(np.zeros_like(missing[:, part]) if left is None else left)
        begin = part.stop
    found = np.concatenate(masks, axis=1)
    return found if found.any() else None


def _fill(query: Query, units: Matrix, missing: Mask, first: int) -> Mask | None:
    if query.fill is None:
        raise MissingReading(
            f"a reading is missing between steps {first} and {first + len(units) - 1}; write "
            'fill = "missing" if it may be known which readings there are, else fill = "zero" or a constant.'
        )
    if query.fill == MISSING:
        return missing
    units[missing] = int(Fraction(query.fill) * Fraction(query.grid).denominator)
    return None
