from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ingest import Columns, Query, Schema, combined_query
from tidegate.ingest.aggregate import Matrix, needed, step_vectors
from tidegate.ingest.checkpoint import packed, unpacked
from tidegate.ingest.combined_query import CombinedQuery
from tidegate.ingest.pending_rows import PendingRows
from tidegate.ingest.schema import TextUnits
from tidegate.ingest.times import TimeReader

batches = st.lists(st.lists(st.integers(1, 6), max_size=4), max_size=20)


@given(batches, st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_nothing_open_is_behind_the_position(found: list[list[int]], closes: list[int]) -> None:
    """Closing takes each row once, and the position is before every batch with an open row, and tight."""
    held = PendingRows()
    for number, steps in enumerate(found):
        held.add(pl.DataFrame({"time": steps}), np.array(steps, dtype=np.int64), {"batch": number})
    taken: list[int] = []
    for last in sorted(closes):
        rows, position = held.close(last, {"batch": len(found)})
        taken += [int(step) for _, numbers in rows for step in numbers]
        still_open = [number for number, steps in enumerate(found) if steps and max(steps) > last]
        assert position == {"batch": min(still_open, default=len(found))}
    everything = [step for steps in found for step in steps if step <= max(closes)]
    assert sorted(taken) == sorted(everything)
    assert len(held._marks) <= 6
    assert len(held._rows) <= 6


QUERIES = [
    Query(aggregate="count", columns=Columns(("a", "b", "c")), most=2),
    Query(aggregate="distinct", columns=Columns(("a", "b", "c")), most=2),
    Query(aggregate="sum", columns=Columns(("a", "b", "c")), most=2, clip=("-5", "5")),
    Query(aggregate="mean", columns=Columns(("a", "b", "c")), most=1, clip=("-5", "5")),
    Query(aggregate="given", columns=Columns(("a", "b", "c")), fill="zero"),
]
events = st.tuples(
    st.integers(1, 3), st.integers(0, 3), st.sampled_from("uvw"), st.integers(-1, 2), st.integers(-5, 5)
)


def rows_of(query: Query, found: list[tuple[int, int, str, int, int]]) -> tuple[pl.DataFrame, Matrix]:
    """Rows as ingest makes them, and their steps."""
    steps, times, units, columns, values = zip(*found, strict=True) if found else ((), (), (), (), ())
    parts = {
        "time": pl.Series(times, dtype=pl.Int64),
        "unit": pl.Series(units, dtype=pl.String),
        "value": pl.Series(values, dtype=pl.Int64),
        "column": pl.Series(columns, dtype=pl.Int32),
    }
    if query.aggregate == "given":
        del parts["unit"]
    if query.aggregate in ("count", "distinct"):
        del parts["value"]
    return pl.DataFrame(parts), np.array(steps, dtype=np.int64)


@given(st.sampled_from(QUERIES), st.lists(st.lists(events, max_size=8), max_size=10))
def test_what_is_left_out_makes_no_difference(
    query: Query, found: list[list[tuple[int, int, str, int, int]]]
) -> None:
    """The vectors of what is held are those of everything that came, and no more is held than they need."""
    held = PendingRows(lambda rows, numbers: needed(query, rows, numbers))
    for batch in found:
        held.add(*rows_of(query, batch), {})
    pieces, _ = held.close(3, None)
    rows, numbers = rows_of(query, [event for batch in found for event in batch])
    whole, _ = step_vectors(query, rows, numbers, 1, 3, finite=False)
    if pieces:
        frame = pl.concat([piece for piece, _ in pieces])
        kept, _ = step_vectors(query, frame, np.concatenate([n for _, n in pieces]), 1, 3, finite=False)
        np.testing.assert_array_equal(kept, whole)
    most = 3 * (4 if query.aggregate == "given" else 3 * query.most)
    assert sum(len(n) for _, n in pieces) <= 2 * most


def test_repeats_of_one_unit_take_no_room() -> None:
    """A million events of a few units, whatever their order: what is held does not grow with them."""
    query = QUERIES[0]
    held = PendingRows(lambda rows, numbers: needed(query, rows, numbers))
    rng = np.random.default_rng(1)
    largest = 0
    for _ in range(100):
        rows = pl.DataFrame(
            {
                "time": rng.integers(0, 10**6, 10_000),
                "unit": pl.Series(rng.integers(0, 5, 10_000)).cast(pl.String),
                "column": np.zeros(10_000, dtype=np.int32),
            }
        )
        held.add(rows, np.ones(10_000, dtype=np.int64), {})
        largest = max(largest, len(held))
    assert largest <= 4 * 5 * query.most


WITHOUT_UNITS = [
    Query(aggregate="count", columns=Columns(("a", "b", "c"))),
    Query(aggregate="sum", columns=Columns(("a", "b", "c")), clip=("-5", "5")),
    Query(aggregate="mean", columns=Columns(("a", "b", "c")), clip=("-5", "5")),
]


@given(st.sampled_from(WITHOUT_UNITS), st.lists(st.lists(events, max_size=8), max_size=10))
def test_records_without_units_are_merged(
    query: Query, found: list[list[tuple[int, int, str, int, int]]]
) -> None:
    """The vectors are those of all records, also after rows were stored, and one row per step and column is held."""
    held = PendingRows(lambda rows, numbers: needed(query, rows, numbers))
    for batch in found:
        rows, numbers = rows_of(query, batch)
        rows, numbers = held.add(rows.drop("unit"), numbers, {})
        for step, entry in packed(rows, numbers):
            assert unpacked(entry).equals(rows.filter(numbers == step))
    assert len(held) <= 2 * 3 * 4
    pieces, _ = held.close(3, None)
    rows, numbers = rows_of(query, [event for batch in found for event in batch])
    whole, _ = step_vectors(query, rows.drop("unit"), numbers, 1, 3, finite=False)
    if pieces:
        frame = pl.concat([piece for piece, _ in pieces])
        kept, _ = step_vectors(query, frame, np.concatenate([n for _, n in pieces]), 1, 3, finite=False)
        np.testing.assert_array_equal(kept, whole)


def test_records_without_units_take_no_room() -> None:
    """A million records of two queries beside each other: what is held does not grow with them."""
    schema = Schema(time="time", column="column", value="value")
    query = CombinedQuery(((schema, WITHOUT_UNITS[0]), (schema, WITHOUT_UNITS[1])))
    held = PendingRows(lambda rows, numbers: combined_query.needed(query, rows, numbers))
    rng = np.random.default_rng(1)
    total = np.zeros(6, dtype=np.int64)
    for _ in range(50):
        frame = pl.DataFrame(
            {
                "time": rng.integers(0, 10**6, 10_000),
                "column": rng.choice(["a", "b", "c"], 10_000),
                "value": rng.integers(-9, 9, 10_000),
            }
        )
        rows = combined_query.read_rows(query, frame, schema, TimeReader("nanoseconds"), TextUnits())
        steps = np.ones(len(rows), dtype=np.int64)
        total += combined_query.step_vectors(query, rows, steps, 1, 1)[0][0]
        held.add(rows, steps, {})
        assert len(held) <= 12
    pieces, _ = held.close(1, None)
    frame, steps = pl.concat([rows for rows, _ in pieces]), np.concatenate([at for _, at in pieces])
    np.testing.assert_array_equal(combined_query.step_vectors(query, frame, steps, 1, 1)[0][0], total)
