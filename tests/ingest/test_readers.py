"""A reader is a function of one record: a batch that is read at once is its rows read alone."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.web.test_producer_routes import posted_text

import tidegate
from tidegate.config import parse_queries
from tidegate.errors import TidegateError
from tidegate.ingest import Columns, Condition, Intake, Intervals, Lookup, Query, Schema, Steps, open_source
from tidegate.ingest.aggregate import read_rows
from tidegate.ingest.columns import numbers, texts
from tidegate.ingest.quantiles import Range
from tidegate.ingest.schema import TextUnits, UnitReader
from tidegate.ingest.sources import postgres
from tidegate.ingest.sources.text import CsvDialect, Dialect, JsonDialect
from tidegate.ingest.times import FORMATS, TimeReader
from tidegate.web.event_parsing import Parser
from tiers import combined

BIG = 2**53 + 1  # a whole number that no float is
NANOSECONDS = 1_772_409_600_000_000_000  # when a step begins
SCHEMA = Schema(time="time", unit="unit", column="place", value="value")


# the attacks ------------------------------------------------------------------------------------------------


def steps_of(path: Path, schema: Schema, query: Query, steps: Steps) -> list[list[int]]:
    """What a finite input says."""
    with open_source(path, query.needed(schema)) as source:
        found = [block.units for block in Intake(source, schema, steps, query)]
    return np.concatenate(found).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_decimal_point_in_one_time_moves_nobody_else(kind: str, tmp_path: Path) -> None:
    """A thousand people just before a step's end stay there: as floats their times would be those of the next step."""
    schema = Schema(time="time", unit="unit", time_format="nanoseconds")
    steps = Steps(start="2026-03-02", length=60, count=3)
    end = NANOSECONDS + 60 * 10**9

    def written(*times: str) -> Path:
        path = tmp_path / f"events.{kind}"
        rows = [(time, f"u{number}") for number, time in enumerate(times)]
        form, head = ("{},{}\n", "time,unit\n") if kind == "csv" else ('{{"time": {}, "unit": "{}"}}\n', "")
        path.write_text(head + "".join(form.format(*row) for row in rows))
        return path

    others = [str(end - 1)] * 1000
    without = steps_of(written(*others), schema, Query(aggregate="count"), steps)
    also = steps_of(written(*others, f"{NANOSECONDS}.5"), schema, Query(aggregate="count"), steps)
    assert without == [[1000], [0], [0]]
    assert np.abs(np.array(also) - np.array(without)).sum() == 1


@pytest.mark.parametrize(
    "query",
    [
        Query(aggregate="count", where=f"value == {BIG}"),
        Query(aggregate="count", columns=Intervals((0, BIG, 2**60))),
        Query(aggregate="sum", clip=("-2", "2"), where=f"value >= {BIG}"),
    ],
    ids=["where", "intervals", "sum"],
)
def test_one_missing_number_leaves_the_others_exact(query: Query, tmp_path: Path) -> None:
    """A thousand whole numbers that no float is, and one record that has none."""
    schema = Schema(time="time", unit="unit", value="value")
    steps = Steps(start="1970-01-01", length=60, count=1)

    def written(values: list[int | None]) -> Path:
        frame = {"time": [5] * len(values), "unit": list(range(len(values))), "value": values}
        path = tmp_path / "events.parquet"
        pl.DataFrame(frame, schema_overrides={"value": pl.Int64}).write_parquet(path)
        return path

    others: list[int | None] = [BIG, BIG - 1] * 500
    without = steps_of(written(others), schema, query, steps)
    assert steps_of(written([*others, None]), schema, query, steps) == without
    assert sum(without[0]) in (500, 1000)


# a batch is its rows ----------------------------------------------------------------------------------------

REFUSED = "refused"


def outcome(read: Callable[[Any], Any], given: Any) -> Any:
    """What a reader makes of something, as a list; or that it refuses it."""
    try:
        found = read(given)
    except TidegateError:
        return REFUSED
    return (
        found.select(pl.all().to_physical()).rows()
        if isinstance(found, pl.DataFrame)
        else found.to_list()
        if isinstance(found, pl.Series)
        else found.tolist()
    )


def agrees(read: Callable[[Any], Any], batch: Any) -> None:
    """A batch is refused where one of its rows is, and else it is all of them."""
    is_all_of(outcome(read, batch), [outcome(read, batch[at : at + 1]) for at in range(len(batch))])


def is_all_of(together: Any, alone: list[Any]) -> None:
    """What a reader makes of a batch, beside what it makes of its rows."""
    if REFUSED in alone:
        assert together == REFUSED
    else:
        assert repr(together) == repr([one for each in alone for one in each])


WORDS = [
    *(
        "5",
        "5.5",
        "+5",
        " 5 ",
        "5.",
        "1e0",
        "",
        " ",
        "soon",
        "nan",
        "inf",
        "-inf",
        "a",
        "b",
        "true",
        "1",
        "-1",
        "\ufeff5",
    ),
    *(
        str(BIG),
        str(BIG - 1),
        f"{BIG}.0",
        str(2**63 - 1),
        str(2**63),
        "9" * 400,
        f"{NANOSECONDS}",
        f"{NANOSECONDS}.5",
    ),
    *("2026-03-02", "2026-03-02T10:00", "2026-03-02 10:00:00", "2026-03-02T 9:00:00", "2026-03-02T10:00:00Z"),
    *("2026-03-02T10:00:00z", "2026-03-02T10:00:00,5+0100", "2026-03-02T10:00-06:00", "2026-03-29T02:30:00"),
    *("2026-10-25T02:30:00", "99999-01-01T00:00:00", "-0005-01-01", "02.03.2026 10:00", "Z", "+0000", "\x00"),
]
text_cells = st.sampled_from(WORDS) | st.none() | st.text(alphabet="0123456789.-+:TZ eE,", max_size=12)
texts_of = st.lists(text_cells, min_size=1, max_size=6).map(lambda cells: pl.Series(cells, dtype=pl.String))
NUMBERS = [0, 1, -1, 5, BIG - 1, BIG, 2**62, 2**63 - 1, -(2**63), NANOSECONDS]
whole_of = st.lists(st.sampled_from(NUMBERS) | st.none(), min_size=1, max_size=6)
reals = st.sampled_from([0.0, 0.5, 5.0, -1.5, float(BIG), float("nan"), float("inf"), float("-inf"), 1e300])
real_of = st.lists(reals | st.none(), min_size=1, max_size=6)
small_of = st.lists(st.sampled_from([1, 5, 120]) | st.none(), min_size=1, max_size=6)
columns_of = st.one_of(
    texts_of,
    whole_of.map(lambda cells: pl.Series(cells, dtype=pl.Int64)),
    whole_of.map(lambda cells: pl.Series([None if cell is None else cell % 2**64 for cell in cells], dtype=pl.UInt64)),
    small_of.map(lambda cells: pl.Series(cells, dtype=pl.Int8)),
    real_of.map(lambda cells: pl.Series(cells, dtype=pl.Float64)),
    st.lists(st.sampled_from([Decimal("1.5"), Decimal("5")]) | st.none(), min_size=1, max_size=6).map(
        lambda cells: pl.Series(cells, dtype=pl.Decimal(38, 2))
    ),
    st.lists(st.booleans() | st.none(), min_size=1, max_size=6).map(lambda cells: pl.Series(cells, dtype=pl.Boolean)),
    st.lists(st.integers(0, 2**52) | st.none(), min_size=1, max_size=6).map(
        lambda cells: pl.Series(cells, dtype=pl.Int64).cast(pl.Datetime("us"))
    ),
    st.integers(1, 4).map(lambda count: pl.Series([None] * count)),
)  # fmt: skip

SERIES_READERS: dict[str, Callable[[pl.Series], Any]] = {
    **{
        f"times {form} {zone} {lenient}": lambda series, form=form, zone=zone, lenient=lenient: TimeReader(  # type: ignore[misc]
            form, zone, lenient=lenient
        ).read(series)
        for form, zone in (
            *((form, "UTC") for form in FORMATS),
            *((form, "Europe/Berlin") for form in ("auto", "%d.%m.%Y %H:%M", "%Y-%m-%dT%H:%M:%S%z")),
        )
        for lenient in (False, True)
    },
    "numbers": lambda series: numbers(series, "value"),
    "lenient numbers": lambda series: numbers(series, "value", lenient=True),
    "texts": texts,
    "units": lambda series: UnitReader().read(series),
    "units as text": lambda series: TextUnits().read(series),
    "categories": Columns(("a", "b", "5", "1"), "other").indices,
    "lookup": lambda series: Lookup(("a", "5", "1"), ("x", "y", "x")).indices(series, Columns(("x", "y"))),
    "intervals": Intervals((0, 5, BIG, 2**60), "other").indices,
    "range": Range.of("0", "10", 5).indices,
    **{
        f"condition {text} {lenient}": lambda series, text=text, lenient=lenient: Condition(text).holds(  # type: ignore[misc]
            pl.DataFrame({"x": series}), lenient=lenient
        )
        for text in (
            f"x == {BIG}",
            f"x <= {BIG - 1}",
            "not x > 5.5",
            "x in ['a', '5', 'true']",
            "not x == ''",
        )
        for lenient in (False, True)
    },
    "postgres": lambda series: postgres._field(texts(series), moment=False),
}


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", SERIES_READERS)
@given(columns_of)
def test_a_column_is_read_cell_by_cell(name: str, series: pl.Series) -> None:
    """Times, numbers, units, categories, lookups and conditions, of every type that a source hands over."""
    agrees(SERIES_READERS[name], series)


@pytest.mark.parametrize("name", SERIES_READERS)
def test_no_text_decides_how_others_are_read(name: str) -> None:
    """Each of the cells that somebody might write, beside all others and absent from them."""
    read, cells = SERIES_READERS[name], [*WORDS, None, "a\\tb"]
    alone = {cell: outcome(read, pl.Series([cell], dtype=pl.String)) for cell in cells}
    fine = [cell for cell in cells if alone[cell] != REFUSED]
    for cell in cells:
        others = [one for one in fine if one != cell]
        expected = [one for each in others for one in alone[each]]
        assert repr(outcome(read, pl.Series(others, dtype=pl.String))) == repr(expected)
        expected = REFUSED if alone[cell] == REFUSED else [*alone[cell], *expected]
        assert repr(outcome(read, pl.Series([cell, *others], dtype=pl.String))) == repr(expected)


QUERIES = {
    "count": Query(aggregate="count", columns=Columns(("a", "b"), "other")),
    "sum": Query(
        aggregate="sum", columns=Columns(("a", "b")), clip=("0", "10"), where="value > 0.5 and not place == 'x'"
    ),
    "mean": Query(aggregate="mean", columns=Columns(("a", "b")), clip=("-3", "9007199254740990"), grid="1"),
    "histogram": Query(aggregate="histogram", columns=Intervals((0, 5, BIG))),
    "lookup": Query(aggregate="distinct", columns=Columns(("x", "y")), lookup=Lookup(("a", "b", "5"), ("x", "y", "y"))),
    "given": Query(aggregate="given", columns=Columns(("a", "b")), fill="zero"),
    "rounded": Query(
        aggregate="given", columns=Columns(("a", "b")), fill="zero", rounding="nearest", grid="0.1", clip=("0", "9")
    ),
}  # fmt: skip
frames_of = st.lists(
    st.tuples(
        st.sampled_from(["5", "15.5", "2026-03-02T10:00:00Z", None, "noon"]),
        st.sampled_from(["u", "v", None]),
        st.sampled_from(["a", "b", "x", "5", None]),
        st.sampled_from(["1", "7.5", "", str(BIG), None, "plenty", "inf", "1e300"]),
    ),
    min_size=1,
    max_size=6,
).map(lambda rows: pl.DataFrame(rows, schema=dict.fromkeys(SCHEMA.needed, pl.String), orient="row"))


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize(
    ("name", "lenient", "value"),
    combined(5, QUERIES, (False, True), (pl.String, pl.Int64, pl.Float64)),
)
@given(frames_of)
def test_a_batch_becomes_the_rows_of_its_records(
    name: str, lenient: bool, value: Any, frame: pl.DataFrame
) -> None:
    """Every aggregate, finite and followed, with values as text and typed."""
    frame = frame.with_columns(pl.col("value").cast(value, strict=False))

    def read(part: pl.DataFrame) -> pl.DataFrame:
        times = TimeReader("auto", "Europe/Berlin", lenient=lenient)
        return read_rows(QUERIES[name], part, SCHEMA, times, UnitReader(), lenient=lenient)

    agrees(read, frame)


# lines, messages and bodies ---------------------------------------------------------------------------------

CSV_LINES = [
    *(b"5,u,a,1", b"5,u,a,", b",,,", b'5,"u, v",a,1', b'5,"",a,1', b"\xef\xbb\xbf5,u,a,1", b"5,\xc3\xa9,a,1"),
    *(b'5,u"v"w,a,1', b"5.0,u,a,1e5", b"5,u", b"5,u,a,1,2", b'5,"u,a,1', b" 5 , u , a , 1 ", b"x\x9c,u,a,1"),
    *(b"\x1f\x8b,u,a,1", b"x\x01,u,a,1", b"null,NULL,NA,nan", b"5,u,a,1\r"),
]
JSON_LINES = [
    *(
        b'{"time": 5, "unit": "u", "place": "a", "value": 1}',
        b'{"time": 5.0, "unit": 7, "place": true, "value": 1.5}',
    ),
    *(
        b'{"time": "5", "value": null}',
        b"{}",
        b'{"time": 1e3, "value": -0.0}',
        b'{"unit": "\\ud83d\\ude00"}',
        b"[1]",
    ),
    *(
        b'{"time": 9007199254740993, "value": 9007199254740993}',
        b'{"time": 18446744073709551616}',
        b'{"time": {"a": 1}}',
    ),
    *(
        b'{"time": [5]}',
        b'{"time": 5',
        b'{"value": 1e400}',
        b'{"value": 0.1, "value": 2}',
        b'{"other": 1}',
        b"null",
    ),
]


def dialect(kind: str) -> Dialect:
    """A reader of lines that has seen its header."""
    if kind == "csv":
        found = CsvDialect("lines", SCHEMA.needed)
        found.names = list(SCHEMA.needed)
        return found
    lines = JsonDialect("lines", SCHEMA.needed)
    lines.unseen.clear()
    return lines


@pytest.mark.parametrize("each", [False, True], ids=["finite", "followed"])
@pytest.mark.parametrize(("kind", "lines"), [("csv", CSV_LINES), ("jsonl", JSON_LINES)])
def test_every_pair_of_lines_is_read_as_two(kind: str, lines: list[bytes], each: bool) -> None:
    """Of files, pipes, topics and messages, in both orders, and all of them together."""

    def read(found: list[bytes]) -> pl.DataFrame:
        reader = dialect(kind)
        content = b"".join(line + b"\n" for line in found)
        return (reader.parse_each if each else reader.parse)(content, SCHEMA.needed)

    for one in lines:
        for other in lines:
            agrees(read, [one, other])
    agrees(read, [line for line in lines if outcome(read, [line]) != REFUSED])


def parser(folder: Path) -> Parser:
    """A service's reader of bodies."""
    return Parser(parse_queries(posted_text(folder), folder / "hall.toml"))


SENT = [
    *({"time": "2026-03-02", "unit": "a", "place": "north"}, {"time": 5, "unit": 7, "place": True}),
    *({"time": 5.5, "unit": "b", "place": "south"}, {"time": "2026-03-02T01:00Z", "unit": "c", "place": "x"}),
    *({"time": None, "unit": "c", "place": "x"}, {"time": "noon", "unit": "c", "place": "x"}, {"unit": "c"}),
]


def test_every_pair_of_sent_records_is_read_as_two(tmp_path: Path) -> None:
    """Bodies of JSON, whose fields have types; a number that is none is a missing time."""
    reader = parser(tmp_path)

    def read(part: list[Any]) -> pl.DataFrame:
        body = b"".join(json.dumps(one).encode() + b"\n" for one in part)
        return reader.parse("application/x-ndjson", body)

    alone = [outcome(read, [one]) for one in SENT]
    for one, of_one in zip(SENT, alone, strict=True):
        for other, of_other in zip(SENT, alone, strict=True):
            is_all_of(outcome(read, [one, other]), [of_one, of_other])


# the rule, in the source ------------------------------------------------------------------------------------

READERS = [
    *("ingest/times.py", "ingest/columns.py", "ingest/condition.py", "ingest/lookup.py", "ingest/schema.py"),
    *(
        "ingest/aggregate.py",
        "ingest/quantiles.py",
        "ingest/intake.py",
        "ingest/tuning.py",
        "ingest/errors.py",
    ),
    *(
        "ingest/sources/text.py",
        "ingest/sources/parquet.py",
        "ingest/sources/postgres.py",
        "ingest/sources/kafka.py",
    ),
    *("ingest/sources/mqtt.py", "ingest/sources/pipe.py", "ingest/sources/directory.py"),
    *("web/event_parsing.py", "web/http_source.py", "spark/reading.py", "spark/native.py"),
]
ASKED = {"any", "all", "null_count", "has_nulls", "is_empty", "dtype", "dtypes"}
BY_TYPE = "a column's type is that of the file's or the sender's schema; no record in it changes it"
REFUSES = "refuses the whole input before anything of it is released; no record is read otherwise"
RELEASED = "of released values"
SHAPE = "what was read already; decides about order or room, not about records"
TERMINAL = "a word on the owner's terminal, and nothing else"
ALLOWED = {
    ("ingest/intake.py", "_any_counts", "any"): TERMINAL,
    ("ingest/errors.py", "refuse", "any"): REFUSES,
    ("ingest/times.py", "read", "dtype"): BY_TYPE,
    ("ingest/columns.py", "numbers", "dtype"): BY_TYPE,
    ("ingest/columns.py", "texts", "dtype"): BY_TYPE,
    ("ingest/columns.py", "indices", "dtype"): BY_TYPE,
    ("ingest/schema.py", "read", "dtype"): BY_TYPE,
    ("ingest/schema.py", "unit_codes", "dtype"): BY_TYPE,
    ("ingest/aggregate.py", "on_grid", "dtype"): BY_TYPE,
    ("ingest/intake.py", "_check", "dtype"): BY_TYPE,
    ("web/event_parsing.py", "_missing", "dtype"): BY_TYPE,
    ("ingest/sources/text.py", "_check_quotes", "any"): REFUSES,
    ("web/event_parsing.py", "_odd_quotes", "any"): REFUSES,
    ("ingest/sources/text.py", "parse", "null_count"): REFUSES,
    ("ingest/aggregate.py", "needed", "all"): SHAPE,
    ("ingest/quantiles.py", "_crossing", "any"): RELEASED,
    ("ingest/quantiles.py", "_end", "any"): RELEASED,
}


def asked(path: Path) -> Iterator[tuple[str, str, int]]:
    """Where a module asks something of a whole column: the function, what, and the line."""
    tree = ast.parse(path.read_text())
    inside: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            own = node.name if isinstance(node, ast.FunctionDef) else inside.get(node, "")
            inside[child] = own
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ASKED and isinstance(node.ctx, ast.Load):
            yield inside[node], node.attr, node.lineno


@pytest.mark.parametrize("module", READERS)
def test_readers_ask_nothing_of_a_batch(module: str) -> None:
    """Whether any or all records are so, how many lack something, or of what type a batch has become."""
    path = Path(tidegate.__file__).parent / module
    assert not [each for each in asked(path) if (module, *each[:2]) not in ALLOWED]


def test_every_exception_is_still_one() -> None:
    """The list of exceptions gets shorter by itself."""
    root = Path(tidegate.__file__).parent
    seen = {(module, function, word) for module in READERS for function, word, _ in asked(root / module)}
    assert set(ALLOWED) <= seen
