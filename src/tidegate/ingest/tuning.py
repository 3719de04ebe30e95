"""One value of each unit for each parameter that is to be chosen, so that a unit changes one cell of a histogram by 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.clock.steps import Steps
from tidegate.ingest.aggregate import chosen, column_numbers, valued
from tidegate.ingest.columns import Intervals, numbers
from tidegate.ingest.query import Query
from tidegate.ingest.schema import Schema, TextUnits
from tidegate.ingest.sources.source import EventBatch, EventSource
from tidegate.ingest.times import TimeReader

Floats = npt.NDArray[np.float64]
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
TOTALS = tuple(2.0**power for power in range(21))  # contributions of a unit to the whole input


class Trait(NamedTuple):
    """What is looked at of each unit: a name, one number a unit, and the public upper ends of the cells."""

    name: str
    values: Floats
    ends: tuple[float, ...]

    def cells(self) -> npt.NDArray[np.int64]:
        """How many units are in each cell; what is above the last end is in the last cell."""
        places = np.minimum(np.searchsorted(self.ends, self.values), len(self.ends) - 1)
        return np.bincount(places, minlength=len(self.ends)).astype(np.int64)


def ladder(least: float, most: float) -> tuple[float, ...]:
    """Round numbers from a resolution to a largest value: 1, 2, 5, 10, 20 and so on.

    Examples
    --------
    >>> ladder(0.5, 30)
    (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    """
    power = int(np.floor(np.log10(least)))
    found: list[float] = []
    while not found or found[-1] < most:
        found += [value for step in (1, 2, 5) if (value := float(f"{step}e{power}")) >= least]
        power += 1
    return tuple(found[: 1 + next(place for place, value in enumerate(found) if value >= most)])


def traits(source: EventSource, schema: Schema, steps: Steps, query: Query, largest: float) -> list[Trait]:
    """Read a finite source and say of every unit what choosing parameters needs; a bad field is a missing one.

    Parameters
    ----------
    source, schema, steps, query
        As for an intake; the query's own bounds are not used.
    largest
        The largest absolute value that is thought of: public.
    """
    table = _collected(source.batches(), schema, steps, query)
    per_step = table.group_by("unit", "step")
    # a unit is counted once in a column, or for every event
    often = per_step.agg(pl.col("column").n_unique() if query.aggregate == "distinct" else pl.len())
    often = often.rename({often.columns[-1]: "often"})
    by_unit = often.group_by("unit").agg(
        pl.col("often").max().alias("most"), pl.col("often").sum().alias("all")
    )
    values: dict[str, Floats] = {
        "most": by_unit["most"].cast(pl.Float64).to_numpy(),
        "total": by_unit["all"].cast(pl.Float64).to_numpy(),
    }
    if "value" in table.columns:
        with_values = table.drop_nulls("value").group_by("unit")
        found = with_values.agg(
            pl.col("value").median().alias("edges"),
            pl.col("value").max().alias("high"),
            (-pl.col("value").min()).alias("low"),
        )
        values["edges"] = found["edges"].to_numpy()
        values |= {name: np.maximum(found[name].to_numpy(), 0.0) for name in ("high", "low")}
    return [Trait(name, values[name], ends) for name, ends in cells(schema, query, largest).items()]


def cells(schema: Schema, query: Query, largest: float) -> dict[str, tuple[float, ...]]:
    """The upper ends of each histogram's cells: public, whatever the data are."""
    found: dict[str, tuple[float, ...]] = {"most": tuple(map(float, COUNTS)), "total": TOTALS}
    if schema.value is None:
        return found
    ends = ladder(float(1 / query.ticks), largest)
    if isinstance(query.columns, Intervals):
        return {**found, "edges": (*(-end for end in reversed(ends)), 0.0, *ends)}
    if valued(query):
        return {**found, "high": (0.0, *ends), "low": (0.0, *ends)}
    return found


def _collected(batches: Iterable[EventBatch], schema: Schema, steps: Steps, query: Query) -> pl.DataFrame:
    """All records that would count, as unit, step, column and value."""
    times, units = TimeReader(schema.time_format, steps.zone, lenient=True), TextUnits()
    kinds: dict[str, Any] = {"unit": pl.String, "step": pl.Int64, "column": pl.Int64}
    if schema.value is not None:
        kinds["value"] = pl.Float64
    parts, before = [pl.DataFrame(schema=kinds)], 0
    for batch in batches:
        frame = chosen(query, batch.frame, lenient=True)
        moments = times.read(frame[schema.time]).fill_null(-(2**62)).to_numpy()
        part: dict[str, Any] = {
            "unit": pl.int_range(before, before + len(frame), eager=True)  # every record is a unit of its own
            if schema.unit is None
            else units.read(frame[schema.unit]),
            "step": steps.numbers(moments),
            "column": column_numbers(query, frame, schema),
        }
        if schema.value is not None:
            part["value"] = numbers(frame[schema.value], schema.value, lenient=True)
        rows = pl.DataFrame(part).cast(pl.Schema(kinds)).drop_nulls(["unit", "column"])
        parts.append(rows.filter(pl.col("step") >= 1))
        before += len(frame)
    return pl.concat(parts)
