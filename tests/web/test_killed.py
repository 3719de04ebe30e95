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
from pathlib import Path

import httpx
from tests.web.helpers import until
from tests.web.test_sending import NDJSON, posted_text, record

from tidegate.ledger import verify_file
from tidegate.web.tokens import Tokens

KILLS = int(os.environ.get("TIDEGATE_KILLS", "20"))
LATENESS = 15 if KILLS <= 20 else 60  # seconds that a batch has to arrive in, kills included


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

    def close(self) -> None:
        """End everything."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.close()
        self.parent.wait(30)
        self.parent.stdout.close()
        self.log.close()


class Producer(threading.Thread):
    """Sends batches until it is told to end; each one until it is acknowledged, under one key."""

    def __init__(self, address: str, token: str, name: str, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.token, self.label, self.ending = address, token, name, ending
        self.sent = 0
        self.slowest = 0.0

    def run(self) -> None:
        """Send."""
        with httpx.Client(base_url=self.address, timeout=5) as client:
            while not self.ending.is_set():
                begun = time.time()
                units = [f"{self.label}-{self.sent + number}" for number in range(20)]
                body = b"".join(record(unit, at=begun) for unit in units)
                self._send(client, body, f"{self.label}-{self.sent}")
                self.slowest = max(self.slowest, time.time() - begun)
                self.sent += len(units)
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
    """Reads the live feed from the beginning, and goes on after the last id whenever it breaks off."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.seen: list[str] = []
        self.last = "0"

    def run(self) -> None:
        """Read."""
        with httpx.Client(base_url=self.address, timeout=httpx.Timeout(5, read=60)) as client:
            while True:
                try:
                    with client.stream(
                        "GET", "/streams/hall/live", headers={"Last-Event-ID": self.last}
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


def test_kills_under_load(tmp_path: Path) -> None:
    """SIGKILL at random moments while four producers send and three readers listen."""
    token = Tokens(tmp_path / "tokens.json").add("producer", "gateway")
    config = tmp_path / "hall.toml"
    text = posted_text(tmp_path, seconds=1, behind=1).replace('zone = "', f'lateness = {LATENESS}\nzone = "')
    config.write_text(text)
    service = Killable(config)
    service.start()
    ending = threading.Event()
    producers = [Producer(service.address, token, f"walrus{number}", ending) for number in range(4)]
    readers = [Reader(service.address) for _ in range(3)]
    for thread in (*producers, *readers):
        thread.start()
    for number in range(KILLS):
        time.sleep(0.15 + 0.05 * (7 * number % 11))
        service.kill()
        service.start()
    ending.set()
    for producer in producers:
        producer.join(60)
        assert not producer.is_alive()
    assert max(producer.slowest for producer in producers) < LATENESS - 1, (
        "this machine is too slow for the test"
    )
    total = sum(producer.sent for producer in producers)
    with httpx.Client(base_url=service.address, timeout=30) as client:
        released = lambda: client.get("/streams/hall/releases?revision=all").json()["releases"]  # noqa: E731
        until(lambda: sum(sum(each["values"]) for each in released()) >= total, 60)
        service.kill(signal.SIGTERM)
        service.start()
        rows = released()
        assert sum(sum(each["values"]) for each in rows) == total
        assert [each["number"] for each in rows] == list(range(1, len(rows) + 1))
        until(lambda: all(int(reader.last) >= len(rows) for reader in readers))
        for reader in readers:
            assert [json.loads(line) for line in reader.seen][: len(rows)] == rows
            assert len({json.loads(line)["number"] for line in reader.seen}) == len(reader.seen)
    service.kill(signal.SIGTERM)
    service.close()
    verdict = verify_file(tmp_path / "hall.ledger")
    assert verdict.ok, str(verdict)
    assert total > 20 * KILLS
    for line in config.with_suffix(".log").read_text().splitlines():
        assert "walrus" not in line
        assert json.loads(line)["event"] != "stream.failed", line
