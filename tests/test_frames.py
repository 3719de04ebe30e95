from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidegate as tg
from tidegate.core.errors import LogMismatch
from tidegate.core.session import plan_amendment
from tidegate.errors import InvalidInput, InvalidParameter, MissingPart
from tidegate.mechanisms import Uniform

PLAIN = Uniform(tg.WEvent(epsilon="1", window=4), columns=2)
TIMES = [datetime.datetime(2026, 1, 1, hour, tzinfo=datetime.UTC) for hour in range(3)]
COUNTS = [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_tables_agree_with_the_releases(library: str) -> None:
    """Every library gets the same rows: step, time, column, value, interval, status."""
    pytest.importorskip(library)
    releases = tg.open(PLAIN).push_batch(COUNTS)
    convert: dict[str, Callable[..., Any]] = {
        "polars": releases.to_polars,
        "pandas": lambda *more: pl.from_pandas(releases.to_pandas(*more)),
        "pyarrow": lambda *more: pl.from_arrow(releases.to_arrow(*more)),
    }
    table = convert[library](TIMES, ["north", "south"])
    assert table.columns == ["step", "time", "column", "value", "low", "high", "status"]
    assert table["step"].to_list() == [1, 1, 2, 2, 3, 3]
    assert table["time"].to_list() == [time for time in TIMES for _ in range(2)]
    assert table["column"].to_list() == ["north", "south"] * 3
    assert np.array_equal(table["value"].to_numpy().reshape(3, 2), releases.values)
    low, high = releases.interval(0.9)
    assert np.array_equal(table["low"].to_numpy().reshape(3, 2), low)
    assert np.array_equal(table["high"].to_numpy().reshape(3, 2), high)
    assert set(table["status"]) == {"fresh"}


def test_wide_tables_have_a_row_a_step() -> None:
    """The names of the columns come out again."""
    names = ["north", "south"]
    session = tg.open(PLAIN, names=names)
    releases = session.push_batch(pl.DataFrame(COUNTS, schema=names, orient="row"))
    assert [each.names for each in session.releases()] == [("north", "south")]
    table = releases.to_polars(layout="wide", confidence=0.5)
    assert table.columns == [
        "step", "north", "north low", "north high", "south", "south low", "south high", "status",
    ]  # fmt: skip
    assert np.array_equal(table["south low"].to_numpy(), releases.interval(0.5)[0][:, 1])


def test_what_does_not_fit_is_refused() -> None:
    """Too few times or names, a layout that there is not, a name that means something else."""
    releases = tg.open(PLAIN).push_batch(COUNTS)
    for options in ({"times": TIMES[:2]}, {"names": ["a"]}, {"names": ["a", "a"]}, {"layout": "tall"}):
        with pytest.raises(InvalidParameter):
            releases.to_polars(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="long"):
        releases.to_polars(names=["step", "south"], layout="wide")


def test_a_missing_library_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install, instead of a traceback from within."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPart, match="tidegate\\[frames\\]"):
        tg.open(PLAIN).push_batch(COUNTS).to_pandas()


CERTAIN = Uniform(tg.WEvent(epsilon="4000000", window=2), columns=2)  # values show which column is which
NAMES = ("north", "south")


def table(library: str, columns: dict[str, list[int]]) -> Any:
    """A table of a library."""
    module = pytest.importorskip(library)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_columns_are_taken_by_name(library: str) -> None:
    """A table in another order is put right."""
    session = tg.open(CERTAIN, names=NAMES)
    for columns in ({"north": [1000], "south": [0]}, {"south": [0], "north": [1000]}):
        assert session.push_batch(table(library, columns)).values.round().tolist() == [[1000, 0]]
    assert session.push({"south": 0, "north": 1000}).values.round().tolist() == [1000, 0]
    assert session.push([1000, 0]).values.round().tolist() == [1000, 0]
    for columns in ({"north": [1], "east": [2]}, {"north": [1]}, {"north": [1], "south": [2], "east": [3]}):
        with pytest.raises(InvalidInput, match="'north', 'south'"):
            session.push_batch(table(library, columns))


def under(name: str, values: Any) -> Any:
    """Values as the query of this name gets them."""
    return {name: values} if name else values


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_names_are_not_learnt_from_what_is_pushed(library: str, tmp_path: Path) -> None:
    """A table may take its names from data, and would decide how later ones are read: they are refused, unsaid."""
    for session in (tg.open(PLAIN), tg.open(PLAIN, tmp_path / "a.db"), tg.open({"a": PLAIN})):
        (name,) = session.steps
        with pytest.raises(InvalidInput, match="names=") as refusal:
            session.push_batch(under(name, table(library, {"Mallory": [1], "south": [2]})))
        assert "Mallory" not in str(refusal.value)
        with pytest.raises(InvalidInput, match="names="):
            session.push(under(name, {"Mallory": 1, "south": 2}))
        assert session.step == 0
        session.push(under(name, [1, 2]))  # it is open as before
        session.close()


def test_a_labelled_row_of_pandas_is_taken_by_name() -> None:
    """A Series is a step whose columns are its labels; in a batch of one column they are labels of steps."""
    pandas = pytest.importorskip("pandas")
    row = pandas.Series({"south": 0, "north": 1000})
    assert tg.open(CERTAIN, names=NAMES).push(row).values.round().tolist() == [1000, 0]
    with pytest.raises(InvalidInput, match="names="):
        tg.open(CERTAIN).push(row)
    assert len(tg.open(Uniform(tg.WEvent(epsilon="1", window=4))).push_batch(row)) == 2


def test_numbers_are_no_names() -> None:
    """A pandas DataFrame without names is an array; one whose numbers are in another order is not."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COUNTS)
    assert tg.open(PLAIN).push_batch(frame).names is None
    with pytest.raises(InvalidInput, match="names="):
        tg.open(PLAIN).push_batch(frame[[1, 0]])


def test_a_column_of_pandas_is_no_attribute() -> None:
    """Names of columns that mean something to other libraries are names."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"select": [0], "column_names": [1000]})
    names = ["column_names", "select"]
    assert tg.open(CERTAIN, names=names).push_batch(frame).values.round().tolist() == [[1000, 0]]


def test_a_reopened_session_knows_its_columns(tmp_path: Path) -> None:
    """The log has their names: whoever opens it gives the same ones in the same order, or amends it."""
    with tg.open(CERTAIN, tmp_path / "a.db", names=NAMES) as session:
        session.push({"north": 1000, "south": 0})
    with tg.open(CERTAIN, tmp_path / "a.db", names=NAMES) as session:
        assert session.push({"south": 0, "north": 1000}).values.round().tolist() == [1000, 0]
        with pytest.raises(InvalidInput):
            session.push({"east": 1, "north": 2})
    for other in (None, NAMES[::-1]):
        with pytest.raises(LogMismatch, match="names"):
            tg.open(CERTAIN, tmp_path / "a.db", names=other)
        assert plan_amendment(CERTAIN, tmp_path / "a.db", names=other).begun == {"": 4}
    assert plan_amendment(CERTAIN, tmp_path / "a.db", names=NAMES).unchanged == ("",)


def test_each_query_has_names_of_its_own() -> None:
    """By the names of the queries; one without stays an array."""
    session = tg.open({"a": CERTAIN, "b": CERTAIN}, shares={"a": "1/2", "b": "1/2"}, names={"a": NAMES})
    found = session.push({"a": {"south": 0, "north": 1000}, "b": [5, 6]})
    assert found["a"].values.round().tolist() == [1000, 0]
    with pytest.raises(InvalidInput, match="names="):
        session.push({"b": {"south": 0, "north": 1000}})


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", 2], "ab", 7, {"": ["a", "b"]}, {"a": ["a", "b"]}])
def test_names_that_do_not_fit_are_refused(names: Any) -> None:
    """One a column, all different, as text."""
    with pytest.raises(InvalidParameter, match="names="):
        tg.open(PLAIN, names=names)
    if not isinstance(names, dict):
        for several in (names, {"one": names}, {"two": ["a", "b"]}):
            with pytest.raises(InvalidParameter, match="names="):
                tg.open({"one": PLAIN}, names=several)


@pytest.mark.parametrize("pushed", [{"north": 1, "Mallory": 2}, {"Mallory": 1}])
def test_a_refusal_names_no_key_that_was_pushed(pushed: dict[str, int]) -> None:
    """Keys may come from data: only the names that the session knows are said."""
    session = tg.open(PLAIN, names=NAMES)
    with pytest.raises(InvalidInput, match="'north', 'south'") as refusal:
        session.push(pushed)
    assert "Mallory" not in str(refusal.value)


def test_a_pandas_index_of_times_comes_out_again() -> None:
    """Releases know when their steps began, and a table with a row per step has the index of the input."""
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2026-03-29", periods=3, freq="h", tz="Europe/Berlin", name="hour")
    frame = pandas.DataFrame(COUNTS, index=index, columns=list(NAMES))
    session = tg.open(CERTAIN, names=NAMES)
    releases = session.push_batch(frame)
    assert releases.times is index
    wide = releases.to_pandas(layout="wide")
    assert wide.index.equals(index)
    assert wide.index.name == "hour"
    assert (wide[list(NAMES)].round().astype(int) == frame).all(axis=None)
    assert releases.to_polars()["time"].to_list() == [time for time in index for _ in range(2)]
    assert releases[1].time == index[1]
    assert [session.push(row).time for _, row in frame.iterrows()] == list(index)
    alone = tg.open(Uniform(tg.WEvent(epsilon="1", window=4)))
    assert alone.push_batch(frame["north"]).times.equals(index)  # type: ignore[union-attr]
    assert session.push_batch(frame.reset_index(drop=True)).times is None  # numbers of rows are no times
    assert session.push([1, 2]).time is None


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_a_column_of_times_comes_out_again(library: str) -> None:
    """Where "time" is none of the columns that are read, it says when the steps began."""
    columns: dict[str, Any] = {"south": [2, 4, 6], "time": TIMES, "north": [1, 3, 5]}
    session = tg.open({"a": CERTAIN}, names={"a": NAMES})
    releases = session.push_batch({"a": table(library, columns)})["a"]
    assert releases.values.round().tolist() == COUNTS
    assert releases.to_polars(layout="wide")["time"].to_list() == TIMES
    assert releases[2].time == TIMES[2]
    with pytest.raises(InvalidInput):  # of a session without names no column is known
        tg.open(CERTAIN).push_batch(table(library, columns))
    timed = tg.open(
        Uniform(tg.WEvent(epsilon="4000000", window=2), columns=3), names=["north", "south", "time"]
    )
    numbers = table(library, {"time": [7], "north": [1], "south": [2]})
    found = timed.push_batch(numbers)
    assert found.values.round().tolist() == [[1, 2, 7]]
    assert found.times is None


def test_times_of_several_queries_are_their_own() -> None:
    """Each query has the times of its table."""
    session = tg.open({"a": CERTAIN, "b": CERTAIN}, shares={"a": "1/2", "b": "1/2"}, names={"a": NAMES})
    batch = pl.DataFrame({"time": TIMES, "north": [1] * 3, "south": [2] * 3})
    found = session.push_batch({"a": batch, "b": COUNTS})
    assert found["a"].times == TIMES
    assert found["b"].times is None
    single = session.push({"a": [1, 2], "b": [3, 4]})
    assert single["a"].time is None
