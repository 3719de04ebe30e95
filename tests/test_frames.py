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
    releases = PLAIN.start().push_batch(COUNTS)
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
    releases = PLAIN.start().push_batch(pl.DataFrame(COUNTS, schema=["north", "south"], orient="row"))
    table = releases.to_polars(layout="wide", confidence=0.5)
    assert table.columns == [
        "step", "north", "north low", "north high", "south", "south low", "south high", "status",
    ]  # fmt: skip
    assert np.array_equal(table["south low"].to_numpy(), releases.interval(0.5)[0][:, 1])


def test_what_does_not_fit_is_refused() -> None:
    """Too few times or names, a layout that there is not, a name that means something else."""
    releases = PLAIN.start().push_batch(COUNTS)
    for options in ({"times": TIMES[:2]}, {"names": ["a"]}, {"names": ["a", "a"]}, {"layout": "tall"}):
        with pytest.raises(InvalidParameter):
            releases.to_polars(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="long"):
        releases.to_polars(names=["step", "south"], layout="wide")


def test_a_missing_library_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install, instead of a traceback from within."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPart, match="tidegate\\[frames\\]"):
        PLAIN.start().push_batch(COUNTS).to_pandas()


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_columns_are_taken_by_name(library: str) -> None:
    """A DataFrame in another order is put right: with hardly any noise the values show which is which."""
    module = pytest.importorskip(library)
    run = Uniform(tg.WEvent(epsilon="1000", w=1), columns=2).start()
    run.push_batch(module.DataFrame({"north": [1000], "south": [0]}))
    assert run.push_batch(module.DataFrame({"south": [0], "north": [1000]})).values[0, 0] > 900
    assert run.push({"south": 0, "north": 1000}).values[0] > 900
    with pytest.raises(InvalidInput, match="'north', 'south'"):
        run.push({"east": 0, "north": 1000})


def test_numbers_are_no_names() -> None:
    """A pandas DataFrame without names is an array."""
    pandas = pytest.importorskip("pandas")
    releases = PLAIN.start().push_batch(pandas.DataFrame(COUNTS))
    assert releases.names is None


def test_a_durable_run_keeps_its_names(tmp_path: Path) -> None:
    """Names given to open are those of every process after it."""
    with tg.open(PLAIN, tmp_path / "a.ledger", names=["north", "south"]) as run:
        run.push({"south": 1, "north": 2})
        assert set(run.releases().to_polars()["column"]) == {"north", "south"}
    with pytest.raises(tg.errors.LedgerMismatch, match="names"):
        tg.open(PLAIN, tmp_path / "a.ledger", names=["south", "north"])


def test_an_opened_run_knows_its_columns_when_it_is_opened_again(tmp_path: Path) -> None:
    """Named by what was first pushed, they are the same ones in whatever order later values come."""
    certain = Uniform(tg.WEvent(epsilon="4000000", w=2), columns=2)
    with tg.open(certain, tmp_path / "a.ledger") as run:
        run.push({"north": 1000, "south": 0})
    with tg.open(certain, tmp_path / "a.ledger") as run:
        assert run.push({"south": 0, "north": 1000}).values.round().tolist() == [1000, 0]
        with pytest.raises(InvalidInput):
            run.push({"east": 1, "north": 2})


def test_a_restored_run_knows_its_columns() -> None:
    """A snapshot keeps the names that a run has learnt."""
    run = Uniform(tg.WEvent(epsilon="4000000", w=2), columns=2, noise="laplace").start()
    run.push({"north": 1000, "south": 0})
    again = run.mechanism.start(state=run.snapshot())
    assert again.push({"south": 0, "north": 1000}).values.round().tolist() == [1000, 0]


@pytest.mark.parametrize("pushed", [{"north": 1, "Mallory": 2}, {"Mallory": 1}])
def test_a_refusal_names_no_key_that_was_pushed(pushed: dict[str, int]) -> None:
    """Keys may come from data: only the names that the run knows are said."""
    run = tg.mechanisms.Uniform(tg.Event(epsilon="1"), columns=2).start()
    run.push({"north": 1, "south": 2})
    with pytest.raises(InvalidInput, match="'north', 'south'") as refusal:
        run.push(pushed)
    assert "Mallory" not in str(refusal.value)
