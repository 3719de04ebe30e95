"""A public bound instead of refusals: what saturates, and that nothing is moved further apart."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms import (
    BinaryTree,
    GradualTree,
    HybridTree,
    OptStream,
    SlidingWindowTree,
    Uniform,
)
from tidegate.structures.clamping import most_units, saturated
from tidegate.structures.grid import nearest_units
from tidegate.structures.kernels.grid import half_up, round_to_grid
from tidegate.testing.entropy import zero_noise

POLICY = tg.Event(epsilon="1")


@given(
    st.floats(-1e15, 1e15) | st.integers(-9, 9).map(lambda whole: whole + 0.5) | st.just(0.49999999999999994)
)
def test_the_nearest_unit_is_exact(value):
    """floor(x + 1/2) as in fractions, for arrays and in compiled loops: the one rule of rounding."""
    exactly = math.floor(Fraction(value) + Fraction(1, 2))
    assert nearest_units([[value]]).tolist() == [[exactly]]
    assert half_up(value) == exactly


@pytest.mark.parametrize(
    ("given_value", "counts"),
    [
        (7, 7.0),
        (10**30, 100.0),
        (-(10**400), -100.0),
        (float("nan"), 0.0),
        (float("inf"), 100.0),
        (-1e308, -100.0),
        (99.75, 99.75),
        (3.1, 3.0),
        (3.125, 3.25),
        (np.int8(-128), -100.0),
        (np.uint64(2**64 - 1), 100.0),
        (True, 1.0),
        (None, 0.0),
        (pd.NA, 0.0),
        (Fraction(-7, 2), -3.5),
        (Decimal("1e999"), 100.0),
        (Fraction(10**400, 3), 100.0),
        (np.float16(0.25), 0.25),
        (np.longdouble("1e400"), 100.0),
    ],
)
def test_a_value_counts_as_what_lies_within_the_bound(given_value, counts):
    """Whatever the number, and in whichever type it comes."""
    mechanism = Uniform(POLICY, grid="1/4", clamp=100)
    with zero_noise():
        assert Session(mechanism).push([given_value]).values[0] == counts
        assert Session(mechanism).push(given_value).values[0] == counts
        assert Session(mechanism).push_batch([[given_value]]).values[0, 0] == counts


@given(st.integers(-300, 300), st.integers(-300, 300), st.sampled_from(["1", "1/4", "1/10"]))
def test_two_values_on_the_grid_are_not_moved_apart(one, other, grid):
    """Saturating is a contraction, so that the sensitivity stays what it was."""
    step = Fraction(grid)
    values = np.array([float(one * step), float(other * step)])
    cut = saturated(values, Fraction(20), step)
    assert abs(cut[0] - cut[1]) <= abs(one - other)
    inside = np.abs(values) <= 20
    assert np.array_equal(np.rint(values[inside] / float(step)), cut[inside])


def test_without_a_bound_such_values_are_refused():
    """The wrong version of a private stream: whether there was an error depends on the data."""
    run = Session(Uniform(POLICY))
    for value in (10**30, float("nan"), 2.5, 2**60):
        with pytest.raises(InvalidInput):
            run.push([value])


def test_mistakes_that_are_no_data_are_refused_all_the_same():
    """Shapes and words do not depend on what somebody recorded."""
    run = Session(Uniform(POLICY, columns=2, clamp=10))
    for values in ([1], [[1, 2]], ["a", "b"], [b"1", 1], [1j, 1], [[1], [2, 3]]):
        with pytest.raises(InvalidInput):
            run.push(values)
    assert run.step == 0


@pytest.mark.parametrize("clamp", [0, -1, "1/3", 2**60, f"{2**53 + 1}/2", 0.5])
def test_the_bound_is_a_multiple_of_the_grid(clamp):
    """Refused by name, in one sentence."""
    with pytest.raises(InvalidParameter, match="clamp"):
        Uniform(POLICY, grid="1/2", clamp=clamp)


def test_the_bound_is_part_of_the_configuration():
    """It is described and stated among the assumptions, but only where it is given."""
    plain, clamped = Uniform(POLICY), Uniform(POLICY, clamp=10)
    assert "clamp" not in plain.describe()
    assert clamped.describe()["clamp"] == "10"
    assert any("no longer checked" in words for words in clamped.assumptions)
    assert not any("no longer checked" in words for words in plain.assumptions)
    assert Uniform(POLICY, clamp=10, rounding="nearest").assumptions == plain.assumptions


def test_one_value_of_another_type_moves_no_other_cell():
    """Ints were cut at the whole number below the bound and floats at the bound: one half moved 199 cells by a half."""
    mechanism = Uniform(tg.Event(epsilon="1", max_change="0.5"), columns=200, grid="0.5", clamp="2.5")
    with zero_noise():
        whole, half = (Session(mechanism).push([10] * 199 + [last]).values for last in (2, 1.5))
    assert np.abs(whole - half).sum() == 0.5


COLUMNS = {
    "pandas": lambda cells: pd.DataFrame({"a": cells}),
    "pandas, objects": lambda cells: pd.DataFrame({"a": cells}, dtype=object),
    "pandas, nullable": lambda cells: pd.DataFrame({"a": pd.array(cells, dtype="Int64")}),
    "pandas, nullable floats": lambda cells: pd.DataFrame({"a": pd.array(cells, dtype="Float64")}),
    "polars": lambda cells: pl.DataFrame({"a": cells}),
    "polars, small": lambda cells: pl.DataFrame({"a": pl.Series(cells, dtype=pl.Int8)}),
    "polars, decimals": lambda cells: pl.DataFrame({"a": pl.Series(cells, dtype=pl.Decimal(10, 2))}),
    "a list": list,
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rounding", ["refuse", "nearest"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_missing_reading_moves_no_other_cell(kind, rounding, missing):
    """Whatever a table makes of the type of a column that has a gap."""
    cells = [7, -9, 0, 2, None if missing else 0, 3]
    names = None if kind == "a list" else ["a"]
    run = Session(Uniform(POLICY, grid="0.5", clamp="2.5", rounding=rounding), names=names)
    with zero_noise():
        assert run._queries[0].reader.rows(COLUMNS[kind](cells)).ravel().tolist() == [5, -5, 0, 4, 0, 5]


@pytest.mark.parametrize("value", [2**52 + 1, 2**53 - 1, -(2**52) - 1, 2**51 + 1, 3])
def test_large_values_are_rounded_to_themselves(value):
    """Whole numbers stay what they are beside numbers with fractions, where half a unit more is no float."""
    rounded, _, usable = round_to_grid(np.array([float(value), 0.25]), 1, 2.0**53)
    assert (rounded.tolist(), usable) == ([value, 0], True)


@pytest.mark.parametrize("per_one", [2, 3, 10, 97, 1000, 86400])
@pytest.mark.parametrize("clamp", [False, True])
def test_units_that_are_accepted_as_floats_come_back_as_they_were(per_one: int, clamp: bool) -> None:
    """A step of one grid unit stays one: where a float no longer tells units apart, values and bounds are refused."""
    grid = Fraction(1, per_one)
    most = most_units(grid)
    units = most - np.arange(3000, dtype=np.int64)
    bound = most * grid if clamp else None
    run = Session(Uniform(POLICY, grid=grid, clamp=bound, rounding="refuse"))
    assert np.array_equal(run._queries[0].reader.rows(units / per_one)[:, 0], units)
    if clamp:
        with pytest.raises(InvalidParameter, match="clamp"):
            Uniform(POLICY, grid=grid, clamp=bound + grid)
    else:
        with pytest.raises(InvalidInput, match="grid units"):
            run.push([1.01 * most / per_one])


SUMS = {
    "BinaryTree": BinaryTree(tg.Event(epsilon="1"), horizon=2**15),
    "GradualTree": GradualTree(tg.Event(epsilon="1"), horizon=2**15),
    "HybridTree": HybridTree(tg.Event(epsilon="1")),
    "SlidingWindowTree": SlidingWindowTree(tg.Event(epsilon="1"), window=2**15),
    "OptStream": OptStream(tg.WEvent(epsilon="1", window=2**14), samples=4),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_values_do_not_wrap_around(name, sign):
    """Each value is cut where a node full of them would leave 64 bits, as the other sums have it."""
    run = Session(SUMS[name])
    releases = run.push_batch(np.full((2**15 - 1, 1), sign * 3 * 2**49, dtype=np.int64))
    if releases.revised is None:  # running sums, which rise by at least the bound
        assert (sign * np.diff(releases.values[:, 0]) > 2**46).all()
    else:
        assert (sign * releases.revised.values > 2**46).all()
