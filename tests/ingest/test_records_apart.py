"""No record reaches beyond its line or its message: what one writer sends leaves the records of others as they are."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import InvalidInput
from tidegate.ingest import Columns, Intake, Lookup, Query, Schema, Source, Steps, open_source
from tidegate.ingest.errors import UnreadableInput
from tidegate.ingest.sources import text as text_module
from tidegate.ingest.sources.mqtt import MqttSource
from tidegate.ingest.sources.pipe import PipeSource
from tidegate.ingest.sources.text import PACKED, CsvDialect, JsonDialect
from tidegate.ingest.times import TimeReader
from tiers import combined, thinned

SCHEMA = Schema(time="time", unit="unit", column="place", value="value")
QUERY = Query(aggregate="sum", columns=Columns(("a", "b")), clip=("0", "10"))
CHOSEN = Query(
    aggregate="sum",
    columns=Columns(("a", "b")),
    clip=("0", "10"),
    where="value > 0.5 and not place == 'cellar' and not time < 1",
    lookup=Lookup(("a", "b"), ("a", "b")),
)
NEEDED = QUERY.needed(SCHEMA)
STEPS = Steps(start="1970-01-01", length=10, count=3, lateness=100)
HEADER = b"time,unit,place,value\n"

# What somebody might write. No line break: that would be two records.
HOSTILE_CSV = [
    b'5,mallory",a,1',
    b'5,"mallory,a,1',
    b'"',
    b'5,mallory,a,"',
    b'5,mal"lory,a,"1',
    b'5,"mallory"",a,1',
    b'5,"mal"lory,a,1',
    b"5,mallory,a,1,2,3",
    b"5,mallory\xff,a,1",
    b"noon,mallory,a,1",
    b"1970-01-01T00:00:05,mallory,a,1",
    b"1970-01-01T00:00:05Z,mallory,a,1",
    b"5,mallory,a,plenty",
    b"5,mallory,a,",
    b"5",
    b",,,",
    b"\x00",
    b"1e400,mallory,a,nan",
    b"99999999999999999999,mallory,a,1",
    b"9" * 5000 + b",mallory,a,1",
    b"\xef\xbb\xbf5,mallory,a,1",
    b"1970-01-01T 0:00:05,mallory,a,1",
]
HOSTILE_JSON = [
    b'{"time": 5, "unit": "mallory',
    b'{"time": [',
    b'{"time": {',
    b"]}",
    b'"}',
    b"[" * 3000,
    b'{"time": ' + b"[" * 3000,
    b'{"time": ' + b'{"a":' * 3000,
    b'{"time": "noon", "unit": "mallory", "place": "a", "value": 1}',
    b'{"time": null, "unit": null}',
    b'{"time": 5, "unit": "\\ud800", "place": "a", "value": 1}',
    b'{"time": 5, "unit": "mallory", "place": "a", "value": "plenty"}',
    b'{"time": 5, "unit": "mallory", "place": "a", "value": NaN}',
    b'{"time": {"a": 1}, "unit": ["mallory"], "place": true, "value": false}',
    b'{"time": ' + b"9" * 5000 + b', "unit": "mallory", "place": "a", "value": 1}',
    b"17",
    b"null",
    b"\xff\xfe",
    b"\x00",
    b"{}",
]
HOSTILE = [
    *(pytest.param("csv", line) for line in HOSTILE_CSV),
    *(pytest.param("jsonl", line) for line in HOSTILE_JSON),
]


def good(kind: str) -> list[bytes]:
    """Three records of people who do nothing wrong, one a step."""
    form = b'{"time": %d, "unit": "u%d", "place": "a", "value": 1}' if kind == "jsonl" else b"%d,u%d,a,1"
    return [form % (time, time) for time in (5, 15, 25)]


def begin(kind: str) -> bytes:
    """What stands before the records of a file."""
    return HEADER if kind == "csv" else b""


def a_file(folder: Path, kind: str, lines: list[bytes], follow: bool) -> Source:
    """A file."""
    path = folder / f"events.{kind}"
    path.write_bytes(begin(kind) + b"\n".join(lines) + b"\n")
    return open_source(path, NEEDED, follow=follow)


def a_folder(folder: Path, kind: str, lines: list[bytes], follow: bool) -> Source:
    """A folder with one file."""
    (folder / "in").mkdir()
    a_file(folder / "in", kind, lines, follow)
    return open_source(folder / "in", NEEDED, follow=follow)


def a_pipe(folder: Path, kind: str, lines: list[bytes], follow: bool) -> Source:
    """Standard input."""
    out, into = os.pipe()
    writer = threading.Thread(target=_write, args=(into, begin(kind) + b"\n".join(lines) + b"\n"))
    writer.start()
    return PipeSource(NEEDED, format=kind, follow=follow, descriptor=out)


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


class Messages(MqttSource):
    """Messages without a broker: everything after the network is the real thing."""

    def _connect(self) -> None:
        self._connected_at = 0.0
        self._client = SimpleNamespace(ack=lambda *_: None, disconnect=lambda: None, loop_stop=lambda: None)


def messages(folder: Path, kind: str, lines: list[bytes], follow: bool) -> Source:
    """A message for each record; acknowledgements go nowhere."""
    pytest.importorskip("paho.mqtt.client")
    source = Messages("mqtt://127.0.0.1/x", NEEDED, format=kind, fields=NEEDED)
    for number, line in enumerate(lines, 1):
        source._on_message(
            None, None, SimpleNamespace(retain=False, qos=1, mid=number, dup=False, payload=line)
        )
    return source


Maker = Callable[[Path, str, list[bytes], bool], Source]
FOLLOWED: list[Maker] = [a_file, a_folder, a_pipe, messages]
FINITE: list[Maker] = [a_file, a_folder, a_pipe]


def released(source: Source, follow: bool, query: Query = QUERY) -> list[list[int]]:
    """The three steps, by a clock that has passed them all when everything was read."""
    everything = False

    def clock() -> float:
        return 1e6 if everything else 26.0

    intake = Intake(source, SCHEMA, STEPS, query, follow=follow, clock=clock)
    intake._patience = lambda: 0.0  # type: ignore[method-assign]
    batches = source.batches

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal everything
        for batch in batches(*arguments, **more):
            yield batch
            everything = everything or "u25" in batch.frame["unit"].to_list()

    source.batches = counted  # type: ignore[method-assign]
    with source:
        return np.concatenate([block.units for block in intake]).tolist()  # type: ignore[no-any-return]


def others(steps: list[list[int]], without: list[list[int]]) -> bool:
    """Whether nobody but one unit, whose events are in the first step and column at most once, makes a difference."""
    change = np.array(steps) - np.array(without)
    return bool((change.ravel()[1:] == 0).all() and 0 <= change[0, 0] <= 10)


@pytest.mark.parametrize("query", [QUERY, CHOSEN], ids=["all", "where"])
@pytest.mark.parametrize("maker", FOLLOWED)
@pytest.mark.parametrize(("kind", "hostile"), thinned(HOSTILE, 4))
def test_followed_streams_leave_out_what_they_cannot_read(
    query: Query, maker: Maker, kind: str, hostile: bytes, tmp_path: Path
) -> None:
    """Whatever one writer adds, before, between and after: the records of the others count as without it."""
    first, second, third = good(kind)
    lines = [hostile, first, hostile, second, hostile, hostile, third, hostile]
    source = maker(tmp_path, kind, lines, True)
    assert others(released(source, True, query), [[1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("query", [QUERY, CHOSEN], ids=["all", "where"])
@pytest.mark.parametrize("maker", FINITE)
@pytest.mark.parametrize(("kind", "hostile"), thinned(HOSTILE, 4, offset=2))
def test_finite_inputs_refuse_it_by_name_or_lose_nobody(
    query: Query, maker: Maker, kind: str, hostile: bytes, tmp_path: Path
) -> None:
    """Two records that open a quote refuse the file as one does; none joins what others wrote."""
    first, second, third = good(kind)
    source = maker(tmp_path, kind, [first, hostile, second, hostile, third], False)
    with suppress(InvalidInput):
        assert others(released(source, False, query), [[1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("begin", PACKED)
def test_what_begins_like_an_archive_is_read_as_it_is(begin: bytes) -> None:
    """Nobody unpacks a piece of lines, to whatever size: as CSV it is text, and JSON does not begin so."""
    if begin != PACKED[-1]:  # alone it is no UTF-8, with another byte it may be
        csv = CsvDialect("file", ["time", "unit"])
        csv.header(b"time,unit")
        line = begin.decode("utf-8", "ignore").encode() if begin[1:] != b"\xda" else begin + b"\x80"
        assert csv.parse(line + b"1,2\n3,4\n", ["unit"])["unit"].to_list() == ["2", "4"]
    packed = {b"\x1f": gzip.compress, b"x": zlib.compress, b"(": zstandard.ZstdCompressor().compress}
    body = packed[begin[:1]](b'{"time": 1, "unit": "a"}\n')
    with pytest.raises(InvalidInput):
        JsonDialect("file", ["time", "unit"]).parse(body, ["time", "unit"])
    csv = CsvDialect("file", ["time"])
    csv.header(b"time")
    with suppress(InvalidInput):
        assert "1" not in csv.parse(packed[begin[:1]](b"1\n"), ["time"])["time"].to_list()


def test_quotes_over_lines_are_refused(tmp_path: Path) -> None:
    """A field must not hold a line break: else one record could swallow those that follow it."""
    path = tmp_path / "events.csv"
    path.write_bytes(HEADER + b'5,"two\nlines",a,1\n15,u,a,1\n')
    with pytest.raises(UnreadableInput, match="must not hold a line break"):
        list(open_source(path, NEEDED).batches())


bits = st.sampled_from(
    [
        b"\xef\xbb\xbf",
        b'"',
        b",",
        b"\\",
        b"{",
        b"}",
        b"[",
        b":",
        b"a",
        b"1",
        b"\r",
        b"\xc3",
        b"\xa9",
        b" ",
        b"\x00",
    ]
)
lines = st.lists(st.lists(bits, max_size=12).map(b"".join), max_size=6)


@settings(max_examples=200)
@given(lines, st.integers(0, 6))
def test_a_line_becomes_what_it_is_alone(found: list[bytes], at: int) -> None:
    """Lenient reading of many lines is the lenient reading of each, for CSV and for JSON lines."""
    csv = CsvDialect("x", ("time", "unit"))
    csv.names = ["time", "unit", "other"]
    found.insert(at, b'7,"u ""x""",\xc3\xa9')
    for reader in (csv, JsonDialect("x", ("time", "unit"))):
        together = reader.parse_each(b"\n".join(found), ("time", "unit")).rows()
        apart = [row for line in found for row in reader.parse_each(line, ("time", "unit")).rows()]
        assert together == apart
    assert ("7", 'u "x"') in csv.parse_each(b"\n".join(found), ("time", "unit")).rows()


@settings(max_examples=500, deadline=None)
@given(
    st.text(alphabet='{}[]":, 1.e-aNul\n\\d8\ufeff', max_size=12)
    | st.from_regex(r'\A[ \n]?\{"a": ?[0-9]\}[ }]?\Z')
)
def test_json_without_blanks_is_read_as_with_them(text: str) -> None:
    """Looking for blanks only where some are changes neither what is read nor what is refused."""

    def outcome(read: Callable[[str], Any]) -> str:
        try:
            return repr(read(text))
        except ValueError:
            return "refused"

    assert outcome(text_module._decoded) == outcome(text_module._decoder.decode)


def test_text_that_nobody_can_write_is_missing_in_its_own_record_only() -> None:
    """A half of a pair at the end of one text and the other half at the beginning of the next make no sign together."""
    fields = ["\ud83d", "\ude00", "fine", "\U0001f600", None, True, [], "\u00e9"]
    for chosen in (fields, fields[:4], fields[2:4], fields[3:], []):
        found = JsonDialect.table([{"a": one} for one in chosen], ["a"])["a"].to_list()
        alone = [JsonDialect.table([{"a": one}], ["a"])["a"][0] for one in chosen]
        assert found == alone
    assert alone == []
    assert JsonDialect.table([{"a": one} for one in fields], ["a"])["a"].to_list() == [
        *(None, None, "fine", "\U0001f600", None, "true", None, "\u00e9")
    ]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("form", ["auto", "iso"])
def test_a_time_that_no_clock_has_is_a_missing_one(zone, form):
    """It stops nobody, in whatever zone; the good one beside it is read as it would be alone."""
    reader = TimeReader(form, zone, lenient=True)
    odd = pl.Series(["-262143-01-01T00:00:00", "2026-03-02T10:00:00", "262142-12-31T23:59:59", "noon"])
    found = reader.read(odd)
    assert found[1] == TimeReader(form, zone, lenient=True).read(odd[1:2])[0]
    assert found[3] is None


TIMES = [
    *(
        "1970-01-01T00:00:05",
        "1970-01-01T 0:00:05",
        "1970-01- 1T00:00:05",
        "1970-1-1T0:0:5",
        "1970-01-01 00:00:05",
    ),
    *(
        "1970-01-01  0:00:05",
        "1970-01-01T00:00",
        "1970-01-01",
        "1970-01-01T00:00:05Z",
        "1970-01-01T 0:00:05Z",
    ),
    *(
        "1970-01-01T00:00:05+01:00",
        "1970-01-01T 0:00:05+0100",
        "1970-01-01T00:00:05z",
        "1970-01-01T00:00:05,5",
    ),
    *(
        "5",
        "5.5",
        "+5",
        " 5 ",
        "1e0",
        "soon",
        "",
        "Z",
        "-",
        "+0000",
        "99999-01-01T00:00:00",
        "2026-03-29T02:30:00",
    ),
    *(
        "1970-01-01T00:00:60",
        "1970-01-01T24:00:00",
        "\x00",
        "1970-01-01T00:00:05+99:99",
        "9223372036854775807",
    ),
]
FORMS = ("auto", "iso", "seconds", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z")


@pytest.mark.parametrize(("form", "zone"), combined(5, FORMS, ("UTC", "Europe/Berlin")))
def test_no_time_decides_how_another_is_read(form: str, zone: str) -> None:
    """Every pair, in both orders: each is what it is alone. One unreadable time made all that have a blank vanish."""

    def read(*texts: str) -> list[int | None]:
        return TimeReader(form, zone, lenient=True).read(pl.Series(texts, dtype=pl.String)).to_list()

    alone = {text: read(text)[0] for text in TIMES}
    assert sum(moment is not None for moment in alone.values()) >= 2
    for one in TIMES:
        for other in TIMES:
            assert read(one, other) == [alone[one], alone[other]]
    assert read(*TIMES) == list(alone.values())
