from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tidegate.errors import TidegateError
from tidegate.ingest import Columns, Intake, Query, Schema, Steps, open_source
from tidegate.ingest.errors import (
    BadTimes,
    DuplicateHeader,
    EmptyInput,
    InputChanged,
    MissingColumn,
    MixedTypes,
    NotNumeric,
    NotUtf8,
    SourceUnavailable,
    TimeGoesBackwards,
    TooManyColumns,
    UnreadableInput,
)
from tidegate.ingest.sources import text

MARK = "MARKED7781"
SCHEMA = Schema(time="time", unit="unit", column="place", value="value")
QUERY = Query(aggregate="sum", columns=Columns(("a", "b")), clip=("0", "10"))
STEPS = Steps(start="1970-01-01", length=10, count=3)


def csv(*lines: str) -> Callable[[Path], Path]:
    """A writer of a CSV file with a header and lines."""
    return raw("\n".join(["time,unit,place,value", *lines]).encode())


def raw(data: bytes, name: str = "events.csv") -> Callable[[Path], Path]:
    """A writer of bytes."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return write


def parquet(columns: dict[str, object], cut: int = 0) -> Callable[[Path], Path]:
    """A writer of a Parquet file, cut short by some bytes."""

    def write(folder: Path) -> Path:
        path = folder / "events.parquet"
        pl.DataFrame(columns).write_parquet(path)
        if cut:
            path.write_bytes(path.read_bytes()[:-cut])
        return path

    return write


def folder_of(*writers: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """A writer of a folder of files."""

    def write(folder: Path) -> Path:
        inner = folder / "in"
        inner.mkdir()
        for number, writer in enumerate(writers):
            path = writer(inner)
            path.rename(inner / f"{number}{path.suffix}")
        return inner

    return write


def damaged(folder: Path) -> Path:
    """A Parquet file with an intact footer over damaged pages."""
    path = parquet(
        GOOD
        | {
            "unit": [f"{MARK} {n}" for n in range(2000)],
            "time": [5] * 2000,
            "place": ["a"] * 2000,
            "value": [1.0] * 2000,
        }
    )(folder)
    data = bytearray(path.read_bytes())
    data[4:3000] = b"\xff" * 2996
    path.write_bytes(bytes(data))
    return path


GOOD: dict[str, object] = {"time": [5], "unit": [MARK], "place": ["a"], "value": [1.0]}
JSON = '{"time": 5, "unit": "%s", "place": "a", "value": %s}\n'

CASES: dict[str, tuple[Callable[[Path], Path], type[TidegateError]]] = {
    "truncated parquet": (parquet(GOOD, cut=20), UnreadableInput),
    "damaged parquet": (damaged, UnreadableInput),
    "parquet that is text": (raw(MARK.encode() * 10, "events.parquet"), UnreadableInput),
    "empty parquet": (raw(b"", "events.parquet"), EmptyInput),
    "parquet of 10^7 columns": (
        raw(b"PAR1" + b"x" * 20 + (500_000_000).to_bytes(4, "little") + b"PAR1", "events.parquet"),
        TooManyColumns,
    ),
    "csv of 10^7 columns": (raw(b"a," * 10**7 + b"b\n"), TooManyColumns),
    "empty csv": (raw(b""), EmptyInput),
    "csv of blank lines": (raw(b"\n\n"), EmptyInput),
    "empty json": (raw(b"", "events.jsonl"), EmptyInput),
    "empty folder": (folder_of(), EmptyInput),
    "duplicate header": (raw(b"time,unit,time,place,value\n5,u,5,a,1\n"), DuplicateHeader),
    "missing column in csv": (raw(f"time,unit,value\n5,{MARK},1\n".encode()), MissingColumn),
    "missing column in json": (
        raw(f'{{"time": 5, "unit": "{MARK}", "value": 1}}\n'.encode(), "events.jsonl"),
        MissingColumn,
    ),
    "missing column in parquet": (parquet({"time": [5], "unit": [MARK], "value": [1]}), MissingColumn),
    "invalid utf-8": (raw(b"time,unit,place,value\n5," + MARK.encode() + b"\xff\xfe,a,1\n"), NotUtf8),
    "invalid utf-8 in the header": (raw(b"time,unit\xff,place,value\n"), NotUtf8),
    "invalid utf-8 in json": (
        raw((JSON % (MARK, 1)).encode() + b'{"unit": "\xff"}\n', "events.jsonl"),
        NotUtf8,
    ),
    "non-numeric value": (csv(f"5,u,a,{MARK}"), NotNumeric),
    "non-numeric value in json": (raw((JSON % ("u", f'"{MARK}"')).encode(), "events.jsonl"), NotNumeric),
    "non-numeric value in parquet": (parquet(GOOD | {"value": [MARK]}), NotNumeric),
    "too many fields": (csv(f"5,u,a,1,{MARK},{MARK}"), UnreadableInput),
    "broken json": (
        raw((JSON % (MARK, 1)).encode() + f'{{"time": {MARK}\n'.encode(), "events.jsonl"),
        UnreadableInput,
    ),
    "json that is no object": (raw(f'["{MARK}"]\n'.encode(), "events.jsonl"), UnreadableInput),
    "times that are no times": (csv(f"{MARK},u,a,1"), BadTimes),
    "units with and without a sign": (
        folder_of(
            parquet(GOOD | {"unit": [-1]}), parquet(GOOD | {"unit": pl.Series([2**64 - 1], dtype=pl.UInt64)})
        ),
        MixedTypes,
    ),
    "mixed types of units": (folder_of(parquet(GOOD), parquet(GOOD | {"unit": [7781]})), MixedTypes),
    "units that are no units": (parquet(GOOD | {"unit": [7781.5]}), MixedTypes),
    **{
        f"{kind} as {name}": (parquet(GOOD | {name: pl.Series([7781], dtype=kind)}), MixedTypes)
        for kind in (pl.Int128, pl.UInt128)
        for name in GOOD
    },
    "time going backwards": (csv(f"15,{MARK},a,1", f"5,{MARK},a,1"), TimeGoesBackwards),
    "no file at all": (lambda folder: folder / "absent.csv", SourceUnavailable),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_sentence_without_a_record(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A named error with a remedy; neither it, nor what it is chained to, nor a log shows the marker."""
    make, error = CASES[case]
    path = make(tmp_path)
    caplog.set_level(logging.DEBUG)

    def first_block() -> object:
        """Nothing may be delivered before the whole input has been checked."""
        source = open_source(path, QUERY.needed(SCHEMA))
        return next(iter(Intake(source, SCHEMA, STEPS, QUERY, order="time")))

    with pytest.raises(error) as caught:
        first_block()
    raised: BaseException | None = caught.value
    sentence = str(raised)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 300
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    while raised is not None:
        shown += str(raised) + repr(raised.args)
        raised = raised.__context__ or raised.__cause__
    assert MARK not in shown


def test_an_input_that_shrank_is_refused(tmp_path: Path) -> None:
    """A committed position belongs to an input that is still there."""
    path = csv("5,u,a,1", "15,u,a,1", "25,u,a,1")(tmp_path)
    position = {"step": 1, "source": {"offset": 10_000}}
    with pytest.raises(InputChanged):
        list(Intake(open_source(path, QUERY.needed(SCHEMA)), SCHEMA, STEPS, QUERY, position=position))
    table = parquet(GOOD)(tmp_path)
    position = {"step": 1, "source": {"row": 10_000}}
    with pytest.raises(InputChanged):
        list(Intake(open_source(table, QUERY.needed(SCHEMA)), SCHEMA, STEPS, QUERY, position=position))


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without line breaks does not fill the memory."""
    monkeypatch.setattr(text, "LONGEST_LINE", 1000)
    path = csv("5,u,a," + "1" * 5000)(tmp_path)
    source = text.TextSource(path, QUERY.needed(SCHEMA), piece=100)
    with pytest.raises(UnreadableInput, match="longer than"):
        list(source.batches())


def test_marked_data_leave_no_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A good run on marked data: positions, logs, output and representations have none of it."""
    caplog.set_level(logging.DEBUG)
    lines = [f"{time},{MARK}-{time % 7},a,{time % 3}" for time in range(29, -1, -1)]
    path = csv(*lines, f"3,{MARK},{MARK},1", f"99999999,{MARK},a,1")(tmp_path)
    intake = Intake(open_source(path, QUERY.needed(SCHEMA)), SCHEMA, STEPS, QUERY, folder=tmp_path)
    blocks = list(intake)
    shown = repr([block.position for block in blocks]) + repr(intake) + repr(intake.source) + caplog.text
    printed = capfd.readouterr()
    assert MARK not in shown + printed.out + printed.err
    assert sum(int(block.units.sum()) for block in blocks) > 0


@pytest.mark.parametrize("header", ["time;unit;place;value", "time\tunit\tplace\tvalue"])
def test_another_separator_is_named(header: str, tmp_path: Path) -> None:
    """A header that is one column is told from one that lacks a column."""
    path = raw(f"{header}\n{MARK}\n".encode())(tmp_path)
    with pytest.raises(MissingColumn, match=r"write separator = ") as caught:
        list(open_source(path, SCHEMA.needed).batches())
    assert MARK not in str(caught.value)


def test_a_location_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    """Not asked for its format."""
    with pytest.raises(SourceUnavailable, match="no file or folder"):
        open_source(tmp_path / "arrivals", SCHEMA.needed)
