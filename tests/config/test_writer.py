from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tidegate.config import input_columns, parse_config, write_config
from tidegate.config.keys import THE_END
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.ingest.errors import DuplicateHeader, EmptyInput, NotUtf8

MARK = "MARKED7781"
CLOCK: dict[str, Any] = {"start": "2026-03-02", "count": 24}


def test_a_first_file_from_a_header(tmp_path: Path) -> None:
    """What is written is valid, says what it guessed, and has seen no record."""
    path = tmp_path / "sightings.csv"
    path.write_text(f"seen_at,device_id,building\n2026-03-02T00:00,{MARK},{MARK}\n")
    columns = input_columns(path)
    assert columns == {"seen_at": "unknown", "device_id": "unknown", "building": "unknown"}
    text = write_config(
        "sightings.csv", columns, unit="device_id", categories=["Library", 'the "Attic"'], **CLOCK
    )
    assert MARK not in text
    config = parse_config(text)
    assert (config.schema.time, config.schema.unit, config.schema.column) == (
        "seen_at",
        "device_id",
        "building",
    )
    assert config.query.columns.labels == ("Library", 'the "Attic"')
    comments = " ".join(line.removeprefix("# ") for line in text.splitlines())
    assert THE_END in comments


def test_types_of_parquet_and_json(tmp_path: Path) -> None:
    """From the schema, or from the kinds of the first object's values."""
    table = tmp_path / "x.parquet"
    frame = pl.DataFrame({"when": [0], "household": ["h"], "kwh": [1.5]})
    frame.with_columns(pl.from_epoch("when")).write_parquet(table)
    assert input_columns(table) == {"when": "time", "household": "text", "kwh": "number"}
    lines = tmp_path / "x.jsonl"
    lines.write_text(f'{{"ts": 5, "user": "{MARK}", "amount": 1.5, "ok": true}}\n')
    kinds = {"ts": "whole number", "user": "text", "amount": "number", "ok": "text"}
    assert input_columns(lines) == kinds
    config = parse_config(
        write_config("x.jsonl", kinds, aggregate="sum", clip=["0", "9"], unit="user", **CLOCK)
    )
    assert config.policy.max_change == 9
    assert (config.schema.time, config.schema.unit) == ("ts", "user")


def test_without_a_unit_records_are_counted() -> None:
    """No guess fits, so the line is left as a comment."""
    text = write_config("x.csv", {"timestamp": "unknown", "temperature": "unknown"}, **CLOCK)
    assert '# unit = "…"' in text
    assert parse_config(text).query.aggregate == "count"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", EmptyInput),
        (b"a,b,a\n", DuplicateHeader),
        (b"\xff\xfe\n", NotUtf8),
    ],
)
def test_bad_headers(tmp_path: Path, data: bytes, error: type[TidegateError]) -> None:
    """One sentence each."""
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.raises(error):
        input_columns(path)


def test_what_cannot_be_guessed_is_asked_for() -> None:
    """A file without a time, or a column that is not there."""
    with pytest.raises(InvalidParameter, match="time"):
        write_config("x.csv", {"a": "text", "b": "number"}, **CLOCK)
    with pytest.raises(
        InvalidParameter, match=r"unit='device' .* a column of the input: time, devices; did you mean"
    ):
        write_config("x.csv", {"time": "time", "devices": "text"}, unit="device", **CLOCK)
    with pytest.raises(InvalidParameter, match="categories is missing"):
        write_config("x.csv", {"time": "time", "shop": "text"}, column="shop", **CLOCK)
