from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tidegate.errors import InvalidParameter
from tidegate.ingest import Columns, Intake, Intervals, Lookup, Query, Schema, Steps, open_source, read_lookup

DISTRICTS = Lookup(("1", "2", "3", "07"), ("north", "north", "south", "east"))
SCHEMA = Schema(time="time", unit="unit", column="station")
STEPS = Steps(start="1970-01-01", length=10, count=1)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("outside", "expected"), [("drop", [2, 1]), ("other", [2, 1, 3])])
def test_stations_are_counted_in_their_districts(
    tmp_path: Path, kind: str, outside: str, expected: list[int]
) -> None:
    """Also where stations are numbers; unknown ones and those of districts that are no columns are outside."""
    frame = pl.DataFrame({"time": [1] * 6, "unit": [*range(6)], "station": [1, 2, 3, 9, 7, None]})
    path = tmp_path / f"events.{kind}"
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[kind](path)
    query = Query(aggregate="count", columns=Columns(("north", "south"), outside), lookup=DISTRICTS)
    with open_source(path, query.needed(SCHEMA)) as source:
        (block,) = Intake(source, SCHEMA, STEPS, query)
    assert block.units.tolist() == [expected]


def test_groups_are_the_columns_and_bound_a_unit() -> None:
    """A unit at two stations of one district is in one column, once for distinct."""
    assert DISTRICTS.names == ("north", "south", "east")
    query = Query(aggregate="distinct", columns=Columns(DISTRICTS.names), most=9, lookup=DISTRICTS)
    assert query.max_change() == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "at least one key"),
        ("station,district\n", "at least one key"),
        ("station,district\n1,north\n1,south\n", "line 3 repeats '1'"),
        ("station,district\n1,north\n2\n", "line 3 lacks one"),
        ("station;district\n1;\n", "line 2 lacks one"),
        ('station,district\n1,"north\n', "open quote"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_its_line(tmp_path: Path, content: str, words: str) -> None:
    """The table is public, so the sentence may show it."""
    path = tmp_path / "districts.csv"
    path.write_text(content)
    with pytest.raises(InvalidParameter, match="lookup") as refused:
        read_lookup(path)
    assert words in str(refused.value)


def test_tables_are_read_with_any_separator(tmp_path: Path) -> None:
    """More columns than two may stand there, and lines without anything."""
    path = tmp_path / "districts.csv"
    path.write_text("\ufeffstation;district;since\n1;north;1999\n\n2;south;2001\n", encoding="utf-8")
    assert read_lookup(path) == Lookup(("1", "2"), ("north", "south"))
    path.write_bytes(b"station,district\n1,\xff\n")
    with pytest.raises(InvalidParameter, match="UTF-8"):
        read_lookup(path)
    with pytest.raises(InvalidParameter, match="No such file"):
        read_lookup(tmp_path / "elsewhere.csv")


def test_where_no_table_can_help_it_is_refused() -> None:
    """Intervals have no keys, wide input neither, and given readings are not added up."""
    with pytest.raises(InvalidParameter, match="intervals"):
        Query(aggregate="histogram", columns=Intervals(("0", "1")), lookup=DISTRICTS)
    with pytest.raises(InvalidParameter, match="at least one column is a group"):
        Query(aggregate="count", columns=Columns(("west",)), lookup=DISTRICTS)
    with pytest.raises(InvalidParameter, match="not added up"):
        Query(aggregate="given", columns=Columns(("north",)), lookup=DISTRICTS)
    with pytest.raises(InvalidParameter, match="wide"):
        Query(aggregate="given", columns=Columns(("south",)), layout="wide", lookup=DISTRICTS)
    Query(aggregate="given", columns=Columns(("south", "east")), lookup=DISTRICTS)
    with pytest.raises(InvalidParameter, match="column"):
        Query(aggregate="count", columns=Columns(("north",)), lookup=DISTRICTS).check_schema(Schema(time="t"))


def test_another_table_is_another_stream() -> None:
    """The description has a digest of it, whatever its order."""
    turned = Lookup(DISTRICTS.keys[::-1], DISTRICTS.groups[::-1])
    moved = Lookup(DISTRICTS.keys, ("north", "south", "south", "east"))
    assert DISTRICTS.describe() == turned.describe() != moved.describe()
