"""Contributions bounded in the JVM: the first m of a unit in a step, by the rule of `tidegate.ingest.bounding`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tidegate.ingest import Query
from tidegate.ingest.aggregate import valued
from tidegate.spark.reading import Reading

_SMALL_MAP = "spark.sql.codegen.aggregate.map.twolevel.enabled"
_FITS = 2**62  # time and column go into one number where they are below this


@contextmanager
def one_map(session: SparkSession) -> Iterator[None]:
    """Group without the small map that Spark fills first: it holds few of many units, and is asked for all of them."""
    before = session.conf.get(_SMALL_MAP)
    session.conf.set(_SMALL_MAP, "false")
    try:
        yield
    finally:
        session.conf.set(_SMALL_MAP, str(before))


def condensed(reading: Reading, rows: DataFrame) -> DataFrame:
    """The rows without which the vectors of their steps would be others, whatever rows may still come.

    Of a unit that is at most `most` rows in a step; where every record is a unit, one row for each column; of given
    readings the last one. Condensing what is condensed, together with more rows, gives what condensing all of it does.
    """
    if "n" not in rows.columns:
        rows = rows.withColumn("n", sql.lit(1).cast("bigint"))
    for name, kind in (("unit", "string"), ("value", "bigint")):
        if name not in rows.columns:
            rows = rows.withColumn(
                name, sql.lit(None).cast(kind) if name == "unit" else sql.lit(0).cast(kind)
            )
    found = []
    for number, (_, query) in enumerate(reading.parts):
        own = rows if len(reading.parts) == 1 else rows.where(sql.col("part") == number)
        if query.aggregate == "given":
            kept = _last(own)
        elif reading.with_units:
            kept = _first(query, own, reading)
        else:
            kept = own.groupBy("step", "column").agg(sql.sum("n").alias("n"), sql.sum("value").alias("value"))
        found.append(_shaped(kept, number, reading))
    return reduce(DataFrame.unionByName, found)


def counted(condensed_rows: DataFrame, reading: Reading) -> DataFrame:
    """How many contributions each cell has, and their sum; of given readings, how many there were and the last."""
    if reading.parts[0][1].aggregate == "given":
        return condensed_rows.select("part", "step", "column", "n", "value")
    cells = condensed_rows.groupBy("part", "step", "column")
    return cells.agg(sql.sum("n").alias("n"), sql.sum("value").alias("value"))


def _shaped(kept: DataFrame, number: int, reading: Reading) -> DataFrame:
    """The same columns, whatever was condensed."""
    wanted = {"part": sql.lit(number).cast("int"), "step": sql.col("step")}
    has = set(kept.columns)
    unit = "bigint" if reading.numbered else "string"
    wanted["unit"] = sql.col("unit") if "unit" in has else sql.lit(None).cast(unit)
    wanted["time"] = sql.col("time") if "time" in has else sql.lit(0).cast("bigint")
    wanted["column"] = sql.col("column").cast("int")
    for name, default in (("value", 0), ("n", 1)):
        wanted[name] = sql.col(name) if name in has else sql.lit(default).cast("bigint")
    return kept.select(*(column.alias(name) for name, column in wanted.items()))


def _last(rows: DataFrame) -> DataFrame:
    """The last reading of each cell: by time, and at equal times the larger one, since rows have no order."""
    last = sql.max(sql.struct("time", "value")).alias("last")
    kept = rows.groupBy("step", "column").agg(last, sql.sum("n").alias("n"))
    return kept.select("step", "last.time", "column", "last.value", "n")


def _first(query: Query, rows: DataFrame, reading: Reading) -> DataFrame:
    """The first contributions of each unit: by time, then by column, then by value."""
    distinct, width = query.aggregate == "distinct", len(query.columns)
    if distinct and query.most > 1:
        rows = rows.groupBy("step", "unit", "column").agg(sql.min("time").alias("time"))
        if query.most >= width:
            return rows
    of_unit = rows.groupBy("step", "unit")
    if valued(query) or not _packs(reading, width):
        order = sql.struct("time", "column", *(["value"] if "value" in rows.columns else []))
        return _least(of_unit, order, query.most).select("step", "unit", "kept.*")
    order = sql.col("time") * width + sql.col("column")
    kept = _least(of_unit, order, query.most)
    column = sql.pmod(sql.col("kept"), sql.lit(width))
    return kept.select(
        "step",
        "unit",
        sql.expr(f"(kept - pmod(kept, {width})) div {width}").alias("time"),
        column.alias("column"),
    )


def _least(of_unit: object, order: Column, most: int) -> DataFrame:
    """The least entries of each group; memory for so many of each, however many there are."""
    if most == 1:
        return of_unit.agg(sql.min(order).alias("kept"))  # type: ignore[attr-defined,no-any-return]
    kept = of_unit.agg(sql.min_by(order, order, most).alias("all"))  # type: ignore[attr-defined]
    return kept.select("step", "unit", sql.explode("all").alias("kept"))  # type: ignore[no-any-return]


def _packs(reading: Reading, width: int) -> bool:
    """Whether every time that counts, and a column, go into one whole number, which is quicker to compare."""
    lasts = [last for last in (reading.steps.count, reading.furthest) if last is not None]
    ends = [reading.steps.boundary(last + 1) for last in lasts]
    return bool(ends) and max(abs(min(ends)), abs(reading.steps.origin)) * width < _FITS
