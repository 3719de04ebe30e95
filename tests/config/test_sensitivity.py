"""From a file to a mechanism: no unit changes the vector of a step by more than the noise is made for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.config import ConfigError, read_config
from tiers import combined

TREES = {
    "": "",
    "one parent": "{ a = 'all', b = 'all', c = 'all' }",
    "chain": "{ a = 'north', b = 'north', c = 'north', north = 'land', land = 'all' }",
    "ragged": "{ a = 'north', b = 'north', north = 'all', c = 'all' }",
}
AGGREGATES = {
    "count": "",
    "distinct": "",
    "sum": 'clip = ["0", "7/2"]\ngrid = "1/2"',
    "sum of both signs": 'clip = ["-2", "5"]\ngrid = "1/2"',
    "mean": 'clip = ["1", "6"]',
    "histogram": 'edges = ["0", "2", "4", "6"]',
    "quantile": 'clip = ["0", "8"]\nquantiles = ["1/2"]\nbins = 8',
    "quantile by parts": 'clip = ["0", "8"]\nquantiles = ["1/2"]\nbins = 8\nmethod = "parts 3:2"',
}
LEAVES = ("a", "b", "c")
FILE = """[source]
location = "events.csv"
time = "time"
{source}
[steps]
start = "1970-01-01T00:00"
length = "1h"
count = 1
[query]
{query}
[protect]
policy = "event"
epsilon = "1"
adjacency = "{adjacency}"
{protect}
[mechanism]
name = "Uniform"
"""


def vector(folder: Path, text: str, events: str) -> tuple[np.ndarray, int]:
    """(what the mechanism is given at the one step, the change that its noise is made for), in grid units."""
    (folder / "events.csv").write_text(events)
    (folder / "tidegate.toml").write_text(text)
    config = read_config(folder / "tidegate.toml")
    with_rows = [block.units for block in config.open()]
    return np.concatenate(with_rows)[0].astype(np.int64), config.mechanism.sensitivity


def of_records(records: list[tuple[str, str, float]]) -> str:
    """A file of records, a minute apart."""
    lines = [f"{60 + number},{unit},{place},{value}" for number, (unit, place, value) in enumerate(records)]
    return "\n".join(["time,unit,place,value", *lines, ""])


record = st.tuples(st.sampled_from(LEAVES), st.integers(-6, 16).map(lambda half: half / 2))


@pytest.mark.parametrize(("aggregate", "tree"), combined(3, AGGREGATES, TREES))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    own=st.lists(record, min_size=1, max_size=4),
    other=st.lists(record, max_size=4),
    rest=st.lists(record, max_size=3),
    most=st.integers(1, 3),
    adjacency=st.sampled_from(["add-remove", "replace"]),
    named=st.booleans(),
)
def test_a_unit_changes_a_step_by_no_more_than_the_noise_is_made_for(
    tree: str,
    aggregate: str,
    own: list[tuple[str, float]],
    other: list[tuple[str, float]],
    rest: list[tuple[str, float]],
    most: int,
    adjacency: str,
    named: bool,
    tmp_path: Path,
) -> None:
    """All that one unit sends is there, is not there, or is replaced: every aggregate, every tree, both neighbours."""
    words = aggregate.split()[0]
    if words in ("histogram", "quantile"):  # which have bins of the value
        if tree:
            return
        places = 'value = "value"\n' + ('unit = "unit"' if named else "")
        query = f'aggregate = "{words}"\nmost = {most if named else 1}\n{AGGREGATES[aggregate]}'
    else:
        places = 'value = "value"\ncolumn = "place"\n' + ('unit = "unit"' if named else "")
        columns = f"hierarchy = {TREES[tree]}\nlevels = 'all'" if tree else f"columns = {list(LEAVES)}"
        query = f'aggregate = "{words}"\n{columns}\nmost = {most if named else 1}\n{AGGREGATES[aggregate]}'
    if not named:  # every record is a unit of its own
        own, other = own[:1], other[:1]
    text = FILE.format(source=places, query=query, adjacency=adjacency, protect="")
    around = [(f"r{number}", *row) for number, row in enumerate(rest)]
    one = of_records([*around, *(("u", *row) for row in own)])
    changed = (("u", *row) for row in other) if adjacency == "replace" else ()
    try:
        before, sensitivity = vector(tmp_path, text, one)
    except ConfigError:  # a combination that is refused
        assert words not in ("histogram", "quantile")
        return
    after, _ = vector(tmp_path, text, of_records([*around, *changed]))
    assert np.abs(before - after).sum() <= sensitivity


@pytest.mark.parametrize(
    ("tree", "levels"), combined(2, [name for name in TREES if name], ["leaves", "all", "auto"])
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    readings=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    change=st.lists(st.integers(-4, 4), min_size=3, max_size=3).filter(any),
    touches=st.sampled_from([None, 1, 2, 3]),
    adjacency=st.sampled_from(["add-remove", "replace"]),
)
def test_rounded_readings_change_a_step_by_no_more_than_the_noise_is_made_for(
    tree: str,
    levels: str,
    readings: list[int],
    change: list[int],
    touches: int | None,
    adjacency: str,
    tmp_path: Path,
) -> None:
    """Each reading that is rounded moves a node of every level that is measured, by up to a grid unit more."""
    changed = sum(part != 0 for part in change)
    if touches is not None and changed > touches * (2 if adjacency == "replace" else 1):
        return
    # eighths of a grid unit; one who is replaced changes as much again
    largest = Fraction(sum(map(abs, change)), 8) / (2 if adjacency == "replace" else 1)
    hierarchy = f"hierarchy = {TREES[tree]}\nlevels = '{levels}'"
    text = FILE.format(
        source="",
        query=f'aggregate = "given"\nlayout = "wide"\nrounding = "nearest"\n{hierarchy}',
        adjacency=adjacency,
        protect=f'max_change = "{largest}"' + (f"\ntouches = {touches}" if touches else ""),
    )

    def given_row(values: list[int]) -> str:
        return "time,a,b,c\n60," + ",".join(str(value / 8) for value in values) + "\n"

    before, sensitivity = vector(tmp_path, text, given_row(readings))
    after, _ = vector(tmp_path, text, given_row([a + b for a, b in zip(readings, change, strict=True)]))
    assert np.abs(before - after).sum() <= sensitivity


def test_an_allowance_for_rounding_that_forgets_the_levels_is_noticed(tmp_path: Path) -> None:
    """Four levels, three leaves, each just below a half: the change is exactly the one that noise is made for."""
    hierarchy = f"hierarchy = {TREES['chain']}\nlevels = 'all'"
    text = FILE.format(
        source="",
        query=f'aggregate = "given"\nlayout = "wide"\nrounding = "nearest"\n{hierarchy}',
        adjacency="add-remove",
        protect='max_change = "3/100"',
    )
    before, sensitivity = vector(tmp_path, text, "time,a,b,c\n60,0.495,0.495,0.495\n")
    after, _ = vector(tmp_path, text, "time,a,b,c\n60,0.505,0.505,0.505\n")
    assert np.abs(before - after).sum() == 12 > len(before)
    assert sensitivity == 13


ROWS = """[source]
location = "events.csv"
time = "time"
unit = "meter"
column = "{column}"
{value}
[steps]
start = "1970-01-01T00:00"
length = "1h"
count = 9
[query]
{query}
[protect]
policy = "w-event"
epsilon = "1"
window = 4
mobility = "fixed"
{protect}
[mechanism]
name = "Uniform"
"""


@pytest.mark.parametrize(
    ("column", "query", "value"),
    [
        ("place", 'columns = ["a", "b", "c", "d"]', ""),
        ("place", 'lookup = "table.csv"', ""),
        ("place", 'aggregate = "distinct"\nmost = 2\ncolumns = ["a", "b"]', ""),
        ("place", 'aggregate = "sum"\nclip = ["0", "5"]\ncolumns = ["a", "b"]', 'value = "watts"'),
        ("place", 'aggregate = "histogram"\nedges = ["0", "2", "4", "6"]', 'value = "watts"'),
        ("meter", 'aggregate = "histogram"\nedges = ["0", "2", "4", "6"]', 'value = "watts"'),
        ("meter", 'lookup = "numbers.csv"', ""),  # 07 is a unit of its own, and 7 where its batch has numbers
    ],
)
def test_units_stay_in_a_column_only_where_public_names_put_them_there(tmp_path, column, query, value):
    """With shared noise every column has all of ε: a unit in four columns would lose 4 ε, whatever was declared."""
    (tmp_path / "table.csv").write_text("key,group\nm1,north\nm2,south\n")
    (tmp_path / "numbers.csv").write_text("key,group\n07,north\n8,south\n")
    (tmp_path / "tidegate.toml").write_text(ROWS.format(column=column, query=query, value=value, protect=""))
    with pytest.raises(ConfigError, match=r"mobility.*moving"):
        read_config(tmp_path / "tidegate.toml")


@pytest.mark.parametrize(
    ("column", "query", "protect"),
    [
        ("meter", 'lookup = "table.csv"', ""),
        ("meter", 'columns = ["m1", "m2"]\noutside = "other"', ""),
        ("place", 'aggregate = "given"\ncolumns = ["a", "b"]', 'max_change = "1"'),
    ],
)
def test_that_units_stay_in_a_column_stands_in_the_sentence(tmp_path, column, query, protect):
    """A table that maps units to columns, and given input whose owner declares it."""
    (tmp_path / "table.csv").write_text("key,group\nm1,north\nm2,south\n")
    given = "given" in query
    text = ROWS.format(column=column, query=query, value='value = "watts"' if given else "", protect=protect)
    (tmp_path / "tidegate.toml").write_text(text.replace('unit = "meter"\n', "") if given else text)
    config = read_config(tmp_path / "tidegate.toml")
    assert config.mechanism.sharing.copies == config.mechanism.columns
    assert "that a unit stays in one column within any window" in str(config.guarantee)
