"""Brokers of a campaign: they take messages, go away in the middle of it, and come back."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.runtime.conftest import KAFKA, Broker, Kafka
from tests.runtime.helpers import publish

PATIENCE = 60.0  # seconds


def message(number: int) -> bytes:
    """An event of the first step."""
    return b'{"time": %d.%03d, "unit": "u%d"}' % (1 + number // 1000, number % 1000, number % 7)


class Mqtt(Broker):
    """Mosquitto: stopped in the middle of its deliveries, which it remembers, or killed and without any memory."""

    losses = 3  # a fourth short connection in a row is taken for a second client of the same name

    def __init__(self, program: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        super().__init__(program, folder)
        self.folder, self._topics, self._remembers = folder, 0, True
        self._listening: Any = None
        settings = self.settings.read_text()
        self.settings.write_text(
            f"{settings}persistence true\npersistence_location {folder}/\nuser root\nautosave_interval 0\n"
        )
        self.start()

    def new_topic(self, chance: random.Random) -> str:
        """A topic for one stream, and the decision how the broker is lost."""
        self._topics += 1
        self._remembers = chance.random() < 0.5
        return f"{self.url}/events{self._topics}/#"

    def send(self, place: str, numbers: Iterable[int]) -> None:
        """Messages for a topic; the broker has them when this returns."""
        publish(self.port, map(message, numbers), place.split("/")[-2].encode() + b"/x")

    def listen(self, topic: str) -> Callable[[], list[bytes]]:
        """Subscribe to releases; returns what tells those that have come, without copies of them.

        A copy has the same bytes, id included, so that whoever compares ids sees each release once.
        """
        import paho.mqtt.client as paho

        found: dict[bytes, None] = {}
        there = threading.Event()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.on_subscribe = lambda *_: there.set()
        client.on_message = lambda *given: found.setdefault(given[-1].payload)
        client.connect("127.0.0.1", self.port)
        client.subscribe(topic, qos=1)
        client.loop_start()
        if not there.wait(PATIENCE):
            raise TimeoutError("the broker does not answer")

        if self._listening is not None:
            self._listening.loop_stop()
        self._listening = client
        return lambda: list(found)

    def lose(self, taken: Path, sent: int) -> None:
        """Go away and come back: with everything it has, or, when all of that was delivered, with nothing."""
        assert self.process is not None
        if not self._remembers:
            until(taken, lambda told: told != "" and int(told) >= sent)
            self.process.kill()
        else:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        if not self._remembers:
            (self.folder / "mosquitto.db").unlink(missing_ok=True)
            until(taken, lambda told: told == "")
        self.start()


class Topics(Kafka):
    """Kafka: killed at any moment; what it has acknowledged is in its log."""

    losses = 2

    def new_topic(self, chance: random.Random) -> str:
        """A topic for one stream."""
        return self.url(self.topic())

    def send(self, place: str, numbers: Any, **_: Any) -> None:  # type: ignore[override]
        """Records for a topic."""
        super().send(place.rpartition("/")[2], [(0, message(number)) for number in numbers])

    def lose(self, taken: Path, sent: int) -> None:
        """Go away and come back."""
        self.stop()
        self.start()


def until(place: Path, holds: Any) -> None:
    """Wait for what a stream tells of itself."""
    end = time.monotonic() + PATIENCE
    while not (place.exists() and holds(place.read_text())):
        if time.monotonic() > end:
            raise TimeoutError("the stream does not get there")
        time.sleep(0.005)


def brokers(folder: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """Those that are wanted and whose programs are installed, running."""
    found: dict[str, Any] = {}
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if "mqtt" in wanted and program is not None:
        found["mqtt"] = Mqtt(program, folder / "mqtt")
    java = shutil.which("java")
    if "kafka" in wanted and java is not None and KAFKA.exists() and _answers(java):
        (folder / "kafka").mkdir()
        found["kafka"] = Topics(java, folder / "kafka")
    return found


def _answers(java: str) -> bool:
    return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
