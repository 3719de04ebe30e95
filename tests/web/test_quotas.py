"""Producers beside others that send too much: everybody is heard."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.web.test_producer_routes import Hall, post, record
from tests.web.test_producer_routes import hall as hall

from tidegate.web.event_parsing import Parser
from tidegate.web.quotas import Quota
from tidegate.web.spool import Spool, SpoolFull
from tidegate.web.tokens import Tokens
from waiting import until


def slow_body(address: str, token: str, key: str) -> socket.socket:
    """A batch that begins and does not continue."""
    host, port = address.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)))
    found.sendall(
        f"POST /streams/hall/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {key}\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100\r\n\r\n{{".encode()
    )
    return found


def test_one_holder_has_one_parser(hall: Hall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While batches of one token take as long as they like, those of another are taken."""
    address, token, _ = hall
    other = Tokens(tmp_path / "tokens.json").add("producer", "other")
    go, real, busy = threading.Event(), Parser.parse, []

    def parse(self: Parser, kind: str, body: bytes) -> pl.DataFrame:
        if b"slow" in body:
            busy.append(1)
            assert go.wait(60)
        return real(self, kind, body)

    monkeypatch.setattr(Parser, "parse", parse)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(post, address, token, record("slow"), f"k{number}") for number in range(4)]
        try:
            until(lambda: busy)
            assert [
                post(address, other, record("quick"), f"q{number}").status_code for number in range(5)
            ] == [200] * 5
            assert len(busy) == 1
        finally:
            go.set()
        assert {each.result().status_code for each in waiting} == {200}


def test_a_batch_whose_sender_has_gone_is_not_parsed(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for its turn behind another, and nobody is there any more to hear the answer."""
    address, token, service = hall
    go, real, seen = threading.Event(), Parser.parse, []

    def parse(self: Parser, kind: str, body: bytes) -> pl.DataFrame:
        seen.append(body)
        assert go.wait(60)
        return real(self, kind, body)

    monkeypatch.setattr(Parser, "parse", parse)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(post, address, token, record("first"), "first")
        until(lambda: seen)
        gone = slow_body(address, token, "gone")
        gone.sendall(b" " * 98 + b"}")
        until(lambda: service.sending.requests.taken == 2 and service.sending.bytes.taken > 100)
        there = len(service.connections)
        gone.close()
        until(lambda: len(service.connections) < there)  # the server has noticed
        go.set()
        assert first.result().status_code == 200
    until(lambda: service.sending.requests.taken == 0)
    assert len(seen) == 1
    assert service.sending.bytes.taken == 0


@pytest.mark.slow
def test_slow_bodies_of_one_holder_leave_room_for_others(
    hall: Hall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the room at most is one holder's, and a body that does not come is given up."""
    address, token, service = hall
    other = Tokens(tmp_path / "tokens.json").add("producer", "other")
    service.sending.requests.most = 6
    monkeypatch.setattr("tidegate.web.producer_routes.SECONDS", 10.0)
    slow = [slow_body(address, token, f"s{number}") for number in range(3)]
    until(lambda: service.sending.requests.taken == 3)
    refused = post(address, token, record("a"), "more")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert post(address, other, record("b"), "b").status_code == 200
    assert all(each.recv(100).startswith(b"HTTP/1.1 408") for each in slow)
    until(lambda: service.sending.requests.taken == 0)
    assert post(address, token, record("a"), "more").status_code == 200
    for each in slow:
        each.close()


def test_the_disk_is_shared(tmp_path: Path) -> None:
    """One producer that fills its part is put off, others are not; a commit gives the room back."""
    spool = Spool(tmp_path / "s", 0)
    frame = pl.DataFrame({"unit": ["a" * 1000]})
    spool.put("0", frame, np.array([1]), "greedy").result()
    spool.kept.most = 10 * spool.kept.taken
    for number in range(1, 5):  # half of it
        spool.put(f"{number}", frame, np.array([1 + number % 2]), "greedy").result()
    with pytest.raises(SpoolFull):
        spool.put("more", frame, np.array([1]), "greedy")
    for each in range(2):
        spool.put(f"other{each}", frame, np.array([2]), "other").result()
    spool.forget(2)
    spool.put("again", frame, np.array([3]), "greedy").result()
    taken = spool.kept.taken
    spool.close()
    again = Spool(tmp_path / "s", 2)
    assert again.kept.taken >= taken
    assert again.kept.taken == sum(path.stat().st_size for path in (tmp_path / "s").glob("events-*"))
    again.forget(3)
    assert again.kept.taken == 0
    again.close()


def test_nobody_can_take_all() -> None:
    """However many take what they get, there is as much left for another as the least of them has."""
    room = Quota(1000)
    for holder in "abcdef":
        while room.fits(holder, 1):
            room.take(holder, 1)
    assert room.fits("another", 1)
    room.give("a", 500)
    assert room.taken + 500 <= room.most
