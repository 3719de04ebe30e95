"""What grows with what is sent has a bound, and here each bound is reached; docs/operating/resources.md has the table."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.helpers import Process, finite, served, settled, until
from tests.web.test_producer_routes import CLIENT, events, post, posted_text, record

from tidegate.config import parse_config
from tidegate.errors import InvalidParameter
from tidegate.releases import Release
from tidegate.sinks.chunks import Chunk
from tidegate.web import Service, limits
from tidegate.web.alarms import Alarm, Alarms
from tidegate.web.driver import read_map
from tidegate.web.feed import Feed
from tidegate.web.http_source import HttpIntake
from tidegate.web.quotas import Quota
from tidegate.web.spool import DAMAGED, Spool, SpoolFull, SpoolSource, cost
from tidegate.web.tokens import Tokens

ONE = pl.DataFrame({"unit": ["walrus"]})


def descriptors() -> int:
    """How many are open in this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def put_until_refused(spool: Spool, step: Callable[[int], int], holder: str = "") -> list[str]:
    """Put batches of one event until there is no space; the keys of those that were taken."""
    taken: list[str] = []
    for number in range(1, 1000):
        try:
            spool.put(f"{holder}{number}", ONE, np.array([step(number)]), holder).result()
        except SpoolFull:
            return taken
        taken.append(f"{holder}{number}")
    raise AssertionError("there is always room")


# the spool ----------------------------------------------------------------------------------------------------


def test_open_steps_take_no_descriptors(tmp_path: Path) -> None:
    """A batch over thousands of steps, and a start with all of them on disk."""
    steps = np.arange(1, 3001)
    pl.DataFrame({"unit": ["a"]}).sort("unit")  # threads of its own
    before = descriptors()
    spool = Spool(tmp_path / "s", 0)
    spool.put("1", pl.DataFrame({"unit": [str(step) for step in steps]}), steps).result()
    assert descriptors() <= before + 2
    assert len(list(spool.folder.iterdir())) <= 2
    spool.close()
    again = Spool(tmp_path / "s", 0)
    assert descriptors() <= before + 2
    assert events(again)["unit"].to_list() == [str(step) for step in steps]
    again.forget(2999)
    assert events(again)["unit"].to_list() == ["3000"]
    again.close()
    assert descriptors() == before


def test_a_start_reads_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the journal and the heads of pieces are looked at, however much is on disk."""
    spool = Spool(tmp_path / "s", 0)
    for number in range(50):
        spool.put(str(number), ONE, np.array([1])).result()
    spool.close()

    def refuses(*_: Any) -> Any:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr("polars.read_ipc", refuses)
        patched.setattr("tidegate.web.spool.decoded", refuses, raising=False)
        again = Spool(tmp_path / "s", 0)
    assert len(events(again)) == 50
    again.close()


MEASURED = """
import sys, pathlib, numpy as np, polars as pl
sys.path[:0] = [{root!r}, {root!r} + "/tests"]
from tests.web.test_producer_routes import posted_text
from tidegate.config import parse_config
from tidegate.config.queries import one
from tidegate.web import limits
from tidegate.web.event_parsing import Parser
from tidegate.web.http_source import HttpIntake
from tidegate.web.quotas import Quota
from tidegate.web.spool import Spool, SpoolSource

def memory(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])

folder, rows = pathlib.Path(sys.argv[1]), 20_000
config = parse_config(posted_text(folder, seconds=86400), folder / "hall.toml")
now = config.steps.boundary(1) + 1
columns = Parser(one(config)).columns

def count(spool, batches):
    for k in range(batches):
        units = [f"unit-{{k * rows + i:09d}}" for i in range(rows)]
        times = pl.Series([now] * rows, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
        frame = pl.DataFrame({{"time": times, "unit": units, "place": ["north"] * rows}})
        spool.put(str(k), frame, np.full(rows, 1)).result()
    estimated = spool._steps[1].taken
    intake = HttpIntake(
        SpoolSource(spool, columns), config.schema, config.steps, one(config).counted, follow=True,
        clock=lambda: now / 1e6 + 2 * 86400,
    )
    intake.spool = spool
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    block = next(iter(intake))
    assert block.units.tolist()[0] == [batches * rows, 0]
    return memory("VmHWM") - before, estimated

count(Spool(folder / "first", 0), 1)  # machine code and pools
taken, estimated = count(Spool(folder / "s", 0), 20)
print(taken, estimated)
assert taken <= estimated
"""


def test_counting_takes_what_is_estimated(tmp_path: Path) -> None:
    """Units that are all different take most; the estimate is not below what the process then takes."""
    script = MEASURED.format(root=str(Path(__file__).parents[2]))
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr[-2000:]


def test_a_step_has_as_many_events_as_can_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sender has half of a step, another finds room, other steps and later ones are not touched."""
    monkeypatch.setattr(limits, "MOST_COUNTED", 10 * cost(1, 14))
    spool = Spool(tmp_path / "s", 0)
    taken = len(put_until_refused(spool, lambda _: 1, "greedy"))
    assert taken == 5
    with pytest.raises(SpoolFull, match="as many events as can be counted"):
        spool.put("more", ONE, np.array([1]), "greedy")
    spool.put("other", ONE, np.array([1]), "other").result()
    spool.put("later", ONE, np.array([2]), "greedy").result()
    assert len(events(spool)) == taken + 2
    spool.close()
    again = Spool(tmp_path / "s", 0)  # who sent what is not remembered, how much there is is
    assert again.until(1, 9) == 9
    for number in range(4):
        again.put(f"again{number}", ONE, np.array([3]), "greedy").result()
    assert again.until(1, 9) == 2  # more than that is not in memory together
    again.forget(1)
    again.put("more", ONE, np.array([2]), "greedy").result()
    again.close()


@pytest.mark.parametrize(("name", "most"), [("MOST_STEPS", 4), ("MOST_PIECES", 8), ("MOST_KEPT", 400)])
def test_what_is_open_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """Steps, pieces and bytes on disk: at the bound a batch is put off, and is taken when steps have closed."""
    monkeypatch.setattr(limits, name, most)
    spool = Spool(tmp_path / "s", 0)
    taken = len(put_until_refused(spool, lambda step: step, "a"))
    assert 2 <= taken <= 4
    spool.forget(taken)
    assert (spool.kept.taken, spool.pieces.taken) == (0, 0)
    spool.put("again", ONE, np.array([50]), "a").result()
    assert len(events(spool)) == 1
    spool.close()


def test_keys_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest keys of committed steps are forgotten first; none of an open step ever is."""
    monkeypatch.setattr(limits, "MOST_KEYS", 64)
    monkeypatch.setattr("tidegate.web.spool._SHORTEN_EVERY", 0.0)
    spool = Spool(tmp_path / "s", 0)
    for step in range(1, 200):
        spool.put(f"k{step}", ONE, np.array([step])).result()
        spool.forget(step)
        assert (spool.folder / "journal").stat().st_size <= 64 * 48
    assert spool.known("k199")
    assert not spool.known("k1")
    keys = put_until_refused(spool, lambda _: 1000, "open")
    assert len(keys) > 40
    assert all(map(spool.known, keys))
    assert len(events(spool)) == len(keys)
    spool.close()


def test_a_key_takes_a_few_bytes(tmp_path: Path) -> None:
    """A hundred thousand keys that are remembered: less than 64 bytes of memory each, at work and after a start."""
    from tidegate.web.spool import _Keys

    names = [f"{number:016x}".encode() for number in range(100_000)]
    tracemalloc.start()
    try:
        keys = _Keys()
        for begin in range(0, len(names), 100):
            keys.add([bytes(bytearray(name)) for name in names[begin : begin + 100]])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 64 * len(names)
    assert all(name in keys for name in names[::97])
    assert b"f" * 16 not in keys


def test_events_are_overwritten_with_the_commit_of_their_step(tmp_path: Path) -> None:
    """Also where the file stays because it has events of later steps, and after a kill before that was done."""
    folder = tmp_path / "s"
    spool = Spool(folder, 0)
    frame = pl.DataFrame({"unit": ["walrus", "heron", "walrus"]})
    spool.put("1", frame, np.array([1, 2, 1])).result()
    copy = {path: path.read_bytes() for path in folder.iterdir()}
    spool.forget(1)
    log = next(folder.glob("events-*"))
    assert b"walrus" not in log.read_bytes()
    assert events(spool)["unit"].to_list() == ["heron"]
    spool.close()
    for path, content in copy.items():
        path.write_bytes(content)
    again = Spool(folder, 1)
    assert b"walrus" not in log.read_bytes()
    assert events(again)["unit"].to_list() == ["heron"]
    again.forget(2)
    assert not list(folder.glob("events-*"))
    again.close()


def test_a_flipped_bit_is_said_and_costs_one_batch(tmp_path: Path) -> None:
    """Wherever it is: in the events, in the head of a piece, or in the journal. All others are counted."""
    folder = tmp_path / "s"
    spool = Spool(folder, 0)
    for number in range(3):
        spool.put(str(number), pl.DataFrame({"unit": [f"unit{number}"]}), np.array([1])).result()
    spool.close()
    files = {path: path.read_bytes() for path in folder.iterdir()}
    for path, content in files.items():
        for at in range(0 if path.name == "journal" else content.index(b"tide"), len(content)):
            for other, before in files.items():
                other.write_bytes(before)
            path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            told: list[str] = []
            again = Spool(folder, 0, tell=told.append)
            found = events(again)["unit"].to_list()
            assert told == [DAMAGED]
            assert again.damaged
            assert len(found) == 2
            assert set(found) < {"unit0", "unit1", "unit2"}
            again.close()


def test_batches_before_the_disk_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk does not take them: at the bound a batch is put off, and nothing that waits is lost."""
    monkeypatch.setattr(limits, "MOST_WAITING", 200)
    spool = Spool(tmp_path / "s", 0)
    waiting = []
    with spool._disk:
        for number in range(100):
            try:
                waiting.append(spool.put(str(number), ONE, np.array([1])))
            except SpoolFull:
                break
        assert 2 <= len(waiting) <= 5
    for each in waiting:
        each.result()
    spool.put("again", ONE, np.array([1])).result()
    assert len(events(spool)) == len(waiting) + 1
    spool.close()


@pytest.mark.parametrize("room", [0, 3000, 10**9])
def test_what_is_read_ahead_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """With no room, some, and plenty: the same vectors, from what was read ahead and from what is read at the close."""
    monkeypatch.setattr("tidegate.web.http_source._HELD", Quota(room))
    monkeypatch.setattr("tidegate.web.spool._ROWS_AT_ONCE", 2)
    config = parse_config(posted_text(tmp_path, seconds=10), tmp_path / "hall.toml")
    first, now = config.steps.boundary(1), [0.0]
    spool = Spool(tmp_path / "s", 0)

    def put(key: str, step: int, unit: str) -> None:
        times = pl.Series([first + (step - 1) * 10**7], dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
        frame = pl.DataFrame({"time": times, "unit": [unit], "place": ["north"]})
        spool.put(key, frame, np.array([step])).result()

    source = SpoolSource(spool, ["time", "unit", "place"])
    intake = HttpIntake(source, config.schema, config.steps, config.query, follow=True, clock=lambda: now[0])
    intake.spool = spool
    now[0] = first / 1e6 + 1
    real, reads = intake._read_ahead, []

    def read_ahead(held: Any, place: int) -> int:
        found = real(held, place)
        reads.append(len(held))
        if len(reads) == 2:
            for number in range(4):  # after what was read ahead
                put(f"late{number}", 1, f"late{number}")
            now[0] += 25
        return found

    monkeypatch.setattr(intake, "_read_ahead", read_ahead)
    for number in range(12):
        put(f"a{number}", 1 + number % 2, f"u{number}")
    blocks = iter(intake)
    assert [next(blocks).units[:, 0].tolist() for _ in range(2)] == [[10], [6]]
    assert reads[1] == {0: 2, 3000: 6, 10**9: 12}[room]  # one part at least
    spool.close()


def test_a_block_of_steps_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a gap so many steps are counted together, and each is a block with its own events."""
    monkeypatch.setattr("tidegate.web.http_source.MOST_CELLS", 20)
    config = parse_config(posted_text(tmp_path, seconds=10), tmp_path / "hall.toml")
    first, columns = config.steps.boundary(1), ["time", "unit", "place"]
    spool = Spool(tmp_path / "s", 0)
    steps = np.arange(1, 35)
    times = pl.Series(first + (steps - 1) * 10**7, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame({"time": times, "unit": [str(step) for step in steps], "place": "north"})
    spool.put("1", frame, steps).result()
    now = first / 1e6 + 10 * 34 + config.steps.describe().get("lateness", 0)
    source = SpoolSource(spool, columns)
    intake = HttpIntake(source, config.schema, config.steps, config.query, follow=True, clock=lambda: now)
    intake.spool = spool
    counted, real = [], intake._counted
    monkeypatch.setattr(
        intake, "_counted", lambda held, place, last: counted.append(last) or real(held, place, last)
    )
    blocks = list(itertools.islice(intake, 34))
    assert counted == [10, 20, 30, 34]
    assert [block.units[:, 0].tolist() for block in blocks] == [[1]] * 34
    spool.close()


@given(st.lists(st.tuples(st.integers(1, 5), st.none() | st.text(), st.integers(-(2**62), 2**62))))
def test_events_come_back_as_they_were(rows: list[tuple[int, str | None, int]]) -> None:
    """Any text, missing ones, any moment; the rows of each step in their order."""
    from tidegate.web.event_encoding import decoded, encoded

    steps = np.array([step for step, _, _ in rows], dtype=np.int64)
    frame = pl.DataFrame(
        {
            "unit": pl.Series([unit for _, unit, _ in rows], dtype=pl.String),
            "time": pl.Series([time for _, _, time in rows], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
        }
    )
    columns, pieces = encoded(frame, steps)
    order = np.argsort(steps, kind="stable")
    assert [(step, count) for step, count, _ in pieces] == [
        (step, int((steps == step).sum())) for step in np.unique(steps).tolist()
    ]
    if rows:
        found = decoded(columns, [(count, content) for _, count, content in pieces])
        assert found.equals(frame[order])


# connections and readers --------------------------------------------------------------------------------------


def connected(address: str, source: str = "127.0.0.1", *, receive: int | None = None) -> socket.socket:
    """A connection from an address of this machine."""
    host, port = address.removeprefix("http://").split(":")
    found = socket.socket()
    if receive is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    found.settimeout(30)
    found.bind((source, 0))
    found.connect((host, int(port)))
    return found


def ask(address: str, path: str, source: str = "127.0.0.1", **more: Any) -> bytes:
    """The first bytes of an answer."""
    with connected(address, source, **more) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return connection.recv(4096)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection."""
    found = b""
    try:
        while part := connection.recv(2**16):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[tuple[str, Service]]:
    """A stream with a map of several megabytes."""
    config = finite(tmp_path)
    features = [
        {"type": "Feature", "properties": {"name": "north", "more": "x" * 6_000_000}, "geometry": None}
    ]
    (tmp_path / "hall.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with served([config]) as (address, service):
        settled(service)
        yield address, service


def test_the_head_of_a_request_is_bounded(mapped: tuple[str, Service]) -> None:
    """One header without end, and one that comes whole: refused, and others are answered."""
    address, _ = mapped
    for end in (b"", b"\r\n\r\n"):
        with connected(address) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            with suppress(ConnectionError):
                for _ in range(80):
                    connection.sendall(b"x" * 1024)
                connection.sendall(end)
            assert all_of(connection).split(b" ")[1] in (b"431", b"400")
    assert ask(address, "/healthz").startswith(b"HTTP/1.1 200")


def test_a_request_must_come(mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that says nothing, one that never comes to the end of its head, and one after an answer."""
    address, _ = mapped
    monkeypatch.setattr(limits, "FIRST_SECONDS", 0.3)
    monkeypatch.setattr(limits, "NEXT_SECONDS", 0.3)
    with connected(address) as connection:
        assert all_of(connection) == b""
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert all_of(connection) == b""
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\r\n")
        assert all_of(connection).startswith(b"HTTP/1.1 200")


def test_requests_behind_another_are_bounded(mapped: tuple[str, Service]) -> None:
    """Thousands of them in one connection end it; they would all be kept."""
    address, _ = mapped
    with connected(address) as connection:
        one = b"GET /streams/hall/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        with suppress(ConnectionError):
            connection.sendall(one * 2000)
        all_of(connection)
    assert ask(address, "/healthz").startswith(b"HTTP/1.1 200")


def test_connections_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One address has at most half of them; another is answered; a connection that ends makes room."""
    monkeypatch.setattr(limits, "connections", lambda _streams: 8)
    with served([finite(tmp_path)]) as (address, _):
        idle = [connected(address) for _ in range(4)]
        until(lambda: b" 503 " in ask(address, "/healthz"))
        assert ask(address, "/healthz", "127.0.0.2").startswith(b"HTTP/1.1 200")
        idle.pop().close()
        until(lambda: ask(address, "/healthz").startswith(b"HTTP/1.1 200"))
        for each in idle:
            each.close()


@pytest.mark.slow
def test_connections_leave_descriptors_for_streams(tmp_path: Path) -> None:
    """Far more idle connections than files may be open: events are taken, and steps are released."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = tmp_path / "hall.toml"
    config.write_text(posted_text(tmp_path, seconds=1))
    options = ("--tokens", str(tmp_path / "tokens.json"))
    with Process([config], *options, open_files=400) as service:
        idle = []
        for number in range(300):
            with suppress(OSError):
                idle.append(connected(service.address, f"127.0.0.{2 + number % 4}"))
        answer = post(service.address, token, record("one"))
        assert answer.status_code == 200
        step = CLIENT.get(f"{service.address}/streams/hall").json()["step"]
        until(lambda: CLIENT.get(f"{service.address}/streams/hall").json()["step"] > step + 1)
        for each in idle:
            each.close()
    assert "stream.failed" not in service.logs.read_text()
    command = [
        "prlimit",
        "--nofile=200:200",
        sys.executable,
        "-m",
        "tidegate",
        "serve",
        str(config),
        *options,
    ]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert "ulimit" in refused.stderr


def test_a_reader_that_takes_nothing_is_let_go(
    mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not taken is given up, and counted until then."""
    address, service = mapped
    monkeypatch.setattr(limits, "STALLED_SECONDS", 1.0)
    silent = connected(address, receive=4096)
    silent.sendall(b"GET /streams/hall/map HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    until(lambda: service.readers.taken > 2**20)
    until(lambda: service.readers.taken == 0)
    silent.close()


def test_answers_on_their_way_are_bounded(mapped: tuple[str, Service]) -> None:
    """At the bound a large answer is put off, for one reader at half of it; small ones are answered."""
    address, service = mapped
    service.readers.most = 30 * 10**6
    silent = connected(address, receive=4096)
    silent.sendall(b"GET /streams/hall/map HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    until(lambda: service.readers.taken > 2**20)
    refused = CLIENT.get(f"{address}/streams/hall/map")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert CLIENT.get(f"{address}/streams/hall").status_code == 200
    silent.close()
    until(lambda: service.readers.taken == 0)
    assert CLIENT.get(f"{address}/streams/hall/map").status_code == 200


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_pages_are_the_same_bytes(
    mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A large answer is made while it is read, with the bytes that it has in one piece."""
    address, service = mapped
    place = f"{address}/streams/hall/releases?format={kind}"
    whole = CLIENT.get(place)
    monkeypatch.setattr(limits, "SLICE", 500)
    monkeypatch.setattr("tidegate.web.release_encoding.PAGE_CELLS", 10)
    paged = CLIENT.get(place)
    assert "content-length" not in paged.headers
    assert (paged.content, paged.headers["etag"]) == (whole.content, whole.headers["etag"])
    until(lambda: service.readers.taken == 0)


def test_a_reader_of_the_feed_holds_a_page(
    mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far behind it is, one page of events is made for it at a time, also of those that are kept."""
    _, service = mapped
    channel = service.drivers["hall"].first
    monkeypatch.setattr("tidegate.web.feed.PAGE_CELLS", 10)
    monkeypatch.setattr("tidegate.web.feed.PAGE_BYTES", 1000)

    async def pages(feed: Feed) -> list[bytes]:
        found: list[bytes] = []
        async for page in feed.events(0):
            found.append(page)
            if b"".join(found).count(b"event: release") == 48:
                break
        return found[1:]

    far, near = Feed(channel.board, channel.encoder), Feed(channel.board, channel.encoder)
    near._keep(channel.encoder.event(channel.board, 0, 48))
    for found in (asyncio.run(pages(far)), asyncio.run(pages(near))):
        assert len(found) >= 10
        assert max(map(len, found)) <= 5 * 400


def test_an_answer_is_bounded(mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    """More values than one answer has are refused with a sentence; fewer steps or columns are answered."""
    address, _ = mapped
    monkeypatch.setattr("tidegate.web.release_cache.MOST_CELLS", 50)
    refused = CLIENT.get(f"{address}/streams/hall/releases")
    assert refused.status_code == 400
    assert "narrow the range" in refused.json()["error"]
    assert CLIENT.get(f"{address}/streams/hall/releases?columns=north").status_code == 200
    assert CLIENT.get(f"{address}/streams/hall/releases?since=30").status_code == 200


def test_large_answers_are_made_one_after_the_other(
    mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one address one at a time, however many it asks for at once; others do not wait for it."""
    address, service = mapped
    board = service.drivers["hall"].first.board
    real, go, at_work, most = board.select, threading.Event(), [], []

    def select(**given: Any) -> Any:
        at_work.append(given)
        most.append(len(at_work))
        if given["since"] == 1:
            assert go.wait(60)
        at_work.remove(given)
        return real(**given)

    monkeypatch.setattr(board, "select", select)
    place = f"{address}/streams/hall/releases"
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(CLIENT.get, f"{place}?since=1&until={2 + each}") for each in range(4)]
        until(lambda: most)
        try:
            assert ask(address, "/streams/hall/releases?since=2", "127.0.0.2").startswith(b"HTTP/1.1 200")
        finally:
            go.set()
        assert {each.result().status_code for each in asked} == {200}
    assert max(most) == 2


def test_clients_of_the_feed_are_bounded(
    mapped: tuple[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the bound one more is told to try again."""
    address, service = mapped
    monkeypatch.setattr("tidegate.web.public_routes.MOST_CLIENTS", 2)
    listening = [connected(address) for _ in range(2)]
    for each in listening:
        each.sendall(b"GET /streams/hall/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    until(lambda: service.drivers["hall"].clients == 2)
    assert ask(address, "/streams/hall/live").startswith(b"HTTP/1.1 503")
    for each in listening:
        each.close()
    until(lambda: service.drivers["hall"].clients == 0)


def test_bodies_in_memory_are_bounded(tmp_path: Path) -> None:
    """At the bound a batch is put off; its bytes are given back."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = parse_config(posted_text(tmp_path, seconds=86400, behind=1000), tmp_path / "hall.toml")
    with served([config], tokens=tmp_path / "tokens.json") as (address, service):
        service.sending.bytes.most = 1000
        assert post(address, token, record("a") * 100, "large").status_code == 429
        until(lambda: service.sending.bytes.taken == 0)
        assert post(address, token, record("a"), "small").status_code == 200


def test_remembered_alarms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are remembered."""
    monkeypatch.setattr("tidegate.web.alarms.KEPT", 5)
    alarms = Alarms((Alarm("full", 0, 10.0, None, False),), (), (), ("hall",))
    values = np.array([[20.0 * (number % 2)] for number in range(40)])
    chunk = replace(
        Chunk.of(1, [Release(step, np.array([0.0]), step, 1, 2.0, 1, 1) for step in range(1, 41)]),
        values=values,
    )
    alarms.follow(chunk, values, values, values)
    assert list(alarms.events) == [36, 37, 38, 39, 40]


def test_a_map_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one is refused at the start."""
    monkeypatch.setattr("tidegate.web.driver.LARGEST_MAP", 10)
    path = tmp_path / "hall.geojson"
    path.write_text('{"type": "FeatureCollection", "features": []}')
    with pytest.raises(InvalidParameter, match="at most 10 bytes"):
        read_map(path)


def test_the_table_names_every_limit_and_tests_that_exist() -> None:
    """The page that says what grows with what, compared with the code."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "operating" / "resources.md").read_text()
    sources = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 25
    assert not [name for name in named if f"def {name}(" not in sources]
    numbers = {name for name in vars(limits) if name.isupper() and not name.startswith("_")} - {"MEMORY"}
    assert not [name for name in numbers if f"`{name}`" not in page]
