"""Kills under load of producers and readers: every acknowledged event counts once, and all readers see the same."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.helpers import in_two_queries, verified
from tests.web.test_producer_routes import NDJSON, posted_text, record

from tidegate.web.tokens import Tokens
from waiting import LIMIT, until

pytestmark = pytest.mark.slow  # kills under load

KILLS = int(os.environ.get("TIDEGATE_KILLS", "20"))
# seconds that a batch has to arrive in, kills included
LATENESS = int(os.environ.get("TIDEGATE_LATENESS", "15" if KILLS <= 20 else "60"))


class Killable:
    """A service that is started again and again on one port."""

    def __init__(self, config: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        command = [
            sys.executable,
            str(Path(__file__).with_name("killed_worker.py")),
            str(config),
            str(self.port),
        ]
        self.log = config.with_suffix(".log").open("w")
        self.parent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.child = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.write("\n")
        self.parent.stdin.flush()
        self.child = json.loads(self.parent.stdout.readline())["pid"]
        assert json.loads(self.parent.stdout.readline())["address"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the service."""
        os.kill(self.child, number)

    def end(self) -> None:
        """End whatever still runs, in whichever way the test has ended."""
        if self.parent.poll() is None:
            self.parent.kill()
            with suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            self.close()

    def close(self) -> None:
        """End everything."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.close()
        self.parent.wait(LIMIT)
        self.parent.stdout.close()
        self.log.close()


class Producer(threading.Thread):
    """Sends batches until it is told to end; each one until it is acknowledged, under one key."""

    def __init__(self, address: str, token: str, name: str, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.token, self.label, self.ending = address, token, name, ending
        self.sent = 0
        self.late = (
            0  # of those that were sent: acknowledged so long after their time that they may not count
        )

    def run(self) -> None:
        """Send."""
        with httpx.Client(base_url=self.address, timeout=5) as client:
            while not self.ending.is_set():
                begun = time.time()
                units = [f"{self.label}-{self.sent + number}" for number in range(20)]
                body = b"".join(record(unit, at=begun) for unit in units)
                self._send(client, body, f"{self.label}-{self.sent}")
                self.sent += len(units)
                self.late += len(units) if time.time() - begun > LATENESS - 1 else 0
                time.sleep(0.02)

    def _send(self, client: httpx.Client, body: bytes, key: str) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": NDJSON, "Idempotency-Key": key}
        while True:
            try:
                answer = client.post("/streams/hall/events", content=body, headers=headers)
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                return
            assert answer.status_code in (429, 503), answer.text
            time.sleep(0.05)


class Reader(threading.Thread):
    """Reads the live feed from the beginning, and continues after the last id whenever it breaks off."""

    def __init__(self, address: str, place: str = "/streams/hall") -> None:
        super().__init__(daemon=True)
        self.address, self.place = address, place
        self.seen: list[str] = []
        self.last = "0"

    def run(self) -> None:
        """Read."""
        with httpx.Client(base_url=self.address, timeout=httpx.Timeout(5, read=60)) as client:
            while True:
                try:
                    with client.stream(
                        "GET", f"{self.place}/live", headers={"Last-Event-ID": self.last}
                    ) as feed:
                        number = ""
                        for line in feed.iter_lines():
                            if line.startswith("id: "):
                                number = line[4:]
                            elif line.startswith("data: "):
                                self.seen.append(line[6:])
                                self.last = number
                except httpx.HTTPError:
                    time.sleep(0.02)


def have_read(readers: list[Reader], number: int) -> bool:
    """Whether all of them have got that far."""
    return all(int(reader.last) >= number for reader in readers)


@pytest.mark.parametrize("queries", [(), ("people", "visits")], ids=["one query", "two queries"])
def test_kills_under_load(tmp_path: Path, queries: tuple[str, ...], request: pytest.FixtureRequest) -> None:
    """SIGKILL at random moments while four producers send and three readers listen to each query."""
    kills = KILLS // 2 if queries and KILLS <= 20 else KILLS
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = tmp_path / "hall.toml"
    text = posted_text(tmp_path, seconds=1, behind=1).replace('zone = "', f'lateness = {LATENESS}\nzone = "')
    config.write_text(in_two_queries(text).replace("400", "1600") if queries else text)
    places = [f"/streams/hall/{query}" for query in queries] or ["/streams/hall"]
    service = Killable(config)
    request.addfinalizer(service.end)
    service.start()
    ending = threading.Event()
    request.addfinalizer(ending.set)
    producers = [Producer(service.address, token, f"walrus{number}", ending) for number in range(4)]
    readers = [Reader(service.address, place) for place in places for _ in range(3)]
    for thread in (*producers, *readers):
        thread.start()

    def sent() -> int:
        return sum(producer.sent for producer in producers)

    for number in range(kills):
        before = sent()
        time.sleep(0.15 + 0.05 * (7 * number % 11))
        if (
            number % 2
        ):  # every second one is killed after it has acknowledged something, however busy the machine is
            until(lambda before=before: sent() > before)
        service.kill()
        service.start()
    ending.set()
    for producer in producers:
        producer.join(LIMIT)
        assert not producer.is_alive()
    total = sent()
    certain = total - sum(producer.late for producer in producers)
    with httpx.Client(base_url=service.address, timeout=30) as client:

        def released(place: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = client.get(f"{place}/releases?revision=all").json()["releases"]
            return found

        def counted(place: str) -> float:
            return sum(sum(each["values"]) for each in released(place))

        until(lambda: all(counted(place) >= certain for place in places))
        service.kill(signal.SIGTERM)
        service.start()
        for place in places:
            rows = released(place)
            assert certain <= sum(sum(each["values"]) for each in rows) <= total
            assert [each["number"] for each in rows] == list(range(1, len(rows) + 1))
            own = [reader for reader in readers if reader.place == place]
            until(partial(have_read, own, len(rows)))
            for reader in own:
                assert [json.loads(line) for line in reader.seen][: len(rows)] == rows
                assert len({json.loads(line)["number"] for line in reader.seen}) == len(reader.seen)
    service.kill(signal.SIGTERM)
    service.close()
    verdict = verified(tmp_path / "hall.ledger")
    assert verdict.ok, str(verdict)
    assert total >= 20 * (kills // 2)
    for line in config.with_suffix(".log").read_text().splitlines():
        assert "walrus" not in line
        assert json.loads(line)["event"] != "stream.failed", line
