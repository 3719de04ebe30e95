from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest import Columns, Intervals, Query, Schema, Steps
from tidegate.ingest.aggregate import read_rows, step_vectors
from tidegate.ingest.errors import MixedTypes, NotNumeric, TooManyColumns
from tidegate.ingest.quantiles import Range
from tidegate.ingest.schema import UnitReader
from tidegate.ingest.times import TimeReader
from tidegate.policy import WEvent

NAMES = ("a", "b", "c")
STEPS = Steps(start="1970-01-01", length=10, count=4)
SCHEMA = Schema(time="time", unit="unit", column="place", value="value")
Event = tuple[int, str, str, float]  # time, unit, place, value

# few units, places and times, so that ties, duplicates and events outside are common
event = st.tuples(
    st.integers(-3, 43),
    st.sampled_from("uvw"),
    st.sampled_from([*NAMES, "elsewhere"]),
    st.sampled_from([-9.0, -1.5, -0.25, 0.0, 0.125, 0.375, 1.0, 2.5, 99.0, float("nan"), float("inf")]),
)
events = st.lists(event, max_size=25)

QUERIES = [
    Query(aggregate="count", columns=Columns(NAMES), most=1),
    Query(aggregate="count", columns=Columns(NAMES, "other"), most=3),
    Query(aggregate="count", columns=Columns(NAMES), most=3, weighting="share", grid="0.01"),
    Query(aggregate="distinct", columns=Columns(NAMES), most=1),
    Query(aggregate="distinct", columns=Columns(NAMES, "other"), most=2),
    Query(aggregate="distinct", columns=Columns(NAMES), most=9),
    Query(aggregate="sum", columns=Columns(NAMES), most=1, clip=("0", "2"), grid="0.25"),
    Query(aggregate="sum", columns=Columns(NAMES), most=2, clip=("-1", "2"), grid="0.25"),
    Query(aggregate="sum", columns=Columns(NAMES), most=3, clip=("-5", "2"), grid="0.5", weighting="share"),
    Query(aggregate="mean", columns=Columns(NAMES), most=1, clip=("-1", "2"), grid="0.25"),
    Query(aggregate="mean", columns=Columns(NAMES), most=2, clip=("0", "3"), grid="0.5", share="1/3"),
    Query(aggregate="histogram", columns=Intervals(("-1", "0", "0.375", "3"), "other"), most=2),
]


def vectors(query: Query, rows: list[Event]) -> npt.NDArray[np.int64]:
    """The four steps of a list of events, in grid units."""
    frame = pl.DataFrame(
        {name: [row[at] for row in rows] for at, name in enumerate(("time", "unit", "place", "value"))},
        schema={"time": pl.Int64, "unit": pl.String, "place": pl.String, "value": pl.Float64},
    )
    prepared = read_rows(query, frame, SCHEMA, TimeReader(), UnitReader())
    numbers = STEPS.numbers(prepared["time"].to_numpy())
    inside = numbers > 0
    return step_vectors(query, prepared.filter(inside), numbers[inside], 1, 4)[0]


def ticks(query: Query) -> int:
    """Grid units in 1."""
    return Fraction(query.grid).denominator


@settings(max_examples=40)
@given(st.sampled_from(QUERIES), events, st.sampled_from("uvw"), st.integers(0, 4), st.integers(0, 4))
def test_a_unit_changes_a_window_by_one_neighbour(
    query: Query, rows: list[Event], who: str, one: int, two: int
) -> None:
    """Removing all events of a unit in a window gives a neighbour of the policy with the derived Δ."""
    first, last = sorted((one, two))
    others = [row for row in rows if row[1] != who or not first <= row[0] // 10 <= last]
    change = query.max_change("add-remove")
    assert change is not None
    policy = WEvent(epsilon=1, window=last - first + 1, max_change=change * ticks(query))
    assert policy.distance(vectors(query, rows), vectors(query, others)) <= 1


@settings(max_examples=40)
@given(st.sampled_from(QUERIES), events, events, st.sampled_from("uvw"))
def test_a_unit_that_is_replaced_is_one_neighbour(
    query: Query, rows: list[Event], new: list[Event], who: str
) -> None:
    """The same for "replace": the unit's events become any others."""
    others = [row for row in rows if row[1] != who] + [(t, who, p, v) for t, _, p, v in new]
    change = query.max_change("replace")
    assert change is not None
    policy = WEvent(epsilon=1, window=4, max_change=change * ticks(query), adjacency="replace")
    assert policy.distance(vectors(query, rows), vectors(query, others)) <= 1


@settings(max_examples=30)
@given(st.sampled_from(QUERIES), events, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(query: Query, rows: list[Event], random: Any) -> None:
    """Which contributions are kept depends on the events and not on their order, ties included."""
    shuffled = list(rows)
    random.shuffle(shuffled)
    np.testing.assert_array_equal(vectors(query, rows), vectors(query, shuffled))


@settings(max_examples=30)
@given(st.sampled_from(QUERIES), events, st.sampled_from("uvw"))
def test_what_is_kept_of_a_unit_depends_on_its_own_events(query: Query, rows: list[Event], who: str) -> None:
    """A stream is the sum of the streams of its units."""
    alone = [vectors(query, [row for row in rows if row[1] == unit]) for unit in "uvw"]
    np.testing.assert_array_equal(vectors(query, rows), sum(alone))


@settings(max_examples=40)
@given(events, st.integers(1, 4))
def test_sums_follow_the_plain_rule(rows: list[Event], most: int) -> None:
    """The kernel is the rule of the docstring: sort, keep the first, clip, round half up, add."""
    query = Query(aggregate="sum", columns=Columns(NAMES), most=most, clip=("-1", "2"), grid="0.5")
    kept: dict[tuple[str, int], int] = defaultdict(int)
    expected = np.zeros((4, 3), dtype=np.int64)
    usable = []
    for time, unit, place, value in rows:
        if place in NAMES and 0 <= time < 40 and value == value:
            units = int(np.floor(min(max(value, -1.0), 2.0) * 2 + 0.5))
            usable.append((time, NAMES.index(place), units, unit))
    for time, column, units, unit in sorted(usable):
        if kept[unit, time // 10] < most:
            kept[unit, time // 10] += 1
            expected[time // 10, column] += units
    np.testing.assert_array_equal(vectors(query, rows), expected)


def test_the_bound_is_reached() -> None:
    """Δ is not only safe but tight, for each of the queries."""
    for query in QUERIES:
        worst = 0
        for value in (-9.0, 99.0, 0.0, 0.5):
            rows = [(time, "u", place, value) for time in range(9) for place in NAMES]
            worst = max(worst, int(np.abs(vectors(query, rows)[0]).sum()))
        change = query.max_change("add-remove")
        assert change is not None
        assert worst == change * ticks(query), query


def test_records_without_a_unit_count_for_themselves() -> None:
    """Without a column of units each record is a unit and Δ is one contribution."""
    query = Query(aggregate="count", columns=Columns(("a", "b")))
    schema = Schema(time="time", column="place")
    frame = pl.DataFrame({"time": [1, 1, 2, 15], "place": ["a", "a", "b", "a"]})
    rows = read_rows(query, frame, schema, TimeReader(), UnitReader())
    found, _ = step_vectors(query, rows, STEPS.numbers(rows["time"].to_numpy()), 1, 2)
    assert found.tolist() == [[2, 1], [1, 0]]
    assert query.max_change(records=True) == 1


def test_a_smaller_max_change_is_refused_with_the_number_to_write() -> None:
    """The policy must promise at least what one unit can change."""
    query = Query(aggregate="sum", columns=Columns(NAMES), most=2, clip=("-1", "2.5"), grid="0.5")
    with pytest.raises(InvalidParameter, match='write max_change="5"'):
        query.check(WEvent(epsilon=1, window=2, max_change=4))
    query.check(WEvent(epsilon=1, window=2, max_change=5))
    with pytest.raises(InvalidParameter, match='write max_change="7"'):
        query.check(WEvent(epsilon=1, window=2, max_change=5, adjacency="replace"))
    mean = Query(aggregate="mean", clip=("0", "4"))
    with pytest.raises(InvalidParameter, match="mobility"):
        mean.check(WEvent(epsilon=1, window=2, max_change=99, mobility="fixed"))


def test_bins_of_quantiles_are_no_columns_that_units_stay_in() -> None:
    """A unit is in another bin when its value is another one: each bin with all of the budget would lose that many ε."""
    bins = Query(aggregate="quantile", columns=Range.of("0", "8", 8), quantiles=("1/2",))
    bins.check(WEvent(epsilon=1, window=2, max_change=1))
    with pytest.raises(InvalidParameter, match="mobility"):
        bins.check(WEvent(epsilon=1, window=2, max_change=1, mobility="fixed"))


@given(st.lists(st.floats(-2, 5), min_size=1, max_size=20))
def test_means_come_back_from_their_parts(values: list[float]) -> None:
    """Without noise the answers are the mean of the clipped, rounded values and their count."""
    query = Query(aggregate="mean", clip=("-1", "4"), grid="0.25", share="1/3")
    rows = [(1, f"u{at}", "", value) for at, value in enumerate(values)]
    rounded = [np.floor(min(max(value, -1), 4) * 4 + 0.5) / 4 for value in values]
    schema = Schema(time="time", unit="unit", value="value")
    frame = pl.DataFrame(rows, schema=["time", "unit", "place", "value"], orient="row")
    prepared = read_rows(query, frame, schema, TimeReader(), UnitReader())
    units, _ = step_vectors(query, prepared, np.ones(len(prepared), dtype=np.int64), 1, 1)
    mean, count = query.answers(units / 4)[0]
    assert mean == pytest.approx(float(np.mean(rounded)))
    assert count == pytest.approx(len(values))
    assert query.answer_labels == ("all", "count of all")


def test_columns_never_grow() -> None:
    """A category that is not in the public list is dropped or goes to other; so does a missing one."""
    series = pl.Series(["b", "new", None, "a"])
    assert Columns(("a", "b")).indices(series).tolist() == [1, -1, -1, 0]
    assert Columns(("a", "b"), "other").indices(series).tolist() == [1, 2, 2, 0]
    assert Columns(("a", "b")).indices(series.cast(pl.Categorical)).tolist() == [1, -1, -1, 0]
    numbers = Columns((7, -2, "x"), "other")  # type: ignore[arg-type]
    assert numbers.indices(pl.Series([7, 0, None, -2])).tolist() == [0, 3, 3, 1]
    assert numbers.indices(pl.Series([7], dtype=pl.UInt8)).tolist() == [0]
    assert Columns(("true", "false")).indices(pl.Series([True, False])).tolist() == [0, 1]
    with pytest.raises(MixedTypes):
        Columns(("a",)).indices(pl.Series([1.5]))


@given(st.floats(-1, 2) | st.sampled_from([0.1, 0.3, 0.7]))
def test_intervals_decide_as_exact_numbers_do(value: float) -> None:
    """An edge such as 0.3 is the number 3/10 and not the float next to it."""
    grid = Intervals(("0", "0.1", "0.3", "0.7", "1"))
    assert grid.indices(pl.Series([value])).tolist() == [grid.place(Fraction(value))]


def test_intervals_of_whole_numbers_and_text() -> None:
    """Integers are compared as integers, text is parsed, and what is missing is outside."""
    grid = Intervals(("0.5", "2", "10"), "other")
    assert grid.indices(pl.Series([0, 1, 2, 9, 10])).tolist() == [2, 0, 1, 1, 2]
    assert grid.indices(pl.Series(["1", " 2.0", "", None])).tolist() == [0, 1, 2, 2]
    with pytest.raises(NotNumeric):
        grid.indices(pl.Series(["many"]))


def test_given_input_is_taken_as_it_is() -> None:
    """Readings go to their cells, missing ones are marked, and the grid is respected."""
    wide = Query(aggregate="given", columns=Columns(("x", "y")), layout="wide", grid="0.5", fill="zero")
    frame = pl.DataFrame({"time": [5, 25], "x": [1.5, None], "y": [2.0, -3.0]})
    rows = read_rows(wide, frame, Schema(time="time"), TimeReader(), UnitReader())
    units, missing = step_vectors(wide, rows, STEPS.numbers(rows["time"].to_numpy()), 1, 3)
    assert units.tolist() == [[3, 4], [0, 0], [0, -6]]
    assert missing is not None
    assert missing.tolist() == [[False, False], [True, True], [True, False]]
    assert wide.max_change() is None
    off = pl.DataFrame({"time": [5], "x": [1.25], "y": [2.0]})
    with pytest.raises(InvalidInput, match="does not lie on the grid"):
        read_rows(wide, off, Schema(time="time"), TimeReader(), UnitReader())
    nearest = Query(
        aggregate="given", columns=Columns(("x", "y")), layout="wide", grid="0.5", rounding="nearest"
    )
    assert read_rows(nearest, off, Schema(time="time"), TimeReader(), UnitReader())["value"].to_list() == [
        3,
        4,
    ]
    with pytest.raises(InvalidInput, match="coarser grid"):
        read_rows(nearest, off.with_columns(x=pl.lit(1e300)), Schema(time="time"), TimeReader(), UnitReader())


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"aggregate": "median"}, "aggregate"),
        ({"aggregate": "sum"}, "clip"),
        ({"aggregate": "sum", "clip": ("2", "1")}, "clip"),
        ({"aggregate": "sum", "clip": ("0", "0.3")}, "clip"),
        ({"aggregate": "count", "clip": ("0", "1")}, "clip"),
        ({"aggregate": "histogram"}, "columns"),
        ({"aggregate": "count", "most": 0}, "most"),
        ({"aggregate": "count", "most": 3, "weighting": "share"}, "grid"),
        ({"aggregate": "count", "fill": "zero"}, "fill"),
        ({"aggregate": "given", "fill": "0.3"}, "fill"),
        ({"aggregate": "given", "most": 2}, "most"),
        ({"aggregate": "count", "layout": "wide"}, "layout"),
        ({"aggregate": "mean", "clip": ("0", "1"), "share": "1"}, "share"),
        ({"aggregate": "mean", "clip": ("0", "1"), "weighting": "share"}, "weighting"),
        ({"aggregate": "count", "grid": "2/3"}, "grid"),
        ({"aggregate": "count", "grid": 0.5}, "grid"),
    ],
)
def test_wrong_queries_are_refused(wrong: dict[str, Any], name: str) -> None:
    """The constructor validates and names the parameter."""
    with pytest.raises(InvalidParameter, match=name):
        Query(**wrong)


def test_wrong_columns_are_refused() -> None:
    """Lists must be public, of bounded length, and without repetition."""
    with pytest.raises(InvalidParameter, match="each category once"):
        Columns(("a", "a"))
    with pytest.raises(InvalidParameter, match="other"):
        Columns(("a", "other"), "other")
    with pytest.raises(InvalidParameter, match="at least one"):
        Columns(())
    with pytest.raises(InvalidParameter, match="increasing"):
        Intervals(("1", "1"))
    with pytest.raises(TooManyColumns, match="group them"):
        Columns(tuple("x" for _ in range(10**7)))


@pytest.mark.parametrize(
    "query",
    [
        Query(aggregate="count", columns=Columns(NAMES)),
        Query(aggregate="sum", columns=Columns(NAMES), clip=(0, 4)),
        Query(aggregate="mean", columns=Columns(NAMES[:1]), clip=(0, 10)),
        Query(aggregate="quantile", columns=Range((0, 1, 5, 10)), quantiles=("1/2", "9/10")),
    ],
    ids=lambda query: query.aggregate,
)
@pytest.mark.filterwarnings("error")
def test_what_is_not_known_is_nan_and_intervals_hold_their_values(query: Query) -> None:
    """Radii that are unknown or infinite, and steps of which nothing was released: for every aggregate."""
    values = np.array([[3.0, 5, 2]] * 4 + [[np.nan] * 3])[:, : query.width]
    radius = np.array([[2.0] * 3, [np.inf] * 3, [np.nan] * 3, [2.0, np.inf, np.nan], [2.0] * 3])[
        :, : query.width
    ]
    answers, (low, high) = query.answers(values), query.intervals(values, radius)
    assert np.isnan(answers[-1]).all()
    assert np.isfinite(answers[:-1]).all()
    known = np.isfinite(low)
    assert (known == np.isfinite(high)).all()
    assert (low[known] <= answers[known]).all()
    assert (answers[known] <= high[known]).all()
    assert known[0].all()
    assert not known[[1, 2, 4]].any()
    nothing = query.intervals(values, None)
    assert np.isnan(nothing[0]).all()
    assert np.isnan(nothing[1]).all()
