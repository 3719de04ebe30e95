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
from tidegate.errors import InvalidInput, InvalidParameter, MissingPart
from tidegate.mechanisms import Uniform

PLAIN = Uniform(tg.WEvent(epsilon="1", w=4), columns=2)
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
    """The names of a pushed DataFrame come out again."""
    releases = tg.open(PLAIN).push_batch(pl.DataFrame(COUNTS, schema=["north", "south"], orient="row"))
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


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_columns_are_taken_by_name(library: str) -> None:
    """A DataFrame in another order is put right: with hardly any noise the values show which is which."""
    module = pytest.importorskip(library)
    session = tg.open(Uniform(tg.WEvent(epsilon="1000", w=1), columns=2))
    session.push_batch(module.DataFrame({"north": [1000], "south": [0]}))
    assert session.push_batch(module.DataFrame({"south": [0], "north": [1000]})).values[0, 0] > 900
    assert session.push({"south": 0, "north": 1000}).values[0] > 900
    with pytest.raises(InvalidInput, match="'north', 'south'"):
        session.push({"east": 0, "north": 1000})


def test_numbers_are_no_names() -> None:
    """A pandas DataFrame without names is an array."""
    pandas = pytest.importorskip("pandas")
    releases = tg.open(PLAIN).push_batch(pandas.DataFrame(COUNTS))
    assert releases.names is None


@pytest.mark.xfail(
    strict=True, reason="a log does not hold the names of columns: a reopened session learns them anew"
)
def test_a_reopened_session_knows_its_columns(tmp_path: Path) -> None:
    """Named by what was first pushed, they are the same ones in whatever order later values come."""
    certain = Uniform(tg.WEvent(epsilon="4000000", w=2), columns=2)
    with tg.open(certain, tmp_path / "a.db") as session:
        session.push({"north": 1000, "south": 0})
    with tg.open(certain, tmp_path / "a.db") as session:
        assert session.push({"south": 0, "north": 1000}).values.round().tolist() == [1000, 0]
        with pytest.raises(InvalidInput):
            session.push({"east": 1, "north": 2})


@pytest.mark.parametrize("pushed", [{"north": 1, "Mallory": 2}, {"Mallory": 1}])
def test_a_refusal_names_no_key_that_was_pushed(pushed: dict[str, int]) -> None:
    """Keys may come from data: only the names that the session knows are said."""
    session = tg.open(tg.mechanisms.Uniform(tg.Event(epsilon="1"), columns=2))
    session.push({"north": 1, "south": 2})
    with pytest.raises(InvalidInput, match="'north', 'south'") as refusal:
        session.push(pushed)
    assert "Mallory" not in str(refusal.value)
