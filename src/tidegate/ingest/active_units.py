"""Records that count at several steps: a unit is active at a step if it was seen in the last `over` steps.

Every row stands at each step that counts it. So a step is closed, bounded and read again after a restart like any other,
and nothing is remembered from one step to the next.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.ingest.aggregate import Matrix
from tidegate.ingest.combined_query import CombinedQuery, needed
from tidegate.ingest.query import Query


def longest_over(query: Query | CombinedQuery) -> int:
    """The most steps at which a record counts."""
    return max(part.over for _, part in query.parts) if isinstance(query, CombinedQuery) else query.over


def spread(
    query: Query | CombinedQuery, rows: pl.DataFrame, numbers: Matrix, first: int, last: int
) -> tuple[pl.DataFrame, Matrix]:
    """Rows at every step from `first` to `last` that counts them; those of records before the first step count nowhere.

    Parameters
    ----------
    query
        What is counted.
    rows, numbers
        Rows, and the step of the record of each.
    first, last
        The steps that are still open.
    """
    if not isinstance(query, CombinedQuery):
        return _spread(query, rows, numbers, first, last)
    found = [_spread(part, own, steps, first, last) for part, own, steps in query.split(rows, numbers)]
    pieces = [query.together(number, own) for number, (own, _) in enumerate(found) if len(own)]
    steps = np.concatenate([steps for _, steps in found])
    return (pl.concat(pieces, how="diagonal") if pieces else rows.clear()), steps


def _spread(
    query: Query, rows: pl.DataFrame, numbers: Matrix, first: int, last: int
) -> tuple[pl.DataFrame, Matrix]:
    counts = (numbers >= 1) & (numbers + query.over > first) & (numbers <= last)
    rows, numbers = rows.filter(counts), numbers[counts]
    if query.over == 1 or not len(rows):
        return rows, numbers
    # what a unit's own step leaves out, no step that counts it would take in: of all its rows these are not the first
    rows, numbers = needed(query, rows, numbers)
    at = np.repeat(np.arange(len(numbers)), query.over)
    steps = (numbers[:, np.newaxis] + np.arange(query.over)).ravel()
    open_ = (steps >= first) & (steps <= last)
    return rows[at[open_]], steps[open_]
