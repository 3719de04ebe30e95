from __future__ import annotations

import atexit
import gzip
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
import zstandard
from tests.web.helpers import live_text, served, verified

from tidegate.config import parse_config
from tidegate.core.commit import PUSHED, Commit
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.releases import Status
from tidegate.web import Service
from tidegate.web.http_source import HttpDriver
from tidegate.web.spool import Spool, SpoolSource
from tidegate.web.tokens import Tokens
from waiting import until

NDJSON = "application/x-ndjson"
CLIENT = httpx.Client(verify=False, timeout=30)  # making one takes longer than asking
atexit.register(CLIENT.close)


def posted_text(folder: Path, **more: Any) -> str:
    """A stream that takes events by HTTP, with a budget so large that its noise is 0 in practice."""
    return (
        live_text(folder, **more)
        .replace(f'"{folder}/events.csv"', '"serve:"')
        .replace('epsilon = "1"', 'epsilon = "400"')
        .replace("window = 4", "window = 1")
    )


def post(
    address: str, token: str, body: bytes, key: str = "a", kind: str = NDJSON, **headers: str
) -> httpx.Response:
    """Send a batch."""
    given = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Idempotency-Key": key}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return CLIENT.post(f"{address}/streams/hall/events", content=body, headers=given)


def record(unit: str, place: str = "north", at: float | None = None) -> bytes:
    """One event, of now."""
    return (
        json.dumps({"time": time.time() if at is None else at, "unit": unit, "place": place}).encode() + b"\n"
    )


Hall = tuple[str, str, Service]


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    """A stream with steps of a day, so that everything that is sent belongs to one open step."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = parse_config(posted_text(tmp_path, seconds=86400, behind=1000), tmp_path / "hall.toml")
    with served([config], tokens=tmp_path / "tokens.json") as (address, service):
        until(lambda: service.drivers["hall"].state == "running")
        yield address, token, service


def held(service: Service) -> pl.DataFrame:
    """What is on disk of open steps."""
    driver = service.drivers["hall"]
    assert isinstance(driver, HttpDriver)
    other = Spool(driver.spool.folder, driver.spool.floor)
    found = events(other)
    other.close()
    return found


def events(spool: Spool) -> pl.DataFrame:
    """What a spool has of open steps."""
    found = list(spool.read(2**62))
    return pl.concat(found) if found else pl.DataFrame()


@pytest.mark.parametrize(
    "content", [b"SQLite format 3\0\xff", b"time,device\n", b'{"tokens": [{"name": "a"', b"[]", b""]
)
def test_what_is_no_file_of_tokens_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    """A ledger or events under that name, or tokens that are damaged, stay as they are; a sentence says so."""
    file = tmp_path / "tokens.json"
    file.write_bytes(content)
    for change in (lambda: Tokens(file).add("producer", "gateway"), lambda: Tokens(file).revoke("gateway")):
        with pytest.raises(InvalidParameter, match="a file of tokens that can be read"):
            change()
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.json"]


def test_all_formats_and_encodings_are_taken(hall: Hall) -> None:
    """NDJSON and CSV, plain, gzip and zstd, all become the same events."""
    address, token, service = hall
    now = time.time()
    bodies = [
        (NDJSON, record("7", at=now)),
        ("text/csv; charset=utf-8", f"place,unit,time\nnorth,7,{now}\n".encode()),
    ]
    packers: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
    ]
    for number, (kind, body) in enumerate(bodies):
        for encoding, pack in packers:
            answer = post(address, token, pack(body), f"{number}{encoding}", kind, Content_Encoding=encoding)
            assert (answer.status_code, answer.json()) == (200, {"accepted": True}), answer.text
    found = held(service)
    assert len(found) == 6
    assert found["unit"].unique().to_list() == ["7"]
    moments = found["time"].to_physical().to_numpy()
    assert np.ptp(moments) <= 1


def test_nothing_is_unpacked_that_is_not_said_to_be_packed(hall: Hall) -> None:
    """A body that begins like an archive is refused: its size when unpacked would be limited by nothing."""
    address, token, service = hall
    for number, (kind, body) in enumerate(((NDJSON, record("one")), ("text/csv", b"time,unit,place\n"))):
        assert post(address, token, gzip.compress(body), f"{number}", kind).status_code == 422
    assert len(held(service)) == 0


def test_a_batch_counts_once_however_often_it_is_sent(hall: Hall) -> None:
    """The same key again, one after the other and at once, also with another body: nothing is added."""
    address, token, service = hall
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: post(address, token, record("one")), range(64)))
    assert {answer.status_code for answer in answers} == {200}
    assert post(address, token, record("two")).json() == {"accepted": True}
    assert held(service)["unit"].to_list() == ["one"]


def test_keys_of_one_producer_hide_nothing_of_another(hall: Hall, tmp_path: Path) -> None:
    """Names and keys that give the same text when they are put together are still others."""
    address, _, service = hall
    tokens = Tokens(tmp_path / "tokens.json")
    meter, other = tokens.add("producer", "meter"), tokens.add("producer", "meter/eu")
    assert post(address, meter, record("one"), "eu/1").json() == {"accepted": True}
    assert post(address, other, record("two"), "1").json() == {"accepted": True}
    assert sorted(held(service)["unit"].to_list()) == ["one", "two"]


def test_a_sender_whose_clock_is_ahead_loses_nothing(hall: Hall) -> None:
    """By 20 ms and by half a minute: what is acknowledged waits for its step."""
    address, token, service = hall
    for number, ahead in enumerate((0.02, 30.0)):
        body = record(f"u{number}", at=time.time() + ahead)
        assert post(address, token, body, f"k{number}").json() == {"accepted": True}
    assert held(service)["unit"].to_list() == ["u0", "u1"]


def test_a_service_whose_clock_was_set_acknowledges_nothing_that_it_would_lose(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not ready, says why in its log, and takes events again when the clock is right."""
    address, token, service = hall
    real, errors = time.time, ""
    monkeypatch.setattr(time, "time", lambda: real() - 200_000)

    def said() -> bool:
        nonlocal errors
        errors += capsys.readouterr().err
        return "the system's clock was set back by 200,000 s" in errors

    until(said)
    answer = post(address, token, record("lost"), "k")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    ready = httpx.get(f"{address}/readyz")
    assert (ready.status_code, ready.json()["streams"]) == (503, {"hall": "clock set"})
    metrics = httpx.get(f"{address}/metrics").text
    assert float(re.findall(r'tidegate_clock_set_seconds{stream="hall"} (.*)', metrics)[0]) < -199_990
    monkeypatch.setattr(time, "time", real)
    assert post(address, token, record("found"), "k").status_code == 200
    assert httpx.get(f"{address}/readyz").status_code == 200
    assert held(service)["unit"].to_list() == ["found"]


def test_a_small_step_of_the_clock_keeps_the_service_at_work(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of now still counts: it is said, and that is all."""
    address, token, service = hall
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 30)
    assert post(address, token, record("one"), "k").status_code == 200
    assert httpx.get(f"{address}/readyz").status_code == 200
    assert service.drivers["hall"].clock_set_by > 20
    assert held(service)["unit"].to_list() == ["one"]


def test_answers_do_not_depend_on_what_is_kept(hall: Hall) -> None:
    """Late, early, outside, repeated and empty batches have the same answer, byte for byte."""
    address, token, _ = hall
    now = time.time()
    bodies = [
        record("a"),
        record("a", at=now - 10**6),
        record("a", at=now + 10**6),
        record("a", "nowhere"),
        b"",
        record("a") * 100,
    ]
    answers = [post(address, token, body, f"k{number}") for number, body in enumerate(bodies)]
    assert {(answer.status_code, answer.content) for answer in answers} == {(200, b'{"accepted":true}')}
    headers = [{**answer.headers, "date": ""} for answer in answers]
    assert all(each == headers[0] for each in headers)


@pytest.mark.parametrize(
    ("kind", "bad", "line"),
    [
        (NDJSON, b'{"time": "walrus", "unit": "a", "place": "north"}\n', 3),
        (NDJSON, b'{"unit": "walrus", "place": "north"}\n', 3),
        (NDJSON, b'{"time": walrus}\n', 3),
        (NDJSON, b'["walrus"]\n', 3),
        (NDJSON, b'\n\n{"time": "2026-03-02", "place": "walrus"}\n', 5),
        ("text/csv", b"walrus,a,north\n", 4),
        ("text/csv", b"2026-03-02,walrus,north,more\n", 4),
        ("text/csv", b"2026-03-02,,walrus\n", 4),
        ("text/csv", b'2026-03-02,"wal\nrus",north\n', None),
    ],
)
def test_a_bad_record_refuses_the_whole_batch(hall: Hall, kind: str, bad: bytes, line: int | None) -> None:
    """The line and the rule are told, never the content; nothing was taken; the key is free."""
    address, token, service = hall
    if kind == NDJSON:
        good = record("fine", at=1.5e9).replace(b"1500000000.0", b'"2026-03-02T00:00"')
        body = good + good + bad + good
    else:
        body = b"time,unit,place\n2026-03-02,a,north\n2026-03-02,a,north\n" + bad + b"2026-03-02,a,north\n"
    answer = post(address, token, body, kind=kind)
    assert answer.status_code == 422, answer.text
    assert answer.json().get("line") == line
    assert answer.json()["rule"]
    assert b"walrus" not in answer.content
    assert held(service).is_empty()
    assert post(address, token, record("fine")).status_code == 200


def test_what_is_no_batch_is_refused(hall: Hall) -> None:
    """Wrong token, wrong type, no key, damaged packing, too large: each with its own status."""
    address, token, service = hall
    reader = Tokens(service.settings.tokens).add("producer", "elsewhere", ("attic",))
    assert post(address, "tide_wrong", record("a")).status_code == 401
    assert post(address, reader, record("a")).status_code == 403
    assert post(address, token, record("a"), kind="text/html").status_code == 415
    assert post(address, token, record("a"), key="").status_code == 400
    for encoding in ("gzip", "zstd", "br"):
        assert post(address, token, record("a"), Content_Encoding=encoding).status_code == 422
    bomb = gzip.compress(b"\n" * (130 * 2**20))
    assert post(address, token, bomb, Content_Encoding="gzip").status_code == 413
    assert post(address, token, b"\n" * (33 * 2**20)).status_code == 413
    Tokens(service.settings.tokens).revoke("gateway")
    assert post(address, token, record("a")).status_code == 401
    assert held(service).is_empty()


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_packed_batch_is_whole_or_refused(hall: Hall, encoding: str) -> None:
    """Cut off anywhere, or with something behind it, it is refused and its key stays free; several members are one."""
    address, token, service = hall
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    whole = pack(b"".join(record(f"unit{number}") for number in range(1000)))
    # several blocks, so that much can be unpacked of what is cut off
    large = pack(b"".join(record(f"unit{number}", at=number / 7) for number in range(20_000)))
    cuts = [part[: len(part) * tenth // 10] for part in (whole, large) for tenth in range(10)]
    for body in (*cuts, whole[:-1], large[:-1], whole + b"more", whole + whole[:-1]):
        assert post(address, token, body, Content_Encoding=encoding).status_code == 422
    assert len(held(service)) == 0
    assert post(address, token, whole, Content_Encoding=encoding).status_code == 200
    assert len(held(service)) == 1000
    assert post(address, token, whole + whole, "two", Content_Encoding=encoding).status_code == 200
    assert len(held(service)) == 3000


def test_back_pressure(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room a batch is put off, with a time to try again, and nothing of it is kept."""
    address, token, service = hall
    driver = service.drivers["hall"]
    assert isinstance(driver, HttpDriver)
    monkeypatch.setattr(driver.spool.kept, "most", 10)
    answer = post(address, token, record("a"))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert post(address, token, record("a")).status_code == 200
    assert len(held(service)) == 1


def test_a_full_disk_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails in the middle is rolled back; later batches are not hidden by it."""
    import os

    spool = Spool(tmp_path / "s", 0)
    frame = pl.DataFrame({"unit": ["a"]})
    spool.put("1", frame, np.array([3])).result()
    real, left = os.write, [10]

    def short(descriptor: int, content: Any) -> int:
        if left[0] <= 0:
            raise OSError(28, "No space left on device")
        size = min(len(content), left[0])
        left[0] -= size
        return real(descriptor, content[:size])

    monkeypatch.setattr("tidegate.web.spool.os.write", short)
    with pytest.raises(Exception, match="No space left"):
        spool.put("2", frame, np.array([3])).result()
    monkeypatch.undo()
    spool.put("3", frame, np.array([3])).result()
    spool.put("2", frame, np.array([3])).result()
    spool.close()
    again = Spool(tmp_path / "s", 0)
    assert len(events(again)) == 3
    assert all(again.known(key) for key in "123")
    again.close()


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    """Whatever the last bytes of events and journal are after a crash, what was acknowledged is there once."""
    folder = tmp_path / "s"
    spool = Spool(folder, 0)
    frame = pl.DataFrame({"unit": ["a" * 100]})
    spool.put("1", frame, np.array([3])).result()
    files = {path: path.read_bytes() for path in folder.iterdir()}
    spool.put("2", frame, np.array([3])).result()
    longer = {path: path.read_bytes() for path in files}
    spool.close()
    journal = folder / "journal"
    log = next(path for path in files if path != journal)
    for cut in range(len(files[log]), len(longer[log]) + 1, 7):
        # the events reach the disk before the journal does
        for path in folder.glob("events-*"):
            path.unlink()
        log.write_bytes(longer[log][:cut])
        journal.write_bytes(files[journal] + longer[journal][len(files[journal]) :][: cut % 48])
        told: list[str] = []
        again = Spool(folder, 0, tell=told.append)
        again.put("2", frame, np.array([3])).result()
        assert len(events(again)) == 2
        assert not told
        again.close()


@pytest.fixture
def forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """A spool that forgets keys as soon as it may."""
    monkeypatch.setattr("tidegate.web.spool._SHORTEN_EVERY", 0.0)
    monkeypatch.setattr("tidegate.web.spool._FORGET_AT_ONCE", 5)
    spool = Spool(tmp_path / "s", 0)
    spool.keep = -1.0
    return spool


def test_old_keys_are_forgotten_while_steps_are_open(forgetful: Spool) -> None:
    """The journal of a stream that is never without events stays short, and keys of events on disk stay in it."""
    spool, frame, sizes = forgetful, pl.DataFrame({"unit": ["a"]}), []
    for step in range(1, 60):
        spool.put(f"now{step}", frame, np.array([step])).result()
        spool.put(f"next{step}", frame, np.array([step + 1])).result()
        spool.forget(step)
        sizes.append((spool.folder / "journal").stat().st_size)
    assert max(sizes) <= 48 * 12
    spool.close()
    again = Spool(spool.folder, 59)
    assert len(events(again)) == 1
    assert again.known("next59")
    assert not again.known("now1")
    again.put("next59", frame, np.array([60])).result()
    assert len(events(again)) == 1
    again.close()


@pytest.mark.parametrize("failing", ["pathlib.Path.replace", "tidegate.web.spool.os.open"])
def test_a_journal_that_cannot_be_shortened_goes_on(
    forgetful: Spool, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses while old keys are forgotten: what is acknowledged then and later is there after a start."""
    import os

    spool, frame, real, refused = forgetful, pl.DataFrame({"unit": ["a"]}), os.open, []

    def refuses(path: Any, *more: Any) -> Any:
        if "journal.new" in str(path):
            refused.append(path)
            raise OSError(28, "No space left on device")
        return real(path, *more)

    spool.put("first", frame, np.array([9])).result()  # its events stay on disk
    for number in range(4):
        spool.put(f"{number}", frame, np.array([1])).result()
    spool.forget(9)
    monkeypatch.setattr(failing, refuses)
    for number in range(4, 12):
        spool.put(f"{number}", frame, np.array([10])).result()
    assert refused
    monkeypatch.undo()
    spool.close()
    again = Spool(spool.folder, 9)
    assert all(again.known(f"{number}") for number in range(12))
    assert len(events(again)) == 8
    again.close()


def test_events_are_gone_when_their_step_is_committed(tmp_path: Path) -> None:
    """Raw events are on disk until then, and afterwards in no file at all; the count is right."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = parse_config(posted_text(tmp_path, seconds=2), tmp_path / "hall.toml")
    now = [config.steps.origin / 1e6 + 1.0]
    with served([config], tokens=tmp_path / "tokens.json", clock=lambda: now[0]) as (address, service):
        driver = service.drivers["hall"]
        until(lambda: driver.state == "running")
        units = [f"walrus{number}" for number in range(50)]
        body = b"".join(record(unit, at=now[0]) for unit in units)
        assert post(address, token, body).status_code == 200
        assert marked(tmp_path) != []
        now[0] += 4
        until(lambda: driver.first.board.step >= 2)
        assert marked(tmp_path) == []
        found = driver.first.board.select()
        assert found.answers.sum() == 50


def marked(folder: Path) -> list[str]:
    """Files that hold a marker."""
    found = subprocess.run(
        ["grep", "-rla", "walrus", str(folder)], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def test_a_spool_hands_over_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came is handed over in the order in which it came, however many pieces that takes."""
    monkeypatch.setattr("tidegate.web.spool._ROWS_AT_ONCE", 256)
    spool = Spool(tmp_path / "s", 0)
    for number in range(600):
        spool.put(str(number), pl.DataFrame({"unit": [str(number)]}), np.array([1])).result()
    batches = list(SpoolSource(spool, ["unit"]).batches())
    assert [len(each.frame) for each in batches] == [256, 256, 88]
    assert pl.concat([each.frame for each in batches])["unit"].to_list() == [
        str(number) for number in range(600)
    ]
    spool.close()


def test_a_stream_that_was_opened_again_has_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure from outside, before the commit: what the failed intake held is read again from disk, and counts once."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = parse_config(posted_text(tmp_path, seconds=2), tmp_path / "hall.toml")
    append, failures = SQLiteLog.append, [0]

    def fails(self: SQLiteLog, expected: bytes, commit: Commit) -> bytes:
        if commit.kind == PUSHED:
            failures[0] += 1
            if failures[0] <= 2:
                raise sqlite3.OperationalError("database or disk is full")
        return append(self, expected, commit)

    monkeypatch.setattr(SQLiteLog, "append", fails)
    now = [config.steps.origin / 1e6 + 1.0]
    with served([config], tokens=tmp_path / "tokens.json", clock=lambda: now[0]) as (address, service):
        driver = service.drivers["hall"]
        until(lambda: driver.state == "running")
        body = b"".join(record(f"walrus{number}", at=now[0]) for number in range(30))
        assert post(address, token, body).status_code == 200
        now[0] += 4
        until(lambda: driver.first.board.step >= 2)
        assert failures[0] > 2
        assert driver.first.board.select().answers.sum() == 30
        assert marked(tmp_path) == []


def test_a_step_whose_mechanism_failed_is_never_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure from inside: the step is charged and silent, its events are gone, and the stream continues after it."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = parse_config(posted_text(tmp_path, seconds=2), tmp_path / "hall.toml")
    advance, steps = Uniform.advance, []

    def fails(self: Uniform, state: Any, rows: Any, first: int, draws: Any) -> Any:
        steps.extend(range(first, first + len(rows)))
        found = advance(self, state, rows, first, draws)
        if steps == [1]:
            raise ValueError("walrus")
        return found

    monkeypatch.setattr(Uniform, "advance", fails)
    now = [config.steps.origin / 1e6 + 1.0]
    with served([config], tokens=tmp_path / "tokens.json", clock=lambda: now[0]) as (address, service):
        driver = service.drivers["hall"]
        until(lambda: driver.state == "running")
        body = b"".join(record(f"walrus{number}", at=now[0]) for number in range(30))
        assert post(address, token, body).status_code == 200
        now[0] += 2
        until(lambda: driver.first.board.step >= 1)
        until(lambda: driver.state == "running")
        assert post(address, token, body.replace(b"walrus", b"seal"), key="late").status_code == 200
        assert post(address, token, record("seal", at=now[0]), key="b").status_code == 200
        now[0] += 2
        until(lambda: driver.first.board.step >= 2)
        found = driver.first.board.select()
        assert found.chunk.status.tolist() == [Status.SILENT, Status.FRESH]
        assert found.answers[1].tolist() == [1, 0]
        assert steps == [1, 2]
        assert marked(tmp_path) == []
    assert verified(config.ledger).checked["halted"] == 1
