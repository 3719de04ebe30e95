from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
from tidegate.ingest.condition import Combination, Comparison, Condition
from tidegate.ingest.sources.parquet import ParquetSource

FRAME = pl.DataFrame(
    {
        "status": ["paid", "open", None, "paid", "paid"],
        "amount": ["7", "9", "9", "", "0.1"],
        "line no": ["1", "2", "3", "4", "5"],
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('status == "paid"', [0, 3, 4]),
        ("status != 'paid'", [1]),
        ("amount >= 7", [0, 1, 2]),
        ("amount == 0.1", [4]),
        ("amount < 1 or status == 'open'", [1, 4]),
        ("not amount < 8", [1, 2]),
        ("not (amount < 8 and status == 'paid')", [1, 2]),
        ("status in ['open', \"paid\"] and `line no` not in [1, 4.0]", [1, 4]),
        ("amount > 8 and status == 'open' or `line no` == 4", [1, 3]),
        ("amount > 8 and (status == 'open' or `line no` == 3)", [1, 2]),
    ],
)
def test_conditions_choose_records(text: str, expected: list[int]) -> None:
    """Operators bind as everywhere, and a missing field decides nothing."""
    condition = Condition(text)
    assert [row for row, kept in enumerate(condition.holds(FRAME)) if kept] == expected
    assert (Condition(str(condition)).holds(FRAME) == condition.holds(FRAME)).all()


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 1, "the name of a field"),
        ("status", 7, "one of =="),
        ("status = 'paid'", 8, 'equality is written "=="'),
        ("status == paid", 11, "a text in quotes or a number"),
        ("status == 'paid' amount > 3", 18, '"and", "or" or the end'),
        ("status > 'paid'", 10, "texts have no order"),
        ("(status == 'a'", 15, '")"'),
        ("status in 'a'", 11, '"["'),
        ("status in ['a', 3]", 17, "texts only or of numbers only"),
        ("3 < amount", 1, "the name of a field"),
        ("amount > 3; drop", 11, "a field, a comparison or a value"),
        ("amount.__class__ > 3", 7, "a field, a comparison or a value"),
        ("__import__('os') == 3", 11, "one of =="),
        ("amount > 1e5", 10, "a field, a comparison or a value"),
        ("not " * 60 + "a == 1", 201, "at most 50"),
        ("(" * 5000, 51, "at most 50"),
        ('a == "\\q"', 6, "JSON"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int, words: str) -> None:
    """The sentence names the key, the character and what may stand there."""
    with pytest.raises(InvalidParameter) as refused:
        Condition(text)
    assert refused.value.name == "where"
    assert f"at character {position} it needs" in str(refused.value)
    assert words in str(refused.value)


def test_a_field_is_of_one_kind() -> None:
    """One that were a number here and a text there could not be read."""
    with pytest.raises(InvalidParameter, match="'a' is compared with texts only or with numbers only"):
        Condition("a == 1 or a == '1'")
    with pytest.raises(InvalidParameter, match="at most 10000 characters"):
        Condition("a == " + "1" * 10_000)


comparisons = st.one_of(
    st.builds(
        Comparison,
        st.just("number"),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(-2, 2).map(lambda value: (Fraction(value, 2),)),
    ),
    st.builds(
        Comparison,
        st.just("a text"),
        st.sampled_from(["in", "in", "==", "!="]),
        st.tuples(st.sampled_from(["x", 'y"', "tr\\ue"])),
    ),
)
trees = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(Combination, st.just("not"), st.tuples(inner)),
        st.builds(
            Combination, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)
        ),
    ),
    max_leaves=8,
)


def judged(tree: Comparison | Combination, record: dict[str, Any]) -> bool | None:
    """What a tree says of a record; None where a missing field leaves it open."""
    if isinstance(tree, Comparison):
        value = record[tree.field]
        if value is None:
            return None
        right = tree.values[0]
        if isinstance(right, Fraction):
            value = Fraction(value)
        signs = {"==": "__eq__", "in": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__"}
        return bool(getattr(value, signs.get(tree.sign, "__ge__"))(right))
    found = [judged(part, record) for part in tree.parts]
    if tree.word == "not":
        return None if found[0] is None else not found[0]
    decides = tree.word == "or"
    if decides in found:
        return decides
    return None if None in found else not decides


@settings(max_examples=150)
@given(trees, st.sampled_from([None, "-1", " 0.5 ", "1e0", "0"]), st.sampled_from([None, "x", 'y"', "z"]))
def test_conditions_mean_what_they_say(tree: Any, number: str | None, text: str | None) -> None:
    """As written, read again and judged by hand, from text and from typed columns."""
    record = {"number": number, "a text": text}
    frame = pl.DataFrame(
        {name: [value] for name, value in record.items()}, schema=dict.fromkeys(record, pl.String)
    )
    condition = Condition(str(tree))
    expected = judged(tree, {"number": number and number.strip(), "a text": text}) is True
    assert condition.holds(frame).tolist() == [expected]
    typed = frame.with_columns(
        frame["number"].str.strip_chars().cast(pl.Float64), frame["a text"].cast(pl.Categorical)
    )
    assert condition.holds(typed).tolist() == [expected]


SCHEMA = Schema(time="time", unit="unit", column="place")
STEPS = Steps(start="1970-01-01", length=10, count=2)
EVENTS = pl.DataFrame(
    {
        "time": [1, 2, 3, 11, 12],
        "unit": [1, 1, 2, 3, 3],
        "place": ["a", "b", "a", "a", "b"],
        "weight": [2.0, 9.0, 9.0, None, 9.0],
        "paid": [True, True, False, True, True],
    }
)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_format_is_chosen_from_before_it_is_bounded(tmp_path: Path, kind: str) -> None:
    """Unit 1's first record does not hold, so its second counts; fields of the condition are read and go nowhere."""
    path = tmp_path / f"events.{kind}"
    write = {"csv": EVENTS.write_csv, "jsonl": EVENTS.write_ndjson, "parquet": EVENTS.write_parquet}[kind]
    write(path)
    query = Query(aggregate="count", columns=Columns(("a", "b")), most=1, where="weight > 5 and paid == true")
    assert query.needed(SCHEMA) == ("time", "unit", "place", "weight", "paid")
    with open_source(path, query.needed(SCHEMA)) as source:
        blocks = list(Intake(source, SCHEMA, STEPS, query))
    assert [row for block in blocks for row in block.units.tolist()] == [[0, 1], [0, 1]]


def test_what_is_no_number_refuses_a_file_and_is_left_out_of_a_stream(tmp_path: Path) -> None:
    """As for values: one sentence without the record before anything is released, or a record that counts nowhere."""
    path = tmp_path / "events.csv"
    path.write_text("time,unit,place,weight\n1,1,a,9\n2,2,a,secret\n3,3,b,9\n15,3,a,9\n")
    query = Query(aggregate="count", columns=Columns(("a", "b")), where="weight > 5")
    with (
        open_source(path, query.needed(SCHEMA)) as source,
        pytest.raises(InvalidInput, match="'weight'") as no,
    ):
        next(iter(Intake(source, SCHEMA, STEPS, query)))
    assert "secret" not in str(no.value)
    with open_source(path, query.needed(SCHEMA), follow=True) as source:
        live = Intake(source, SCHEMA, STEPS, query, follow=True, clock=lambda: 1e6, once=True)
        assert [row for block in live for row in block.units.tolist()] == [[1, 1], [1, 0]]


@pytest.mark.parametrize("where", [None, "place == 'a'", "weight > 5"])
def test_numbers_as_text_in_parquet_are_all_looked_at_first(tmp_path: Path, where: str | None) -> None:
    """A bad one in the last slice refuses all, and does not cut the releases short where it stands."""
    path = tmp_path / "events.parquet"
    frame = pl.DataFrame({"time": [1, 11], "unit": [1, 2], "place": ["a", "a"], "weight": ["9", "secret"]})
    frame.write_parquet(path)
    schema = Schema(time="time", unit="unit", column="place", value="weight")
    query = Query(aggregate="sum", columns=Columns(("a",)), clip=(0, 10), where=where)
    source = ParquetSource(path, query.needed(schema), rows=1)
    with source, pytest.raises(InvalidInput, match="'weight'"):
        next(iter(Intake(source, schema, STEPS, query)))


def test_a_condition_is_part_of_what_the_stream_is() -> None:
    """Another one is another stream, but not another spacing; without one the description is as before."""
    plain = Query(aggregate="count").describe()
    assert "where" not in plain
    assert "lookup" not in plain
    first, same, other = (
        Query(aggregate="count", where=text).describe() for text in ("a==1", " a == 1.0", "a == 2")
    )
    assert first == same != other
