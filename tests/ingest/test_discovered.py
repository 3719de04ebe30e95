"""Records of queries whose categories nobody has listed: what is held of open steps is enough, whatever comes."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from tidegate.ingest import CombinedQuery, Query, Schema
from tidegate.ingest.aggregate import CATEGORY, needed, occurrences
from tidegate.ingest.checkpoint import packed, unpacked
from tidegate.ingest.columns import Columns, Discovered
from tidegate.structures.category_names import each_named


def rows_of(chance: random.Random, count: int) -> tuple[pl.DataFrame, np.ndarray]:
    """Records of few units, at few times."""
    rows = pl.DataFrame(
        {
            "time": [chance.randrange(6) for _ in range(count)],
            "unit": [chance.choice("abcd") for _ in range(count)],
            "column": [0] * count,
            CATEGORY: [chance.choice(["u", "v", "w", "x", "y", ""]) for _ in range(count)],
        },
        schema_overrides={"column": pl.Int32},
    )
    return rows, np.array([chance.randrange(1, 4) for _ in range(count)], dtype=np.int64)


def used(query: Query, rows: pl.DataFrame, steps: np.ndarray) -> list[object]:
    """What the mechanism takes: the first records of each unit in a step, and the first of its categories in all."""
    assert isinstance(query.columns, Discovered)
    found = occurrences(rows, steps)
    if query.aggregate == "distinct":
        return found.unique(maintain_order=True).sort("step", "unit", maintain_order=True).rows()
    first = found.filter(pl.int_range(pl.len()).over("step", "unit") < query.most)
    named = found.filter(pl.col(CATEGORY) != "")
    epoch = named.select("unit", CATEGORY).unique(keep="first", maintain_order=True)
    own = epoch.filter(pl.int_range(pl.len()).over("unit") < query.columns.categories)
    order = {"maintain_order": True}
    return [*first.sort("step", "unit", **order).rows(), *own.sort("unit", **order).rows()]


@pytest.mark.parametrize("aggregate", ["count", "distinct"])
@pytest.mark.parametrize(("most", "categories"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_what_is_held_is_enough(aggregate: str, most: int, categories: int) -> None:
    """In pieces, each reduced when it comes and stored in between, or as a whole."""
    query = Query(aggregate=aggregate, columns=Discovered(3, categories, 8), most=most)
    chance = random.Random(most + 10 * categories)
    for _ in range(10):
        rows, steps = rows_of(chance, 60)
        held, at = rows[:0], steps[:0]
        for begin in range(0, 60, 15):
            more = (
                pl.concat([held, rows[begin : begin + 15]]),
                np.concatenate([at, steps[begin : begin + 15]]),
            )
            held, at = needed(query, *more)
            entries = [(step, unpacked(content)) for step, content in packed(held, at)]
            held = pl.concat([part for _, part in entries])
            at = np.concatenate([np.full(len(part), step) for step, part in entries])
        assert len(held) < 60
        assert used(query, held, at) == used(query, rows, steps)


def test_rows_of_queries_travel_together() -> None:
    """A category stays with its query, and rows of others have none."""
    schema = Schema(time="time", unit="unit", column="place")
    found, people = (
        Query(aggregate="count", columns=Discovered(2, 1, 8)),
        Query(columns=Columns(("all",)), aggregate="distinct"),
    )
    both = CombinedQuery(((schema, people), (schema, found)))
    rows = pl.DataFrame(
        {"time": [1, 2], "unit": ["a", "b"], "column": [0, 0], CATEGORY: ["x", ""]},
        schema_overrides={"column": pl.Int32},
    )
    together = pl.concat([both.together(0, rows.drop(CATEGORY)), both.together(1, rows)])
    stored = unpacked(next(packed(together, np.ones(4, dtype=np.int64)))[1])
    assert stored.columns == together.columns
    parts = [part for _, part, _ in both.split(stored, np.ones(4, dtype=np.int64))]
    assert CATEGORY not in parts[0].columns
    assert parts[1][CATEGORY].to_list() == ["x", ""]


def test_each_record_has_its_own_name() -> None:
    """One without a category is incomplete; one whose name is not allowed has none, and counts in the rest."""
    given = pl.Series([" bakery", "bakery", None, "other", "\u200b", "long name"])
    assert each_named(given, 6).to_list() == ["bakery", "bakery", None, "", "", "long n"]
