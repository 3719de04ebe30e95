"""Arrow batches that say of themselves what they are not, against the parser of the service."""

from __future__ import annotations

import io
import json
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.web.test_sending import posted_text

from tidegate.config import parse_queries
from tidegate.errors import InvalidInput
from tidegate.web.parsing import ARROW, MOST_CELLS, BadBatch, Parser, TooLarge

arrow = pytest.importorskip("pyarrow")
NAMES = ("time", "unit", "place")
WRITERS = ("new_stream", "new_file")


@pytest.fixture
def parser(tmp_path: Path) -> Parser:
    """The parser of a stream with three columns."""
    return Parser(parse_queries(posted_text(tmp_path), tmp_path / "hall.toml"))


def written(table: Any, writer: str = "new_stream", times: int = 1, **options: Any) -> bytes:
    """A table as Arrow, some times over."""
    file = io.BytesIO()
    chosen = arrow.ipc.IpcWriteOptions(**options)
    with getattr(arrow.ipc, writer)(file, table.schema, options=chosen) as sink:
        for _ in range(times):
            sink.write_table(table)
    return file.getvalue()


def table(**columns: Any) -> Any:
    """Three good records, with some columns replaced or added."""
    return arrow.table({"time": [1.0, 2.0, 3.0], "unit": ["a", "b", "c"], "place": ["north"] * 3} | columns)


@pytest.mark.parametrize("writer", WRITERS)
def test_what_other_tools_write_is_read(parser: Parser, writer: str) -> None:
    """Text in all layouts, dictionaries, numbers, timestamps, many batches, and columns that nobody needs."""
    kinds = (arrow.string(), arrow.large_string(), arrow.string_view())
    units = [arrow.array(["one", "a longer one than others", "c"], kind) for kind in kinds]
    units += [units[0].dictionary_encode(), arrow.array([1, 2, 3])]
    moments = arrow.array([1_000_000, 2_000_000, 3_000_000], arrow.timestamp("us", "UTC"))
    for unit in units:
        given = table(unit=unit, time=moments, nothing=arrow.nulls(3), code=arrow.array([b"x"] * 3))
        found = parser.parse(ARROW[0], written(given, writer, times=3))
        assert found["unit"].to_list() == [str(each) for each in unit.to_pylist()] * 3
        assert found["time"].to_physical().to_list() == [1_000_000, 2_000_000, 3_000_000] * 3
        assert found.columns == list(NAMES)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_buffers_that_are_packed_inside_are_refused(parser: Parser, writer: str, codec: str) -> None:
    """Their size is bounded by nothing; the sentence says what to do."""
    with pytest.raises(BadBatch, match="without compression"):
        parser.parse(ARROW[0], written(table(), writer, compression=codec))


@pytest.mark.parametrize("writer", WRITERS)
def test_rows_without_bytes_are_counted_first(
    parser: Parser, writer: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Null columns of absurd length are refused, and no library writes lines of its own about them."""
    real = 77_777
    body = written(arrow.table({name: arrow.nulls(real) for name in NAMES}), writer)
    for count in (MOST_CELLS // 3 + 1, 10**12, 2**63 - 1):
        with pytest.raises(TooLarge, match="send several"):
            parser.parse(ARROW[0], body.replace(struct.pack("<q", real), struct.pack("<q", count)))
    with pytest.raises(InvalidInput):
        parser.parse(ARROW[0], body.replace(struct.pack("<q", real), struct.pack("<q", -5)))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("writer", WRITERS)
def test_text_counts_as_often_as_it_is_pointed_to(parser: Parser, writer: str) -> None:
    """Many rows that share one long text, by views or through a dictionary, are as large as without sharing."""
    count, text = 200_000, b"a" * 2**20
    view = struct.pack("<I4sII", len(text), text[:4], 0, 0) * count
    buffers = [None, arrow.py_buffer(view), arrow.py_buffer(text)]
    shared = [arrow.Array.from_buffers(arrow.string_view(), count, buffers)]
    indices = arrow.array(np.zeros(count, dtype=np.int8))
    shared += [
        arrow.DictionaryArray.from_arrays(indices, arrow.array([text.decode()], kind))
        for kind in (arrow.string(), arrow.large_string(), arrow.string_view())
    ]
    for units in shared:
        given = arrow.table({"time": np.arange(count), "unit": units, "place": indices})
        with pytest.raises(TooLarge):
            parser.parse(ARROW[0], written(given, writer))


def test_a_batch_that_is_named_often_counts_often(parser: Parser) -> None:
    """A footer that names one record batch many times makes no more of it than is allowed."""
    given = arrow.table({name: np.zeros(100_000) for name in NAMES})
    body = written(given, "new_file", times=200)
    (size,) = struct.unpack_from("<i", body, len(body) - 10)
    footer = len(body) - 10 - size
    frames = [struct.unpack_from("<qi4xq", body, at) for at in range(footer, len(body) - 24, 4)]
    blocks = [each for each in frames if 2_400_000 <= each[2] < 2_400_100 and 0 < each[1] < 1000]
    assert len(blocks) == 200
    first = min(blocks)
    packed = {each: struct.pack("<qi4xq", *each) for each in blocks}
    end = body[footer:]
    for each in blocks:
        end = end.replace(packed[each], packed[first])
    short = body[: first[0] + first[1] + first[2]] + end
    assert len(short) < 3_000_000
    with pytest.raises(TooLarge):
        parser.parse(ARROW[0], short)


def test_nested_columns_are_refused(parser: Parser) -> None:
    """Also where nobody needs them, and however deep."""
    deep: Any = arrow.array([[1], [2], [3]])
    for _ in range(20):
        deep = arrow.ListArray.from_arrays([0, 1, 2, 3], deep)
    with pytest.raises(BadBatch, match="nested"):
        parser.parse(ARROW[0], written(table(deep=deep)))


BOMB = """
import resource, sys
from pathlib import Path
from tidegate.config import parse_queries
from tidegate.errors import TidegateError
from tidegate.web.parsing import ARROW, Parser
path = Path(sys.argv[1])
parser = Parser(parse_queries(path.read_text(), path))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for body in map(Path, sys.argv[2:]):
    try:
        parser.parse(ARROW[0], body.read_bytes())
    except TidegateError as error:
        print(type(error).__name__)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_small_bodies_take_little_memory(tmp_path: Path) -> None:
    """Bodies of some kilobytes that announce gigabytes take less than 64 MiB, under a limit that the gigabytes break."""
    (tmp_path / "hall.toml").write_text(posted_text(tmp_path))
    packed = written(arrow.table({name: np.zeros(10**6) for name in NAMES}), times=100, compression="zstd")
    nothing = written(arrow.table({name: arrow.nulls(77_777) for name in NAMES}))
    nothing = nothing.replace(struct.pack("<q", 77_777), struct.pack("<q", 10**9))
    assert max(len(packed), len(nothing)) < 200_000
    (tmp_path / "packed").write_bytes(packed)
    (tmp_path / "nothing").write_bytes(nothing)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", BOMB, *(str(tmp_path / name) for name in ("hall.toml", "packed", "nothing"))],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limit,
    )
    *refused, grown = done.stdout.split()
    assert refused == ["BadBatch", "TooLarge"]
    assert int(grown) < 64
    assert done.stderr == ""


NOISE = """
import os, sys
from tidegate.web.logs import log, only_lines
with only_lines():
    log("before")
    os.write(2, b"thread panicked at walrus\\nnote: run with walrus\\n")
    log("after")
    print("{}", file=sys.stderr)
print('{"event": "end"}', file=sys.stderr)
os.write(2, b'{"event": "own"}')
"""


def test_libraries_write_no_lines_of_their_own() -> None:
    """What a library prints on stderr when it fails becomes a line of the log, without its words."""
    done = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"library.failed", "before", "after", "end", "own"} == {each.get("event") for each in lines} - {
        None
    }
    assert sum(each.get("lines", 0) for each in lines) == 2
    assert "walrus" not in done.stderr


def test_what_polars_writes_is_read(parser: Parser) -> None:
    """As a file and as a stream, with text and categories."""
    frame = pl.DataFrame(
        {"time": [1, 2], "unit": ["a", "b" * 30], "place": pl.Series(["x", "y"], dtype=pl.Categorical)}
    )
    for write in (frame.write_ipc, frame.write_ipc_stream):
        file = io.BytesIO()
        write(file)
        assert parser.parse(ARROW[0], file.getvalue())["place"].to_list() == ["x", "y"]
