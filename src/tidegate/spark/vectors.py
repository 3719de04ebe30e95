"""The small matrix that the driver gets, as blocks of closed steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from tidegate.config import Config
from tidegate.ingest import StepBlock
from tidegate.ingest.aggregate import Mask, Matrix, expanded, valued
from tidegate.ingest.blocks import block_steps
from tidegate.ingest.combined_query import fill
from tidegate.ingest.errors import RepeatedReading
from tidegate.ingest.query import Query
from tidegate.ingest.sources.source import Position

Cells = Mapping[str, Matrix]  # part, step, column, n and value of each cell that has contributions


def collected(cells: DataFrame) -> Cells:
    """The cells of some steps, on the driver."""
    table = cells.toArrow()
    return {name: table.column(name).to_numpy().astype(np.int64) for name in table.column_names}


def blocks(
    parts: Sequence[Config], cells: Cells, first: int, last: int, source: Position, *, finite: bool
) -> Iterator[list[StepBlock]]:
    """Blocks for each query, in the order of their names, that end at public steps, for all steps of a range."""
    size = block_steps(sum(part.query.width for part in parts), follow=not finite)
    order = np.argsort(cells["step"], kind="stable")
    ordered = {name: values[order] for name, values in cells.items()}
    while first <= last:
        end = min(-(-first // size) * size, last)
        low, high = np.searchsorted(ordered["step"], [first, end + 1])
        found = {name: values[low:high] for name, values in ordered.items()}
        made = []
        for number, part in enumerate(parts):
            own = found["part"] == number
            units, missing = _vectors(
                part.query,
                {name: values[own] for name, values in found.items()},
                first,
                end - first + 1,
                finite=finite,
            )
            missing = fill(part.query, units, missing, first)
            position: dict[str, Any] = {"step": end, "source": source}
            made.append(StepBlock(first, units, Fraction(part.query.grid), position, missing))
        yield made
        first = end + 1


def _vectors(
    query: Query, cells: Cells, first: int, count: int, *, finite: bool
) -> tuple[Matrix, Mask | None]:
    """What `tidegate.ingest.aggregate.step_vectors` makes of the same contributions."""
    out = np.zeros((count, query.counted), dtype=np.int64)
    at, column = cells["step"] - first, cells["column"]
    if query.aggregate == "given":
        if finite and (cells["n"] > 1).any():
            raise RepeatedReading(
                "two readings fall into one step and column; aggregate the input first or use shorter steps."
            )
        missing = np.ones(out.shape, dtype=np.bool_)
        out[at, column], missing[at, column] = cells["value"], False
        return expanded(query, out, missing)
    out[at, column] = cells["value"] if valued(query) else cells["n"] * query.weight
    if query.aggregate == "mean":
        out[at, out.shape[1] // 2 + column] = cells["n"] * query.count_weight
    return expanded(query, out, None)
